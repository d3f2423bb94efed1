/*
 * The host seen from outside: start it, ask it how it is.
 *
 * tools/ and slurm/ use this header and status_text.h, and no other of host_backend. `weir serve`
 * is weir_serve_main(), `weir worker` (hidden: the supervisor executes it) is weir_worker_main(),
 * `weir gate` (likewise) is weir_gate_main(),
 * `weir status` is weir_control_status().
 *
 * Source: docs/design/host.md
 */
#ifndef WEIR_HOST_BACKEND_CONFIG_CONTROL_H
#define WEIR_HOST_BACKEND_CONFIG_CONTROL_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WEIR_TENANT_NAME_BYTES 64
#define WEIR_HOST_TEXT_BYTES   128
/* In the run directory, beside the tenants': where one asks for a share on demand. */
#define WEIR_CONTROL_NEW_SOCKET "new.sock"
#define WEIR_CONTROL_ON_DEMAND  "on demand" /* the source of such a tenant */

/* Everything that `weir serve` can be told on its command line.
 * NULL or 0: the file or the default. */
struct weir_serve_params {
    const char *config_path; /* weir.toml; NULL: one tenant "default", built-in defaults */
    const char *run_dir; /* where the sockets go; default /run/weir, else $XDG_RUNTIME_DIR/weir */
    const char *listen_tcp; /* "ADDRESS:PORT"; default: no TCP */
    const char *driver;     /* "auto", "nvidia", "softgpu", or the path of a libcuda.so */
    const char *guest_lib;  /* folder of the guest's libcuda.so.1; NULL: containers get none */
    const char *cdi;        /* path of the CDI file, or "none"; NULL: the file's or the default */
    const char *softgpu;    /* path of libweir-softgpu.so; NULL: searched beside the program */
    const char *log;        /* "LEVEL[:FILE]" for the workers; NULL: the file's or "info" */
    const char *program;    /* what is executed as "PROGRAM worker ..."; NULL: /proc/self/exe */
    const char *metrics;    /* "ADDRESS:PORT" or a socket's path; NULL: the file's, or none */
    const char *libvirt;    /* path of weir-libvirt; NULL: there is none */
    const char *oci_hook;   /* path of weir-oci-hook; NULL: there is none */
    const char *devices;    /* ordinals or UUIDs, with commas; NULL: the file's, or all */
    uint64_t window_base;   /* first tenant's window; 0: 0x200000000000 */
    uint64_t window_bytes;  /* of each tenant, a power of two; 0: 1 TiB */
    const char *policy;     /* of the scheduler: "fair,overlap", or "off"; NULL: the file's */
    bool check_only;        /* read the configuration, report, and return */
    bool no_softgpu;        /* "auto" does not mean softgpu where there is no GPU */
    bool check_host;        /* with check_only: also look whether what it asks for is there */
};

/**
 * Run the supervisor until SIGTERM or SIGINT.
 *
 * Complaints go to stderr (configuration errors as "path:line:column: message") and to the log.
 *
 * @param params  borrowed.
 * @return 0 after an orderly stop, 1 on failure, 2 on a wrong configuration, WEIR_SERVE_EXIT_NO_GPU
 *         where the first worker finds no driver or no device: an exit status.
 * @thread call from main, with no other thread running (it forks)
 */
int weir_serve_main(const struct weir_serve_params *params);

/**
 * Be a worker: what the supervisor executes. Its descriptor 3 is the link to the supervisor.
 *
 * @return an exit status; WEIR_WORKER_EXIT_STICKY or WEIR_WORKER_EXIT_OVERDUE when the GPU context
 *         is to be replaced.
 * @thread call from main
 */
int weir_worker_main(int argc, char **argv);

/**
 * Be the gate process: what the supervisor executes. Its descriptor 3 is the link to the
 * supervisor.
 * @return an exit status
 * @thread call from main
 */
int weir_gate_main(int argc, char **argv);

#define WEIR_SERVE_EXIT_NO_GPU 69 /* EX_UNAVAILABLE of sysexits.h; weir.service names it */
#define WEIR_SERVE_EXIT_TAKEN  75 /* EX_TEMPFAIL: another host serves the GPU; likewise */
/* Its first word when it is only to find the devices: --probe DRIVER SOFTGPU DEVICES. It prints how
 * much memory they have, or says on standard error what is wrong. */
#define WEIR_WORKER_PROBE "--probe"

#define WEIR_WORKER_EXIT_OK      0
#define WEIR_WORKER_EXIT_FAILED  1
#define WEIR_WORKER_EXIT_USAGE   2
#define WEIR_WORKER_EXIT_DRIVER  3 /* no driver, or no device */
#define WEIR_WORKER_EXIT_STICKY  4 /* an error that ended the context of all sessions */
#define WEIR_WORKER_EXIT_OVERDUE 5 /* work that a program had left behind was given up */
#define WEIR_WORKER_EXIT_FULL    6 /* the device has no room for its context */
#define WEIR_WORKER_EXIT_NO_FD   7 /* the supervisor has left no descriptor for its own */

/** Could the worker not open its devices? @param status  as waitpid() gives it. */
#define WEIR_WORKER_HAS_NO_DEVICE(status)                                                          \
    (WIFEXITED(status) && (WEXITSTATUS(status) == WEIR_WORKER_EXIT_DRIVER ||                       \
                           WEXITSTATUS(status) == WEIR_WORKER_EXIT_FULL))

/* Stack room that a worker is started with, so that its mappings begin 16 TiB lower than a
 * program's. */
#define WEIR_WORKER_STACK_ROOM (UINT64_C(16) << 40)

/** The directory of the sockets when nobody names one; static buffer. @thread main */
const char *weir_control_default_run_dir(void);

/**
 * The file that a tenant's virtual machine has as an NVDIMM: a folder of /dev/shm for each host,
 * /dev/shm/weir for the one in /run/weir, else with the directory's name behind it, in which "/"
 * is "-" and "-" and "_" have a "_" before them.
 * @param run_dir  the host's; NULL: the default.
 * @return false: the path does not fit, or run_dir is none that begins at the root
 * @thread main
 */
bool weir_control_vm_memory(const char *run_dir, const char *tenant, char *text, size_t bytes);

struct weir_status_tenant {
    char name[WEIR_TENANT_NAME_BYTES];
    char priority[16];
    char isolation[16];
    uint32_t weight;
    uint32_t sessions;
    uint32_t contexts; /* of workers that serve it alone */
    uint64_t quota_bytes;
    uint64_t used_bytes;
    uint64_t pinned_bytes;
    uint64_t image_bytes;
    char source[16];  /* who made it: "weir.toml" or "built in", "weir tenant", "libvirt" */
    uint32_t changed; /* settings that differ from its source's */
    uint32_t min_share_pct;
    uint32_t sm_limit_pct;
    uint32_t orphans; /* of its sessions: those whose program is gone, but not their work */
    uint64_t faults;  /* GPU faults that it alone can have caused */
    uint64_t suspected_faults; /* that it or another may have caused */
    uint64_t refused_device;   /* allocations of device memory that its quota did not allow .. */
    uint64_t refused_pinned;   /* .. and of pinned host memory */
    uint64_t refused_sessions; /* programs that were turned away */
    uint32_t quarantined;      /* 1: it has a worker of its own since a fault */
    double quarantine_s;       /* how much longer at least */
    double fault_age_s;        /* since the last of either; 0: there was none */
    uint32_t
        scheduled; /* 1: there is a scheduler, which fills what follows since the worker began */
    uint64_t service_sm_ns; /* nanoseconds of one multiprocessor, summed */
    uint64_t copy_h2d_ns, copy_d2h_ns;
    uint64_t copy_h2d_bytes, copy_d2h_bytes;
    uint64_t wait_ns; /* its work stood in the gate */
    /* How often it stood there for so long at most, and more than for the one before. */
    uint64_t waits_10us, waits_100us, waits_1ms, waits_10ms, waits_100ms, waits_1s, waits_longer;
    uint64_t items; /* kernels, graphs, copies, memsets */
    uint64_t stops; /* of its kernels, for others */
};

/* A GPU. Where the driver does not say, a number is NAN. */
struct weir_status_device {
    char uuid[48]; /* as nvidia-smi -L prints it */
    char name[WEIR_HOST_TEXT_BYTES];
    uint32_t ordinal; /* the driver's */
    uint32_t sms;
    uint64_t memory_bytes;
    double free_bytes;
    double utilization_pct; /* time in which a kernel ran, in the driver's last interval */
    double temperature_c;
    double power_w;
    uint32_t scheduled; /* 1: sm_ns is known */
    uint64_t sm_ns;     /* nanoseconds of one multiprocessor that all tenants were charged */
};

/* Programs of one name, of a tenant; those that are gone are in it. */
struct weir_status_program {
    char tenant[WEIR_TENANT_NAME_BYTES];
    char program[24];
    uint64_t sm_ns;
};

struct weir_status_session {
    char tenant[WEIR_TENANT_NAME_BYTES];
    char program[WEIR_HOST_TEXT_BYTES];
    char transport[16];
    uint64_t id;
    uint64_t pid;
    uint64_t worker; /* pid */
    uint64_t sm_ns;  /* nanoseconds of one multiprocessor that it was charged */
    uint64_t used_bytes;
    uint64_t memory_limit_bytes; /* that the guest asked for, of its first device; 0: none */
    uint32_t sm_limit_pct;       /* likewise, of the multiprocessors */
    uint64_t calls;
    double calls_per_s;
    double age_s;
    double orphan_age_s; /* since its program left work behind; 0: it did not */
};

struct weir_status_worker {
    char device[WEIR_HOST_TEXT_BYTES]; /* names */
    char devices[64];                  /* the driver's ordinals, with commas */
    uint32_t n_devices;
    uint32_t contexts;     /* of them, those that it has used: it has a context on each */
    uint32_t sm_share_pct; /* of the SMs, that its contexts have; 0: all */
    uint32_t all_devices;  /* 1: it has all of the host's */
    uint64_t memory_bytes; /* of its devices, all together */
    char driver[WEIR_HOST_TEXT_BYTES];
    char tenant[WEIR_TENANT_NAME_BYTES]; /* of a worker that serves one tenant alone; else "" */
    char state[16]; /* of a program's worker: "starting", "spare", "busy", "kept", "stopping"; else
                       "" */
    uint64_t pid;   /* 0: being restarted */
    uint32_t restarts;
    uint64_t objects; /* live driver objects of all sessions: 0 when no session lives */
    uint64_t chunks;
    uint64_t chunk_bytes;
};

/* What a guest says of its own calls, live or of a session that has ended (weir stats). */
struct weir_status_counted {
    char tenant[WEIR_TENANT_NAME_BYTES];
    char program[WEIR_HOST_TEXT_BYTES];
    char transport[16];
    uint64_t id;
    uint64_t pid;
    uint32_t ended;
    double age_s; /* of an ended one: how long it lived */
};

/* One function of the weir_status_counted before it. Times in nanoseconds. */
struct weir_status_function {
    char name[64];
    uint64_t guest;
    uint64_t posted;
    uint64_t waited;
    uint64_t wait_ns;
    uint64_t max_ns;
    uint64_t busy_ns; /* of guest and posted calls, where the guest times them */
    uint32_t counted; /* index of its session in the report; not in the text */
};

/* What a GPU's scheduler knows of durations, and how good that is (weir stats). Since the gate
 * process began. An error of 0.05 is 5 %. */
struct weir_status_prediction {
    uint32_t device;     /* in the order in which workers named the GPUs */
    uint32_t keys;       /* kernels with a geometry, kinds of copies */
    uint32_t keys_found; /* on disk when the gate process began */
    uint64_t asked;
    uint64_t known;     /* of those questions */
    uint64_t kernels;   /* predictions that were compared with what was seen */
    double kernel_mean; /* relative error */
    double kernel_median;
    uint64_t copies;
    double copy_mean;
    double copy_median;
};

/*
 * One counter of kernels that could be stopped (counts.def of host_backend/worker/runs): of the
 * weir_status_counted before it, how many of its launches became what; or of a device.
 */
struct weir_status_count {
    char name[24];
    uint64_t n;
    uint32_t counted; /* index of its session in the report; not in the text */
    char device[16];  /* the driver's ordinal, of a device's */
};

/* One setting of a tenant, where it was asked for (weir tenant). */
struct weir_status_setting {
    char tenant[WEIR_TENANT_NAME_BYTES];
    char key[24];
    char value[192];  /* in effect */
    char before[192]; /* before this request */
    char base[192];   /* its source's (weir_status_tenant), and so what it is after a restart */
    char origin[16];  /* who set what is in effect: that source, "weir tenant" or "libvirt" */
    uint32_t live;    /* can change while the host runs */
};

/* What happened, of events.def. Texts are "" and numbers 0 where they do not apply. */
struct weir_status_event {
    uint64_t number; /* from 1, since the host began */
    char time[32];   /* "2026-01-31T12:00:00.000Z" */
    char kind[24];
    char tenant[WEIR_TENANT_NAME_BYTES];
    char program[WEIR_HOST_TEXT_BYTES];
    char call[64];   /* Weir's operation, mostly named as the function of the Driver API */
    char why[192];   /* for people */
    uint64_t pid;    /* of the program */
    uint64_t worker; /* pid of the worker */
    uint64_t session;
    uint64_t bytes; /* that were asked for */
    uint64_t n;     /* how many this stands for: alike ones in short order are told together */
};

/* A kind of scheduling policies: the one in force ("": none), and all that there are. */
struct weir_status_policy {
    char kind[16];
    char in_force[32];
    char known[128]; /* with commas */
};

/* What `weir doctor` has looked at. */
struct weir_status_check {
    char result[16]; /* "ok", "warning", "problem"; "way": one to a host, open or not */
    char text[512];
    char remedy[256];
};

/* What `weir top` shows of a device, a tenant or a process, between two reports. NAN: not known. */
struct weir_status_rate {
    char tenant[WEIR_TENANT_NAME_BYTES];
    char program[WEIR_HOST_TEXT_BYTES];
    uint64_t pid, session;
    uint32_t device; /* the driver's ordinal */
    uint32_t sessions;
    double share_pct; /* of the multiprocessor time that all got */
    double sm_pct;    /* of the time of all multiprocessors */
    double sm_s;      /* multiprocessor time in all, in seconds */
    double to_device_bytes_per_s, from_device_bytes_per_s;
    double wait_pct; /* of the interval: how long its work waited; with several queues over 100 */
    double calls_per_s;
    uint64_t memory_bytes, quota_bytes;
};

/* What the host says about a request. */
struct weir_status_note {
    char kind[16]; /* "error": nothing was done; "warning"; "answer" of a worker */
    char text[256];
};

struct weir_status_report {
    char version[32];
    char run_dir[WEIR_HOST_TEXT_BYTES];
    uint64_t pid;
    double age_s;
    uint64_t kept_fds;                 /* device memory that the supervisor holds */
    char policy[WEIR_HOST_TEXT_BYTES]; /* of its schedulers: "fair,overlap", or "off" */
    uint64_t worker_starts;            /* of processes that serve programs */
    char config[512];                  /* path of its weir.toml; "": none, or too long to say */
    uint32_t memory_promised_pct;      /* by quotas, of a GPU's memory: above 100 it is too much */
    struct weir_status_tenant *tenants;
    size_t n_tenants;
    struct weir_status_session *sessions;
    size_t n_sessions;
    struct weir_status_worker *workers;
    size_t n_workers;
    struct weir_status_device *devices;
    size_t n_devices;
    struct weir_status_program *programs;
    size_t n_programs;
    struct weir_status_counted *counted; /* "stats" alone fills these five */
    size_t n_counted;
    struct weir_status_function *functions;
    size_t n_functions;
    struct weir_status_count *forms; /* of sessions, in their order */
    size_t n_forms;
    struct weir_status_count *runs; /* of devices */
    size_t n_runs;
    struct weir_status_prediction *predictions;
    size_t n_predictions;
    struct weir_status_setting *settings; /* "tenant" alone fills these */
    size_t n_settings;
    struct weir_status_note *notes;
    size_t n_notes;
    struct weir_status_event *events; /* "events" alone fills these */
    size_t n_events;
};

/** A row of a device about which nothing is known. @param uuid  16 bytes. @thread any */
void weir_status_device_init(struct weir_status_device *row, const uint8_t *uuid);

/**
 * Ask the host of a run directory for its state.
 *
 * @param run_dir     NULL: the default one.
 * @param ret_report  owned by the caller until weir_status_report_destroy().
 * @return WEIR_OK
 * @return WEIR_ERR_NOT_FOUND  no host there; WEIR_ERR_DENIED; WEIR_ERR_TIMED_OUT (5 s)
 * @return WEIR_ERR_PEER       it answers something else; WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_control_status(const char *run_dir,
                                     struct weir_status_report **ret_report) WEIR_MUST_CHECK;

/**
 * Ask the host for something else: words[0] is a name of requests.def.
 *
 *     status
 *     stats                   the calls of its guests, and predictions
 *     tenant show NAME        its row and settings
 *     tenant set NAME KEY=VALUE ..    "KEY=" goes back to what the tenant's source says
 *     tenant add NAME KEY=VALUE ..
 *     tenant remove NAME
 *     events                  what happened lately
 *     policy LIST             other policies for the schedulers of all workers
 *     trace start DEVICE      record scheduling into fd (sched/trace/trace.h): a device of the list
 *                             of the worker that all tenants share, from 0
 *     trace stop              end all recordings
 *
 * When it returns, the workers have done what was asked, or a note of the report says that they
 * have not. Either everything is done, or (a note is an "error") nothing.
 *
 * @param words       n_words of them, without control characters, 3000 bytes together.
 * @param fd          goes with the request; borrowed; -1: none.
 * @param ret_report  owned by the caller.
 * @return WEIR_ERR_INVALID, WEIR_ERR_TOO_BIG, else as weir_control_status(); WEIR_ERR_PEER also
 *         when the host knows no such request
 * @thread any
 */
enum weir_status weir_control_ask(const char *run_dir, const char *const *words, size_t n_words,
                                  int fd, struct weir_status_report **ret_report) WEIR_MUST_CHECK;

/** @return false: it has heard enough */
typedef bool (*weir_event_fn)(void *user, const struct weir_status_event *event);

/**
 * Hear what happens from now on, after the events that the host still knows.
 *
 * @param take  called for each.
 * @return WEIR_OK          take() has heard enough.
 * @return WEIR_ERR_CLOSED  the host has ended, or too many follow it.
 * @return else as weir_control_status()
 * @thread any
 */
enum weir_status weir_control_follow(const char *run_dir, weir_event_fn take,
                                     void *user) WEIR_MUST_CHECK;

/* A share on demand, or why there is none. */
struct weir_new_share {
    char name[WEIR_TENANT_NAME_BYTES];
    char folder[256]; /* has its socket, default.sock */
    char why[256];
};

/**
 * Ask the host for a tenant that lives as long as a process: this one, and what it executes, or a
 * container's first.
 *
 * @param container  its id; NULL: this process.
 * @param pid        its first process; 0 with this process.
 * @param words      n_words of "KEY=VALUE": memory, weight, priority, sm_limit, sessions; by root's
 *                   wish user, whose share it is to be.
 * @param ret_share  folder and name are there on success, why on WEIR_ERR_INVALID.
 * @return WEIR_OK
 * @return WEIR_ERR_INVALID    the host refuses it, or a word has control characters.
 * @return WEIR_ERR_NOT_FOUND  no host there; WEIR_ERR_DENIED; WEIR_ERR_TIMED_OUT (5 s)
 * @return WEIR_ERR_TOO_BIG, WEIR_ERR_PEER, WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_control_new(const char *run_dir, const char *container, pid_t pid,
                                  const char *const *words, size_t n_words,
                                  struct weir_new_share *ret_share) WEIR_MUST_CHECK;

/** Free a report. Accepts NULL. @thread any */
void weir_status_report_destroy(struct weir_status_report *report);

/**
 * Ask for the same as text: one JSON object a line, as it came.
 *
 * @param ret_text  owned by the caller: free().
 * @return as weir_control_status()
 * @thread any
 */
enum weir_status weir_control_status_text(const char *run_dir, char **ret_text) WEIR_MUST_CHECK;

#endif

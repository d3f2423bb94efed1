/*
 * The host's interface for other programs: they start it, and ask it for its state.
 *
 * tools/ and slurm/ use this header and status_text.h, and no other of host_backend. `weir serve`
 * is weir_serve_main(), `weir worker` (hidden: the supervisor executes it) is weir_worker_main(),
 * `weir gate` (hidden, too) is weir_gate_main(), `weir status` is weir_control_status().
 *
 * Source: docs/design/host.md
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WEIR_TENANT_NAME_BYTES 64
#define WEIR_HOST_TEXT_BYTES   128
/* The socket in the run directory at which users ask for a share on demand. */
#define WEIR_CONTROL_NEW_SOCKET "new.sock"
#define WEIR_CONTROL_ON_DEMAND  "on demand" /* the source of such a tenant */
#define WEIR_CONTROL_OF_USER    "user"      /* the source of a tenant made for a connecting user */

/* The options of `weir serve`. NULL or 0: the file's value or the default. */
struct weir_serve_params {
    const char *config_path; /* weir.toml; NULL: one tenant "default", built-in defaults */
    const char *run_dir; /* where the sockets go; default /run/weir, else $XDG_RUNTIME_DIR/weir */
    const char *listen_tcp; /* "ADDRESS:PORT"; default: no TCP */
    const char *driver;     /* "auto", "nvidia", "softgpu", or the path of a libcuda.so */
    const char *guest_lib;  /* folder of the guest's libcuda.so.1; NULL: containers get none */
    const char *cdi;        /* path of the CDI file, or "none"; NULL: the file's or the default */
    const char *softgpu;    /* path of libweir-softgpu.so; NULL: searched beside the program */
    const char *log;        /* "LEVEL[:FILE]" for the workers; NULL: the file's or "info" */
    const char *program;    /* the program to run as "PROGRAM worker ..."; NULL: /proc/self/exe */
    const char *metrics;    /* "ADDRESS:PORT" or a socket's path; NULL: the file's, or none */
    const char *libvirt;    /* path of weir-libvirt, which may not be installed; NULL: not known */
    const char *oci_hook;   /* path of weir-oci-hook; NULL: there is none */
    const char *devices;    /* ordinals or UUIDs, with commas; NULL: the file's, or all */
    uint64_t window_base;   /* first tenant's window; 0: 0x200000000000 */
    uint64_t window_bytes;  /* size of each tenant's window, a power of two; 0: 1 TiB */
    const char *policy; /* policies of the scheduler: "fair,corun", or "off"; NULL: the file's */
    bool check_only;    /* read the configuration, report, and return */
    bool no_softgpu;    /* without a GPU, driver = "auto" is an error */
    bool end;           /* take over what the last host has left running, and end it in order */
    bool check_host;    /* with check_only: also check that the machine has what is configured */
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
 * Run as a worker, which the supervisor has executed. Its descriptor 3 is the link to the
 * supervisor.
 *
 * @return an exit status; WEIR_WORKER_EXIT_STICKY or WEIR_WORKER_EXIT_OVERDUE when the GPU context
 *         is to be replaced.
 * @thread call from main
 */
int weir_worker_main(int argc, char **argv);

/**
 * Run as the gate process, which the supervisor has executed. Its descriptor 3 is the link to the
 * supervisor.
 * @return an exit status
 * @thread call from main
 */
int weir_gate_main(int argc, char **argv);

#define WEIR_SERVE_EXIT_NO_GPU 69 /* EX_UNAVAILABLE of sysexits.h; weir.service names it */
#define WEIR_SERVE_EXIT_TAKEN  75 /* EX_TEMPFAIL: another host serves the GPU (weir.service) */
/* The host has ended for `weir restart`, so systemd starts it again (weir.service). */
#define WEIR_SERVE_EXIT_RESTART 85
/* The first argument of a worker that only looks for the devices: --probe DRIVER SOFTGPU DEVICES.
 * It prints how much memory they have, or reports on standard error what is wrong. */
#define WEIR_WORKER_PROBE "--probe"

#define WEIR_WORKER_EXIT_OK      0
#define WEIR_WORKER_EXIT_FAILED  1
#define WEIR_WORKER_EXIT_USAGE   2
#define WEIR_WORKER_EXIT_DRIVER  3 /* no driver, or no device */
#define WEIR_WORKER_EXIT_STICKY  4 /* a device error ended the context of all sessions */
#define WEIR_WORKER_EXIT_OVERDUE 5 /* the worker gave up work that a program had left behind */
#define WEIR_WORKER_EXIT_FULL    6 /* the device has no room for the worker's context */
#define WEIR_WORKER_EXIT_NO_FD   7 /* no descriptor is free for the worker's own use */

/** Could the worker not open its devices? @param status  as waitpid() gives it. */
#define WEIR_WORKER_HAS_NO_DEVICE(status)                                                          \
    (WIFEXITED(status) && (WEXITSTATUS(status) == WEIR_WORKER_EXIT_DRIVER ||                       \
                           WEXITSTATUS(status) == WEIR_WORKER_EXIT_FULL))

/* Stack limit that a worker is started with. It makes its mappings begin 16 TiB lower than a
 * program's. */
#define WEIR_WORKER_STACK_ROOM (UINT64_C(16) << 40)

/** The run directory of a host that this user starts: /run/weir, or $XDG_RUNTIME_DIR/weir for an
 * ordinary user; static buffer. @thread main */
const char *weir_control_own_run_dir(void);

/** The run directory that commands use: that of the user's own host, if there is one, else the
 * machine's, /run/weir; static buffer. @thread main */
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

/* The row types of a status: one struct weir_status_<row> for each kind. */
#define WEIR_STATUS_C_U32                     uint32_t
#define WEIR_STATUS_C_U64                     uint64_t
#define WEIR_STATUS_C_REAL                    double
#define WEIR_STATUS_C_TEXT(n)                 __typeof__(char[n])
#define WEIR_STATUS_BEGIN(row)                struct weir_status_##row {
#define WEIR_STATUS(row, type, member, ...)   WEIR_STATUS_C_##type member;
#define WEIR_STATUS_MEMBER(row, type, member) WEIR_STATUS_C_##type member;
#define WEIR_STATUS_END(row)                                                                       \
    }                                                                                              \
    ;
#include "host_backend/config/status.def"
#undef WEIR_STATUS_BEGIN
#undef WEIR_STATUS
#undef WEIR_STATUS_MEMBER
#undef WEIR_STATUS_END

/*
 * One counter of kernels that could be stopped (counts.def of host_backend/worker/runs). It belongs
 * to the launches of the weir_status_counted before it, or to a device.
 */
struct weir_status_count {
    char name[24];
    uint64_t n;
    uint32_t counted; /* index of its session in the report; not written to the text */
    char device[16];  /* the driver's ordinal, if the row counts for a device */
};

/* Replaces the name of a tenant that is gone. No tenant's name has parentheses. */
#define WEIR_STATUS_OTHER_GONE   "(gone)"
#define WEIR_STATUS_OTHER_HIDDEN "(another)"

/*
 * The arrays of a report, in the order of its text: X(row, struct of an element, its fields,
 * member, offset in the element of the index of the weir_status_counted that it belongs to, or 0).
 * Only the answer to "tenant" fills settings and notes, only that to "events" events, only that to
 * "stats" those from counted on: forms are the counters of sessions, in their order, runs those of
 * devices.
 */
#define WEIR_STATUS_ARRAYS(X)                                                                      \
    X("device", weir_status_device, weir_status_device_fields, devices, 0)                         \
    X("worker", weir_status_worker, weir_status_worker_fields, workers, 0)                         \
    X("tenant", weir_status_tenant, weir_status_tenant_fields, tenants, 0)                         \
    X("extra", weir_status_extra, weir_status_extra_fields, extras, 0)                             \
    X("session", weir_status_session, weir_status_session_fields, sessions, 0)                     \
    X("program", weir_status_program, weir_status_program_fields, programs, 0)                     \
    X("wait", weir_status_wait, weir_status_wait_fields, waits, 0)                                 \
    X("setting", weir_status_setting, weir_status_setting_fields, settings, 0)                     \
    X("note", weir_status_note, weir_status_note_fields, notes, 0)                                 \
    X("event", weir_status_event, weir_status_event_fields, events, 0)                             \
    X("counted", weir_status_counted, weir_status_counted_fields, counted, 0)                      \
    X("prediction", weir_status_prediction, weir_status_prediction_fields, predictions, 0)         \
    X("function", weir_status_function, weir_status_function_fields, functions,                    \
      offsetof(struct weir_status_function, counted))                                              \
    X("form", weir_status_count, form_fields, forms, offsetof(struct weir_status_count, counted))  \
    X("run", weir_status_count, run_fields, runs, 0)

struct weir_status_report {
    char version[32];
    uint32_t protocol; /* version that its guest libraries must speak; 0: not known */
    char run_dir[WEIR_HOST_TEXT_BYTES];
    uint64_t pid;
    double age_s;
    uint64_t kept_fds;                 /* descriptors of device memory that the supervisor holds */
    char policy[WEIR_HOST_TEXT_BYTES]; /* policies of its schedulers: "fair,corun", or "off" */
    uint64_t worker_starts;            /* starts of processes that serve programs */
    char config[512];                  /* path of its weir.toml; "": none, or too long to say */
    uint32_t memory_promised_pct;      /* sum of the quotas, in percent of the GPU's memory */
    uint32_t drained;                  /* 1: no tenant takes new programs (weir drain) */
#define WEIR_STATUS_ARRAY(row, type, fields, member, counted)                                      \
    struct type *member;                                                                           \
    size_t n_##member;
    WEIR_STATUS_ARRAYS(WEIR_STATUS_ARRAY)
};

/** Initialise the row of a device of which nothing is known yet. @param uuid 16 bytes.
 * @thread any */
void weir_status_device_init(struct weir_status_device *row, const uint8_t *uuid);

/**
 * Ask the host of a run directory for its state.
 *
 * @param run_dir     NULL: the default one.
 * @param ret_report  owned by the caller until weir_status_report_destroy().
 * @return WEIR_OK
 * @return WEIR_ERR_NOT_FOUND  no host there; WEIR_ERR_DENIED; WEIR_ERR_TIMED_OUT (15 s);
 *                             WEIR_ERR_STOPPED (its process is stopped: 2 s)
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
 *     tenant keep NAME KEY=VALUE ..   as add, and later hosts have it, too, until it is removed
 *     tenant remove NAME
 *     events                  what happened lately
 *     drain [NAME]            the tenant, or each one, takes no new programs; they go on that run
 *     undrain [NAME]          the opposite; without NAME of all that are drained
 *     restart                 the supervisor ends, to be started again; programs go on
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

/** @return false: the caller wants no more events */
typedef bool (*weir_event_fn)(void *user, const struct weir_status_event *event);

/**
 * Receive events from now on, after those that the host still keeps.
 *
 * @param take  called for each.
 * @return WEIR_OK          take() wants no more events.
 * @return WEIR_ERR_CLOSED  the host has ended, or too many follow it.
 * @return else as weir_control_status()
 * @thread any
 */
enum weir_status weir_control_follow(const char *run_dir, weir_event_fn take,
                                     void *user) WEIR_MUST_CHECK;

/* The answer to a request for a share: where it is, or why there is none. */
struct weir_new_share {
    char name[WEIR_TENANT_NAME_BYTES];
    char folder[256]; /* the folder of its socket, default.sock */
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
 * @return WEIR_ERR_NOT_FOUND  no host there; WEIR_ERR_DENIED; WEIR_ERR_TIMED_OUT (15 s);
 *                             WEIR_ERR_STOPPED (its process is stopped: 2 s)
 * @return WEIR_ERR_TOO_BIG, WEIR_ERR_PEER, WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_control_new(const char *run_dir, const char *container, pid_t pid,
                                  const char *const *words, size_t n_words,
                                  struct weir_new_share *ret_share) WEIR_MUST_CHECK;

/** Free a report. Accepts NULL. @thread any */
void weir_status_report_destroy(struct weir_status_report *report);

/** Ask for the state as weir_control_status() does, but return the text: one JSON object a line. */
enum weir_status weir_control_status_text(const char *run_dir, char **ret_text) WEIR_MUST_CHECK;

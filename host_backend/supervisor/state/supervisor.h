/*
 * The supervisor's state: tenants with their sockets, workers, kept memory, waiting admin clients.
 *
 * One thread, one poll() loop; nothing here blocks for long and nothing wakes without a reason.
 * Private to host_backend/supervisor.
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_STATE_SUPERVISOR_H
#define WEIR_HOST_BACKEND_SUPERVISOR_STATE_SUPERVISOR_H

#include "base/account.h"
#include "base/log_rate.h"
#include "host_backend/config/config.h"
#include "host_backend/config/link.h"
#include "host_backend/config/spin.h"
#include "host_backend/confine/confine.h"
#include "host_backend/loop/loop.h"
#include "host_backend/supervisor/state/outbox.h"
#include "host_backend/supervisor/state/parts.h"
#include "host_backend/supervisor/state/users.h"
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#define WEIR_WORKERS_MAX       (WEIR_CONFIG_TENANTS_MAX + 1 + WEIR_PROGRAMS_MAX)
#define WEIR_ADMIN_CLIENTS_MAX 16
#define WEIR_ASKERS_MAX        16 /* who ask for shares on demand */

struct weir_sup_log;
struct weir_sup_machines;
struct weir_sup_metrics;

_Static_assert(WEIR_WORKERS_MAX <= WEIR_ACCOUNT_KEPT, "a place on a tenant's page for each");

/* Who said a setting, or made a tenant. */
enum weir_origin {
    WEIR_ORIGIN_FILE,    /* weir.toml, or the built-in defaults */
    WEIR_ORIGIN_COMMAND, /* weir tenant */
    WEIR_ORIGIN_LIBVIRT, /* a domain's metadata */
    WEIR_ORIGIN_DEMAND,  /* its user: it is a share on demand (demand.c) */
};

/* Of a tenant, by what its workers report. */
struct weir_sup_faults {
    uint64_t sure;              /* that it alone can have caused */
    uint64_t suspected;         /* that it or another may have caused */
    uint64_t last_ns;           /* of either; 0: none yet */
    uint64_t quarantine_end_ns; /* until then it has a worker of its own; 0: it is not in one */
    uint64_t release_ns;        /* when its worker is asked next whether it can end */
    bool leaves;                /* the worker of several tenants, when that dies of its fault */
};

/* What a tenant was not given. */
struct weir_sup_refused {
    uint64_t device, pinned; /* allocations, by kind of memory */
    uint64_t sessions;
};

struct weir_sup_tenant {
    struct weir_tenant_config config; /* in effect */
    struct weir_tenant_config base;   /* as its source has it: what a restart goes back to */
    enum weir_origin source;          /* who made it; of WEIR_ORIGIN_FILE only reloads remove it */
    uint8_t origins[WEIR_SETTINGS_MAX]; /* enum weir_origin of each setting in config */
    uint32_t index;
    int worker; /* index in workers; -1: none, or each of its programs has one (programs.c) */
    int listen_fd;
    int container_fd; /* the socket that containers have; -1: none (containers.c) */
    char path[108];
    int vm_listen_fd; /* for QEMU (ivshmem.c); -1: none */
    char vm_path[WEIR_CONFIG_PATH_BYTES + WEIR_TENANT_NAME_BYTES + 16];
    struct weir_sup_nvdimm nvdimm;
    struct weir_sup_faults faults;
    struct weir_sup_refused refused;
    struct weir_account_page *account;    /* its workers' together; NULL: it has none yet */
    int account_fd;                       /* of that */
    uint64_t granted[WEIR_ACCOUNT_COUNT]; /* of the machine's memory, by that page (grants.c) */
    int demand_fd; /* of a share on demand: a pidfd of the process with which it ends; else -1 */
    uint32_t demand_uid;           /* .. who may use it */
    uint32_t demand_user;          /* .. slot of the user for whom it counts */
    struct weir_log_rate log_rate; /* of lines that its guests cause; weir_sup_log_rate() */
    uint32_t goings; /* how often it was removed, or a tenant before it in this slot */
    bool used;       /* this slot: until nothing is left of it in its worker */
    bool gone;       /* removed */
};

/* Whom a worker serves. */
enum weir_worker_kind {
    WEIR_WORKER_SHARED,  /* the tenants of a group, or all remote guests */
    WEIR_WORKER_TENANT,  /* a tenant */
    WEIR_WORKER_PROGRAM, /* a program, or nobody yet (programs.c) */
};

/* The gate process (gate.c). */
struct weir_sup_gate {
    pid_t pid; /* 0: not running */
    int link;  /* -1: not running */
    struct weir_outbox outbox;
    struct weir_sup_log *log; /* what it writes; owned; NULL: not running */
    bool answering;           /* has been asked for its status */
    uint32_t last_port;
    uint32_t failures; /* in a row: back-off */
    uint64_t started_ns;
    uint64_t restart_at_ns; /* 0: it need not */
    uint64_t alive_by_ns;   /* it was asked whether it lives, and is killed then; 0: it was not */
    struct weir_link_gpu gpus[WEIR_LINK_GPUS_MAX]; /* that it is to serve */
    uint32_t n_gpus;
};

/* A worker's port to the gate process. */
struct weir_sup_worker_gate {
    bool comes;       /* it was told that it gets a port to the gate */
    uint32_t port;    /* that the gate process was asked for; 0: none */
    bool deaf;        /* it has left that, since the gate did not read */
    uint64_t port_ns; /* when it was asked for */
};

/* Memory that a worker lacks, and what it may give back (workers/giving.c). */
struct weir_sup_worker_giving {
    bool lacks_memory; /* it has asked for some since it was last heard */
    uint64_t heard_ns; /* .. which was then; 0: never */
    bool asks;         /* how many may give some */
    uint32_t n_syncs;  /* WEIR_LINK_SYNC that have come */
    uint64_t since_ns; /* since when it has had something to give back when it was asked for */
};

struct weir_sup_worker {
    bool used;
    enum weir_worker_kind kind;
    pid_t pid;                            /* 0: not running */
    int link;                             /* -1: not running */
    struct weir_outbox outbox;            /* for the link */
    struct weir_sup_log *log;             /* what it writes; owned; NULL: not running */
    struct weir_log_rate log_rate;        /* of lines about what it says */
    int tenant;                           /* slot of the tenant that it serves alone; -1: none */
    char group[WEIR_TENANT_NAME_BYTES];   /* that it serves; "": tenants of none */
    char devices[WEIR_DEVICE_LIST_BYTES]; /* that it owns; shared by the tenants with this list */
    struct weir_sup_program program;
    struct weir_spin_page *spin_page; /* shared with it alone; NULL: it does not run */
    bool told;                        /* it reads its link, and knows its tenants */
    bool ready;
    bool renewing;   /* it is to end, and to start again with other connections */
    bool answering;  /* has been asked for its status */
    uint32_t n_rows; /* that it has answered with */
    uint32_t restarts;
    uint32_t failures;       /* in a row: back-off */
    uint32_t connections;    /* that a program of its tenant asked for; 0: none did */
    bool connections_failed; /* the worker before found no room for as many */
    uint64_t stop_by_ns;     /* it is to end, and is killed then; 0: it is not */
    uint64_t stopped_by_ns;  /* a signal has stopped it, and it is killed then; 0: none has */
    uint64_t renewed_ns;     /* when it was last started for that */
    uint64_t started_ns;
    uint64_t restart_at_ns;
    struct weir_status_worker row;
    struct weir_sup_worker_gate gate;
    struct weir_sup_worker_giving giving;
};

struct weir_kept_chunk {
    int fd;
    int worker;
    struct weir_link_chunk chunk;
};

#define WEIR_DIRECTORY_BUCKETS 1024 /* by the key, which is random */

struct weir_sup_entry;

/* What tenants' programs share over their workers (directory.c). */
struct weir_sup_directory {
    struct weir_sup_entry *buckets[WEIR_DIRECTORY_BUCKETS];
    size_t n_memory; /* entries that are memory */
    int watch_fd;    /* an epoll set of our ends of guests' descriptors; -1: not open */
};

#define WEIR_ADMIN_WORDS_MAX (4 + 2 * WEIR_SETTINGS_MAX) /* of a request */

struct weir_supervisor;
struct weir_admin_client;

/* Add to a report, which has the host's row already, what a client is answered. */
typedef void (*weir_sup_answer_fn)(struct weir_supervisor *sup, struct weir_admin_client *client,
                                   struct weir_status_report *report);

struct weir_admin_client {
    int fd;      /* -1: free */
    uint64_t id; /* as of weir_link_text */
    bool asked;
    bool looks;                /* it has changed nothing: a gathering under way will do */
    bool stats;                /* it is answered what the workers write into files */
    weir_sup_answer_fn answer; /* NULL: its notes are all */
    uint64_t gathering;        /* which one's end it waits for */
    char request[4096];        /* so far */
    size_t request_bytes;
    bool has_passed;
    int passed_fd;                       /* came with the request; owned */
    char tenant[WEIR_TENANT_NAME_BYTES]; /* that it is about */
    struct weir_status_report *report;   /* of its request: notes and settings; owned */
    char *reply;                         /* owned; NULL: there is none yet */
    size_t reply_bytes, sent;
    uint64_t deadline_ns; /* of its request, or of its taking the reply */
};

/* A connection of somebody who asks for a share on demand. */
struct weir_sup_asker {
    int fd; /* -1: free */
    uint64_t deadline_ns;
    uint32_t uid;
};

#define WEIR_DOMAINS_MAX 1024 /* with an element of ours */

struct weir_sup_domain;

/* weir-libvirt, and what it has said (libvirt.c). */
struct weir_sup_libvirt {
    pid_t pid; /* 0: not running */
    int link;  /* -1: not running */
    uint32_t failures;
    uint64_t started_ns;
    uint64_t restart_at_ns; /* 0: it need not */
    struct weir_sup_domain *domains;
    size_t n_domains;
};

/* Who may spin (host_backend/config/spin.h), and what else is on workers' pages. */
struct weir_sup_spin {
    struct weir_spin_page *page; /* the gate process's */
    int page_fd;                 /* -1: not made */
    uint32_t epoch, tenants;
    int loadavg_fd; /* -1: cannot be read, so the level stays */
    uint32_t cores;
    uint32_t idle_epochs; /* in a row without an active session */
    uint64_t next_ns;     /* when the epoch ends */
    struct weir_spin_governor governor;
};

/* Descriptors to use when no others are left (accept.c). */
#define WEIR_SUP_RESERVE 8u
struct weir_sup_reserve {
    int fd[WEIR_SUP_RESERVE];
    uint32_t n;
    uint64_t refused; /* guests that were turned away for want of descriptors */
    uint64_t said_ns; /* when the log last said so */
};

/*
 * Who is told what workers and the gate process do and say: parts of the supervisor that know of
 * workers, and of which these know nothing (hear.c).
 */
struct weir_worker_events {
    /* A worker says something; the descriptor is taken. */
    void (*hears)(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard);
    /* A worker reads its link from now on, and is to hear of its tenants. */
    void (*reads)(struct weir_supervisor *sup, int worker);
    void (*ready)(struct weir_supervisor *sup, int worker);
    /* A worker's process has ended, and with it all that it had. */
    void (*gone)(struct weir_supervisor *sup, int worker);
    /* .. of a kind other than PROGRAM: its slot is free if it has no tenant any more. */
    void (*left)(struct weir_supervisor *sup, int worker);
    /* .. is it not to be started again, since its tenant goes to another one? */
    bool (*retires)(struct weir_supervisor *sup, int worker);
    /* .. it is to be started again. */
    void (*failed)(struct weir_supervisor *sup, int worker);
    /* .. of kind PROGRAM. @param status  as waitpid() gives it */
    void (*program_died)(struct weir_supervisor *sup, int worker, int status);
    /* A worker of one of the tenant's programs has died; the tenant may have gone before. */
    void (*program_left)(struct weir_supervisor *sup, uint32_t tenant);
    /* A worker's death has ended its MPS domain; by a signal: its tenant is to blame. */
    void (*domain_died)(struct weir_supervisor *sup, int worker, bool by_signal);
    /* The gate process answers a client's request, says who has used the SMs, or how it is. */
    void (*gate_answers)(struct weir_supervisor *sup, const struct weir_link_text *answer);
    void (*gate_uses)(struct weir_supervisor *sup, const struct weir_link_use *use);
    void (*gate_row)(struct weir_supervisor *sup, struct weir_link_message *message, int fd);
};

/* Where the host is between its start and its end. */
struct weir_sup_life {
    uint64_t started_ns;
    bool stopping;
    int exit_status;
    bool listening; /* the first tenants are applied: workers listen when they know theirs */
    bool announced; /* READY=1 was said */
};

/* admin.sock: its clients, and what workers have answered (admin.c). */
struct weir_sup_admin {
    int fd;
    char path[108];
    struct weir_admin_client clients[WEIR_ADMIN_CLIENTS_MAX];
    uint64_t last_client; /* its id */
    bool gathering;
    bool gathering_stats;  /* .. statistics, too */
    uint64_t n_gatherings; /* begun */
    char *stats_text;      /* rows of statistics so far */
    size_t stats_bytes;
    uint64_t deadline_ns;
    struct weir_link_use *uses; /* of sessions; port is the worker's pid */
    size_t n_uses;
    struct weir_status_report gathered; /* rows that workers have sent so far */
    uint64_t gathered_ns;               /* when the last gathering was complete */
};

/* Who asks for shares on demand (tenants/demand.c). */
struct weir_sup_demand {
    int fd; /* listens for who wants a share on demand; -1: not yet */
    char path[108];
    struct weir_sup_asker askers[WEIR_ASKERS_MAX];
    uint32_t asking_user; /* slot of the user for whom a share is being made */
    uint64_t n_runs;      /* programs that were given a share */
};

/* Programs that wait for a worker, and what there is none for (workers/programs.c). */
struct weir_sup_programs {
    struct weir_sup_pending pending[WEIR_PENDING_MAX];
    struct weir_sup_waiting waiting;
    struct weir_sup_shortage shortages[WEIR_SHORTAGES_MAX];
    uint64_t spares_from_ns;   /* no spare is started before that, for want of memory; .. */
    uint64_t spares_paused_ns; /* .. nor before that, since a program starts */
};

/* MPS servers (domains/mps.c). */
struct weir_sup_domains {
    bool wanted; /* programs' workers are to be under MPS */
    bool proved; /* one has been */
    struct weir_sup_mps of[WEIR_MPS_MAX];
    uint32_t turns; /* that were given to domains */
};

/* Descriptors of memory that workers have (workers/keeper.c). */
struct weir_sup_keeper {
    struct weir_kept_chunk *kept;
    size_t n_kept;
    size_t room;
    struct weir_account_pool pool; /* descriptors for them, and each tenant's part of it */
    struct weir_account of[WEIR_CONFIG_TENANTS_MAX];
};

/* Of lines in the log that are about no tenant. */
struct weir_sup_rates {
    struct weir_log_rate strangers; /* that guests of no tenant cause */
    struct weir_log_rate starts;    /* about workers that start, and spares that end */
};

struct weir_supervisor {
    const struct weir_worker_events *listener;
    struct weir_host_config config;
    char policy_base[WEIR_SCHED_POLICY_BYTES]; /* as file and command line had it last */
    struct weir_serve_params params;
    int signal_fd;
    struct weir_sup_user users[WEIR_USERS_MAX];
    int tcp_fd; /* listens for remote guests, whom the main worker accepts; -1: nobody does */
    struct weir_sup_tenant tenants[WEIR_CONFIG_TENANTS_MAX];
    struct weir_sup_worker workers[WEIR_WORKERS_MAX];
    struct weir_sup_gate gate;
    struct weir_confine_user worker_user;
    char cache_dir[WEIR_FORMS_PATH_BYTES]; /* if workers run as another user; "": none */
    struct weir_sup_directory directory;
    struct weir_sup_libvirt libvirt;
    struct weir_sup_spin spin;
    struct weir_sup_events *events;
    uint64_t worker_starts;
    struct weir_sup_reserve reserve;
    struct weir_claims claims; /* of GPUs */
    uint32_t remarked_pct;     /* of memory promised, when that was last looked at */
    struct weir_sup_life life;
    struct weir_sup_admin admin;
    struct weir_sup_demand demand;
    struct weir_sup_metrics *metrics; /* NULL: nobody may ask for any */
    struct weir_sup_programs programs;
    struct weir_sup_domains mps;
    struct weir_sup_machines *machines;
    struct weir_sup_keeper keeper;
    struct weir_sup_rates rates;
};

/*
 * Requests of host_backend/config/requests.def. What a client asks is done at once, and
 * client->report gets what there is to say; then the workers are asked how they are, and when they
 * have answered, the client is.
 */

/**
 * @param words  of client->request, the name of the request first.
 * @return false: the words make no sense, and the client is not answered
 */
typedef bool (*weir_sup_request_fn)(struct weir_supervisor *sup, struct weir_admin_client *client,
                                    char **words, size_t n_words);

#define WEIR_SUP_REQUEST(name, handler)                                                            \
    bool handler(struct weir_supervisor *sup, struct weir_admin_client *client, char **words,      \
                 size_t n_words);
#include "host_backend/config/requests.def"
#undef WEIR_SUP_REQUEST

#endif

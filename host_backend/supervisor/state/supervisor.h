/*
 * The supervisor's state: tenants with their sockets, workers, kept memory, waiting admin clients.
 *
 * One thread, one poll() loop; nothing here blocks for long and nothing wakes without a reason.
 * Private to host_backend/supervisor.
 */
#pragma once

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

#define WEIR_WORKERS_MAX        (WEIR_CONFIG_TENANTS_MAX + 1 + WEIR_PROGRAMS_MAX)
#define WEIR_ADMIN_CLIENTS_MAX  64 /* a node's 30 pods may start at once: a request each */
#define WEIR_DEMAND_CLIENTS_MAX 16 /* connections that ask for shares on demand */

struct weir_book;
struct weir_sup_log;
struct weir_sup_machines;
struct weir_sup_metrics;

_Static_assert(WEIR_WORKERS_MAX <= WEIR_ACCOUNT_KEPT, "a place on a tenant's page for each");

/* What set a setting, or created a tenant. */
enum weir_origin {
    WEIR_ORIGIN_FILE,    /* weir.toml, or the built-in defaults */
    WEIR_ORIGIN_COMMAND, /* weir tenant */
    WEIR_ORIGIN_LIBVIRT, /* a domain's metadata */
    WEIR_ORIGIN_DEMAND,  /* a user's request: the tenant is a share on demand (demand.c) */
    WEIR_ORIGIN_KEPT,    /* weir tenant add --keep: outlives the host (kept.c) */
    WEIR_ORIGIN_USER,    /* a user has come who names no tenant (user_tenants.c) */
};

/* A tenant's faults, as its workers report them. */
struct weir_sup_faults {
    uint64_t sure;              /* faults that only this tenant can have caused */
    uint64_t suspected;         /* faults that this tenant or another may have caused */
    uint64_t last_ns;           /* when the last fault of either kind was; 0: none yet */
    uint64_t quarantine_end_ns; /* end of its quarantine, in a worker of its own; 0: none */
    uint64_t release_ns;        /* when to ask its worker again whether it can end */
    bool leaves;                /* it gets its own worker when the shared one dies of the fault */
};

/* Requests of a tenant that were refused. */
struct weir_sup_refused {
    uint64_t device, pinned; /* refused allocations, by kind of memory */
    uint64_t sessions;
};

struct weir_sup_tenant {
    struct weir_tenant_config config; /* settings in effect */
    struct weir_tenant_config base;   /* settings of its source, which a restart brings back */
    enum weir_origin source; /* who created it; only a reload removes one of WEIR_ORIGIN_FILE */
    uint8_t origins[WEIR_SETTINGS_MAX]; /* who set each setting of config: enum weir_origin */
    uint32_t index;
    int worker; /* index in workers; -1: none, or each program has one (programs.c) */
    int listen_fd;
    int container_fd; /* socket for containers; -1: none (containers.c) */
    char path[108];
    int vm_listen_fd; /* socket for QEMU (ivshmem.c); -1: none */
    char vm_path[WEIR_CONFIG_PATH_BYTES + WEIR_TENANT_NAME_BYTES + 16];
    struct weir_sup_nvdimm nvdimm;
    struct weir_sup_faults faults;
    struct weir_sup_faults noted; /* the faults that the keeper knows of (tenant_row.c) */
    struct weir_sup_refused refused;
    uint64_t moved, noted_moved;          /* sessions that went on in another worker; as noted */
    struct weir_account_page *account;    /* page that all its workers charge; NULL: not made yet */
    int account_fd;                       /* descriptor of the page */
    uint64_t granted[WEIR_ACCOUNT_COUNT]; /* the machine's memory granted on that page (grants.c) */
    int demand_fd;        /* of a share on demand: pidfd of the process that it ends with */
    uint32_t demand_uid;  /* of a share on demand: uid that may use it */
    uint32_t demand_user; /* of a user's tenant: slot of the user for whom it counts */
    uint64_t came_ns;     /* of a user's tenant: when its last program came */
    struct weir_log_rate log_rate; /* rate of log lines of its guests; weir_sup_log_rate() */
    uint32_t generation;           /* generation of this slot: how often its tenant was removed */
    bool drained;                  /* it takes no new programs */
    bool used;                     /* the slot is used until no worker has anything of the tenant */
    bool gone;                     /* the tenant was removed */
};

/* Which programs a worker serves. */
enum weir_worker_kind {
    WEIR_WORKER_SHARED,  /* those of a group's tenants, or all remote guests */
    WEIR_WORKER_TENANT,  /* a tenant */
    WEIR_WORKER_PROGRAM, /* one program, or none yet (programs.c) */
};

/* The gate process (gate.c). */
struct weir_sup_gate {
    pid_t pid; /* 0: not running */
    int link;  /* -1: not running */
    struct weir_outbox outbox;
    struct weir_sup_log *log; /* reads the process's log; owned; NULL: not running */
    bool answering;           /* it still has to answer STATUS */
    uint32_t last_port;
    uint32_t failures; /* consecutive failures, which lengthen the pause */
    uint64_t started_ns;
    uint64_t restart_at_ns; /* when to restart it; 0: no restart is due */
    uint64_t alive_by_ns;   /* when to kill it unless it answers PING; 0: none was sent */
    struct weir_link_gpu gpus[WEIR_LINK_GPUS_MAX]; /* GPUs that it serves */
    uint32_t n_gpus;
};

/* A worker's port to the gate process. */
struct weir_sup_worker_gate {
    bool comes;       /* the worker expects a port to the gate process */
    uint32_t port;    /* port requested from the gate process; 0: none */
    bool deaf;        /* the worker left the port, since the gate process did not read */
    uint64_t port_ns; /* when the port was requested */
};

/* Memory that a worker lacks, and what it may give back (workers/giving.c). */
struct weir_sup_worker_giving {
    uint64_t lacks_ns; /* when it last reported a lack that was not handled yet; 0: none */
    uint64_t heard_ns; /* when such a lack was last handled; 0: never */
    bool asks;         /* it asks how many workers may give back memory */
    uint32_t n_syncs;  /* WEIR_LINK_SYNC messages received */
    uint64_t since_ns; /* since when it could give back memory that others need */
    uint64_t moves_ns; /* when its program was last asked to put its memory away; 0: never */
    uint64_t moves_to; /* how many of the movable bytes may stay */
};

struct weir_sup_worker {
    bool used;
    enum weir_worker_kind kind;
    pid_t pid;                            /* 0: not running */
    int link;                             /* -1: not running */
    struct weir_outbox outbox;            /* messages that wait for room in the link */
    struct weir_sup_log *log;             /* reads the process's log; owned; NULL: not running */
    struct weir_log_rate log_rate;        /* rate of log lines about its messages */
    int tenant;                           /* slot of the only tenant that it serves; -1: several */
    char group[WEIR_TENANT_NAME_BYTES];   /* group that it serves; "": tenants without one */
    char devices[WEIR_DEVICE_LIST_BYTES]; /* its devices; shared by the tenants with this list */
    struct weir_sup_program program;
    struct weir_spin_page *spin_page; /* the worker's own page; NULL: it does not run */
    bool told;                        /* it reads its link, and has received its tenants */
    bool ready;
    bool resuming;    /* the last supervisor's: it has not told yet what it is doing (adopt.c) */
    bool without_tcp; /* it started while the host could not listen for remote guests */
    bool answering;   /* it still has to answer STATUS */
    uint32_t n_rows;  /* rows of its answer so far */
    uint32_t restarts;
    uint32_t failures; /* consecutive failures, which lengthen the pause */
    struct {
        uint32_t wanted;     /* number that a program asked for; 0: none did */
        bool failed;         /* the last worker with that number found no room for it */
        bool renewing;       /* it must end, and restart with another number */
        uint64_t renewed_ns; /* when it was last restarted for that */
    } connections;
    uint64_t stop_by_ns;    /* when to kill it if it has not ended; 0: it need not end */
    uint64_t stopped_by_ns; /* when to kill it since a signal stopped it; 0: none has */
    uint64_t started_ns;
    uint64_t restart_at_ns;
    struct weir_status_worker row;
    struct weir_sup_worker_gate gate;
    struct weir_sup_worker_giving giving;
};

struct weir_kept_chunk {
    uint64_t key; /* of its row, which has the descriptor */
    int worker;
    struct weir_link_chunk chunk;
};

#define WEIR_DIRECTORY_BUCKETS 1024 /* hash buckets; the random key chooses the bucket */

struct weir_sup_entry;

/* Entries that a tenant's programs share across their workers (directory.c). */
struct weir_sup_directory {
    struct weir_sup_entry *buckets[WEIR_DIRECTORY_BUCKETS];
    size_t n_memory; /* entries that are memory */
    uint64_t last_key;
    int watch_fd; /* epoll set of the supervisor's ends of descriptors; -1: not open */
};

#define WEIR_ADMIN_WORDS_MAX (4 + 2 * WEIR_SETTINGS_MAX) /* most words of a request */

struct weir_supervisor;
struct weir_admin_client;

/* Add the answer for a client to a report, which already has the host's row. */
typedef void (*weir_sup_answer_fn)(struct weir_supervisor *sup, struct weir_admin_client *client,
                                   struct weir_status_report *report);

struct weir_admin_client {
    int fd;      /* -1: free */
    uint64_t id; /* as of weir_link_text */
    bool asked;
    bool looks;                /* it changes nothing, so a running gathering will do */
    bool stats;                /* the answer needs the workers' files of statistics */
    weir_sup_answer_fn answer; /* NULL: the answer consists of the notes */
    uint64_t gathering;        /* number of the gathering that the client waits for */
    char request[4096];        /* the part of the request that has come */
    size_t request_bytes;
    bool has_passed;
    int passed_fd;                       /* descriptor that came with the request; owned */
    char tenant[WEIR_TENANT_NAME_BYTES]; /* name of the tenant that the request is about */
    struct weir_status_report *report;   /* notes and settings for the answer; owned */
    char *reply;                         /* text of the reply; owned; NULL: there is none yet */
    size_t reply_bytes, sent;
    uint64_t deadline_ns; /* deadline for the request, or for taking the reply */
};

/* A connection of a user who asks for a share on demand. */
struct weir_sup_demand_client {
    int fd; /* -1: free */
    uint64_t deadline_ns;
    uint32_t uid;
};

#define WEIR_DOMAINS_MAX 1024 /* domains with a <tenant/> element */

struct weir_sup_domain;

/* The process weir-libvirt and its messages (libvirt.c). */
struct weir_sup_libvirt {
    pid_t pid; /* 0: not running */
    int link;  /* -1: not running */
    uint32_t failures;
    uint64_t started_ns;
    uint64_t restart_at_ns; /* when to restart it; 0: no restart is due */
    struct weir_sup_domain *domains;
    size_t n_domains;
};

/* State of the spin governor (host_backend/config/spin.h), which owns the workers' pages. */
struct weir_sup_spin {
    struct weir_spin_page *page; /* page of the gate process */
    int page_fd;                 /* -1: not made */
    uint32_t epoch, tenants;
    int loadavg_fd; /* -1: it cannot be read, so the level stays */
    uint32_t cores;
    uint32_t idle_epochs; /* consecutive epochs without an active session */
    uint64_t next_ns;     /* when the epoch ends */
    struct weir_spin_governor governor;
};

/* Descriptors in reserve, for when no others are left (accept.c). */
#define WEIR_SUP_RESERVE 8u
struct weir_sup_reserve {
    int fd[WEIR_SUP_RESERVE];
    uint32_t n;
    uint64_t refused; /* guests that were refused for lack of descriptors */
    uint64_t said_ns; /* when that was last logged */
};

/*
 * Callbacks for events of workers and of the gate process. They call parts of the supervisor that
 * depend on workers; workers do not depend on those (hear.c).
 */
struct weir_worker_events {
    /* A worker has sent a message; its descriptor is taken. */
    void (*hears)(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard);
    /* A worker begins to read its link, and must be sent its tenants. */
    void (*reads)(struct weir_supervisor *sup, int worker);
    void (*ready)(struct weir_supervisor *sup, int worker);
    /* A worker's process has ended, and all its state is gone. */
    void (*gone)(struct weir_supervisor *sup, int worker);
    /* A worker other than a PROGRAM has ended: its slot is free if it has no tenant any more. */
    void (*left)(struct weir_supervisor *sup, int worker);
    /* Such a worker has ended: does its tenant move to another worker, so that this one is not
     * restarted? */
    bool (*retires)(struct weir_supervisor *sup, int worker);
    /* Such a worker has ended, and will be restarted. */
    void (*failed)(struct weir_supervisor *sup, int worker);
    /* A worker of kind PROGRAM has ended. @param status  as waitpid() gives it */
    void (*program_died)(struct weir_supervisor *sup, int worker, int status);
    /* A worker of one of the tenant's programs has died; the tenant may have been removed
     * before. */
    void (*program_left)(struct weir_supervisor *sup, uint32_t tenant);
    /* A worker's death has ended its MPS domain; if by_signal, its tenant is to blame. */
    void (*domain_died)(struct weir_supervisor *sup, int worker, bool by_signal);
    /* A guest only asks why its tenant's work waits; the descriptor is taken. */
    void (*asks_why)(struct weir_supervisor *sup, uint32_t tenant, int fd);
    /* The gate process answers a client's request, reports use of the SMs, or its status. */
    void (*gate_answers)(struct weir_supervisor *sup, const struct weir_link_text *answer);
    void (*gate_uses)(struct weir_supervisor *sup, const struct weir_link_use *use);
    void (*gate_row)(struct weir_supervisor *sup, struct weir_link_message *message, int fd);
};

/* Progress of the host from its start to its end. */
struct weir_sup_life {
    uint64_t started_ns;
    bool stopping;
    bool took_over; /* there were processes of an earlier supervisor */
    bool leaves;    /* it ends, and its processes and sockets wait for the next supervisor */
    int exit_status;
    bool listening; /* the first tenants are applied: workers listen once they have theirs */
    bool announced; /* systemd was sent READY=1 */
};

#define WEIR_ASKERS_MAX 16

/* A connection to a tenant's socket that asks why the tenant's work waits (why.c). */
struct weir_sup_asker {
    int fd; /* -1: free */
    uint32_t tenant, generation;
    uint64_t gathering; /* number of the gathering that the connection waits for */
    char *text;         /* the answer; owned; NULL: there is none yet */
    size_t bytes, sent;
    uint64_t deadline_ns;
};

/* admin.sock: its clients, and the workers' answers (admin.c). */
struct weir_sup_admin {
    int fd;
    char path[108];
    struct weir_admin_client clients[WEIR_ADMIN_CLIENTS_MAX];
    struct weir_sup_asker askers[WEIR_ASKERS_MAX];
    uint64_t last_client; /* id of the last client */
    bool gathering;
    bool gathering_stats;  /* the gathering includes statistics */
    uint64_t n_gatherings; /* gatherings begun so far */
    char *stats_text;      /* rows of statistics so far */
    size_t stats_bytes;
    uint64_t deadline_ns;
    struct weir_link_use *uses; /* SM time of sessions; port is the worker's pid */
    size_t n_uses;
    struct weir_status_report gathered; /* rows that workers have sent so far */
    uint64_t gathered_ns; /* when the last gathering was complete that answers clients */
    bool unasked;         /* the gathering is the host's own: weir_sup_admin_look() */
};

/* Connections that ask for shares on demand (tenants/demand.c). */
struct weir_sup_demand {
    int fd; /* listens for users who request shares; -1: not yet */
    char path[108];
    struct weir_sup_demand_client clients[WEIR_DEMAND_CLIENTS_MAX];
    uint32_t asking_user; /* slot of the user whose share is being made */
    uint64_t n_runs;      /* programs that were given a share */
    uint64_t looked_ns;   /* when idle users' tenants were last removed (user_tenants.c) */
};

enum weir_extra {
#define WEIR_EXTRA(extra, name) WEIR_EXTRA_##extra,
#include "host_backend/supervisor/state/extras.def"
#undef WEIR_EXTRA
    WEIR_EXTRA_COUNT
};

/* Services beside the GPU (extras.c). */
struct weir_sup_extras {
    struct weir_sup_extra {
        bool wanted;   /* the configuration asks for it */
        char why[160]; /* why it fails; "": it works */
    } of[WEIR_EXTRA_COUNT];
    uint64_t again_ns; /* when to retry those that fail; 0: none has failed yet */
};

/* weir drain, and weir restart (drain_admin.c). */
struct weir_sup_drain {
    bool all;               /* no tenant takes new programs */
    bool restart;           /* the supervisor ends, to be started again */
    uint64_t restart_by_ns; /* when it ends at the latest */
};

/* Programs that wait for a worker, and shortages that delay workers (workers/programs.c). */
struct weir_sup_programs {
    uint64_t n_guests; /* connections that have got a number */
    struct weir_sup_pending pending[WEIR_PENDING_MAX];
    struct weir_sup_waiting waiting;
    struct weir_sup_shortage shortages[WEIR_SHORTAGES_MAX];
    uint64_t spares_from_ns;   /* start no spare before, for lack of memory */
    uint64_t spares_paused_ns; /* start no spare before, since a program's worker starts */
};

/* MPS servers (domains/mps.c). */
struct weir_sup_domains {
    bool wanted; /* programs' workers should run under MPS */
    bool proved; /* some worker has run under MPS */
    struct weir_sup_mps of[WEIR_MPS_MAX];
    uint32_t turns; /* the last number that a domain got as `turn` */
    struct weir_mps_sms sms[WEIR_MPS_MAX];
    uint32_t n_sms;
};

/* Descriptors of workers' device memory (workers/chunks.c). */
struct weir_sup_chunks {
    struct weir_kept_chunk *kept;
    size_t n_kept;
    size_t room;
    uint64_t last_key;
    struct weir_account_pool pool; /* descriptors for chunks, and each tenant's part */
    struct weir_account of[WEIR_CONFIG_TENANTS_MAX];
};

/* Rate limits of log lines that are about no tenant. */
struct weir_sup_rates {
    struct weir_log_rate strangers; /* lines about guests of no tenant */
    struct weir_log_rate starts;    /* lines about starting workers, and ending spares */
};

/* The host's GPUs (gpus.c). */
struct weir_sup_gpus {
    struct weir_status_device of[WEIR_LINK_DEVICES_MAX];
    uint32_t n;
    bool known; /* a worker has reported all of them */
};

struct weir_supervisor {
    const struct weir_worker_events *listener;
    struct weir_book *book; /* the keeper's end and rows (book.h); NULL: none */
    struct weir_host_config config;
    struct weir_serve_params params;
    int signal_fd;
    struct weir_sup_user users[WEIR_USERS_MAX];
    int tcp_fd; /* listens for remote guests; the main worker accepts; -1: none */
    struct weir_sup_tenant tenants[WEIR_CONFIG_TENANTS_MAX];
    struct weir_sup_worker workers[WEIR_WORKERS_MAX];
    struct weir_sup_gate gate;
    struct {
        struct weir_confine_user user;
        char
            cache_dir[WEIR_FORMS_PATH_BYTES]; /* of caches, if workers have other users; "": none */
        uint64_t starts;
    } running; /* of all workers */
    struct weir_sup_directory directory;
    struct weir_sup_libvirt libvirt;
    struct weir_sup_spin spin;
    struct weir_sup_events *events;
    struct weir_sup_reserve reserve;
    struct weir_sup_gpus gpus;
    struct weir_claims claims; /* claims of GPUs */
    struct {
        uint64_t bytes;        /* of the host's devices; 0: not reported yet */
        uint32_t remarked_pct; /* percent of it promised, as last logged */
    } memory;
    struct weir_sup_life life;
    struct weir_sup_drain drain;
    struct weir_sup_extras extras;
    struct weir_sup_admin admin;
    struct weir_sup_demand demand;
    struct weir_sup_metrics *metrics; /* NULL: metrics are not served */
    struct weir_sup_programs programs;
    struct weir_sup_domains mps;
    struct weir_sup_machines *machines;
    struct weir_sup_chunks chunks;
    struct weir_sup_rates rates;
};

/*
 * Handlers of the requests of host_backend/config/requests.def. A request is executed at once, and
 * client->report gets its notes. Then the workers are asked for their state, and when they have
 * answered, the client gets its answer.
 */

/**
 * @param words  of client->request, the name of the request first.
 * @return false: the words are invalid, and the client gets no answer
 */
typedef bool (*weir_sup_request_fn)(struct weir_supervisor *sup, struct weir_admin_client *client,
                                    char **words, size_t n_words);

#define WEIR_SUP_REQUEST(name, handler)                                                            \
    bool handler(struct weir_supervisor *sup, struct weir_admin_client *client, char **words,      \
                 size_t n_words);
#include "host_backend/config/requests.def"
#undef WEIR_SUP_REQUEST

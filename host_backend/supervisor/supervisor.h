/*
 * The supervisor's state: tenants with their sockets, workers, kept memory, waiting admin clients.
 *
 * One thread, one poll() loop; nothing here blocks for long and nothing wakes without a reason.
 * Private to host_backend/supervisor.
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_SUPERVISOR_H
#define WEIR_HOST_BACKEND_SUPERVISOR_SUPERVISOR_H

#include "base/account.h"
#include "base/log_rate.h"
#include "host_backend/config/config.h"
#include "host_backend/config/link.h"
#include "host_backend/config/spin.h"
#include "host_backend/confine/confine.h"
#include "host_backend/supervisor/channels.h"
#include "host_backend/supervisor/claims.h"
#include "host_backend/supervisor/events.h"
#include "host_backend/supervisor/ivshmem.h"
#include "host_backend/supervisor/metrics.h"
#include "host_backend/supervisor/mps.h"
#include "host_backend/supervisor/nvdimm.h"
#include "host_backend/supervisor/outbox.h"
#include "host_backend/supervisor/programs.h"
#include "host_backend/supervisor/users.h"
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#define WEIR_WORKERS_MAX       (WEIR_CONFIG_TENANTS_MAX + 1 + WEIR_PROGRAMS_MAX)
#define WEIR_ADMIN_CLIENTS_MAX 16
#define WEIR_ASKERS_MAX        16 /* who ask for shares on demand */

struct weir_sup_log;

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
    bool gate_comes;                  /* it was told that it gets a port to the gate */
    bool ready;
    bool renewing;         /* it is to end, and to start again with other connections */
    bool answering;        /* has been asked for its status */
    uint32_t n_rows;       /* that it has answered with */
    uint32_t gate_port;    /* that the gate process was asked for; 0: none */
    bool gate_deaf;        /* it has left that, since the gate did not read */
    uint64_t gate_port_ns; /* when it was asked for */
    uint32_t restarts;
    uint32_t failures;       /* in a row: back-off */
    uint32_t connections;    /* that a program of its tenant asked for; 0: none did */
    bool connections_failed; /* the worker before found no room for as many */
    uint64_t stop_by_ns;     /* it is to end, and is killed then; 0: it is not */
    uint64_t stopped_by_ns;  /* a signal has stopped it, and it is killed then; 0: none has */
    uint64_t renewed_ns;     /* when it was last started for that */
    uint64_t started_ns;
    uint64_t restart_at_ns;
    bool lacks_memory;  /* it has asked for some since it was last heard */
    uint64_t heard_ns;  /* .. which was then; 0: never */
    bool asks;          /* how many may give some */
    uint32_t n_syncs;   /* WEIR_LINK_SYNC that have come */
    uint64_t giving_ns; /* since when it has had something to give back when it was asked for */
    struct weir_status_worker row;
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

#define WEIR_METRICS_CLIENTS_MAX 8

enum weir_metrics_state {
    WEIR_METRICS_READING,
    WEIR_METRICS_WAITING,
    WEIR_METRICS_SENDING,
    WEIR_METRICS_DRAINING,
};

/* One connection for metrics (metrics_http.c). */
struct weir_metrics_client {
    int fd; /* -1: free */
    enum weir_metrics_state state;
    bool head_only;
    char head[WEIR_HTTP_HEAD_MAX];
    size_t n_head;
    uint64_t gathering; /* which one's end it waits for */
    char *text;         /* the answer */
    size_t bytes, sent;
    uint64_t deadline_ns;
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

struct weir_supervisor {
    struct weir_host_config config;
    char policy_base[WEIR_SCHED_POLICY_BYTES]; /* as file and command line had it last */
    struct weir_serve_params params;
    uint64_t started_ns;
    int signal_fd;
    int admin_fd;
    int demand_fd; /* listens for who wants a share on demand; -1: not yet */
    char demand_path[108];
    struct weir_sup_asker askers[WEIR_ASKERS_MAX];
    struct weir_sup_user users[WEIR_USERS_MAX];
    uint32_t asking_user; /* slot of the user for whom a share is being made */
    uint64_t n_runs;      /* programs that were given a share */
    int tcp_fd; /* listens for remote guests, whom the main worker accepts; -1: nobody does */
    char admin_path[108];
    bool stopping;
    int exit_status;
    bool listening; /* the first tenants are applied: workers listen when they know theirs */
    bool announced; /* READY=1 was said */
    struct weir_sup_tenant tenants[WEIR_CONFIG_TENANTS_MAX];
    struct weir_sup_worker workers[WEIR_WORKERS_MAX];
    struct weir_sup_gate gate;
    struct weir_sup_pending pending[WEIR_PENDING_MAX];
    struct weir_sup_waiting waiting;
    struct weir_confine_user worker_user;
    char cache_dir[WEIR_FORMS_PATH_BYTES]; /* if workers run as another user; "": none */
    bool mps_wanted;                       /* programs' workers are to be under MPS */
    bool mps_proved;                       /* one has been */
    struct weir_sup_mps mps[WEIR_MPS_MAX];
    uint32_t mps_turns; /* that were given to domains */
    struct weir_sup_shortage shortages[WEIR_SHORTAGES_MAX];
    uint64_t spares_from_ns;   /* no spare is started before that, for want of memory; .. */
    uint64_t spares_paused_ns; /* .. nor before that, since a program starts */
    struct weir_sup_vm vms[WEIR_VMS_MAX];
    uint64_t next_vm;
    int nvdimm_watch_fd; /* inotify; -1: not yet */
    int vsock_fd;        /* -1: no tenant has a CID */
    struct weir_kept_chunk *kept;
    size_t n_kept, kept_room;
    struct weir_account_pool kept_pool; /* descriptors for them, and each tenant's part of it */
    struct weir_account kept_of[WEIR_CONFIG_TENANTS_MAX];
    struct weir_sup_directory directory;
    struct weir_admin_client clients[WEIR_ADMIN_CLIENTS_MAX];
    uint64_t last_client; /* its id */
    bool gathering;
    bool gathering_stats;  /* .. statistics, too */
    uint64_t n_gatherings; /* begun */
    char *stats_text;      /* rows of statistics so far */
    size_t stats_bytes;
    uint64_t gather_deadline_ns;
    struct weir_link_use *gathered_uses; /* of sessions; port is the worker's pid */
    size_t n_gathered_uses;
    struct weir_status_report gathered; /* rows that workers have sent so far */
    uint64_t gathered_ns;               /* when the last gathering was complete */
    int metrics_fd;                     /* -1: none */
    char metrics_path[108];             /* of a unix socket; else "" */
    struct weir_metrics_client metrics[WEIR_METRICS_CLIENTS_MAX];
    struct weir_sup_libvirt libvirt;
    struct weir_sup_spin spin;
    struct weir_sup_events *events;
    uint64_t worker_starts;
    struct weir_sup_reserve reserve;
    struct weir_log_rate strangers; /* the same, of guests of no tenant */
    struct weir_log_rate starts;    /* of lines about workers that start, and spares that end */
    struct weir_claims claims;      /* of GPUs */
    uint32_t remarked_pct;          /* of memory promised, when that was last looked at */
};

/* check.c */

/** Do the sockets' paths fit, and is the server's key there? Prints what is not so. */
bool weir_sup_check_names(const struct weir_supervisor *sup);
/** Is all that the configuration asks for on this machine? Prints what is not. */
bool weir_sup_check(const struct weir_supervisor *sup);

/* remarks.c */

#define WEIR_SUP_MEMORY_REMARK                                                                     \
    "the memory quotas promise %u %% of a GPU's memory: who asks late may get none"

/** Log which keys of a reloaded configuration change only with a restart. */
void weir_sup_remark_restart(const struct weir_supervisor *sup, const struct weir_host_config *now);
/**
 * What its programs may have of its devices' memory together, in bytes. 0: all of it, or a part of
 * it, and no worker has said yet how much that is.
 */
uint64_t weir_sup_quota_bytes(const struct weir_supervisor *sup,
                              const struct weir_sup_tenant *tenant);
/** Of a GPU's memory, by quotas; of several lists of devices the one that is promised most. */
uint32_t weir_sup_promised_pct(const struct weir_supervisor *sup);
/** Log it if that is more than there is, once for each figure. */
void weir_sup_remark_memory(struct weir_supervisor *sup);
/** Log which tenants have a key and no worker that listens for remote guests. */
void weir_sup_remark_keys(const struct weir_supervisor *sup);

/* accept.c */

/** Fill the reserve with as many descriptors as can be had. */
void weir_sup_reserve_fill(struct weir_supervisor *sup);
void weir_sup_reserve_close(struct weir_supervisor *sup);

/**
 * Accept a guest's connection. If no descriptors are left, the guest gets an error.
 * @param address, bytes  as for accept(); or NULL.
 * @return the descriptor, which does not block; -1: there was no guest, or it was turned away
 */
int weir_sup_accept_guest(struct weir_supervisor *sup, int listen_fd, struct sockaddr *address,
                          socklen_t *bytes);
/**
 * Accept an operator's connection, with a descriptor of the reserve if no other is left.
 * @param flags  for accept4().
 * @return the descriptor; -1: there was no operator, or no descriptor, and then it was hung up
 */
int weir_sup_accept_operator(struct weir_supervisor *sup, int listen_fd, int flags);

/* main.c */

/**
 * Listen on a unix stream socket; a socket file that nobody listens on is replaced.
 * @return WEIR_OK, WEIR_ERR_EXISTS, WEIR_ERR_TOO_BIG, WEIR_ERR_DENIED, WEIR_ERR_IO
 */
enum weir_status weir_sup_listen(const char *path, mode_t mode, int *ret_fd) WEIR_MUST_CHECK;

/* listen_tcp.c */

/**
 * Listen on "ADDRESS:PORT", "[ADDRESS]:PORT", "localhost:PORT", ":PORT" or "*:PORT".
 * @return false, with errno; EINVAL: it is none of these
 */
bool weir_sup_listen_address(const char *address, int *ret_fd) WEIR_MUST_CHECK;
/** What is wrong with such an address, for people. @param error  the errno */
const char *weir_sup_address_error(int error);

/**
 * Listen where listen_tcp says, if it says so, and tell people on stderr why not. The socket
 * outlives the workers that accept from it: guests that come while one is being replaced wait in
 * its backlog, as they do in that of a tenant's socket.
 * @return WEIR_OK, WEIR_ERR_IO
 */
enum weir_status weir_sup_tcp_open(struct weir_supervisor *sup) WEIR_MUST_CHECK;

/* spin_governor.c */

/** Make the page that tells the gate process who may spin.
 * @return WEIR_OK, WEIR_ERR_IO, WEIR_ERR_NO_MEMORY */
enum weir_status weir_sup_spin_open(struct weir_supervisor *sup) WEIR_MUST_CHECK;
/** Close its files, also if it was never opened. The page stays mapped. */
void weir_sup_spin_close(struct weir_supervisor *sup);
/** Until the end of the epoch, in ms, for poll(). */
int weir_sup_spin_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns);
/** The epoch may have ended: decide for the next. */
void weir_sup_spin_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Say on all pages how many tenants there are. */
void weir_sup_spin_show(struct weir_supervisor *sup, uint32_t tenants);
/**
 * Make the page of a worker that starts, which nobody else sees.
 * @param ret_fd  gives what is to be passed on to it.
 * @return WEIR_OK, WEIR_ERR_IO, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_sup_spin_worker_starts(struct weir_supervisor *sup,
                                             struct weir_sup_worker *worker,
                                             int *ret_fd) WEIR_MUST_CHECK;
/** It has ended. Does nothing if it has no page. */
void weir_sup_spin_worker_gone(struct weir_sup_worker *worker);

/* tenants.c */

/** Tell the gate process about all tenants. */
void weir_sup_tenants_tell_gate(struct weir_supervisor *sup);
/** Is it one of the workers that have the tenant's work? */
bool weir_sup_serves(const struct weir_supervisor *sup, int worker,
                     const struct weir_sup_tenant *tenant);
/** Tell the gate process whom a worker serves. */
void weir_sup_tenants_serve(struct weir_supervisor *sup, int worker);

/** Apply the configuration: open sockets of new tenants, close those of gone ones, tell workers. */
enum weir_status weir_sup_tenants_apply(struct weir_supervisor *sup,
                                        const struct weir_host_config *config) WEIR_MUST_CHECK;
struct weir_sup_tenant *weir_sup_tenant_find(struct weir_supervisor *sup, const char *name);
/** Make a tenant while the host runs. The diagnosis says why not; what failed later is logged. */
enum weir_status weir_sup_tenant_add(struct weir_supervisor *sup,
                                     const struct weir_tenant_config *config,
                                     enum weir_origin source,
                                     struct weir_diag *ret_diag) WEIR_MUST_CHECK;
/** Has it a user who owns its files? */
bool weir_sup_tenant_has_user(const struct weir_sup_tenant *tenant);
/** That user is to own a file. @return WEIR_OK, as weir_user_id(), WEIR_ERR_DENIED */
enum weir_status weir_sup_give_to_user(const struct weir_sup_tenant *tenant,
                                       const char *path) WEIR_MUST_CHECK;
/**
 * weir_listen_unix() for one of its sockets: with this mode, or its user's alone if it has one.
 * @return as weir_listen_unix(), WEIR_ERR_DENIED (only root gives sockets away)
 */
enum weir_status weir_sup_listen_for(const struct weir_sup_tenant *tenant, const char *path,
                                     mode_t mode, int *ret_fd) WEIR_MUST_CHECK;
/** Its socket goes and its sessions end. */
void weir_sup_tenant_remove(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Its worker has nothing left of the tenant that went as the number `goings`. */
void weir_sup_tenant_freed(struct weir_supervisor *sup, uint32_t index, uint32_t goings);
/** A worker has died, and with it all that it had of tenants that are gone. */
void weir_sup_tenants_died(struct weir_supervisor *sup, int worker);
/** A worker of one of the tenant's programs has died; the tenant may have gone before. */
void weir_sup_tenant_worker_gone(struct weir_supervisor *sup, uint32_t index);
/** Tell a worker that begins to serve a tenant its settings, and where they charge together. One
 * that does not read yet is told later. */
void weir_sup_tenant_join(struct weir_supervisor *sup, struct weir_sup_tenant *tenant, int worker);
/** A worker has ended: give back what it had charged. */
void weir_sup_tenants_settle(struct weir_supervisor *sup, int worker);
/** The worker of the tenant's machines, started if there is none yet. -1: cannot. */
int weir_sup_machine_worker(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/**
 * Change one setting in `config`, which becomes the tenant's with weir_sup_tenant_commit().
 * @param text  "": back to what its source says.
 */
enum weir_status weir_sup_setting_try(const struct weir_supervisor *sup,
                                      const struct weir_sup_tenant *tenant, size_t setting,
                                      const char *text, struct weir_tenant_config *config,
                                      struct weir_diag *ret_diag) WEIR_MUST_CHECK;
/** Put new settings in effect, and tell the worker. */
void weir_sup_tenant_commit(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                            const struct weir_tenant_config *config);
/** "weir.toml", or "built in" where the host was given none, and so on. */
const char *weir_origin_text(const struct weir_supervisor *sup, enum weir_origin origin);
/** Take one connection of one of its sockets and pass it to the tenant's worker. */
void weir_sup_tenant_accept(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                            int listen_fd);
/** Have another worker serve a tenant from now on. Nothing of it is in the one before. */
void weir_sup_tenant_move(struct weir_supervisor *sup, struct weir_sup_tenant *tenant, int worker);
/** Close all tenants' sockets. */
void weir_sup_tenants_close(struct weir_supervisor *sup);
/** A worker begins to read: send it all that it must know of tenants. */
void weir_sup_tenants_tell(struct weir_supervisor *sup, int worker);

/* containers.c */

/** After any change of the tenants: their sockets for containers, and the CDI file. */
void weir_sup_containers_follow(struct weir_supervisor *sup);
/** Close those sockets and remove the file. */
void weir_sup_containers_close(struct weir_supervisor *sup);

/* demand.c: shares on demand; docs/design/demand.md */

/**
 * Listen for who wants a share; complains on stderr. Nothing is left of an earlier host's shares.
 */
enum weir_status weir_sup_demand_open(struct weir_supervisor *sup) WEIR_MUST_CHECK;
void weir_sup_demand_close(struct weir_supervisor *sup);
void weir_sup_demand_accept(struct weir_supervisor *sup);
void weir_sup_demand_read(struct weir_supervisor *sup, struct weir_sup_asker *asker);
/** Other bounds, for shares that are made from now on. */
void weir_sup_demand_follow(struct weir_supervisor *sup, const struct weir_demand_config *demand);
void weir_sup_demand_tick(struct weir_supervisor *sup, uint64_t now_ns);
int weir_sup_demand_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns);
/** Make a share's folder and listen there. */
enum weir_status weir_sup_share_listen(struct weir_supervisor *sup,
                                       struct weir_sup_tenant *tenant) WEIR_MUST_CHECK;
/** Remove a share whose process has ended. */
void weir_sup_share_look(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** A tenant is removed: what there is of it as a share. */
void weir_sup_share_gone(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Divide anew what shares weigh together: all of them, and each user's. */
void weir_sup_shares_weigh(struct weir_supervisor *sup);

/* worker_user.c */

/**
 * Find the workers' user, and give that user what workers write. Prints what is wrong with
 * worker_user; logs who it is.
 * @return WEIR_OK, WEIR_ERR_NOT_FOUND, WEIR_ERR_DENIED, WEIR_ERR_TOO_BIG
 */
enum weir_status weir_sup_worker_user_open(struct weir_supervisor *sup) WEIR_MUST_CHECK;
/** The folder of the caches as workers are told it. */
void weir_sup_worker_user_cache(const struct weir_supervisor *sup, struct weir_forms_config *forms);

/* workers.c */

enum weir_status weir_sup_worker_start(struct weir_supervisor *sup, int worker) WEIR_MUST_CHECK;
/**
 * Start a worker with a slot of its own.
 * @param like  kind, tenant, group, devices, connections and program of it.
 * @return WEIR_OK
 * @return WEIR_ERR_FULL  there is no slot, or the system allows no further process.
 * @return WEIR_ERR_NO_DESCRIPTOR, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO and what weir_sup_listen() says
 */
enum weir_status weir_sup_worker_new(struct weir_supervisor *sup,
                                     const struct weir_sup_worker *like,
                                     int *ret_worker) WEIR_MUST_CHECK;
/** Why weir_sup_worker_new() or weir_sup_worker_start() failed, for people. */
const char *weir_sup_no_worker_text(enum weir_status status);
/** Does it read its link, and know its tenants? One that does not yet is told all at once when it
 * does. -1: no. */
bool weir_sup_worker_is_told(const struct weir_supervisor *sup, int worker);
/** Say that the host is ready, once, when all workers that it began with are, spares among them. */
void weir_sup_announce(struct weir_supervisor *sup);
/** Have it end by itself; it is killed if it does not within 5 s. */
void weir_sup_worker_stop(struct weir_supervisor *sup, int worker);

/** All tenants of the configuration are there: workers that know theirs may listen for guests. */
void weir_sup_workers_listen(struct weir_supervisor *sup);
/** Start those whose time has come. */
void weir_sup_workers_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Milliseconds until weir_sup_workers_tick() has something to do; -1: nothing. */
int weir_sup_workers_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns);
void weir_sup_worker_receive(struct weir_supervisor *sup, int worker);
/** Look for dead workers (SIGCHLD). */
void weir_sup_workers_reap(struct weir_supervisor *sup);
/**
 * A worker is about to use GPUs: claim them for this host, unless it is not exclusive. If another
 * host has one, the worker is killed, and a host that was not ready yet stops.
 */
void weir_sup_claim(struct weir_supervisor *sup, int worker, const struct weir_link_devices *gpus);
/** Another host asks who has the GPU of claim number i. */
void weir_sup_claim_answer(struct weir_supervisor *sup, unsigned i);
/** The first worker of all found no driver or no device: say so, and stop. */
void weir_sup_no_gpu(struct weir_supervisor *sup);
/** The host's policies are others: tell the workers that have been started. Those that are dead
 * hear it at their start. */
void weir_sup_workers_configure(struct weir_supervisor *sup);
/** Send to one worker; a broken link is closed. @return true when it went out */
bool weir_sup_worker_send(struct weir_supervisor *sup, int worker,
                          const struct weir_link_message *message, int fd);
/** Close what is left of all workers when the host ends. */
void weir_sup_workers_close(struct weir_supervisor *sup);

/* stop.c */

/** Tell all workers to stop, wait for them together, and kill the rest. Takes a minute at most. */
void weir_sup_workers_stop(struct weir_supervisor *sup);

/* faults.c */

/** A worker's death has ended its MPS domain; by a signal: its tenant is to blame. */
void weir_sup_fault_of_dead(struct weir_supervisor *sup, int worker, bool by_signal);
/** A worker says that a tenant has ended, or may have ended, its GPU context. */
void weir_sup_fault(struct weir_supervisor *sup, int worker, const struct weir_link_fault *fault);
/** The uid of the user for whom a share on demand counts, also one that is gone while workers have
 * something of it. -1: the tenant is none. */
int64_t weir_sup_share_user(const struct weir_supervisor *sup, uint32_t tenant);
/** A share on demand begins, of the user demand_user: in quarantine if that user is. */
void weir_sup_quarantine_inherit(struct weir_supervisor *sup, struct weir_sup_tenant *share);
/** A worker of several tenants has died: those whose fault may have been its end get workers of
 * their own. */
void weir_sup_quarantine_begin(struct weir_supervisor *sup, int worker);
/**
 * A worker has died: if its tenant's quarantine is over, or it has a key since a while, the tenant
 * goes to the worker that it shares, and this one is not started again.
 * @return was that so?
 */
bool weir_sup_quarantine_end(struct weir_supervisor *sup, int worker);
/** Look whose faults were under MPS; ask workers whose tenants' quarantines are over whether they
 * can end. */
void weir_sup_faults_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Milliseconds until weir_sup_faults_tick() has, for quarantines, something to do; -1: nothing. */
int weir_sup_quarantine_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns);
/** Fill a tenant's row with its faults. */
void weir_sup_faults_show(const struct weir_sup_tenant *tenant, struct weir_status_tenant *row);

/* keeper.c */

/** Divide the descriptors that this process may have among the tenants: once, at the start. */
void weir_sup_keeper_init(struct weir_supervisor *sup);
/** Take over a chunk's descriptor and hold it; if its tenant may have no more of them, close it. */
void weir_sup_keep(struct weir_supervisor *sup, int worker, const struct weir_link_chunk *chunk,
                   int fd);
/** Close the descriptor of a worker's chunk. */
void weir_sup_drop(struct weir_supervisor *sup, int worker, uint64_t id);
/** Close those of all of its chunks. */
void weir_sup_drop_all(struct weir_supervisor *sup, int worker);

/* grants.c */

/** A worker asks for more of the machine's memory for a tenant: grant it if its holder may have
 * more, and answer. */
void weir_sup_grant(struct weir_supervisor *sup, int worker, const struct weir_link_more *more);

/* directory.c */

/** @return false: this process can open no more descriptors */
bool weir_sup_directory_open(struct weir_supervisor *sup);
void weir_sup_directory_close(struct weir_supervisor *sup);
/** A worker publishes something: enter it, and answer. @param fd  taken; -1: none */
void weir_sup_publish(struct weir_supervisor *sup, int worker, const struct weir_link_entry *entry,
                      int fd);
/** A worker asks for something: answer. */
void weir_sup_find(struct weir_supervisor *sup, int worker, const struct weir_link_entry *entry);
/** A worker has no more use of something that it published or found. */
void weir_sup_withdraw(struct weir_supervisor *sup, int worker,
                       const struct weir_link_entry *entry);
/** Guests have closed descriptors. */
void weir_sup_directory_look(struct weir_supervisor *sup);
/** A worker has died: it has nothing more. */
void weir_sup_directory_worker_gone(struct weir_supervisor *sup, int worker);
/** A tenant goes, and all that it has published. */
void weir_sup_directory_tenant_gone(struct weir_supervisor *sup,
                                    const struct weir_sup_tenant *tenant);
/** Device memory that is charged to the tenant and to none of its workers. */
uint64_t weir_sup_directory_bytes(const struct weir_sup_tenant *tenant);

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

/** One thing to say of a request; a lack of memory loses it. */
void weir_sup_note(struct weir_status_report *report, const char *kind, const char *text);
/** May whoever is at the other end change something? root and the host's own user may. */
bool weir_sup_may_change(const struct weir_admin_client *client);

/* policy_admin.c */

/** Give all schedulers other policies. @return false: the diagnosis says why not */
bool weir_sup_policy_set(struct weir_supervisor *sup, const char *policy, struct weir_diag *diag);

/* workers.c */

/** Fill in what the workers and the gate process are configured alike. */
void weir_sup_config_fill(const struct weir_supervisor *sup, struct weir_link_config *config);
/* gate.c */

/** Start the gate process, if there is a scheduler.
 * @return WEIR_OK, WEIR_ERR_IO */
enum weir_status weir_sup_gate_open(struct weir_supervisor *sup) WEIR_MUST_CHECK;
/** The scheduler's policies are others. */
void weir_sup_gate_configure(struct weir_supervisor *sup);
/**
 * Send it a message. Tenants and policies need not be sent again: it is told them when it starts.
 * @param fd  goes with the message; borrowed; -1: none.
 * @return false: it does not run
 */
bool weir_sup_gate_send(struct weir_supervisor *sup, const struct weir_link_message *message,
                        int fd);
/** Send what waits for room in the link. */
void weir_sup_gate_flush(struct weir_supervisor *sup, uint64_t now_ns);
/** Ask it for its status. */
void weir_sup_gate_ask(struct weir_supervisor *sup, const struct weir_link_message *message);
/** A worker without guests says which GPUs it has: the gate is to serve them. */
void weir_sup_gate_gpus(struct weir_supervisor *sup, const struct weir_link_reads *reads);
/** A worker whose GPUs are known gets a port, or hears that there is none. */
void weir_sup_gate_worker_starts(struct weir_supervisor *sup, int worker);
/** A worker serves a tenant: to be told before the worker is, and after the tenant. */
void weir_sup_gate_worker_serves(struct weir_supervisor *sup, int worker,
                                 const struct weir_sup_tenant *tenant);
/** A worker has left the gate process, which does not read its port: look what is the matter. */
void weir_sup_gate_deaf(struct weir_supervisor *sup, int worker);
/** A worker is gone: so is its work. */
void weir_sup_gate_worker_gone(struct weir_supervisor *sup, int worker);
void weir_sup_gate_receive(struct weir_supervisor *sup);
void weir_sup_gate_reap(struct weir_supervisor *sup);
void weir_sup_gate_tick(struct weir_supervisor *sup, uint64_t now_ns);
int weir_sup_gate_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns);
/** It has time to save what it knows, and is killed if it takes longer. */
void weir_sup_gate_close(struct weir_supervisor *sup);

/* admin.c */
/** Append a copy of an element to an array; a lack of memory loses it. */
void weir_sup_append(void **array, size_t *n, const void *element, size_t size);
/** Fill a zeroed report as last gathered; the caller frees its tenants and workers. */
void weir_sup_admin_report(struct weir_supervisor *sup, struct weir_status_report *report);
/** Add a row of each tenant, or of the one of this name, with what its worker last said. */
void weir_sup_admin_tenants(struct weir_supervisor *sup, const char *name,
                            struct weir_status_report *report);
/** Ask the workers for their status, if that is not under way. @return the gathering's number */
uint64_t weir_sup_admin_gather(struct weir_supervisor *sup);

void weir_sup_admin_accept(struct weir_supervisor *sup);
/** What poll() is to wait for; 0: a client that waits for its reply need not be watched. */
short weir_sup_admin_events(const struct weir_admin_client *client);
/** It has sent something, or has room for more of its reply. */
void weir_sup_admin_serve(struct weir_supervisor *sup, struct weir_admin_client *client);
/** What the gate process says to a client's request. */
void weir_sup_admin_answer(struct weir_supervisor *sup, const struct weir_link_text *answer);
/** The gate process says who has used the SMs. */
void weir_sup_admin_use(struct weir_supervisor *sup, const struct weir_link_use *use);
/** A status message of a worker, or of the gate process (-1), and the file that came with it,
 * borrowed, or -1. */
void weir_sup_admin_row(struct weir_supervisor *sup, int worker, struct weir_link_message *message,
                        int fd);
/** Take over what a worker says of itself. */
void weir_sup_worker_row(struct weir_sup_worker *worker, const struct weir_status_worker *row);
/** Answer what is complete or overdue. */
void weir_sup_admin_tick(struct weir_supervisor *sup, uint64_t now_ns);
int weir_sup_admin_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns);
void weir_sup_admin_close(struct weir_supervisor *sup);

/* metrics_http.c */
/** Listen where the configuration says; complains on stderr. */
enum weir_status weir_sup_metrics_open(struct weir_supervisor *sup) WEIR_MUST_CHECK;
void weir_sup_metrics_accept(struct weir_supervisor *sup);
/** What poll() is to wait for. */
short weir_sup_metrics_events(const struct weir_metrics_client *client);
void weir_sup_metrics_serve(struct weir_supervisor *sup, struct weir_metrics_client *client);
/** Answer whose gathering is over; drop who is late. */
void weir_sup_metrics_tick(struct weir_supervisor *sup, uint64_t now_ns);
int weir_sup_metrics_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns);
void weir_sup_metrics_close(struct weir_supervisor *sup);

#endif

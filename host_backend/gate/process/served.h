/* Types and functions that the files of this folder share. */
#pragma once

#include "base/clock.h"
#include "host_backend/gate/port.h"
#include "host_backend/gate/process/process.h"
#include "sched/predict.h"
#include "sched/spans.h"

#define SERVED_PORTS_MAX   1024u
#define SERVED_ITEMS_CHUNK 1024u
#define SERVED_MANY_CORES  8 /* threads may wait by spinning on a host with this many cores */

struct served_queue;

/* An item that a worker has named. Its index in the port's table is its name. */
struct served_item {
    struct served_queue *queue;
    struct served_item *next, **link; /* in the list of the queue's items in use */
    weir_sched_id id;                 /* 0: the item is not in use */
    uint32_t generation;              /* the worker's number for this use of the index */
    uint32_t index;
    uint32_t sequence;      /* sequence number of its arrival; 0: it was STARTED */
    uint32_t blocks_per_sm; /* of a kernel, as the worker reports it; 0: not known */
};

/* A tenant on a GPU. */
struct served_member {
    weir_sched_id id;     /* 0: it has had no queue there */
    uint64_t owner;       /* owner of the keys of its work; 0: none yet */
    uint32_t with_peers;  /* queues that have peers */
    uint64_t seen_ns;     /* when its last work came that the scheduler decides about */
    uint64_t gated;       /* items that needed a decision */
    uint64_t alone_sm_ns; /* SM time of its work that passed undecided */
    uint64_t alone_ns[2]; /* duration of copies that passed undecided: to the device, from it */
};

struct served_trace;

/* A GPU's scheduler and its tenants. */
struct served_gpu {
    struct weir_gate_process *process;
    const struct weir_link_gpu *of; /* the GPU as the supervisor described it */
    uint32_t index;
    uint64_t uuid[2];
    bool spin; /* threads that wait for a grant may wait by spinning, if the host may */
    struct weir_sched_config config;
    struct weir_sched *sched;
    const struct weir_sched_shared *shared;
    struct weir_predict *predict;
    uint32_t keys_found; /* keys that the predictor had after reading the file */
    struct weir_policy_set policies;
    struct served_trace *trace; /* NULL: nothing is recorded */
    uint64_t timer_ns;          /* when the scheduler wants to be called */
    uint64_t sm_ns_gone;        /* SM time that removed tenants have used */
    uint64_t crowded_until_ns[WEIR_GATE_CROWDS];
    struct served_member *last_member[WEIR_GATE_CROWDS]; /* the tenant whose work came last */
    weir_sched_id alone; /* the tenant alone, as last published to the ports */
    uint32_t alone_slot; /* the slot of that tenant + 1 */
    uint32_t crowded;    /* bits as in struct weir_gate_news */
    struct served_member members[WEIR_CONFIG_TENANTS_MAX]; /* indexed by the tenants' slots */
};

/* How many programs of a tenant are counted by name; the last place is for all other names. */
#define SERVED_USES 17u

struct served_use {
    char program[WEIR_GATE_PROGRAM_BYTES];
    /* SM time of queues that have ended. */
    uint64_t sm_ns;
    struct weir_sched_wait waits[WEIR_SCHED_WAIT_ROWS]; /* `other` is as in struct weir_link_use */
};

/* The largest need of an SM among recent kernels of a queue that can be moved. Zeroed: none
 * came. */
struct served_need {
    uint32_t block_bytes; /* shared memory of a block */
    uint32_t blocks_per_sm;
    uint64_t at_ns; /* when a kernel that can be moved last came */
};

struct served_queue {
    struct served_queue *next; /* the next queue of its port */
    struct served_port *port;
    struct served_gpu *gpu;
    struct served_member *member;
    weir_sched_id id;
    struct weir_gate_slot *slot; /* the queue's slot in the port */
    uint32_t index, device, tenant;
    uint32_t sm_limit_pct;       /* the queue's own limit; 100: none */
    bool has_peers;              /* its work had WEIR_SCHED_PEERS */
    uint64_t alone_sm_ns;        /* SM time of its work that passed undecided */
    struct served_item *items;   /* the queue's items that are in use */
    struct served_item *waiting; /* the queue's item that waits for its grant */
    uint64_t session;            /* the worker's number for its session */
    struct served_use *use;      /* the entry that counts its program */
    struct served_need need;
};

/* A set of tenants: one bit for each slot. */
struct served_tenants {
    uint64_t bits[WEIR_CONFIG_TENANTS_MAX / 64];
};

static inline bool served_tenants_has(const struct served_tenants *set, uint32_t slot)
{
    return (set->bits[slot / 64] >> slot % 64 & 1) != 0;
}

static inline void served_tenants_put(struct served_tenants *set, uint32_t slot, bool has)
{
    uint64_t bit = UINT64_C(1) << slot % 64;

    set->bits[slot / 64] = has ? set->bits[slot / 64] | bit : set->bits[slot / 64] & ~bit;
}

struct served_port {
    struct weir_gate_port *port;
    uint32_t tail; /* requests taken so far */
    int bell;
    uint32_t id;
    uint32_t domain;                                    /* domain of the port's work */
    struct served_tenants may_serve;                    /* tenants whose queues it may have */
    struct served_tenants told[WEIR_GATE_PORT_DEVICES]; /* whose durations the worker has */
    struct weir_gate_request held; /* deferred: its tenant may be about to be announced */
    bool holds;
    uint64_t held_at; /* the value of process->heard when `held` was deferred */
    struct served_gpu *gpu[WEIR_GATE_PORT_DEVICES];
    struct served_queue *queues;                       /* a list of all queues */
    struct served_queue *queue[WEIR_GATE_PORT_QUEUES]; /* the queues by their slots */
    struct served_item *items[WEIR_GATE_PORT_ITEMS / SERVED_ITEMS_CHUNK];
    weir_sched_id together[WEIR_GATE_BATCH_MAX];
    uint32_t n_together;
    uint64_t dropped;                  /* invalid requests that were dropped */
    bool has_orders;                   /* orders were sent since the worker was last woken */
    bool told_not_served, told_unread; /* logged once each: a worker could cause many */
};

struct served_tenant {
    bool known;
    char name[WEIR_TENANT_NAME_BYTES];
    struct weir_sched_tenant_params params;
    struct served_use uses[SERVED_USES];
};

/* The file with learned durations (times.c). */
struct served_times {
    int fd;         /* -1: there is no file */
    uint8_t *found; /* contents of the file at the start */
    size_t n_found;
    uint64_t generation; /* generation of the half written last */
    uint64_t kept_ns, learned;
    bool told; /* the log has said that the file cannot be written */
};

_Static_assert(WEIR_LINK_GPUS_MAX <= WEIR_SCHED_SPANS_DEVICES, "the rule knows all GPUs");

struct weir_gate_process {
    struct weir_sched_settings settings;
    struct weir_policy_set policies;
    struct weir_spin_page *spin;
    struct served_times times;
    int epoll;
    uint64_t heard; /* counts how often all messages of the owner had been read */
    bool real;      /* some port has a GPU, not softgpu: spinning may pay */
    struct weir_link_gpu named[WEIR_LINK_GPUS_MAX]; /* the GPUs of the host */
    struct served_gpu gpus[WEIR_LINK_GPUS_MAX];     /* the GPUs that workers have used */
    uint32_t n_named, n_gpus;
    struct weir_sched_spans spans; /* of tenants that work on several of `gpus` */
    struct weir_sched_span_tenant span_tenants[WEIR_CONFIG_TENANTS_MAX];
    struct served_port *ports[SERVED_PORTS_MAX];
    uint32_t n_ports;
    struct served_tenant tenants[WEIR_CONFIG_TENANTS_MAX];
};

/* gpus.c */

/** Find the GPU with the request's UUID, or make it at its first use. NULL: the supervisor has not
 * named it, or no memory. */
struct served_gpu *served_gpu_of(struct weir_gate_process *process,
                                 const struct weir_gate_request *request);
void served_gpu_destroy(struct served_gpu *gpu);
/** Apply other policies. */
void served_gpu_policies(struct served_gpu *gpu, const struct weir_policy_set *policies);
/** Advance a GPU's scheduler to now_ns, and publish news to its ports. */
void served_gpu_tick(struct weir_gate_process *process, struct served_gpu *gpu, uint64_t now_ns);
/** When a GPU's scheduler wants to be called next. */
uint64_t served_gpu_next_ns(const struct served_gpu *gpu);
/** Publish a GPU's state to a port. */
void served_gpu_tell(const struct served_gpu *gpu, struct served_port *port, uint32_t device);
/** A tenant's work arrives that needs a decision: the tenant that was alone no longer is. */
void served_gpu_comes(struct served_gpu *gpu, struct served_member *member, uint64_t now_ns);

/* needs.c */

/** Note a kernel that can be moved and comes to a queue. */
void served_need_note(struct served_need *need, const struct weir_gate_request *arrival,
                      uint64_t now_ns);
/** The shared memory of an SM that others' blocks need beside block_limit blocks of an item. */
uint32_t served_beside_bytes(const struct served_item *item, uint32_t block_limit, uint64_t now_ns);

/* tenants.c */

/** A tenant's parameters in the scheduler of a GPU. */
struct weir_sched_tenant_params served_params(const struct served_gpu *gpu, uint32_t slot);
/** Prepare the rule for tenants that work on several GPUs. */
void served_spans_begin(struct weir_gate_process *process);
/** Add a queue, whose port, GPU, tenant and limit are filled in, to its scheduler. */
enum weir_status served_queue_enlist(struct weir_gate_process *process,
                                     struct served_queue *queue) WEIR_MUST_CHECK;
/** Charge a queue's tenant for undecided work that took took_ns. */
void served_queue_charge(struct served_queue *queue, uint8_t class, uint64_t took_ns);
/** Compute that was charged to the queue, in nanoseconds of one SM. */
uint64_t served_queue_sm_ns(const struct served_queue *queue);
/** The owner of the tenant's keys in the GPU's predictor; 0: no memory for one. */
uint64_t served_owner_of(struct served_gpu *gpu, uint32_t tenant);

/* trace.c */

/** For struct weir_sched_env: write a record into the schedule trace, if one is recorded. */
void served_trace_record(void *gpu, const struct weir_sched_record *record);
/** Record that a policy is in force; NULL: no policy of this kind is. */
void served_trace_policy(struct served_gpu *gpu, int kind, const char *name);
/** Record the name of a tenant that is new to the scheduler. */
void served_trace_name(struct served_gpu *gpu, uint32_t tenant);
/** Start a recording, as weir_gate_process_trace_start() does. */
void served_trace_start(struct served_gpu *gpu, int fd, char *text, size_t bytes);
/** End a GPU's recording, if there is one. @param text  gets a summary of the file. */
void served_trace_stop(struct served_gpu *gpu, char *text, size_t bytes);

/* uses.c */

/** Set the session and the program of a queue, as the worker names them. */
void served_use_begin(struct weir_gate_process *process, struct served_queue *queue,
                      const struct weir_gate_request *request);
/** A queue ends: add what it has used to its program. */
void served_use_end(struct served_queue *queue);
/** Forget a removed tenant: another tenant may get its slot, and nobody has waited for that one. */
void served_use_forget(struct weir_gate_process *process, uint32_t slot);

/* times.c */

/** Load the learned durations of a new GPU. */
void served_times_open(struct weir_gate_process *process, struct served_gpu *gpu);
/** Save the learned durations, if it is time to. */
void served_times_tick(struct weir_gate_process *process, uint64_t now_ns);
/** Save the learned durations and close the file. */
void served_times_close(struct weir_gate_process *process);

/* requests.c */

/** Handle a port's requests, up to a bound. @return how many were handled */
uint32_t served_port_read(struct weir_gate_process *process, struct served_port *port);
/** Update for each waiting item of a port whether it waits only for earlier work of its queue. */
void served_port_rooms(struct served_port *port);
/** Withdraw a queue's items and free it. */
void served_queue_close(struct served_queue *queue);
/** Withdraw all items of a port and free it. */
void served_port_close(struct served_port *port);

/*
 * The load: the work that a trace contains, without the decisions about it. It says which tenant
 * sends which items, when or after which item, and how much of a device they take.
 *
 * Source: docs/design/simulation.md
 */
#pragma once

#include "sched/trace/trace.h"

#define WEIR_SIM_NONE UINT32_MAX

/* When an item arrives. */
enum weir_sim_after {
    WEIR_SIM_AT,           /* at delay_ns from the beginning, even if earlier ones run */
    WEIR_SIM_AFTER_START,  /* delay_ns after the item before it in its queue was started */
    WEIR_SIM_AFTER_FINISH, /* delay_ns after that item was known to be finished */
};

struct weir_sim_item {
    uint32_t tenant;
    uint32_t queue;
    uint32_t next; /* next item of its queue, or WEIR_SIM_NONE */
    enum weir_sim_after after;
    uint64_t delay_ns;
    struct weir_sched_item_params params; /* user: not used */
    uint64_t sm_ns;                       /* compute: its work in SM-nanoseconds */
    uint32_t blocks;                      /* as params.blocks, but never 0 */
    uint32_t blocks_per_sm;
    struct weir_sched_trace_nature nature;
};

struct weir_sim_queue {
    uint32_t tenant;
    uint32_t first; /* item, or WEIR_SIM_NONE */
    uint32_t last;
    uint32_t sm_limit; /* percent, 1 .. 100 */
    uint32_t domain;   /* of weir_sched_queue_add() */
    uint32_t gpu;
    uint32_t rank;      /* above 0: of the job that the queue before it is of, too */
    uint32_t n_kernels; /* compute items */
};

struct weir_sim_tenant {
    char name[WEIR_SCHED_TRACE_NAME_BYTES]; /* "" when the trace does not say */
    struct weir_sched_tenant_params params; /* name: not used */
    uint32_t n_items;
    uint32_t context; /* tenants of one context use the SMs at the same time, contexts take turns */
};

/* A change of a tenant's weight, priority or limit. */
struct weir_sim_change {
    uint64_t at_ns;
    uint32_t tenant;
    struct weir_sched_tenant_params params;
};

/* Arrays are owned by the load; index is identity. A zeroed load is empty. */
struct weir_sim_load {
    struct weir_sched_trace_header header;
    struct weir_sim_tenant *tenants;
    struct weir_sim_queue *queues;
    struct weir_sim_item *items; /* in the order of their arrivals in the trace */
    struct weir_sim_change *changes;
    uint32_t n_tenants, n_queues, n_items, n_changes;
    uint32_t cap_tenants, cap_queues, cap_items, cap_changes;
    uint64_t lost;      /* records that the trace says are missing */
    uint32_t left_out;  /* items whose duration is unknown */
    uint32_t estimated; /* items whose duration was taken from their key or a prediction */
    uint32_t unknown;   /* records about unknown ids, because records before them are missing */
    bool is_cut;
};

/**
 * Read a trace to its end.
 *
 * An item's work is its duration in the trace if it was undisturbed; otherwise the undisturbed
 * duration of blocks of its key, or its own duration, or its prediction. If an item arrived in the
 * trace after the item before it in its queue had finished, or started, it arrives in the load with
 * the same delay after that event, unless its record says that it came at its own time.
 *
 * @param data       the file's bytes, for the call.
 * @param is_open    true: all items arrive at their times in the trace.
 * @param ret_load   on success; weir_sim_load_finish() frees it.
 * @param ret_error  filled in unless WEIR_OK: what is wrong, at which offset.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX, WEIR_ERR_VERSION  the file is not in order.
 * @return WEIR_ERR_NO_MEMORY, WEIR_ERR_TOO_BIG (2^32 of something)
 * @thread any
 */
enum weir_status weir_sim_load_read(const void *data, uint64_t bytes, bool is_open,
                                    struct weir_sim_load *ret_load,
                                    struct weir_sched_trace_error *ret_error) WEIR_MUST_CHECK;

/** Frees; accepts NULL and a zeroed load. @thread any */
void weir_sim_load_finish(struct weir_sim_load *load);

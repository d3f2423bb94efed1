/*
 * Why items of a trace waited, as the scheduler said when it decided (sched/causes.def).
 *
 * The wait of an item goes from its arrival to its grant, and from a stop to when it goes on. Each
 * moment of it has one cause. Owner thread only.
 */
#ifndef WEIR_SCHED_SIM_WAITS_H
#define WEIR_SCHED_SIM_WAITS_H

#include "base/status.h"
#include "sched/trace/trace.h"
#include <stdint.h>

/* Waits of one item, or of all items of a tenant. */
struct weir_sim_waited {
    uint64_t ns;
    uint64_t cause_ns[WEIR_SCHED_CAUSE_COUNT];
    uint64_t unexplained_ns; /* of the causes that are not explained */
};

struct weir_sim_wait {
    uint32_t tenant;  /* index */
    uint8_t class;    /* enum weir_sched_class */
    uint8_t ended_by; /* what the scheduler was told before the grant: enum weir_sched_record_kind;
                         WEIR_SCHED_REC_KIND_COUNT: it was not granted */
    weir_sched_id item, queue;
    uint64_t arrived_ns; /* since the trace began */
    struct weir_sim_waited waited;
};

struct weir_sim_waits_tenant {
    char name[WEIR_SCHED_TRACE_NAME_BYTES];
    uint32_t weight;
    uint8_t priority;            /* enum weir_priority */
    uint64_t items;              /* that were granted, or still waited in the end */
    struct weir_sim_waited sum;  /* of all items */
    struct weir_sim_waited most; /* of one item, each figure by itself */
};

struct weir_sim_waits {
    struct weir_sim_waits_tenant *tenants;
    uint32_t n_tenants;
    struct weir_sim_wait *worst; /* most unexplained first, then the longest */
    uint32_t n_worst;
    uint64_t lost;    /* records that the recording has not */
    uint64_t unknown; /* records about what came before the recording */
    uint64_t ns;      /* how long the trace is */
};

/**
 * @param data       a trace; borrowed for the call.
 * @param n_worst    how many waits to keep one by one.
 * @param ret_waits  weir_sim_waits_finish().
 * @param ret_error  filled in at WEIR_ERR_SYNTAX and WEIR_ERR_VERSION.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_SYNTAX, WEIR_ERR_VERSION (also: a trace in which
 *         nobody said why items wait)
 * @thread any
 */
enum weir_status weir_sim_waits_read(const void *data, uint64_t bytes, uint32_t n_worst,
                                     struct weir_sim_waits *ret_waits,
                                     struct weir_sched_trace_error *ret_error) WEIR_MUST_CHECK;

/** Frees what it holds. @thread owner */
void weir_sim_waits_finish(struct weir_sim_waits *waits);

#endif

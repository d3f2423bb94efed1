/*
 * Why items of a trace waited, by the causes that the scheduler recorded (sched/causes.def).
 *
 * The wait of an item is the time from its arrival to its grant, and from a stop to its resume.
 * Each moment of it has one cause. Owner thread only.
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
    uint64_t unexplained_ns; /* time of causes that are not explained */
};

/* How long a tenant's items waited for another tenant, for one cause. */
struct weir_sim_waited_for {
    uint32_t tenant, other; /* indices */
    uint8_t cause;          /* enum weir_sched_cause */
    uint64_t ns;
};

#define WEIR_SIM_WAIT_SEVERAL UINT32_MAX

struct weir_sim_wait {
    uint32_t tenant;  /* index */
    uint8_t class;    /* enum weir_sched_class */
    uint8_t ended_by; /* the scheduler's last event before the grant: enum weir_sched_record_kind;
                         WEIR_SCHED_REC_KIND_COUNT: it was not granted */
    weir_sched_id item, queue;
    uint64_t arrived_ns; /* since the trace began */
    /* For each cause the tenant that it waited for: index + 1; 0: none; WEIR_SIM_WAIT_SEVERAL. */
    uint32_t others[WEIR_SCHED_CAUSE_COUNT];
    struct weir_sim_waited waited;
};

struct weir_sim_waits_tenant {
    char name[WEIR_SCHED_TRACE_NAME_BYTES];
    uint32_t weight;
    uint8_t priority;            /* enum weir_priority */
    uint64_t items;              /* items that were granted, or still waited at the end */
    struct weir_sim_waited sum;  /* sums over all items */
    struct weir_sim_waited most; /* maximum of each figure over all items */
};

struct weir_sim_waits {
    struct weir_sim_waits_tenant *tenants;
    uint32_t n_tenants;
    struct weir_sim_wait *worst; /* most unexplained first, then the longest */
    uint32_t n_worst;
    struct weir_sim_waited_for *waited_for; /* in no order; waits for nobody are not there */
    uint32_t n_waited_for;
    uint64_t lost;    /* records missing in the recording */
    uint64_t unknown; /* records about objects from before the recording */
    uint64_t ns;      /* duration of the trace */
};

/**
 * @param data       a trace; borrowed for the call.
 * @param n_worst    how many waits to keep one by one.
 * @param ret_waits  to be freed by weir_sim_waits_finish().
 * @param ret_error  filled in at WEIR_ERR_SYNTAX and WEIR_ERR_VERSION.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_SYNTAX, WEIR_ERR_VERSION (also: a trace
 *         without causes of waits)
 * @thread any
 */
enum weir_status weir_sim_waits_read(const void *data, uint64_t bytes, uint32_t n_worst,
                                     struct weir_sim_waits *ret_waits,
                                     struct weir_sched_trace_error *ret_error) WEIR_MUST_CHECK;

/** Frees what it holds. @thread owner */
void weir_sim_waits_finish(struct weir_sim_waits *waits);

#endif

/* The state of a run, which the files of the simulator's loop share. */
#pragma once

#include "sched/sim/sim.h"
#include "sched/spans.h"

enum order_kind { ORDER_START, ORDER_STOP, ORDER_RESUME, ORDER_RESIZE };

struct order {
    enum order_kind kind;
    uint32_t item;
    struct weir_sim_place place;
    uint64_t lease_ns;
    enum weir_sched_level level;
};

/* The run's state of an item. */
struct fate {
    weir_sched_id id;
    uint64_t started_ns;
    uint64_t span_ns;  /* where its current span on the device began, if known */
    uint64_t lease_ns; /* when it resumes without the scheduler's order */
    bool has_waited;   /* its first span was reported */
    bool was_stopped;
};

struct arrival {
    uint64_t at_ns;
    uint32_t item;
};

/* A GPU with its scheduler. */
struct device {
    struct run *run;
    struct weir_sched *sched;
    struct weir_predict *predict;
    struct weir_sim_gpu *gpu;
    weir_sched_id *tenants; /* by index: their ids in this scheduler */
    double *sm_ns;          /* by tenant: SM-nanoseconds held; of the result */
    uint64_t timer_ns;
};

/* The kernels of a queue of a job. */
struct rank {
    uint32_t begun;
    uint32_t item; /* the last of them */
};

struct run {
    const struct weir_sim_load *load;
    const struct weir_sim_params *params;
    struct weir_sim_result *result;
    struct device *devices; /* those of the load's queues, by number */
    uint32_t n_devices;
    struct weir_sched_spans spans;
    struct rank *ranks; /* by queue */
    weir_sched_id *queues;
    struct fate *fates;
    struct arrival *heap;
    uint32_t n_heap;
    struct order *orders;
    uint32_t n_orders, cap_orders;
    uint32_t *leases; /* stopped items */
    uint32_t n_leases, cap_leases;
    uint32_t next_change;
    uint64_t now_ns;
    uint64_t busy_ns;  /* when something was last due that is no scheduler's timer */
    uint64_t left;     /* items that have not finished */
    bool is_short;     /* memory was short inside a callback */
    const char *wrong; /* what goes against the scheduler or the load, or NULL */
};

static inline struct device *weir_sim_device_of(const struct run *run, uint32_t item)
{
    return &run->devices[run->load->queues[run->load->items[item].queue].gpu];
}

/* sim_devices.c */

/** Make the GPUs of the load and their schedulers, with all tenants. */
enum weir_status weir_sim_devices_make(struct run *run) WEIR_MUST_CHECK;
/** When something happens next on a GPU. */
uint64_t weir_sim_devices_next_ns(const struct run *run);
/** Let time pass on all GPUs. @return true: something happened that the host is told */
bool weir_sim_devices_advance(struct run *run, uint64_t to_ns, struct weir_sim_event *ret_event);
/** The run is over: add up what the GPUs were used for. */
void weir_sim_devices_close(struct run *run);
void weir_sim_devices_finish(struct run *run);

/* sim_jobs.c */

/** Is a queue of a job, whose kernels wait for those of other queues? */
bool weir_sim_job_has(const struct weir_sim_load *load, uint32_t queue);
/** A kernel of a job has begun: it goes on with its peers, once they all have begun. */
void weir_sim_job_begun(struct run *run, uint32_t item);
/** Nothing but a scheduler's timer, at timer_ns, is due: do jobs wait for each other? */
bool weir_sim_jobs_are_stuck(const struct run *run, uint64_t timer_ns);
/** Prepare the rule for tenants that work on several GPUs. */
enum weir_status weir_sim_jobs_make(struct run *run) WEIR_MUST_CHECK;
/** A queue has work: the rule knows a job's before the first of it comes, as it does on a host,
 * where programs copy to each GPU first. */
void weir_sim_jobs_come(struct run *run, const struct weir_sim_queue *queue);
/** Apply the rule. */
void weir_sim_jobs_tick(struct run *run);

/*
 * Simulation of a load on models of GPUs, each with the same scheduler that runs live.
 *
 * Virtual clock, no threads; the same load, parameters and scheduler give the same run to the last
 * bit. Source: docs/design/simulation.md
 */
#pragma once

#include "sched/policy.h"
#include "sched/sim/gpu.h"
#include "sched/sim/load.h"

/* An interval in which an item was on the device, for pictures. Times from the run's beginning. */
struct weir_sim_span {
    uint32_t item;
    uint32_t tenant;
    uint32_t queue;
    enum weir_sched_class class;
    uint64_t from_ns; /* beginning on the device, or in its copy engine */
    uint64_t to_ns;
    uint64_t waited_ns; /* wait before the start; 0 in later spans of an item */
    bool has_finished;  /* false: it was stopped */
};

/* Functions that a run calls when something happens. Each may be NULL; hold and record must be if
 * the load is on several GPUs. */
struct weir_sim_watch {
    void *user;
    void (*span)(void *user, const struct weir_sim_span *span);
    weir_sim_hold_fn hold; /* owner: the tenant's index */
    /* As struct weir_sched_env's trace: the records of a recording of the run. */
    void (*record)(void *user, const struct weir_sched_record *record);
    /* After each call into a scheduler. tenants: their ids, by index. */
    void (*called)(void *user, uint64_t now_ns, const struct weir_sched *sched,
                   const weir_sched_id *tenants);
};

struct weir_sim_params {
    struct weir_sim_gpu_params gpu;
    struct weir_policy_set policies;
    struct weir_sched_config config; /* sms is taken from gpu; predict from learns */
    bool knows_contexts;             /* the scheduler gets GPU contexts as domains */
    bool own_contexts;  /* each tenant has a GPU context of its own, whatever the load says */
    bool apart;         /* for tests: no GPU's scheduler knows who leads on the others */
    bool learns;        /* durations are learned in the run instead of taken from the trace */
    uint64_t until_ns;  /* latest end of the run; 0: when all work is done */
    uint64_t bucket_ns; /* interval of shares over time; 0: none are kept */
    struct weir_sim_watch watch;
    uint64_t (*clock)(void);                   /* to measure the cost of decisions, or NULL */
    void (*log)(void *user, const char *line); /* the scheduler's lines for operators; or NULL */
    void *log_user;
};

/* The result of a tenant. Times in nanoseconds. */
struct weir_sim_tenant_result {
    uint64_t items; /* items that arrived */
    uint64_t finished;
    uint64_t first_ns;   /* its first arrival */
    double sm_ns;        /* SM-nanoseconds held */
    uint64_t copy_ns[2]; /* time of the copy engine to the device, and from it */
    uint64_t copied_bytes[2];
    uint64_t stops;
    uint64_t waited_ns; /* sum over items of the time from arrival to start */
    uint64_t waited_max_ns;
    uint64_t kernels; /* compute items that finished */
};

struct weir_sim_decisions {
    struct weir_sched_counts counts;
    uint64_t calls;   /* calls into the scheduler */
    uint64_t cost_ns; /* time of all calls, by params.clock */
    uint64_t cost_max_ns;
};

struct weir_sim_result {
    uint64_t end_ns;
    bool was_cut; /* until_ns ended the run before all work was done */
    uint32_t n_gpus;
    struct weir_sim_usage usage; /* of all GPUs together, and so the decisions */
    struct weir_sim_decisions decisions;
    struct weir_sim_tenant_result *tenants;
    uint32_t n_tenants;
    uint64_t *arrived_ns;  /* by item; UINT64_MAX: it did not arrive */
    uint64_t *finished_ns; /* by item, when it was known to be finished; UINT64_MAX: not */
    uint64_t *waited_ns;   /* by item, from arrival to start; UINT64_MAX: not started */
    uint32_t n_items;
    double *gpu_sm_ns;    /* [gpu * n_tenants + tenant]: SM-nanoseconds held */
    double *bucket_sm_ns; /* [bucket * n_tenants + tenant]: SM-nanoseconds held */
    uint32_t n_buckets;
};

/**
 * Run a load.
 *
 * @param load        borrowed for the call.
 * @param ret_result  on success; weir_sim_result_finish() frees it.
 * @param ret_error   256 bytes; what went wrong, unless WEIR_OK.
 * @return WEIR_OK
 * @return WEIR_ERR_INVALID   parameters that no scheduler or device takes, or that several GPUs
 *                            cannot have.
 * @return WEIR_ERR_TIMED_OUT jobs wait for each other without end.
 * @return WEIR_ERR_TOO_BIG   more than WEIR_SIM_BUCKETS_MAX numbers for shares over time.
 * @return WEIR_ERR_INTERNAL  the scheduler broke its promises, or left work that it would
 *                            never start: a mistake in the scheduler.
 * @return WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_sim_run(const struct weir_sim_load *load,
                              const struct weir_sim_params *params,
                              struct weir_sim_result *ret_result, char *ret_error) WEIR_MUST_CHECK;

#define WEIR_SIM_BUCKETS_MAX (UINT32_C(1) << 24)
#define WEIR_SIM_ERROR_BYTES 256

/** Accepts NULL and a zeroed result. @thread any */
void weir_sim_result_finish(struct weir_sim_result *result);

/** Fill in defaults: policy fair, the config of the trace, all work to its end.
 * @thread any */
void weir_sim_params_init(struct weir_sim_params *params, const struct weir_sim_load *load,
                          const struct weir_sim_gpu_params *gpu);

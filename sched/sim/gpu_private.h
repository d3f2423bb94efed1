/* What the files of the GPU's model share. */
#ifndef WEIR_SCHED_SIM_GPU_PRIVATE_H
#define WEIR_SCHED_SIM_GPU_PRIVATE_H

#include "sched/sim/gpu.h"

enum weir_sim_unit_state {
    WEIR_SIM_UNIT_QUEUED, /* behind others of its stream, not ready yet, or its engine is busy */
    WEIR_SIM_UNIT_RUNNING,
    WEIR_SIM_UNIT_STOPPING, /* told to stop; works until stop_ns */
    WEIR_SIM_UNIT_DRAINING, /* works no more, holds its SMs until stop_ns */
    WEIR_SIM_UNIT_STOPPED,
    WEIR_SIM_UNIT_DONE, /* on the GPU; told to the host at notice_ns */
};

/* One started piece of work. Owned by the GPU. */
struct weir_sim_unit {
    uint64_t id;
    struct weir_sim_work work;
    struct weir_sim_place place;
    struct weir_sim_place next_place; /* from next_place_ns on */
    uint64_t next_place_ns;           /* UINT64_MAX: no change under way */
    enum weir_sim_unit_state state;
    bool head; /* the first of its stream */
    bool has_begun;
    bool is_on;          /* its launch is on the device: it takes SMs when there are any */
    uint64_t launched;   /* the how many-th launch it is; going on is another */
    uint64_t ready_ns;   /* does not begin before */
    uint64_t settled_ns; /* from then on its rank counts against what runs; UINT64_MAX: it does */
    uint64_t begun_ns;
    uint64_t finish_ns; /* if nothing changes; UINT64_MAX: it makes no progress */
    uint64_t stop_ns;
    uint64_t notice_ns;
    double left;     /* compute: SM-nanoseconds of work; else nanoseconds of its engine */
    double parallel; /* SMs that its blocks can fill */
    double rate;     /* of left, per nanosecond */
    double share;    /* SMs held */
    double claim;    /* what it has of what is short, against others */
    double speed;    /* rate as a part of its full speed: 0 .. 1 */
    uint64_t held_from_ns;
    float *shares; /* held of each SM */
};

struct weir_sim_gpu {
    struct weir_sim_gpu_params params;
    struct weir_sim_unit **units; /* in the order of their starts */
    size_t n_units;
    size_t cap_units;
    uint64_t launches;
    struct weir_sim_unit **sorted; /* scratch, as long as units */
    bool is_stale;                 /* shares and rates must be found anew */
    bool has_context;              /* a kernel has come */
    bool has_others;               /* kernels of two contexts have come */
    uint32_t context;              /* whose kernels may be on the SMs .. */
    uint64_t context_ns;           /* .. from then on */
    uint64_t now_ns;
    weir_sim_hold_fn hold;
    void *hold_user;
    struct weir_sim_usage usage;
    double free[WEIR_SIM_SMS_MAX]; /* scratch */
};

/** Find shares of SMs, rates and finish times of all units at gpu->now_ns. */
void weir_sim_gpu_share(struct weir_sim_gpu *gpu);

/** Tell the watcher what a unit has held since held_from_ns. */
void weir_sim_gpu_tell_held(struct weir_sim_gpu *gpu, struct weir_sim_unit *unit);

/** The time of one block, nanoseconds. */
double weir_sim_block_ns(const struct weir_sim_work *work);

/** Does it hold SMs? */
static inline bool weir_sim_unit_holds(const struct weir_sim_unit *unit)
{
    return unit->work.engine == WEIR_SIM_COMPUTE && unit->is_on &&
           (unit->state == WEIR_SIM_UNIT_RUNNING || unit->state == WEIR_SIM_UNIT_STOPPING ||
            unit->state == WEIR_SIM_UNIT_DRAINING);
}

#endif

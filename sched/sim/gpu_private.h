/* Types and functions that the files of the GPU's model share. */
#pragma once

#include "sched/sim/gpu.h"

enum weir_sim_unit_state {
    WEIR_SIM_UNIT_QUEUED, /* not ready, or waits for its stream or engine */
    WEIR_SIM_UNIT_RUNNING,
    WEIR_SIM_UNIT_STOPPING, /* ordered to stop; works until stop_ns */
    WEIR_SIM_UNIT_DRAINING, /* works no more, but occupies its SMs until stop_ns */
    WEIR_SIM_UNIT_STOPPED,
    WEIR_SIM_UNIT_DONE, /* has ended on the GPU; the host knows at notice_ns */
};

/* One started piece of work. Owned by the GPU. */
struct weir_sim_unit {
    uint64_t id;
    struct weir_sim_work work;
    struct weir_sim_place place;
    struct weir_sim_place next_place; /* from next_place_ns on */
    uint64_t next_place_ns;           /* UINT64_MAX: no change under way */
    enum weir_sim_unit_state state;
    bool head; /* it is the first of its stream */
    bool has_begun;
    bool waits;          /* for its peers */
    bool is_begin_told;  /* WEIR_SIM_BEGUN was given */
    bool is_on;          /* it is on the device and takes SMs when there are free ones */
    uint64_t launched;   /* number of its last launch; a resume is a launch, too */
    uint64_t ready_ns;   /* earliest beginning */
    uint64_t settled_ns; /* its rank counts against running units from then on; UINT64_MAX: now */
    uint64_t begun_ns;
    uint64_t finish_ns; /* its end if nothing changes; UINT64_MAX: it makes no progress */
    uint64_t stop_ns;
    uint64_t notice_ns;
    double left;     /* work left, in SM-nanoseconds or nanoseconds of a copy engine */
    double parallel; /* SMs that its blocks can fill */
    double rate;     /* decrease of `left` in a nanosecond */
    double share;    /* SMs held */
    double claim;    /* its weight against others where a resource is short */
    double speed;    /* rate as a part of its full speed: 0 .. 1 */
    uint64_t held_from_ns;
    float *shares; /* the part of each SM that it holds */
};

struct weir_sim_gpu {
    struct weir_sim_gpu_params params;
    struct weir_sim_unit **units; /* in the order of their starts */
    size_t n_units;
    size_t cap_units;
    uint64_t launches;
    struct weir_sim_unit **sorted; /* scratch, as long as units */
    bool is_stale;                 /* shares and rates must be found anew */
    bool has_context;              /* a kernel has arrived */
    bool has_others;               /* kernels of two contexts have arrived */
    uint32_t context;              /* the context whose kernels may be on the SMs, */
    uint64_t context_ns;           /* from this time on */
    uint64_t now_ns;
    weir_sim_hold_fn hold;
    void *hold_user;
    struct weir_sim_usage usage;
    double free[WEIR_SIM_SMS_MAX]; /* scratch */
};

/** Find shares of SMs, rates and finish times of all units at gpu->now_ns. */
void weir_sim_gpu_share(struct weir_sim_gpu *gpu);

/** Report to the watcher the SMs that a unit has held since held_from_ns. */
void weir_sim_gpu_tell_held(struct weir_sim_gpu *gpu, struct weir_sim_unit *unit);

/** The time of one block, nanoseconds. */
double weir_sim_block_ns(const struct weir_sim_work *work);

/** Does the unit hold SMs? */
static inline bool weir_sim_unit_holds(const struct weir_sim_unit *unit)
{
    return unit->work.engine == WEIR_SIM_COMPUTE && unit->is_on &&
           (unit->state == WEIR_SIM_UNIT_RUNNING || unit->state == WEIR_SIM_UNIT_STOPPING ||
            unit->state == WEIR_SIM_UNIT_DRAINING);
}

/* A desk where kernels are of one wave and others may fill. */
#pragma once

#include "sched/predict.h"
#include "tests/unit/sched/desk.h"

#define WAVE  (8 * SMS) /* blocks that fit on the device at once */
#define LEADS 1000      /* the weight of one that goes on leading when another comes */

static inline void desk_init_learning(struct desk *d, enum weir_sched_fill fill,
                                      struct weir_predict *predict)
{
    struct weir_sched_config config;

    weir_sched_config_init(&config, SMS);
    config.fill = fill;
    config.predict = predict;
    desk_init_with(d, &config);
}

static inline void desk_init_filling(struct desk *d, enum weir_sched_fill fill)
{
    desk_init_learning(d, fill, NULL);
}

static inline weir_sched_id queue_of_weight(struct desk *d, uint32_t weight,
                                            enum weir_priority priority, weir_sched_id *ret_tenant)
{
    *ret_tenant = tenant_of_weight(d, weight, priority, 100);
    return queue(d, *ret_tenant);
}

static inline weir_sched_id queue_of(struct desk *d, enum weir_priority priority,
                                     weir_sched_id *ret_tenant)
{
    return queue_of_weight(d, 1, priority, ret_tenant);
}

/* A kernel of one wave: its blocks take as long as itself. */
static inline weir_sched_id wave_of(struct desk *d, weir_sched_id queue_id, uint64_t us,
                                    uint32_t flags)
{
    struct weir_sched_item_params params = {.class = WEIR_SCHED_KERNEL,
                                            .flags = flags,
                                            .key = us,
                                            .predicted_ns = us * 1000,
                                            .blocks = WAVE,
                                            .blocks_per_sm = 8};

    return bring(d, queue_id, &params);
}

static inline weir_sched_id wave(struct desk *d, weir_sched_id queue_id, uint64_t us)
{
    return wave_of(d, queue_id, us, 0);
}

/* -1: not started; else an enum weir_sched_level. */
static inline int level_of_start(const struct desk *d, weir_sched_id item)
{
    for (uint32_t i = 0; i < d->count; i++) {
        if (d->order[i].what == START && d->order[i].item == item) {
            return (int)d->order[i].level;
        }
    }
    return -1;
}

/* -1: not started; else whether it was started as a filler. */
static inline int how(const struct desk *d, weir_sched_id item)
{
    int level = level_of_start(d, item);

    return level < 0 ? -1 : level == WEIR_SCHED_BELOW || level == WEIR_SCHED_BELOW_EQUAL;
}

/*
 * A scheduler whose environment writes down what it was told, on a clock of the test's own; and one
 * line for each call into it.
 */
#pragma once

#include "sched/sched.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sched_check.h"
#include <string.h>

#define SMS     132u
#define BOTH    (WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE)
#define LOG_MAX 256

enum told { START, STOP, RESUME, RESIZE, SOON };

struct order {
    enum told what;
    weir_sched_id item;
    struct weir_sched_place place;
    enum weir_sched_level level; /* of START */
};

struct desk {
    struct weir_sched *sched;
    struct order order[LOG_MAX];
    uint32_t count;
    const weir_sched_id *arriving;
    uint64_t timer_ns, now_ns;
};

static inline void note(struct desk *b, enum told what, weir_sched_id item,
                        const struct weir_sched_place *place)
{
    assert_true(b->count < LOG_MAX);
    b->order[b->count] = (struct order){.what = what, .item = item};
    if (place) {
        b->order[b->count].place = *place;
    }
    b->count++;
}

static inline void on_start(void *user, weir_sched_id item, void *item_user,
                            const struct weir_sched_place *place, enum weir_sched_level level)
{
    struct desk *desk = user;

    (void)item_user;
    assert_true(!desk->arriving || *desk->arriving != 0); /* known before it is started */
    note(desk, START, item, place);
    desk->order[desk->count - 1].level = level;
}

static inline void on_soon(void *user, weir_sched_id item, void *item_user)
{
    (void)item_user;
    note(user, SOON, item, NULL);
}

static inline void on_stop(void *user, weir_sched_id item, void *item_user, uint64_t lease_ns)
{
    (void)item_user;
    assert_true(lease_ns > 0);
    note(user, STOP, item, NULL);
}

static inline void on_resume(void *user, weir_sched_id item, void *item_user,
                             const struct weir_sched_place *place)
{
    (void)item_user;
    note(user, RESUME, item, place);
}

static inline void on_resize(void *user, weir_sched_id item, void *item_user,
                             const struct weir_sched_place *place)
{
    (void)item_user;
    note(user, RESIZE, item, place);
}

static inline void on_timer(void *user, uint64_t at_ns)
{
    ((struct desk *)user)->timer_ns = at_ns;
}

static inline void desk_init_with(struct desk *b, const struct weir_sched_config *config)
{
    struct weir_sched_env env = {.user = b,
                                 .start = on_start,
                                 .soon = on_soon,
                                 .stop = on_stop,
                                 .resume = on_resume,
                                 .resize = on_resize,
                                 .timer = on_timer};

    memset(b, 0, sizeof(*b));
    b->now_ns = 1000;
    b->timer_ns = UINT64_MAX;
    assert_int_equal(weir_sched_create(config, &env, &b->sched), WEIR_OK);
}

static inline void desk_init(struct desk *b)
{
    struct weir_sched_config config;

    weir_sched_config_init(&config, SMS);
    desk_init_with(b, &config);
}

static inline void desk_finish(struct desk *b)
{
    assert_null(tl_sched_check(b->sched));
    weir_sched_destroy(b->sched);
}

static inline weir_sched_id tenant_of_weight(struct desk *b, uint32_t weight,
                                             enum weir_priority priority, uint32_t sm_limit)
{
    struct weir_sched_tenant_params params = {
        .name = "t", .weight = weight, .sm_limit = sm_limit, .priority = priority};
    weir_sched_id id;

    assert_int_equal(weir_sched_tenant_add(b->sched, b->now_ns, &params, &id), WEIR_OK);
    return id;
}

static inline weir_sched_id tenant(struct desk *b, enum weir_priority priority, uint32_t sm_limit)
{
    return tenant_of_weight(b, 1, priority, sm_limit);
}

static inline weir_sched_id queue(struct desk *b, weir_sched_id tenant_id)
{
    weir_sched_id id;

    assert_int_equal(weir_sched_queue_add(b->sched, tenant_id, 100, 0, &id), WEIR_OK);
    return id;
}

static inline weir_sched_id bring(struct desk *b, weir_sched_id queue_id,
                                  const struct weir_sched_item_params *params)
{
    weir_sched_id id = 0;

    b->arriving = &id;
    assert_int_equal(weir_sched_arrive(b->sched, b->now_ns, queue_id, params, &id), WEIR_OK);
    b->arriving = NULL;
    assert_null(tl_sched_check(b->sched));
    return id;
}

static inline weir_sched_id work(struct desk *b, weir_sched_id queue_id,
                                 enum weir_sched_class class, uint64_t predicted_us, uint32_t flags)
{
    struct weir_sched_item_params params = {.class = class,
                                            .flags = flags,
                                            .key = predicted_us,
                                            .predicted_ns = predicted_us * 1000,
                                            .blocks = 10000,
                                            .blocks_per_sm = 8};

    return bring(b, queue_id, &params);
}

static inline weir_sched_id kernel(struct desk *b, weir_sched_id queue_id, uint64_t predicted_us,
                                   uint32_t flags)
{
    return work(b, queue_id, WEIR_SCHED_KERNEL, predicted_us, flags);
}

static inline enum weir_sched_item_state state_of(struct desk *b, weir_sched_id item)
{
    struct weir_sched_item_info info;

    return weir_sched_item_query(b->sched, item, &info) == WEIR_OK ? info.state : WEIR_SCHED_GONE;
}

static inline void later(struct desk *b, uint64_t us)
{
    uint64_t until_ns = b->now_ns + us * 1000;

    while (b->timer_ns <= until_ns) {
        b->now_ns = b->timer_ns;
        b->timer_ns = UINT64_MAX;
        weir_sched_tick(b->sched, b->now_ns);
        assert_null(tl_sched_check(b->sched));
    }
    b->now_ns = until_ns;
}

static inline void finished(struct desk *b, weir_sched_id item)
{
    assert_int_equal(weir_sched_finished(b->sched, b->now_ns, item, 0), WEIR_OK);
    assert_null(tl_sched_check(b->sched));
}

static inline uint64_t predicted_us(struct desk *b, weir_sched_id item)
{
    struct weir_sched_item_info info;

    assert_int_equal(weir_sched_item_query(b->sched, item, &info), WEIR_OK);
    return info.predicted_ns / 1000;
}

/*
 * What a leader leaves of the device: who may have it, at what price, and what is charged when
 * kernels go in between or behind each other (sched/fill.c, sched/charge.c).
 */
#include "sched/sched.h"
#include "tests/lib/tl_cmocka.h"
#include <string.h>

#define SMS       10
#define ITEMS_MAX 64

/* What was started, in order. */
struct desk {
    struct weir_sched *sched;
    uint64_t now_ns, timer_ns;
    weir_sched_id started[ITEMS_MAX];
    bool filler[ITEMS_MAX];
    uint32_t count;
};

static void on_start(void *user, weir_sched_id item, void *item_user,
                     const struct weir_sched_place *place, bool filler)
{
    struct desk *d = user;

    (void)item_user;
    (void)place;
    assert_true(d->count < ITEMS_MAX);
    d->started[d->count] = item;
    d->filler[d->count++] = filler;
}

static void on_timer(void *user, uint64_t at_ns)
{
    ((struct desk *)user)->timer_ns = at_ns;
}

static void desk_init(struct desk *d, enum weir_sched_fill fill)
{
    struct weir_sched_config config;
    struct weir_sched_env env = {.user = d, .start = on_start, .timer = on_timer};

    memset(d, 0, sizeof(*d));
    d->now_ns = 1000;
    d->timer_ns = UINT64_MAX;
    weir_sched_config_init(&config, SMS);
    config.fill = fill;
    assert_int_equal(weir_sched_create(&config, &env, &d->sched), WEIR_OK);
}

static weir_sched_id queue_of(struct desk *d, enum weir_sched_priority priority,
                              weir_sched_id *ret_tenant)
{
    struct weir_sched_tenant_params params = {
        .name = "t", .weight = 1, .sm_limit = 100, .priority = priority};
    weir_sched_id queue;

    assert_int_equal(weir_sched_tenant_add(d->sched, d->now_ns, &params, ret_tenant), WEIR_OK);
    assert_int_equal(weir_sched_queue_add(d->sched, *ret_tenant, 100, &queue), WEIR_OK);
    return queue;
}

/* Of one wave: its blocks take as long as itself. */
static weir_sched_id kernel(struct desk *d, weir_sched_id queue, uint64_t us)
{
    struct weir_sched_item_params params = {.class = WEIR_SCHED_KERNEL,
                                            .key = us,
                                            .predicted_ns = us * 1000,
                                            .blocks = 80,
                                            .blocks_per_sm = 8};
    weir_sched_id id = 0;

    assert_int_equal(weir_sched_arrive(d->sched, d->now_ns, queue, &params, &id), WEIR_OK);
    assert_null(weir_sched_check(d->sched));
    return id;
}

static void later(struct desk *d, uint64_t us)
{
    uint64_t until_ns = d->now_ns + us * 1000;

    while (d->timer_ns <= until_ns) {
        d->now_ns = d->timer_ns;
        d->timer_ns = UINT64_MAX;
        weir_sched_tick(d->sched, d->now_ns);
        assert_null(weir_sched_check(d->sched));
    }
    d->now_ns = until_ns;
    weir_sched_tick(d->sched, d->now_ns); /* charges what has passed */
    assert_null(weir_sched_check(d->sched));
}

static void finished(struct desk *d, weir_sched_id item)
{
    assert_int_equal(weir_sched_finished(d->sched, d->now_ns, item, 0), WEIR_OK);
    assert_null(weir_sched_check(d->sched));
}

/* -1: not started; else whether it was started as a filler. */
static int how(const struct desk *d, weir_sched_id item)
{
    for (uint32_t i = 0; i < d->count; i++) {
        if (d->started[i] == item) {
            return d->filler[i];
        }
    }
    return -1;
}

static uint64_t service_us(const struct desk *d, weir_sched_id tenant)
{
    struct weir_sched_tenant_info info;

    assert_int_equal(weir_sched_tenant_query(d->sched, tenant, &info), WEIR_OK);
    return info.service_ns[WEIR_SCHED_COMPUTE] / SMS / 1000;
}

static void lower_class_fills_and_pays_when_done(void **state)
{
    struct desk d;
    weir_sched_id high, low, high_queue, low_queue, leads, fills;

    (void)state;
    desk_init(&d, WEIR_SCHED_FILL_LOWER);
    high_queue = queue_of(&d, WEIR_SCHED_HIGH, &high);
    low_queue = queue_of(&d, WEIR_SCHED_LOW, &low);
    leads = kernel(&d, high_queue, 1000);
    fills = kernel(&d, low_queue, 300);
    assert_int_equal(how(&d, leads), 0);
    assert_int_equal(how(&d, fills), 1);
    later(&d, 500);
    assert_int_equal(service_us(&d, high), 500); /* the device gives it the SMs first */
    assert_int_equal(service_us(&d, low), 0);
    finished(&d, fills); /* in what was left: it pays what it takes alone */
    assert_int_equal(service_us(&d, low), 300);
    later(&d, 500);
    finished(&d, leads);
    assert_int_equal(service_us(&d, high), 1000);
    weir_sched_destroy(d.sched);
}

static void nobody_fills_where_it_is_not_asked_for(void **state)
{
    struct desk d;
    weir_sched_id tenant, a, b;

    (void)state;
    desk_init(&d, WEIR_SCHED_FILL_NONE);
    a = kernel(&d, queue_of(&d, WEIR_SCHED_HIGH, &tenant), 1000);
    b = kernel(&d, queue_of(&d, WEIR_SCHED_LOW, &tenant), 100);
    later(&d, 300);
    assert_int_equal(how(&d, a), 0);
    assert_int_equal(how(&d, b), -1);
    weir_sched_destroy(d.sched);

    desk_init(&d, WEIR_SCHED_FILL_LOWER); /* equals do not */
    a = kernel(&d, queue_of(&d, WEIR_SCHED_NORMAL, &tenant), 1000);
    b = kernel(&d, queue_of(&d, WEIR_SCHED_NORMAL, &tenant), 100);
    assert_int_equal(how(&d, a), 0);
    assert_int_equal(how(&d, b), 0); /* its turn, behind what runs */
    weir_sched_destroy(d.sched);
}

/* All of one class: short blocks may, long ones may not. */
static void equals_fill_with_short_blocks(void **state)
{
    struct desk d;
    weir_sched_id tenant[3], leader, queue[3], item[3][8];
    uint32_t fillers[3] = {0};

    (void)state;
    desk_init(&d, WEIR_SCHED_FILL_ALL);
    for (int i = 0; i < 3; i++) {
        queue[i] = queue_of(&d, WEIR_SCHED_NORMAL, &tenant[i]);
    }
    leader = kernel(&d, queue[0], 3000);
    for (int k = 0; k < 8; k++) {
        item[1][k] = kernel(&d, queue[1], 400);
        item[2][k] = kernel(&d, queue[2], 80);
    }
    later(&d, 1500); /* the second leads, behind what runs; the third has what they leave */
    assert_int_equal(how(&d, leader), 0);
    for (int k = 0; k < 8; k++) {
        fillers[1] += how(&d, item[1][k]) == 1;
        fillers[2] += how(&d, item[2][k]) == 1;
    }
    assert_int_equal(fillers[1], 0);
    assert_true(fillers[2] > 0);
    weir_sched_destroy(d.sched);
}

/* A newcomer's work does not go between what another has queued; but it waits for that only so
 * long. */
static void newcomer_waits_for_what_is_queued_but_not_for_long(void **state)
{
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        struct desk d;
        weir_sched_id a, b, queue, queued[4], newcomer;

        desk_init(&d, WEIR_SCHED_FILL_NONE);
        queue = queue_of(&d, WEIR_SCHED_NORMAL, &a);
        for (int i = 0; i < 4; i++) { /* alone: all are granted */
            queued[i] = kernel(&d, queue, 500);
            assert_int_equal(how(&d, queued[i]), 0);
        }
        newcomer = kernel(&d, queue_of(&d, WEIR_SCHED_NORMAL, &b), 100);
        later(&d, 500); /* its turn has begun */
        assert_int_equal(how(&d, newcomer), -1);
        for (int i = 0; i < 3 && ends != 0; i++) {
            finished(&d, queued[i]);
        }
        if (ends == 0) { /* perhaps it is what they wait for */
            later(&d, 600);
        }
        assert_int_equal(how(&d, newcomer), 0);
        weir_sched_destroy(d.sched);
    }
}

/* One that ends behind another's kernel was served in between: that one is not to pay for it. */
static void what_goes_in_between_is_charged_to_whom_it_belongs(void **state)
{
    struct desk d;
    weir_sched_id a, b, queue_a, queue_b, runs, between;

    (void)state;
    desk_init(&d, WEIR_SCHED_FILL_NONE);
    queue_a = queue_of(&d, WEIR_SCHED_NORMAL, &a);
    queue_b = queue_of(&d, WEIR_SCHED_NORMAL, &b);
    runs = kernel(&d, queue_a, 4000);
    later(&d, 1000);
    between = kernel(&d, queue_b, 200);
    later(&d, 2000);
    assert_int_equal(how(&d, between), 0);
    assert_int_equal(service_us(&d, a), 3000);
    finished(&d, between);
    assert_int_equal(service_us(&d, b), 200);
    later(&d, 1000);
    finished(&d, runs);
    assert_int_equal(service_us(&d, a), 3800); /* of four milliseconds */
    weir_sched_destroy(d.sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower_class_fills_and_pays_when_done),
        cmocka_unit_test(nobody_fills_where_it_is_not_asked_for),
        cmocka_unit_test(equals_fill_with_short_blocks),
        cmocka_unit_test(newcomer_waits_for_what_is_queued_but_not_for_long),
        cmocka_unit_test(what_goes_in_between_is_charged_to_whom_it_belongs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Who goes first goes above others of its class at once, beside what they have on the device, and
 * pays what it takes (sched/beside.c, sched/charge.c).
 */
#include "sched/private.h"
#include "tests/unit/sched/wave_desk.h"

#define LOOP_US 300u /* a kernel of the loop, of one wave */

struct pair {
    struct desk d;
    struct weir_predict *predict;
    weir_sched_id asks, loops; /* tenants */
    weir_sched_id asks_queue, loops_queue;
    weir_sched_id under_way[8];
};

static weir_sched_id kernel_of(struct desk *d, weir_sched_id queue_id, enum weir_sched_class class,
                               uint32_t flags, uint64_t us)
{
    struct weir_sched_item_params params = {.class = class,
                                            .flags = flags,
                                            .key = 7,
                                            .predicted_ns = us * 1000,
                                            .blocks = WAVE,
                                            .blocks_per_sm = 8};

    return bring(d, queue_id, &params);
}

/* Two equals: one has been away for so long, the other has several kernels on the device. */
static void open_pair(struct pair *p, uint64_t away_us, enum weir_priority class, uint32_t above,
                      struct weir_predict *predict)
{
    struct weir_sched_config config;

    weir_sched_config_init(&config, SMS);
    config.fill = WEIR_SCHED_FILL_ALL;
    config.small_sms = 3 * SMS;
    config.above = above;
    config.predict = predict;
    desk_init_with(&p->d, &config);
    p->asks_queue = queue_of(&p->d, class, &p->asks);
    p->loops_queue = queue_of(&p->d, class, &p->loops);
    finished(&p->d, wave(&p->d, p->asks_queue, 50));
    for (uint64_t us = 0; us < away_us; us += 100) {
        weir_sched_id item = wave(&p->d, p->loops_queue, 100);

        later(&p->d, 100);
        finished(&p->d, item);
    }
    for (int i = 0; i < 5; i++) {
        p->under_way[i] = wave(&p->d, p->loops_queue, LOOP_US);
    }
    later(&p->d, 50);
    p->d.count = 0;
}

static uint64_t service_us(struct desk *d, weir_sched_id tenant_id)
{
    struct weir_sched_tenant_info info;

    weir_sched_tick(d->sched, d->now_ns); /* charges what has passed */
    assert_int_equal(weir_sched_tenant_query(d->sched, tenant_id, &info), WEIR_OK);
    return info.service_ns[WEIR_SCHED_COMPUTE] / 1000 / SMS;
}

static void who_was_away_goes_above_at_once(void **state)
{
    static const struct {
        const char *what;
        uint64_t away_us;
        uint32_t above;
        enum weir_priority class;
        enum weir_sched_class kind;
        uint32_t flags;
        uint64_t us; /* of its item; 0: not known */
        int level;   /* -1: it waits */
    } cases[] = {
        {"short", 3000, 1, WEIR_PRIORITY_NORMAL, WEIR_SCHED_KERNEL, 0, 100, WEIR_SCHED_ABOVE},
        {"a graph", 3000, 1, WEIR_PRIORITY_NORMAL, WEIR_SCHED_GRAPH, 0, 100, WEIR_SCHED_ABOVE},
        {"as long as may be", 3000, 1, WEIR_PRIORITY_NORMAL, WEIR_SCHED_KERNEL, 0, 4000,
         WEIR_SCHED_ABOVE},
        {"longer", 3000, 1, WEIR_PRIORITY_NORMAL, WEIR_SCHED_KERNEL, 0, 4001, -1},
        {"not known", 3000, 1, WEIR_PRIORITY_NORMAL, WEIR_SCHED_KERNEL, 0, 0, -1},
        {"a graph with levels of its own", 3000, 1, WEIR_PRIORITY_NORMAL, WEIR_SCHED_GRAPH,
         WEIR_SCHED_OWN_LEVELS, 100, -1},
        {"no such level", 3000, 0, WEIR_PRIORITY_NORMAL, WEIR_SCHED_KERNEL, 0, 100, -1},
        {"another class", 3000, 1, WEIR_PRIORITY_HIGH, WEIR_SCHED_KERNEL, 0, 100, -1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair p;
        weir_sched_id item;

        open_pair(&p, cases[i].away_us, cases[i].class, cases[i].above, NULL);
        item = kernel_of(&p.d, p.asks_queue, cases[i].kind, cases[i].flags, cases[i].us);
        if (level_of_start(&p.d, item) != cases[i].level) {
            fail_msg("%s: %d", cases[i].what, level_of_start(&p.d, item));
        }
        assert_int_equal(state_of(&p.d, p.under_way[1]), WEIR_SCHED_GRANTED);
        desk_finish(&p.d);
    }
}

/* It ended beside a kernel that takes 300 us. When that ends it is known whether the item waited
 * for it or took longer than is known: the two pay for the time, and no more. What the other took
 * too long without it is none of its business. */
static void it_pays_what_it_takes(void **state)
{
    static const struct {
        uint64_t span_us, then_us; /* until it ends, and until the other one does */
        uint64_t costs_us;
    } cases[] = {
        {100, 250, 100},  {250, 100, 100},   {340, 10, 100},    {250, 250, 250},
        {200, 2000, 200}, {1000, 250, 1000}, {2000, 250, 2000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair p;
        weir_sched_id item;
        uint64_t asks_us, loops_us, all_us = cases[i].span_us + cases[i].then_us;

        open_pair(&p, 3000, WEIR_PRIORITY_NORMAL, 1, NULL);
        asks_us = service_us(&p.d, p.asks);
        loops_us = service_us(&p.d, p.loops);
        item = kernel_of(&p.d, p.asks_queue, WEIR_SCHED_KERNEL, 0, 100);
        later(&p.d, cases[i].span_us);
        finished(&p.d, item);
        later(&p.d, cases[i].then_us);
        finished(&p.d, p.under_way[0]);
        assert_in_range(service_us(&p.d, p.asks) - asks_us, cases[i].costs_us - 1,
                        cases[i].costs_us + 1);
        later(&p.d, 3000); /* the loop uses up its credit */
        assert_in_range(service_us(&p.d, p.loops) - loops_us, all_us + 3000 - cases[i].costs_us - 1,
                        all_us + 3000 - cases[i].costs_us + 1);
        desk_finish(&p.d);
    }
}

/* Three that are seen to end together took what they are known to take, not three times all. */
static void several_that_end_together_pay_once(void **state)
{
    struct pair p;
    weir_sched_id item[3];
    uint64_t before_us;

    (void)state;
    open_pair(&p, 3000, WEIR_PRIORITY_NORMAL, 1, NULL);
    before_us = service_us(&p.d, p.asks);
    for (int i = 0; i < 3; i++) {
        item[i] = kernel_of(&p.d, p.asks_queue, WEIR_SCHED_KERNEL, 0, 30);
        assert_int_equal(level_of_start(&p.d, item[i]), WEIR_SCHED_ABOVE);
    }
    later(&p.d, 390);
    for (int i = 0; i < 3; i++) {
        finished(&p.d, item[i]);
    }
    assert_int_equal(service_us(&p.d, p.asks) - before_us, 90);
    desk_finish(&p.d);
}

/* It was away for 2 ms. Its work of that time goes above, and then it takes turns. */
static void no_more_goes_above_than_it_was_away_for(void **state)
{
    struct pair p;
    uint32_t above = 0;

    (void)state;
    open_pair(&p, 2000, WEIR_PRIORITY_NORMAL, 1, NULL);
    for (int i = 0; i < 40; i++) {
        weir_sched_id item = kernel_of(&p.d, p.asks_queue, WEIR_SCHED_KERNEL, 0, 200);

        above += level_of_start(&p.d, item) == WEIR_SCHED_ABOVE;
        later(&p.d, 200);
        if (state_of(&p.d, item) != WEIR_SCHED_GRANTED) {
            break;
        }
        finished(&p.d, item);
        p.d.count = 0;
    }
    assert_int_equal(above, 10);
    desk_finish(&p.d);
}

/* A second one is above, too, whoever leads. */
static void all_who_go_first_go_above(void **state)
{
    struct pair p;
    weir_sched_id third, queue_id, item;

    (void)state;
    open_pair(&p, 3000, WEIR_PRIORITY_NORMAL, 1, NULL);
    queue_id = queue_of(&p.d, WEIR_PRIORITY_NORMAL, &third);
    item = wave(&p.d, queue_id, 50); /* never away: it waits */
    assert_int_equal(level_of_start(&p.d, item), -1);
    assert_int_equal(weir_sched_withdraw(p.d.sched, p.d.now_ns, item), WEIR_OK);
    later(&p.d, 1000);
    item = kernel_of(&p.d, p.asks_queue, WEIR_SCHED_KERNEL, 0, 100);
    assert_int_equal(level_of_start(&p.d, item), WEIR_SCHED_ABOVE);
    for (int i = 0; i < 2; i++) {
        item = kernel_of(&p.d, queue_id, WEIR_SCHED_KERNEL, 0, 50);
        assert_int_equal(level_of_start(&p.d, item), WEIR_SCHED_ABOVE);
    }
    assert_int_equal(p.d.sched->turn.leader->view.id, p.asks);
    desk_finish(&p.d);
}

/* Between nothing and the blocks' time of the other's kernel its wait is not known; beyond that it
 * took longer than was known, or less if it ended sooner. */
static void its_duration_is_corrected(void **state)
{
    static const struct {
        uint64_t span_us, known_us;
    } cases[] = {{100, 100}, {490, 100}, {1412, 1000}, {50, 50}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weir_predict *predict;
        struct pair p;
        weir_sched_id item;

        assert_int_equal(weir_predict_create(16, &predict), WEIR_OK);
        for (int n = 0; n < 4; n++) {
            weir_predict_learn(predict, WEIR_SCHED_KERNEL, 7, WAVE, 100000);
        }
        open_pair(&p, 3000, WEIR_PRIORITY_NORMAL, 1, predict);
        item = kernel_of(&p.d, p.asks_queue, WEIR_SCHED_KERNEL, 0, 0);
        assert_int_equal(level_of_start(&p.d, item), WEIR_SCHED_ABOVE);
        later(&p.d, cases[i].span_us);
        finished(&p.d, item);
        assert_in_range(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 7, WAVE) / 1000,
                        cases[i].known_us - 10, cases[i].known_us + 10);
        desk_finish(&p.d);
        weir_predict_destroy(predict);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_away_goes_above_at_once),
        cmocka_unit_test(it_pays_what_it_takes),
        cmocka_unit_test(several_that_end_together_pay_once),
        cmocka_unit_test(no_more_goes_above_than_it_was_away_for),
        cmocka_unit_test(all_who_go_first_go_above),
        cmocka_unit_test(its_duration_is_corrected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

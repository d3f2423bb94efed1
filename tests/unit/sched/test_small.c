/*
 * Work that needs a part of the device only: it passes beside the leader, within a budget, in the
 * order of its shares, and pays for what it occupies (sched/small.c, sched/charge.c).
 */
#include "sched/private.h"
#include "tests/unit/sched/wave_desk.h"

#define BUDGET 80u

static void open_desk(struct desk *d, uint32_t budget)
{
    struct weir_sched_config config;

    weir_sched_config_init(&config, SMS);
    config.small_sms = budget;
    desk_init_with(d, &config);
}

/* A graph that needs so many SMs. */
static weir_sched_id graph(struct desk *d, weir_sched_id queue_id, uint32_t sms, uint64_t us)
{
    struct weir_sched_item_params params = {.class = WEIR_SCHED_GRAPH,
                                            .key = sms,
                                            .predicted_ns = us * 1000,
                                            .blocks = sms,
                                            .blocks_per_sm = 1};

    return bring(d, queue_id, &params);
}

static uint64_t service_us(const struct desk *d, weir_sched_id tenant_id)
{
    struct weir_sched_tenant_info info;

    weir_sched_tick(d->sched, d->now_ns); /* charges what has passed */
    assert_int_equal(weir_sched_tenant_query(d->sched, tenant_id, &info), WEIR_OK);
    return info.service_ns[WEIR_SCHED_COMPUTE] / 1000;
}

static void small_work_passes_beside_the_leader_and_pays_what_it_occupies(void **state)
{
    struct desk d;
    weir_sched_id large, small, large_queue, small_queue, leads, beside;

    (void)state;
    open_desk(&d, BUDGET);
    large_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &large);
    small_queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &small);
    leads = wave(&d, large_queue, 1000);
    later(&d, 100);
    beside = graph(&d, small_queue, 32, 400);
    assert_int_equal(how(&d, leads), 0);
    assert_int_equal(how(&d, beside), 0); /* at once, and not below the leader's */
    later(&d, 400);
    finished(&d, beside);
    assert_int_equal(service_us(&d, small), 32 * 400);
    assert_int_equal(service_us(&d, large), SMS * 100 + (SMS - 32) * 400);
    finished(&d, leads);
    desk_finish(&d);
}

static void without_a_budget_small_work_takes_turns(void **state)
{
    struct desk d;
    weir_sched_id large, small, large_queue, small_queue, beside;

    (void)state;
    open_desk(&d, 0);
    large_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &large);
    small_queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &small);
    (void)wave(&d, large_queue, 1000);
    later(&d, 100);
    beside = graph(&d, small_queue, 32, 400);
    assert_int_equal(how(&d, beside), -1);
    desk_finish(&d);
}

static void what_needs_more_than_half_of_the_device_is_not_small(void **state)
{
    static const struct {
        uint32_t sms;
        int how;
    } cases[] = {{1, 0}, {SMS / 2, 0}, {SMS / 2 + 1, -1}, {SMS, -1}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct desk d;
        weir_sched_id large, other, large_queue, other_queue, beside;

        open_desk(&d, SMS);
        large_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &large);
        other_queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &other);
        (void)wave(&d, large_queue, 1000);
        beside = graph(&d, other_queue, cases[i].sms, 100);
        assert_int_equal(how(&d, beside), cases[i].how);
        desk_finish(&d);
    }
}

/* What is free of the budget goes to who is furthest behind. */
static void the_budget_goes_by_shares(void **state)
{
    weir_sched_id leader, light, heavy, other, leader_queue, light_queue, heavy_queue, other_queue;
    weir_sched_id first, of_light, of_heavy;
    struct desk d;

    (void)state;
    open_desk(&d, BUDGET);
    leader_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &leader);
    other_queue = queue_of_weight(&d, 10, WEIR_PRIORITY_NORMAL, &other);
    light_queue = queue_of_weight(&d, 10, WEIR_PRIORITY_NORMAL, &light);
    heavy_queue = queue_of_weight(&d, 20, WEIR_PRIORITY_NORMAL, &heavy);
    (void)wave(&d, leader_queue, 100000);
    for (int i = 0; i < 4; i++) { /* both get as much done, so the light one is ahead */
        weir_sched_id a = graph(&d, light_queue, 20, 10), b = graph(&d, heavy_queue, 20, 10);

        later(&d, 10);
        assert_int_equal(how(&d, a), 0);
        assert_int_equal(how(&d, b), 0);
        finished(&d, a);
        finished(&d, b);
    }
    first = graph(&d, other_queue, 60, 50);
    assert_int_equal(how(&d, first), 0);
    of_light = graph(&d, light_queue, 40, 50);
    of_heavy = graph(&d, heavy_queue, 40, 50);
    assert_int_equal(how(&d, of_light), -1); /* 60 and 40 are more than the budget */
    assert_int_equal(how(&d, of_heavy), -1);
    later(&d, 50);
    d.count = 0;
    finished(&d, first);
    assert_int_equal(how(&d, of_heavy), 0); /* now there is room for both: the one behind first */
    assert_int_equal(how(&d, of_light), 0);
    assert_int_equal(d.order[0].item, of_heavy);
    desk_finish(&d);
}

/* By more than a slice: its next item waits until the others have caught up. */
static void who_is_far_ahead_of_its_share_waits(void **state)
{
    weir_sched_id leader, greedy, leader_queue, greedy_queue, item = 0;
    struct desk d;
    int passed = 0;

    (void)state;
    open_desk(&d, BUDGET);
    leader_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &leader);
    greedy_queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &greedy);
    (void)wave(&d, leader_queue, 100000);
    for (bool waits = false; !waits && passed < 200; passed += !waits) {
        d.count = 0; /* the log has its end */
        item = graph(&d, greedy_queue, SMS / 2, 1000);
        waits = how(&d, item) != 0;
        later(&d, waits ? 0 : 1000);
        if (!waits) {
            finished(&d, item);
        }
    }
    assert_in_range(passed, 1, 100);
    desk_finish(&d);
}

/* A program that waits for each of its graphs, and then is away for a moment. */
struct service {
    weir_sched_id queue, item; /* 0: it is away */
    uint32_t began, back, done;
    bool runs;
};

#define STEP_US   100u
#define RUN_STEPS 9u
#define AWAY      3u /* steps: longer than a position is kept without a bound */

static bool is_granted(const struct desk *d, weir_sched_id item)
{
    struct weir_sched_item_info info;

    assert_int_equal(weir_sched_item_query(d->sched, item, &info), WEIR_OK);
    return info.state == WEIR_SCHED_GRANTED;
}

static void service_step(struct desk *d, struct service *s, uint32_t step)
{
    if (s->item == 0 && step >= s->back) {
        s->item = graph(d, s->queue, 10, RUN_STEPS * STEP_US);
        s->runs = false;
    }
    if (s->item != 0 && !s->runs && is_granted(d, s->item)) {
        s->runs = true;
        s->began = step;
    }
    if (s->item != 0 && s->runs && step - s->began == RUN_STEPS) {
        finished(d, s->item);
        s->item = 0;
        s->back = step + AWAY;
        s->done++;
    }
}

/* They could all run all the time; who has three times the weight does three times as much. */
static void weights_hold_for_who_is_away_between_graphs(void **state)
{
    struct service services[8] = {{0}};
    uint32_t light = 0, heavy = 0;
    struct desk d;

    (void)state;
    open_desk(&d, 3 * SMS);
    for (uint32_t i = 0; i < 8; i++) {
        weir_sched_id tenant;

        services[i].queue =
            queue_of_weight(&d, i % 2 == 0 ? 10 : 30, WEIR_PRIORITY_NORMAL, &tenant);
        services[i].back = i;
    }
    for (uint32_t step = 0; step < 3000; step++) {
        d.count = 0; /* its log has room for a few orders */
        for (uint32_t i = 0; i < 8; i++) {
            service_step(&d, &services[i], step);
        }
        later(&d, STEP_US);
    }
    for (uint32_t i = 0; i < 8; i++) {
        *(i % 2 == 0 ? &light : &heavy) += services[i].done;
    }
    assert_in_range(heavy * 10 / light, 26, 34);
    desk_finish(&d);
}

/* A large kernel that was granted as a filler goes behind small work. Its tenant leads before it is
 * done: that turn is for the next kernel, and had been over before that was granted. */
static void a_filler_of_the_leader_uses_up_none_of_its_turn(void **state)
{
    weir_sched_id first, second, small, first_queue, second_queue, leads, fills, next;
    struct weir_sched_config config;
    struct desk d;

    (void)state;
    weir_sched_config_init(&config, SMS);
    config.small_sms = BUDGET;
    config.fill = WEIR_SCHED_FILL_ALL;
    desk_init_with(&d, &config);
    first_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &first);
    second_queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &second);
    leads = wave(&d, first_queue, 3000);
    fills = wave(&d, second_queue, 400);
    assert_int_equal(how(&d, fills), 1);
    (void)graph(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &small), 32, 60000);
    later(&d, 100);
    next = wave(&d, second_queue, 400);
    finished(&d, leads);
    assert_true(d.sched->turn.leader != NULL && d.sched->turn.leader->view.id == second);
    later(&d, 350);
    weir_sched_tick(d.sched, d.now_ns);
    assert_true(d.sched->turn.leader != NULL && d.sched->turn.leader->view.id == second);
    assert_int_equal(d.sched->turn.used_ns, 0);
    finished(&d, fills);
    assert_int_equal(how(&d, next), 0);
    later(&d, 200);
    weir_sched_tick(d.sched, d.now_ns);
    assert_int_equal(d.sched->turn.used_ns, 200000); /* as ever */
    desk_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_work_passes_beside_the_leader_and_pays_what_it_occupies),
        cmocka_unit_test(without_a_budget_small_work_takes_turns),
        cmocka_unit_test(what_needs_more_than_half_of_the_device_is_not_small),
        cmocka_unit_test(the_budget_goes_by_shares),
        cmocka_unit_test(who_is_far_ahead_of_its_share_waits),
        cmocka_unit_test(weights_hold_for_who_is_away_between_graphs),
        cmocka_unit_test(a_filler_of_the_leader_uses_up_none_of_its_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

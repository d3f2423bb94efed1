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

/* A leader whose graph needs a part of the device keeps all of it from who waits. */
static void small_work_pays_for_what_it_keeps_from_others(void **state)
{
    struct desk d;
    weir_sched_id small, large, small_queue, large_queue, leads, waits;
    weir_sched_id decodes;

    (void)state;
    open_desk(&d, BUDGET);
    small_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &small);
    large_queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &large);
    decodes = graph(&d, small_queue, 11, 6000);
    later(&d, 100);
    assert_int_equal(service_us(&d, small), 11 * 100); /* nobody wants the rest */
    leads = wave(&d, large_queue, 50);
    later(&d, 50);
    waits = wave(&d, large_queue, 1000);
    assert_int_equal(how(&d, leads), -1);
    assert_int_equal(how(&d, waits), -1);
    later(&d, 50);
    assert_int_equal(service_us(&d, small), 11 * 100 + SMS * 100);
    assert_int_equal(service_us(&d, large), 0);
    finished(&d, decodes);
    desk_finish(&d);
}

/* Two that share the device share what it costs, whatever they need of it. */
static void small_work_in_company_pays_for_the_whole_device(void **state)
{
    struct desk d;
    weir_sched_id a, b, queue_a, queue_b, first, second;

    (void)state;
    open_desk(&d, BUDGET);
    queue_a = queue_of(&d, WEIR_PRIORITY_NORMAL, &a);
    queue_b = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
    first = graph(&d, queue_a, 11, 1000);
    second = graph(&d, queue_b, 33, 1000);
    assert_int_equal(how(&d, first), 0);
    assert_int_equal(how(&d, second), 0);
    later(&d, 400);
    assert_int_equal(service_us(&d, a), SMS * 400 / 4);
    assert_int_equal(service_us(&d, b), SMS * 400 * 3 / 4);
    finished(&d, first);
    later(&d, 100);
    assert_int_equal(service_us(&d, b), SMS * 400 * 3 / 4 + 33 * 100); /* alone: what it needs */
    finished(&d, second);
    desk_finish(&d);
}

/* The first was alone for 400 us of what it takes alone, 1,000; the other 600 took 900 in company,
 * which is half as long again. So 900 us of the device are worth 1,200 there, 600 for each. Of the
 * second nobody knows what it takes alone, or how little it does. Where neither was alone nothing
 * is known, and each pays for half of the time. */
static void two_pay_for_what_they_get_done_together(void **state)
{
    static const struct {
        uint64_t known_us, alone_us, costs_us; /* of the second's 900 */
    } cases[] = {{1500, 400, 600}, {0, 400, 600}, {1500, 0, 450}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct desk d;
        weir_sched_id a, b, queue_a, queue_b, first, second;
        uint64_t a_us = 32 * cases[i].alone_us + SMS * cases[i].costs_us;

        open_desk(&d, BUDGET);
        queue_a = queue_of(&d, WEIR_PRIORITY_NORMAL, &a);
        queue_b = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
        first = graph(&d, queue_a, 32, 1000);
        later(&d, cases[i].alone_us);
        second = graph(&d, queue_b, 32, cases[i].known_us);
        later(&d, 900);
        finished(&d, first);
        finished(&d, second);
        assert_in_range(service_us(&d, a), a_us - 1, a_us + 1);
        assert_in_range(service_us(&d, b), SMS * cases[i].costs_us - 1,
                        SMS * cases[i].costs_us + 1);
        desk_finish(&d);
    }
}

/* A kernel beside a graph costs what it takes alone, and both together what the device has. But a
 * kernel that takes much longer than is known pays for half of that itself. */
static void a_kernel_and_a_graph_beside_it_pay_for_the_device(void **state)
{
    static const struct {
        uint64_t took_us, costs; /* the latter in SM-microseconds */
    } cases[] = {
        {1000, SMS * 1000}, /* it had all SMs after all */
        {1300, SMS * 1000},
        {1600, SMS * 1000},
        {4000, (SMS - 32) * 4000 / 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct desk d;
        weir_sched_id large, small, large_queue, small_queue, leads, beside;
        uint64_t large_us = cases[i].costs + (SMS - 32) * 3000;
        uint64_t small_us = SMS * (cases[i].took_us + 3000) - large_us;

        open_desk(&d, BUDGET);
        large_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &large);
        small_queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &small);
        leads = wave(&d, large_queue, 1000);
        beside = graph(&d, small_queue, 32, 9000);
        later(&d, cases[i].took_us);
        finished(&d, leads);
        (void)wave(&d, large_queue, 10000); /* credits are used up, and what is owed is paid */
        later(&d, 3000);
        assert_in_range(service_us(&d, large), large_us - 1, large_us + 1);
        assert_in_range(service_us(&d, small), small_us - 1, small_us + 1);
        finished(&d, beside);
        desk_finish(&d);
    }
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

/* A tenant was served more than its share, was away, and comes back beside one of a thousand times
 * its weight. It waits because of that, but for 250 ms at most. */
static void debts_are_waited_for_no_longer_than_that(void **state)
{
    weir_sched_id leader, greedy, leader_queue, greedy_queue, item = 0;
    struct desk d;

    (void)state;
    open_desk(&d, BUDGET);
    leader_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &leader);
    greedy_queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &greedy);
    (void)wave(&d, leader_queue, 1000000);
    item = graph(&d, greedy_queue, SMS / 2, 8000);
    later(&d, 8000);
    finished(&d, item);
    later(&d, 3000); /* its place is not kept so long */
    item = graph(&d, greedy_queue, SMS / 2, 1000);
    later(&d, 240000);
    assert_int_equal(how(&d, item), -1);
    later(&d, 20000);
    assert_int_equal(how(&d, item), 0);
    desk_finish(&d);
}

/* A tenant was served more than its share, and then nobody had work for a while: the others did not
 * want the time that it owes. It makes no difference that another one begins before it. */
static void debts_end_when_nobody_has_work(void **state)
{
    static const struct {
        uint64_t idle_us;
        int how;
    } cases[] = {{1500, -1}, {2500, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_sched_id leader, greedy, leader_queue, greedy_queue, item, leads;
        struct desk d;

        open_desk(&d, BUDGET);
        leader_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &leader);
        greedy_queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &greedy);
        leads = wave(&d, leader_queue, 1000000);
        item = graph(&d, greedy_queue, SMS / 2, 30000);
        later(&d, 30000);
        finished(&d, item);
        finished(&d, leads);
        later(&d, cases[i].idle_us);
        leads = wave(&d, leader_queue, 1000);
        later(&d, 1000);
        finished(&d, leads);
        later(&d, 50);
        (void)wave(&d, leader_queue, 1000000);
        item = graph(&d, greedy_queue, SMS / 2, 1000);
        assert_int_equal(how(&d, item), cases[i].how);
        desk_finish(&d);
    }
}

/* Ahead by more than a slice, though by little: it waits while others use the device well, and not
 * while they leave much of it. */
static void who_is_little_ahead_waits_while_the_device_is_used(void **state)
{
    static const struct {
        uint32_t others_sms; /* of a budget of 3 * SMS */
        int how;
    } cases[] = {{1, 0}, {SMS, 0}, {2 * SMS, -1}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_sched_id leader, light, other, leader_queue, light_queue, item;
        struct desk d;

        open_desk(&d, 3 * SMS);
        leader_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &leader);
        light_queue = queue_of_weight(&d, LEADS / 10, WEIR_PRIORITY_NORMAL, &light);
        (void)wave(&d, leader_queue, 100000);
        item = graph(&d, light_queue, SMS / 2, 600);
        assert_int_equal(how(&d, item), 0);
        later(&d, 600); /* 0.3 ms; a slice is 0.2, and 4 ms of the leader's are 0.4 of its */
        finished(&d, item);
        other = tenant(&d, WEIR_PRIORITY_NORMAL, 100);
        for (uint32_t sms = 0; sms < cases[i].others_sms; sms += SMS / 2) {
            item = graph(&d, queue(&d, other), SMS / 2, 10);
            assert_int_equal(how(&d, item), 0);
        }
        item = graph(&d, light_queue, SMS / 2, 1000);
        assert_int_equal(how(&d, item), cases[i].how);
        desk_finish(&d);
    }
}

/* Two that wait for each of their graphs, 3:1, and end at the same time. The light one is back
 * first and ahead of its share: it waits for the heavy one, unless that stays away. */
static void nobody_slips_in_between_two_graphs(void **state)
{
    (void)state;
    for (int stays_away = 0; stays_away < 2; stays_away++) {
        weir_sched_id tenant, heavy_queue, light_queue, heavy, light;
        struct desk d;

        open_desk(&d, 3 * SMS);
        heavy_queue = queue_of_weight(&d, 300, WEIR_PRIORITY_NORMAL, &tenant);
        light_queue = queue_of_weight(&d, 100, WEIR_PRIORITY_NORMAL, &tenant);
        for (int i = 0; i < 3; i++) { /* its pauses are known to be short */
            finished(&d, graph(&d, heavy_queue, 16, 8000));
            later(&d, 100);
        }
        light = graph(&d, light_queue, 16, 8000);
        heavy = graph(&d, heavy_queue, 16, 8000);
        later(&d, 8000);
        finished(&d, light);
        later(&d, 40);
        finished(&d, heavy);
        later(&d, 50);
        light = graph(&d, light_queue, 16, 8000);
        later(&d, stays_away ? 1100 : 50);
        assert_int_equal(how(&d, light), stays_away ? 0 : -1);
        heavy = graph(&d, heavy_queue, 16, 8000);
        assert_int_equal(how(&d, heavy), 0);
        assert_int_equal(how(&d, light), stays_away ? 0 : -1);
        desk_finish(&d);
    }
}

/* A program that waits for each of its graphs, and then is away for a moment. */
struct service {
    weir_sched_id queue, item; /* 0: it is away */
    uint32_t left;             /* of the graph, in parts of a step */
    uint32_t away, back, done;
};

#define STEP_US   100u
#define STEP      840u
#define RUN_STEPS 9u
#define AWAY      3u /* steps: longer than a position is kept without a bound */
#define AT_ONCE   2u /* graphs that the device runs without slowing them down */

static bool is_granted(const struct desk *d, weir_sched_id item)
{
    struct weir_sched_item_info info;

    assert_int_equal(weir_sched_item_query(d->sched, item, &info), WEIR_OK);
    return info.state == WEIR_SCHED_GRANTED;
}

/* What each graph on the device gets done in a step. */
static uint32_t speed(const struct desk *d, const struct service *services, uint32_t count)
{
    uint32_t running = 0;

    for (uint32_t i = 0; i < count; i++) {
        running += services[i].item != 0 && is_granted(d, services[i].item);
    }
    return running > AT_ONCE ? STEP * AT_ONCE / running : STEP;
}

static void service_step(struct desk *d, struct service *s, uint32_t step, uint32_t got_done)
{
    if (s->item == 0 && step >= s->back) {
        s->item = graph(d, s->queue, 66, RUN_STEPS * STEP_US);
        s->left = RUN_STEPS * STEP;
    } else if (s->item != 0 && is_granted(d, s->item)) {
        s->left -= s->left < got_done ? s->left : got_done;
    }
    if (s->item != 0 && s->left == 0) {
        finished(d, s->item);
        s->item = 0;
        s->back = step + s->away;
        s->done++;
    }
}

/* Each could always run, the slower the more of them do; who has three times the weight does three
 * times as much. */
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
        services[i].away = AWAY + i / 2;
    }
    for (uint32_t step = 0; step < 3000; step++) {
        uint32_t got_done = speed(&d, services, 8);

        d.count = 0; /* its log has room for a few orders */
        for (uint32_t i = 0; i < 8; i++) {
            service_step(&d, &services[i], step, got_done);
        }
        later(&d, STEP_US);
    }
    for (uint32_t i = 0; i < 8; i++) {
        *(i % 2 == 0 ? &light : &heavy) += services[i].done;
    }
    assert_in_range(heavy * 10 / light, 24, 34);
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
    assert_true(d.sched->turn.leader && d.sched->turn.leader->view.id == second);
    later(&d, 350);
    weir_sched_tick(d.sched, d.now_ns);
    assert_true(d.sched->turn.leader && d.sched->turn.leader->view.id == second);
    assert_int_equal(d.sched->turn.used_ns, 0);
    finished(&d, fills);
    assert_int_equal(how(&d, next), 0);
    later(&d, 200);
    weir_sched_tick(d.sched, d.now_ns);
    assert_int_equal(d.sched->turn.used_ns, 200000); /* as ever */
    desk_finish(&d);
}

/* ---- levels */

static void open_leveled(struct desk *d, uint32_t above, uint32_t budget)
{
    struct weir_sched_config config;

    weir_sched_config_init(&config, SMS);
    config.small_sms = budget;
    config.above = above;
    desk_init_with(d, &config);
}

static weir_sched_id graph_with(struct desk *d, weir_sched_id queue_id, uint64_t key, uint32_t sms,
                                uint32_t flags)
{
    struct weir_sched_item_params params = {.class = WEIR_SCHED_GRAPH,
                                            .flags = flags,
                                            .key = key,
                                            .predicted_ns = 500000,
                                            .blocks = sms,
                                            .blocks_per_sm = 1};

    return bring(d, queue_id, &params);
}

static weir_sched_id told_tenant; /* the others are at their shares */
static int64_t told_lag_ns;

static int64_t tell_lag(const struct weir_policy *policy, const struct weir_policy_tenant *tenant)
{
    (void)policy;
    return tenant->id == told_tenant ? told_lag_ns : 0;
}

static void the_level_of_a_small_item_follows_from_its_lag_and_its_company(void **state)
{
    static const struct {
        const char *what;
        uint32_t above, flags;
        enum weir_priority priority;
        uint32_t budget;
        uint32_t weight; /* of the other; its own is 1 */
        bool large;      /* another's kernel that may fill the device is there; else a graph */
        int64_t lag_us;
        enum weir_sched_level level;
    } cases[] = {
        {"large, ahead by less", 1, 0, WEIR_PRIORITY_NORMAL, 64, LEADS, true, -990,
         WEIR_SCHED_ABOVE},
        {"large, ahead", 1, 0, WEIR_PRIORITY_NORMAL, 64, LEADS, true, -1010, WEIR_SCHED_PLAIN},
        {"small, behind by less", 1, 0, WEIR_PRIORITY_NORMAL, 64, LEADS, false, 990,
         WEIR_SCHED_PLAIN},
        {"small, behind", 1, 0, WEIR_PRIORITY_NORMAL, 64, LEADS, false, 1010, WEIR_SCHED_ABOVE},
        {"small, behind an equal", 1, 0, WEIR_PRIORITY_NORMAL, 64, 1, false, 1010,
         WEIR_SCHED_PLAIN},
        {"small, behind, few", 1, 0, WEIR_PRIORITY_NORMAL, 66, LEADS, false, 1010,
         WEIR_SCHED_PLAIN},
        {"no such level", 0, 0, WEIR_PRIORITY_NORMAL, 64, LEADS, true, 5000, WEIR_SCHED_PLAIN},
        {"high class", 1, 0, WEIR_PRIORITY_HIGH, 64, LEADS, true, 5000, WEIR_SCHED_PLAIN},
        {"own levels", 1, WEIR_SCHED_OWN_LEVELS, WEIR_PRIORITY_NORMAL, 64, LEADS, true, 5000,
         WEIR_SCHED_PLAIN},
    };
    struct weir_policy_ops ops = *weir_policy_find("fair");

    (void)state;
    ops.lag_ns = tell_lag;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_sched_id first, small, first_queue, small_queue, item;
        struct desk d;

        open_leveled(&d, cases[i].above, cases[i].budget);
        assert_int_equal(weir_sched_policy_set(d.sched, d.now_ns, &ops), WEIR_OK);
        first_queue = queue_of_weight(&d, cases[i].weight, cases[i].priority, &first);
        small_queue = queue_of(&d, cases[i].priority, &small);
        (void)(cases[i].large ? wave(&d, first_queue, 1000)
                              : graph_with(&d, first_queue, 1, 32, 0));
        told_tenant = small;
        told_lag_ns = cases[i].lag_us * 1000;
        item = graph_with(&d, small_queue, 2, 16, cases[i].flags);
        if (level_of_start(&d, item) != (int)cases[i].level) {
            fail_msg("%s: %d", cases[i].what, level_of_start(&d, item));
        }
        desk_finish(&d);
    }
}

/* What is above beside a large kernel leaves it half of the SMs. */
static void what_goes_above_leaves_half_of_the_device_to_large_kernels(void **state)
{
    weir_sched_id large, small, large_queue, item[3];
    struct weir_policy_ops ops = *weir_policy_find("fair");
    struct desk d;

    (void)state;
    ops.lag_ns = tell_lag;
    told_tenant = 0;
    open_leveled(&d, 1, 3 * SMS);
    assert_int_equal(weir_sched_policy_set(d.sched, d.now_ns, &ops), WEIR_OK);
    large_queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &large);
    (void)wave(&d, large_queue, 1000);
    for (int i = 0; i < 3; i++) {
        item[i] = graph_with(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &small), 1, SMS / 4, 0);
    }
    assert_int_equal(level_of_start(&d, item[0]), WEIR_SCHED_ABOVE);
    assert_int_equal(level_of_start(&d, item[1]), WEIR_SCHED_ABOVE);
    assert_int_equal(level_of_start(&d, item[2]), WEIR_SCHED_PLAIN);
    desk_finish(&d);
}

/* Of small items only those of tenants that are behind go above, so equals are all plain. */
static void among_small_ones_an_item_goes_above_whose_tenant_is_behind(void **state)
{
    weir_sched_id heavy, light, heavy_queue, light_queue, item, other;
    struct desk d;
    int above = 0;

    (void)state;
    open_leveled(&d, 1, 32);
    heavy_queue = queue_of_weight(&d, 300, WEIR_PRIORITY_NORMAL, &heavy);
    light_queue = queue_of_weight(&d, 100, WEIR_PRIORITY_NORMAL, &light);
    for (int i = 0; i < 20; i++) { /* both get as much done, so the heavy one falls behind */
        d.count = 0;
        other = graph_with(&d, light_queue, 1, 16, 0);
        item = graph_with(&d, heavy_queue, 2, 16, 0);
        if (i == 0) {
            assert_int_equal(level_of_start(&d, other), WEIR_SCHED_PLAIN);
            assert_int_equal(level_of_start(&d, item), WEIR_SCHED_PLAIN);
        }
        assert_int_not_equal(level_of_start(&d, other), WEIR_SCHED_ABOVE);
        above += level_of_start(&d, item) == WEIR_SCHED_ABOVE;
        later(&d, 500);
        finished(&d, item);
        if (state_of(&d, other) == WEIR_SCHED_GRANTED) {
            finished(&d, other);
        } else {
            assert_int_equal(weir_sched_withdraw(d.sched, d.now_ns, other), WEIR_OK);
        }
    }
    assert_in_range(above, 1, 19);
    desk_finish(&d);
}

/* An item above counts as several plain ones, and as so many in the end that an item costs the
 * same at both levels. The device here gives those above twice as much. */
static void an_item_costs_the_same_at_both_levels(void **state)
{
    weir_sched_id a, b, queue_a, queue_b;
    uint64_t before_us, done[2] = {0, 0}, left[2] = {0, 0};
    weir_sched_id item[2] = {0, 0};
    struct desk d;

    (void)state;
    open_leveled(&d, 1, 32);
    queue_a = queue_of_weight(&d, 150, WEIR_PRIORITY_NORMAL, &a);
    queue_b = queue_of_weight(&d, 100, WEIR_PRIORITY_NORMAL, &b);
    for (int step = 0; step < 20000; step++) {
        int level[2] = {-1, -1};

        for (int i = 0; i < 2; i++) {
            if (item[i] == 0) {
                item[i] = graph_with(&d, i == 0 ? queue_a : queue_b, 7 + (uint64_t)i, 16, 0);
                left[i] = 60;
            }
        }
        for (int i = 0; i < 2; i++) {
            struct item *of = table_get(&d.sched->items, item[i]);

            level[i] =
                state_of(&d, item[i]) != WEIR_SCHED_GRANTED ? -1 : of->level == WEIR_SCHED_ABOVE;
        }
        d.count = 0;
        later(&d, 50);
        for (int i = 0; i < 2; i++) {
            uint64_t speed = level[1 - i] < 0           ? 6
                             : level[i] > level[1 - i]  ? 4
                             : level[i] == level[1 - i] ? 3
                                                        : 2;

            speed = level[i] < 0 ? 0 : speed;
            left[i] -= speed < left[i] ? speed : left[i];
            if (left[i] == 0) {
                finished(&d, item[i]);
                item[i] = 0;
                done[i]++;
            }
        }
    }
    before_us = service_us(&d, a) + service_us(&d, b);
    assert_in_range(before_us / SMS, 990000, 1010000); /* the device's time, all of it */
    assert_in_range((uint64_t)(d.sched->small.above_counts * 100), 150, 250);
    assert_in_range(done[0] * 100 / (done[0] + done[1]), 58, 62); /* 150 to 100 */
    desk_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_work_passes_beside_the_leader_and_pays_what_it_occupies),
        cmocka_unit_test(small_work_pays_for_what_it_keeps_from_others),
        cmocka_unit_test(small_work_in_company_pays_for_the_whole_device),
        cmocka_unit_test(two_pay_for_what_they_get_done_together),
        cmocka_unit_test(a_kernel_and_a_graph_beside_it_pay_for_the_device),
        cmocka_unit_test(without_a_budget_small_work_takes_turns),
        cmocka_unit_test(what_needs_more_than_half_of_the_device_is_not_small),
        cmocka_unit_test(the_budget_goes_by_shares),
        cmocka_unit_test(who_is_far_ahead_of_its_share_waits),
        cmocka_unit_test(debts_are_waited_for_no_longer_than_that),
        cmocka_unit_test(debts_end_when_nobody_has_work),
        cmocka_unit_test(who_is_little_ahead_waits_while_the_device_is_used),
        cmocka_unit_test(nobody_slips_in_between_two_graphs),
        cmocka_unit_test(weights_hold_for_who_is_away_between_graphs),
        cmocka_unit_test(a_filler_of_the_leader_uses_up_none_of_its_turn),
        cmocka_unit_test(the_level_of_a_small_item_follows_from_its_lag_and_its_company),
        cmocka_unit_test(what_goes_above_leaves_half_of_the_device_to_large_kernels),
        cmocka_unit_test(among_small_ones_an_item_goes_above_whose_tenant_is_behind),
        cmocka_unit_test(an_item_costs_the_same_at_both_levels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

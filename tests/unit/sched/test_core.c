/*
 * The core's entries one by one, with an environment that writes down what it was told: order and
 * bounds, ids of things gone, stops that fail, places, the way past the scheduler.
 */
#include "sched/policy.h"
#include "sched/predict.h"
#include "tests/unit/sched/desk.h"

/* ---- tests ---- */

static void create_refuses_what_cannot_work(void **state)
{
    struct weir_sched *sched;
    struct weir_sched_config config;
    struct weir_sched_env env = {.start = on_start, .timer = on_timer};

    (void)state;
    weir_sched_config_init(&config, 0);
    assert_int_equal(weir_sched_create(&config, &env, &sched), WEIR_ERR_INVALID);
    weir_sched_config_init(&config, SMS);
    config.starve_ns = 0;
    assert_int_equal(weir_sched_create(&config, &env, &sched), WEIR_ERR_INVALID);
    weir_sched_config_init(&config, SMS);
    env.start = NULL;
    assert_int_equal(weir_sched_create(&config, &env, &sched), WEIR_ERR_INVALID);
    env.start = on_start;
    env.stop = on_stop; /* and nothing to resume it with */
    assert_int_equal(weir_sched_create(&config, &env, &sched), WEIR_ERR_INVALID);
    env.stop = NULL;
    assert_int_equal(weir_sched_create(&config, &env, &sched), WEIR_OK);
    weir_sched_destroy(sched);
    weir_sched_destroy(NULL);
}

static void params_out_of_range_are_refused(void **state)
{
    struct desk b;
    struct weir_sched_tenant_params good = {.weight = 1, .sm_limit = 100};
    struct weir_sched_tenant_params bad[7];
    struct weir_sched_item_params item = {.class = WEIR_SCHED_CLASS_COUNT};
    weir_sched_id id;
    weir_sched_id queue_id;

    (void)state;
    desk_init(&b);
    for (int i = 0; i < 7; i++) {
        bad[i] = good;
    }
    bad[0].weight = 0;
    bad[1].weight = WEIR_SCHED_WEIGHT_MAX + 1;
    bad[2].sm_limit = 0;
    bad[3].sm_limit = 101;
    bad[4].priority = WEIR_PRIORITY_COUNT;
    bad[5].priority = (enum weir_priority) - 1;
    bad[6].span = WEIR_SCHED_SPAN_WAITS + 1;
    assert_int_equal(weir_sched_tenant_add(b.sched, 0, &good, &id), WEIR_OK);
    for (int i = 0; i < 7; i++) {
        weir_sched_id none;

        assert_int_equal(weir_sched_tenant_add(b.sched, 0, &bad[i], &none), WEIR_ERR_INVALID);
        assert_int_equal(weir_sched_tenant_set(b.sched, 0, id, &bad[i]), WEIR_ERR_INVALID);
    }
    queue_id = queue(&b, id);
    assert_int_equal(weir_sched_arrive(b.sched, 0, queue_id, &item, &id), WEIR_ERR_INVALID);
    item = (struct weir_sched_item_params){.flags = 1u << 31};
    assert_int_equal(weir_sched_arrive(b.sched, 0, queue_id, &item, &id), WEIR_ERR_INVALID);
    desk_finish(&b);
}

static void ids_of_what_is_gone_are_refused(void **state)
{
    struct desk b;
    weir_sched_id t;
    weir_sched_id q;
    weir_sched_id i;
    weir_sched_id out;
    struct weir_sched_item_params params = {0};
    struct weir_sched_tenant_params tenant_params = {.weight = 1, .sm_limit = 100};
    struct weir_sched_tenant_info info;

    (void)state;
    desk_init(&b);
    t = tenant(&b, WEIR_PRIORITY_NORMAL, 100);
    q = queue(&b, t);
    i = kernel(&b, q, 10, 0);
    finished(&b, i);
    assert_int_equal(weir_sched_finished(b.sched, 0, i, 0), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_stopped(b.sched, 0, i, 0), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_running(b.sched, 0, i, true), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_withdraw(b.sched, 0, i), WEIR_ERR_STALE);
    assert_int_not_equal(kernel(&b, q, 10, 0), i); /* its place is taken, its id is not */
    assert_int_equal(weir_sched_finished(b.sched, 0, i, 0), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_tenant_remove(b.sched, 0, t), WEIR_OK);
    assert_int_equal(weir_sched_arrive(b.sched, 0, q, &params, &out), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_queue_add(b.sched, t, 100, 0, &out), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_queue_remove(b.sched, 0, q), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_tenant_set(b.sched, 0, t, &tenant_params), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_tenant_remove(b.sched, 0, t), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_tenant_query(b.sched, t, &info), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_finished(b.sched, 0, 0, 0), WEIR_ERR_STALE);
    assert_int_equal(weir_sched_finished(b.sched, 0, UINT64_MAX, 0), WEIR_ERR_STALE);
    desk_finish(&b);
}

static void alone_everything_is_granted_up_to_the_bound(void **state)
{
    struct desk b;
    weir_sched_id q;
    weir_sched_id item[8];
    struct weir_sched_counts counts;

    (void)state;
    desk_init(&b);
    q = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    for (int i = 0; i < 8; i++) {
        item[i] = kernel(&b, q, 500, 0);
    }
    assert_int_equal(b.count, 4); /* 2 ms */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(b.order[i].item, item[i]);
    }
    later(&b, 499); /* the first has come far: there is room for a fifth */
    assert_int_equal(b.count, 5);
    assert_int_equal(weir_sched_finished(b.sched, b.now_ns, item[6], 0), WEIR_ERR_INVALID);
    finished(&b, item[0]);
    assert_int_equal(b.count, 5);
    for (int i = 1; i < 4; i++) {
        finished(&b, item[i]);
    }
    assert_int_equal(b.count, 8);
    for (int i = 4; i < 8; i++) {
        finished(&b, item[i]);
    }
    weir_sched_count(b.sched, &counts);
    assert_int_equal(counts.finishes, 8);
    assert_int_equal(counts.decisions, 0); /* nobody was asked */
    desk_finish(&b);
}

/* Who was there a moment ago is back soon, and would wait for all that was granted meanwhile. */
static void right_after_company_less_is_granted_alone(void **state)
{
    struct desk b;
    weir_sched_id alone, other, first;

    (void)state;
    desk_init(&b);
    alone = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    other = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    first = kernel(&b, alone, 50, 0);
    other = kernel(&b, other, 50, 0);
    later(&b, 50);
    finished(&b, first);
    later(&b, 50);
    finished(&b, other);
    b.count = 0;
    for (int i = 0; i < 100; i++) {
        (void)kernel(&b, alone, 50, 0);
    }
    assert_int_equal(b.count, 4); /* as much as who fills may have: 200 us */
    later(&b, 2000);
    for (int i = 0; i < 4; i++) {
        finished(&b, b.order[i].item);
    }
    assert_int_equal(b.count, 44); /* for long nobody came: 2 ms */
    desk_finish(&b);
}

/* A leader that waits for each of its kernels is back after a moment: others wait as long, if that
 * is little of what its kernels take. Else they have what they can have meanwhile. */
static void leader_that_is_back_soon_keeps_its_place(void **state)
{
    static const struct {
        uint64_t away_us;
        bool is_kept;
    } cases[] = {{20, true}, {150, true}, {600, false}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct desk b;
        weir_sched_id heavy, light, item, waits = 0;

        desk_init(&b);
        heavy = queue(&b, tenant_of_weight(&b, 1000, WEIR_PRIORITY_NORMAL, 100));
        light = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
        for (int k = 0; k < 4; k++) { /* how long it is away is seen */
            item = kernel(&b, heavy, 6450, 0);
            if (waits == 0) {
                waits = kernel(&b, light, 6450, 0);
            }
            later(&b, 6450);
            if (state_of(&b, waits) == WEIR_SCHED_GRANTED) {
                finished(&b, waits);
                waits = 0;
                later(&b, 6450);
            }
            finished(&b, item);
            later(&b, cases[i].away_us);
        }
        assert_int_equal(waits != 0 && state_of(&b, waits) == WEIR_SCHED_WAITING, cases[i].is_kept);
        later(&b, 1000); /* it does not come: nobody waits for ever */
        assert_true(waits == 0 || state_of(&b, waits) == WEIR_SCHED_GRANTED);
        desk_finish(&b);
    }
}

static void contended_queue_has_little_in_flight(void **state)
{
    struct desk b;
    weir_sched_id old;
    weir_sched_id young;
    weir_sched_id first;

    (void)state;
    desk_init(&b);
    old = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    young = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    first = kernel(&b, old, 5000, 0);
    kernel(&b, old, 5000, 0);
    assert_int_equal(b.count, 1); /* the bound is reached by one */
    for (int i = 0; i < 8; i++) {
        kernel(&b, young, 30, 0);
    }
    assert_int_equal(b.count, 1 + 4); /* at once: 100 us of 30 each; they take what becomes free */
    later(&b, 5000);
    finished(&b, first);
    assert_int_equal(b.count, 1 + 4); /* the old one's second is not its turn yet */
    desk_finish(&b);
}

/* It may end sooner than predicted: then the next is to be there. */
static void behind_a_long_kernel_the_next_is_granted_sooner(void **state)
{
    struct desk b;
    weir_sched_id q0;
    weir_sched_id q1;
    weir_sched_id old;
    weir_sched_id second;

    (void)state;
    desk_init(&b);
    q0 = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    q1 = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    old = kernel(&b, q0, 1600, BOTH);
    kernel(&b, q1, 1600, BOTH);
    assert_int_equal(weir_sched_stopped(b.sched, b.now_ns, old, 0), WEIR_OK);
    second = kernel(&b, q1, 200, BOTH);
    later(&b, 1290);
    assert_int_equal(state_of(&b, second), WEIR_SCHED_WAITING);
    later(&b, 20); /* an eighth of the first, and inflight_ns: 300 before its end */
    assert_int_equal(state_of(&b, second), WEIR_SCHED_GRANTED);
    desk_finish(&b);
}

static void switch_stops_and_resumes_with_what_was_done(void **state)
{
    struct desk b;
    weir_sched_id q0;
    weir_sched_id q1;
    weir_sched_id a;
    weir_sched_id c;
    struct weir_sched_item_info info;

    (void)state;
    desk_init(&b);
    q0 = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    q1 = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    a = kernel(&b, q0, 50000, BOTH);
    later(&b, 100);
    c = kernel(&b, q1, 300, 0);
    assert_int_equal(b.count, 3);
    assert_int_equal(b.order[1].what, STOP); /* first room, then who takes it */
    assert_int_equal(b.order[1].item, a);
    assert_int_equal(b.order[2].what, START);
    assert_int_equal(b.order[2].item, c);
    assert_int_equal(state_of(&b, a), WEIR_SCHED_STOPPING);
    later(&b, 16);
    assert_int_equal(weir_sched_stopped(b.sched, b.now_ns, a, 123), WEIR_OK);
    assert_int_equal(weir_sched_stopped(b.sched, b.now_ns, a, 123), WEIR_ERR_INVALID);
    assert_int_equal(state_of(&b, a), WEIR_SCHED_STOPPED);
    later(&b, 300);
    finished(&b, c);
    assert_int_equal(b.count, 4);
    assert_int_equal(b.order[3].what, RESUME);
    assert_int_equal(b.order[3].item, a);
    assert_int_equal(weir_sched_item_query(b.sched, a, &info), WEIR_OK);
    assert_int_equal(info.done_blocks, 123);
    assert_in_range(info.rest_ns, 49380000, 49390000); /* 9877 of 10000 blocks */
    finished(&b, a);
    desk_finish(&b);
}

/* Who waits must gain more than the stop takes (25 us) and a launch to go on (12 us). */
static void what_ends_soon_is_not_stopped(void **state)
{
    static const struct {
        uint64_t rest_us;
        bool stops;
    } cases[] = {{20, false}, {35, false}, {40, true}, {900, true}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct desk b;
        weir_sched_id long_queue, item;

        desk_init(&b);
        long_queue = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
        item = kernel(&b, long_queue, 1000, BOTH);
        later(&b, 1000 - cases[i].rest_us);
        (void)kernel(&b, queue(&b, tenant(&b, WEIR_PRIORITY_HIGH, 100)), 100, 0);
        assert_int_equal(state_of(&b, item),
                         cases[i].stops ? WEIR_SCHED_STOPPING : WEIR_SCHED_GRANTED);
        desk_finish(&b);
    }
}

static void stop_that_fails_is_not_tried_at_once_again(void **state)
{
    struct desk b;
    weir_sched_id q0;
    weir_sched_id a;
    uint32_t stops = 0;

    (void)state;
    desk_init(&b);
    q0 = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    a = kernel(&b, q0, 500000, BOTH);
    kernel(&b, queue(&b, tenant(&b, WEIR_PRIORITY_HIGH, 100)), 400000, 0);
    assert_int_equal(b.order[1].what, STOP);
    assert_int_equal(weir_sched_running(b.sched, b.now_ns, a, true), WEIR_OK);
    later(&b, 500);
    assert_int_equal(b.count, 3);
    later(&b, 600);
    assert_int_equal(b.count, 4); /* after a millisecond */
    assert_int_equal(b.order[3].what, STOP);
    assert_int_equal(weir_sched_running(b.sched, b.now_ns, a, false), WEIR_OK);
    later(&b, 100000);
    for (uint32_t i = 0; i < b.count; i++) {
        stops += b.order[i].what == STOP;
    }
    assert_int_equal(stops, 2); /* never again */
    desk_finish(&b);
}

static void withdrawn_in_any_state_it_is_forgotten(void **state)
{
    struct desk b;
    weir_sched_id t[3];
    weir_sched_id q[3];
    weir_sched_id running;
    weir_sched_id waiting;
    weir_sched_id stopping;

    (void)state;
    desk_init(&b);
    for (int i = 0; i < 3; i++) {
        t[i] = tenant(&b, WEIR_PRIORITY_NORMAL, 100);
        q[i] = queue(&b, t[i]);
    }
    stopping = kernel(&b, q[0], 50000, BOTH);
    running = kernel(&b, q[1], 100, 0);
    waiting = kernel(&b, q[1], 100, 0);
    assert_int_equal(state_of(&b, stopping), WEIR_SCHED_STOPPING);
    assert_int_equal(weir_sched_withdraw(b.sched, b.now_ns, waiting), WEIR_OK);
    assert_int_equal(weir_sched_withdraw(b.sched, b.now_ns, stopping), WEIR_OK);
    assert_int_equal(weir_sched_stopped(b.sched, b.now_ns, stopping, 1), WEIR_ERR_STALE);
    assert_null(tl_sched_check(b.sched));
    assert_int_equal(weir_sched_withdraw(b.sched, b.now_ns, running), WEIR_OK);
    stopping = kernel(&b, q[0], 50000, BOTH);
    kernel(&b, q[2], 1000, BOTH);
    assert_int_equal(weir_sched_stopped(b.sched, b.now_ns, stopping, 5), WEIR_OK);
    assert_int_equal(weir_sched_tenant_remove(b.sched, b.now_ns, t[0]), WEIR_OK); /* stopped */
    assert_int_equal(state_of(&b, stopping), WEIR_SCHED_GONE);
    assert_int_equal(weir_sched_queue_remove(b.sched, b.now_ns, q[2]), WEIR_OK);
    later(&b, 10000);
    desk_finish(&b);
}

static void limit_of_sms_places_movable_work(void **state)
{
    struct desk b;
    weir_sched_id t;
    weir_sched_id q;
    struct weir_sched_tenant_params params = {
        .weight = 1, .sm_limit = 50, .priority = WEIR_PRIORITY_NORMAL};
    struct weir_sched_tenant_info info;

    (void)state;
    desk_init(&b);
    t = tenant(&b, WEIR_PRIORITY_NORMAL, 25);
    q = queue(&b, t);
    kernel(&b, q, 1000, BOTH);
    assert_int_equal(b.order[0].place.sm_count, SMS / 4);
    later(&b, 100);
    assert_int_equal(weir_sched_tenant_set(b.sched, b.now_ns, t, &params), WEIR_OK);
    assert_int_equal(b.order[1].what, RESIZE);
    assert_int_equal(b.order[1].place.sm_count, SMS / 2);
    later(&b, 100);
    weir_sched_tick(b.sched, b.now_ns);
    assert_int_equal(weir_sched_tenant_query(b.sched, t, &info), WEIR_OK);
    assert_int_equal(info.service_ns[0], 100000ull * (SMS / 4) + 100000ull * (SMS / 2));
    assert_int_equal(weir_sched_queue_service(b.sched, q), info.service_ns[0]);
    assert_int_equal(weir_sched_queue_service(b.sched, q + 1), 0);
    assert_int_equal(info.waits[0], 1); /* it was granted at once */
    desk_finish(&b);
}

/* A context that has a share has all of it, whatever place it is given: it is not squeezed in. */
static void context_with_a_share_needs_room_for_it(void **state)
{
    struct desk b;
    uint32_t starts = 0;

    (void)state;
    desk_init(&b);
    for (int i = 0; i < 6; i++) {
        kernel(&b, queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 20)), 1000, WEIR_SCHED_MOVABLE);
    }
    for (uint32_t i = 0; i < b.count; i++) {
        if (b.order[i].what == START) {
            assert_int_equal(b.order[i].place.sm_count, SMS / 5);
            starts++;
        }
    }
    assert_int_equal(starts, 5);
    desk_finish(&b);
}

/* What cannot be moved waits for a turn of its own, and gets it. */
static void who_cannot_be_moved_any_more_leaves_the_group(void **state)
{
    struct desk b;
    weir_sched_id high, beside, item, next;

    (void)state;
    desk_init(&b);
    high = queue(&b, tenant(&b, WEIR_PRIORITY_HIGH, 50));
    beside = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    kernel(&b, high, 100000000, BOTH);
    item = kernel(&b, beside, 100, BOTH);
    assert_int_equal(state_of(&b, item), WEIR_SCHED_GRANTED);
    next = kernel(&b, beside, 100, 0);
    finished(&b, item);
    later(&b, 5000000);
    assert_int_equal(state_of(&b, next), WEIR_SCHED_GRANTED);
    desk_finish(&b);
}

/*
 * A task's last kernel, with its copy behind: the next tenant's first is there before it ends. Not
 * so where more kernels may come, nor while there is long to go.
 */
static void who_is_next_is_granted_before_a_task_s_last_kernel_ends(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        struct desk b;
        weir_sched_id q[3];
        weir_sched_id first;
        weir_sched_id last;
        weir_sched_id next;

        desk_init(&b);
        for (int i = 0; i < 3; i++) {
            q[i] = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
        }
        first = kernel(&b, q[0], 100, 0);
        last = kernel(&b, q[1], 500, 0);
        if (copies != 0) {
            work(&b, q[1], WEIR_SCHED_D2H, 2000, 0);
        }
        next = kernel(&b, q[2], 300, 0);
        later(&b, 100);
        finished(&b, first);
        assert_int_equal(state_of(&b, last), WEIR_SCHED_GRANTED);
        later(&b, 390);
        assert_int_equal(state_of(&b, next), WEIR_SCHED_WAITING);
        later(&b, 20); /* inflight_ns before its end */
        assert_int_equal(state_of(&b, next), copies != 0 ? WEIR_SCHED_GRANTED : WEIR_SCHED_WAITING);
        later(&b, 90);
        finished(&b, last);
        assert_int_equal(state_of(&b, next), WEIR_SCHED_GRANTED);
        desk_finish(&b);
    }
}

/*
 * Behind another's kernel it is not known when one began: that teaches nothing while nothing is
 * known, and later only what cannot be true.
 */
static void kernels_behind_anothers_teach_what_is_certain(void **state)
{
    struct desk b;
    struct weir_sched_config config;
    struct weir_sched_item_params unknown = {
        .class = WEIR_SCHED_KERNEL, .key = 7, .blocks = 10000, .blocks_per_sm = 8};
    weir_sched_id q[2];
    weir_sched_id other;
    weir_sched_id item;

    (void)state;
    weir_sched_config_init(&config, SMS);
    assert_int_equal(weir_predict_create(16, &config.predict), WEIR_OK);
    desk_init_with(&b, &config);
    q[0] = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    q[1] = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    for (int i = 0; i < 3; i++) { /* it ends 10 us after the other one, or has run beside it */
        other = kernel(&b, q[0], 3000, 0);
        later(&b, 100);
        item = bring(&b, q[1], &unknown);
        later(&b, 2900);
        finished(&b, other);
        later(&b, 10);
        assert_int_equal(predicted_us(&b, item), 0);
        assert_int_equal(state_of(&b, item), WEIR_SCHED_GRANTED);
        finished(&b, item);
    }
    item = bring(&b, q[1], &unknown);
    later(&b, 500); /* nobody else is there */
    finished(&b, item);
    item = bring(&b, q[1], &unknown);
    assert_int_equal(predicted_us(&b, item), 500);
    finished(&b, item);
    desk_finish(&b);
    weir_predict_destroy(config.predict);
}

/* A policy that leaves everybody alone. */
static void nobody_together(struct weir_policy *self, const struct weir_policy_together_view *view,
                            struct weir_policy_group *group)
{
    (void)self, (void)view, (void)group;
}

static const struct weir_policy_ops loner = {
    .name = "loner", .kind = WEIR_POLICY_TOGETHER, .together = nobody_together};

/*
 * Two of 3 ms, each of which had the device with another's of 5 ms. The first ended as if it had
 * been alone, so the other seemed to wait; the second was stopped besides, and was at work for
 * longer.
 */
static void what_was_beside_one_that_seemed_to_wait_is_doubted(void **state)
{
    struct weir_sched_config config;
    struct desk b;
    weir_sched_id q[2], other, next, run;

    (void)state;
    weir_sched_config_init(&config, SMS);
    assert_int_equal(weir_predict_create(16, &config.predict), WEIR_OK);
    for (int i = 0; i < 3; i++) {
        weir_predict_learn(config.predict, WEIR_SCHED_KERNEL, 3000, 10000, 3000000);
    }
    desk_init_with(&b, &config);
    assert_int_equal(weir_sched_policy_set(b.sched, b.now_ns, &loner), WEIR_OK);
    q[0] = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    q[1] = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    other = kernel(&b, q[0], 5000, 0);
    run = kernel(&b, q[1], 3000, WEIR_SCHED_STOPPABLE);
    later(&b, 3400);
    assert_int_equal(state_of(&b, run), WEIR_SCHED_GRANTED);
    finished(&b, run);
    run = kernel(&b, q[1], 3000, WEIR_SCHED_STOPPABLE);
    next = kernel(&b, q[0], 5000, 0);
    later(&b, 5300);
    finished(&b, other);
    later(&b, 1000);
    assert_int_equal(state_of(&b, run), WEIR_SCHED_STOPPING);
    assert_int_equal(weir_sched_stopped(b.sched, b.now_ns, run, 7000), WEIR_OK);
    assert_int_equal(state_of(&b, next), WEIR_SCHED_GRANTED);
    later(&b, 5000);
    finished(&b, next);
    assert_int_equal(state_of(&b, run), WEIR_SCHED_GRANTED);
    later(&b, 2000);
    finished(&b, run);
    assert_int_equal(weir_predict_ask(config.predict, WEIR_SCHED_KERNEL, 3000, 10000), 3000000);
    desk_finish(&b);
    weir_predict_destroy(config.predict);
}

/* Long copies are not taken for short ones, just because nobody has seen any yet. */
static void unknown_work_counts_by_its_bytes(void **state)
{
    struct weir_sched_config config;

    (void)state;
    weir_sched_config_init(&config, SMS);
    config.guess_ns = 20000;
    assert_int_equal(weir_sched_guess_ns(&config, WEIR_SCHED_KERNEL, 1000000000), 20000);
    assert_int_equal(weir_sched_guess_ns(&config, WEIR_SCHED_H2D, 4), 5000);
    assert_int_equal(weir_sched_guess_ns(&config, WEIR_SCHED_D2H, 400000000), 10005000);
    assert_int_equal(weir_sched_guess_ns(&config, WEIR_SCHED_MEMSET, 400000000), 405000);
}

static void items_of_a_queue_keep_their_order_over_classes(void **state)
{
    struct desk b;
    weir_sched_id q;
    weir_sched_id item[4];

    (void)state;
    desk_init(&b);
    q = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    kernel(&b, queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100)), 1000, 0); /* somebody else */
    item[0] = work(&b, q, WEIR_SCHED_H2D, 20000, 0);
    item[1] = kernel(&b, q, 50, 0);
    item[2] = work(&b, q, WEIR_SCHED_D2H, 50, 0);
    item[3] = work(&b, q, WEIR_SCHED_MEMSET, 5, 0);
    assert_int_equal(state_of(&b, item[0]), WEIR_SCHED_GRANTED);
    assert_int_equal(state_of(&b, item[1]),
                     WEIR_SCHED_WAITING); /* would have SMs, and not use them */
    finished(&b, item[0]);
    assert_int_equal(state_of(&b, item[1]), WEIR_SCHED_GRANTED);
    assert_int_equal(state_of(&b, item[2]), WEIR_SCHED_GRANTED);
    finished(&b, item[1]);
    finished(&b, item[2]);
    finished(&b, item[3]);
    desk_finish(&b);
}

static void alone_word_opens_after_quiet_and_closes_for_others(void **state)
{
    struct desk b;
    weir_sched_id t[2];
    weir_sched_id q[2];
    weir_sched_id known;
    weir_sched_id id;
    const struct weir_sched_shared *shared;
    struct weir_sched_item_params unseen = {.class = WEIR_SCHED_KERNEL,
                                            .flags = WEIR_SCHED_STARTED | BOTH,
                                            .predicted_ns = 300000,
                                            .blocks = 10};
    struct weir_sched_counts counts;

    (void)state;
    desk_init(&b);
    shared = weir_sched_shared(b.sched);
    for (int i = 0; i < 2; i++) {
        t[i] = tenant(&b, WEIR_PRIORITY_NORMAL, 100);
        q[i] = queue(&b, t[i]);
    }
    for (int i = 0; i < 2; i++) { /* it does not open unless it was allowed */
        finished(&b, kernel(&b, q[0], 10, 0));
        later(&b, 3000);
    }
    assert_int_equal(atomic_load(&shared->alone), 0);
    weir_sched_allow_alone(b.sched, true);
    known = kernel(&b, q[0], 10, 0);
    assert_int_equal(atomic_load(&shared->alone), t[0]);
    later(&b, 4000); /* it has had what its rest is worth */
    finished(&b, known);
    assert_int_equal(atomic_load(&shared->alone),
                     t[0]); /* also while it has nothing that we know */

    /* The other's gate: close, bring what passed, then its own. */
    assert_int_equal(weir_sched_close(b.sched), t[0]);
    assert_int_equal(weir_sched_close(b.sched), 0);
    assert_int_equal(weir_sched_arrive(b.sched, b.now_ns, q[0], &unseen, &id), WEIR_OK);
    b.count = 0;
    kernel(&b, q[1], 100, 0);
    assert_int_equal(b.order[0].what, STOP);
    assert_int_equal(b.order[0].item, id);
    assert_int_equal(b.order[1].what, START);
    assert_int_equal(b.count, 2); /* what passed was never started by us */
    assert_int_equal(atomic_load(&shared->alone), 0);
    unseen.flags = WEIR_SCHED_STARTED;
    kernel(&b, q[0], 10, 0); /* waits: nothing behind it can have been started */
    assert_int_equal(weir_sched_arrive(b.sched, b.now_ns, q[0], &unseen, &id), WEIR_ERR_INVALID);
    weir_sched_allow_alone(b.sched, false);
    weir_sched_count(b.sched, &counts);
    assert_int_equal(counts.items, 3);
    desk_finish(&b);
}

static void time_never_goes_back(void **state)
{
    struct desk b;
    weir_sched_id t;
    weir_sched_id i;
    struct weir_sched_tenant_info info;

    (void)state;
    desk_init(&b);
    t = tenant(&b, WEIR_PRIORITY_NORMAL, 100);
    i = kernel(&b, queue(&b, t), 10, 0);
    b.now_ns = 101000;
    weir_sched_tick(b.sched, b.now_ns);
    weir_sched_tick(b.sched, 5);
    b.now_ns = 7;
    finished(&b, i);
    assert_int_equal(weir_sched_tenant_query(b.sched, t, &info), WEIR_OK);
    assert_int_equal(info.service_ns[0], 100000ull * SMS);
    desk_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_refuses_what_cannot_work),
        cmocka_unit_test(params_out_of_range_are_refused),
        cmocka_unit_test(ids_of_what_is_gone_are_refused),
        cmocka_unit_test(alone_everything_is_granted_up_to_the_bound),
        cmocka_unit_test(right_after_company_less_is_granted_alone),
        cmocka_unit_test(leader_that_is_back_soon_keeps_its_place),
        cmocka_unit_test(contended_queue_has_little_in_flight),
        cmocka_unit_test(behind_a_long_kernel_the_next_is_granted_sooner),
        cmocka_unit_test(switch_stops_and_resumes_with_what_was_done),
        cmocka_unit_test(what_ends_soon_is_not_stopped),
        cmocka_unit_test(stop_that_fails_is_not_tried_at_once_again),
        cmocka_unit_test(withdrawn_in_any_state_it_is_forgotten),
        cmocka_unit_test(limit_of_sms_places_movable_work),
        cmocka_unit_test(context_with_a_share_needs_room_for_it),
        cmocka_unit_test(who_cannot_be_moved_any_more_leaves_the_group),
        cmocka_unit_test(who_is_next_is_granted_before_a_task_s_last_kernel_ends),
        cmocka_unit_test(kernels_behind_anothers_teach_what_is_certain),
        cmocka_unit_test(what_was_beside_one_that_seemed_to_wait_is_doubted),
        cmocka_unit_test(unknown_work_counts_by_its_bytes),
        cmocka_unit_test(items_of_a_queue_keep_their_order_over_classes),
        cmocka_unit_test(alone_word_opens_after_quiet_and_closes_for_others),
        cmocka_unit_test(time_never_goes_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

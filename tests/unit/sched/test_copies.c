/*
 * Copies: bounds of a direction, shares of it, whose end is waited for, and what copies teach that
 * always have company.
 */
#include "sched/policy.h"
#include "sched/predict.h"
#include "tests/unit/sched/desk.h"

static void copies_are_served_apart_and_each_direction_for_itself(void **state)
{
    struct desk b;
    weir_sched_id t[2];
    weir_sched_id q[2];
    weir_sched_id up[2];
    weir_sched_id down;
    struct weir_sched_tenant_info info;

    (void)state;
    desk_init(&b);
    for (int i = 0; i < 2; i++) {
        t[i] = tenant(&b, WEIR_PRIORITY_NORMAL, 100);
        q[i] = queue(&b, t[i]);
    }
    kernel(&b, queue(&b, t[0]), 1000, 0);
    up[0] = work(&b, q[0], WEIR_SCHED_H2D, 250, 0);
    up[1] = work(&b, q[1], WEIR_SCHED_H2D, 250, 0);
    down = work(&b, queue(&b, t[1]), WEIR_SCHED_D2H, 1000, 0);
    assert_int_equal(state_of(&b, up[0]), WEIR_SCHED_GRANTED);
    assert_int_equal(state_of(&b, up[1]),
                     WEIR_SCHED_WAITING); /* its turn is near the other's end */
    assert_int_equal(state_of(&b, down), WEIR_SCHED_GRANTED);
    later(&b, 100);
    assert_int_equal(state_of(&b, up[1]), WEIR_SCHED_WAITING);
    later(&b, 100);
    assert_int_equal(state_of(&b, up[1]), WEIR_SCHED_GRANTED);
    later(&b, 50);
    finished(&b, up[0]);
    later(&b, 750);
    weir_sched_tick(b.sched, b.now_ns);
    assert_int_equal(weir_sched_tenant_query(b.sched, t[0], &info), WEIR_OK);
    assert_int_equal(info.service_ns[WEIR_SCHED_COMPUTE], 1000000ull * SMS);
    assert_in_range(info.service_ns[WEIR_SCHED_TO_DEVICE], 200000, 250000);
    assert_int_equal(info.service_ns[WEIR_SCHED_FROM_DEVICE], 0);
    assert_int_equal(weir_sched_tenant_query(b.sched, t[1], &info), WEIR_OK);
    assert_int_equal(info.service_ns[WEIR_SCHED_COMPUTE], 0);
    assert_int_equal(info.service_ns[WEIR_SCHED_FROM_DEVICE], 1000000);
    desk_finish(&b);
}

static void the_end_of_a_long_copy_is_awaited_but_not_for_ever(void **state)
{
    struct desk b;
    weir_sched_id q[2];
    weir_sched_id up[3];

    (void)state;
    desk_init(&b);
    for (int i = 0; i < 2; i++) {
        q[i] = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    }
    up[0] = work(&b, q[0], WEIR_SCHED_H2D, 1000, 0);
    up[1] = work(&b, q[1], WEIR_SCHED_H2D, 1000, 0);
    later(&b, 890);
    assert_int_equal(b.count, 1);
    later(&b, 210); /* inflight_ns before its end who is next was told, once */
    assert_int_equal(b.count, 2);
    assert_int_equal(b.order[1].what, SOON);
    assert_int_equal(b.order[1].item, up[1]);
    assert_int_equal(state_of(&b, up[1]), WEIR_SCHED_WAITING);
    finished(&b, up[0]);
    assert_int_equal(state_of(&b, up[1]), WEIR_SCHED_GRANTED);
    up[2] = work(&b, q[0], WEIR_SCHED_H2D, 10, 0);
    later(&b, 1300);
    assert_int_equal(state_of(&b, up[2]), WEIR_SCHED_WAITING);
    later(&b, 100); /* a quarter more than was predicted, and inflight_ns: 1350 */
    assert_int_equal(state_of(&b, up[2]), WEIR_SCHED_GRANTED);
    desk_finish(&b);
}

/* Both would be under way together, and the short one's end be seen with the long one's. */
static void a_long_copy_waits_for_the_end_of_a_short_one(void **state)
{
    struct desk b;
    weir_sched_id q[4];
    weir_sched_id up[5];

    (void)state;
    desk_init(&b);
    for (int i = 0; i < 4; i++) {
        q[i] = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    }
    up[0] = work(&b, q[0], WEIR_SCHED_H2D, 60, 0);
    up[1] = work(&b, q[1], WEIR_SCHED_H2D, 50, 0);
    up[2] = work(&b, q[2], WEIR_SCHED_H2D, 1000, 0);
    assert_int_equal(state_of(&b, up[1]), WEIR_SCHED_GRANTED); /* both are short */
    assert_int_equal(state_of(&b, up[2]), WEIR_SCHED_WAITING);
    later(&b, 60);
    finished(&b, up[0]);
    later(&b, 50);
    assert_int_equal(state_of(&b, up[2]), WEIR_SCHED_WAITING);
    finished(&b, up[1]);
    assert_int_equal(state_of(&b, up[2]), WEIR_SCHED_GRANTED);
    up[3] = work(&b, q[3], WEIR_SCHED_H2D, 10, 0);
    assert_int_equal(state_of(&b, up[3]), WEIR_SCHED_WAITING);
    finished(&b, up[2]);
    assert_int_equal(state_of(&b, up[3]), WEIR_SCHED_GRANTED);
    up[4] = work(&b, q[0], WEIR_SCHED_H2D, 400, 0);
    later(&b, 100);
    assert_int_equal(state_of(&b, up[4]), WEIR_SCHED_WAITING);
    later(&b, 20); /* a quarter more than was predicted, and inflight_ns: 112 */
    assert_int_equal(state_of(&b, up[4]), WEIR_SCHED_GRANTED);
    desk_finish(&b);
}

/* Long copies of a higher class, one after the other: a lower one goes between two, at last. */
static void long_copies_do_not_keep_a_lower_class_for_ever(void **state)
{
    struct desk b;
    weir_sched_id q[3];
    weir_sched_id up[2];
    weir_sched_id low;
    struct weir_sched_counts counts;
    uint32_t copies = 0;

    (void)state;
    desk_init(&b);
    for (int i = 0; i < 3; i++) {
        q[i] = queue(&b, tenant(&b, i == 2 ? WEIR_PRIORITY_LOW : WEIR_PRIORITY_HIGH, 100));
    }
    up[0] = work(&b, q[0], WEIR_SCHED_H2D, 1000, 0);
    up[1] = work(&b, q[1], WEIR_SCHED_H2D, 1000, 0);
    low = work(&b, q[2], WEIR_SCHED_H2D, 1000, 0);
    for (; state_of(&b, low) == WEIR_SCHED_WAITING && copies < 2100; copies++) {
        assert_int_equal(state_of(&b, up[copies % 2]), WEIR_SCHED_GRANTED);
        b.count = 0;
        later(&b, 1000);
        finished(&b, up[copies % 2]);
        up[copies % 2] = work(&b, q[copies % 2], WEIR_SCHED_H2D, 1000, 0);
    }
    assert_in_range(copies, 2000, 2010); /* starve_ns */
    weir_sched_count(b.sched, &counts);
    assert_int_equal(counts.rescues, 1);
    desk_finish(&b);
}

#define COPIERS_MAX 4u

/* Tenants that have two copies waiting at any time, on a bus that takes one at a time. */
struct copiers {
    struct desk desk;
    enum weir_sched_class class;
    uint32_t count;
    weir_sched_id queue[COPIERS_MAX], item[COPIERS_MAX][2];
    uint32_t us[COPIERS_MAX], done[COPIERS_MAX];
};

static void copier_joins_with(struct copiers *c, uint32_t weight, uint32_t us)
{
    uint32_t i = c->count++;
    weir_sched_id id = tenant_of_weight(&c->desk, weight, WEIR_PRIORITY_NORMAL, 100);

    c->us[i] = us;
    c->queue[i] = queue(&c->desk, id);
    c->item[i][0] = work(&c->desk, c->queue[i], c->class, us, 0);
    c->item[i][1] = work(&c->desk, c->queue[i], c->class, us, 0);
}

static void copier_joins(struct copiers *c, uint32_t weight)
{
    copier_joins_with(c, weight, 1000);
}

static void copiers_init(struct copiers *c, enum weir_sched_class class)
{
    memset(c, 0, sizeof(*c));
    desk_init(&c->desk);
    c->class = class;
}

/* Whose copy is on the bus: the bus is never idle. */
static uint32_t copier_at_work(struct copiers *c)
{
    uint32_t i = 0;

    while (i < c->count && state_of(&c->desk, c->item[i][0]) != WEIR_SCHED_GRANTED) {
        i++;
    }
    assert_true(i < c->count);
    return i;
}

static void copiers_run(struct copiers *c, uint32_t ms)
{
    uint64_t until_ns = c->desk.now_ns + ms * UINT64_C(1000000);

    while (c->desk.now_ns < until_ns) {
        uint32_t i = copier_at_work(c);

        later(&c->desk, c->us[i]);
        c->desk.count = 0;
        finished(&c->desk, c->item[i][0]);
        c->item[i][0] = c->item[i][1];
        c->item[i][1] = work(&c->desk, c->queue[i], c->class, c->us[i], 0);
        c->done[i]++;
    }
}

static void both_directions_are_shared_by_weight(void **state)
{
    static const enum weir_sched_class classes[] = {WEIR_SCHED_H2D, WEIR_SCHED_D2H};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct copiers c;

        copiers_init(&c, classes[i]);
        copier_joins(&c, 10);
        copier_joins(&c, 1);
        copier_joins(&c, 5);
        copiers_run(&c, 320);
        assert_in_range(c.done[0], 198, 202);
        assert_in_range(c.done[1], 19, 21);
        assert_in_range(c.done[2], 98, 102);
        desk_finish(&c.desk);
    }
}

/* Neither what others had before it came, nor the time in which it was idle, is made up for. */
static void a_newcomer_has_its_share_from_now_on(void **state)
{
    struct copiers c;

    (void)state;
    copiers_init(&c, WEIR_SCHED_H2D);
    copier_joins(&c, 1);
    copiers_run(&c, 50);
    copier_joins(&c, 1);
    copiers_run(&c, 20);
    assert_in_range(c.done[0], 59, 61);
    assert_in_range(c.done[1], 9, 11);
    desk_finish(&c.desk);
}

/* Which keeps shares: short copies gain no more than what they may be ahead. */
static void the_shortest_of_those_whose_turn_it_is_goes_first(void **state)
{
    struct copiers c;
    uint32_t first;

    (void)state;
    copiers_init(&c, WEIR_SCHED_H2D);
    copier_joins_with(&c, 1, 1000);
    copier_joins_with(&c, 1, 2000);
    copier_joins_with(&c, 1, 400);
    copiers_run(&c, 2); /* two of the first were on their way before the others came */
    first = copier_at_work(&c);
    assert_int_equal(first, 2);
    copiers_run(&c, 300);
    assert_in_range(c.done[0], 96, 104);
    assert_in_range(c.done[1], 48, 52);
    assert_in_range(c.done[2], 242, 258);
    desk_finish(&c.desk);
}

/* A piece of 200 us of a copy, that has so many pieces more behind it. */
static weir_sched_id piece(struct desk *b, weir_sched_id queue_id, uint32_t behind)
{
    struct weir_sched_item_params params = {.class = WEIR_SCHED_H2D,
                                            .bytes = 10000000,
                                            .rest_bytes = behind * UINT64_C(10000000),
                                            .predicted_ns = 200000};

    return bring(b, queue_id, &params);
}

/* The first piece is on the bus: how many of all end before another copy is granted? */
static uint32_t pieces_before(struct desk *b, weir_sched_id queue_id, weir_sched_id first,
                              uint32_t pieces, weir_sched_id other)
{
    weir_sched_id now = first;
    uint32_t done = 0;

    while (done < pieces && state_of(b, other) == WEIR_SCHED_WAITING) {
        weir_sched_id next = done + 1 < pieces ? piece(b, queue_id, pieces - done - 2) : 0;

        b->count = 0;
        later(b, 200);
        finished(b, now);
        now = next;
        done++;
    }
    return done;
}

static void a_copy_in_pieces_has_the_direction_for_all_of_them(void **state)
{
    static const struct {
        enum weir_priority class;
        uint32_t us, pieces, done;
    } cases[] = {
        {WEIR_PRIORITY_NORMAL, 1900, 10, 10},   /* longer than what is left */
        {WEIR_PRIORITY_NORMAL, 1000, 10, 1},    /* shorter: it gains more than the other loses */
        {WEIR_PRIORITY_HIGH, 1900, 10, 1},      /* of a higher class */
        {WEIR_PRIORITY_NORMAL, 90000, 400, 25}, /* a slice of 5 ms is over */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct desk b;
        weir_sched_id q[3], before, first, other;

        desk_init(&b);
        for (int k = 0; k < 3; k++) {
            q[k] = queue(&b, tenant(&b, k == 2 ? cases[i].class : WEIR_PRIORITY_NORMAL, 100));
        }
        before = work(&b, q[0], WEIR_SCHED_H2D, 1000, 0);
        first = piece(&b, q[1], cases[i].pieces - 1);
        later(&b, 1000);
        finished(&b, before);
        other = work(&b, q[2], WEIR_SCHED_H2D, cases[i].us, 0);
        assert_int_equal(pieces_before(&b, q[1], first, cases[i].pieces, other), cases[i].done);
        desk_finish(&b);
    }
}

/* A tenant that waits for each of its copies and is soon back is waited for, while it is behind. */
static void a_copy_that_is_expected_soon_is_waited_for(void **state)
{
    struct desk b;
    weir_sched_id sync, other, copy, of_other;
    uint32_t done = 0;

    (void)state;
    desk_init(&b);
    sync = queue(&b, tenant_of_weight(&b, 10, WEIR_PRIORITY_NORMAL, 100));
    other = queue(&b, tenant_of_weight(&b, 1, WEIR_PRIORITY_NORMAL, 100));
    copy = work(&b, sync, WEIR_SCHED_H2D, 1000, 0);
    for (uint32_t i = 0; i < 2; i++) { /* so that its pauses are known */
        later(&b, 1000);
        finished(&b, copy);
        later(&b, 20);
        copy = work(&b, sync, WEIR_SCHED_H2D, 1000, 0);
    }
    of_other = work(&b, other, WEIR_SCHED_H2D, 1000, 0);
    for (bool waits = true; waits && done < 100; done += waits) {
        b.count = 0;
        later(&b, 1000);
        finished(&b, copy);
        later(&b, 20);
        waits = state_of(&b, of_other) == WEIR_SCHED_WAITING;
        copy = work(&b, sync, WEIR_SCHED_H2D, 1000, 0);
    }
    assert_in_range(done, 0, 1); /* a newcomer starts at once */
    for (uint32_t round = 0; round < 3; round++) {
        later(&b, 1000);
        finished(&b, of_other);
        of_other = work(&b, other, WEIR_SCHED_H2D, 1000, 0);
        for (done = 0; state_of(&b, of_other) == WEIR_SCHED_WAITING && done < 100; done++) {
            b.count = 0;
            later(&b, 1000);
            finished(&b, copy);
            later(&b, 20);
            copy = work(&b, sync, WEIR_SCHED_H2D, 1000, 0);
        }
        assert_in_range(done, 9, 10);
    }
    later(&b, 1000); /* and not for longer than it is usually away */
    finished(&b, of_other);
    of_other = work(&b, other, WEIR_SCHED_H2D, 1000, 0);
    later(&b, 1000);
    finished(&b, copy);
    later(&b, 45);
    assert_int_equal(state_of(&b, of_other), WEIR_SCHED_WAITING);
    later(&b, 10);
    assert_int_equal(state_of(&b, of_other), WEIR_SCHED_GRANTED);
    desk_finish(&b);
}

/* A copy of so many MB, of which nobody says how long it takes. */
static weir_sched_id unknown_copy(struct desk *b, weir_sched_id queue_id, uint64_t mb)
{
    struct weir_sched_item_params params = {.class = WEIR_SCHED_H2D, .bytes = mb * 1000000};

    return bring(b, queue_id, &params);
}

/*
 * A copy engine that gives 50 MB a millisecond to one copy at a time, and always has the next one
 * on the device (not behind long ones): none is ever alone in its direction from beginning to end.
 */
static void copies_that_always_have_company_are_learned_from(void **state)
{
    static const uint64_t mb[] = {10, 5, 11, 1, 8, 10};
    struct desk b;
    struct weir_sched_config config;
    weir_sched_id q[2];
    weir_sched_id on[2];

    (void)state;
    weir_sched_config_init(&config, SMS);
    config.inflight_ns = 50000000;
    assert_int_equal(weir_predict_create(16, &config.predict), WEIR_OK);
    desk_init_with(&b, &config);
    q[0] = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    q[1] = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    on[0] = unknown_copy(&b, q[0], mb[0]);
    for (uint32_t i = 0; i + 1 < sizeof(mb) / sizeof(mb[0]); i++) {
        on[(i + 1) % 2] = unknown_copy(&b, q[(i + 1) % 2], mb[i + 1]);
        assert_int_equal(state_of(&b, on[0]), WEIR_SCHED_GRANTED);
        assert_int_equal(state_of(&b, on[1]), WEIR_SCHED_GRANTED);
        later(&b, mb[i] * 20);
        finished(&b, on[i % 2]);
    }
    assert_in_range(predicted_us(&b, unknown_copy(&b, q[0], 300)), 5990, 6010);
    desk_finish(&b);
    weir_predict_destroy(config.predict);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_served_apart_and_each_direction_for_itself),
        cmocka_unit_test(the_end_of_a_long_copy_is_awaited_but_not_for_ever),
        cmocka_unit_test(a_long_copy_waits_for_the_end_of_a_short_one),
        cmocka_unit_test(long_copies_do_not_keep_a_lower_class_for_ever),
        cmocka_unit_test(both_directions_are_shared_by_weight),
        cmocka_unit_test(a_newcomer_has_its_share_from_now_on),
        cmocka_unit_test(the_shortest_of_those_whose_turn_it_is_goes_first),
        cmocka_unit_test(a_copy_in_pieces_has_the_direction_for_all_of_them),
        cmocka_unit_test(a_copy_that_is_expected_soon_is_waited_for),
        cmocka_unit_test(copies_that_always_have_company_are_learned_from),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

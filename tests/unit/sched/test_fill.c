/*
 * What a leader leaves of the device: who may have it, at what price, and what is charged when
 * kernels go in between or behind each other (sched/beside.c, sched/charge.c).
 */
#include "tests/unit/sched/wave_desk.h"

static uint64_t service_us(const struct desk *d, weir_sched_id tenant_id)
{
    struct weir_sched_tenant_info info;

    weir_sched_tick(d->sched, d->now_ns); /* charges what has passed */
    assert_int_equal(weir_sched_tenant_query(d->sched, tenant_id, &info), WEIR_OK);
    return info.service_ns[WEIR_SCHED_COMPUTE] / SMS / 1000;
}

static void lower_class_fills_and_pays_when_done(void **state)
{
    struct desk d;
    weir_sched_id high, low, high_queue, low_queue, leads, fills;

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
    high_queue = queue_of(&d, WEIR_PRIORITY_HIGH, &high);
    low_queue = queue_of(&d, WEIR_PRIORITY_LOW, &low);
    leads = wave(&d, high_queue, 1000);
    fills = wave(&d, low_queue, 300);
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
    desk_finish(&d);
}

/* At the lowest level an equal would wait for what lower classes have on the device. */
static void equals_do_not_fill_below_lower_classes(void **state)
{
    struct desk d;
    weir_sched_id high[2], low, queue[2], low_queue, below, fills, leads;

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
    queue[0] = queue_of_weight(&d, LEADS, WEIR_PRIORITY_HIGH, &high[0]);
    queue[1] = queue_of(&d, WEIR_PRIORITY_HIGH, &high[1]);
    low_queue = queue_of(&d, WEIR_PRIORITY_LOW, &low);
    below = wave(&d, low_queue, 2000);
    leads = wave(&d, queue[0], 3000);
    later(&d, 100);
    assert_int_equal(how(&d, leads), 0);
    assert_int_equal(how(&d, below), 0); /* it came first */
    fills = wave(&d, queue[1], 100);
    later(&d, 1500);
    assert_int_equal(how(&d, fills), -1);
    finished(&d, below);
    later(&d, 100);
    assert_int_equal(how(&d, fills), 1);
    below = wave(&d, low_queue, 100); /* nor does the other way round go well */
    later(&d, 100);
    assert_int_equal(how(&d, below), -1);
    finished(&d, fills);
    later(&d, 1100); /* who fills is chosen anew */
    assert_int_equal(how(&d, below), 1);
    desk_finish(&d);
}

/* It would wait for all of the long one, which its own turn stops. */
static void short_ones_do_not_fill_beside_what_can_be_stopped(void **state)
{
    static const struct {
        uint64_t leads_us, fills_us;
        uint32_t flags;
        int how;
    } cases[] = {{3000, 50, WEIR_SCHED_STOPPABLE, -1},
                 {3000, 50, 0, 1},
                 {3000, 400, WEIR_SCHED_STOPPABLE, 1},
                 {900, 50, WEIR_SCHED_STOPPABLE, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct desk d;
        weir_sched_id a, b;

        desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
        (void)wave_of(&d, queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a), cases[i].leads_us,
                      cases[i].flags);
        assert_int_equal(
            how(&d, wave(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &b), cases[i].fills_us)),
            cases[i].how);
        desk_finish(&d);
    }
}

static void nobody_fills_where_it_is_not_asked_for(void **state)
{
    struct desk d;
    weir_sched_id tenant, a, b;

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_NONE);
    a = wave(&d, queue_of(&d, WEIR_PRIORITY_HIGH, &tenant), 1000);
    b = wave(&d, queue_of(&d, WEIR_PRIORITY_LOW, &tenant), 100);
    later(&d, 300);
    assert_int_equal(how(&d, a), 0);
    assert_int_equal(how(&d, b), -1);
    desk_finish(&d);

    desk_init_filling(&d, WEIR_SCHED_FILL_NONE);
    a = wave(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &tenant), 1000);
    b = wave(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &tenant), 100);
    assert_int_equal(how(&d, a), 0);
    assert_int_equal(how(&d, b), 0); /* its turn, behind what runs */
    desk_finish(&d);
}

/* All of one class: blocks of up to half a millisecond may, longer ones may not. */
static void equals_fill_with_short_blocks(void **state)
{
    struct desk d;
    weir_sched_id tenant[3], leader, queue[3], item[3][8];
    uint32_t fillers[3] = {0};

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
    for (int i = 0; i < 3; i++) {
        queue[i] = queue_of(&d, WEIR_PRIORITY_NORMAL, &tenant[i]);
    }
    leader = wave(&d, queue[0], 3000);
    for (int k = 0; k < 8; k++) {
        item[1][k] = wave(&d, queue[1], 600);
        item[2][k] = wave(&d, queue[2], 80);
    }
    later(&d, 1500); /* the second leads, behind what runs; the third has what they leave */
    assert_int_equal(how(&d, leader), 0);
    for (int k = 0; k < 8; k++) {
        fillers[1] += how(&d, item[1][k]) == 1;
        fillers[2] += how(&d, item[2][k]) == 1;
    }
    assert_int_equal(fillers[1], 0);
    assert_true(fillers[2] > 0);
    desk_finish(&d);

    for (uint64_t us = 500; us <= 501; us++) { /* while another leads for long */
        desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
        queue[0] = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &tenant[0]);
        leader = wave(&d, queue[0], 3000);
        item[1][0] = wave(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &tenant[1]), us);
        later(&d, 1000);
        assert_int_equal(how(&d, leader), 0);
        assert_int_equal(how(&d, item[1][0]), us == 500 ? 1 : -1);
        desk_finish(&d);
    }
}

/*
 * Equals on two levels: each kernel costs what it takes alone, however long the other kept it
 * waiting, and however many were seen to be done at once.
 */
static void equals_pay_for_their_work_and_not_for_waiting(void **state)
{
    struct desk d;
    weir_sched_id a, b, queue, leads[3], fills[2];

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
    queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a);
    for (int i = 0; i < 3; i++) {
        leads[i] = wave(&d, queue, 100);
    }
    queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
    for (int i = 0; i < 2; i++) {
        fills[i] = wave(&d, queue, 40);
    }
    assert_int_equal(how(&d, leads[2]), 0);
    assert_int_equal(how(&d, fills[1]), 1);
    later(&d, 350);
    assert_int_equal(service_us(&d, a), 350); /* it holds the device, as far as can be seen */
    for (int i = 0; i < 3; i++) {
        finished(&d, leads[i]); /* 300 of 350 us; a credit of 50 */
    }
    later(&d, 70); /* nobody else is there: it holds the device, too */
    assert_int_equal(service_us(&d, b), 70);
    finished(&d, fills[0]);
    finished(&d, fills[1]); /* both in that time, but two that take 40 have cost 80 */
    fills[0] = wave(&d, queue, 50);
    later(&d, 50);
    finished(&d, fills[0]);
    assert_int_equal(service_us(&d, b), 130);
    desk_finish(&d);
}

static void a_credit_is_used_up(void **state)
{
    struct desk d;
    weir_sched_id a, b, queue, kernels[2], fills;

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
    queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a);
    kernels[0] = wave(&d, queue, 100);
    fills = wave(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &b), 40);
    later(&d, 160);
    finished(&d, fills);
    finished(&d, kernels[0]);
    assert_int_equal(service_us(&d, a), 160);
    kernels[1] = wave(&d, queue, 500); /* nobody beside it */
    later(&d, 100);
    assert_int_equal(service_us(&d, a), 200); /* 60 were paid before */
    later(&d, 500);
    finished(&d, kernels[1]); /* and it took longer: that is its own */
    assert_int_equal(service_us(&d, a), 700);
    desk_finish(&d);
}

/* Kernels that take a hundred times what is known of them are not paid back
 * what nobody else had. */
static void who_leads_is_not_paid_back_more_than_others_paid(void **state)
{
    struct desk d;
    weir_sched_id a, b, queue_a, queue_b, leads, next, fills;
    int filled = 0;

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
    queue_a = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a);
    queue_b = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
    leads = wave(&d, queue_a, 10);
    fills = wave(&d, queue_b, 40);
    for (int ms = 0; ms < 50; ms++) {
        later(&d, 1000);
        next = wave(&d, queue_a, 10);
        finished(&d, leads);
        leads = next;
        if (how(&d, fills) >= 0) {
            filled += how(&d, fills);
            finished(&d, fills);
            d.count = 0;
            fills = wave(&d, queue_b, 40);
        }
    }
    assert_in_range(filled, 2, 40);
    assert_in_range(service_us(&d, a), 50000 - filled * 40 - 5000, 50000);
    desk_finish(&d);
}

/* Who had no turn without fillers for long gets one before it fills again. */
static void who_fills_has_a_clean_turn_now_and_then(void **state)
{
    struct desk d;
    weir_sched_id a, b, queue_a, queue_b, leads, next, fills;
    int led = 0, filled = 0;

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
    queue_a = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a);
    queue_b = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
    leads = wave(&d, queue_a, 1000);
    fills = wave(&d, queue_b, 1);
    for (int ms = 0; ms < 2000 && led == 0; ms++) {
        later(&d, 1000);
        next = wave(&d, queue_a, 1000);
        finished(&d, leads);
        leads = next;
        filled += how(&d, fills) == 1;
        led += how(&d, fills) == 0;
        if (how(&d, fills) >= 0) {
            finished(&d, fills);
            d.count = 0;
            fills = wave(&d, queue_b, 1);
        }
    }
    assert_in_range(filled, 100, 500);
    assert_int_equal(led, 1);
    desk_finish(&d);
}

struct loop {
    weir_sched_id queue, item[3]; /* in order */
    int left_us;                  /* of the first */
};

/* Its kernels of 0.4 ms, one after the other. Does one fill now? */
static bool step(struct desk *d, struct loop *loop, int us)
{
    if (how(d, loop->item[0]) >= 0 && (loop->left_us -= us) <= 0) {
        finished(d, loop->item[0]);
        loop->item[0] = loop->item[1];
        loop->item[1] = loop->item[2];
        loop->item[2] = wave(d, loop->queue, 400);
        loop->left_us = 400;
    }
    return how(d, loop->item[0]) == 1;
}

/* Tenants that slow each other down take turns; now and then they try again to fill. */
static void who_ruins_each_other_does_not_fill(void **state)
{
    (void)state;
    for (int slower = 3; slower <= 6; slower += 3) { /* times two: 1.33 or 0.67 of alone, both */
        struct loop loops[2] = {{.left_us = 400}, {.left_us = 400}};
        int shared_ms[4] = {0};
        weir_sched_id tenant;
        struct desk d;
        bool filled = false;

        desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
        for (int i = 0; i < 2; i++) {
            loops[i].queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &tenant);
            for (int k = 0; k < 3; k++) {
                loops[i].item[k] = wave(&d, loops[i].queue, 400);
            }
        }
        for (int t = 0; t < 40000; t++) {
            int us = filled ? 200 / slower : 100;

            later(&d, 100);
            filled = step(&d, &loops[0], us);
            filled = step(&d, &loops[1], us) || filled;
            shared_ms[t / 10000] += filled;
            if (d.count > 100) { /* room for what comes; the last starts are looked at */
                memmove(d.order, d.order + d.count - 20, 20 * sizeof(d.order[0]));
                d.count = 20;
            }
        }
        for (int i = 0; i < 4; i++) {
            shared_ms[i] /= 10;
        }
        if (slower == 3) {
            for (int i = 0; i < 4; i++) {
                assert_in_range(shared_ms[i], 900, 1000);
            }
        } else {
            assert_in_range(shared_ms[0], 50, 150);
            assert_int_equal(shared_ms[1], 0);
            assert_in_range(shared_ms[2] + shared_ms[3], 50, 150);
        }
        desk_finish(&d);
    }
}

/* Of whom something came that is not known well: nobody shares with it for 50 ms. Nor does it
 * fill itself. */
static void equals_share_what_they_are_sure_of(void **state)
{
    struct desk d;
    weir_sched_id a, b, queue_a, queue_b, leads, fills;

    (void)state;
    for (int unsure = 0; unsure < 2; unsure++) { /* the leader's, the filler's */
        uint64_t us = unsure == 1 ? 400 : 50;

        desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
        queue_a = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a);
        queue_b = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
        leads = wave_of(&d, queue_a, 60000, unsure == 0 ? WEIR_SCHED_UNSURE : 0);
        fills = wave_of(&d, queue_b, us, unsure == 1 ? WEIR_SCHED_UNSURE : 0);
        later(&d, 49000);
        assert_int_equal(how(&d, fills), -1);
        later(&d, 2000);
        assert_int_equal(how(&d, fills), unsure == 0 ? 1 : -1);
        finished(&d, leads);
        desk_finish(&d);
    }
}

/* A short kernel that is still to be learned keeps its tenant from filling for sixteen times as
 * long as it takes; so where all are to be learned nobody fills, and where few are, others do. */
static void what_is_short_and_unsure_bars_for_a_moment(void **state)
{
    static const struct {
        uint64_t us;
        uint32_t count;
        int how[2]; /* after 0.6 and 2 ms */
    } cases[] = {{40, 1, {-1, 1}}, {40, 100, {-1, -1}}, {60, 1, {-1, -1}}};
    struct desk d;
    weir_sched_id a, b, queue_a, queue_b, fills;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
        queue_a = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a);
        queue_b = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
        for (int k = 0; k < 4; k++) {
            (void)wave(&d, queue_a, 60000);
        }
        fills = wave_of(&d, queue_b, cases[i].us, WEIR_SCHED_UNSURE);
        for (uint32_t k = 1; k < cases[i].count; k++) {
            (void)wave_of(&d, queue_b, cases[i].us, WEIR_SCHED_UNSURE);
        }
        later(&d, 600);
        assert_int_equal(how(&d, fills), cases[i].how[0]);
        later(&d, 1400);
        assert_int_equal(how(&d, fills), cases[i].how[1]);
        desk_finish(&d);
    }
}

/* A kernel that came long ago leads now. It is alone, and nobody fills while it runs, though
 * another leads: else what it takes would never be known. */
static void what_is_to_be_learned_has_no_company(void **state)
{
    struct desk d;
    weir_sched_id a, b, c, queue_a, queue_b, queue_c, leads, fills, learned;

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
    queue_a = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a);
    queue_b = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
    queue_c = queue_of(&d, WEIR_PRIORITY_NORMAL, &c);
    leads = wave(&d, queue_a, 150000);
    learned = wave_of(&d, queue_b, 300, WEIR_SCHED_UNSURE);
    later(&d, 100000);
    fills = wave(&d, queue_c, 50);
    assert_int_equal(how(&d, fills), 1);
    finished(&d, leads);
    assert_int_equal(how(&d, learned), -1); /* c's is to be done first */
    finished(&d, fills);
    assert_int_equal(how(&d, learned), 0);
    leads = wave(&d, queue_a, 10000);
    fills = wave(&d, queue_c, 50);
    later(&d, 2000); /* its turn is over, it seems */
    assert_int_equal(how(&d, leads) + how(&d, fills), -1 + 0);
    finished(&d, learned);
    later(&d, 2000);
    assert_int_equal(how(&d, leads) + how(&d, fills), 0 + 1);
    desk_finish(&d);
}

static void who_is_served_waits_for_room_and_others_for_a_turn(void **state)
{
    struct desk d;
    weir_sched_id a, b, c, queue_a, queue_b, leads[6], fills[8], other;

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
    queue_a = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a);
    queue_b = queue_of_weight(&d, 2, WEIR_PRIORITY_NORMAL, &b);
    leads[0] = wave(&d, queue_a, 60);
    for (int i = 0; i < 8; i++) { /* twice as much as its bound */
        fills[i] = wave(&d, queue_b, 50);
    }
    other = wave(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &c), 50);
    for (int i = 1; i < 6; i++) {
        leads[i] = wave(&d, queue_a, 60);
    }
    assert_int_equal(how(&d, leads[1]), 0);
    assert_int_equal(how(&d, leads[2]), -1); /* 120 us in flight, of 100 */
    assert_true(weir_sched_waits_for_room(d.sched, leads[2]));
    assert_false(weir_sched_waits_for_room(d.sched, leads[1])); /* it does not wait */
    assert_false(weir_sched_waits_for_room(d.sched, leads[3])); /* it waits for that one */
    assert_int_equal(how(&d, fills[3]), 1);
    assert_int_equal(how(&d, fills[4]), -1); /* 200 of 200 */
    assert_true(weir_sched_waits_for_room(d.sched, fills[4]));
    assert_int_equal(how(&d, other), -1);
    assert_false(weir_sched_waits_for_room(d.sched, other));
    assert_false(weir_sched_waits_for_room(d.sched, 12345));
    desk_finish(&d);

    desk_init_filling(&d, WEIR_SCHED_FILL_ALL); /* what may not fill waits for its turn */
    (void)wave(&d, queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a), 3000);
    queue_b = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
    for (int i = 0; i < 4; i++) {
        fills[i] = wave(&d, queue_b, 50);
    }
    other = wave(&d, queue_b, 600);
    assert_int_equal(how(&d, fills[3]), 1);
    assert_int_equal(how(&d, other), -1);
    assert_false(weir_sched_waits_for_room(d.sched, other));
    desk_finish(&d);

    desk_init_filling(&d, WEIR_SCHED_FILL_NONE);
    queue_a = queue_of(&d, WEIR_PRIORITY_NORMAL, &a);
    leads[0] = wave(&d, queue_a, 9000); /* longer than any turn */
    (void)wave(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &b), 50);
    leads[1] = wave(&d, queue_a, 60);
    assert_int_equal(how(&d, leads[1]), -1);
    assert_false(weir_sched_waits_for_room(d.sched, leads[1]));
    desk_finish(&d);
}

/* A newcomer's work does not go between what another has queued; but it waits for that only so
 * long. */
static void newcomer_waits_for_what_is_queued_but_not_for_long(void **state)
{
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        struct desk d;
        weir_sched_id a, b, queue, queued[4], newcomer;

        desk_init_filling(&d, WEIR_SCHED_FILL_NONE);
        queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &a);
        for (int i = 0; i < 4; i++) { /* alone: all are granted */
            queued[i] = wave(&d, queue, 500);
            assert_int_equal(how(&d, queued[i]), 0);
        }
        newcomer = wave(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &b), 100);
        later(&d, 500); /* its turn has begun */
        assert_int_equal(how(&d, newcomer), -1);
        for (int i = 0; i < 3 && ends != 0; i++) {
            finished(&d, queued[i]);
        }
        if (ends == 0) { /* perhaps it is what they wait for */
            later(&d, 600);
        }
        assert_int_equal(how(&d, newcomer), 0);
        desk_finish(&d);
    }
}

/* One that ends behind another's kernel was served in between: that one is not to pay for it. */
static void what_goes_in_between_is_charged_to_whom_it_belongs(void **state)
{
    struct desk d;
    weir_sched_id a, b, queue_a, queue_b, runs, between;

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_NONE);
    queue_a = queue_of(&d, WEIR_PRIORITY_NORMAL, &a);
    queue_b = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
    runs = wave(&d, queue_a, 4000);
    later(&d, 1000);
    between = wave(&d, queue_b, 200);
    later(&d, 2000);
    assert_int_equal(how(&d, between), 0);
    assert_int_equal(service_us(&d, a), 3000);
    finished(&d, between);
    assert_int_equal(service_us(&d, b), 200);
    later(&d, 1000);
    finished(&d, runs);
    assert_int_equal(service_us(&d, a), 3800); /* of four milliseconds */
    desk_finish(&d);
}

/* Named as the one that fills, an equal that must not is not waited for: each 10 us somebody
 * looked. */
static void who_may_not_fill_wakes_nobody(void **state)
{
    struct desk d;
    weir_sched_id tenant;
    weir_sched_id leads;
    weir_sched_id waits;
    weir_sched_id long_one;
    uint32_t ticks = 0;

    (void)state;
    desk_init_filling(&d, WEIR_SCHED_FILL_ALL);
    waits = queue_of(&d, WEIR_PRIORITY_NORMAL, &tenant);
    leads = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &tenant);
    long_one = wave(&d, waits, 3000);
    wave(&d, waits, 100);
    wave(&d, leads, 100);
    later(&d, 2700);
    while (d.timer_ns <= 4000000) { /* it takes longer than was foreseen */
        d.now_ns = d.timer_ns;
        d.timer_ns = UINT64_MAX;
        weir_sched_tick(d.sched, d.now_ns);
        ticks++;
    }
    assert_in_range(ticks, 0, 5);
    finished(&d, long_one);
    desk_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower_class_fills_and_pays_when_done),
        cmocka_unit_test(equals_do_not_fill_below_lower_classes),
        cmocka_unit_test(short_ones_do_not_fill_beside_what_can_be_stopped),
        cmocka_unit_test(nobody_fills_where_it_is_not_asked_for),
        cmocka_unit_test(equals_fill_with_short_blocks),
        cmocka_unit_test(equals_pay_for_their_work_and_not_for_waiting),
        cmocka_unit_test(a_credit_is_used_up),
        cmocka_unit_test(who_leads_is_not_paid_back_more_than_others_paid),
        cmocka_unit_test(who_ruins_each_other_does_not_fill),
        cmocka_unit_test(who_fills_has_a_clean_turn_now_and_then),
        cmocka_unit_test(equals_share_what_they_are_sure_of),
        cmocka_unit_test(what_is_short_and_unsure_bars_for_a_moment),
        cmocka_unit_test(what_is_to_be_learned_has_no_company),
        cmocka_unit_test(who_is_served_waits_for_room_and_others_for_a_turn),
        cmocka_unit_test(newcomer_waits_for_what_is_queued_but_not_for_long),
        cmocka_unit_test(what_goes_in_between_is_charged_to_whom_it_belongs),
        cmocka_unit_test(who_may_not_fill_wakes_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The gate (host_backend/gate) with the real scheduler behind it and everything else made up:
 * when marks are put, who is let through for being stuck, what becomes of sessions that end in the
 * gate, and of orders that come before the work was given.
 */
#include "tests/integration/gate_fixture.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LONG_NS (80 * WEIR_NS_PER_MS)
#define RUN     ((struct weir_run *)(uintptr_t)0x1000) /* any name: its functions are wrapped */

/* ---------------------------------------------------------------- marks */

/* Beside another: one behind fifteen, before the sixteenth, and one behind that. */
static void contended_marks_part_one_in_sixteen_from_the_others(void **state)
{
    struct weir_gate_work known;
    struct launch launch;
    struct guest *a, *b;

    (void)state;
    gate_open("fair");
    a = guest_new(1, 0); /* high: never waits for the other */
    b = guest_new(2, 0);
    known = kernel_of(1, 1000);
    launch_once(b, kernel_of(2, 0)); /* stays there */
    for (uint32_t i = 1; i <= 70; i++) {
        launch_begin(&launch, a, known);
        launch_await_given(&launch);
        assert_int_equal(marks_in(a), (i - 1) / 16 * 2 + (i % 16 == 0)); /* before it is launched */
        launch_leave(&launch);
        assert_int_equal(marks_in(a), i / 16 * 2);
    }
    assert_false(is_alone(a));
    finish(a);
    finish(b);
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

/* Who waits for the copy engine does not wait for kernels behind a copy. */
static void contended_marks_part_copies_from_what_follows(void **state)
{
    struct weir_gate_work up = {.class = WEIR_SCHED_H2D, .bytes = 4};
    struct weir_gate_work down = {.class = WEIR_SCHED_D2H, .bytes = 4};
    struct weir_gate_work known;
    struct guest *a, *b;
    uint32_t marks;

    (void)state;
    gate_open("fair");
    a = guest_new(1, 0);
    b = guest_new(2, 0);
    for (int i = 0; i < 2; i++) { /* then it is known what they take */
        launch_once(a, i == 0 ? up : down);
        clock_forward(10 * WEIR_NS_PER_US);
        finish(a);
    }
    known = kernel_of(1, 1000);
    launch_once(b, kernel_of(2, 0)); /* stays there */
    marks = marks_in(a);
    launch_once(a, known);
    launch_once(a, up);
    launch_once(a, up);
    assert_int_equal(marks_in(a) - marks, 0);
    launch_once(a, known);
    launch_once(a, known);
    assert_int_equal(marks_in(a) - marks, 1);
    launch_once(a, up);
    launch_once(a, down);
    assert_int_equal(marks_in(a) - marks, 2);
    launch_once(a, known);
    assert_int_equal(marks_in(a) - marks, 3);
    finish(a);
    finish(b);
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

/* Below a higher class: nobody waits for what it has queued, and its times teach nothing. */
static void fillers_marks_are_farther_apart(void **state)
{
    struct weir_gate_work known;
    struct guest *a, *b;

    (void)state;
    gate_open_filling("fair");
    a = guest_new(1, 0);
    b = guest_new(0, 0);
    launch_once(a, kernel_of(2, 0)); /* stays there */
    known = kernel_of(1, 25 * WEIR_NS_PER_US);
    for (uint32_t i = 1; i <= 60; i++) { /* up to 1600 us in flight, a mark after 800 */
        launch_once(b, known);
        assert_int_equal(marks_in(b), i / 32);
    }
    finish(a);
    finish(b);
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

/* Behind its own work it waits without a mark for each item, but not for ever. */
static void who_waits_for_room_marks_what_is_open_in_the_end(void **state)
{
    struct weir_gate_work known;
    struct launch waits;
    struct guest *a, *b;
    uint32_t marks;

    (void)state;
    gate_open("fair");
    b = guest_new(2, 0);
    a = guest_new(0, 0);
    launch_once(b, kernel_of(2, 0));
    known = kernel_of(1, 60 * WEIR_NS_PER_US);
    for (int i = 0; i < 3; i++) {
        launch_once(a, known);
    }
    marks = marks_in(a);
    launch_begin(&waits, a, known);
    launch_end(&waits); /* 240 us in flight, of 200 */
    launch_begin(&waits, a, known);
    launch_await_waiting(&waits);
    await(marks_in(a) > marks && !weir_admission_has_unmarked(&a->session));
    device_reaches(a);
    launch_end(&waits);
    finish(a);
    finish(b);
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

/* Beside others a form that can be stopped may cost more than alone, so that there only a longer
 * kernel is worth it. */
static void what_a_stoppable_form_may_cost(void **state)
{
    struct weir_gate_hint brief = {.ns = 240 * WEIR_NS_PER_US};
    struct weir_gate_hint some = {.ns = 260 * WEIR_NS_PER_US};
    struct weir_gate_hint lasts = {.ns = 2 * WEIR_NS_PER_MS};
    struct weir_gate_hint unknown = {0};
    struct guest *a, *b, *limited;

    (void)state;
    gate_open_leveled("fair");
    a = guest_new(0, 0);
    b = guest_new(2, 0);
    limited = guest_new(0, 50);
    assert_int_equal(weir_admission_run_cost_pct(&a->session, &some), 0); /* nobody else is there */
    assert_int_equal(weir_admission_run_cost_pct(&a->session, &unknown), 0);
    assert_int_equal(weir_admission_run_cost_pct(&a->session, &lasts), 1);
    assert_int_equal(weir_admission_run_cost_pct(&limited->session, &some), UINT32_MAX);
    launch_once(a, kernel_of(1, 0));
    launch_once(b, kernel_of(1, 0));
    assert_int_equal(weir_admission_run_cost_pct(&a->session, &brief), 0);
    assert_int_equal(weir_admission_run_cost_pct(&limited->session, &brief), 0);
    assert_int_equal(weir_admission_run_cost_pct(&a->session, &some), 4);
    assert_int_equal(weir_admission_run_cost_pct(&a->session, &unknown), 4);
    assert_int_equal(weir_admission_run_cost_pct(&a->session, &lasts), 4);
    finish(a);
    finish(b);
    guest_gone(a);
    guest_gone(b);
    guest_gone(limited);
    gate_close();
}

/* A tenant has company in those of its class and of higher ones, not in those of lower ones. */
static void company_is_of_the_own_class_or_higher(void **state)
{
    struct guest *high, *normal, *other;

    (void)state;
    gate_open_leveled("fair");
    normal = guest_new(0, 0);
    high = guest_new(1, 0);
    other = guest_new(2, 0);
    assert_false(weir_admission_has_company(&normal->session));
    launch_once(normal, kernel_of(1, 0));
    assert_false(weir_admission_has_company(&normal->session)); /* nobody else is there */
    launch_once(high, kernel_of(1, 0));
    assert_true(weir_admission_has_company(&normal->session));
    assert_false(weir_admission_has_company(&high->session));
    finish(high);
    launch_once(other, kernel_of(1, 0));
    assert_false(weir_admission_has_company(&high->session));
    assert_true(weir_admission_has_company(&other->session));
    finish(normal);
    finish(other);
    guest_gone(high);
    guest_gone(normal);
    guest_gone(other);
    gate_close();
}

static void a_failed_call_leaves_nothing_behind(void **state)
{
    struct guest *a, *b;
    struct launch l;
    uint64_t given_ns;

    (void)state;
    gate_open("fair");
    a = guest_new(0, 0);
    b = guest_new(2, 0);
    make_alone(a);
    given_ns = atomic_load(&queue_of(a)->given_ns);
    for (int contended = 0; contended < 2; contended++) {
        struct weir_sched_counts before = counts_now();

        launch_begin(&l, a, kernel_of(1, 0));
        l.driver_says = CUDA_ERROR_INVALID_VALUE;
        launch_end(&l);
        assert_int_equal(atomic_load(&queue_of(a)->given_ns), given_ns);
        assert_false(weir_admission_has_unmarked(&a->session));
        assert_int_equal(counts_now().withdrawals - before.withdrawals, contended);
        launch_once(b, kernel_of(2, 0)); /* now it is contended */
        finish(b);
    }
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

/* ---------------------------------------------------------------- waiting */

/* Its first item does not end, and is so long that the second has to wait. */
static void fill(struct guest *a, struct launch *waits, struct weir_gate_work work)
{
    launch_once(a, work);
    launch_begin(waits, a, work);
    launch_await_waiting(waits);
}

static void stuck_work_lets_the_next_one_pass(void **state)
{
    struct guest *a, *b;
    struct launch first, waits;

    (void)state;
    gate_open("fair");
    a = guest_new(0, 0);
    b = guest_new(2, 0);
    launch_once(b, kernel_of(2, 0)); /* never ends, and holds the device as far as is known */
    launch_begin(&first, a, kernel_of(7, LONG_NS));
    launch_await_waiting(&first);
    clock_forward(10 * WEIR_NS_PER_MS); /* b's turn is over */
    launch_end(&first);
    launch_begin(&waits, a, kernel_of(7, 0)); /* behind 80 ms that are still to come */
    launch_await_waiting(&waits);
    clock_forward(600 * WEIR_NS_PER_MS);
    launch_await_given(&waits); /* 50 ms of patience are over, too */
    assert_int_equal(locked(fx.gate->passed.stuck), 1);
    launch_leave(&waits);
    assert_int_equal(waits.result, CUDA_SUCCESS);
    finish(a);
    finish(b);
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

/* Lines that say so, in a log that is a file in memory. */
static int n_lines(int log, const char *with)
{
    static char text[1u << 16];
    ssize_t bytes = pread(log, text, sizeof text - 1, 0);
    int n = 0;

    text[bytes > 0 ? bytes : 0] = 0;
    for (const char *at = text; (at = strstr(at, with)); at++) {
        n++;
    }
    return n;
}

/* One more of a's, behind work that does not end. */
static void pass_one(struct guest *a)
{
    struct launch waits;

    launch_begin(&waits, a, kernel_of(7, 0));
    launch_await_given_in_time(&waits);
    launch_leave(&waits);
}

static void slow_work_does_not_fill_the_log(void **state)
{
    static const char said[] = "sched: work is slow";
    int log = memfd_create("log", MFD_CLOEXEC);
    struct guest *a, *b;
    struct launch first;
    char spec[64];

    (void)state;
    snprintf(spec, sizeof spec, "warn:/proc/self/fd/%d", log);
    gate_open("fair");
    assert_int_equal(weir_log_init(spec, "test"), WEIR_OK);
    a = guest_new(0, 0);
    b = guest_new(2, 0);
    launch_once(b, kernel_of(2, 0)); /* never ends, and holds the device as far as is known */
    for (int piece = 0; piece < 3; piece++) {
        uint64_t passed = locked(fx.gate->passed.stuck);

        clock_forward(piece < 2 ? 10 * WEIR_NS_PER_MS : 11 * WEIR_NS_PER_S);
        launch_begin(&first, a, kernel_of(7, LONG_NS));
        launch_await_given_in_time(&first);
        launch_leave(&first);
        clock_forward(600 * WEIR_NS_PER_MS);
        for (int i = 0; i < 3; i++) {
            pass_one(a);
        }
        assert_int_equal(locked(fx.gate->passed.stuck), passed + 3);
        assert_int_equal(n_lines(log, said), piece < 2 ? 1 : 2); /* the second is too early */
        finish(a);
    }
    assert_int_equal(n_lines(log, "others_unsaid=1 "), 1);
    assert_int_equal(weir_log_init("none", "test"), WEIR_OK);
    close(log);
    finish(b);
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

/* A queue that moves on is not stuck, however old what stands in it is. */
static void work_that_moves_on_lets_nothing_pass(void **state)
{
    struct guest *a, *b;
    struct launch l;

    (void)state;
    gate_open("fair");
    a = guest_new(0, 0);
    b = guest_new(2, 0);
    make_alone(a);
    launch_once(a, kernel_of(7, LONG_NS));
    weir_admission_idle(&a->session); /* a mark between them */
    launch_begin(&l, a, kernel_of(7, LONG_NS));
    looks_up(&l);
    clock_forward(4 * LONG_NS + WEIR_NS_PER_MS); /* too long to be the first one's own time */
    launch_end(&l);
    launch_once(b, kernel_of(2, 0)); /* never ends */
    clock_forward(400 * WEIR_NS_PER_MS);
    device_reaches_some(a, 1);
    await(locked(queue_of(a)->first_ns) != 0);
    launch_begin(&l, a, kernel_of(7, 0)); /* behind 80 ms that are still to come */
    launch_await_waiting(&l);
    clock_forward(400 * WEIR_NS_PER_MS); /* the second is 800 ms old, but not as the oldest */
    for (int i = 0; i < 4; i++) {
        looks_up(&l);
    }
    assert_int_equal(locked(fx.gate->passed.stuck), 0);
    clock_forward(200 * WEIR_NS_PER_MS);
    launch_await_given(&l);
    assert_int_equal(locked(fx.gate->passed.stuck), 1);
    launch_leave(&l);
    finish(a);
    finish(b);
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

static void stuck_work_does_not_lift_a_limit(void **state)
{
    struct guest *a;
    struct launch waits;

    (void)state;
    gate_open("fair");
    a = guest_new(0, 10); /* percent: ten times 80 ms is how long the next waits */
    fill(a, &waits, kernel_of(7, LONG_NS));
    clock_forward(600 * WEIR_NS_PER_MS);
    for (int i = 0; i < 4; i++) { /* it looks up each time */
        looks_up(&waits);
    }
    clock_forward(300 * WEIR_NS_PER_MS);
    launch_await_given(&waits);
    assert_int_equal(locked(fx.gate->passed.stuck), 1);
    launch_leave(&waits);
    finish(a);
    guest_gone(a);
    gate_close();
}

static void a_session_that_ends_in_the_gate_leaves_it(void **state)
{
    struct guest *a;
    struct launch waits;
    struct weir_sched_counts before;

    (void)state;
    gate_open("fair");
    a = guest_new(0, 0);
    fill(a, &waits, kernel_of(7, LONG_NS));
    before = counts_now();
    atomic_store(&a->session.ending, true);
    weir_session_gates_wake(&a->session);
    launch_leave(&waits);
    assert_int_equal(waits.result, CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_int_equal(counts_now().withdrawals, before.withdrawals + 1);
    guest_gone(a); /* its first item is still under way */
    assert_int_equal(counts_now().items, 0);
    assert_int_equal(counts_now().queues, 0);
    gate_close();
}

/* ---------------------------------------------------------------- orders */

static struct weir_gate_work run_of(uint64_t key)
{
    struct weir_gate_work work = kernel_of(key, LONG_NS);

    work.flags = WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE;
    work.blocks_per_sm = 1;
    return work;
}

static void a_stop_that_comes_too_early_is_made_up_for(void **state)
{
    struct guest *normal, *high;
    struct launch l;
    struct weir_gate_item *item;

    (void)state;
    gate_open("priority");
    normal = guest_new(0, 0);
    high = guest_new(1, 0);
    launch_begin(&l, normal, run_of(7));
    l.run = RUN;
    launch_await_given(&l);
    item = l.admission.pass.item;
    assert_non_null(item);
    launch_once(high, kernel_of(2, 0)); /* preempts: what is not with the device yet, too */
    orders_taken();
    assert_true(locked(item->stop_late));
    assert_int_equal(atomic_load(&runs.stops), 0);
    launch_leave(&l);
    await(atomic_load(&runs.stops) == 1);
    run_says(item, RUN, WEIR_RUN_HAS_STOPPED);
    orders_taken();
    assert_int_equal(atomic_load(&runs.resumes), 0);
    finish(high);
    await(atomic_load(&runs.resumes) == 1);
    weir_admission_idle(&normal->session);
    device_reaches(normal);
    await(counts_now().items == 0);
    run_ends(item);
    await(atomic_load(&runs.puts) == 1);
    guest_gone(normal);
    guest_gone(high);
    gate_close();
}

static void what_was_no_run_after_all_is_never_stopped(void **state)
{
    struct guest *normal, *high;
    struct weir_gate_item *item;
    struct launch l;

    (void)state;
    gate_open("priority");
    normal = guest_new(0, 0);
    high = guest_new(1, 0);
    launch_begin(&l, normal, run_of(7)); /* launched in its original form */
    launch_await_given(&l);
    item = l.admission.pass.item;
    launch_once(high, kernel_of(2, 0));
    orders_taken();
    assert_true(atomic_load(&item->halted));
    launch_leave(&l);
    await(!atomic_load(&item->halted));
    assert_int_equal(atomic_load(&runs.stops), 0);
    finish(high);
    clock_forward(10 * WEIR_NS_PER_MS);
    launch_once(high, kernel_of(2, 0));
    orders_taken();
    assert_false(atomic_load(&item->halted));
    finish(high);
    finish(normal);
    guest_gone(normal);
    guest_gone(high);
    gate_close();
}

static void a_stop_that_is_refused_is_tried_again_later(void **state)
{
    struct guest *normal, *high;
    struct weir_gate_item *item;
    struct launch l;

    (void)state;
    gate_open("priority");
    atomic_store(&runs.stop_says, CUDA_ERROR_NOT_READY); /* somebody wants the device idle */
    normal = guest_new(0, 0);
    high = guest_new(1, 0);
    launch_begin(&l, normal, run_of(7));
    l.run = RUN;
    launch_await_given(&l);
    item = l.admission.pass.item;
    launch_leave(&l);
    launch_once(high, kernel_of(2, 0));
    await(atomic_load(&runs.stops) == 1 && !atomic_load(&item->halted));
    atomic_store(&runs.stop_says, CUDA_SUCCESS);
    clock_forward(WEIR_NS_PER_MS + WEIR_NS_PER_US);
    await(atomic_load(&runs.stops) == 2 && atomic_load(&item->halted));
    run_says(item, RUN, WEIR_RUN_HAS_STOPPED);
    finish(high);
    await(atomic_load(&runs.resumes) == 1);
    finish(normal);
    run_ends(item);
    guest_gone(normal);
    guest_gone(high);
    gate_close();
}

static void an_ending_session_is_not_stopped(void **state)
{
    struct guest *normal, *high;
    struct weir_gate_item *item;
    struct launch l;

    (void)state;
    gate_open("priority");
    normal = guest_new(0, 0);
    high = guest_new(1, 0);
    launch_begin(&l, normal, run_of(7));
    l.run = RUN;
    launch_await_given(&l);
    item = l.admission.pass.item;
    launch_leave(&l);
    weir_admission_session_ends(&normal->session);
    launch_once(high, kernel_of(2, 0));
    orders_taken();
    assert_int_equal(atomic_load(&runs.stops), 0);
    assert_false(atomic_load(&item->halted));
    finish(high);
    run_ends(item);
    guest_gone(normal);
    guest_gone(high);
    gate_close();
}

/* ---------------------------------------------------------------- limits */

static void a_limited_session_passes_the_scheduler_and_has_its_range(void **state)
{
    struct guest *a;
    struct launch l;

    (void)state;
    gate_open("fair");
    a = guest_new(0, 25);
    for (int i = 0; i < 4; i++) {
        clock_forward(10 * WEIR_NS_PER_MS);
        launch_once(a, kernel_of(1, 0));
        finish(a);
        assert_false(is_alone(a));
    }
    clock_forward(100 * WEIR_NS_PER_MS);
    launch_begin(&l, a, run_of(7));
    l.run = RUN;
    launch_await_given(&l);
    assert_int_equal(l.admission.pass.place.sm_count, GATE_SMS / 4);
    launch_leave(&l);
    set_limit(0, 50); /* the session's own is lower */
    set_limit(0, 10);
    await(atomic_load(&runs.resizes) == 1);
    assert_int_equal(atomic_load(&runs.sm_count), GATE_SMS / 10);
    finish(a);
    run_ends(l.admission.pass.item);
    guest_gone(a);
    gate_close();
}

static void a_limit_ends_being_alone(void **state)
{
    struct guest *a;

    (void)state;
    gate_open("fair");
    a = guest_new(0, 0);
    make_alone(a);
    launch_once(a, kernel_of(1, 0));
    set_limit(0, 50);
    assert_false(is_alone(a));
    await(counts_now().items == 1); /* what had passed is charged from now on */
    finish(a);
    set_limit(0, 100);
    make_alone(a);
    guest_gone(a);
    gate_close();
}

/* ---------------------------------------------------------------- shares of a context */

/* They cannot be told which SMs to use, so no range goes with them, and they are in no form that
 * could be moved. */
static void kernels_of_contexts_with_shares_run_side_by_side(void **state)
{
    struct guest *a, *b;
    struct launch of_a, of_b;

    (void)state;
    gate_open_share("fair", 50);
    set_limit(0, 50);
    set_limit(2, 50);
    a = guest_new(0, 0);
    b = guest_new(2, 0);
    launch_begin(&of_a, a, kernel_of(7, 0));
    launch_await_given(&of_a);
    launch_begin(&of_b, b, kernel_of(8, 0));
    launch_await_given(&of_b);
    assert_int_equal(of_a.admission.pass.place.sm_count, 0);
    assert_int_equal(of_b.admission.pass.place.sm_count, 0);
    assert_int_equal(locked(of_a.admission.pass.item->place.sm_count), GATE_SMS / 2);
    launch_leave(&of_a);
    launch_leave(&of_b);
    set_limit(2, 100); /* the context's share holds, and its work is where it was */
    finish(a);
    finish(b);
    assert_int_equal(atomic_load(&runs.resizes), 0);
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

/* Half of the SMs for 10 ms: at a quarter of them that is worth 20 ms. */
static void a_limit_below_the_share_is_held_in_time(void **state)
{
    struct guest *a;
    struct launch next;

    (void)state;
    gate_open_share("fair", 50);
    set_limit(0, 50);
    a = guest_new(0, 0);
    launch_once(a, kernel_of(1, 0));
    finish(a);
    set_limit(0, 25);
    clock_forward(100 * WEIR_NS_PER_MS);
    launch_once(a, kernel_of(1, 0));
    clock_forward(30 * WEIR_NS_PER_MS);
    finish(a);
    launch_begin(&next, a, kernel_of(1, 0));
    launch_await_waiting(&next);
    clock_forward(15 * WEIR_NS_PER_MS);
    looks_up(&next);
    clock_forward(10 * WEIR_NS_PER_MS);
    launch_await_given(&next); /* all SMs for so long would have to be paid for 70 ms longer */
    launch_leave(&next);
    finish(a);
    guest_gone(a);
    gate_close();
}

/* ---------------------------------------------------------------- waiting */

static void as_on_many_cores(void *user)
{
    (void)user;
    host.process->gpus[0].spin = true;
}

/* Its thread waits for a grant, and not by spinning. */
static bool sleeps(const struct guest *guest)
{
    const struct weir_gate_queue *q = queue_of(guest);

    return atomic_load(&fx.gate->spinners) == 0 &&
           atomic_load(&q->client->port->slot[q->slot].sleeps) != 0;
}

/* It spins for a while when it comes, then sleeps, and spins again when the copy before it is
 * nearly done; and it need not look at the clock to go on then. */
static void who_copies_next_is_awake_when_its_turn_comes(void **state)
{
    static const struct weir_gate_work copy = {.class = WEIR_SCHED_H2D, .bytes = 10000000000};
    struct launch first;
    struct launch next;
    struct guest *a;
    struct guest *b;
    uint64_t ends_ns;

    (void)state;
    gate_open("fair");
    pthread_mutex_lock(&fx.gate->lock); /* as on many cores */
    fx.gate->spin = true;
    fx.gate->spinners_max = 1;
    pthread_mutex_unlock(&fx.gate->lock);
    in_process(as_on_many_cores, NULL);
    a = guest_new(0, 0);
    b = guest_new(2, 0);
    ends_ns = weir_clock_now_ns() + 250 * WEIR_NS_PER_MS; /* as is guessed */
    launch_begin(&first, a, copy);
    launch_end(&first);
    launch_begin(&next, b, copy);
    launch_await_waiting(&next);
    await(atomic_load(&fx.gate->spinners) == 1);
    await((clock_forward(WEIR_NS_PER_MS / 4), sleeps(b)));
    looks_up(&next); /* there is long to go: it sleeps on */
    await(sleeps(b));
    clock_forward(ends_ns - weir_clock_now_ns() - 100 * WEIR_NS_PER_US);
    await(atomic_load(&fx.gate->spinners) == 1);
    assert_int_equal(atomic_load(&next.state), LAUNCH_COMES);
    device_reaches(a);
    weir_gate_look(queue_of(a));
    launch_await_given(&next);
    assert_int_equal(atomic_load(&fx.gate->spinners), 0);
    launch_leave(&next);
    finish(a);
    finish(b);
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contended_marks_part_one_in_sixteen_from_the_others),
        cmocka_unit_test(contended_marks_part_copies_from_what_follows),
        cmocka_unit_test(fillers_marks_are_farther_apart),
        cmocka_unit_test(who_waits_for_room_marks_what_is_open_in_the_end),
        cmocka_unit_test(what_a_stoppable_form_may_cost),
        cmocka_unit_test(company_is_of_the_own_class_or_higher),
        cmocka_unit_test(a_failed_call_leaves_nothing_behind),
        cmocka_unit_test(stuck_work_lets_the_next_one_pass),
        cmocka_unit_test(slow_work_does_not_fill_the_log),
        cmocka_unit_test(work_that_moves_on_lets_nothing_pass),
        cmocka_unit_test(stuck_work_does_not_lift_a_limit),
        cmocka_unit_test(a_session_that_ends_in_the_gate_leaves_it),
        cmocka_unit_test(a_stop_that_comes_too_early_is_made_up_for),
        cmocka_unit_test(what_was_no_run_after_all_is_never_stopped),
        cmocka_unit_test(a_stop_that_is_refused_is_tried_again_later),
        cmocka_unit_test(an_ending_session_is_not_stopped),
        cmocka_unit_test(a_limited_session_passes_the_scheduler_and_has_its_range),
        cmocka_unit_test(a_limit_ends_being_alone),
        cmocka_unit_test(kernels_of_contexts_with_shares_run_side_by_side),
        cmocka_unit_test(a_limit_below_the_share_is_held_in_time),
        cmocka_unit_test(who_copies_next_is_awake_when_its_turn_comes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

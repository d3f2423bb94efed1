/*
 * The gate while a tenant is alone: what passes beside the scheduler, how much of it, and how that
 * ends when another comes.
 */
#include "tests/integration/gate_fixture.h"

#define LONG_NS (80 * WEIR_NS_PER_MS)

/* A gate with one tenant, whose items pass beside the scheduler. */
static struct guest *open_alone(void)
{
    struct guest *a;

    gate_open("fair");
    a = guest_new(0, 0);
    make_alone(a);
    return a;
}

/* All that was brought is done. */
static void close_alone(struct guest *a)
{
    finish(a);
    guest_gone(a);
    gate_close();
}

/* The same of a, and another tenant that has no work yet. */
static void open_two(struct guest **ret_a, struct guest **ret_b)
{
    gate_open("fair");
    *ret_a = guest_new(0, 0);
    *ret_b = guest_new(2, 0);
    make_alone(*ret_a);
}

static void close_two(struct guest *a, struct guest *b)
{
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

static void alone_marks_are_put_seldom(void **state)
{
    struct guest *a;
    uint32_t marks;

    (void)state;
    a = open_alone();
    marks = marks_in(a);
    for (uint32_t i = 1; i <= 200; i++) {
        launch_once(a, kernel_of(1, 0)); /* guessed: 20 us each */
        assert_int_equal(marks_in(a) - marks, i / 64);
    }
    assert_true(weir_admission_has_unmarked(&a->session));
    weir_admission_idle(&a->session);
    assert_false(weir_admission_has_unmarked(&a->session));
    assert_int_equal(marks_in(a) - marks, 4);
    weir_admission_idle(&a->session); /* nothing is unmarked: no mark */
    assert_int_equal(marks_in(a) - marks, 4);
    close_alone(a);
}

static void a_bound_holds_alone_until_something_is_done(void **state)
{
    struct launch l;
    struct guest *a;

    (void)state;
    a = open_alone();
    launch_once(a, kernel_of(7, 6 * WEIR_NS_PER_MS)); /* of 10 ms that may be in flight */
    launch_begin(&l, a, kernel_of(7, 6 * WEIR_NS_PER_MS));
    looks_up(&l);
    device_reaches(a);
    launch_end(&l);
    launch_begin(&l, a, kernel_of(7, 0)); /* the last one never ends */
    looks_up(&l);
    clock_forward(25 * WEIR_NS_PER_MS);
    launch_end(&l);
    assert_int_equal(l.result, CUDA_SUCCESS);
    close_alone(a);
}

/* Nobody is to wait for many of them. But the device is not to wait for the next. */
static void a_long_kernel_lets_one_pass_when_it_is_nearly_over(void **state)
{
    struct launch l;
    struct guest *a;

    (void)state;
    a = open_alone();
    clock_forward(WEIR_NS_PER_US);
    launch_once(a, kernel_of(7, LONG_NS));
    launch_begin(&l, a, kernel_of(7, LONG_NS));
    looks_up(&l);
    clock_forward(LONG_NS - 2 * WEIR_NS_PER_MS);
    looks_up(&l);
    clock_forward(WEIR_NS_PER_MS);
    launch_end(&l);
    launch_begin(&l, a, kernel_of(7, LONG_NS));
    looks_up(&l);
    clock_forward(2 * LONG_NS); /* it takes longer, as when other work is in its way */
    looks_up(&l);
    device_reaches_some(a, 1);
    looks_up(&l);
    device_reaches(a);
    launch_end(&l);
    close_alone(a);
}

/* A collective's kernel takes as long as its arguments say: 10 ms for a large message, 85 us for a
 * small one. Whoever waits for the end of one that is thought to be long must not oversleep it. */
static void a_kernel_that_ends_early_is_seen_at_once_and_learned_alone(void **state)
{
    static const struct {
        uint64_t predicted_ns, takes_ns, waits_most_ns;
    } rows[] = {
        {10 * WEIR_NS_PER_MS, 85 * WEIR_NS_PER_US, 105 * WEIR_NS_PER_US},
        {80 * WEIR_NS_PER_MS, 85 * WEIR_NS_PER_US, 105 * WEIR_NS_PER_US},
        {80 * WEIR_NS_PER_MS, 5 * WEIR_NS_PER_MS, 5400 * WEIR_NS_PER_US},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct guest *a = open_alone();
        struct weir_gate_work work = kernel_of(7, rows[i].predicted_ns);
        uint64_t waited_ns;

        clock_forward(WEIR_NS_PER_US);
        launch_once(a, work);
        waited_ns = launch_while_device_works(a, work, rows[i].takes_ns);
        assert_in_range(waited_ns, rows[i].takes_ns, rows[i].waits_most_ns);
        assert_in_range(
            locked(weir_predict_ask(fx.gate->predict, work.class, work.key, work.blocks)),
            rows[i].takes_ns, rows[i].predicted_ns / 2 + 1);
        close_alone(a);
    }
}

/* What may have waited for work that was held back is not taken to be as long as that. */
static void what_others_passed_by_is_not_learned_as_long_alone(void **state)
{
    struct weir_gate_hint hint = {0};
    struct weir_gate_work work;
    struct launch l;
    struct guest *a;

    (void)state;
    a = open_alone();
    clock_forward(WEIR_NS_PER_US);
    launch_once(a, kernel_of(7, 15 * WEIR_NS_PER_MS));
    weir_admission_idle(&a->session); /* a mark */
    launch_begin(&l, a, kernel_of(8, LONG_NS));
    looks_up(&l);
    clock_forward(15 * WEIR_NS_PER_MS);
    launch_end(&l);
    launch_begin(&l, a, kernel_of(8, 0));
    looks_up(&l);
    clock_forward(4 * 15 * WEIR_NS_PER_MS);
    looks_up(&l);
    clock_forward(WEIR_NS_PER_MS);
    launch_end(&l);
    weir_gate_look(queue_of(a));
    device_reaches_some(a, 1);
    weir_gate_look(queue_of(a));
    work = kernel_of(7, 0);
    work.hint = &hint;
    launch_begin(&l, a, work);
    looks_up(&l);
    assert_in_range(hint.ns, 15 * WEIR_NS_PER_MS, 20 * WEIR_NS_PER_MS);
    device_reaches(a);
    launch_end(&l);
    close_alone(a);
}

static struct weir_gate_work never_seen(uint64_t key, struct weir_gate_hint *hint)
{
    struct weir_gate_work work = kernel_of(key, 0);

    work.hint = hint;
    return work;
}

/* So many times 20 us would be below any bound, and may be minutes. */
static void a_kernel_never_seen_passes_a_few_times_alone(void **state)
{
    struct weir_gate_hint hint = {0}, other = {0};
    struct launch l;
    struct guest *a;

    (void)state;
    a = open_alone();
    launch_once(a, never_seen(8, &other)); /* one mark follows it and four of the others */
    for (int i = 0; i < 8; i++) {
        launch_once(a, never_seen(7, &hint));
    }
    launch_begin(&l, a, never_seen(7, &hint));
    looks_up(&l);
    clock_forward(100 * WEIR_NS_PER_MS);
    looks_up(&l);
    device_reaches_some(a, 1);
    launch_end(&l);
    assert_int_equal(hint.ns, 0);
    for (int i = 0; i < 3; i++) {
        launch_once(a, never_seen(7, &hint));
    }
    launch_begin(&l, a, never_seen(7, &hint));
    looks_up(&l);
    clock_forward(8 * WEIR_NS_PER_MS); /* for the four of which nothing else is between marks */
    looks_up(&l);
    device_reaches_some(a, 1);
    launch_end(&l);
    assert_int_equal(hint.ns, 2 * WEIR_NS_PER_MS);
    close_alone(a);
}

/* Programs of many kernels: nothing can be learned of them from marks between a few. */
static void kernels_in_turn_pass_as_ever_alone(void **state)
{
    struct weir_gate_hint hints[2] = {{0}, {0}};
    struct guest *a;
    uint32_t marks;

    (void)state;
    a = open_alone();
    marks = marks_in(a);
    for (unsigned i = 1; i <= 128; i++) {
        launch_once(a, never_seen(7 + i % 2, &hints[i % 2]));
        assert_int_equal(marks_in(a) - marks, i / 64);
    }
    close_alone(a);
}

/* What has begun may wait for a later launch of the same. */
static void what_nothing_is_seen_of_passes_in_the_end(void **state)
{
    static const int pass[] = {8, 8, 16, 32};
    struct weir_gate_hint hint = {0};
    struct launch l;
    struct guest *a;

    (void)state;
    a = open_alone();
    launch_once(a, never_seen(7, &hint));
    for (unsigned round = 0; round < sizeof pass / sizeof *pass; round++) {
        for (int i = 1; i < pass[round]; i++) {
            launch_once(a, never_seen(7, &hint));
        }
        launch_begin(&l, a, never_seen(7, &hint));
        looks_up(&l);
        clock_forward(490 * WEIR_NS_PER_MS);
        looks_up(&l);
        clock_forward(20 * WEIR_NS_PER_MS);
        launch_end(&l);
    }
    close_alone(a);
}

static void who_was_alone_is_told_of_when_another_comes(void **state)
{
    struct guest *a, *b;
    struct weir_sched_counts counts;

    (void)state;
    open_two(&a, &b);
    for (int i = 0; i < 70; i++) { /* 64 behind a mark, six unmarked */
        launch_once(a, kernel_of(1, 0));
    }
    assert_int_equal(counts_now().items, 0);
    launch_once(b, kernel_of(2, 0)); /* the gate process does not know yet what a has queued */
    assert_false(is_alone(a));
    await(counts_now().items == 3); /* what stands behind the mark, what is unmarked, and b's */
    assert_true(locked(queue_of(a)->unmarked_started != 0));
    finish(a);
    finish(b);
    counts = counts_now();
    assert_int_equal(counts.items, 0);
    assert_int_equal(counts.arrivals, counts.finishes);
    close_two(a, b);
}

static void who_slips_through_in_that_moment_is_adopted(void **state)
{
    struct guest *a, *b;
    struct launch slips;

    (void)state;
    open_two(&a, &b);
    launch_begin(&slips, a, kernel_of(1, 0));
    launch_await_given(&slips); /* beside the scheduler, and still in the driver's call */
    assert_null(slips.admission.pass.item);
    launch_once(b, kernel_of(2, 0));
    assert_int_equal(counts_now().items, 1);
    launch_leave(&slips);
    await(counts_now().items == 2); /* by the thread: the session does nothing more */
    finish(a);
    finish(b);
    assert_int_equal(counts_now().items, 0);
    close_two(a, b);
}

static void the_way_opens_again_when_one_is_left(void **state)
{
    struct guest *a, *b;

    (void)state;
    open_two(&a, &b);
    launch_once(b, kernel_of(2, 0));
    finish(b);
    assert_false(is_alone(a));
    make_alone(a);
    make_alone(b);
    assert_false(is_alone(a));
    close_two(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_marks_are_put_seldom),
        cmocka_unit_test(a_bound_holds_alone_until_something_is_done),
        cmocka_unit_test(a_long_kernel_lets_one_pass_when_it_is_nearly_over),
        cmocka_unit_test(a_kernel_that_ends_early_is_seen_at_once_and_learned_alone),
        cmocka_unit_test(what_others_passed_by_is_not_learned_as_long_alone),
        cmocka_unit_test(a_kernel_never_seen_passes_a_few_times_alone),
        cmocka_unit_test(kernels_in_turn_pass_as_ever_alone),
        cmocka_unit_test(what_nothing_is_seen_of_passes_in_the_end),
        cmocka_unit_test(who_was_alone_is_told_of_when_another_comes),
        cmocka_unit_test(who_slips_through_in_that_moment_is_adopted),
        cmocka_unit_test(the_way_opens_again_when_one_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

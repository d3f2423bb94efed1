/* A form that can be stopped is launched while it costs no more than it may (choose_variant.c). */
#include "host_backend/worker/twins/private.h"

#include "../../lib/tl_cmocka.h"

#define BLOCKS 1000u

static struct weir_forms forms = {.real = true};
static struct weir_forms_device device = {.forms = &forms};
static struct weir_forms_module module = {.device = &device};

/* Both were timed often enough. */
static struct weir_forms_kernel timed(uint64_t original_ns, uint64_t twin_ns)
{
    return (struct weir_forms_kernel){
        .module = &module,
        .cost = {
            .blocks = BLOCKS, .until_ns = UINT64_MAX, .n = {4, 4}, .ns = {original_ns, twin_ns}}};
}

static void the_shortest_times_are_compared(void **state)
{
    static const struct {
        uint64_t original_ns, twin_ns;
        uint32_t cost_pct;
        enum weir_forms_verdict verdict;
    } cases[] = {
        {1000000, 1040000, 4, WEIR_FORMS_TAKES_TWIN},
        {1000000, 1041000, 4, WEIR_FORMS_TAKES_ORIGINAL_UNLESS_DIVIDED},
        {1000000, 1200000, 4, WEIR_FORMS_TAKES_ORIGINAL_UNLESS_DIVIDED},
        {1000000, 1201000, 4, WEIR_FORMS_TAKES_ORIGINAL},
        {1000000, 1010000, 1, WEIR_FORMS_TAKES_TWIN},
        {1000000, 1011000, 1, WEIR_FORMS_TAKES_ORIGINAL_UNLESS_DIVIDED},
        {1000000, 800000, 1, WEIR_FORMS_TAKES_TWIN},
        {1000000, 9000000, UINT32_MAX, WEIR_FORMS_TAKES_TWIN}, /* whatever it costs */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weir_forms_kernel k = timed(cases[i].original_ns, cases[i].twin_ns);

        for (int n = 0; n < 10; n++) {
            assert_int_equal(weir_forms_judge(&k, BLOCKS, cases[i].cost_pct), cases[i].verdict);
        }
    }
}

/* One launch in four is the original, until four of these were timed, or ten were tried. */
static void a_kernel_that_is_not_known_is_timed_in_both_forms(void **state)
{
    struct weir_forms_kernel k = {.module = &module};

    (void)state;
    for (int n = 1; n <= 16; n++) {
        enum weir_forms_verdict verdict = weir_forms_judge(&k, BLOCKS, 4);

        assert_int_equal(verdict, n % 4 == 0 ? WEIR_FORMS_TIMES_ORIGINAL : WEIR_FORMS_TAKES_TWIN);
        assert_int_equal(weir_forms_judge(&k, BLOCKS + 1, 4), WEIR_FORMS_TAKES_TWIN);
        k.cost.tries[0] += verdict == WEIR_FORMS_TIMES_ORIGINAL;
        k.cost.n[0] += verdict == WEIR_FORMS_TIMES_ORIGINAL;
    }
    k.cost.ns[0] = 1000;
    k.cost.tries[1] = 10; /* it was always stopped: good that it could be */
    for (int n = 0; n < 20; n++) {
        assert_int_equal(weir_forms_judge(&k, BLOCKS, 4), WEIR_FORMS_TAKES_TWIN);
    }
}

/* The other form was not launched for long. */
static void both_are_timed_again_after_a_while(void **state)
{
    struct weir_forms_kernel k = timed(1000000, 2000000);
    uint32_t originals = 0;

    (void)state;
    assert_int_equal(weir_forms_judge(&k, BLOCKS, 4), WEIR_FORMS_TAKES_ORIGINAL);
    k.cost.until_ns = 1;
    for (int n = 0; n < 8; n++) {
        originals += weir_forms_judge(&k, BLOCKS, 4) != WEIR_FORMS_TAKES_TWIN;
    }
    assert_int_equal(originals, 2);
}

/* A division by blocks gains more than this twin costs; another one is too dear even there. */
static void a_kernel_of_a_division_may_cost_more(void **state)
{
    struct weir_forms_kernel k = timed(1000000, 1100000), dear = timed(1000000, 1300000);

    (void)state;
    assert_int_equal(weir_forms_judge(&k, BLOCKS, 4), WEIR_FORMS_TAKES_ORIGINAL_UNLESS_DIVIDED);
    weir_forms_placed(&k, true);
    weir_forms_placed(&dear, true);
    assert_int_equal(weir_forms_judge(&k, BLOCKS, 4), WEIR_FORMS_TAKES_TWIN);
    assert_int_equal(weir_forms_judge(&dear, BLOCKS, 4), WEIR_FORMS_TAKES_ORIGINAL);
    k.divided_until_ns = 1; /* it was for a while only */
    assert_int_equal(weir_forms_judge(&k, BLOCKS, 4), WEIR_FORMS_TAKES_ORIGINAL_UNLESS_DIVIDED);
}

/* In a division, forms cannot be timed: what was found before holds. */
static void kernels_with_a_place_are_not_timed(void **state)
{
    struct weir_forms_kernel unknown = {.module = &module}, k = timed(1000000, 1010000);

    (void)state;
    k.cost.until_ns = 1;
    weir_forms_placed(&k, false);
    weir_forms_placed(&unknown, false);
    for (int n = 0; n < 8; n++) {
        assert_int_equal(weir_forms_judge(&unknown, BLOCKS, 4), WEIR_FORMS_TAKES_TWIN);
        assert_int_equal(weir_forms_judge(&k, BLOCKS, 4), WEIR_FORMS_TAKES_TWIN);
    }
    k.placed_until_ns = 1;
    for (int n = 1; n <= 4; n++) {
        assert_int_equal(weir_forms_judge(&k, BLOCKS, 4),
                         n == 4 ? WEIR_FORMS_TIMES_ORIGINAL : WEIR_FORMS_TAKES_TWIN);
    }
}

/* Nor is another twin tried there: it would be tried again and again, as it is never timed. */
static void kernels_with_a_place_keep_their_twin(void **state)
{
    struct weir_forms_kernel k = {.module = &module,
                                  .fit = {.form = WEIR_PTX_FORM_PERSISTENT, .per_sm = {8, 6}},
                                  .timing = {.n = {4}}};
    uint32_t others = 0;

    (void)state;
    weir_forms_placed(&k, true);
    for (int n = 0; n < 8; n++) {
        assert_int_equal(weir_forms_variant_next(NULL, &k), WEIR_FORMS_PLAIN);
    }
    k.placed_until_ns = 1;
    for (int n = 0; n < 8; n++) {
        others += weir_forms_variant_next(NULL, &k) != WEIR_FORMS_PLAIN;
    }
    assert_int_equal(others, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_with_a_place_keep_their_twin),
        cmocka_unit_test(a_kernel_of_a_division_may_cost_more),
        cmocka_unit_test(kernels_with_a_place_are_not_timed),
        cmocka_unit_test(the_shortest_times_are_compared),
        cmocka_unit_test(a_kernel_that_is_not_known_is_timed_in_both_forms),
        cmocka_unit_test(both_are_timed_again_after_a_while),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

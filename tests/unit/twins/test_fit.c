/* What a twin takes of an SM. */
#include "host_backend/worker/twins/fit.h"

#include "../../lib/tl_cmocka.h"

#define H200_SM_BYTES 233472u

static void carveout_is_the_least_size_that_suffices(void **state)
{
    (void)state;
    assert_int_equal(weir_forms_carveout_kib(0, 8), 8);     /* what the system takes */
    assert_int_equal(weir_forms_carveout_kib(1024, 8), 16); /* to the byte */
    assert_int_equal(weir_forms_carveout_kib(1025, 8), 32); /* in steps of 128 */
    assert_int_equal(weir_forms_carveout_kib(8192, 2), 32);
    assert_int_equal(weir_forms_carveout_kib(UINT32_MAX, UINT32_MAX), 228); /* there is no more */
}

static void twin_keeps_the_kernels_cache_only_where_it_would_lose_some(void **state)
{
    (void)state;
    /* 16 bytes more: 16 KiB would become 32. */
    assert_int_equal(weir_forms_carveout(1024, 8, 1040, 8, H200_SM_BYTES), 7);
    /* As much as before, or less because it fits fewer times: as the driver likes. */
    assert_int_equal(weir_forms_carveout(8192, 2, 8208, 2, H200_SM_BYTES), WEIR_FORMS_NO_CARVEOUT);
    assert_int_equal(weir_forms_carveout(1024, 8, 1040, 6, H200_SM_BYTES), WEIR_FORMS_NO_CARVEOUT);
    /* An SM of unknown size. */
    assert_int_equal(weir_forms_carveout(1024, 8, 1040, 8, 0), WEIR_FORMS_NO_CARVEOUT);
}

static void registers_are_as_many_as_keep_the_blocks(void **state)
{
    (void)state;
    assert_int_equal(weir_forms_registers_for(256, 8), 32);
    assert_int_equal(weir_forms_registers_for(128, 16), 32);
    assert_int_equal(weir_forms_registers_for(192, 6), 56);
    assert_int_equal(weir_forms_registers_for(33, 16), 64); /* two warps */
    assert_int_equal(weir_forms_registers_for(0, 8), WEIR_FORMS_SM_REGISTERS);
}

static void limit_is_what_fits_or_what_the_kernel_has(void **state)
{
    (void)state;
    assert_int_equal(weir_forms_register_limit(128, 32, 16, 12), 32); /* fits fewer times */
    assert_int_equal(weir_forms_register_limit(192, 48, 6, 6), 48);
    assert_int_equal(weir_forms_register_limit(192, 41, 6, 5), 56);
    assert_int_equal(weir_forms_register_limit(256, 11, 8, 8), WEIR_FORMS_LEAST_REGISTERS);
    assert_int_equal(weir_forms_register_limit(256, 40, 8, 8), 32); /* more would not fit */
    assert_int_equal(weir_forms_register_room(32), 40);
    assert_int_equal(weir_forms_register_room(26), 40);
    assert_int_equal(weir_forms_register_room(250), WEIR_FORMS_MOST_REGISTERS);
}

static void task_is_what_a_stop_may_wait_for(void **state)
{
    const uint64_t many = 1u << 30;

    (void)state;
    assert_int_equal(weir_forms_task_blocks(1000, 1000, many, 100), 8);
    assert_int_equal(weir_forms_task_blocks(3750, 2740, many, 100), 4); /* fewer fit: faster ones */
    assert_int_equal(weir_forms_task_blocks(200000, 200000, many, 100), 1); /* never less */
    assert_int_equal(weir_forms_task_blocks(1000, 500000, many, 100), 1);
    assert_int_equal(weir_forms_task_blocks(10, 10, many, 100), WEIR_FORMS_TASK_MAX);
    /* Each worker has some tasks, or one is waited for at the end. */
    assert_int_equal(weir_forms_task_blocks(1000, 1000, 2400, 100), 3);
    assert_int_equal(weir_forms_task_blocks(1000, 1000, 90, 100), 1);
    /* Not timed yet. */
    assert_int_equal(weir_forms_task_blocks(0, 0, many, 100), WEIR_FORMS_TASK_UNKNOWN);
    assert_int_equal(weir_forms_task_blocks(1000, 0, many, 100), WEIR_FORMS_TASK_UNKNOWN);
    assert_false(weir_forms_looks_always(0, 4)); /* not known */
    assert_false(weir_forms_looks_always(3500, 8));
    assert_true(weir_forms_looks_always(180000, 1));
}

static void roomy_twin_loses_a_quarter_of_the_blocks_at_most(void **state)
{
    (void)state;
    assert_true(weir_forms_is_roomy_enough(6, 8));
    assert_true(weir_forms_is_roomy_enough(12, 16));
    assert_true(weir_forms_is_roomy_enough(1, 1));
    assert_false(weir_forms_is_roomy_enough(1, 2));
    assert_false(weir_forms_is_roomy_enough(5, 8));
    assert_false(weir_forms_is_roomy_enough(0, 2)); /* it does not fit at all */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carveout_is_the_least_size_that_suffices),
        cmocka_unit_test(twin_keeps_the_kernels_cache_only_where_it_would_lose_some),
        cmocka_unit_test(registers_are_as_many_as_keep_the_blocks),
        cmocka_unit_test(limit_is_what_fits_or_what_the_kernel_has),
        cmocka_unit_test(task_is_what_a_stop_may_wait_for),
        cmocka_unit_test(roomy_twin_loses_a_quarter_of_the_blocks_at_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

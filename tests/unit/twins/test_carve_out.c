/* Twins that share SMs set aside what their neighbours need, and get their own carve-out back. */
#include "host_backend/worker/twins/carve_out.h"
#include "host_backend/worker/twins/fit.h"

#include "../../lib/tl_cmocka.h"

static struct {
    int carveout, calls;
    CUresult result;
} function;

static CUresult CUDAAPI get(int *value, CUfunction_attribute id, CUfunction f)
{
    (void)f;
    function.calls++;
    assert_int_equal(id, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    *value = function.carveout;
    return function.result;
}

static CUresult CUDAAPI set(CUfunction f, CUfunction_attribute id, int value)
{
    (void)f;
    function.calls++;
    assert_int_equal(id, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    if (function.result == CUDA_SUCCESS) {
        function.carveout = value;
    }
    return function.result;
}

static const struct weir_driver driver = {.cuFuncGetAttribute = get, .cuFuncSetAttribute = set};

static void carveout_is_as_told_while_it_shares_and_its_own_again(void **state)
{
    static const int own[] = {WEIR_FORMS_NO_CARVEOUT, 0, 14, 100};

    (void)state;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        struct weir_forms_carve_out carve_out = {0};

        function.carveout = own[i];
        function.result = CUDA_SUCCESS;
        weir_forms_carve_out_set(&driver, NULL, 43, &carve_out);
        assert_int_equal(function.carveout, 43);
        weir_forms_carve_out_set(&driver, NULL, 7, &carve_out); /* another neighbour */
        assert_int_equal(function.carveout, 7);
        weir_forms_carve_out_set(&driver, NULL, WEIR_FORMS_NO_CARVEOUT, &carve_out);
        assert_int_equal(function.carveout, own[i]);
    }
}

static void driver_is_called_only_where_it_changes(void **state)
{
    struct weir_forms_carve_out carve_out = {0};

    (void)state;
    function.calls = 0;
    function.result = CUDA_SUCCESS;
    weir_forms_carve_out_set(&driver, NULL, WEIR_FORMS_NO_CARVEOUT, &carve_out);
    assert_int_equal(function.calls, 0);
    weir_forms_carve_out_set(&driver, NULL, 0, &carve_out);
    weir_forms_carve_out_set(&driver, NULL, 0, &carve_out);
    assert_int_equal(function.calls, 2);
}

static void refusal_is_asked_again(void **state)
{
    struct weir_forms_carve_out carve_out = {0};

    (void)state;
    function.carveout = 14;
    function.result = CUDA_ERROR_INVALID_VALUE;
    weir_forms_carve_out_set(&driver, NULL, 100, &carve_out);
    assert_false(carve_out.shares);
    assert_int_equal(function.carveout, 14);
    function.result = CUDA_SUCCESS;
    weir_forms_carve_out_set(&driver, NULL, 100, &carve_out);
    assert_true(carve_out.shares);
    assert_int_equal(function.carveout, 100);
}

#define SECOND WEIR_FORMS_NEEDS_NS
#define BLOCK  1152u /* bytes of a twin without shared memory of its kernel's */

static void room_is_for_the_block_limit_and_who_needs_most_of_late(void **state)
{
    struct weir_forms_needs needs = {.lock = PTHREAD_MUTEX_INITIALIZER};
    static const char names[4];
    const struct weir_forms_need rg = {&names[0], &names[0], BLOCK, 5};
    const struct weir_forms_need spmv = {&names[1], &names[1], BLOCK, 16};
    const struct weir_forms_need sgemm = {&names[2], &names[2], 9600, 4};
    const struct weir_forms_need of_spmvs_session = {&names[3], &names[1], 65536, 3};
    const struct {
        const struct weir_forms_need *own;
        uint32_t block_limit;
        uint64_t at_ns;
        uint32_t kib;
    } cases[] = {
        {&spmv, 16, SECOND, 32},     /* all of an SM */
        {&rg, 2, SECOND + 1, 16},    /* 2, and 9 of spmv */
        {&spmv, 9, SECOND + 2, 16},  /* 9, and 2 of rg */
        {&sgemm, 2, SECOND + 3, 32}, /* 2, and 8 of spmv */
        {&spmv, 9, SECOND + 4, 32},  /* 9, and 1 of sgemm */
        {&spmv, 9, 2 * SECOND + 3, 32},
        {&spmv, 9, 2 * SECOND + 4, 16}, /* sgemm was too long ago */
        {&of_spmvs_session, 3, 2 * SECOND + 5, 196},
        {&spmv, 9, 2 * SECOND + 6, 16},  /* that is no neighbour */
        {&rg, 2, 2 * SECOND + 7, 100},   /* but rg's: 2, and 1 of it */
        {&spmv, 20, 2 * SECOND + 8, 32}, /* more than fit */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(
            weir_forms_needs_kib(&needs, cases[i].own, cases[i].block_limit, cases[i].at_ns),
            cases[i].kib);
    }
}

static void who_was_launched_longest_ago_is_forgotten(void **state)
{
    struct weir_forms_needs needs = {.lock = PTHREAD_MUTEX_INITIALIZER};
    static const char names[WEIR_FORMS_NEEDS + 1];
    struct weir_forms_need own = {&names[0], &names[0], 65536, 2};

    (void)state;
    assert_int_equal(weir_forms_needs_kib(&needs, &own, 2, SECOND), 132);
    own.block_bytes = BLOCK;
    for (uint32_t i = 1; i < WEIR_FORMS_NEEDS; i++) { /* there is room for these */
        own.kernel = own.owner = &names[i];
        assert_int_equal(weir_forms_needs_kib(&needs, &own, 1, SECOND + i), 100);
    }
    own.kernel = own.owner = &names[WEIR_FORMS_NEEDS];
    assert_int_equal(weir_forms_needs_kib(&needs, &own, 1, SECOND + 100), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carveout_is_as_told_while_it_shares_and_its_own_again),
        cmocka_unit_test(driver_is_called_only_where_it_changes),
        cmocka_unit_test(refusal_is_asked_again),
        cmocka_unit_test(room_is_for_the_block_limit_and_who_needs_most_of_late),
        cmocka_unit_test(who_was_launched_longest_ago_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

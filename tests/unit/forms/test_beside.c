/* Twins that share SMs set all shared memory aside, and get their own carve-out back. */
#include "host_backend/forms/beside.h"

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

static void carveout_is_all_while_it_shares_and_its_own_again(void **state)
{
    static const int own[] = {-1, 0, 14, 100};

    (void)state;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        struct weir_forms_beside beside = {0};

        function.carveout = own[i];
        function.result = CUDA_SUCCESS;
        weir_forms_beside_set(&driver, NULL, true, &beside);
        assert_int_equal(function.carveout, 100);
        weir_forms_beside_set(&driver, NULL, false, &beside);
        assert_int_equal(function.carveout, own[i]);
    }
}

static void driver_is_called_only_where_it_changes(void **state)
{
    struct weir_forms_beside beside = {0};

    (void)state;
    function.calls = 0;
    function.result = CUDA_SUCCESS;
    weir_forms_beside_set(&driver, NULL, false, &beside);
    assert_int_equal(function.calls, 0);
    weir_forms_beside_set(&driver, NULL, true, &beside);
    weir_forms_beside_set(&driver, NULL, true, &beside);
    assert_int_equal(function.calls, 2);
}

static void refusal_is_asked_again(void **state)
{
    struct weir_forms_beside beside = {0};

    (void)state;
    function.carveout = 14;
    function.result = CUDA_ERROR_INVALID_VALUE;
    weir_forms_beside_set(&driver, NULL, true, &beside);
    assert_false(beside.shares);
    assert_int_equal(function.carveout, 14);
    function.result = CUDA_SUCCESS;
    weir_forms_beside_set(&driver, NULL, true, &beside);
    assert_true(beside.shares);
    assert_int_equal(function.carveout, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carveout_is_all_while_it_shares_and_its_own_again),
        cmocka_unit_test(driver_is_called_only_where_it_changes),
        cmocka_unit_test(refusal_is_asked_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

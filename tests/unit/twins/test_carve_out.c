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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carveout_is_as_told_while_it_shares_and_its_own_again),
        cmocka_unit_test(driver_is_called_only_where_it_changes),
        cmocka_unit_test(refusal_is_asked_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "proto/errors.h"
#include "proto/wire/kinds.h"
#include "tests/lib/tl_cmocka.h"

static void error_known_values_have_name_and_text(void **state)
{
    (void)state;
    assert_string_equal(weir_cuda_error_name(CUDA_SUCCESS), "CUDA_SUCCESS");
    assert_string_equal(weir_cuda_error_string(CUDA_SUCCESS), "no error");
    assert_string_equal(weir_cuda_error_name((CUresult)1), "CUDA_ERROR_INVALID_VALUE");
    assert_string_equal(weir_cuda_error_string((CUresult)1), "invalid argument");
    assert_string_equal(weir_cuda_error_string((CUresult)2), "out of memory");
    assert_string_equal(weir_cuda_error_name((CUresult)801), "CUDA_ERROR_NOT_SUPPORTED");
    assert_string_equal(weir_cuda_error_string((CUresult)999), "unknown error");
}

static void error_unknown_values_have_neither(void **state)
{
    (void)state;
    assert_null(weir_cuda_error_name((CUresult)9999));
    assert_null(weir_cuda_error_string((CUresult)-1));
}

static void kind_name_covers_the_table(void **state)
{
    (void)state;
    assert_string_equal(weir_kind_name(WEIR_KIND_CONTEXT), "context");
    assert_string_equal(weir_kind_name(WEIR_KIND_USEROBJ), "userobj");
    assert_string_equal(weir_kind_name(WEIR_KIND_NONE), "?");
    assert_string_equal(weir_kind_name(WEIR_KIND_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_known_values_have_name_and_text),
        cmocka_unit_test(error_unknown_values_have_neither),
        cmocka_unit_test(kind_name_covers_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "proto/driver_table.h"
#include "tests/lib/tl_cmocka.h"

#include <string.h>

static void open_missing_library_says_which(void **state)
{
    (void)state;
    struct weir_driver driver = {.library = &driver};
    char message[200] = "";
    assert_int_equal(weir_driver_open("/nowhere/libcuda.so.1", &driver, message, sizeof(message)),
                     WEIR_ERR_NOT_FOUND);
    assert_non_null(strstr(message, "/nowhere/libcuda.so.1"));
    assert_ptr_equal(driver.library, &driver); /* untouched */
    assert_int_equal(weir_driver_open("/nowhere/libcuda.so.1", &driver, NULL, 0),
                     WEIR_ERR_NOT_FOUND);
}

static void open_library_that_is_no_driver_is_refused(void **state)
{
    (void)state;
    struct weir_driver driver;
    char message[200] = "";
    assert_int_equal(weir_driver_open("libm.so.6", &driver, message, sizeof(message)),
                     WEIR_ERR_NOT_FOUND);
    assert_non_null(strstr(message, "cuInit"));
    char tiny[4] = "xyz";
    assert_int_equal(weir_driver_open("libm.so.6", &driver, tiny, sizeof(tiny)),
                     WEIR_ERR_NOT_FOUND);
    assert_int_equal(tiny[3], 0);
}

static void open_small_driver_fills_what_it_has_and_stands_in_for_the_rest(void **state)
{
    (void)state;
    struct weir_driver driver;
    assert_int_equal(weir_driver_open(FAKE_DRIVER, &driver, NULL, 0), WEIR_OK);
    int version = 0;
    assert_int_equal(driver.cuInit(0), CUDA_SUCCESS);
    assert_int_equal(driver.cuInit(1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver.cuDriverGetVersion(&version), CUDA_SUCCESS);
    assert_int_equal(version, 13000);
    assert_true(weir_driver_has(&driver, cuInit));
    assert_false(weir_driver_has(&driver, cuMemAlloc_v2));
    CUdeviceptr pointer = 0;
    assert_int_equal(driver.cuMemAlloc_v2(&pointer, 16), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(driver.cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                     CUDA_ERROR_NOT_SUPPORTED);
    weir_driver_close(&driver);
    assert_null(driver.library);
    weir_driver_close(&driver);
    weir_driver_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_missing_library_says_which),
        cmocka_unit_test(open_library_that_is_no_driver_is_refused),
        cmocka_unit_test(open_small_driver_fills_what_it_has_and_stands_in_for_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tests/integration/soft_driver.h"

#include "../lib/tl_cmocka.h"

CUcontext soft_driver_open(struct weir_driver *driver)
{
    CUcontext context;
    CUdevice device;
    char why[200];

    assert_int_equal(weir_driver_open(WEIR_TEST_SOFTGPU, driver, why, sizeof why), WEIR_OK);
    assert_int_equal(driver->cuInit(0), CUDA_SUCCESS);
    assert_int_equal(driver->cuDeviceGet(&device, 0), CUDA_SUCCESS);
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    assert_int_equal(driver->cuCtxSetCurrent(context), CUDA_SUCCESS);
    return context;
}

void soft_driver_close(const struct weir_driver *driver)
{
    assert_int_equal(driver->cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

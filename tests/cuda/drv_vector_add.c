/* The smallest complete Driver API program: module from PTX text, copies, one launch. */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { N = 50000 };

static float x[N], y[N], back[N];

int main(void)
{
    CUmodule module;
    CUdeviceptr device_x, device_y;
    float a = 2.5f;
    unsigned n = N;
    int good = 1;

    driver_begin("drv_vector_add");
    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = (float)(N - i) * 0.5f;
    }
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    DRV(cu.MemAlloc_v2(&device_x, sizeof(x)));
    DRV(cu.MemAlloc_v2(&device_y, sizeof(y)));
    DRV(cu.MemcpyHtoD_v2(device_x, x, sizeof(x)));
    DRV(cu.MemcpyHtoD_v2(device_y, y, sizeof(y)));
    void *params[] = {&a, &device_x, &device_y, &n};
    driver_launch(driver_function(module, "saxpy"), (N + 255) / 256, 256, NULL, params);
    DRV(cu.CtxSynchronize());
    DRV(cu.MemcpyDtoH_v2(back, device_y, sizeof(back)));
    for (int i = 0; i < N; i++) {
        good &= back[i] == 2.5f * x[i] + y[i];
    }
    check_true(good, "a x plus y");
    DRV(cu.MemFree_v2(device_x));
    DRV(cu.MemFree_v2(device_y));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}

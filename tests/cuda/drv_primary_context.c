/* The primary context: retain and release count, state, flags, reset. */
#include "check_driver.h"

static int active(unsigned *flags)
{
    int on = -1;

    DRV(cu.DevicePrimaryCtxGetState(0, flags, &on));
    return on;
}

int main(void)
{
    CUcontext first = NULL, second = NULL, context = NULL;
    CUdeviceptr p = 0;
    unsigned flags = 99;

    driver_open("drv_primary_context");
    DRV(cu.Init(0));
    check_int(active(&flags), 0, "inactive at first");
    DRV(cu.DevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
    (void)active(&flags);
    check_int(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC, "flags kept while inactive");
    DRV(cu.DevicePrimaryCtxRetain(&first, 0));
    check_int(active(&flags), 1, "active once retained");
    DRV(cu.CtxGetCurrent(&context));
    check_true(!context, "retain does not make it current");
    DRV(cu.DevicePrimaryCtxRetain(&second, 0));
    check_true(first == second, "the same context again");
    DRV(cu.CtxSetCurrent(first));
    DRV(cu.MemAlloc_v2(&p, 4096));
    DRV(cu.MemsetD32_v2(p, 7, 1024));
    DRV(cu.DevicePrimaryCtxRelease_v2(0));
    check_int(active(&flags), 1, "active after the first release");
    DRV(cu.MemFree_v2(p));
    DRV(cu.CtxSetCurrent(NULL));
    DRV(cu.DevicePrimaryCtxRelease_v2(0));
    check_int(active(&flags), 0, "inactive after the second");
    check_code(cu.DevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT,
               "one release too many");

    DRV(cu.DevicePrimaryCtxRetain(&first, 0));
    DRV(cu.CtxSetCurrent(first));
    DRV(cu.MemAlloc_v2(&p, 4096));
    DRV(cu.CtxSetCurrent(NULL));
    DRV(cu.DevicePrimaryCtxReset_v2(0));
    check_int(active(&flags), 0, "inactive after a reset");
    DRV(cu.DevicePrimaryCtxRetain(&first, 0));
    DRV(cu.CtxSetCurrent(first));
    DRV(cu.MemAlloc_v2(&p, 4096));
    DRV(cu.MemFree_v2(p));
    check_int(active(&flags), 1, "works again after the reset");
    check_code(cu.DevicePrimaryCtxRetain(&first, 999), CUDA_ERROR_INVALID_DEVICE, "no such device");
    return check_end();
}

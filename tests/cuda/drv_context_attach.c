/* cuCtxAttach and cuCtxDetach, as PyCUDA calls them: how often a context is in use. */
#include "check_driver.h"

static CUcontext current(void)
{
    CUcontext context = NULL;

    DRV(cu.CtxGetCurrent(&context));
    return context;
}

int main(void)
{
    CUcontext below = NULL, context = NULL, again = NULL;
    CUdevice device;
    CUdeviceptr p = 0;

    driver_open("drv_context_attach");
    DRV(cu.Init(0));
    DRV(cu.DeviceGet(&device, 0));
    check_code(cu.CtxAttach(&again, 0), CUDA_ERROR_INVALID_CONTEXT, "attach without a context");
    DRV(cu.CtxCreate_v2(&below, 0, device));
    DRV(cu.CtxCreate_v2(&context, 0, device));
    check_code(cu.CtxAttach(NULL, 0), CUDA_ERROR_INVALID_VALUE, "attach to nowhere");
    check_code(cu.CtxAttach(&again, 1), CUDA_ERROR_INVALID_VALUE, "attach with flags");
    DRV(cu.CtxAttach(&again, 0));
    check_true(again == context, "attach gives the current context");
    DRV(cu.MemAlloc_v2(&p, 64));

    DRV(cu.CtxDetach(context));
    check_true(current() == context, "a context in use stays after a detach");
    DRV(cu.MemFree_v2(p));
    check_code(cu.CtxDetach(below), CUDA_ERROR_INVALID_CONTEXT,
               "detach of one that is not current");
    DRV(cu.CtxDetach(context));
    check_true(current() == below, "the last detach destroys it, and pops it");
    DRV(cu.CtxDetach(below));
    check_true(!current(), "a context that nobody attached to");
    return check_end();
}

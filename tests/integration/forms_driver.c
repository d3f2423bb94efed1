#include "tests/integration/forms_backend.h"

#include "proto/cuda_abi.h"

#include "tests/lib/tl_cmocka.h"

#include <dlfcn.h>
#include <string.h>

#define FUNCTIONS(X)                                                                               \
    X(CUresult, cuInit, (unsigned))                                                                \
    X(CUresult, cuDeviceGet, (CUdevice *, int))                                                    \
    X(CUresult, cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                       \
    X(CUresult, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                 \
    X(CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice))                                          \
    X(CUresult, cuCtxSetCurrent, (CUcontext))                                                      \
    X(CUresult, cuCtxSynchronize, (void))                                                          \
    X(CUresult, cuModuleLoadData, (CUmodule *, const void *))                                      \
    X(CUresult, cuModuleUnload, (CUmodule))                                                        \
    X(CUresult, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                       \
    X(CUresult, cuModuleGetGlobal_v2, (CUdeviceptr *, size_t *, CUmodule, const char *))           \
    X(CUresult, cuFuncSetAttribute, (CUfunction, CUfunction_attribute, int))                       \
    X(CUresult, cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                              \
    X(CUresult, cuMemFree_v2, (CUdeviceptr))                                                       \
    X(CUresult, cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                              \
    X(CUresult, cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t))                               \
    X(CUresult, cuLaunchKernel,                                                                    \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **))

static struct {
#define X(result, name, args) result(*name) args;
    FUNCTIONS(X)
#undef X
} cu;

#define MUST(call) assert_int_equal((call), CUDA_SUCCESS)

static CUdevice device;

bool fb_open(void)
{
    CUcontext context;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        return false;
    }
#define X(result, name, args)                                                                      \
    *(void **)(void *)&cu.name = dlsym(library, #name);                                            \
    assert_non_null(cu.name);
    FUNCTIONS(X)
#undef X
    if (cu.cuInit(0) != CUDA_SUCCESS || cu.cuDeviceGet(&device, 0) != CUDA_SUCCESS) {
        return false;
    }
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    return true;
}

void fb_close(void)
{
    MUST(cu.cuDevicePrimaryCtxRelease_v2(device));
}

uint32_t fb_sm_count(void)
{
    int count = 0;

    MUST(cu.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    return (uint32_t)count;
}

void *fb_load(const char *text, size_t bytes)
{
    CUmodule module;

    assert_int_equal(strlen(text), bytes);
    MUST(cu.cuModuleLoadData(&module, text));
    return module;
}

void fb_unload(void *module)
{
    if (module) {
        MUST(cu.cuModuleUnload(module));
    }
}

uint64_t fb_global(void *module, const char *name, uint64_t *ret_address)
{
    CUdeviceptr address = 0;
    size_t bytes = 0;

    if (cu.cuModuleGetGlobal_v2(&address, &bytes, module, name) != CUDA_SUCCESS) {
        return 0;
    }
    *ret_address = address;
    return bytes;
}

void fb_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
    MUST(cu.cuMemcpyDtoD_v2(to, from, bytes));
    MUST(cu.cuCtxSynchronize());
}

void fb_write(uint64_t to, uint64_t value)
{
    MUST(cu.cuMemcpyHtoD_v2(to, &value, sizeof(value)));
}

void *fb_alloc(size_t bytes)
{
    CUdeviceptr address;

    MUST(cu.cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
    memset((void *)(uintptr_t)address, 0, bytes);
    return (void *)(uintptr_t)address;
}

void fb_free(void *memory)
{
    MUST(cu.cuMemFree_v2((CUdeviceptr)(uintptr_t)memory));
}

/* Managed memory moves between host and device while both write to it; tests/bench/forms stops
 * kernels on a GPU as the worker does. */
bool fb_writes_meanwhile(void)
{
    return false;
}

bool fb_run(void *module, const char *kernel, const struct fb_launch *launch)
{
    size_t bytes = launch->params_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)launch->params,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CUfunction function;

    MUST(cu.cuModuleGetFunction(&function, module, kernel));
    if (launch->dynamic_bytes) {
        MUST(cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   (int)launch->dynamic_bytes));
    }
    CUresult result =
        cu.cuLaunchKernel(function, launch->grid[0], launch->grid[1], launch->grid[2],
                          launch->block, 1, 1, launch->dynamic_bytes, NULL, NULL, extra);

    result = result == CUDA_SUCCESS ? cu.cuCtxSynchronize() : result;
    if (result != CUDA_SUCCESS) {
        print_message("%s: %d\n", kernel, (int)result);
    }
    return result == CUDA_SUCCESS;
}

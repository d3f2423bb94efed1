/* Context-independent libraries: load without a context, kernels as functions, globals. */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

static void kernels(CUlibrary library, CUkernel fill)
{
    const char *name = NULL;
    size_t offset = 0, bytes = 0;
    unsigned count = 0;
    int value = 0;

    DRV(cu.LibraryGetKernelCount(&count, library));
    check_int(count, 9, "number of kernels");
    DRV(cu.KernelGetName(&name, fill));
    check_true(name && strcmp(name, "fill") == 0, "name");
    DRV(cu.KernelGetParamInfo(fill, 2, &offset, &bytes));
    check_true(offset == 12 && bytes == 4, "layout of the third parameter");
    check_code(cu.KernelGetParamInfo(fill, 3, &offset, &bytes), CUDA_ERROR_INVALID_VALUE,
               "a fourth parameter");
    DRV(cu.KernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill, 0));
    check_int(value, 1024, "threads per block");
    DRV(cu.KernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 61440, fill, 0));
    DRV(cu.KernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, fill, 0));
    check_int(value, 61440, "attribute set and read");
}

static int filled(CUdeviceptr device, unsigned first)
{
    unsigned got[100];
    int good = 1;

    DRV(cu.MemcpyDtoH_v2(got, device, sizeof(got)));
    for (unsigned i = 0; i < 100; i++) {
        good &= got[i] == first + i;
    }
    return good;
}

/* Nobody may get the address of before the reset, which by now is something else's. */
static void table_after_reset(CUlibrary library)
{
    static const int zeros[16];
    CUcontext context;
    CUdeviceptr table = 0, elsewhere = 0;
    int squares[16];

    DRV(cu.LibraryGetGlobal(&table, NULL, library, "table"));
    DRV(cu.MemcpyHtoD_v2(table, zeros, sizeof(zeros)));
    DRV(cu.DevicePrimaryCtxReset_v2(0));
    DRV(cu.DevicePrimaryCtxRetain(&context, 0));
    DRV(cu.CtxSetCurrent(context));
    DRV(cu.MemAlloc_v2(&elsewhere, sizeof(zeros)));
    DRV(cu.LibraryGetGlobal(&table, NULL, library, "table"));
    DRV(cu.MemcpyDtoH_v2(squares, table, sizeof(squares)));
    check_int(squares[15], 225, "contents of a global after a reset");
    DRV(cu.MemFree_v2(elsewhere));
}

int main(void)
{
    CUlibrary library;
    CUkernel fill, missing;
    CUfunction function = NULL;
    CUmodule module = NULL;
    CUcontext context;
    CUdeviceptr device, table = 0;
    size_t bytes = 0;
    int squares[16];
    unsigned value = 500, n = 100;

    driver_open("drv_library");
    DRV(cu.Init(0));
    DRV(cu.LibraryLoadData(&library, basic_ptx, NULL, NULL, 0, NULL, NULL, 0));
    check_true(1, "loaded without a context");
    DRV(cu.LibraryGetKernel(&fill, library, "fill"));
    check_code(cu.LibraryGetKernel(&missing, library, "no_such_kernel"), CUDA_ERROR_NOT_FOUND,
               "no such kernel");
    DRV(cu.DevicePrimaryCtxRetain(&context, 0));
    DRV(cu.CtxSetCurrent(context));
    kernels(library, fill);
    DRV(cu.MemAlloc_v2(&device, 400));
    void *params[] = {&device, &value, &n};
    driver_launch((CUfunction)fill, 1, 128, NULL, params);
    check_true(filled(device, 500), "a kernel launched as a function");
    DRV(cu.KernelGetFunction(&function, fill));
    value = 900;
    driver_launch(function, 1, 128, NULL, params);
    check_true(filled(device, 900), "the function of a kernel");
    DRV(cu.LibraryGetModule(&module, library));
    value = 7;
    driver_launch(driver_function(module, "fill"), 1, 128, NULL, params);
    check_true(filled(device, 7), "the function of the library's module");
    DRV(cu.LibraryGetGlobal(&table, NULL, library, "table"));
    DRV(cu.LibraryGetGlobal(NULL, &bytes, library, "table"));
    check_int((long long)bytes, 64, "size of a global");
    DRV(cu.MemcpyDtoH_v2(squares, table, sizeof(squares)));
    check_int(squares[15], 225, "contents of a global");
    check_code(cu.LibraryGetGlobal(&table, &bytes, library, "no_such_global"), CUDA_ERROR_NOT_FOUND,
               "no such global");
    DRV(cu.MemFree_v2(device));
    table_after_reset(library);
    DRV(cu.LibraryUnload(library));
    return driver_end();
}

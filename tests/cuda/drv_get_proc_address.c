/* cuGetProcAddress: versions, names that do not exist, flags, per-thread forms, before cuInit. */
#include "check_driver.h"

static void *symbol(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

/* Asks, and checks return code, query status, and which exported symbol (or NULL) it is. */
static void ask(const char *name, int version, cuuint64_t flags, int status, const char *want)
{
    CUdriverProcAddressQueryResult got = (CUdriverProcAddressQueryResult)77;
    void *p = (void *)1;
    CUresult result = cu.GetProcAddress_v2(name, &p, version, flags, &got);
    char label[160];

    snprintf(label, sizeof(label), "\"%s\" %d flags %d: %s", name, version, (int)flags,
             !want ? "none" : want);
    check_true(result == CUDA_SUCCESS && (int)got == status && p == (!want ? NULL : symbol(want)),
               label);
}

int main(void)
{
    const int found = 0, unknown = 1, too_old = 2;
    void *p = NULL;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    CUdeviceptr memory = 0;

    driver_open("drv_get_proc_address");
    ask("cuInit", 2000, 0, found, "cuInit");
    ask("cuMemAlloc", 2000, 0, found, "cuMemAlloc");
    ask("cuMemAlloc", 3020, 0, found, "cuMemAlloc_v2");
    ask("cuMemAlloc", 12000, 0, found, "cuMemAlloc_v2");
    ask("cuMemAlloc", 13000, 0, found, "cuMemAlloc_v2");
    ask("cuMemAlloc", 1000, 0, too_old, NULL);
    ask("cuMemAlloc_v2", 12000, 0, unknown, NULL);
    ask("cuNoSuchFunction", 12000, 0, unknown, NULL);
    ask("", 12000, 0, unknown, NULL);
    ask("cuCtxCreate", 3020, 0, found, "cuCtxCreate_v2");
    ask("cuCtxCreate", 11040, 0, found, "cuCtxCreate_v3");
    ask("cuStreamBeginCapture", 10000, 0, found, "cuStreamBeginCapture");
    ask("cuStreamBeginCapture", 10010, 1, found, "cuStreamBeginCapture_v2");
    ask("cuLaunchKernel", 7000, 0, found, "cuLaunchKernel");
    ask("cuLaunchKernel", 7000, 2, found, "cuLaunchKernel_ptsz");
    ask("cuLaunchKernel", 6000, 2, too_old, NULL);
    ask("cuMemcpyHtoD", 7000, 2, found, "cuMemcpyHtoD_v2_ptds");
    ask("cuMemAlloc", 7000, 2, found, "cuMemAlloc_v2");
    ask("cuGetProcAddress", 11030, 0, found, "cuGetProcAddress");
    ask("cuGetProcAddress", 12000, 0, found, "cuGetProcAddress_v2");
    check_code(cu.GetProcAddress_v2("cuInit", &p, 12000, 64, &status), CUDA_ERROR_INVALID_VALUE,
               "unknown flags");
    check_true(!p && (int)status == 77, "which leave the results alone");
    check_code(cu.GetProcAddress_v2("cuInit", &p, 12000, 0, NULL), CUDA_SUCCESS,
               "no status wanted");
    check_true(p == symbol("cuInit"), "function found all the same");

    (void)driver_begin("drv_get_proc_address");
    DRV(cu.GetProcAddress_v2("cuMemAlloc", &p, 12000, 0, &status));
    __typeof__(&cuMemAlloc_v2) allocate = (__typeof__(&cuMemAlloc_v2))p;
    check_code(allocate(&memory, 4096), CUDA_SUCCESS, "a call through the pointer");
    DRV(cu.MemFree_v2(memory));
    return driver_end();
}

/* The least a program does: from cuInit to the first kernel's result. For measuring the start. */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

int main(void)
{
    CUmodule module;
    CUdeviceptr memory;
    uint32_t word = 5;
    uint32_t n = 1;
    uint32_t a = 7;
    uint32_t b = 3;
    driver_begin("e2e_minimal");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    DRV(cu.MemAlloc_v2(&memory, sizeof(word)));
    DRV(cu.MemcpyHtoD_v2(memory, &word, sizeof(word)));
    void *params[] = {&memory, &n, &a, &b};
    driver_launch(driver_function(module, "mix"), 1, 32, NULL, params);
    DRV(cu.MemcpyDtoH_v2(&word, memory, sizeof(word)));
    check_int(word, 38, "the kernel's result");
    return check_end();
}

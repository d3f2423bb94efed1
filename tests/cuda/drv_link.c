/* The driver's linker: two PTX texts become one program; a missing half is an error. */
#include "check_driver.h"

CHECK_EMBED(main_ptx, "link_main.ptx");
CHECK_EMBED(part_ptx, "link_part.ptx");

static size_t text_bytes(const char *text)
{
    return strlen(text) + 1;
}

static CUresult add(CUlinkState link, const char *text, const char *name)
{
    return cu.LinkAddData_v2(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, text_bytes(text),
                             name, 0, NULL, NULL);
}

int main(void)
{
    static char log[4096];
    CUlinkState link = NULL;
    CUmodule module;
    CUdeviceptr device;
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof(log)}, *image = NULL;
    size_t bytes = 0;
    int out[32], good = 1;

    driver_begin("drv_link");
    DRV(cu.LinkCreate_v2(2, options, values, &link));
    DRV(add(link, main_ptx, "main"));
    DRV(add(link, part_ptx, "part"));
    DRV(cu.LinkComplete(link, &image, &bytes));
    check_true(image && bytes > 0, "an image of some size");
    DRV(cu.ModuleLoadData(&module, image));
    DRV(cu.LinkDestroy(link));
    DRV(cu.MemAlloc_v2(&device, sizeof(out)));
    void *params[] = {&device};
    driver_launch(driver_function(module, "link_main"), 1, 32, NULL, params);
    DRV(cu.MemcpyDtoH_v2(out, device, sizeof(out)));
    for (int i = 0; i < 32; i++) {
        good &= out[i] == i * i - 7 + 1000;
    }
    check_true(good, "kernel calls a function of the other text");
    DRV(cu.ModuleUnload(module));

    values[1] = (void *)(uintptr_t)sizeof(log);
    DRV(cu.LinkCreate_v2(2, options, values, &link));
    CUresult result = add(link, main_ptx, "main");
    if (result == CUDA_SUCCESS) {
        result = cu.LinkComplete(link, &image, &bytes);
    }
    check_true(result != CUDA_SUCCESS, "half a program is refused");
    DRV(cu.LinkDestroy(link));
    check_code(cu.CtxSynchronize(), CUDA_SUCCESS, "and does no harm");
    DRV(cu.MemFree_v2(device));
    return driver_end();
}

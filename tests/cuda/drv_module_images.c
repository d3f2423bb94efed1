/* The same kernels as PTX, fatbin and cubin, through modules and libraries. */
#include "check_driver.h"

CHECK_EMBED(image_ptx, "basic.ptx");
CHECK_EMBED(image_fatbin, "basic.fatbin");
CHECK_EMBED(image_cubin, "basic.cubin");

static int works(CUmodule module)
{
    CUdeviceptr device;
    unsigned value = 40, n = 100, got[100];
    int good = 1;

    DRV(cu.MemAlloc_v2(&device, sizeof(got)));
    void *params[] = {&device, &value, &n};
    driver_launch(driver_function(module, "fill"), 1, 128, NULL, params);
    DRV(cu.MemcpyDtoH_v2(got, device, sizeof(got)));
    DRV(cu.MemFree_v2(device));
    for (unsigned i = 0; i < 100; i++) {
        good &= got[i] == 40 + i;
    }
    return good;
}

static void through_module(const char *image, const char *label)
{
    CUmodule module;

    DRV(cu.ModuleLoadData(&module, image));
    check_true(works(module), label);
    DRV(cu.ModuleUnload(module));
}

int main(void)
{
    CUmodule module;
    CUlibrary library;
    CUresult result;

    driver_begin("drv_module_images");
    through_module(image_ptx, "PTX");
    through_module(image_fatbin, "fatbin");
    DRV(cu.ModuleLoadFatBinary(&module, image_fatbin));
    check_true(works(module), "fatbin by its own call");
    DRV(cu.ModuleUnload(module));
    DRV(cu.LibraryLoadData(&library, image_fatbin, NULL, NULL, 0, NULL, NULL, 0));
    DRV(cu.LibraryGetModule(&module, library));
    check_true(works(module), "fatbin as a library");
    DRV(cu.LibraryUnload(library));
    /* A cubin is for one architecture: elsewhere the right answer is that it does not fit. */
    result = cu.ModuleLoadData(&module, image_cubin);
    check_true(result == CUDA_ERROR_NO_BINARY_FOR_GPU || (result == CUDA_SUCCESS && works(module)),
               "cubin");
    return driver_end();
}

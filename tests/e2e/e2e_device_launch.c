/*
 * A program whose file says that its kernels launch kernels. With an argument it starts such a
 * kernel, too, which no software device can run: the driver says so as it would under MPS.
 */
#include "tests/cuda/check_driver.h"
#include "tests/lib/tl_device_launch.h"

static const char ptx[] = ".version 6.4\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".extern .func (.param .b32 r) cudaLaunchDeviceV2"
                          "(.param .b64 block, .param .b64 stream);\n"
                          ".visible .entry child() { ret; }\n"
                          ".visible .entry parent()\n"
                          "{\n"
                          "    .reg .b32 %r;\n"
                          "    .reg .b64 %d;\n"
                          "    mov.u64 %d, 0;\n"
                          "    call (%r), cudaLaunchDeviceV2, (%d, %d);\n"
                          "    ret;\n"
                          "}\n";

int main(int argc, char **argv)
{
    CUmodule module;

    (void)argv;
    driver_begin("e2e_device_launch");
    DRV(cu.ModuleLoadData(&module, ptx));
    driver_launch(driver_function(module, "child"), 1, 1, NULL, NULL);
    DRV(cu.CtxSynchronize());
    if (argc > 1) {
        CUfunction parent = driver_function(module, "parent");
        CUresult at_once = cu.LaunchKernel(parent, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        CUresult later = cu.CtxSynchronize();
        check_code(at_once ? at_once : later, CUDA_ERROR_CDP_NOT_SUPPORTED,
                   "a kernel that launches one");
    }
    return check_end();
}

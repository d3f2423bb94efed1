/* Modules from PTX text and from a file, their globals, what is not found, two copies at once. */
#include <unistd.h>

#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

static unsigned use_globals(CUmodule module, int *out)
{
    CUdeviceptr device, counter;
    size_t bytes = 0;
    unsigned count = 0;

    DRV(cu.MemAlloc_v2(&device, 16 * sizeof(int)));
    void *params[] = {&device};
    driver_launch(driver_function(module, "use_globals"), 1, 16, NULL, params);
    DRV(cu.MemcpyDtoH_v2(out, device, 16 * sizeof(int)));
    DRV(cu.ModuleGetGlobal_v2(&counter, &bytes, module, "counter"));
    DRV(cu.MemcpyDtoH_v2(&count, counter, sizeof(count)));
    DRV(cu.MemFree_v2(device));
    return count;
}

static int squares(const int *out, int factor)
{
    int good = 1;

    for (int i = 0; i < 16; i++) {
        good &= out[i] == i * i * factor;
    }
    return good;
}

static void from_file(void)
{
    char path[] = "/tmp/weir-module-XXXXXX";
    int file = mkstemp(path), out[16];
    size_t bytes = strlen(basic_ptx);
    CUmodule module;

    if (file < 0 || write(file, basic_ptx, bytes) != (ssize_t)bytes) {
        check_die("cannot write %s", path);
    }
    close(file);
    DRV(cu.ModuleLoad(&module, path));
    unlink(path);
    (void)use_globals(module, out);
    check_true(squares(out, 3), "module from a file");
    DRV(cu.ModuleUnload(module));
    check_code(cu.ModuleLoad(&module, path), CUDA_ERROR_FILE_NOT_FOUND, "no such file");
}

int main(void)
{
    CUmodule module, second;
    CUfunction function = NULL;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    int out[16], factor = 10;
    unsigned chained = 0;

    driver_begin("drv_modules");
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    check_int(use_globals(module, out), 16, "device variable counts");
    check_true(squares(out, 3), "initialisers of a table and a constant");
    DRV(cu.ModuleGetGlobal_v2(&address, &bytes, module, "factor"));
    check_int((long long)bytes, 4, "size of the constant");
    DRV(cu.MemcpyHtoD_v2(address, &factor, sizeof(factor)));
    check_int(use_globals(module, out), 32, "counts on");
    check_true(squares(out, 10), "constant written by the host");
    DRV(cu.ModuleGetGlobal_v2(NULL, &bytes, module, "table"));
    check_int((long long)bytes, 64, "size alone");
    DRV(cu.ModuleGetGlobal_v2(&address, NULL, module, "table"));
    check_code(cu.ModuleGetFunction(&function, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND,
               "no such kernel");
    check_code(cu.ModuleGetGlobal_v2(&address, &bytes, module, "no_such_variable"),
               CUDA_ERROR_NOT_FOUND, "no such variable");

    DRV(cu.ModuleLoadData(&second, basic_ptx));
    check_int(use_globals(second, out), 16, "a second copy has its own variables");
    check_true(squares(out, 3), "and its own constants");
    DRV(cu.ModuleUnload(module));
    check_int(use_globals(second, out), 32, "it outlives the first");
    DRV(cu.MemAlloc_v2(&address, 4));
    DRV(cu.MemsetD32_v2(address, 1, 1));
    unsigned one = 1;
    void *params[] = {&address, &one};
    for (int i = 0; i < 10; i++) {
        driver_launch(driver_function(second, "chain"), 1, 32, NULL, params);
    }
    DRV(cu.MemcpyDtoH_v2(&chained, address, 4));
    check_int(chained, 88573, "ten launches in a row");
    DRV(cu.ModuleUnload(second));
    from_file();
    return driver_end();
}

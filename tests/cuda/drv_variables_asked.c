/* Variables whose addresses a program has asked for: it gives a kernel one of them, and writes and
 * reads both itself. Of a module, and of a library that was loaded before it.
 *
 * drv_variables_asked unload   the library goes first, so that the module's lie where no other
 *                              worker has them (tests/e2e/test_rebuild.py). */
#include "check_driver.h"

CHECK_EMBED(variables_asked_ptx, "variables_asked.ptx");

enum { ROUNDS = 5 };

struct code {
    CUfunction add;
    CUdeviceptr step, count;
    uint32_t want;
};

static void round_of(struct code *c, uint32_t step, const char *what)
{
    uint32_t got;
    void *params[] = {&c->count};

    DRV(cu.MemcpyHtoD_v2(c->step, &step, sizeof(step)));
    driver_rest();
    driver_launch(c->add, 1, 1, NULL, params);
    driver_rest();
    c->want += step;
    DRV(cu.MemcpyDtoH_v2(&got, c->count, sizeof(got)));
    check_int(got, c->want, what);
}

int main(int argc, char **argv)
{
    struct code of_library = {0}, of_module = {0};
    CUdeviceptr again;
    CUlibrary library;
    CUmodule module;
    CUkernel kernel;
    size_t bytes;

    driver_begin("drv_variables_asked");
    DRV(cu.LibraryLoadData(&library, variables_asked_ptx, NULL, NULL, 0, NULL, NULL, 0));
    DRV(cu.LibraryGetKernel(&kernel, library, "add"));
    DRV(cu.KernelGetFunction(&of_library.add, kernel));
    DRV(cu.LibraryGetGlobal(&of_library.count, &bytes, library, "count"));
    check_int(bytes, sizeof(uint32_t), "the size of a library's variable");
    DRV(cu.LibraryGetGlobal(&of_library.step, &bytes, library, "step"));
    DRV(cu.ModuleLoadData(&module, variables_asked_ptx));
    of_module.add = driver_function(module, "add");
    DRV(cu.ModuleGetGlobal_v2(&of_module.count, &bytes, module, "count"));
    DRV(cu.ModuleGetGlobal_v2(&of_module.step, &bytes, module, "step"));
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        round_of(&of_library, i, "a library's, in which the program has set a constant");
        round_of(&of_module, 10 * i, "a module's");
        DRV(cu.ModuleGetGlobal_v2(&again, &bytes, module, "count"));
        check_true(again == of_module.count, "it lies where it lay");
    }
    if (argc > 1 && strcmp(argv[1], "unload") == 0) {
        DRV(cu.LibraryUnload(library));
        for (uint32_t i = 1; i <= ROUNDS; i++) {
            round_of(&of_module, i, "a module's, without the library");
        }
        DRV(cu.ModuleUnload(module));
        return driver_end();
    }
    DRV(cu.ModuleUnload(module));
    round_of(&of_library, 7, "a library's, without the module");
    DRV(cu.LibraryUnload(library));
    return driver_end();
}

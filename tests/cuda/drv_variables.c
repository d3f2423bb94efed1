/* Variables that a program's kernels change and read, and whose addresses it never asks for: of a
 * module, of a library, of two modules of one text, and one that holds another's address. */
#include "check_driver.h"

CHECK_EMBED(variables_ptx, "variables.ptx");
CHECK_EMBED(variables_kept_ptx, "variables_kept.ptx");

enum { WORDS = 1024, ROUNDS = 4 };

struct shown {
    uint32_t table[WORDS], sum, odd;
    double mean;
};

struct code {
    CUfunction change, show;
    struct shown want;
};

static CUdeviceptr out;

static void begin(struct code *c)
{
    c->want = (struct shown){.table = {7, 9}, .mean = 0.5};
}

static void change(struct code *c, uint32_t n)
{
    void *params[] = {&n};

    driver_launch(c->change, 1, WORDS, NULL, params);
    driver_rest();
    for (uint32_t i = 0; i < WORDS; i++) {
        c->want.table[i] += 3 * (i + n);
    }
    c->want.sum += n;
    c->want.odd += 1;
    c->want.mean += n;
}

static void compare(const struct code *c, const char *what)
{
    struct shown got;
    void *params[] = {&out};

    driver_launch(c->show, 1, WORDS, NULL, params);
    DRV(cu.MemcpyDtoH_v2(&got, out, sizeof(got)));
    check_true(memcmp(&got, &c->want, sizeof(got)) == 0, what);
}

static struct code of_module(CUmodule *module)
{
    struct code c;

    DRV(cu.ModuleLoadData(module, variables_ptx));
    c.change = driver_function(*module, "change");
    c.show = driver_function(*module, "show");
    begin(&c);
    return c;
}

static struct code of_library(CUlibrary *library)
{
    struct code c;
    CUkernel kernel;

    DRV(cu.LibraryLoadData(library, variables_ptx, NULL, NULL, 0, NULL, NULL, 0));
    DRV(cu.LibraryGetKernel(&kernel, *library, "change"));
    DRV(cu.KernelGetFunction(&c.change, kernel));
    DRV(cu.LibraryGetKernel(&kernel, *library, "show"));
    DRV(cu.KernelGetFunction(&c.show, kernel));
    begin(&c);
    return c;
}

static void kept_address(void)
{
    CUmodule module;
    CUfunction use;
    void *params[] = {&out};
    uint32_t got;

    DRV(cu.ModuleLoadData(&module, variables_kept_ptx));
    use = driver_function(module, "use");
    driver_launch(driver_function(module, "keep"), 1, 1, NULL, NULL);
    driver_rest();
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        driver_launch(use, 1, 1, NULL, params);
        DRV(cu.MemcpyDtoH_v2(&got, out, sizeof(got)));
        check_int(got, round, "a variable through its address in another");
    }
    DRV(cu.ModuleUnload(module));
}

int main(void)
{
    struct code first, second, third;
    CUmodule modules[2];
    CUlibrary library;

    driver_begin("drv_variables");
    DRV(cu.MemAlloc_v2(&out, sizeof(struct shown)));
    first = of_module(&modules[0]);
    compare(&first, "as the module was loaded");
    second = of_module(&modules[1]);
    third = of_library(&library);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        change(&first, round);
        compare(&first, "a module's");
        change(&second, 10 * round);
        change(&third, 100 * round);
        compare(&second, "another module's of the same text");
        compare(&third, "a library's");
        compare(&first, "unchanged by the others");
    }
    DRV(cu.ModuleUnload(modules[0]));
    DRV(cu.LibraryUnload(library));
    first = of_module(&modules[0]);
    compare(&first, "as it was loaded again");
    kept_address();
    compare(&second, "what has outlived the others");
    DRV(cu.MemFree_v2(out));
    return driver_end();
}

/*
 * A program whose kernel faults, and which goes on asking: the error comes at the first
 * synchronising call and at every later one, also once the host has replaced its worker.
 *
 *     e2e_fault address | misaligned
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

#include <time.h>

#define LATER_MS 1500 /* by then the faulted worker is gone */

static void sleep_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static void every_call(CUdeviceptr block, CUresult want, const char *when)
{
    uint32_t word = 0;
    CUdeviceptr other = 0;
    char line[64];

    snprintf(line, sizeof line, "synchronise %s", when);
    check_code(cu.CtxSynchronize(), want, line);
    snprintf(line, sizeof line, "allocate %s", when);
    check_code(cu.MemAlloc_v2(&other, 4096), want, line);
    snprintf(line, sizeof line, "copy %s", when);
    check_code(cu.MemcpyDtoH_v2(&word, block, sizeof word), want, line);
}

int main(int argc, char **argv)
{
    uint32_t n = 1, a = 1, b = 1;
    CUdeviceptr block = 0, bad;
    CUmodule module;
    CUresult want;

    if (argc != 2) {
        fprintf(stderr, "usage: e2e_fault address | misaligned\n");
        return 2;
    }
    driver_begin("e2e_fault");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    DRV(cu.MemAlloc_v2(&block, 4096));
    int misaligned = strcmp(argv[1], "misaligned") == 0;
    bad = misaligned ? block + 2 : 16;
    want = misaligned ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    void *params[] = {&bad, &n, &a, &b};
    driver_launch(driver_function(module, "mix"), 1, 1, NULL, params);
    every_call(block, want, "after the fault");
    every_call(block, want, "again");
    sleep_ms(LATER_MS);
    every_call(block, want, "when the worker is gone");
    return check_end();
}

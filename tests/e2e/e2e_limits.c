/*
 * A program lowers and raises the limits of its context, as it could natively.
 *
 * e2e_limits charged: what it raises counts as its memory, of which it has a quota of 64 MiB. With
 * "shared" behind that, others have the context, too: then it only grows.
 */
#include "tests/cuda/check_driver.h"

#include <stdbool.h>
#include <string.h>

#define QUOTA_BYTES ((size_t)64 << 20)
#define HEAP_BYTES  ((size_t)40 << 20)

static void go_up_and_down(void)
{
    static const struct {
        CUlimit limit;
        size_t bytes;
    } rows[] = {{CU_LIMIT_STACK_SIZE, 4096},
                {CU_LIMIT_MALLOC_HEAP_SIZE, 4u << 20},
                {CU_LIMIT_MALLOC_HEAP_SIZE, 64u << 20},
                {CU_LIMIT_PRINTF_FIFO_SIZE, 2u << 20}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t now = 0;

        DRV(cu.CtxSetLimit(rows[i].limit, rows[i].bytes));
        DRV(cu.CtxGetLimit(&now, rows[i].limit));
        check_int((long long)now, (long long)rows[i].bytes, "the limit is as it was set");
    }
}

static size_t free_bytes(void)
{
    size_t available = 0, total = 0;

    DRV(cu.MemGetInfo_v2(&available, &total));
    check_int((long long)total, (long long)QUOTA_BYTES, "the quota");
    return available;
}

static void are_charged(bool shared)
{
    static const struct {
        CUlimit limit;
        size_t value;
        CUresult result;
    } rows[] = {{CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)1 << 30, CUDA_ERROR_OUT_OF_MEMORY},
                {CU_LIMIT_MALLOC_HEAP_SIZE, SIZE_MAX, CUDA_ERROR_OUT_OF_MEMORY},
                {CU_LIMIT_PRINTF_FIFO_SIZE, (size_t)64 << 20, CUDA_ERROR_OUT_OF_MEMORY},
                {CU_LIMIT_PRINTF_FIFO_SIZE, (size_t)1 << 30, CUDA_ERROR_INVALID_VALUE},
                {CU_LIMIT_STACK_SIZE, 512u << 10, CUDA_ERROR_OUT_OF_MEMORY},
                {CU_LIMIT_STACK_SIZE, (size_t)1 << 40, CUDA_ERROR_INVALID_VALUE},
                {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 65536, CUDA_ERROR_OUT_OF_MEMORY},
                {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 1u << 30, CUDA_ERROR_INVALID_VALUE}};
    size_t before = free_bytes(), heap = 0, now = 0;

    DRV(cu.CtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE));
    DRV(cu.CtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, HEAP_BYTES));
    check_int((long long)(before - free_bytes()), (long long)(HEAP_BYTES - heap),
              "what the heap grew by is charged");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CUresult wanted = rows[i].result;

        if (shared && rows[i].limit == CU_LIMIT_MALLOC_HEAP_SIZE && rows[i].value == SIZE_MAX) {
            wanted = CUDA_ERROR_INVALID_VALUE;
        }
        check_int(cu.CtxSetLimit(rows[i].limit, rows[i].value), wanted, "a limit that is too much");
    }
    check_int((long long)(before - free_bytes()), (long long)(HEAP_BYTES - heap),
              "what was refused is not charged");
    DRV(cu.CtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap));
    DRV(cu.CtxGetLimit(&now, CU_LIMIT_MALLOC_HEAP_SIZE));
    check_int((long long)now, (long long)(shared ? HEAP_BYTES : heap), "the heap then");
    check_int((long long)(before - free_bytes()), (long long)(shared ? HEAP_BYTES - heap : 0),
              "what is charged then");
}

int main(int argc, char **argv)
{
    driver_begin("e2e_limits");
    if (argc > 1 && strcmp(argv[1], "charged") == 0) {
        are_charged(argc > 2);
    } else {
        go_up_and_down();
    }
    return check_end();
}

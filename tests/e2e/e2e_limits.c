/* A program that has a context of its own lowers and raises its limits, as it could natively. */
#include "tests/cuda/check_driver.h"

int main(void)
{
    static const struct {
        CUlimit limit;
        size_t bytes;
    } rows[] = {{CU_LIMIT_STACK_SIZE, 4096},
                {CU_LIMIT_MALLOC_HEAP_SIZE, 4u << 20},
                {CU_LIMIT_MALLOC_HEAP_SIZE, 64u << 20},
                {CU_LIMIT_PRINTF_FIFO_SIZE, 2u << 20}};

    driver_begin("e2e_limits");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t now = 0;

        DRV(cu.CtxSetLimit(rows[i].limit, rows[i].bytes));
        DRV(cu.CtxGetLimit(&now, rows[i].limit));
        check_int((long long)now, (long long)rows[i].bytes, "the limit is as it was set");
    }
    return check_end();
}

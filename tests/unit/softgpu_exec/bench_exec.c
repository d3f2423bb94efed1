/*
 * How fast the engine is: thread-instructions per second of one core, and what a small launch
 * costs.
 *
 * A grid of one block runs on the thread that launches it, so the former is by that thread's own
 * processor time, whatever else the machine does.
 */
#include "fixture.h"

#include "tests/lib/tl_cmocka.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

static double clock_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Instructions of one turn of each kernel's loop, counted in the PTX (unrolled by 4). */
static void throughput(void **state)
{
    (void)state;
    struct weir_exec_device *device = tx_device();
    struct weir_exec_module *module = tx_load(device, "basic.ptx");
    static const struct {
        const char *kernel;
        double per_turn;
    } cases[] = {{"spin", 3.75}, {"fma_chain", 5.25}};
    int *p = tx_alloc(1024 * 4);
    for (int c = 0; c < 2; c++) {
        for (uint32_t threads = 1; threads <= 256; threads = threads == 1 ? 32 : threads * 8) {
            struct {
                void *p;
                int n;
            } params = {p, threads == 1 ? 400000 : 100000};
            double start = clock_s(CLOCK_THREAD_CPUTIME_ID);
            tx_must(device, module, cases[c].kernel,
                    (struct tx_launch){.grid = 1, .block = threads}, &params, 12);
            double s = clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
            double n = cases[c].per_turn * params.n * threads;
            print_message("%-10s %3u threads: %8.1f million thread-instructions/s\n",
                          cases[c].kernel, threads, n / s * 1e-6);
            assert_true(n / s > 0);
        }
    }
    tx_free(p);
    weir_exec_module_destroy(module);
    weir_exec_device_destroy(device);
}

/* Ordinary code, a block of 256 threads: the instructions of a turn stand in bench.ptx. */
static void ordinary(void **state)
{
    (void)state;
    struct weir_exec_device *device = tx_device();
    struct weir_exec_module *module = tx_load(device, "bench.ptx");
    static const struct {
        const char *kernel;
        uint32_t per_turn, turns;
    } cases[] = {{"saxpy", 11, 20000},  {"tiled", 30, 8000},    {"hash", 14, 20000},
                 {"diverge", 9, 5000},  {"histogram", 8, 5000}, {"shuffle", 13, 10000},
                 {"special", 11, 3000}, {"halves", 9, 3000},    {"matrices", 4, 300}};
    float *data = tx_alloc(65536);
    double product = 1;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct {
            void *data;
            uint32_t turns;
        } params = {data, cases[c].turns};
        double start = clock_s(CLOCK_THREAD_CPUTIME_ID);
        tx_must(device, module, cases[c].kernel, (struct tx_launch){.grid = 1, .block = 256},
                &params, 12);
        double s = clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
        double rate = (double)cases[c].per_turn * cases[c].turns * 256 / s;
        product *= rate;
        print_message("%-10s 256 threads: %8.1f million thread-instructions/s\n", cases[c].kernel,
                      rate * 1e-6);
        assert_true(rate > 0);
    }
    print_message("geometric mean: %.1f million thread-instructions/s\n",
                  exp(log(product) / (double)(sizeof cases / sizeof cases[0])) * 1e-6);
    tx_free(data);
    weir_exec_module_destroy(module);
    weir_exec_device_destroy(device);
}

static void latency(void **state)
{
    (void)state;
    struct weir_exec_device *device = tx_device();
    struct weir_exec_module *module = tx_load(device, "basic.ptx");
    for (uint32_t blocks = 1; blocks <= 8; blocks *= 8) {
        enum { N = 2000 };
        double start = clock_s(CLOCK_MONOTONIC);
        for (int i = 0; i < N; i++) {
            tx_must(device, module, "nothing", (struct tx_launch){.grid = blocks, .block = 128},
                    NULL, 0);
        }
        print_message("launch and wait, %u blocks of 128: %.2f us\n", blocks,
                      (clock_s(CLOCK_MONOTONIC) - start) / N * 1e6);
    }
    weir_exec_module_destroy(module);
    weir_exec_device_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(throughput), cmocka_unit_test(ordinary),
                                       cmocka_unit_test(latency)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Whole kernels as nvcc makes them: scheduling, memory spaces, faults, text. */
#include "fixture.h"

#include "tests/lib/tl_cmocka.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct weir_exec_device *device;
static struct weir_exec_module *module;

static int set_up(void **state)
{
    (void)state;
    device = tx_device();
    module = tx_load(device, "basic.ptx");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_exec_module_destroy(module);
    weir_exec_device_destroy(device);
    return 0;
}

#define RUN(kernel, n_blocks, n_threads, ...)                                                      \
    tx_must(device, module, kernel, (struct tx_launch){.grid = (n_blocks), .block = (n_threads)},  \
            __VA_ARGS__)

static void vadd_adds(void **state)
{
    (void)state;
    enum { N = 10000 };
    float *a = tx_alloc(N * 4);
    float *b = tx_alloc(N * 4);
    float *c = tx_alloc(N * 4);
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = 0.5f * (float)i;
    }
    struct {
        void *a, *b, *c;
        int n;
    } params = {a, b, c, N};
    RUN("vadd", 40, 256, &params, 28);
    for (int i = 0; i < N; i++) {
        assert_true(c[i] == 1.5f * (float)i);
    }
    tx_free(a);
    tx_free(b);
    tx_free(c);
}

static void block_sum_meets_barriers(void **state)
{
    (void)state;
    int *in = tx_alloc(8 * 256 * 4);
    int *out = tx_alloc(8 * 4);
    for (int i = 0; i < 8 * 256; i++) {
        in[i] = i % 97;
    }
    void *params[] = {in, out};
    RUN("block_sum", 8, 256, params, 16);
    for (int b = 0; b < 8; b++) {
        int sum = 0;
        for (int i = 0; i < 256; i++) {
            sum += in[b * 256 + i];
        }
        assert_int_equal(out[b], sum);
    }
    tx_free(in);
    tx_free(out);
}

static void shuffles_exchange(void **state)
{
    (void)state;
    int *out = tx_alloc(192 * 4);
    void *params[] = {out};
    RUN("shuffles", 1, 32, params, 8);
    int sum = 0;
    uint32_t thirds = 0;
    for (int t = 0; t < 32; t++) {
        sum += t * 3 + 1;
        thirds |= t % 3 == 0 ? 1u << t : 0;
    }
    for (int t = 0; t < 32; t++) {
        assert_int_equal(out[t], sum);
        assert_int_equal(out[32 + t], t < 3 ? t : t - 3);
        assert_int_equal(out[64 + t], t % 8 + 5 < 8 ? t + 5 : t);
        assert_int_equal(out[96 + t], t / 16 * 16 + 7);
        assert_int_equal((uint32_t)out[128 + t], thirds);
        assert_int_equal(out[160 + t], 1);
    }
    tx_free(out);
}

static void divergent_shuffle_meets_its_members(void **state)
{
    (void)state;
    int *out = tx_alloc(32 * 4);
    void *params[] = {out};
    RUN("divergent_shuffle", 1, 32, params, 8);
    for (int t = 0; t < 32; t++) {
        assert_int_equal(out[t], (t & 1) != 0 ? t ^ 2 : (t ^ 2) * 10);
    }
    tx_free(out);
}

static void histogram_counts_under_contention(void **state)
{
    (void)state;
    uint32_t *bins = tx_alloc(64);
    uint32_t *total = tx_alloc(8);
    float *fsum = tx_alloc(4);
    double *dsum = tx_alloc(8);
    void *params[] = {bins, total, fsum, dsum};
    RUN("histogram", 64, 128, params, 32);
    for (int b = 0; b < 16; b++) {
        assert_int_equal(bins[b], 64 * 128 / 16);
    }
    assert_int_equal(total[0], 64 * 128 - 1);
    assert_int_equal(total[1], 64 * 128 % 100);
    assert_true(*fsum == 64 * 128 * 0.5f);
    assert_true(*dsum == 64 * 128 * 0.25);
    tx_free(bins);
    tx_free(total);
    tx_free(fsum);
    tx_free(dsum);
}

static void printf_formats(void **state)
{
    (void)state;
    int n = 3;
    RUN("hello", 1, 3, &n, 4);
    assert_string_equal(tx_text, "t0 of 3: text  0.00 z %ff -1\n"
                                 "t1 of 3: text  1.50 z %ff -1\n"
                                 "t2 of 3: text  3.00 z %ff -1\n");
}

static void locks_within_a_warp_make_progress(void **state)
{
    (void)state;
    static const char *const kernels[] = {"spin_lock", "spin_lock_naive"};
    for (int k = 0; k < 2; k++) {
        int *lock = tx_alloc(4);
        int *count = tx_alloc(4);
        void *params[] = {lock, count};
        RUN(kernels[k], 4, 64, params, 16);
        assert_int_equal(*count, 256);
        tx_free(lock);
        tx_free(count);
    }
}

static void blocks_wait_for_later_blocks(void **state)
{
    (void)state;
    int *flags = tx_alloc(12 * 4);
    void *params[] = {flags};
    RUN("chain", 12, 32, params, 8);
    for (int b = 0; b < 12; b++) {
        assert_int_equal(flags[b], b + 1);
    }
    tx_free(flags);
}

static void exited_threads_count_as_arrived(void **state)
{
    (void)state;
    int *out = tx_alloc(128 * 4);
    void *params[] = {out};
    RUN("early_exit", 1, 128, params, 8);
    for (int t = 0; t < 128; t++) {
        int other = (t ^ 1) % 3 == 0 ? 0 : t ^ 1;
        assert_int_equal(out[t], t % 3 == 0 ? 0 : other + t);
    }
    tx_free(out);
}

static void barrier_reduces(void **state)
{
    (void)state;
    int *out = tx_alloc(128 * 4);
    void *params[] = {out};
    RUN("barrier_votes", 1, 128, params, 8);
    for (int t = 0; t < 128; t++) {
        assert_int_equal(out[t], 26 * 4 + 0 * 2 + 1);
    }
    tx_free(out);
}

static void fault_codes_are_cudas(void **state)
{
    (void)state;
    int *p = tx_alloc(4096);
    struct {
        void *p;
        int64_t at;
    } params = {p, 1024};
    const struct {
        const char *kernel;
        uint32_t threads;
        uint32_t code;
        uint64_t address;
    } cases[] = {{"oob", 1, 700, (uintptr_t)p + 4096},
                 {"misaligned", 1, 716, (uintptr_t)p + 1},
                 {"trap_kernel", 64, 719, 0},
                 {"deadlock", 64, 719, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct weir_exec_fault fault = {0};
        enum weir_status status =
            tx_run(device, module, cases[c].kernel,
                   (struct tx_launch){.grid = 1, .block = cases[c].threads}, &params, 16, &fault);
        print_message("%s: %s\n", cases[c].kernel, fault.message);
        assert_int_equal(status, WEIR_ERR_DRIVER);
        assert_int_equal(fault.code, cases[c].code);
        assert_int_equal(fault.address, cases[c].address);
        assert_true(fault.line > 0);
    }
    tx_free(p);
}

static void assert_prints_and_faults(void **state)
{
    (void)state;
    struct weir_exec_module *m = tx_load(device, "assert.ptx");
    int *p = tx_alloc(64);
    p[5] = 1;
    void *params[] = {p};
    struct weir_exec_fault fault = {0};
    assert_int_equal(
        tx_run(device, m, "check", (struct tx_launch){.grid = 1, .block = 8}, params, 8, &fault),
        WEIR_ERR_DRIVER);
    assert_int_equal(fault.code, 710);
    assert_non_null(strstr(tx_text, "assert.cu:"));
    assert_non_null(strstr(tx_text,
                           "block: [0,0,0], thread: [5,0,0] Assertion `p[threadIdx.x] == 0` "
                           "failed."));
    tx_free(p);
    weir_exec_module_destroy(m);
}

static void heap_gives_and_takes(void **state)
{
    (void)state;
    int **out = tx_alloc(64 * sizeof(int *));
    void *params[] = {out};
    RUN("heap", 2, 32, params, 8);
    for (int t = 0; t < 32; t += 2) {
        for (int i = 0; i < 10; i++) {
            assert_int_equal(out[t][i], i + t);
        }
    }
    tx_free(out);
}

static void calls_recurse_and_go_through_pointers(void **state)
{
    (void)state;
    static const int fib[12] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
    int *out = tx_alloc(64 * 4);
    void *params[] = {out};
    RUN("recursion", 1, 64, params, 8);
    for (int t = 0; t < 64; t++) {
        assert_int_equal(out[t], fib[t % 12]);
    }
    RUN("pointers", 1, 64, params, 8);
    for (int t = 0; t < 64; t++) {
        assert_int_equal(out[t], t % 3 == 0 ? t + 7 : t % 3 == 1 ? t * 7 : t - 7);
    }
    tx_free(out);
}

static void globals_are_initialised_and_kept(void **state)
{
    (void)state;
    float *out = tx_alloc(32 * 4);
    void *params[] = {out};
    struct weir_exec_global global;
    assert_int_equal(weir_exec_module_global(module, "counter", &global), WEIR_OK);
    assert_int_equal(global.bytes, 4);
    assert_int_equal(*(int *)(uintptr_t)global.address, 5);
    RUN("globals", 1, 32, params, 8);
    for (int t = 0; t < 32; t++) {
        assert_true(out[t] == 5.0f * (float)(t % 4 + 1));
    }
    assert_int_equal(*(int *)(uintptr_t)global.address, 6);
    assert_int_equal(weir_exec_module_global(module, "weights", &global), WEIR_OK);
    assert_true(global.constant);
    assert_int_equal(weir_exec_module_global(module, "absent", &global), WEIR_ERR_NOT_FOUND);
    tx_free(out);
}

static void spaces_are_told_apart(void **state)
{
    (void)state;
    int *out = tx_alloc(300 * 4);
    void *params[] = {out};
    out[64] = 42;
    RUN("generic_space", 1, 32, params, 8);
    for (int t = 0; t < 32; t++) {
        int want = t % 3 == 0 ? t * 3 + 1000 : t % 3 == 1 ? t * 2 : 42 + 2000;
        assert_int_equal(out[t], want);
    }
    struct {
        void *p;
        int n;
    } sized = {out, 300};
    tx_must(device, module, "dynamic_shared",
            (struct tx_launch){.grid = 1, .block = 64, .shared = 1200}, &sized, 12);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(out[i], (299 - i) * (299 - i));
    }
    sized.n = 3;
    RUN("local_array", 1, 32, &sized, 12);
    for (int t = 0; t < 32; t++) {
        int sum = 0;
        for (int i = 0; i < 32; i++) {
            sum += ((i * 7 + 3) % 32 * 3 + t) * i;
        }
        assert_int_equal(out[t], sum);
    }
    tx_free(out);
}

static void struct_parameters_keep_their_layout(void **state)
{
    (void)state;
    struct {
        struct {
            int v[9];
            double d;
        } big;
        double *out;
    } params = {{{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0.5}, tx_alloc(9 * 8)};
    RUN("struct_param", 1, 9, &params, sizeof params);
    for (int t = 0; t < 9; t++) {
        assert_true(params.out[t] == t + 1.5);
    }
    const struct weir_exec_kernel_info *info =
        weir_exec_kernel_info(weir_exec_module_kernel(module, "struct_param"));
    assert_int_equal(info->n_params, 2);
    assert_int_equal(info->params[0].bytes, 48);
    assert_int_equal(info->params[1].offset, 48);
    assert_int_equal(info->param_bytes, 56);
    tx_free(params.out);
}

static void cooperative_grids_synchronise(void **state)
{
    (void)state;
    struct weir_exec_module *m = tx_load(device, "coop.ptx");
    enum { N = 16 * 64 };
    int *a = tx_alloc(N * 4);
    int *b = tx_alloc(N * 4);
    void *params[] = {a, b};
    tx_must(device, m, "grid_sync",
            (struct tx_launch){.grid = 16, .block = 64, .cooperative = true}, params, 16);
    for (int i = 0; i < N; i++) {
        assert_int_equal(b[i], N - 1 - i);
        assert_int_equal(a[i], i + 1);
    }
    struct weir_exec_fault fault;
    assert_int_equal(tx_run(device, m, "grid_sync",
                            (struct tx_launch){.grid = 4096, .block = 64, .cooperative = true},
                            params, 16, &fault),
                     WEIR_ERR_INVALID);
    tx_free(a);
    tx_free(b);
    weir_exec_module_destroy(m);
}

struct cancelled {
    uint32_t cancel;
    int *p;
    uint32_t blocks;
    enum weir_status status;
};

static void *run_forever(void *arg)
{
    struct cancelled *c = arg;
    void *params[] = {c->p};
    struct weir_exec_fault fault;
    c->status = tx_run(device, module, "forever",
                       (struct tx_launch){.grid = c->blocks, .block = 32, .cancel = &c->cancel},
                       params, 8, &fault);
    return NULL;
}

static void cancel_ends_an_endless_grid(void **state)
{
    (void)state;
    for (uint32_t blocks = 1; blocks < 100; blocks += 70) {
        struct cancelled c = {.p = tx_alloc(4), .blocks = blocks};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, run_forever, &c), 0);
        __atomic_store_n(&c.cancel, 1, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
        assert_int_equal(c.status, WEIR_ERR_CLOSED);
        tx_free(c.p);
    }
}

static void kernels_are_listed_in_order(void **state)
{
    (void)state;
    uint32_t n = 0;
    while (weir_exec_module_kernel_at(module, n)) {
        const struct weir_exec_kernel_info *info =
            weir_exec_kernel_info(weir_exec_module_kernel_at(module, n++));
        if (info->unsupported) {
            fail_msg("%s: %s", info->name, info->unsupported);
        }
        assert_in_range(info->registers, 16, 255);
        assert_int_equal(info->target, 75);
    }
    assert_true(n > 25);
    const struct weir_exec_kernel *k = weir_exec_module_kernel(module, "block_sum");
    assert_int_equal(weir_exec_kernel_info(k)->static_shared_bytes, 1024);
    assert_int_equal(weir_exec_occupancy(device, k, 256, 0), 8);
    assert_int_equal(weir_exec_occupancy(device, k, 256, 232000), 0);
    assert_true(weir_exec_kernel_info(weir_exec_module_kernel(module, "hello"))->uses_printf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vadd_adds),
        cmocka_unit_test(block_sum_meets_barriers),
        cmocka_unit_test(shuffles_exchange),
        cmocka_unit_test(divergent_shuffle_meets_its_members),
        cmocka_unit_test(histogram_counts_under_contention),
        cmocka_unit_test(printf_formats),
        cmocka_unit_test(locks_within_a_warp_make_progress),
        cmocka_unit_test(blocks_wait_for_later_blocks),
        cmocka_unit_test(exited_threads_count_as_arrived),
        cmocka_unit_test(barrier_reduces),
        cmocka_unit_test(fault_codes_are_cudas),
        cmocka_unit_test(assert_prints_and_faults),
        cmocka_unit_test(heap_gives_and_takes),
        cmocka_unit_test(calls_recurse_and_go_through_pointers),
        cmocka_unit_test(globals_are_initialised_and_kept),
        cmocka_unit_test(spaces_are_told_apart),
        cmocka_unit_test(struct_parameters_keep_their_layout),
        cmocka_unit_test(cooperative_grids_synchronise),
        cmocka_unit_test(cancel_ends_an_endless_grid),
        cmocka_unit_test(kernels_are_listed_in_order),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

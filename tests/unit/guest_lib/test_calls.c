/* Counting calls by class, over threads and sessions, and arguments as text. */
#include "guest_lib/calls.h"
#include "guest_lib/calls_log.h"
#include "tests/lib/tl_cmocka.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 40 /* more than there are blocks */
#define CALLS   5000

static struct weir_stats_page *page;

static int set_up(void **state)
{
    (void)state;
    page = calloc(1, sizeof *page);
    assert_non_null(page);
    weir_calls_session(page);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_calls_session_over();
    free(page);
    return 0;
}

static struct weir_stats_counts sum(enum weir_symbol symbol)
{
    struct weir_stats_counts counts;
    weir_calls_sum(symbol, &counts);
    return counts;
}

static void call(enum weir_symbol symbol, bool posts, bool waits)
{
    struct weir_calls_thread *mine = weir_calls_begin(symbol);
    if (posts) {
        weir_calls_mark_posted();
    }
    if (waits) {
        weir_calls_mark_waiting();
    }
    assert_false(weir_calls_end(mine, symbol, CUDA_SUCCESS));
}

static void class_is_what_happened_meanwhile(void **state)
{
    (void)state;
    call(WEIR_SYMBOL_cuCtxGetDevice, false, false);
    call(WEIR_SYMBOL_cuCtxGetDevice, false, false);
    call(WEIR_SYMBOL_cuLaunchKernel, true, false);
    call(WEIR_SYMBOL_cuStreamSynchronize, true, true); /* waiting outweighs sending */
    struct weir_stats_counts query = sum(WEIR_SYMBOL_cuCtxGetDevice);
    struct weir_stats_counts launch = sum(WEIR_SYMBOL_cuLaunchKernel);
    struct weir_stats_counts wait = sum(WEIR_SYMBOL_cuStreamSynchronize);
    assert_true(query.guest == 2 && query.posted == 0 && query.waited == 0);
    assert_true(launch.guest == 0 && launch.posted == 1 && launch.waited == 0);
    assert_true(launch.wait_ns == 0);
    assert_true(wait.guest == 0 && wait.posted == 0 && wait.waited == 1);
    assert_true(wait.max_ns == wait.wait_ns);
}

/* A mark that something else left on the thread is not the next call's. */
static void marks_do_not_outlive_a_call(void **state)
{
    (void)state;
    weir_calls_mark_posted();
    call(WEIR_SYMBOL_cuCtxGetDevice, false, false);
    assert_int_equal(sum(WEIR_SYMBOL_cuCtxGetDevice).guest, 1);
    assert_int_equal(sum(WEIR_SYMBOL_cuCtxGetDevice).posted, 0);
}

static void *many_calls(void *barrier)
{
    call(WEIR_SYMBOL_cuCtxGetDevice, false, false);
    pthread_barrier_wait(barrier); /* all live at once: some share block 0 */
    for (int i = 1; i < CALLS; i++) {
        call(WEIR_SYMBOL_cuCtxGetDevice, false, false);
        call(WEIR_SYMBOL_cuLaunchKernel, true, false);
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, many_calls, &barrier), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&barrier);
}

static void threads_lose_no_count(void **state)
{
    (void)state;
    run_threads();
    run_threads(); /* in the blocks that the first ones gave back */
    assert_int_equal(sum(WEIR_SYMBOL_cuCtxGetDevice).guest, 2 * THREADS * CALLS);
    assert_int_equal(sum(WEIR_SYMBOL_cuLaunchKernel).posted, 2 * THREADS * (CALLS - 1));
    assert_true(page->blocks[0][WEIR_SYMBOL_cuCtxGetDevice].guest > 0);
    assert_true(page->blocks[1][WEIR_SYMBOL_cuCtxGetDevice].guest > 0);
}

static void early_calls_come_along(void **state)
{
    (void)state;
    weir_calls_session_over();
    call(WEIR_SYMBOL_cuDriverGetVersion, false, false);
    assert_int_equal(sum(WEIR_SYMBOL_cuDriverGetVersion).guest, 1);
    weir_calls_session(page);
    call(WEIR_SYMBOL_cuDriverGetVersion, false, false);
    assert_int_equal(sum(WEIR_SYMBOL_cuDriverGetVersion).guest, 2);
    assert_int_equal(page->blocks[0][WEIR_SYMBOL_cuDriverGetVersion].guest, 1);
    assert_string_equal(page->names[WEIR_SYMBOL_cuDriverGetVersion], "cuDriverGetVersion");
}

static void remote_session_counts_for_itself(void **state)
{
    (void)state;
    weir_calls_session_over();
    weir_calls_session(NULL);
    run_threads();
    assert_int_equal(sum(WEIR_SYMBOL_cuCtxGetDevice).guest, THREADS * CALLS);
    assert_int_equal(page->blocks[1][WEIR_SYMBOL_cuCtxGetDevice].guest, 0);
}

/* ---------------------------------------------------------------- arguments */

static const char *printed(enum weir_symbol symbol, CUresult result, const uint64_t *words)
{
    static char text[512];
    struct weir_calls_log_line line = {.text = text, .room = sizeof text};
    weir_calls_log_put_args(&line, symbol, result, words);
    return text;
}

static void values_are_printed_by_their_type(void **state)
{
    (void)state;
    int value = -3;
    const uint64_t words[] = {(uint64_t)(uintptr_t)&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0};
    assert_string_equal(printed(WEIR_SYMBOL_cuDeviceGetAttribute, CUDA_SUCCESS, words),
                        "pi=[-3], attrib=CU_DEVICE_ATTRIBUTE_WARP_SIZE, dev=0");
    const uint64_t unknown[] = {0, 123456, (uint64_t)-1};
    assert_string_equal(printed(WEIR_SYMBOL_cuDeviceGetAttribute, CUDA_SUCCESS, unknown),
                        "pi=NULL, attrib=123456, dev=-1");
    const uint64_t floats[] = {0x1000, weir_calls_log_float(0.25f)};
    assert_string_equal(
        printed(WEIR_SYMBOL_cuParamSetf, CUDA_SUCCESS, (const uint64_t[]){0x1000, 4, floats[1]}),
        "hfunc=0x1000, offset=4, value=0.25");
}

/* What a failed call would have written is not looked at. */
static void failed_calls_outputs_are_addresses(void **state)
{
    (void)state;
    const uint64_t words[] = {0x10, 64}; /* nothing is mapped there */
    assert_string_equal(printed(WEIR_SYMBOL_cuMemAlloc_v2, CUDA_ERROR_INVALID_VALUE, words),
                        "dptr=0x10, bytesize=64");
}

static void strings_are_quoted_and_bounded(void **state)
{
    (void)state;
    char name[300];
    CUfunction function = (CUfunction)(uintptr_t)0xabc;
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    uint64_t words[] = {(uint64_t)(uintptr_t)&function, 0x5, (uint64_t)(uintptr_t)name};
    const char *text = printed(WEIR_SYMBOL_cuModuleGetFunction, CUDA_SUCCESS, words);
    assert_memory_equal(text, "hfunc=[0xabc], hmod=0x5, name=\"nnn", 34);
    assert_string_equal(text + strlen(text) - 4, "n\"..");
    words[2] = (uint64_t)(uintptr_t) "a\"b\\\n\x80";
    assert_string_equal(printed(WEIR_SYMBOL_cuModuleGetFunction, CUDA_SUCCESS, words),
                        "hfunc=[0xabc], hmod=0x5, name=\"a\\x22b\\x5c\\x0a\\x80\"");
}

static void structs_are_printed_by_fields(void **state)
{
    (void)state;
    CUDA_ARRAY_DESCRIPTOR descriptor = {
        .Width = 8, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};
    CUarray array = (CUarray)(uintptr_t)0x77;
    const uint64_t words[] = {(uint64_t)(uintptr_t)&array, (uint64_t)(uintptr_t)&descriptor};
    assert_string_equal(printed(WEIR_SYMBOL_cuArrayCreate_v2, CUDA_SUCCESS, words),
                        "pHandle=[0x77], pAllocateArray={Width=8, Height=4, "
                        "Format=CU_AD_FORMAT_FLOAT, NumChannels=2}");
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    char text[32];
    struct weir_calls_log_line line = {.text = text, .room = sizeof text};
    for (int i = 0; i < 20; i++) {
        weir_calls_log_put(&line, "%s", "0123456789");
    }
    assert_int_equal(line.used, sizeof text - 1);
    assert_int_equal(strlen(text), sizeof text - 1);
}

int main(void)
{
    unsetenv("WEIR_TRACE");
    unsetenv("WEIR_STATS");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(class_is_what_happened_meanwhile, set_up, tear_down),
        cmocka_unit_test_setup_teardown(marks_do_not_outlive_a_call, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_lose_no_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(early_calls_come_along, set_up, tear_down),
        cmocka_unit_test_setup_teardown(remote_session_counts_for_itself, set_up, tear_down),
        cmocka_unit_test(values_are_printed_by_their_type),
        cmocka_unit_test(failed_calls_outputs_are_addresses),
        cmocka_unit_test(strings_are_quoted_and_bounded),
        cmocka_unit_test(structs_are_printed_by_fields),
        cmocka_unit_test(long_lines_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

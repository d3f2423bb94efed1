/* Profiled calls through the whole stack: what a watcher is told, and the records of the work. */
#include "proto/cuda_abi.h"
#include "proto/profile/session_table.h"
#include "tests/e2e/kernels.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_stack.h"

#include <stdlib.h>
#include <string.h>

#define WORDS 5000u
#define BIG   (1u << 20) /* records that a test may take */

static struct tl_stack stack;
static CUfunction mix;
static CUdeviceptr memory;
static const struct weir_profile_table *table;

/* ---------------------------------------------------------------- the watcher */

static struct weir_profile_call calls[16];
static uint32_t n_entered, n_left, last_entered;
static CUresult asked_inside;

static void entered(const struct weir_profile_call *call)
{
    CUdevice device;
    assert_non_null(call->name);
    assert_true(call->start_ns != 0);
    n_entered++;
    last_entered = call->number;
    asked_inside = cuCtxGetDevice(&device); /* a watcher's own calls are not told to it */
}

static void left(const struct weir_profile_call *call)
{
    assert_int_equal(call->number, last_entered);
    calls[n_left % 16] = *call;
    n_left++;
}

static void runtime(const struct weir_profile_runtime *call)
{
    (void)call;
    fail_msg("no runtime is there");
}

static const struct weir_profile_watch watch = {entered, left, runtime};

/* Records that were taken since the last watch_begin(). */
static struct weir_profile_record *records;
static uint32_t n_records;
static uint64_t dropped;

/* @return how many pieces of work have not ended */
static uint32_t take(void)
{
    struct weir_profile_taken taken;
    assert_int_equal(table->take(&taken), CUDA_SUCCESS);
    assert_true(n_records + taken.n <= BIG);
    assert_int_equal(taken.shift_ns, 0);
    if (taken.n) {
        memcpy(&records[n_records], taken.records, taken.n * sizeof *records);
    }
    n_records += taken.n;
    dropped = taken.dropped;
    return taken.pending;
}

static void take_all(void)
{
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    while (take() != 0) { /* what is done is seen done a little later */
    }
}

static void watch_begin(void)
{
    take_all();
    n_entered = n_left = n_records = 0;
    table->watch(&watch, WEIR_PROFILE_WISH_WORK);
}

static int set_up(void **state)
{
    static const uint8_t uuid[16] = WEIR_PROFILE_TABLE_UUID;
    CUuuid wanted;
    CUmodule module;
    CUcontext context;
    const void *found;
    (void)state;
    tl_stack_start(&stack);
    memcpy(wanted.bytes, uuid, sizeof uuid);
    assert_int_equal(cuGetExportTable(&found, &wanted), CUDA_SUCCESS);
    table = found;
    records = calloc(BIG, sizeof *records);
    assert_non_null(records);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&module, e2e_ptx), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&mix, module, "mix"), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&memory, WORDS * sizeof(uint32_t)), CUDA_SUCCESS);
    return 0;
}

static CUresult take_result(void)
{
    struct weir_profile_taken taken;
    return table->take(&taken);
}

static int tear_down(void **state)
{
    (void)state;
    free(records);
    tl_stack_wait_sessions(&stack, 1);
    tl_stack_stop(&stack);
    assert_int_not_equal(take_result(), CUDA_SUCCESS); /* an error, no hang */
    return 0;
}

static void launch(uint32_t n, CUstream stream)
{
    uint32_t a = 1, b = 0;
    void *params[] = {&memory, &n, &a, &b};
    assert_int_equal(cuLaunchKernel(mix, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, params, NULL),
                     CUDA_SUCCESS);
}

/* ---------------------------------------------------------------- tests */

static void nothing_is_recorded_while_nobody_watches(void **state)
{
    (void)state;
    watch_begin();
    table->watch(NULL, WEIR_PROFILE_WISH_NOTHING);
    launch(WORDS, NULL);
    take_all();
    assert_int_equal(n_records, 0);
    assert_int_equal(n_left, 0);
}

static void a_launch_is_told_with_its_kernel_and_recorded_with_its_number(void **state)
{
    (void)state;
    CUstream stream;
    unsigned long long stream_id, context_id;
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuStreamGetId(stream, &stream_id), CUDA_SUCCESS);
    assert_int_equal(cuCtxGetId(NULL, &context_id), CUDA_SUCCESS);
    watch_begin();
    launch(WORDS, stream);
    table->watch(NULL, WEIR_PROFILE_WISH_NOTHING);
    assert_int_equal(n_entered, 1);
    assert_int_equal(n_left, 1);
    assert_int_equal(asked_inside, CUDA_SUCCESS);
    const struct weir_profile_call *call = &calls[0];
    assert_string_equal(call->name, "cuLaunchKernel");
    assert_int_equal(call->result, CUDA_SUCCESS);
    assert_false(call->in_runtime);
    assert_true(call->start_ns < call->end_ns);
    assert_int_equal(call->work.what, WEIR_PROFILE_LAUNCH);
    assert_string_equal(call->work.kernel, "mix");
    assert_int_equal(call->work.grid[0], (WORDS + 127) / 128);
    assert_int_equal(call->work.block[0], 128);
    assert_int_equal(call->work.stream, stream_id);
    assert_int_equal(call->work.context, context_id);
    take_all();
    assert_int_equal(n_records, 1);
    assert_int_equal(records[0].call, call->number);
    assert_int_equal(records[0].class, WEIR_PROFILE_KERNEL);
    assert_true(records[0].arrived_ns > call->start_ns);
    assert_true(records[0].begin_ns >= records[0].arrived_ns + records[0].waited_ns);
    assert_true(records[0].end_ns > records[0].begin_ns);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

static void copies_and_fills_are_recorded_with_their_bytes_and_sides(void **state)
{
    (void)state;
    static uint32_t words[WORDS];
    void *pinned;
    assert_int_equal(cuMemAllocHost_v2(&pinned, sizeof words), CUDA_SUCCESS);
    watch_begin();
    assert_int_equal(cuMemcpyHtoD_v2(memory, words, sizeof words), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoHAsync_v2(pinned, memory, 4000, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD32_v2(memory, 7, 100), CUDA_SUCCESS);
    table->watch(NULL, WEIR_PROFILE_WISH_NOTHING);
    assert_int_equal(n_left, 3);
    take_all();
    uint64_t bytes[WEIR_PROFILE_CLASSES] = {0};
    for (uint32_t i = 0; i < n_records; i++) {
        bytes[records[i].class] += records[i].bytes;
    }
    assert_int_equal(bytes[WEIR_PROFILE_H2D], sizeof words);
    assert_int_equal(bytes[WEIR_PROFILE_D2H], 4000);
    assert_int_equal(bytes[WEIR_PROFILE_MEMSET], 400);
    assert_int_equal(calls[0].work.source, WEIR_PROFILE_MEMORY_PAGEABLE);
    assert_int_equal(calls[0].work.target, WEIR_PROFILE_MEMORY_DEVICE);
    assert_int_equal(calls[1].work.target, WEIR_PROFILE_MEMORY_PINNED);
    assert_true(calls[1].work.is_async);
    assert_int_equal(calls[2].work.value, 7);
    assert_int_equal(cuMemFreeHost(pinned), CUDA_SUCCESS);
}

static void a_watcher_that_wants_no_records_gets_none(void **state)
{
    (void)state;
    watch_begin();
    table->watch(&watch, WEIR_PROFILE_WISH_NOTHING);
    launch(WORDS, NULL);
    table->watch(NULL, WEIR_PROFILE_WISH_NOTHING);
    take_all();
    assert_int_equal(n_left, 1);
    assert_int_equal(n_records, 0);
}

static void a_refused_launch_has_no_record(void **state)
{
    (void)state;
    void *params[] = {&memory, &memory, &memory, &memory};
    watch_begin();
    assert_int_not_equal(cuLaunchKernel(mix, 1, 1, 1, 4096, 1, 1, 0, NULL, params, NULL),
                         CUDA_SUCCESS);
    table->watch(NULL, WEIR_PROFILE_WISH_NOTHING);
    take_all();
    assert_int_equal(n_left, 1);
    assert_int_not_equal(calls[0].result, CUDA_SUCCESS);
    assert_int_equal(n_records, 0);
}

static void all_of_many_launches_are_recorded_in_order(void **state)
{
    (void)state;
    const uint32_t n = 100000;
    watch_begin();
    for (uint32_t i = 0; i < n; i++) {
        launch(1, NULL);
        if (i % 4096 == 4095) {
            while (take() > 4096) { /* the device may be slower than this loop */
            }
        }
    }
    table->watch(NULL, WEIR_PROFILE_WISH_NOTHING);
    uint64_t before = dropped;
    take_all();
    assert_int_equal(n_records, n);
    assert_int_equal(dropped, before);
    for (uint32_t i = 1; i < n; i++) {
        assert_int_equal(records[i].call, records[i - 1].call + 1);
        assert_true(records[i].end_ns >= records[i - 1].end_ns);
    }
}

static void what_found_no_room_is_counted(void **state)
{
    (void)state;
    const uint32_t n = WEIR_PROFILE_RECORDS_MAX + 100;
    uint64_t before = dropped;
    watch_begin();
    for (uint32_t i = 0; i < n; i++) {
        launch(1, NULL);
    }
    table->watch(NULL, WEIR_PROFILE_WISH_NOTHING);
    take_all();
    assert_int_equal(n_records, WEIR_PROFILE_RECORDS_MAX);
    assert_int_equal(dropped - before, 100);
}

/* A chain of kernels of one block. */
static CUgraphExec chain(CUstream stream, uint32_t n)
{
    CUgraph graph;
    CUgraphExec exec;
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    for (uint32_t i = 0; i < n; i++) {
        launch(1, stream);
    }
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    return exec;
}

static void a_graph_is_one_record(void **state)
{
    (void)state;
    CUstream stream;
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUgraphExec exec = chain(stream, 3);
    watch_begin();
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    table->watch(NULL, WEIR_PROFILE_WISH_NOTHING);
    take_all();
    assert_int_equal(n_records, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(records[i].class, WEIR_PROFILE_GRAPH);
        assert_int_equal(records[i].call, calls[i].number);
        assert_int_equal(records[i].node, 0);
        assert_true(records[i].begin_ns < records[i].end_ns);
    }
    assert_true(records[1].begin_ns >= records[0].end_ns);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_recorded_while_nobody_watches),
        cmocka_unit_test(a_launch_is_told_with_its_kernel_and_recorded_with_its_number),
        cmocka_unit_test(copies_and_fills_are_recorded_with_their_bytes_and_sides),
        cmocka_unit_test(a_watcher_that_wants_no_records_gets_none),
        cmocka_unit_test(a_refused_launch_has_no_record),
        cmocka_unit_test(all_of_many_launches_are_recorded_in_order),
        cmocka_unit_test(what_found_no_room_is_counted),
        cmocka_unit_test(a_graph_is_one_record),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

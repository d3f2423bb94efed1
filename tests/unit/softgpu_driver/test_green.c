/* Green contexts: what they are made from, where kernels then run,
 * what is left of a destroyed one. */
#include "support.h"

#include <stdbool.h>
#include <unistd.h>

#define SMS    8u /* WEIR_SOFTGPU_SMS */
#define BLOCKS 40u
#define PER_SM 2u /* blocks of 1024 threads */

/* where: each block counts itself, writes its SM, and waits until so many have begun. */
static const char text[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".visible .entry where(.param .u64 out, .param .u32 hold)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %d<4>;\n"
    "mov.u32 %r0, %tid.x;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra done;\n"
    "ld.param.u64 %d0, [out];\nld.param.u32 %r1, [hold];\n"
    "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %smid;\n"
    "mul.wide.u32 %d1, %r2, 4;\nadd.s64 %d2, %d0, %d1;\nst.global.u32 [%d2+4], %r3;\n"
    "atom.global.add.u32 %r4, [%d0], 1;\n"
    "again:\nld.volatile.global.u32 %r5, [%d0];\nsetp.lt.u32 %p1, %r5, %r1;\n@%p1 bra again;\n"
    "done:\nret;\n}\n";

static struct {
    uint32_t begun;
    uint32_t sms[BLOCKS + 1];
} * seen; /* host memory that kernels reach */

static CUfunction where;

static int set_up(void **state)
{
    CUmodule module;
    if (enter_context(state) != 0 || cuModuleLoadData(&module, text) != CUDA_SUCCESS ||
        cuModuleGetFunction(&where, module, "where") != CUDA_SUCCESS ||
        cuMemHostAlloc((void **)&seen, sizeof(*seen), 0) != CUDA_SUCCESS) {
        return 1;
    }
    return 0;
}

/* With `hold`, blocks of which PER_SM fill an SM: the SMs that have them all are all used. */
static CUresult launch(CUstream stream, uint32_t blocks, uint32_t hold, bool cooperative)
{
    uint32_t threads = hold != 0 || cooperative ? 1024 : 32;
    void *params[] = {&seen, &hold};
    memset(seen, 0, sizeof(*seen));
    return cooperative
               ? cuLaunchCooperativeKernel(where, blocks, 1, 1, threads, 1, 1, 0, stream, params)
               : cuLaunchKernel(where, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}

/* The SMs that the last launch ran on, a bit each. */
static uint32_t places(uint32_t blocks)
{
    uint32_t bits = 0;
    assert_int_equal(seen->begun, blocks);
    for (uint32_t i = 0; i < blocks; i++) {
        assert_true(seen->sms[i] < SMS);
        bits |= 1u << seen->sms[i];
    }
    return bits;
}

/* All SMs that a stream's kernels run on, if there are so many. */
static uint32_t all_places(CUstream stream, uint32_t n_sms)
{
    OK(launch(stream, BLOCKS, n_sms * PER_SM, false));
    OK(cuStreamSynchronize(stream));
    return places(BLOCKS);
}

static uint32_t places_in(CUstream stream, uint32_t blocks)
{
    OK(launch(stream, blocks, 0, false));
    OK(cuStreamSynchronize(stream));
    return places(blocks);
}

static CUgreenCtx green_of(CUdevResource *resources, uint32_t n)
{
    CUdevResourceDesc desc;
    CUgreenCtx green;
    OK(cuDevResourceGenerateDesc(&desc, resources, n));
    OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static CUstream stream_of(CUgreenCtx green)
{
    CUstream stream;
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

/* ------------------------------------------------------------------ what they are made from */

static void a_cut_of_a_cut_needs_a_green_context(void **state)
{
    (void)state;
    CUdevResource groups[2], inner[2], again;
    unsigned n = 2;
    assert_int_equal(sms_cut(groups, 2, 4), 2);
    assert_int_equal(cuDevSmResourceSplitByCount(inner, &n, &groups[1], NULL, 0, 2),
                     CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CUgreenCtx green = green_of(&groups[1], 1);
    OK(cuGreenCtxGetDevResource(green, &again, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(again.sm.smCount, 4);
    OK(cuDevSmResourceSplitByCount(inner, &n, &again, &again, 0, 2));
    assert_int_equal(n, 2);
    CUgreenCtx outer = green, part = green_of(&inner[1], 1);
    CUstream in_outer = stream_of(outer), in_part = stream_of(part);
    uint32_t around = all_places(in_outer, 4);
    assert_int_equal(__builtin_popcount(around), 4);
    assert_int_equal(all_places(in_part, 2) & ~around, 0);
    OK(cuStreamDestroy_v2(in_outer));
    OK(cuStreamDestroy_v2(in_part));
    OK(cuGreenCtxDestroy(part));
    OK(cuGreenCtxDestroy(outer));
}

static void it_is_made_from_a_descriptor(void **state)
{
    (void)state;
    CUdevResource groups[4], resource;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    assert_int_equal(sms_cut(groups, 4, 2), 4);
    green = green_of(groups, 3);
    OK(cuGreenCtxGetDevResource(green, &resource, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(resource.sm.smCount, 6);
    assert_int_equal(cuGreenCtxGetDevResource(green, NULL, CU_DEV_RESOURCE_TYPE_SM),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGreenCtxGetDevResource(green, &resource, CU_DEV_RESOURCE_TYPE_INVALID),
                     CUDA_ERROR_INVALID_RESOURCE_TYPE);
    OK(cuGreenCtxDestroy(green));
    OK(cuDevResourceGenerateDesc(&desc, &groups[2], 1));
    assert_int_equal(cuGreenCtxCreate(&green, desc, 1, CU_GREEN_CTX_DEFAULT_STREAM),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGreenCtxCreate(&green, desc, 7, CU_GREEN_CTX_DEFAULT_STREAM),
                     CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuGreenCtxCreate(&green, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGreenCtxCreate(NULL, desc, 0, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGreenCtxCreate(&green, NULL, 0, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGreenCtxCreate(&green, (CUdevResourceDesc)where, 0, 1),
                     CUDA_ERROR_INVALID_VALUE);
}

/* ------------------------------------------------------------------ kernels */

static void kernels_stay_in_their_part(void **state)
{
    (void)state;
    CUdevResource groups[4];
    CUgreenCtx greens[4];
    CUstream streams[4];
    uint32_t used[4] = {0}, all = 0;
    assert_int_equal(sms_cut(groups, 4, 2), 4);
    for (int i = 0; i < 4; i++) {
        greens[i] = green_of(&groups[i], 1);
        streams[i] = stream_of(greens[i]);
        used[i] = all_places(streams[i], 2);
        assert_int_equal(__builtin_popcount(used[i]), 2);
        for (uint32_t blocks = 1; blocks <= BLOCKS; blocks = 2 * blocks + 1) {
            assert_int_equal(places_in(streams[i], blocks) & ~used[i], 0);
        }
        assert_int_equal(all & used[i], 0);
        all |= used[i];
    }
    assert_int_equal(all, 0xff);
    for (int i = 0; i < 4; i++) {
        OK(cuStreamDestroy_v2(streams[i]));
        OK(cuGreenCtxDestroy(greens[i]));
    }
}

static void a_cooperative_grid_must_fit_the_part(void **state)
{
    (void)state;
    CUdevResource group;
    sms_cut(&group, 1, 4);
    CUgreenCtx green = green_of(&group, 1);
    CUstream stream = stream_of(green);
    OK(launch(stream, 4 * PER_SM, 4 * PER_SM, true));
    OK(cuStreamSynchronize(stream));
    assert_int_equal(launch(stream, 4 * PER_SM + 1, 0, true),
                     CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    OK(launch(NULL, SMS * PER_SM, SMS * PER_SM, true));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy_v2(stream));
    OK(cuGreenCtxDestroy(green));
}

static CUgraphExec captured_in(CUstream stream, uint32_t n_sms, CUgraph *ret_graph)
{
    CUgraphExec exec;
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch(stream, BLOCKS, n_sms * PER_SM, false));
    OK(cuStreamEndCapture(stream, ret_graph));
    OK(cuGraphInstantiateWithFlags(&exec, *ret_graph, 0));
    return exec;
}

static uint32_t places_of(CUgraphExec exec, CUstream stream)
{
    memset(seen, 0, sizeof(*seen));
    OK(cuGraphLaunch(exec, stream));
    OK(cuCtxSynchronize());
    return places(BLOCKS);
}

static void a_graph_runs_where_it_was_captured(void **state)
{
    (void)state;
    CUdevResource group;
    CUgraph graph, plain_graph;
    CUgraphNode node;
    size_t n = 1;
    CUDA_KERNEL_NODE_PARAMS params;
    sms_cut(&group, 1, 2);
    CUgreenCtx green = green_of(&group, 1);
    CUstream stream = stream_of(green), plain;
    OK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    uint32_t part = all_places(stream, 2);
    CUgraphExec exec = captured_in(stream, 2, &graph),
                free_exec = captured_in(plain, SMS, &plain_graph);
    assert_int_equal(places_of(exec, stream), part);
    assert_int_equal(places_of(exec, plain), part);
    assert_int_equal(places_of(free_exec, stream), 0xff);
    /* Other parameters change nothing of that, nor does the green context's end. */
    OK(cuGraphGetNodes(graph, &node, &n));
    OK(cuGraphKernelNodeGetParams_v2(node, &params));
    OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
    OK(cuStreamDestroy_v2(stream));
    OK(cuGreenCtxDestroy(green));
    assert_int_equal(places_of(exec, plain), part);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(free_exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(plain_graph));
    OK(cuStreamDestroy_v2(plain));
}

/* ------------------------------------------------------------------ streams and their end */

static void streams_tell_their_green_context(void **state)
{
    (void)state;
    CUdevResource group;
    CUcontext ctx, current;
    CUgreenCtx other = NULL;
    CUstream stream;
    unsigned flags = 0;
    unsigned long long id = 0, next = 0;
    int priority = 0;
    sms_cut(&group, 1, 2);
    CUgreenCtx green = green_of(&group, 1), second = green_of(&group, 1);
    assert_int_equal(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGreenCtxStreamCreate(NULL, green, CU_STREAM_NON_BLOCKING, 0),
                     CUDA_ERROR_INVALID_VALUE);
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, -99));
    OK(cuStreamGetPriority(stream, &priority));
    assert_int_equal(priority, -5);
    OK(cuStreamGetFlags(stream, &flags));
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetGreenCtx(stream, &other));
    assert_ptr_equal(other, green);
    OK(cuCtxGetCurrent(&current));
    OK(cuStreamGetCtx(stream, &ctx));
    assert_ptr_equal(ctx, current);
    OK(cuStreamGetCtx_v2(stream, &ctx, &other));
    assert_ptr_equal(other, green);
    OK(cuStreamGetCtx_v2(NULL, &ctx, &other));
    assert_null(other);
    other = green;
    OK(cuStreamGetGreenCtx(NULL, &other));
    assert_null(other);
    assert_int_equal(cuStreamGetGreenCtx(stream, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuGreenCtxGetId(green, &id));
    OK(cuGreenCtxGetId(second, &next));
    assert_int_not_equal(id, next);
    OK(cuStreamDestroy_v2(stream));
    OK(cuGreenCtxDestroy(green));
    OK(cuGreenCtxDestroy(second));
}

static void streams_of_a_destroyed_one_say_so(void **state)
{
    (void)state;
    CUdevResource group;
    CUevent event;
    CUgreenCtx other;
    CUcontext ctx;
    CUgraph graph;
    unsigned flags;
    sms_cut(&group, 1, 2);
    CUgreenCtx green = green_of(&group, 1);
    CUstream stream = stream_of(green), capturing = stream_of(green);
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch(stream, BLOCKS, 2 * PER_SM, false));
    OK(cuEventRecord(event, stream));
    OK(cuGreenCtxDestroy(green));
    OK(cuEventSynchronize(event)); /* what was queued is done all the same */
    assert_int_equal(__builtin_popcount(places(BLOCKS)), 2);
    const CUresult said[] = {
        launch(stream, 1, 0, false),
        cuStreamSynchronize(stream),
        cuStreamQuery(stream),
        cuEventRecord(event, stream),
        cuStreamWaitEvent(stream, event, 0),
        cuMemsetD32Async((CUdeviceptr)(uintptr_t)seen, 1, 4, stream),
        cuStreamGetFlags(stream, &flags),
        cuStreamGetCtx(stream, &ctx),
        cuStreamGetGreenCtx(stream, &other),
        cuStreamEndCapture(capturing, &graph),
        cuStreamDestroy_v2(stream),
        cuStreamDestroy_v2(stream),
    };
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        if (said[i] != CUDA_ERROR_CONTEXT_IS_DESTROYED) {
            fail_msg("call %zu gives %d", i, said[i]);
        }
    }
    OK(cuCtxSynchronize());
    OK(cuEventDestroy_v2(event));
}

static void nonsense_is_no_green_context(void **state)
{
    (void)state;
    CUdevResource group;
    CUstream stream;
    CUcontext ctx;
    CUevent event;
    unsigned long long id;
    OK(cuCtxGetCurrent(&ctx));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    sms_cut(&group, 1, 2);
    CUgreenCtx gone = green_of(&group, 1);
    OK(cuGreenCtxDestroy(gone));
    CUgreenCtx bad[] = {NULL,
                        gone,
                        (CUgreenCtx)(uintptr_t)1,
                        (CUgreenCtx)ctx,
                        (CUgreenCtx)where,
                        (CUgreenCtx)&group,
                        (CUgreenCtx)(uintptr_t)-16};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const CUresult said[] = {
            cuGreenCtxStreamCreate(&stream, bad[i], CU_STREAM_NON_BLOCKING, 0),
            cuGreenCtxGetDevResource(bad[i], &group, CU_DEV_RESOURCE_TYPE_SM),
            cuGreenCtxGetId(bad[i], &id),
            cuGreenCtxRecordEvent(bad[i], event),
            cuGreenCtxWaitEvent(bad[i], event),
            cuGreenCtxDestroy(bad[i]),
        };
        for (size_t c = 0; c < sizeof(said) / sizeof(said[0]); c++) {
            assert_int_equal(said[c], CUDA_ERROR_INVALID_CONTEXT);
        }
    }
    OK(cuEventDestroy_v2(event));
}

static void it_holds_the_primary_context(void **state)
{
    (void)state;
    CUdevResource resource;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    unsigned flags;
    int active = -1;
    OK(cuDeviceGetDevResource(1, &resource, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevResourceGenerateDesc(&desc, &resource, 1));
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    assert_int_equal(active, 0);
    OK(cuGreenCtxCreate(&green, desc, 1, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    assert_int_equal(active, 1);
    OK(cuGreenCtxDestroy(green));
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    assert_int_equal(active, 0);
    /* A reset takes it along. */
    OK(cuGreenCtxCreate(&green, desc, 1, CU_GREEN_CTX_DEFAULT_STREAM));
    CUstream stream = stream_of(green);
    OK(cuDevicePrimaryCtxReset_v2(1));
    assert_int_equal(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
}

/* ------------------------------------------------------------------ events of all its streams */

struct gate {
    int open;
    int passed;
};

static void wait_for_gate(void *user)
{
    struct gate *gate = user;
    while (__atomic_load_n(&gate->open, __ATOMIC_ACQUIRE) == 0) {
        usleep(100);
    }
    __atomic_add_fetch(&gate->passed, 1, __ATOMIC_RELEASE);
}

static void events_of_all_its_streams(void **state)
{
    (void)state;
    CUdevResource group;
    CUevent event;
    CUstream plain;
    struct gate gate = {0};
    sms_cut(&group, 1, 2);
    CUgreenCtx green = green_of(&group, 1);
    CUstream one = stream_of(green), two = stream_of(green);
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(two, wait_for_gate, &gate));
    OK(cuGreenCtxRecordEvent(green, event));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuStreamQuery(one));
    __atomic_store_n(&gate.open, 1, __ATOMIC_RELEASE);
    OK(cuEventSynchronize(event));
    assert_int_equal(gate.passed, 1);
    gate.open = 0;
    OK(cuLaunchHostFunc(plain, wait_for_gate, &gate));
    OK(cuEventRecord(event, plain));
    OK(cuGreenCtxWaitEvent(green, event));
    CUstream three = stream_of(green); /* made later: waits, too */
    assert_int_equal(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuStreamQuery(two), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuStreamQuery(three), CUDA_ERROR_NOT_READY);
    __atomic_store_n(&gate.open, 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(three));
    assert_int_equal(gate.passed, 2);
    OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(cuGreenCtxWaitEvent(green, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph;
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamDestroy_v2(one));
    OK(cuStreamDestroy_v2(two));
    OK(cuStreamDestroy_v2(three));
    OK(cuStreamDestroy_v2(plain));
    OK(cuGreenCtxDestroy(green));
    OK(cuEventDestroy_v2(event));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_of_a_cut_needs_a_green_context),
        cmocka_unit_test(it_is_made_from_a_descriptor),
        cmocka_unit_test(kernels_stay_in_their_part),
        cmocka_unit_test(a_cooperative_grid_must_fit_the_part),
        cmocka_unit_test(a_graph_runs_where_it_was_captured),
        cmocka_unit_test(streams_tell_their_green_context),
        cmocka_unit_test(streams_of_a_destroyed_one_say_so),
        cmocka_unit_test(nonsense_is_no_green_context),
        cmocka_unit_test(it_holds_the_primary_context),
        cmocka_unit_test(events_of_all_its_streams),
    };
    return cmocka_run_group_tests(tests, set_up, leave_context);
}

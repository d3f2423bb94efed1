/* The whole stack: Driver API, guest, shared memory, host, softgpu. */
#include "proto/cuda_abi.h"
#include "tests/e2e/kernels.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_stack.h"

#include <string.h>

#define WORDS 5000u

static struct tl_stack stack;
static CUmodule module;
static CUfunction mix;

static int set_up(void **state)
{
    (void)state;
    tl_stack_start(&stack);
    CUcontext context;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&module, e2e_ptx), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&mix, module, "mix"), CUDA_SUCCESS);
    return 0;
}

static void launch(CUdeviceptr memory, uint32_t n, uint32_t a, uint32_t b, CUstream stream)
{
    void *params[] = {&memory, &n, &a, &b};
    assert_int_equal(cuLaunchKernel(mix, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, params, NULL),
                     CUDA_SUCCESS);
}

static void alloc_copy_launch_sync_computes(void **state)
{
    (void)state;
    static uint32_t words[WORDS];
    CUdeviceptr memory;
    CUstream stream;
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] = i * 7;
    }
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&memory, sizeof(words)), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoDAsync_v2(memory, words, sizeof(words), stream), CUDA_SUCCESS);
    launch(memory, WORDS, 3, 1, stream);
    launch(memory, WORDS, 2, 5, stream);
    memset(words, 0, sizeof(words));
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(words, memory, sizeof(words)), CUDA_SUCCESS);
    for (uint32_t i = 0; i < WORDS; i++) {
        assert_int_equal(words[i], (i * 7 * 3 + 1) * 2 + 5);
    }
    assert_int_equal(cuMemFree_v2(memory), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

static void pinned_memory_is_shared(void **state)
{
    (void)state;
    uint32_t *pinned = NULL;
    CUdeviceptr device;
    assert_int_equal(
        cuMemHostAlloc((void **)&pinned, WORDS * sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP),
        CUDA_SUCCESS);
    for (uint32_t i = 0; i < WORDS; i++) {
        pinned[i] = i;
    }
    assert_int_equal(cuMemHostGetDevicePointer_v2(&device, pinned, 0), CUDA_SUCCESS);
    assert_int_equal(device, (CUdeviceptr)(uintptr_t)pinned);
    launch(device, WORDS, 9, 4, NULL);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    for (uint32_t i = 0; i < WORDS; i++) {
        assert_int_equal(pinned[i], i * 9 + 4);
    }
    assert_int_equal(cuMemFreeHost(pinned), CUDA_SUCCESS);
}

static void graph_of_a_capture_runs_twice(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr memory;
    uint32_t words[64];
    assert_int_equal(cuMemAlloc_v2(&memory, sizeof(words)), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD32_v2(memory, 1, 64), CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS); /* the stream does not wait for it */
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                     CUDA_SUCCESS);
    launch(memory, 64, 10, 1, stream);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(words, memory, sizeof(words)), CUDA_SUCCESS);
    assert_int_equal(words[0], 111);
    assert_int_equal(words[63], 111);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(memory), CUDA_SUCCESS);
}

static void quota_is_told_and_kept(void **state)
{
    (void)state;
    size_t free_bytes = 0;
    size_t total = 0;
    CUdeviceptr memory;
    assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
    assert_int_equal(total, 64u << 20);
    assert_int_equal(cuMemAlloc_v2(&memory, 65u << 20), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAlloc_v2(&memory, 1u << 20), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(memory), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

static void launch_over_the_limits_is_refused_at_once(void **state)
{
    (void)state;
    CUdeviceptr nothing = 0;
    uint32_t zero = 0;
    void *params[] = {&nothing, &zero, &zero, &zero};
    assert_int_equal(cuLaunchKernel(mix, 1, 1, 1, 1025, 1, 1, 0, NULL, params, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void bad_image_is_refused_and_harmless(void **state)
{
    (void)state;
    CUmodule bad;
    assert_int_not_equal(cuModuleLoadData(&bad, ".version 6.4\n.target sm_75\n}{"), CUDA_SUCCESS);
    alloc_copy_launch_sync_computes(state);
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(cuModuleUnload(module), CUDA_SUCCESS);
    tl_stack_wait_sessions(&stack, 1);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    tl_stack_stop(&stack);
    CUdeviceptr memory;
    assert_int_not_equal(cuMemAlloc_v2(&memory, 1u << 20), CUDA_SUCCESS); /* an error, no hang */
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc_copy_launch_sync_computes),
        cmocka_unit_test(pinned_memory_is_shared),
        cmocka_unit_test(graph_of_a_capture_runs_twice),
        cmocka_unit_test(quota_is_told_and_kept),
        cmocka_unit_test(launch_over_the_limits_is_refused_at_once),
        cmocka_unit_test(bad_image_is_refused_and_harmless),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

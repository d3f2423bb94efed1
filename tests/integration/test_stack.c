/* The whole stack: Driver API, guest, shared memory, host, softgpu. */
#include "proto/cuda_abi.h"
#include "tests/e2e/kernels.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_stack.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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

static uint64_t *counter, counted;
static int stop_counting;

static void *count(void *user)
{
    while (!__atomic_load_n(&stop_counting, __ATOMIC_RELAXED)) {
        __atomic_store_n(counter, ++counted, __ATOMIC_RELAXED);
    }
    return user;
}

/* Twice the same: moved by copies that are in the stream's order, then reached by a kernel. */
static void registered_memory_is_copied_and_shared_and_its_neighbour_is_not_harmed(void **state)
{
    (void)state;
    uint32_t *words = mmap(NULL, 8u << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                           0); /* the last 16 KiB are others' */
    CUdeviceptr memory, device;
    pthread_t thread;
    CUstream stream;
    int status;
    assert_true(words != MAP_FAILED);
    counter = (uint64_t *)(void *)(words + 4100);
    assert_int_equal(pthread_create(&thread, NULL, count, NULL), 0);
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&memory, 4096 * 4), CUDA_SUCCESS);
    for (uint32_t round = 0; round < 2; round++) {
        assert_int_equal(cuMemHostRegister_v2(words, 4099 * 4, 0), CUDA_SUCCESS);
        words[0] = round;
        launch(memory, 4096, 0, 0, stream);
        assert_int_equal(cuMemcpyHtoDAsync_v2(memory, words, 4096 * 4, stream), CUDA_SUCCESS);
        launch(memory, 4096, 1, 5, stream);
        assert_int_equal(cuMemcpyDtoHAsync_v2(words, memory, 4096 * 4, stream), CUDA_SUCCESS);
        assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
        assert_int_equal(words[0], round + 5);
        assert_int_equal(cuMemHostGetDevicePointer_v2(&device, words, 0), CUDA_SUCCESS);
        launch(device, 4099, 1, 1, stream);
        assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
        assert_int_equal(words[0], round + 6);
        pid_t child = fork();
        if (child == 0) {
            bool same = words[0] == round + 6;
            words[0] = 77;
            _exit(same ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(words[0], round + 6);
        assert_int_equal(cuMemHostUnregister(words), CUDA_SUCCESS);
        assert_int_equal(words[0], round + 6);
    }
    __atomic_store_n(&stop_counting, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_int_equal(*counter, counted);
    assert_int_equal(cuMemFree_v2(memory), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    munmap(words, 8u << 12);
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

/* A program destroys what graphs name: NVIDIA's driver faults, softgpu gives an error. */
struct named {
    CUmodule module;
    CUevent event;
    CUarray array;
    CUdeviceptr memory;
    CUfunction function;
};

#define ARRAY_WORDS 16384 /* copied: what the memory has */

static void make_named(struct named *n)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = ARRAY_WORDS, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    assert_int_equal(cuMemAlloc_v2(&n->memory, ARRAY_WORDS * sizeof(uint32_t)), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD32_v2(n->memory, 1, ARRAY_WORDS), CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(),
                     CUDA_SUCCESS); /* the streams used here do not wait for the legacy stream */
    assert_int_equal(cuModuleLoadData(&n->module, e2e_ptx), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&n->function, n->module, "mix"), CUDA_SUCCESS);
    assert_int_equal(cuEventCreate(&n->event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    assert_int_equal(cuArray3DCreate_v2(&n->array, &d), CUDA_SUCCESS);
}

static void destroy_named(const struct named *n)
{
    assert_int_equal(cuModuleUnload(n->module), CUDA_SUCCESS);
    assert_int_equal(cuEventDestroy_v2(n->event), CUDA_SUCCESS);
    assert_int_equal(cuArrayDestroy(n->array), CUDA_SUCCESS);
}

static CUDA_MEMCPY3D copy_of(const struct named *n)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = n->memory,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                           .dstArray = n->array,
                           .WidthInBytes = ARRAY_WORDS * sizeof(uint32_t),
                           .Height = 1,
                           .Depth = 1};
}

/* One with nodes that name all three. */
static CUgraph graph_of(const struct named *n)
{
    CUdeviceptr memory = n->memory;
    uint32_t words = 64, a = 10, b = 1;
    void *params[] = {&memory, &words, &a, &b};
    CUDA_KERNEL_NODE_PARAMS_v2 kernel = {.func = n->function,
                                         .gridDimX = 1,
                                         .gridDimY = 1,
                                         .gridDimZ = 1,
                                         .blockDimX = 128,
                                         .blockDimY = 1,
                                         .blockDimZ = 1,
                                         .kernelParams = params};
    CUDA_MEMCPY3D copy = copy_of(n);
    CUcontext context;
    CUgraphNode nodes[3];
    CUgraph graph;
    assert_int_equal(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddKernelNode_v2(&nodes[0], graph, NULL, 0, &kernel), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddMemcpyNode(&nodes[1], graph, nodes, 1, &copy, context),
                     CUDA_SUCCESS);
    assert_int_equal(cuGraphAddEventRecordNode(&nodes[2], graph, nodes, 1, n->event), CUDA_SUCCESS);
    return graph;
}

static CUgraph captured_graph_of(const struct named *n, CUstream stream)
{
    CUdeviceptr memory = n->memory;
    uint32_t words = 64, a = 10, b = 1;
    void *params[] = {&memory, &words, &a, &b};
    CUDA_MEMCPY3D copy = copy_of(n);
    CUgraph graph;
    assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuLaunchKernel(n->function, 1, 1, 1, 128, 1, 1, 0, stream, params, NULL),
                     CUDA_SUCCESS);
    assert_int_equal(cuMemcpy3DAsync_v2(&copy, stream), CUDA_SUCCESS);
    assert_int_equal(cuEventRecordWithFlags(n->event, stream, CU_EVENT_RECORD_EXTERNAL),
                     CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    return graph;
}

static uint32_t first_word(const struct named *n)
{
    uint32_t word;
    assert_int_equal(cuMemcpyDtoH_v2(&word, n->memory, sizeof(word)), CUDA_SUCCESS);
    return word;
}

static void launch_graph(CUgraphExec exec, CUstream stream)
{
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

static size_t free_memory(void)
{
    size_t bytes, total;
    assert_int_equal(cuMemGetInfo_v2(&bytes, &total), CUDA_SUCCESS);
    return bytes;
}

/* The driver says late that no graph has something any more. */
static void await_free_memory(size_t bytes)
{
    for (int i = 0; i < 5000 && free_memory() != bytes; i++) {
        usleep(1000);
    }
    assert_int_equal(free_memory(), bytes);
}

static void graphs_keep_what_they_name(void **state)
{
    (void)state;
    const size_t array_bytes = ARRAY_WORDS * sizeof(uint32_t);
    CUstream stream;
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (int captured = 0; captured < 2; captured++) {
        CUgraphExec exec, of_clone;
        CUgraph graph, clone;
        struct named n;
        size_t before = free_memory(), with_all;
        make_named(&n);
        with_all = free_memory();
        graph = captured ? captured_graph_of(&n, stream) : graph_of(&n);
        destroy_named(&n);
        assert_int_equal(free_memory(), with_all); /* what is kept is charged */
        assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
        launch_graph(exec, stream);
        assert_int_equal(first_word(&n), 11);
        assert_int_equal(cuGraphClone(&clone, graph), CUDA_SUCCESS);
        assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
        assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
        assert_int_equal(cuGraphInstantiateWithFlags(&of_clone, clone, 0), CUDA_SUCCESS);
        assert_int_equal(cuGraphDestroy(clone), CUDA_SUCCESS);
        launch_graph(of_clone, stream);
        assert_int_equal(first_word(&n), 111);
        assert_true(free_memory() + array_bytes <= before);
        assert_int_equal(cuGraphExecDestroy(of_clone), CUDA_SUCCESS);
        assert_int_equal(cuMemFree_v2(n.memory), CUDA_SUCCESS);
        await_free_memory(before);
    }
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

/* What the graph itself does not name, its executable was given. */
static void executable_keeps_what_it_was_given(void **state)
{
    (void)state;
    CUdeviceptr memory;
    uint32_t words = 64, a = 3, b = 2;
    void *params[] = {&memory, &words, &a, &b};
    CUDA_KERNEL_NODE_PARAMS_v2 kernel = {.gridDimX = 1,
                                         .gridDimY = 1,
                                         .gridDimZ = 1,
                                         .blockDimX = 128,
                                         .blockDimY = 1,
                                         .blockDimZ = 1,
                                         .kernelParams = params};
    struct named n;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    make_named(&n);
    memory = n.memory;
    kernel.func = mix;
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    kernel.func = n.function;
    assert_int_equal(cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel), CUDA_SUCCESS);
    destroy_named(&n);
    launch_graph(exec, stream);
    assert_int_equal(first_word(&n), 5);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(memory), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc_copy_launch_sync_computes),
        cmocka_unit_test(pinned_memory_is_shared),
        cmocka_unit_test(registered_memory_is_copied_and_shared_and_its_neighbour_is_not_harmed),
        cmocka_unit_test(graph_of_a_capture_runs_twice),
        cmocka_unit_test(graphs_keep_what_they_name),
        cmocka_unit_test(executable_keeps_what_it_was_given),
        cmocka_unit_test(quota_is_told_and_kept),
        cmocka_unit_test(launch_over_the_limits_is_refused_at_once),
        cmocka_unit_test(bad_image_is_refused_and_harmless),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

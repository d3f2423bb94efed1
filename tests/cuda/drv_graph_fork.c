/*
 * A computation with scratch memory of its own, from and to ordinary host memory: in a stream, as a
 * graph captured from two streams of which one comes and goes within the capture, and as a graph of
 * nodes. Its last array is freed in the graph, by the program, in a stream, by another graph, or by
 * the next launch; it is read in between. Streams come and go. Twice with small arrays, once with
 * larger ones than a pageable copy is cut into.
 *
 *     in -> a;  b = a, and twice that in its last TAIL words;  twice <- b;  c = b - a;  minus <- c
 */
#include "check_driver.h"

#include <stdlib.h>

CHECK_EMBED(image, "ptx/basic.ptx");

enum { TAIL = 4096, SMALL = 16384, LARGE = 4500000 };

static CUcontext context;
static CUfunction saxpy;
static float *in, *twice, *minus; /* pageable */
static size_t words, bytes;

static unsigned seed = 1;

/* Other numbers than before: a graph reads its source at each launch. */
static void fill(void)
{
    seed++;
    for (size_t i = 0; i < words; i++) {
        in[i] = (float)((i * 7 + seed) % 1000);
        twice[i] = minus[i] = -1;
    }
}

static int is_right(const float *got, float factor, float tail_factor)
{
    for (size_t i = 0; i < words; i++) {
        if (got[i] != in[i] * (i < words - TAIL ? factor : tail_factor)) {
            return 0;
        }
    }
    return 1;
}

static void check_host(const char *label)
{
    check_true(is_right(twice, 1, 2), label);
    check_true(is_right(minus, 0, 1), label);
    fill();
}

/* y += factor * x */
static void launch_saxpy(float factor, CUdeviceptr x, CUdeviceptr y, size_t n, CUstream stream)
{
    unsigned count = (unsigned)n;
    void *params[] = {&factor, &x, &y, &count};

    driver_launch(saxpy, (count + 255) / 256, 256, stream, params);
}

/* A stream of its own for what is copied out first; the last array goes to *ret_c, or is freed. */
static void give(CUstream stream, CUdeviceptr *ret_c)
{
    CUdeviceptr a, b, c;
    CUevent doubled, done, copied;
    CUstream side;

    DRV(cu.StreamCreate(&side, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&doubled, CU_EVENT_DEFAULT));
    DRV(cu.EventCreate(&done, CU_EVENT_DEFAULT));
    DRV(cu.EventCreate(&copied, CU_EVENT_DEFAULT));
    DRV(cu.MemAllocAsync(&a, bytes, stream));
    DRV(cu.MemAllocAsync(&b, bytes, stream));
    DRV(cu.MemcpyHtoDAsync_v2(a, in, bytes, stream));
    DRV(cu.MemcpyDtoDAsync_v2(b, a, bytes, stream));
    launch_saxpy(1, a + bytes - 4 * TAIL, b + bytes - 4 * TAIL, TAIL, stream);
    DRV(cu.EventRecord(doubled, stream));
    DRV(cu.StreamWaitEvent(side, doubled, 0));
    DRV(cu.MemcpyDtoHAsync_v2(twice, b, bytes, side));
    DRV(cu.MemAllocAsync(&c, bytes, stream));
    DRV(cu.MemcpyDtoDAsync_v2(c, b, bytes, stream));
    launch_saxpy(-1, a, c, words, stream);
    DRV(cu.MemFreeAsync(a, stream));
    DRV(cu.EventRecord(done, stream));
    DRV(cu.MemcpyDtoHAsync_v2(minus, c, bytes, stream));
    if (ret_c) {
        *ret_c = c;
    } else {
        DRV(cu.MemFreeAsync(c, stream));
    }
    DRV(cu.StreamWaitEvent(side, done, 0));
    DRV(cu.MemFreeAsync(b, side));
    DRV(cu.EventRecord(copied, side));
    DRV(cu.StreamWaitEvent(stream, copied, 0));
    DRV(cu.StreamDestroy_v2(side));
    DRV(cu.EventDestroy_v2(doubled));
    DRV(cu.EventDestroy_v2(done));
    DRV(cu.EventDestroy_v2(copied));
}

static CUgraphExec captured(CUdeviceptr *ret_c, unsigned flags)
{
    CUgraphExec exec;
    CUgraph graph;
    CUstream stream;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    give(stream, ret_c);
    DRV(cu.StreamEndCapture(stream, &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, flags));
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.GraphDestroy(graph));
    return exec;
}

/* ---------------------------------------------------------------- by nodes */

static CUgraphNode add_alloc(CUgraph graph, CUgraphNode after, CUdeviceptr *ret_address)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUgraphNode node;

    memset(&params, 0, sizeof params);
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = bytes;
    DRV(cu.GraphAddMemAllocNode(&node, graph, after ? &after : NULL, after != NULL, &params));
    *ret_address = params.dptr;
    return node;
}

/* One of the three is host memory, or there is none. */
static CUgraphNode add_copy(CUgraph graph, CUgraphNode after, CUdeviceptr to, float *host_to,
                            CUdeviceptr from, const float *host_from)
{
    CUDA_MEMCPY3D copy;
    CUgraphNode node;

    memset(&copy, 0, sizeof copy);
    copy.srcMemoryType = host_from ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.srcHost = host_from;
    copy.srcDevice = from;
    copy.dstMemoryType = host_to ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.dstHost = host_to;
    copy.dstDevice = to;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    DRV(cu.GraphAddMemcpyNode(&node, graph, &after, 1, &copy, context));
    return node;
}

static CUgraphNode add_saxpy(CUgraph graph, CUgraphNode after, float factor, CUdeviceptr x,
                             CUdeviceptr y, size_t n)
{
    unsigned count = (unsigned)n;
    void *params[] = {&factor, &x, &y, &count};
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUgraphNode node;

    memset(&kernel, 0, sizeof kernel);
    kernel.func = saxpy;
    kernel.gridDimX = (count + 255) / 256;
    kernel.blockDimX = 256;
    kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = params;
    DRV(cu.GraphAddKernelNode_v2(&node, graph, &after, 1, &kernel));
    return node;
}

static CUgraphExec built(CUdeviceptr *ret_c, unsigned flags)
{
    CUgraphNode node, out, both[2];
    CUdeviceptr a, b, c;
    CUgraphExec exec;
    CUgraph graph;

    DRV(cu.GraphCreate(&graph, 0));
    node = add_alloc(graph, NULL, &a);
    node = add_alloc(graph, node, &b);
    node = add_copy(graph, node, a, NULL, 0, in);
    node = add_copy(graph, node, b, NULL, a, NULL);
    node = add_saxpy(graph, node, 1, a + bytes - 4 * TAIL, b + bytes - 4 * TAIL, TAIL);
    both[0] = add_copy(graph, node, 0, twice, b, NULL);
    node = add_alloc(graph, node, &c);
    node = add_copy(graph, node, c, NULL, b, NULL);
    both[1] = add_saxpy(graph, node, -1, a, c, words);
    DRV(cu.GraphAddMemFreeNode(&node, graph, &both[1], 1, a));
    DRV(cu.GraphAddMemFreeNode(&node, graph, both, 2, b));
    out = add_copy(graph, both[1], 0, minus, c, NULL);
    if (ret_c) {
        *ret_c = c;
    } else {
        DRV(cu.GraphAddMemFreeNode(&node, graph, &out, 1, c));
    }
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, flags));
    DRV(cu.GraphDestroy(graph));
    return exec;
}

static CUgraphExec freeing(CUdeviceptr address)
{
    CUgraphExec exec;
    CUgraph graph;
    CUgraphNode node;

    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddMemFreeNode(&node, graph, NULL, 0, address));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphDestroy(graph));
    return exec;
}

/* ---------------------------------------------------------------- cases */

static void check_account(size_t at_least)
{
    cuuint64_t used = 0, high = 0, reserved = 0;

    DRV(cu.DeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    DRV(cu.DeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &high));
    DRV(cu.DeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    check_true(used >= at_least && high >= used && reserved >= used, "the account of graph memory");
}

/* Launch it, and read what it leaves in the order of the stream. */
static void launch_and_read(CUgraphExec exec, CUdeviceptr left, CUdeviceptr to, CUstream stream)
{
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.MemcpyDtoDAsync_v2(to, left, bytes, stream));
}

static void check_left(CUdeviceptr copy, CUstream stream, const char *label)
{
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemcpyDtoH_v2(minus, copy, bytes));
    check_host(label);
}

static void left(CUgraphExec (*make)(CUdeviceptr *, unsigned), CUdeviceptr copy, CUstream stream)
{
    CUdeviceptr c;
    CUgraphExec exec = make(&c, 0), other = freeing(c);

    launch_and_read(exec, c, copy, stream);
    DRV(cu.StreamSynchronize(stream));
    check_account(bytes);
    DRV(cu.MemFree_v2(c));
    check_left(copy, stream, "freed by the program");
    launch_and_read(exec, c, copy, stream);
    DRV(cu.MemFreeAsync(c, stream));
    check_left(copy, stream, "freed in the stream");
    launch_and_read(exec, c, copy, stream);
    DRV(cu.GraphLaunch(other, stream));
    check_left(copy, stream, "freed by another graph");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphExecDestroy(other));
    exec = make(&c, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int i = 0; i < 3; i++) {
        launch_and_read(exec, c, copy, stream);
        check_left(copy, stream, "freed by the next launch");
    }
    DRV(cu.MemFreeAsync(c, stream));
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.GraphExecDestroy(exec));
}

static void closed(CUgraphExec (*make)(CUdeviceptr *, unsigned), int times, const char *label)
{
    CUgraphExec exec = make(NULL, 0);
    CUstream stream;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < times; i++) {
        DRV(cu.GraphLaunch(exec, stream));
        DRV(cu.StreamSynchronize(stream));
        check_host(label);
    }
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.StreamDestroy_v2(stream));
}

static void with_arrays(size_t count, int times)
{
    words = count;
    bytes = 4 * count;
    in = malloc(bytes);
    twice = malloc(bytes);
    minus = malloc(bytes);
    if (!in || !twice || !minus) {
        check_die("no memory");
    }
    fill();
    closed(captured, times, "captured");
    closed(built, times, "of nodes");
    DRV(cu.DeviceGraphMemTrim(0));
}

static void free_arrays(void)
{
    free(in);
    free(twice);
    free(minus);
}

int main(void)
{
    CUmodule module;
    CUstream stream;
    CUdeviceptr copy;

    context = driver_begin("drv_graph_fork");
    DRV(cu.ModuleLoadData(&module, image));
    saxpy = driver_function(module, "saxpy");
    with_arrays(LARGE, 1);
    free_arrays();
    with_arrays(SMALL, 2);
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    give(stream, NULL);
    DRV(cu.StreamSynchronize(stream));
    check_host("in a stream");
    DRV(cu.MemAlloc_v2(&copy, bytes));
    left(captured, copy, stream);
    left(built, copy, stream);
    free_arrays();
    DRV(cu.MemFree_v2(copy));
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}

/*
 * Memory of graphs: allocation and free nodes, added and captured; launches again and again; what a
 * launch leaves allocated, who frees it, and what may not be launched meanwhile.
 */
#include "check_driver.h"

enum { BYTES = 65536, WORDS = BYTES / 4 };

static unsigned back[WORDS];

static int all_are(unsigned value)
{
    int good = 1;

    for (int i = 0; i < WORDS; i++) {
        good &= back[i] == value;
    }
    return good;
}

static CUDA_MEM_ALLOC_NODE_PARAMS request(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;

    memset(&params, 0, sizeof(params));
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = BYTES;
    return params;
}

static CUgraphNode add_memset(CUgraph graph, CUgraphNode after, CUdeviceptr address, unsigned value,
                              CUcontext context)
{
    CUDA_MEMSET_NODE_PARAMS params;
    CUgraphNode node;

    memset(&params, 0, sizeof(params));
    params.dst = address;
    params.elementSize = 4;
    params.value = value;
    params.width = WORDS;
    params.height = 1;
    DRV(cu.GraphAddMemsetNode(&node, graph, &after, 1, &params, context));
    return node;
}

static CUgraphNode add_copy(CUgraph graph, CUgraphNode after, CUdeviceptr to, CUdeviceptr from,
                            CUcontext context)
{
    CUDA_MEMCPY3D copy;
    CUgraphNode node;

    memset(&copy, 0, sizeof(copy));
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.WidthInBytes = BYTES;
    copy.Height = copy.Depth = 1;
    DRV(cu.GraphAddMemcpyNode(&node, graph, &after, 1, &copy, context));
    return node;
}

/* alloc, fill, copy out, free: nothing is left, so it can be launched at will. */
static void closed(CUstream stream, CUdeviceptr out, CUcontext context)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = request(), got;
    CUgraphNode alloc, node;
    CUgraphNodeType type;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr freed = 0;

    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    check_true(params.dptr != 0, "an address when the node is made");
    node = add_memset(graph, alloc, params.dptr, 0x01020304u, context);
    node = add_copy(graph, node, out, params.dptr, context);
    DRV(cu.GraphAddMemFreeNode(&node, graph, &node, 1, params.dptr));
    DRV(cu.GraphNodeGetType(alloc, &type));
    check_true(type == CU_GRAPH_NODE_TYPE_MEM_ALLOC, "an allocation node");
    DRV(cu.GraphMemAllocNodeGetParams(alloc, &got));
    check_true(got.dptr == params.dptr && got.bytesize == BYTES, "its parameters");
    DRV(cu.GraphNodeGetType(node, &type));
    DRV(cu.GraphMemFreeNodeGetParams(node, &freed));
    check_true(type == CU_GRAPH_NODE_TYPE_MEM_FREE && freed == params.dptr, "a free node");
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 5; i++) {
        DRV(cu.GraphLaunch(exec, stream));
    }
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemcpyDtoH_v2(back, out, BYTES));
    check_true(all_are(0x01020304u), "what the graph's memory held");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

/* Captured: the same from a stream. */
static void captured(CUstream stream, CUdeviceptr out)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr scratch = 0;
    CUgraphNode nodes[8];
    size_t count = 8;
    int allocs = 0, frees = 0;

    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    DRV(cu.MemAllocAsync(&scratch, BYTES, stream));
    DRV(cu.MemsetD32Async(scratch, 77, WORDS, stream));
    DRV(cu.MemcpyDtoDAsync_v2(out, scratch, BYTES, stream));
    DRV(cu.MemFreeAsync(scratch, stream));
    DRV(cu.StreamEndCapture(stream, &graph));
    DRV(cu.GraphGetNodes(graph, nodes, &count));
    for (size_t i = 0; i < count && i < 8; i++) {
        CUgraphNodeType type;

        DRV(cu.GraphNodeGetType(nodes[i], &type));
        allocs += type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        frees += type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    }
    check_true(count == 4 && allocs == 1 && frees == 1, "the nodes of a captured allocation");
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.MemsetD32_v2(out, 0, WORDS));
    DRV(cu.CtxSynchronize()); /* nothing else orders it before a non-blocking stream */
    DRV(cu.GraphLaunch(exec, stream));
    /* Memory that others allocate meanwhile is not the graph's. */
    CUdeviceptr other;
    DRV(cu.MemAllocAsync(&other, BYTES, stream));
    DRV(cu.MemsetD32Async(other, 1, WORDS, stream));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemcpyDtoH_v2(back, other, BYTES));
    check_true(all_are(1), "memory beside the graph's");
    DRV(cu.MemcpyDtoH_v2(back, out, BYTES));
    check_true(all_are(77), "a captured allocation, replayed");
    DRV(cu.MemFreeAsync(other, stream));
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

/* Left allocated: freed by the program, or by the next launch if that was agreed. */
static void left(CUstream stream, CUcontext context, unsigned long long flags)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = request();
    CUgraphNode alloc;
    CUgraph graph;
    CUgraphExec exec;

    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    (void)add_memset(graph, alloc, params.dptr, 5, context);
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, flags));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemcpyDtoH_v2(back, params.dptr, BYTES));
    check_true(all_are(5), "memory that a launch left");
    if (flags == 0) {
        check_true(cu.GraphLaunch(exec, stream) == CUDA_ERROR_INVALID_VALUE,
                   "no launch before it is freed");
        DRV(cu.MemFreeAsync(params.dptr, stream));
    }
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemFreeAsync(params.dptr, stream));
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

int main(void)
{
    CUcontext context;
    CUstream stream;
    CUdeviceptr out;
    cuuint64_t used = 1, reserved = 0;

    context = driver_begin("drv_graph_memory");
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.MemAlloc_v2(&out, BYTES));
    closed(stream, out, context);
    captured(stream, out);
    left(stream, context, 0);
    left(stream, context, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    /* What counts as used after the last graph is gone is the driver's own affair (580: not 0). */
    DRV(cu.DeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    DRV(cu.DeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    check_true(used <= reserved, "no more in use than reserved");
    DRV(cu.DeviceGraphMemTrim(0));
    DRV(cu.MemFree_v2(out));
    DRV(cu.StreamDestroy_v2(stream));
    return driver_end();
}

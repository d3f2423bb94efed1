/* What belongs to a capture and is destroyed before it ends. */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { N = 256 };

static CUdeviceptr device;
static CUfunction chain;

static void launch(CUstream stream)
{
    unsigned n = N;
    void *params[] = {&device, &n};

    driver_launch(chain, 1, N, stream, params);
}

static CUstream begin(void)
{
    CUstream stream;

    DRV(cu.StreamCreate(&stream, CU_STREAM_DEFAULT));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(stream);
    return stream;
}

/* The graph under capture, and the node that comes next depends on. */
static CUgraph info(CUstream stream, CUgraphNode *ret_node)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes;
    cuuint64_t id;
    CUgraph graph;
    size_t n;

    DRV(cu.StreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &n));
    check_int((long long)n, 1, "nodes that the next one depends on");
    *ret_node = nodes[0];
    return graph;
}

/* @return the first word, which was 1. */
static unsigned run(CUgraph graph)
{
    CUgraphExec exec;
    unsigned word;

    DRV(cu.MemsetD32_v2(device, 1, N));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, NULL));
    DRV(cu.MemcpyDtoH_v2(&word, device, sizeof(word)));
    DRV(cu.GraphExecDestroy(exec));
    return word;
}

static void graph_and_node(void)
{
    CUstream stream = begin();
    CUgraph graph, known;
    CUgraphNode node;

    known = info(stream, &node);
    check_code(cu.GraphDestroy(known), CUDA_ERROR_ILLEGAL_STATE, "the graph under capture");
    check_code(cu.GraphDestroyNode(node), CUDA_ERROR_ILLEGAL_STATE, "its last node");
    launch(stream);
    check_code(cu.GraphDestroyNode(node), CUDA_ERROR_ILLEGAL_STATE, "a node before the last");
    DRV(cu.StreamEndCapture(stream, &graph));
    check_int(run(graph), 13, "two steps all the same");
    check_code(cu.GraphDestroy(known), CUDA_SUCCESS, "by its name from before the end");
    DRV(cu.StreamDestroy_v2(stream));
}

static void own_stream(void)
{
    CUstream stream = begin();
    CUgraphNode node;
    CUgraph graph;
    unsigned word;

    graph = info(stream, &node);
    check_code(cu.StreamDestroy_v2(stream), CUDA_SUCCESS, "the stream of a capture");
    check_true(cu.GraphDestroy(graph) != CUDA_SUCCESS, "its graph is gone");
    DRV(cu.MemsetD32_v2(device, 1, N));
    launch(NULL);
    DRV(cu.MemcpyDtoH_v2(&word, device, sizeof(word)));
    check_int(word, 4, "work of the legacy stream");
}

/* A stream that has joined; does the first wait for it again? */
static void joined_stream(int back)
{
    CUevent forked, joined;
    CUgraph graph = NULL;
    CUstream stream, side;

    DRV(cu.EventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    DRV(cu.EventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    DRV(cu.StreamCreate(&side, CU_STREAM_DEFAULT));
    launch(side); /* before the capture */
    stream = begin();
    DRV(cu.EventRecord(forked, stream));
    DRV(cu.StreamWaitEvent(side, forked, 0));
    launch(side);
    if (back) {
        DRV(cu.EventRecord(joined, side));
        DRV(cu.StreamWaitEvent(stream, joined, 0));
    }
    check_code(cu.StreamDestroy_v2(side), CUDA_SUCCESS, "a stream that has joined a capture");
    check_code(cu.StreamEndCapture(stream, &graph),
               back ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "the end of the capture");
    if (graph) {
        check_int(run(graph), 13, "a step of each stream");
        DRV(cu.GraphDestroy(graph));
    }
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.EventDestroy_v2(forked));
    DRV(cu.EventDestroy_v2(joined));
}

int main(void)
{
    CUmodule module;

    (void)driver_begin("drv_capture_destroyed");
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    chain = driver_function(module, "chain");
    DRV(cu.MemAlloc_v2(&device, N * sizeof(unsigned)));
    graph_and_node();
    own_stream();
    joined_stream(1);
    joined_stream(0);
    DRV(cu.MemFree_v2(device));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}

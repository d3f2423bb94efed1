/*
 * A program whose CUDA graphs are recorded by CUPTI.
 *
 *     e2e_cupti_graph nodes   each node has a record, where the host has a libcupti
 *     e2e_cupti_graph whole   a graph has one, where it has none
 */
#include "tests/e2e/cupti_records.h"

#define GRAPH_LAUNCHES 5
#define CHAIN          400u
#define CHAIN_LAUNCHES 100u /* the host keeps 131,072 nodes that have not been taken */

static CUevent forked, joined;

/* Two kernels, two branches of a kernel and of a copy, and a fill behind both. */
static void diamond(CUstream stream, CUstream side, void *pinned)
{
    launch(WORDS, stream);
    launch(1, stream);
    DRV(cu.EventRecord(forked, stream));
    DRV(cu.StreamWaitEvent(side, forked, 0));
    launch(200, side);
    DRV(CU(MemcpyDtoHAsync_v2)(pinned, memory, 4000, stream));
    DRV(cu.EventRecord(joined, side));
    DRV(cu.StreamWaitEvent(stream, joined, 0));
    DRV(CU(MemsetD32Async)(memory, 7, 100, stream));
}

static CUgraphExec captured_diamond(CUstream stream, CUstream side, void *pinned)
{
    CUgraph graph;
    CUgraphExec exec;
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    diamond(stream, side, pinned);
    DRV(cu.StreamEndCapture(stream, &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphDestroy(graph)); /* as PyTorch does */
    return exec;
}

static CUgraphExec first_diamond(CUstream *stream, CUstream *side, void **pinned)
{
    DRV(cu.StreamCreate(stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(side, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    DRV(cu.EventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    DRV(CU(MemAllocHost_v2)(pinned, WORDS * sizeof(uint32_t)));
    return captured_diamond(*stream, *side, *pinned);
}

static void record_end(void)
{
    DRV(cu.CtxSynchronize());
    record(false);
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
}

static void check_diamonds(uint32_t n)
{
    uint32_t blocks = 0;
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 3 * n, "kernels");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_MEMCPY], n, "copies");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_MEMSET], n, "fills");
    for (uint32_t i = 0; i < 3 * n; i++) {
        const CUpti_ActivityKernel10 *kernel = &rows.kernel[i];
        blocks += (uint32_t)kernel->gridX;
        check_true(kernel->name && strcmp(kernel->name, "mix") == 0, "the kernel's name");
        check_int(kernel->blockX, 128, "its blocks");
        check_true(kernel->start <= kernel->end, "its times");
        check_true(kernel->correlationId == rows.kernel[i - i % 3].correlationId, "its launch");
        check_int(kernel->streamId, rows.kernel[0].streamId, "its stream");
    }
    check_int(blocks, n * ((WORDS + 127) / 128 + 1 + 2), "the kernels' grids");
    check_int((long long)rows.copy[0].bytes, 4000, "bytes of the copy");
    check_int(rows.copy[0].copyKind, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, "from the device");
    check_int((long long)rows.fill.bytes, 400, "bytes of the fill");
    check_int(rows.fill.value, 7, "its value");
}

/* Branches run side by side, and nothing starts before what it depends on has ended. */
static void check_order(void)
{
    for (uint32_t i = 0; i < GRAPH_LAUNCHES; i++) {
        const CUpti_ActivityKernel10 *kernel = &rows.kernel[3 * i];
        check_true(kernel[0].end <= kernel[1].start, "the second kernel follows the first");
        check_true(kernel[1].end <= kernel[2].start, "the branch follows both");
        check_true(kernel[1].end <= rows.copy[i].start, "so does the other branch");
        check_true(i == 0 || kernel[-1].end <= kernel[0].start, "launches follow each other");
        check_true(kernel[0].graphId != 0 && kernel[0].graphId == rows.copy[i].graphId,
                   "its graph");
        check_true(kernel[0].graphNodeId != kernel[1].graphNodeId &&
                       kernel[1].graphNodeId != kernel[2].graphNodeId && kernel[0].graphNodeId != 0,
                   "nodes have ids");
        check_true(kernel[0].graphNodeId == rows.kernel[0].graphNodeId, "the same in each launch");
    }
    check_true(rows.fill.start >= rows.copy[GRAPH_LAUNCHES - 1].end, "the fill follows the copy");
    check_true(rows.fill.start >= rows.kernel[3 * GRAPH_LAUNCHES - 1].end, "and the branch");
}

/* A graph is one record of another kind, if that is wanted. */
static void check_wholes(CUgraphExec exec, CUstream stream)
{
    uint32_t id;
    check_int(stream_id(NULL, stream, 0, &id), CUPTI_SUCCESS, "a stream's id");
    check_int(enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), CUPTI_SUCCESS, "enable graphs");
    record(true);
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.GraphLaunch(exec, stream));
    launch(1, stream);
    record_end();
    check_int(disable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), CUPTI_SUCCESS, "disable graphs");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_GRAPH_TRACE], 2, "graphs");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 1, "other kernels");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_MEMCPY], 0, "their copies");
    check_true(rows.graph.start < rows.graph.end && rows.graph.end <= rows.kernel[0].start,
               "the second graph's time");
    check_true(rows.graph.correlationId < rows.kernel[0].correlationId, "its launch");
    check_int(rows.graph.streamId, id, "its stream");
    check_true(rows.graph.graphId != 0, "its graph");
}

static void check_updates(CUgraphExec exec, CUstream stream, CUstream side, void *pinned)
{
    CUgraph graph;
    CUgraphExecUpdateResultInfo info;
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    diamond(stream, side, pinned);
    DRV(cu.StreamEndCapture(stream, &graph));
    record(true);
    DRV(CU(GraphExecUpdate_v2)(exec, graph, &info));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(CU(GraphExecUpdate_v2)(exec, graph, &info));
    DRV(cu.GraphLaunch(exec, stream));
    record_end();
    check_diamonds(2);
    DRV(cu.GraphDestroy(graph));
}

static void scenario_graph(void)
{
    CUstream stream, side, third;
    void *pinned;
    uint32_t first;
    DRV(cu.StreamCreate(&third, CU_STREAM_NON_BLOCKING));
    CUgraphExec exec = first_diamond(&stream, &side, &pinned);
    DRV(cu.GraphLaunch(exec, stream)); /* before anybody records */
    record(true);
    for (int i = 0; i < GRAPH_LAUNCHES; i++) { /* nobody waits in between */
        DRV(cu.GraphLaunch(exec, stream));
    }
    record_end();
    check_diamonds(GRAPH_LAUNCHES);
    check_order();
    record(true);
    for (int i = 0; i < 3; i++) {
        DRV(cu.GraphLaunch(exec, i % 2 ? third : stream));
        DRV(cu.CtxSynchronize());
    }
    record_end();
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 9, "in several streams");
    check_wholes(exec, stream);
    check_updates(exec, stream, side, pinned);
    memset(pinned, 0, WORDS * sizeof(uint32_t));
    DRV(cu.MemsetD32_v2(memory, 3, WORDS));
    DRV(cu.CtxSynchronize()); /* the graph's stream does not wait for the memset */
    record(true);
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.GraphExecDestroy(exec)); /* while it runs */
    record_end();
    check_diamonds(1);
    DRV(cu.MemcpyDtoH_v2(&first, memory, sizeof first));
    check_int(first, 7, "what the graph's last node wrote");
    check_int(*(const uint32_t *)pinned, 3, "what it copied before");
}

/* Where the host knows no times of nodes. */
static void scenario_whole(void)
{
    CUstream stream, side;
    void *pinned;
    CUgraphExec exec = first_diamond(&stream, &side, &pinned);
    record(true);
    DRV(cu.GraphLaunch(exec, stream));
    record_end();
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 1, "a row for the whole");
    check_true(rows.kernel[0].name && strcmp(rows.kernel[0].name, "CUDA graph") == 0, "its name");
    check_wholes(exec, stream);
}

/* Far more nodes than one reply can have. */
static void scenario_chain(void)
{
    CUstream stream;
    CUgraph graph, child, whole;
    CUgraphNode node;
    CUgraphExec exec;
    size_t dropped;
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (uint32_t i = 0; i < CHAIN; i++) {
        launch(1, stream);
    }
    DRV(cu.StreamEndCapture(stream, &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    record(true);
    for (uint32_t i = 0; i < CHAIN_LAUNCHES; i++) {
        DRV(cu.GraphLaunch(exec, stream));
    }
    record_end();
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], CHAIN * CHAIN_LAUNCHES,
              "all kernels of a chain");
    check_true(rows.in_order, "they are in order");
    check_int(n_dropped(NULL, 0, &dropped), CUPTI_SUCCESS, "dropped");
    check_int((long long)dropped, 0, "none is dropped");
    DRV(cu.GraphCreate(&whole, 0));
    DRV(cu.GraphCreate(&child, 0));
    DRV(cu.GraphAddChildGraphNode(&node, child, NULL, 0, graph));
    DRV(cu.GraphAddChildGraphNode(&node, whole, NULL, 0, child));
    DRV(cu.GraphAddChildGraphNode(&node, whole, &node, 1, graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, whole, 0));
    record(true);
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.GraphLaunch(exec, stream));
    record_end();
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 4 * CHAIN, "of child graphs");
    check_true(rows.in_order, "in order, too");
}

int main(int argc, char **argv)
{
    bool whole = argc > 1 && strcmp(argv[1], "whole") == 0;

    begin();
    if (whole) {
        scenario_whole();
    } else {
        scenario_graph();
        scenario_chain();
    }
    return driver_end();
}

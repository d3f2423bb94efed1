/*
 * Events that graphs record and wait for: as nodes, and external ones under capture. A launch
 * records them like any other record, so what asks about them or waits for them sees the launch.
 */
#include "check_driver.h"

#include "gate.h"

enum { WORDS = 1024 };

static CUstream held, other;
static CUdeviceptr from, to;
static struct gate gate;

static unsigned word_of(CUdeviceptr at)
{
    unsigned word = 0;

    DRV(cu.MemcpyDtoH_v2(&word, at, sizeof(word)));
    return word;
}

static void begin(void)
{
    DRV(cu.CtxSynchronize()); /* the last gate is left */
    memset(&gate, 0, sizeof(gate));
    DRV(cu.MemsetD32_v2(from, 0, WORDS));
    DRV(cu.MemsetD32_v2(to, 0, WORDS));
    DRV(cu.CtxSynchronize());
    DRV(cu.LaunchHostFunc(held, gate_hold, &gate));
}

static void fill_of(CUDA_MEMSET_NODE_PARAMS *ret_fill)
{
    memset(ret_fill, 0, sizeof(*ret_fill));
    ret_fill->dst = from;
    ret_fill->value = 7;
    ret_fill->elementSize = 4;
    ret_fill->width = WORDS;
    ret_fill->height = 1;
}

/* An event node behind a fill. */
static void make_graph(CUcontext context, CUevent event, CUgraph *ret_graph, CUgraphNode *ret_node)
{
    CUDA_MEMSET_NODE_PARAMS fill;
    CUgraphNode filled;

    fill_of(&fill);
    DRV(cu.GraphCreate(ret_graph, 0));
    DRV(cu.GraphAddMemsetNode(&filled, *ret_graph, NULL, 0, &fill, context));
    DRV(cu.GraphAddEventRecordNode(ret_node, *ret_graph, &filled, 1, event));
}

static void capture_graph(CUevent event, CUgraph *ret_graph)
{
    DRV(cu.StreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    DRV(cu.MemsetD32Async(from, 7, WORDS, other));
    DRV(cu.EventRecordWithFlags(event, other, CU_EVENT_RECORD_EXTERNAL));
    DRV(cu.StreamEndCapture(other, ret_graph));
}

/* Launched behind a gate, the graph fills an array that another stream copies. */
static void check_order(CUgraph graph, CUevent event, const char *label)
{
    CUgraphExec exec;

    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    begin();
    check_code(cu.EventQuery(event), CUDA_SUCCESS, label);
    DRV(cu.GraphLaunch(exec, held));
    check_code(cu.EventQuery(event), CUDA_ERROR_NOT_READY, label);
    DRV(cu.StreamWaitEvent(other, event, 0));
    DRV(cu.MemcpyDtoDAsync_v2(to, from, 4, other));
    check_code(cu.StreamQuery(other), CUDA_ERROR_NOT_READY, label);
    gate_open(&gate);
    check_code(cu.EventSynchronize(event), CUDA_SUCCESS, label);
    check_int(word_of(from), 7, label);
    DRV(cu.StreamSynchronize(other));
    check_int(word_of(to), 7, label);
    DRV(cu.GraphExecDestroy(exec));
}

static void recorded_by_graphs(CUcontext context)
{
    CUevent event, captured;
    CUgraph graph;
    CUgraphNode node;
    float milliseconds = -1;

    DRV(cu.EventCreate(&event, CU_EVENT_DEFAULT));
    DRV(cu.EventCreate(&captured, CU_EVENT_DEFAULT));
    make_graph(context, event, &graph, &node);
    check_order(graph, event, "a node");
    DRV(cu.GraphDestroy(graph));
    capture_graph(captured, &graph);
    check_order(graph, captured, "an external event");
    DRV(cu.GraphDestroy(graph));
    check_code(cu.EventElapsedTime_v2(&milliseconds, event, captured), CUDA_SUCCESS,
               "the time between two graphs");
    check_true(milliseconds > 0, "it is positive");
    DRV(cu.EventDestroy_v2(event));
    DRV(cu.EventDestroy_v2(captured));
}

/* Recorded in one stream after another, while the first record is yet to happen. */
static void recorded_before(CUcontext context)
{
    CUevent event, got = NULL;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;

    DRV(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    begin();
    DRV(cu.EventRecord(event, held));
    DRV(cu.EventRecord(event, other));
    make_graph(context, event, &graph, &node);
    DRV(cu.GraphEventRecordNodeGetEvent(node, &got));
    check_true(got == event, "the node has an event that was recorded twice before");
    DRV(cu.EventRecord(event, held));
    DRV(cu.EventRecord(event, other));
    DRV(cu.GraphEventRecordNodeGetEvent(node, &got));
    check_true(got == event, "and twice since");
    gate_open(&gate);
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    check_code(cu.GraphLaunch(exec, other), CUDA_SUCCESS, "the graph is launched");
    check_code(cu.EventSynchronize(event), CUDA_SUCCESS, "the event is waited for");
    check_int(word_of(from), 7, "what was filled before the node");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.EventDestroy_v2(event));
}

static void waited_for_by_a_graph(CUcontext context)
{
    CUDA_MEMSET_NODE_PARAMS fill;
    CUevent event;
    CUgraph graph;
    CUgraphNode wait, filled;
    CUgraphExec exec;

    fill_of(&fill);
    DRV(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddEventWaitNode(&wait, graph, NULL, 0, event));
    DRV(cu.GraphAddMemsetNode(&filled, graph, &wait, 1, &fill, context));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    begin();
    DRV(cu.EventRecord(event, other));
    DRV(cu.EventRecord(event, held));
    DRV(cu.GraphLaunch(exec, other));
    check_code(cu.StreamQuery(other), CUDA_ERROR_NOT_READY, "a graph waits for an event");
    gate_open(&gate);
    DRV(cu.StreamSynchronize(other));
    check_int(word_of(from), 7, "what was filled behind the wait");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.EventDestroy_v2(event));
}

int main(void)
{
    CUcontext context = driver_begin("drv_graph_events");

    DRV(cu.StreamCreate(&held, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DRV(cu.MemAlloc_v2(&from, WORDS * 4));
    DRV(cu.MemAlloc_v2(&to, WORDS * 4));
    recorded_by_graphs(context);
    recorded_before(context);
    waited_for_by_a_graph(context);
    DRV(cu.MemFree_v2(from));
    DRV(cu.MemFree_v2(to));
    DRV(cu.StreamDestroy_v2(held));
    DRV(cu.StreamDestroy_v2(other));
    return driver_end();
}

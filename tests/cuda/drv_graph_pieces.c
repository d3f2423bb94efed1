/*
 * Graphs of many nodes, launched again and again, so that a host may launch them in pieces: a
 * chain, branches that fork and join, a child graph; destroyed or changed after they were
 * instantiated; whose executable graphs are changed between launches, launched into several
 * streams, or captured.
 *
 * Each step makes x = 3x + 1 of every word, so a step that is left out, done twice, or done too
 * early shows in the result.
 */
#include "check_driver.h"
#include "gate.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { N = 256, BYTES = N * 4, CHAIN = 24, ROUNDS = 6 };

static CUfunction chain;
static CUdeviceptr a, b, c;

static unsigned steps(unsigned x, int n)
{
    while (n-- > 0) {
        x = 3 * x + 1;
    }
    return x;
}

static int all_are(CUdeviceptr device, unsigned value)
{
    unsigned got[N];
    int good = 1;

    DRV(cu.CtxSynchronize());
    DRV(cu.MemcpyDtoH_v2(got, device, BYTES));
    for (int i = 0; i < N; i++) {
        good &= got[i] == value;
    }
    return good;
}

static void set_all(CUdeviceptr device, unsigned value)
{
    DRV(cu.MemsetD32_v2(device, value, N));
    DRV(cu.CtxSynchronize());
}

static void step(CUstream stream, CUdeviceptr x)
{
    unsigned n = N;
    void *params[] = {&x, &n};

    driver_launch(chain, 1, N, stream, params);
}

static void launch(CUgraphExec exec, CUstream stream, int n)
{
    for (int i = 0; i < n; i++) {
        DRV(cu.GraphLaunch(exec, stream));
    }
}

/* ---------------------------------------------------------------- captured */

/* a = 1, then 10 times a step of a, c = a, a step of c, a = c; then 8 more of a beside 12 of b,
 * which goes on from where it was; then c = a, 5 steps of c. */
static void capture_branches(CUstream first, CUstream second, CUgraph *ret_graph)
{
    CUevent fork, join;

    DRV(cu.EventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    DRV(cu.EventCreate(&join, CU_EVENT_DISABLE_TIMING));
    DRV(cu.StreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DRV(cu.MemsetD32Async(a, 1, N, first));
    for (int i = 0; i < 10; i++) {
        step(first, a);
        DRV(cu.MemcpyDtoDAsync_v2(c, a, BYTES, first));
        step(first, c);
        DRV(cu.MemcpyDtoDAsync_v2(a, c, BYTES, first));
    }
    DRV(cu.EventRecord(fork, first));
    DRV(cu.StreamWaitEvent(second, fork, 0));
    for (int i = 0; i < 12; i++) {
        step(second, b);
    }
    for (int i = 0; i < 8; i++) {
        step(first, a);
    }
    DRV(cu.EventRecord(join, second));
    DRV(cu.StreamWaitEvent(first, join, 0));
    DRV(cu.MemcpyDtoDAsync_v2(c, a, BYTES, first));
    for (int i = 0; i < 5; i++) {
        step(first, c);
    }
    DRV(cu.StreamEndCapture(first, ret_graph));
    DRV(cu.EventDestroy_v2(fork));
    DRV(cu.EventDestroy_v2(join));
}

static void branches(void)
{
    CUstream first, second;
    CUgraphExec exec;
    CUgraph graph;

    DRV(cu.StreamCreate(&first, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&second, CU_STREAM_NON_BLOCKING));
    capture_branches(first, second, &graph);
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphDestroy(graph));
    set_all(b, 7);
    launch(exec, first, ROUNDS);
    check_true(all_are(a, steps(1, 28)), "the first branch");
    check_true(all_are(b, steps(7, 12 * ROUNDS)), "the second branch, of all launches");
    check_true(all_are(c, steps(1, 33)), "behind both");
    for (int i = 0; i < ROUNDS; i++) {
        launch(exec, i % 2 == 0 ? second : first, 2);
    }
    check_true(all_are(b, steps(7, 36 * ROUNDS)), "launches in two streams come one after another");
    check_true(all_are(c, steps(1, 33)), "and each is right");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.StreamDestroy_v2(first));
    DRV(cu.StreamDestroy_v2(second));
}

/* ---------------------------------------------------------------- several streams */

/* A launch waits for the one before it, also where that was into another stream, which is held. */
static void held_stream(CUgraph graph, CUstream first, CUstream second)
{
    struct gate gate = {0, 0};
    CUgraphExec exec;

    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    launch(exec, first, ROUNDS);
    DRV(cu.StreamSynchronize(first));
    DRV(cu.LaunchHostFunc(first, gate_hold, &gate));
    check_true(gate_wait_entered(&gate), "the stream is held");
    launch(exec, first, 1);
    launch(exec, second, 1);
    usleep(20000);
    check_code(cu.StreamQuery(second), CUDA_ERROR_NOT_READY, "the next launch waits");
    gate_open(&gate);
    DRV(cu.StreamSynchronize(second));
    DRV(cu.GraphExecDestroy(exec));
}

static void several_streams(void)
{
    CUstream first, second;
    CUgraph graph;

    DRV(cu.StreamCreate(&first, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&second, CU_STREAM_NON_BLOCKING));
    capture_branches(first, second, &graph);
    set_all(b, 7);
    for (int i = 0; i < 3; i++) {
        held_stream(graph, first, second);
    }
    check_true(all_are(b, steps(7, 12 * 3 * (ROUNDS + 2))), "and none is lost");
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(first));
    DRV(cu.StreamDestroy_v2(second));
}

/* ---------------------------------------------------------------- a chain of nodes */

static CUDA_KERNEL_NODE_PARAMS_v2 kernel_params(void **params)
{
    CUDA_KERNEL_NODE_PARAMS_v2 p;

    memset(&p, 0, sizeof(p));
    p.func = chain;
    p.gridDimX = p.gridDimY = p.gridDimZ = 1;
    p.blockDimX = N;
    p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    return p;
}

static CUgraph make_chain(CUdeviceptr x, CUgraphNode *nodes)
{
    unsigned n = N;
    void *params[] = {&x, &n};
    CUDA_KERNEL_NODE_PARAMS_v2 p = kernel_params(params);
    CUgraph graph;

    DRV(cu.GraphCreate(&graph, 0));
    for (int i = 0; i < CHAIN; i++) {
        DRV(cu.GraphAddKernelNode_v2(&nodes[i], graph, i > 0 ? &nodes[i - 1] : NULL, i > 0, &p));
    }
    return graph;
}

/* What was instantiated counts, not what becomes of the graph. */
static void changed_graph(void)
{
    unsigned none = 0;
    void *params[] = {&a, &none};
    CUDA_KERNEL_NODE_PARAMS_v2 idle = kernel_params(params);
    CUgraphNode nodes[CHAIN];
    CUgraph graph = make_chain(a, nodes);
    CUgraphExec exec, later;

    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphKernelNodeSetParams_v2(nodes[3], &idle));
    DRV(cu.GraphDestroyNode(nodes[CHAIN - 1]));
    DRV(cu.GraphInstantiateWithFlags(&later, graph, 0));
    set_all(a, 1);
    launch(exec, NULL, ROUNDS);
    check_true(all_are(a, steps(1, CHAIN * ROUNDS)), "as it was instantiated");
    set_all(a, 1);
    launch(later, NULL, ROUNDS);
    check_true(all_are(a, steps(1, (CHAIN - 2) * ROUNDS)), "as it was instantiated later");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphExecDestroy(later));
    DRV(cu.GraphDestroy(graph));
}

/* Launches with a change before them. */
static void check_changed(CUgraphExec exec, CUdeviceptr x, int n, const char *label)
{
    set_all(x, 1);
    launch(exec, NULL, ROUNDS);
    check_true(all_are(x, steps(1, n * ROUNDS)), label);
}

static void changed_exec(void)
{
    unsigned none = 0;
    void *params[] = {&a, &none};
    CUDA_KERNEL_NODE_PARAMS_v2 idle = kernel_params(params);
    CUgraphNode nodes[CHAIN], others[CHAIN];
    CUgraph graph = make_chain(a, nodes), other = make_chain(b, others);
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec[3];
    unsigned enabled = 2;

    for (int i = 0; i < 3; i++) {
        DRV(cu.GraphInstantiateWithFlags(&exec[i], graph, 0));
        DRV(cu.GraphNodeGetEnabled(exec[i], nodes[5], &enabled));
        check_int(enabled, 1, "enabled");
        check_changed(exec[i], a, CHAIN, "before a change");
    }
    DRV(cu.GraphExecKernelNodeSetParams_v2(exec[0], nodes[11], &idle));
    check_changed(exec[0], a, CHAIN - 1, "a node with other parameters");
    DRV(cu.GraphNodeSetEnabled(exec[1], nodes[17], 0));
    check_changed(exec[1], a, CHAIN - 1, "a node that is disabled");
    memset(&info, 0, sizeof(info));
    set_all(b, 1);
    DRV(cu.GraphExecUpdate_v2(exec[2], other, &info));
    check_changed(exec[2], b, CHAIN, "updated from another graph");
    check_true(all_are(a, steps(1, (CHAIN - 1) * ROUNDS)), "which leaves the old place alone");
    for (int i = 0; i < 3; i++) {
        DRV(cu.GraphExecDestroy(exec[i]));
    }
    DRV(cu.GraphDestroy(graph));
    DRV(cu.GraphDestroy(other));
}

/* A step, the chain as a child, a step, the chain again. */
static void children(void)
{
    unsigned n = N;
    void *params[] = {&a, &n};
    CUDA_KERNEL_NODE_PARAMS_v2 p = kernel_params(params);
    CUgraphNode nodes[CHAIN], node;
    CUgraph child = make_chain(a, nodes), graph;
    CUgraphExec exec;

    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddKernelNode_v2(&node, graph, NULL, 0, &p));
    DRV(cu.GraphAddChildGraphNode(&node, graph, &node, 1, child));
    DRV(cu.GraphAddKernelNode_v2(&node, graph, &node, 1, &p));
    DRV(cu.GraphAddChildGraphNode(&node, graph, &node, 1, child));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.GraphDestroy(child));
    set_all(a, 1);
    launch(exec, NULL, ROUNDS);
    check_true(all_are(a, steps(1, (2 * CHAIN + 2) * ROUNDS)), "with child graphs");
    DRV(cu.GraphExecDestroy(exec));
}

/* A launch into a stream under capture is refused, and spoils nothing else. */
static void captured_launch(void)
{
    CUgraphNode nodes[CHAIN];
    CUgraph graph = make_chain(a, nodes), captured = NULL;
    CUgraphExec exec;
    CUstream stream;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    set_all(a, 1);
    launch(exec, stream, ROUNDS);
    check_true(all_are(a, steps(1, CHAIN * ROUNDS)), "before a capture");
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    step(stream, a);
    check_code(cu.GraphLaunch(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
               "a launch in a capture");
    (void)cu.StreamEndCapture(stream, &captured);
    launch(exec, stream, 1);
    check_true(all_are(a, steps(1, CHAIN * ROUNDS + CHAIN)), "behind a capture");
    if (captured) {
        DRV(cu.GraphDestroy(captured));
    }
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(stream));
}

int main(void)
{
    CUmodule module;

    (void)driver_begin("drv_graph_pieces");
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    chain = driver_function(module, "chain");
    DRV(cu.MemAlloc_v2(&a, BYTES));
    DRV(cu.MemAlloc_v2(&b, BYTES));
    DRV(cu.MemAlloc_v2(&c, BYTES));
    branches();
    several_streams();
    changed_graph();
    changed_exec();
    children();
    captured_launch();
    DRV(cu.MemFree_v2(a));
    DRV(cu.MemFree_v2(b));
    DRV(cu.MemFree_v2(c));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}

/*
 * Functions of the program that write the source and read the result of copies between ordinary
 * host memory and the GPU. A round is, in this order:
 *
 *     make:   fill `in` with other numbers, and `out` with a pattern
 *     in -> a;  a = 3 * a + 1;  a -> out
 *     judge:  count the round as good if `out` is right; spoil `out`
 *
 * A graph has all of a round, or only its middle with the functions in the stream around it. Rounds
 * follow each other without a wait: as nodes, captured from one stream and from two, cloned, as a
 * child graph, and as plain work of streams. Once with few words, once with many. Graphs with large
 * copies may be refused, but not be wrong.
 *
 * `out` is ordinary memory. `in` is pinned first, then ordinary memory. From that, NVIDIA's driver
 * 580 copies what is there about when a graph is launched, not what a function of the graph writes
 * later; so then each launch is waited for, and each word may be what this round wrote, or the one
 * before. Of many words natively some are this and some that (H200, 2026-11-27).
 */
#include "check_driver.h"

#include <stdlib.h>
#include <unistd.h>

CHECK_EMBED(image, "ptx/basic.ptx");

enum { FEW = 64, MANY = 300000, LARGE = 4500000, ROUNDS = 3, UNTOUCHED = 7, SPOILT = 9 };

static CUcontext context;
static CUfunction chain;
static unsigned *in, *out;
static int in_pinned;
static unsigned words;
static size_t bytes;
static CUdeviceptr a;
static int made, good, others;

static void CUDA_CB make(void *unused)
{
    (void)unused;
    made++;
    for (unsigned i = 0; i < words; i++) {
        in[i] = i % 1000 + (unsigned)made;
        out[i] = UNTOUCHED;
    }
}

static unsigned right_at(unsigned i, int round)
{
    return 3 * (i % 1000 + (unsigned)round) + 1;
}

static unsigned first_wrong(void)
{
    unsigned i = 0;

    while (i < words &&
           (out[i] == right_at(i, made) || (!in_pinned && out[i] == right_at(i, made - 1)))) {
        i++;
    }
    return i;
}

/* Between a launch and the next function that writes `in`. */
static void after_launch(CUstream stream)
{
    if (!in_pinned) {
        DRV(cu.StreamSynchronize(stream));
    }
}

static void CUDA_CB judge(void *count)
{
    unsigned wrong = first_wrong();

    ++*(int *)(count ? count : &good);
    if (wrong != words) {
        printf("     round %d, %u words, %s: out[%u] is %u, not %u\n", made, words,
               in_pinned ? "pinned" : "pageable", wrong, out[wrong], right_at(wrong, made));
        good = -1000;
    }
    for (unsigned i = 0; i < words; i++) {
        out[i] = SPOILT;
    }
}

static void CUDA_CB be_slow(void *unused)
{
    (void)unused;
    usleep(20000);
}

/* Have `rounds` been good since the last check, and does what the last function wrote remain? */
static void check_rounds(int rounds, const char *label)
{
    check_int(good, rounds, label);
    check_true(out[0] == SPOILT && out[words - 1] == SPOILT, "what the function wrote remains");
    good = 0;
}

static void fill_copy(CUDA_MEMCPY3D *copy, int to_gpu)
{
    memset(copy, 0, sizeof(*copy));
    copy->srcMemoryType = to_gpu ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy->dstMemoryType = to_gpu ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    copy->srcHost = in;
    copy->dstHost = out;
    copy->srcDevice = copy->dstDevice = a;
    copy->WidthInBytes = copy->srcPitch = copy->dstPitch = bytes;
    copy->Height = copy->Depth = copy->srcHeight = copy->dstHeight = 1;
}

/* The middle of a round behind a node (or NULL); gives the last node. */
static CUgraphNode add_middle(CUgraph graph, const CUgraphNode *after)
{
    void *params[] = {&a, &words};
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    CUDA_MEMCPY3D copy;
    CUgraphNode first, second, last;

    memset(&kernel, 0, sizeof(kernel));
    kernel.func = chain;
    kernel.gridDimX = (words + 255) / 256;
    kernel.blockDimX = 256;
    kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = params;
    fill_copy(&copy, 1);
    DRV(cu.GraphAddMemcpyNode(&first, graph, after, after != NULL, &copy, context));
    DRV(cu.GraphAddKernelNode_v2(&second, graph, &first, 1, &kernel));
    fill_copy(&copy, 0);
    DRV(cu.GraphAddMemcpyNode(&last, graph, &second, 1, &copy, context));
    return last;
}

static CUgraphNode add_function(CUgraph graph, const CUgraphNode *after, CUhostFn fn)
{
    const CUDA_HOST_NODE_PARAMS params = {.fn = fn, .userData = NULL};
    CUgraphNode node;

    DRV(cu.GraphAddHostNode(&node, graph, after, after != NULL, &params));
    return node;
}

static void run_middle(CUstream stream)
{
    void *params[] = {&a, &words};

    DRV(cu.MemcpyHtoDAsync_v2(a, in, bytes, stream));
    driver_launch(chain, (words + 255) / 256, 256, stream, params);
    DRV(cu.MemcpyDtoHAsync_v2(out, a, bytes, stream));
}

/* Two executables of one graph in turn, and no wait where `in` is pinned. */
static void launch_both(CUgraph graph, CUgraph other, CUstream stream, const char *label)
{
    CUgraphExec exec[2];

    DRV(cu.GraphInstantiateWithFlags(&exec[0], graph, 0));
    DRV(cu.GraphInstantiateWithFlags(&exec[1], other, 0));
    for (int i = 0; i < 2 * ROUNDS; i++) {
        DRV(cu.GraphLaunch(exec[i % 2], stream));
        after_launch(stream);
    }
    DRV(cu.StreamSynchronize(stream));
    check_rounds(2 * ROUNDS, label);
    DRV(cu.GraphExecDestroy(exec[0]));
    DRV(cu.GraphExecDestroy(exec[1]));
}

static void nodes(CUstream stream)
{
    const CUDA_HOST_NODE_PARAMS other = {.fn = judge, .userData = &others};
    CUgraph graph, clone;
    CUgraphExec exec;
    CUgraphNode node, last;

    DRV(cu.GraphCreate(&graph, 0));
    node = add_function(graph, NULL, make);
    node = add_middle(graph, &node);
    last = add_function(graph, &node, judge);
    DRV(cu.GraphClone(&clone, graph));
    launch_both(graph, clone, stream, "nodes, and a clone");
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphExecHostNodeSetParams(exec, last, &other));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    check_int(others, 1, "another function of the executable graph");
    check_rounds(0, "which found the result");
    others = 0;
    /* Both go while the launch waits for its turn. */
    DRV(cu.LaunchHostFunc(stream, be_slow, NULL));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(clone));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamSynchronize(stream));
    check_int(others, 1, "a destroyed graph's last launch");
    check_rounds(0, "which found the result");
    others = 0;
}

static void child(CUstream stream)
{
    CUgraph graph, middle;
    CUgraphNode node, inner;

    DRV(cu.GraphCreate(&middle, 0));
    (void)add_middle(middle, NULL);
    DRV(cu.GraphCreate(&graph, 0));
    node = add_function(graph, NULL, make);
    DRV(cu.GraphAddChildGraphNode(&inner, graph, &node, 1, middle));
    (void)add_function(graph, &inner, judge);
    launch_both(graph, graph, stream, "a child graph");
    DRV(cu.GraphDestroy(graph));
    DRV(cu.GraphDestroy(middle));
}

static void captured(CUstream stream, CUstream side)
{
    CUevent begun, ended;
    CUgraph graph;

    DRV(cu.EventCreate(&begun, CU_EVENT_DISABLE_TIMING));
    DRV(cu.EventCreate(&ended, CU_EVENT_DISABLE_TIMING));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    DRV(cu.LaunchHostFunc(stream, make, NULL));
    run_middle(stream);
    DRV(cu.LaunchHostFunc(stream, judge, NULL));
    DRV(cu.StreamEndCapture(stream, &graph));
    launch_both(graph, graph, stream, "captured");
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    DRV(cu.LaunchHostFunc(stream, make, NULL));
    DRV(cu.EventRecord(begun, stream));
    DRV(cu.StreamWaitEvent(side, begun, 0));
    run_middle(side);
    DRV(cu.EventRecord(ended, side));
    DRV(cu.StreamWaitEvent(stream, ended, 0));
    DRV(cu.LaunchHostFunc(stream, judge, NULL));
    DRV(cu.StreamEndCapture(stream, &graph));
    launch_both(graph, graph, stream, "captured from two streams");
    DRV(cu.GraphDestroy(graph));
    DRV(cu.EventDestroy_v2(begun));
    DRV(cu.EventDestroy_v2(ended));
}

/* The graph has no functions: they come before and after it, the last one in another stream. */
static void around(CUstream stream, CUstream side)
{
    CUgraph graph;
    CUgraphExec exec;
    CUevent done;

    DRV(cu.EventCreate(&done, CU_EVENT_DISABLE_TIMING));
    DRV(cu.GraphCreate(&graph, 0));
    (void)add_middle(graph, NULL);
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < ROUNDS; i++) {
        DRV(cu.LaunchHostFunc(stream, be_slow, NULL));
        DRV(cu.LaunchHostFunc(stream, make, NULL));
        DRV(cu.GraphLaunch(exec, stream));
        DRV(cu.LaunchHostFunc(stream, judge, NULL));
        after_launch(stream);
    }
    DRV(cu.StreamSynchronize(stream));
    check_rounds(ROUNDS, "functions around a graph");
    DRV(cu.LaunchHostFunc(stream, make, NULL));
    DRV(cu.GraphLaunch(exec, stream));
    after_launch(stream);
    DRV(cu.EventRecord(done, stream));
    DRV(cu.LaunchHostFunc(stream, be_slow, NULL)); /* the stream itself is not done yet */
    DRV(cu.StreamWaitEvent(side, done, 0));
    DRV(cu.LaunchHostFunc(side, judge, NULL));
    DRV(cu.StreamSynchronize(side));
    check_rounds(1, "a function behind a graph in another stream");
    DRV(cu.StreamSynchronize(stream));
    make(NULL);
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    judge(NULL);
    check_rounds(1, "a graph without functions");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.EventDestroy_v2(done));
}

/* No graph. The source is written by the program; whether a copy that need not wait reads it before
 * an earlier function has written it, CUDA leaves open. */
static void plain(CUstream stream, CUstream side)
{
    void *params[] = {&a, &words};
    CUevent done;

    DRV(cu.EventCreate(&done, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < ROUNDS; i++) {
        make(NULL);
        run_middle(stream);
        DRV(cu.LaunchHostFunc(stream, judge, NULL));
        DRV(cu.StreamSynchronize(stream));
    }
    check_rounds(ROUNDS, "functions of a stream");
    make(NULL);
    run_middle(stream);
    DRV(cu.EventRecord(done, stream));
    DRV(cu.StreamWaitEvent(side, done, 0));
    DRV(cu.LaunchHostFunc(side, judge, NULL));
    DRV(cu.StreamSynchronize(side));
    check_rounds(1, "a function of another stream");
    DRV(cu.LaunchHostFunc(CU_STREAM_LEGACY, be_slow, NULL));
    DRV(cu.LaunchHostFunc(CU_STREAM_LEGACY, make, NULL));
    DRV(cu.MemcpyHtoD_v2(a, in, bytes)); /* waits for the stream before it reads */
    driver_launch(chain, (words + 255) / 256, 256, CU_STREAM_LEGACY, params);
    DRV(cu.MemcpyDtoH_v2(out, a, bytes));
    judge(NULL);
    check_rounds(1, "a copy that waits, behind a function");
    DRV(cu.EventDestroy_v2(done));
}

static void begin(unsigned n, int pinned)
{
    in_pinned = pinned;
    words = n;
    bytes = n * sizeof(unsigned);
    if (pinned) {
        DRV(cu.MemHostAlloc((void **)&in, bytes, 0));
    } else {
        in = malloc(bytes);
    }
    out = malloc(bytes);
    if (!in || !out) {
        check_die("no memory");
    }
    DRV(cu.MemAlloc_v2(&a, bytes));
    make(NULL);
}

static void end(void)
{
    DRV(cu.MemFree_v2(a));
    if (in_pinned) {
        DRV(cu.MemFreeHost(in));
    } else {
        free(in);
    }
    free(out);
}

static void large(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUresult result;

    begin(LARGE, 0);
    DRV(cu.GraphCreate(&graph, 0));
    node = add_middle(graph, NULL);
    (void)add_function(graph, &node, judge);
    result = cu.GraphInstantiateWithFlags(&exec, graph, 0);
    if (result == CUDA_SUCCESS) {
        DRV(cu.GraphLaunch(exec, NULL));
        DRV(cu.CtxSynchronize());
        DRV(cu.GraphExecDestroy(exec));
    }
    check_true(result == CUDA_ERROR_NOT_SUPPORTED || good == 1, "large copies");
    DRV(cu.GraphDestroy(graph));
    end();
}

static void run(unsigned n, int pinned)
{
    CUstream stream, side;

    begin(n, pinned);
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&side, CU_STREAM_NON_BLOCKING));
    nodes(stream);
    child(stream);
    captured(stream, side);
    around(stream, side);
    plain(stream, side);
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.StreamDestroy_v2(side));
    end();
}

int main(void)
{
    CUmodule module;

    context = driver_begin("drv_graph_functions");
    DRV(cu.ModuleLoadData(&module, image));
    chain = driver_function(module, "chain");
    run(FEW, 1);
    run(MANY, 1);
    run(FEW, 0);
    run(MANY, 0);
    large();
    DRV(cu.ModuleUnload(module));
    return driver_end();
}

/*
 * Graphs that live longer than what they were made of: their own graph, the streams and events of
 * their capture, earlier parameters, nodes and edges. A session that goes on in another worker has
 * to make such graphs again (docs/design/rebuild.md), with the same names and contents.
 */
#include "check_driver.h"

/* step: *at = *at * factor + add. wide: the same, with shared memory. */
static const char code[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".extern .shared .align 16 .b8 room[];\n"
    ".visible .entry step(.param .u64 at, .param .u32 factor, .param .u32 add)\n{\n"
    ".reg .b64 %rd<3>;\n.reg .b32 %r<5>;\n"
    "ld.param.u64 %rd1, [at];\ncvta.to.global.u64 %rd2, %rd1;\n"
    "ld.param.u32 %r1, [factor];\nld.param.u32 %r2, [add];\n"
    "ld.global.u32 %r3, [%rd2];\nmad.lo.u32 %r4, %r3, %r1, %r2;\n"
    "st.global.u32 [%rd2], %r4;\nret;\n}\n"
    ".visible .entry wide(.param .u64 at, .param .u32 factor, .param .u32 add)\n{\n"
    ".reg .b64 %rd<3>;\n.reg .b32 %r<6>;\n"
    "ld.param.u64 %rd1, [at];\ncvta.to.global.u64 %rd2, %rd1;\n"
    "ld.param.u32 %r1, [factor];\nld.param.u32 %r2, [add];\n"
    "mov.u32 %r5, room;\nst.shared.u32 [%r5], %r1;\nld.shared.u32 %r1, [%r5];\n"
    "ld.global.u32 %r3, [%rd2];\nmad.lo.u32 %r4, %r3, %r1, %r2;\n"
    "st.global.u32 [%rd2], %r4;\nret;\n}\n";

enum { WIDE_BYTES = 56 << 10, SETS = 300 };

static CUdeviceptr words;
static CUfunction step, wide;
static CUcontext context;
static int calls;

static CUdeviceptr at(int i)
{
    return words + 4u * (unsigned)i;
}

static unsigned word(int i)
{
    unsigned value;

    DRV(cu.MemcpyDtoH_v2(&value, at(i), 4));
    return value;
}

static void set_words(unsigned value)
{
    DRV(cu.MemsetD32_v2(words, value, 4));
    DRV(cu.CtxSynchronize());
}

static unsigned run(CUgraphExec exec)
{
    set_words(1);
    DRV(cu.GraphLaunch(exec, NULL));
    DRV(cu.StreamSynchronize(NULL));
    return word(0);
}

/* Parameters of a kernel that makes *at * factor + add of a word. */
struct params {
    CUdeviceptr at;
    unsigned factor, add;
    void *pointers[3];
    CUDA_KERNEL_NODE_PARAMS node;
};

static const CUDA_KERNEL_NODE_PARAMS *make(struct params *p, CUfunction f, unsigned factor,
                                           unsigned add)
{
    *p = (struct params){.at = words, .factor = factor, .add = add};
    p->pointers[0] = &p->at;
    p->pointers[1] = &p->factor;
    p->pointers[2] = &p->add;
    p->node = (CUDA_KERNEL_NODE_PARAMS){.func = f,
                                        .gridDimX = 1,
                                        .gridDimY = 1,
                                        .gridDimZ = 1,
                                        .blockDimX = 1,
                                        .blockDimY = 1,
                                        .blockDimZ = 1,
                                        .sharedMemBytes = f == wide ? WIDE_BYTES : 0,
                                        .kernelParams = p->pointers};
    return &p->node;
}

static void launch(CUstream stream, int i, unsigned factor, unsigned add)
{
    CUdeviceptr place = at(i);
    void *params[] = {&place, &factor, &add};

    driver_launch(step, 1, 1, stream, params);
}

static CUgraphNode add_step(CUgraph graph, const CUgraphNode *after, unsigned factor, unsigned add)
{
    struct params p;
    CUgraphNode node;

    DRV(cu.GraphAddKernelNode_v2(&node, graph, after, after != NULL, make(&p, step, factor, add)));
    return node;
}

static CUgraphExec instance(CUgraph graph)
{
    CUgraphExec exec;

    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void CUDA_CB called(void *user)
{
    calls += *(int *)user;
}

/* ---------------------------------------------------------------- captures */

static cuuint64_t id_of(CUstream stream)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;

    DRV(cu.StreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL));
    return id;
}

static CUgraph capture_fork(CUstream stream, CUevent reused, cuuint64_t *ret_id)
{
    static int one = 1;
    CUstream side;
    CUevent fork, join;
    CUgraph graph;

    DRV(cu.StreamCreate(&side, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    DRV(cu.EventCreate(&join, CU_EVENT_DEFAULT));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    *ret_id = id_of(stream);
    launch(stream, 0, 2, 1);
    DRV(cu.EventRecord(fork, stream));
    DRV(cu.StreamWaitEvent(side, fork, 0));
    launch(side, 1, 5, 0);
    DRV(cu.MemsetD32Async(at(2), 9, 1, side));
    DRV(cu.EventRecord(join, side));
    DRV(cu.EventDestroy_v2(fork));
    launch(stream, 0, 3, 0);
    DRV(cu.LaunchHostFunc(stream, called, &one));
    DRV(cu.StreamWaitEvent(stream, join, 0));
    DRV(cu.EventRecord(reused, stream));
    launch(stream, 1, 1, 1);
    DRV(cu.StreamEndCapture(stream, &graph));
    DRV(cu.StreamDestroy_v2(side));
    DRV(cu.EventDestroy_v2(join));
    return graph;
}

static void captured(void)
{
    cuuint64_t ids[2];
    CUgraphExec first, second;
    CUstream stream, other;
    CUevent reused;
    CUgraph graph;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&reused, CU_EVENT_DISABLE_TIMING));
    graph = capture_fork(stream, reused, &ids[0]);
    first = instance(graph);
    DRV(cu.GraphDestroy(graph));
    graph = capture_fork(stream, reused, &ids[1]);
    second = instance(graph);
    check_true(ids[0] != ids[1], "two captures have two ids");
    check_int(run(first), 9, "a captured graph whose streams, events and graph are gone");
    check_int(word(1), 6, "its other branch");
    check_int(word(2), 9, "and what that has filled");
    check_int(calls, 1, "calls of the host");
    DRV(cu.EventRecord(reused, stream));
    check_code(cu.EventSynchronize(reused), CUDA_SUCCESS, "an event of a capture, recorded anew");
    check_code(cu.StreamWaitEvent(other, reused, 0), CUDA_SUCCESS, "waited for");
    check_code(cu.StreamSynchronize(other), CUDA_SUCCESS, "by another stream");
    DRV(cu.GraphExecDestroy(first));
    check_int(run(second), 9, "the second one");
    DRV(cu.GraphExecDestroy(second));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.EventDestroy_v2(reused));
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.StreamDestroy_v2(other));
}

/* A capture that fails, and one into a graph that is there. */
static void odd_captures(void)
{
    CUgraph graph, ended = NULL;
    CUgraphExec exec;
    CUstream stream, side;
    CUgraphNode first;
    CUevent fork;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&side, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(stream, 0, 2, 0);
    DRV(cu.EventRecord(fork, stream));
    DRV(cu.StreamWaitEvent(side, fork, 0));
    launch(side, 0, 2, 0);
    check_code(cu.StreamEndCapture(stream, &ended), CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
               "a capture with a branch that is open");
    DRV(cu.GraphCreate(&graph, 0));
    first = add_step(graph, NULL, 2, 0);
    DRV(cu.StreamBeginCaptureToGraph(stream, graph, &first, NULL, 1,
                                     CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(stream, 0, 1, 5);
    DRV(cu.StreamEndCapture(stream, &ended));
    exec = instance(graph);
    check_int(run(exec), 7, "a capture into a graph");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.EventDestroy_v2(fork));
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.StreamDestroy_v2(side));
}

/* Nodes that the driver has made and the program has asked for. */
static void found_nodes(void)
{
    CUgraphNode nodes[3] = {NULL}, again[3] = {NULL}, found;
    CUDA_KERNEL_NODE_PARAMS got;
    size_t n = 3, n_again = 3;
    CUgraph graph, clone;
    CUgraphExec exec;
    CUstream stream;
    struct params p;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (unsigned i = 0; i < 3; i++) {
        launch(stream, 0, 10, i + 1);
    }
    DRV(cu.StreamEndCapture(stream, &graph));
    DRV(cu.GraphGetNodes(graph, nodes, &n));
    check_int((long long)n, 3, "captured nodes");
    exec = instance(graph);
    for (int i = 0; i < 3; i++) {
        DRV(CU(GraphKernelNodeGetParams_v2)(nodes[i], &got));
        if (*(unsigned *)got.kernelParams[2] == 2) {
            DRV(cu.GraphExecKernelNodeSetParams_v2(exec, nodes[i], make(&p, step, 10, 7)));
        }
    }
    check_int(run(exec), 1173, "a captured node with other parameters");
    DRV(cu.GraphClone(&clone, graph));
    DRV(CU(GraphNodeFindInClone)(&found, nodes[0], clone));
    DRV(cu.GraphKernelNodeSetParams_v2(nodes[0], make(&p, step, 10, 0)));
    DRV(cu.GraphGetNodes(graph, again, &n_again));
    check_true(n_again == 3 && memcmp(nodes, again, sizeof nodes) == 0, "their names stay");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.GraphKernelNodeSetParams_v2(found, make(&p, step, 0, 4)));
    exec = instance(clone);
    DRV(cu.GraphDestroy(clone));
    check_int(run(exec), 423, "a clone whose graph is gone");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.StreamDestroy_v2(stream));
}

/* ---------------------------------------------------------------- graphs that change */

/* Executable graphs of one graph, which changes in between. */
static void parameters(void)
{
    CUgraph graph, source;
    CUgraphNode first, second, of_source;
    CUgraphExecUpdateResultInfo info;
    CUgraphExec execs[3];
    struct params p;

    DRV(cu.GraphCreate(&graph, 0));
    first = add_step(graph, NULL, 2, 0);
    second = add_step(graph, &first, 1, 1);
    execs[0] = instance(graph);
    DRV(cu.GraphKernelNodeSetParams_v2(first, make(&p, step, 3, 0)));
    execs[1] = instance(graph);
    DRV(cu.GraphKernelNodeSetParams_v2(first, make(&p, step, 4, 0)));
    for (unsigned i = 0; i < SETS; i++) {
        DRV(cu.GraphExecKernelNodeSetParams_v2(execs[1], second, make(&p, step, 1, i)));
    }
    DRV(cu.GraphDestroyNode(second));
    execs[2] = instance(graph);
    check_int(run(execs[0]), 3, "an executable graph as its graph was first");
    check_int(run(execs[1]), 3 + SETS - 1, "one of other parameters, with the last of many");
    check_int(run(execs[2]), 4, "one without the second node");
    for (unsigned i = 0; i < SETS; i++) {
        DRV(cu.GraphKernelNodeSetParams_v2(first, make(&p, step, i, 0)));
        DRV(cu.GraphExecUpdate_v2(execs[2], graph, &info));
    }
    DRV(cu.GraphDestroy(graph));
    check_int(run(execs[2]), SETS - 1, "one that was updated as often");
    DRV(cu.GraphCreate(&source, 0));
    of_source = add_step(source, NULL, 1, 77);
    DRV(cu.GraphExecUpdate_v2(execs[2], source, &info));
    check_int(run(execs[2]), 78, "one that was updated from another graph");
    (void)add_step(source, &of_source, 1, 1);
    check_code(cu.GraphExecUpdate_v2(execs[2], source, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
               "an update from a graph of another form");
    DRV(cu.GraphDestroy(source));
    for (int i = 0; i < 3; i++) {
        DRV(cu.GraphExecDestroy(execs[i]));
    }
}

static void edges(void)
{
    CUgraphNode a, b, from[4], to[4];
    CUgraph graph, twice;
    CUgraphExec before, after, doubled;
    size_t n = 4;

    DRV(cu.GraphCreate(&graph, 0));
    a = add_step(graph, NULL, 2, 0);
    b = add_step(graph, NULL, 1, 3);
    DRV(CU(GraphAddDependencies)(graph, &a, &b, 1));
    before = instance(graph);
    DRV(CU(GraphRemoveDependencies)(graph, &a, &b, 1));
    DRV(CU(GraphAddDependencies)(graph, &b, &a, 1));
    after = instance(graph);
    check_int(run(before), 5, "the order before");
    check_int(run(after), 8, "the order behind");
    DRV(CU(GraphGetEdges)(graph, from, to, &n));
    check_true(n == 1 && from[0] == b && to[0] == a, "its edge");
    DRV(cu.GraphClone(&twice, graph));
    DRV(cu.GraphAddChildGraphNode(&b, graph, &a, 1, twice)); /* a graph within its own clone */
    DRV(cu.GraphDestroy(twice));
    doubled = instance(graph);
    DRV(cu.GraphDestroy(graph));
    check_int(run(doubled), 22, "twice the same");
    DRV(cu.GraphExecDestroy(before));
    DRV(cu.GraphExecDestroy(after));
    DRV(cu.GraphExecDestroy(doubled));
}

/* What a kernel may do when its node is made, and memory that goes before the graph. */
static void limits(void)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.value = 1, .elementSize = 4, .width = 1, .height = 1};
    CUgraphNode node, filled;
    CUgraphExec exec;
    CUgraph graph;
    struct params p;

    DRV(cu.FuncSetAttribute(wide, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, WIDE_BYTES));
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddKernelNode_v2(&node, graph, NULL, 0, make(&p, wide, 6, 1)));
    exec = instance(graph);
    DRV(cu.FuncSetAttribute(wide, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    DRV(cu.FuncSetAttribute(wide, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, WIDE_BYTES));
    check_int(run(exec), 7, "a kernel with much shared memory");
    DRV(cu.MemAlloc_v2(&fill.dst, 64 << 20));
    DRV(cu.GraphAddMemsetNode(&filled, graph, &node, 1, &fill, context));
    DRV(cu.MemFree_v2(fill.dst));
    DRV(cu.GraphDestroyNode(filled));
    DRV(cu.GraphExecDestroy(exec));
    exec = instance(graph);
    check_int(run(exec), 7, "a graph that has named memory which is gone");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

int main(void)
{
    CUmodule module;

    context = driver_begin("drv_graph_parts_gone");
    DRV(cu.ModuleLoadData(&module, code));
    step = driver_function(module, "step");
    wide = driver_function(module, "wide");
    DRV(cu.MemAlloc_v2(&words, 16));
    captured();
    odd_captures();
    found_nodes();
    parameters();
    edges();
    limits();
    DRV(cu.MemFree_v2(words));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}

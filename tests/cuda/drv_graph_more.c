/*
 * Nodes of memory operations, a graph written as a picture, and a conditional node: its body runs
 * when the condition's default says so.
 */
#include "check_driver.h"

#include <unistd.h>

static void memory_operations(CUstream stream, CUcontext context)
{
    CUstreamBatchMemOpParams ops[2];
    CUDA_BATCH_MEM_OP_NODE_PARAMS params, got;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUgraphNodeType type;
    CUdeviceptr words;
    unsigned back[4] = {0};

    DRV(cu.MemAlloc_v2(&words, sizeof(back)));
    DRV(cu.MemsetD32_v2(words, 0, 4));
    DRV(cu.CtxSynchronize()); /* the stream does not wait for the legacy one */
    memset(ops, 0, sizeof(ops));
    ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[0].writeValue.address = words;
    ops[0].writeValue.value = 11;
    ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[1].writeValue.address = words + 4;
    ops[1].writeValue.value = 12;
    memset(&params, 0, sizeof(params));
    params.ctx = context;
    params.count = 2;
    params.paramArray = ops;
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
    DRV(cu.GraphNodeGetType(node, &type));
    memset(&got, 0, sizeof(got));
    DRV(cu.GraphBatchMemOpNodeGetParams(node, &got));
    check_true(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP && got.count == 2 &&
                   got.paramArray[1].writeValue.value == 12,
               "a node of memory operations");
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemcpyDtoH_v2(back, words, sizeof(back)));
    check_true(back[0] == 11 && back[1] == 12, "what it wrote");
    ops[0].writeValue.value = 21;
    DRV(cu.GraphExecBatchMemOpNodeSetParams(exec, node, &params));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemcpyDtoH_v2(back, words, sizeof(back)));
    check_true(back[0] == 21 && back[1] == 12, "what it wrote after a change");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.MemFree_v2(words));
}

static void picture(void)
{
    char path[] = "/tmp/drv_graph_more_XXXXXX", text[4096];
    CUgraph graph;
    CUgraphNode first, second;
    size_t bytes = 0;
    int fd = mkstemp(path);

    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddEmptyNode(&first, graph, NULL, 0));
    DRV(cu.GraphAddEmptyNode(&second, graph, &first, 1));
    DRV(cu.GraphDebugDotPrint(graph, path, 0));
    FILE *file = fopen(path, "r");
    if (file) {
        bytes = fread(text, 1, sizeof(text) - 1, file);
        (void)fclose(file);
    }
    text[bytes] = '\0';
    check_true(strstr(text, "digraph") && strstr(text, "->"), "a graph as a picture");
    DRV(cu.GraphDestroy(graph));
    (void)close(fd);
    (void)unlink(path);
}

/* What is captured into a graph that another one has inside. */
static void capture_into(CUgraph inner, CUstream stream, CUdeviceptr word)
{
    CUgraph ended = NULL;

    DRV(cu.StreamBeginCaptureToGraph(stream, inner, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    DRV(cu.MemsetD32Async(word, 9, 1, stream));
    DRV(cu.StreamEndCapture(stream, &ended));
    check_true(ended == inner, "a capture ends in the graph that it began in");
}

static void captured_child(CUstream stream)
{
    CUgraph graph, child, inner;
    CUgraphExec exec;
    CUgraphNode node;
    CUdeviceptr word;
    unsigned back = 0;

    DRV(cu.MemAlloc_v2(&word, 4));
    DRV(cu.MemsetD32_v2(word, 1, 1));
    DRV(cu.CtxSynchronize());
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphCreate(&child, 0));
    DRV(cu.GraphAddChildGraphNode(&node, graph, NULL, 0, child));
    DRV(cu.GraphChildGraphNodeGetGraph(node, &inner));
    capture_into(inner, stream, word);
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemcpyDtoH_v2(&back, word, 4));
    check_true(back == 9, "what was captured into a child graph");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(child));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.MemFree_v2(word));
}

/* Whether the device has conditional nodes is not part of the output: all must agree. */
static void condition(CUstream stream, CUcontext context, unsigned value)
{
    CUgraphConditionalHandle handle;
    CUgraphNodeParams params;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUdeviceptr word;
    unsigned back = 0;

    DRV(cu.GraphCreate(&graph, 0));
    CUresult made = cu.GraphConditionalHandleCreate(&handle, graph, context, value,
                                                    CU_GRAPH_COND_ASSIGN_DEFAULT);
    if (made == CUDA_ERROR_NOT_SUPPORTED) {
        DRV(cu.GraphDestroy(graph));
        check_true(1, "a capture ends in the graph that it began in");
        check_true(1, "a conditional node");
        return;
    }
    DRV(made);
    DRV(cu.MemAlloc_v2(&word, 4));
    DRV(cu.MemsetD32_v2(word, 1, 1));
    DRV(cu.CtxSynchronize());
    memset(&params, 0, sizeof(params));
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 1;
    params.conditional.ctx = context;
    DRV(cu.GraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
    capture_into(params.conditional.phGraph_out[0], stream, word);
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemcpyDtoH_v2(&back, word, 4));
    check_true(back == (value ? 9u : 1u), "a conditional node");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.MemFree_v2(word));
}

int main(void)
{
    CUcontext context;
    CUstream stream;

    context = driver_begin("drv_graph_more");
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    memory_operations(stream, context);
    picture();
    captured_child(stream);
    condition(stream, context, 1);
    condition(stream, context, 0);
    DRV(cu.StreamDestroy_v2(stream));
    return driver_end();
}

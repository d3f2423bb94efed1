/* Graphs in the Driver API: explicit nodes, changed parameters, and capture. */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { N = 256 };

static int host_calls;

static void count_call(void *data)
{
    host_calls += *(int *)data;
}

static CUgraphNode kernel_node(CUgraph graph, CUgraphNode after, CUfunction function, void **params)
{
    CUDA_KERNEL_NODE_PARAMS_v2 node_params;
    CUgraphNode node;

    memset(&node_params, 0, sizeof(node_params));
    node_params.func = function;
    node_params.gridDimX = node_params.gridDimY = node_params.gridDimZ = 1;
    node_params.blockDimX = N;
    node_params.blockDimY = node_params.blockDimZ = 1;
    node_params.kernelParams = params;
    DRV(cu.GraphAddKernelNode_v2(&node, graph, after ? &after : NULL, after != NULL, &node_params));
    return node;
}

static int all_equal(CUdeviceptr device, unsigned value)
{
    unsigned got[N];
    int good = 1;

    DRV(cu.MemcpyDtoH_v2(got, device, sizeof(got)));
    for (int i = 0; i < N; i++) {
        good &= got[i] == value;
    }
    return good;
}

static void explicit_nodes(CUcontext context, CUmodule module, CUdeviceptr device)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode set, first, second, host;
    CUgraphNodeType type;
    CUDA_MEMSET_NODE_PARAMS set_params;
    CUDA_HOST_NODE_PARAMS host_params;
    CUDA_KERNEL_NODE_PARAMS_v2 changed;
    size_t count = 0;
    int one = 1;
    unsigned n = N, fewer = 0;
    void *params[] = {&device, &n}, *no_work[] = {&device, &fewer};

    DRV(cu.GraphCreate(&graph, 0));
    memset(&set_params, 0, sizeof(set_params));
    set_params.dst = device;
    set_params.value = 5;
    set_params.elementSize = 4;
    set_params.width = N;
    set_params.height = 1;
    DRV(cu.GraphAddMemsetNode(&set, graph, NULL, 0, &set_params, context));
    first = kernel_node(graph, set, driver_function(module, "chain"), params);
    second = kernel_node(graph, first, driver_function(module, "chain"), params);
    memset(&host_params, 0, sizeof(host_params));
    host_params.fn = count_call;
    host_params.userData = &one;
    DRV(cu.GraphAddHostNode(&host, graph, &second, 1, &host_params));
    DRV(cu.GraphGetNodes(graph, NULL, &count));
    check_int((long long)count, 4, "nodes");
    DRV(cu.GraphNodeGetType(host, &type));
    check_int(type, CU_GRAPH_NODE_TYPE_HOST, "type of the last");
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 5; i++) {
        DRV(cu.GraphLaunch(exec, NULL));
    }
    DRV(cu.CtxSynchronize());
    check_true(all_equal(device, 49), "set, then two steps");
    check_int(host_calls, 5, "host node of five launches");
    memset(&changed, 0, sizeof(changed));
    changed.func = driver_function(module, "chain");
    changed.gridDimX = changed.gridDimY = changed.gridDimZ = 1;
    changed.blockDimX = N;
    changed.blockDimY = changed.blockDimZ = 1;
    changed.kernelParams = no_work;
    DRV(cu.GraphExecKernelNodeSetParams_v2(exec, second, &changed));
    DRV(cu.GraphLaunch(exec, NULL));
    DRV(cu.CtxSynchronize());
    check_true(all_equal(device, 16), "second step given nothing to do");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

static void captured(CUmodule module, CUdeviceptr device)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t flags = 0;
    unsigned n = N;
    void *params[] = {&device, &n};
    CUfunction chain = driver_function(module, "chain");

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.MemsetD32_v2(device, 1, N));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DRV(cu.StreamIsCapturing(stream, &status));
    check_int(status, CU_STREAM_CAPTURE_STATUS_ACTIVE, "capturing");
    for (int i = 0; i < 3; i++) {
        driver_launch(chain, 1, N, stream, params);
    }
    DRV(cu.MemsetD32Async(device + N * 4, 77, N, stream));
    DRV(cu.StreamEndCapture(stream, &graph));
    check_true(all_equal(device, 1), "capture runs nothing");
    check_code(cu.GraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD),
               CUDA_ERROR_INVALID_VALUE, "an upload without a stream");
    DRV(cu.GraphInstantiateWithFlags(&exec, graph,
                                     CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                         CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    DRV(cu.GraphExecGetFlags(exec, &flags));
    check_int((long long)flags, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH,
              "the flags that are shown");
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    check_true(all_equal(device, 1093), "two launches of three steps");
    check_true(all_equal(device + N * 4, 77), "memset in the graph");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(stream));
}

int main(void)
{
    CUcontext context = driver_begin("drv_graph");
    CUmodule module;
    CUdeviceptr device;

    DRV(cu.ModuleLoadData(&module, basic_ptx));
    DRV(cu.MemAlloc_v2(&device, 2 * N * sizeof(unsigned)));
    explicit_nodes(context, module, device);
    captured(module, device);
    DRV(cu.MemFree_v2(device));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}

/* Executable graphs that change: node parameters, whole-graph update, disabled nodes, refusals. */
#include "check.h"

__global__ static void write_value(int *out, int value)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] += value;
}

__global__ static void write_negative(int *out, int value)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] -= value;
}

static cudaKernelNodeParams params_for(void *kernel, void **arguments, unsigned threads)
{
    cudaKernelNodeParams params = {};

    params.func = kernel;
    params.gridDim = dim3(1);
    params.blockDim = dim3(threads);
    params.kernelParams = arguments;
    return params;
}

static cudaGraph_t chain_of(int length, void **arguments, cudaGraphNode_t *first)
{
    cudaGraph_t graph;
    cudaGraphNode_t node = NULL, before;
    cudaKernelNodeParams params = params_for((void *)write_value, arguments, 64);

    RT(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < length; i++) {
        before = node;
        RT(cudaGraphAddKernelNode(&node, graph, i > 0 ? &before : NULL, i > 0 ? 1 : 0, &params));
        if (i == 0) {
            *first = node;
        }
    }
    return graph;
}

static void expect(cudaGraphExec_t exec, int *device, int first, int second, const char *label)
{
    int want[64];

    for (int i = 0; i < 64; i++) {
        want[i] = i < 32 ? first : second;
    }
    RT(cudaMemset(device, 0, sizeof(want)));
    RT(cudaGraphLaunch(exec, 0));
    RT(cudaDeviceSynchronize());
    check_device(device, want, 64, label);
}

int main(void)
{
    cudaGraph_t graph, other, longer;
    cudaGraphNode_t node, other_node, longer_node;
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    int value = 5, *device;
    unsigned enabled = 9;

    check_begin("graph_update");
    device = device_new<int>(64);
    void *arguments[] = {&device, &value};
    graph = chain_of(2, arguments, &node);
    RT(cudaGraphInstantiate(&exec, graph, 0));
    value = 1000;
    expect(exec, device, 10, 10, "arguments were copied when the node was made");

    value = 7;
    cudaKernelNodeParams params = params_for((void *)write_value, arguments, 32);
    RT(cudaGraphExecKernelNodeSetParams(exec, node, &params));
    expect(exec, device, 12, 5, "new arguments and block of one node");
    RT(cudaGraphKernelNodeGetParams(node, &params));
    check_int(params.blockDim.x, 64, "the graph itself is unchanged");

    params = params_for((void *)write_negative, arguments, 64);
    RT(cudaGraphExecKernelNodeSetParams(exec, node, &params));
    expect(exec, device, -2, -2, "another kernel in the node");

    value = 100;
    other = chain_of(2, arguments, &other_node);
    memset(&info, 0, sizeof(info));
    RT(cudaGraphExecUpdate(exec, other, &info));
    check_int(info.result, cudaGraphExecUpdateSuccess, "update from a graph of the same shape");
    expect(exec, device, 200, 200, "and its effect");
    longer = chain_of(3, arguments, &longer_node);
    check_code(cudaGraphExecUpdate(exec, longer, &info), cudaErrorGraphExecUpdateFailure,
               "update from another shape");
    check_int(info.result, cudaGraphExecUpdateErrorTopologyChanged, "reason");
    (void)cudaGetLastError();
    expect(exec, device, 200, 200, "a refused update changes nothing");

    RT(cudaGraphNodeSetEnabled(exec, node, 0));
    RT(cudaGraphNodeGetEnabled(exec, node, &enabled));
    check_int(enabled, 0, "node disabled");
    expect(exec, device, 100, 100, "a disabled node does nothing");
    RT(cudaGraphNodeSetEnabled(exec, node, 1));
    expect(exec, device, 200, 200, "enabled again");
    RT(cudaGraphExecDestroy(exec));
    RT(cudaGraphDestroy(graph));
    RT(cudaGraphDestroy(other));
    RT(cudaGraphDestroy(longer));
    return check_end();
}

/* A graph built node by node: kernel, memcpy, memset, host, child, event and empty nodes; clone. */
#include "check.h"

enum { N = 512 };

__global__ static void add_index(unsigned *data, unsigned factor)
{
    data[threadIdx.x] += threadIdx.x * factor;
}

static int host_calls;

static void count_call(void *data)
{
    host_calls += *(int *)data;
}

static cudaGraphNode_t add_kernel(cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                  unsigned *data, unsigned factor)
{
    cudaGraphNode_t node;
    void *arguments[] = {&data, &factor};
    cudaKernelNodeParams params = {};

    params.func = (void *)add_index;
    params.gridDim = dim3(1);
    params.blockDim = dim3(N);
    params.kernelParams = arguments;
    RT(cudaGraphAddKernelNode(&node, graph, after, count, &params));
    return node;
}

static void launch(cudaGraph_t graph, unsigned *result, unsigned rounds)
{
    cudaGraphExec_t exec;

    RT(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 0; i < rounds; i++) {
        memset(result, 0, N * sizeof(unsigned));
        RT(cudaGraphLaunch(exec, 0));
        RT(cudaDeviceSynchronize());
    }
    RT(cudaGraphExecDestroy(exec));
}

int main(void)
{
    cudaGraph_t graph, child, clone;
    cudaGraphNode_t set, kernel, inner, host, empty, record, wait, down, found, all[16];
    cudaMemsetParams memset_params;
    cudaHostNodeParams host_params;
    cudaGraphNodeType type;
    cudaEvent_t event;
    unsigned *pinned, want[N];
    int increment = 1;
    size_t count = 16, edges = 0;

    check_begin("graph_nodes");
    unsigned *device = device_new<unsigned>(N);
    RT(cudaMallocHost((void **)&pinned, N * sizeof(unsigned)));
    RT(cudaEventCreate(&event));
    RT(cudaGraphCreate(&graph, 0));
    RT(cudaGraphCreate(&child, 0));
    (void)add_kernel(child, NULL, 0, device, 10);

    memset(&memset_params, 0, sizeof(memset_params));
    memset_params.dst = device;
    memset_params.elementSize = 4;
    memset_params.width = N;
    memset_params.height = 1;
    memset_params.value = 7;
    RT(cudaGraphAddMemsetNode(&set, graph, NULL, 0, &memset_params));
    kernel = add_kernel(graph, &set, 1, device, 3);
    RT(cudaGraphAddChildGraphNode(&inner, graph, &kernel, 1, child));
    host_params.fn = count_call;
    host_params.userData = &increment;
    RT(cudaGraphAddHostNode(&host, graph, &kernel, 1, &host_params));
    cudaGraphNode_t both[] = {inner, host};
    RT(cudaGraphAddEmptyNode(&empty, graph, both, 2));
    RT(cudaGraphAddEventRecordNode(&record, graph, &empty, 1, event));
    RT(cudaGraphAddEventWaitNode(&wait, graph, &record, 1, event));
    RT(cudaGraphAddMemcpyNode1D(&down, graph, NULL, 0, pinned, device, N * sizeof(unsigned),
                                cudaMemcpyDeviceToHost));
    RT(cudaGraphAddDependencies(graph, &wait, &down, NULL, 1));
    RT(cudaGraphGetNodes(graph, all, &count));
    check_int((long long)count, 8, "nodes");
    RT(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    check_int((long long)edges, 8, "edges");
    RT(cudaGraphNodeGetType(inner, &type));
    check_int(type, cudaGraphNodeTypeGraph, "type of the child node");
    RT(cudaGraphNodeGetType(down, &type));
    check_int(type, cudaGraphNodeTypeMemcpy, "type of the copy");
    count = 16;
    RT(cudaGraphGetRootNodes(graph, all, &count));
    check_true(count == 1 && all[0] == set, "one root");

    for (unsigned i = 0; i < N; i++) {
        want[i] = 7 + 13 * i;
    }
    launch(graph, pinned, 3);
    check_words(pinned, want, N, "result of three launches");
    check_int(host_calls, 3, "host node ran three times");
    check_code(cudaEventQuery(event), cudaSuccess, "event node recorded the event");

    RT(cudaGraphClone(&clone, graph));
    RT(cudaGraphNodeFindInClone(&found, kernel, clone));
    RT(cudaGraphNodeGetType(found, &type));
    check_int(type, cudaGraphNodeTypeKernel, "node found in the clone");
    RT(cudaGraphDestroy(graph));
    RT(cudaGraphDestroy(child));
    launch(clone, pinned, 2);
    check_words(pinned, want, N, "the clone works without the original");
    check_int(host_calls, 5, "host node of the clone");
    RT(cudaGraphDestroy(clone));
    return check_end();
}

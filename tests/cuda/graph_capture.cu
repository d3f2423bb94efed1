/* Graphs by stream capture: fork and join with events, many launches, rules during capture. */
#include "check.h"

enum { N = 1000 };

__global__ static void affine(int *data, int mul, int add)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        data[i] = data[i] * mul + add;
    }
}

__global__ static void join(const int *a, const int *b, int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        out[i] += a[i] - b[i];
    }
}

int main(void)
{
    const dim3 grid((N + 127) / 128), block(128);
    int host[N], want[N];
    cudaStream_t main_stream, side;
    cudaEvent_t fork, back;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    size_t nodes = 0;

    check_begin("graph_capture");
    for (int i = 0; i < N; i++) {
        host[i] = i;
        want[i] = 0;
    }
    int *source = to_device(host, N), *a = device_new<int>(N), *b = device_new<int>(N);
    int *out = device_new<int>(N);
    RT(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking));
    RT(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    RT(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    RT(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));

    RT(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeGlobal));
    RT(cudaStreamIsCapturing(main_stream, &status));
    check_int(status, cudaStreamCaptureStatusActive, "capturing");
    RT(cudaMemcpyAsync(a, source, sizeof(host), cudaMemcpyDeviceToDevice, main_stream));
    RT(cudaEventRecord(fork, main_stream));
    RT(cudaStreamWaitEvent(side, fork, 0));
    RT(cudaMemcpyAsync(b, a, sizeof(host), cudaMemcpyDeviceToDevice, side));
    affine<<<grid, block, 0, side>>>(b, 2, 1);
    RT(cudaEventRecord(back, side));
    affine<<<grid, block, 0, main_stream>>>(source, 1, 1);
    RT(cudaStreamWaitEvent(main_stream, back, 0));
    join<<<grid, block, 0, main_stream>>>(a, b, out);
    check_code(cudaStreamQuery(main_stream), cudaErrorStreamCaptureUnsupported,
               "query of a capturing stream");
    (void)cudaGetLastError();
    cudaError_t ended = cudaStreamEndCapture(main_stream, &graph);
    check_code(ended, cudaErrorStreamCaptureInvalidated, "which spoils the capture");
    (void)cudaGetLastError();
    RT(cudaStreamIsCapturing(main_stream, &status));
    check_int(status, cudaStreamCaptureStatusNone, "no longer capturing");

    RT(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal));
    RT(cudaMemcpyAsync(a, source, sizeof(host), cudaMemcpyDeviceToDevice, main_stream));
    RT(cudaEventRecord(fork, main_stream));
    RT(cudaStreamWaitEvent(side, fork, 0));
    RT(cudaMemcpyAsync(b, a, sizeof(host), cudaMemcpyDeviceToDevice, side));
    affine<<<grid, block, 0, side>>>(b, 2, 1);
    RT(cudaEventRecord(back, side));
    affine<<<grid, block, 0, main_stream>>>(source, 1, 1);
    RT(cudaStreamWaitEvent(main_stream, back, 0));
    join<<<grid, block, 0, main_stream>>>(a, b, out);
    RT(cudaStreamEndCapture(main_stream, &graph));
    RT(cudaGraphGetNodes(graph, NULL, &nodes));
    check_int((long long)nodes, 5, "two copies and three kernels");
    check_device(out, want, N, "capture runs nothing");
    RT(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 25; round++) {
        RT(cudaGraphLaunch(exec, main_stream));
        for (int i = 0; i < N; i++) {
            want[i] += (i + round) - ((i + round) * 2 + 1);
        }
    }
    RT(cudaStreamSynchronize(main_stream));
    check_device(out, want, N, "launched twenty-five times");
    RT(cudaGraphExecDestroy(exec));
    RT(cudaGraphDestroy(graph));
    RT(cudaStreamDestroy(main_stream));
    RT(cudaStreamDestroy(side));
    return check_end();
}

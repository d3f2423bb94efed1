/* Host functions and stream callbacks: order among kernels and copies, data, status. */
#include "check.h"

__global__ static void twice(int *value)
{
    *value *= 2;
}

static int *pinned;
static int trace[64], trace_length;
static int callback_status = -1;
static cudaStream_t callback_stream;

static void note(void *data)
{
    if (trace_length < 64) {
        trace[trace_length++] = (int)(intptr_t)data * 1000 + *pinned;
    }
    *pinned += (int)(intptr_t)data;
}

static void CUDART_CB done(cudaStream_t stream, cudaError_t status, void *data)
{
    callback_stream = stream;
    callback_status = (int)status;
    note(data);
}

int main(void)
{
    cudaStream_t stream;
    int *device = device_new<int>(1);
    int want[64], length = 0, value = 1;

    check_begin("host_functions");
    RT(cudaMallocHost((void **)&pinned, sizeof(int)));
    RT(cudaStreamCreate(&stream));
    *pinned = 1;
    for (int i = 1; i <= 10; i++) {
        RT(cudaMemcpyAsync(device, pinned, sizeof(int), cudaMemcpyHostToDevice, stream));
        twice<<<1, 1, 0, stream>>>(device);
        RT(cudaMemcpyAsync(pinned, device, sizeof(int), cudaMemcpyDeviceToHost, stream));
        if (i % 3 == 0) {
            RT(cudaStreamAddCallback(stream, done, (void *)(intptr_t)i, 0));
        } else {
            RT(cudaLaunchHostFunc(stream, note, (void *)(intptr_t)i));
        }
        value *= 2;
        want[length++] = i * 1000 + value;
        value += i;
    }
    RT(cudaStreamSynchronize(stream));
    check_int(trace_length, length, "each called once");
    check_true(memcmp(trace, want, (size_t)length * sizeof(int)) == 0,
               "in stream order, each seeing the copy before it");
    check_int(*pinned, value, "later copies see what the functions wrote");
    check_code(callback_status, cudaSuccess, "status given to the callback");
    check_true(callback_stream == stream, "stream given to the callback");
    trace_length = 0;
    for (int i = 0; i < 20; i++) {
        RT(cudaLaunchHostFunc(0, note, (void *)(intptr_t)1));
    }
    RT(cudaDeviceSynchronize());
    check_int(trace_length, 20, "the same function and data twenty times");
    RT(cudaStreamDestroy(stream));
    RT(cudaFreeHost(pinned));
    return check_end();
}

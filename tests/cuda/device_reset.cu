/* cudaDeviceReset: everything is gone, and CUDA works again afterwards, several times. */
#include "check.h"

__device__ int counter = 100;

__global__ static void count(int *out)
{
    *out = atomicAdd(&counter, 1);
}

int main(void)
{
    int host = 0, *device = NULL;
    void *pinned = NULL;
    cudaStream_t stream;
    size_t limit = 0, default_limit = 0;

    check_begin("device_reset");
    RT(cudaDeviceGetLimit(&default_limit, cudaLimitStackSize));
    for (int round = 0; round < 3; round++) {
        RT(cudaMalloc((void **)&device, sizeof(int)));
        RT(cudaMallocHost(&pinned, 4096));
        RT(cudaStreamCreate(&stream));
        count<<<1, 1, 0, stream>>>(device);
        count<<<1, 1, 0, stream>>>(device);
        RT(cudaStreamSynchronize(stream));
        RT(cudaMemcpy(&host, device, sizeof(int), cudaMemcpyDeviceToHost));
        check_int(host, 101, "device variable starts again");
        RT(cudaDeviceSetLimit(cudaLimitStackSize, default_limit * 4));
        RT(cudaDeviceReset());
        check_code(cudaFree(device), cudaErrorInvalidValue, "memory of before the reset");
        (void)cudaGetLastError();
        RT(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
        check_true(limit == default_limit, "limits are back");
    }
    RT(cudaDeviceReset());
    RT(cudaDeviceReset());
    RT(cudaFree(NULL));
    check_code(cudaDeviceSynchronize(), cudaSuccess, "after two resets in a row");
    return check_end();
}

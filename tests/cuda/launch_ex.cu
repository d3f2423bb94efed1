/* The extensible launch: cudaLaunchKernelEx(C) with a stream, shared memory and attributes. */
#include <cooperative_groups.h>

#include "check.h"

__global__ static void scale(int *data, int factor, int n)
{
    extern __shared__ int staged[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    staged[threadIdx.x] = i < n ? data[i] : 0;
    __syncthreads();
    if (i < n) {
        data[i] = staged[threadIdx.x] * factor;
    }
}

__global__ static void neighbours(int *data)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int seen = data[(i + blockDim.x) % (gridDim.x * blockDim.x)];

    cooperative_groups::this_grid().sync();
    data[i] = seen;
}

int main(void)
{
    int host[256], want[256], n = 250, factor = 7;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2];
    cudaStream_t stream;

    check_begin("launch_ex");
    memset(attributes, 0, sizeof(attributes));
    for (int i = 0; i < 256; i++) {
        host[i] = i;
        want[i] = i < n ? i * 7 * 3 : i;
    }
    int *device = to_device(host, 256);
    RT(cudaStreamCreate(&stream));
    config.gridDim = dim3(4);
    config.blockDim = dim3(64);
    config.dynamicSmemBytes = 64 * sizeof(int);
    config.stream = stream;
    void *arguments[] = {&device, &factor, &n};
    RT(cudaLaunchKernelExC(&config, (const void *)scale, arguments));
    attributes[0].id = cudaLaunchAttributePriority;
    attributes[0].val.priority = 0;
    config.attrs = attributes;
    config.numAttrs = 1;
    RT(cudaLaunchKernelEx(&config, scale, device, 3, n));
    RT(cudaStreamSynchronize(stream));
    check_device(device, want, 256, "two launches, the second with a priority");

    config.blockDim = dim3(2048);
    check_code(cudaLaunchKernelExC(&config, (const void *)scale, arguments),
               cudaErrorInvalidValue, "2048 threads in a block");
    (void)cudaGetLastError();
    config.blockDim = dim3(64);
    config.dynamicSmemBytes = 0;
    if (device_attribute(cudaDevAttrCooperativeLaunch)) {
        attributes[0].id = cudaLaunchAttributeCooperative;
        attributes[0].val.cooperative = 1;
        RT(cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice));
        RT(cudaLaunchKernelEx(&config, neighbours, device));
        RT(cudaStreamSynchronize(stream));
        for (int i = 0; i < 256; i++) {
            want[i] = host[(i + 64) % 256];
        }
    } else {
        RT(cudaMemcpy(device, want, sizeof(want), cudaMemcpyHostToDevice));
    }
    check_device(device, want, 256, "cooperative by attribute");
    RT(cudaStreamDestroy(stream));
    return check_end();
}

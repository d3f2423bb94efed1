/* The occupancy functions and function attributes, checked against the device's own limits. */
#include "check.h"

__global__ static void simple(int *out)
{
    out[threadIdx.x] = 1;
}

__global__ static void __launch_bounds__(128) shared_user(int *out)
{
    __shared__ int buffer[8192];
    buffer[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = buffer[127 - threadIdx.x];
}

int main(void)
{
    cudaFuncAttributes attributes;
    int blocks = 0, smaller = 0, grid = 0, block = 0;
    int per_sm = device_attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
    int shared_per_sm = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    size_t available = 0;

    check_begin("occupancy");
    RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, simple, 256, 0));
    check_true(blocks >= 1 && blocks * 256 <= per_sm, "blocks of 256 threads fit the SM");
    RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&smaller, simple, 1024, 0));
    check_true(smaller >= 1 && smaller <= blocks, "fewer blocks of 1024");
    RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&smaller, simple, 256, 24 * 1024));
    check_true(smaller >= 1 && smaller * 24 * 1024 <= shared_per_sm, "limited by shared memory");
    RT(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&smaller, shared_user, 128, 0,
                                                              cudaOccupancyDefault));
    check_true(smaller >= 1 && smaller * 32 * 1024 <= shared_per_sm, "limited by static shared");
    RT(cudaOccupancyMaxPotentialBlockSize(&grid, &block, simple, 0, 0));
    check_true(block % 32 == 0 && block >= 32 && block <= 1024 && grid >= 1, "suggested block");
    RT(cudaOccupancyAvailableDynamicSMemPerBlock(&available, simple, 1, 128));
    check_true(available >= 16 * 1024, "dynamic shared memory for one block");
    RT(cudaFuncGetAttributes(&attributes, shared_user));
    check_int((long long)attributes.sharedSizeBytes, 32 * 1024, "static shared memory");
    check_int(attributes.maxThreadsPerBlock, 128, "launch bounds");
    check_true(attributes.numRegs > 0 && attributes.numRegs <= 255, "registers");
    check_true(attributes.binaryVersion >= 75, "binary version");
    RT(cudaFuncGetAttributes(&attributes, simple));
    check_int(attributes.maxThreadsPerBlock, 1024, "no launch bounds");
    check_int((long long)attributes.localSizeBytes, 0, "no local memory");
    RT(cudaFuncSetCacheConfig(simple, cudaFuncCachePreferL1));
    RT(cudaFuncSetAttribute(simple, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    int *device = device_new<int>(128);
    shared_user<<<1, 128>>>(device);
    check_launch();
    return check_end();
}

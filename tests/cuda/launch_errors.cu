/* Launches that must be refused: the exact code, at once, and not for ever. */
#include "check.h"

__global__ static void touch(int *out)
{
    out[threadIdx.x] = (int)threadIdx.x;
}

__global__ static void __launch_bounds__(64) bounded(int *out)
{
    out[threadIdx.x] = 2 * (int)threadIdx.x;
}

static void not_a_kernel(void)
{
}

int main(void)
{
    int want[64];
    void *arguments[1];

    check_begin("launch_errors");
    int *device = device_new<int>(64);
    arguments[0] = &device;
    touch<<<1, 1025>>>(device);
    check_code(cudaPeekAtLastError(), cudaErrorInvalidValue, "1025 threads, peek");
    check_code(cudaPeekAtLastError(), cudaErrorInvalidValue, "peek does not clear");
    check_code(cudaGetLastError(), cudaErrorInvalidValue, "get returns it");
    check_code(cudaGetLastError(), cudaSuccess, "get has cleared it");
    touch<<<0, 32>>>(device);
    check_code(cudaGetLastError(), cudaErrorInvalidValue, "empty grid");
    touch<<<1, 0>>>(device);
    check_code(cudaGetLastError(), cudaErrorInvalidValue, "empty block");
    touch<<<dim3(1, 70000), 1>>>(device);
    check_code(cudaGetLastError(), cudaErrorInvalidValue, "grid y over 65535");
    touch<<<1, dim3(1, 1, 65)>>>(device);
    check_code(cudaGetLastError(), cudaErrorInvalidValue, "block z over 64");
    touch<<<1, 32, 1 << 20>>>(device);
    check_code(cudaGetLastError(), cudaErrorInvalidValue, "1 MB of shared memory");
    bounded<<<1, 128>>>(device);
    check_true(cudaGetLastError() != cudaSuccess, "more threads than __launch_bounds__");
    check_code(cudaLaunchKernel((const void *)not_a_kernel, dim3(1), dim3(1), arguments, 0, NULL),
               cudaErrorInvalidResourceHandle, "a host function as kernel");
    (void)cudaGetLastError();

    check_code(cudaSetDevice(9999), cudaErrorInvalidDevice, "device 9999");
    check_code(cudaGetLastError(), cudaErrorInvalidDevice, "other calls set the last error too");
    check_code(cudaDeviceSynchronize(), cudaSuccess, "none of these is sticky");
    touch<<<1, 64>>>(device);
    check_launch();
    for (int i = 0; i < 64; i++) {
        want[i] = i;
    }
    check_device(device, want, 64, "a good launch afterwards");
    check_true(strcmp(cudaGetErrorName(cudaErrorInvalidValue),
                      "cudaErrorInvalidValue") == 0,
               "error name");
    check_true(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0,
               "error text");
    return check_end();
}

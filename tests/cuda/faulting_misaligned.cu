/* A kernel in which an address is not aligned: the error comes late and stays. */
#include <assert.h>

#include "check.h"

__global__ static void fault(int *out)
{
    *(volatile long long *)((char *)out + 4) = 1;
}

int main(void)
{
    int *device, host = 0;
    void *p = NULL;

    check_begin("faulting_misaligned");
    device = device_new<int>(4);
    fault<<<1, 1>>>(device);
    check_code(cudaDeviceSynchronize(), cudaErrorMisalignedAddress, "synchronise after the fault");
    check_code(cudaMalloc(&p, 16), cudaErrorMisalignedAddress, "malloc");
    check_code(cudaMemcpy(&host, device, sizeof(host), cudaMemcpyDeviceToHost),
               cudaErrorMisalignedAddress, "copy");
    check_code(cudaDeviceSynchronize(), cudaErrorMisalignedAddress, "synchronise again");
    (void)cudaGetLastError();
    check_code(cudaGetLastError(), cudaSuccess, "the last error is told once");
    return check_end();
}

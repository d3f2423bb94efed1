/* A kernel in which reads where no memory is: the error comes late and stays. */
#include <assert.h>

#include "check.h"

__global__ static void fault(int *out)
{
    *out = *(volatile int *)16;
}

int main(void)
{
    int *device, host = 0;
    void *p = NULL;

    check_begin("faulting_illegal_address");
    device = device_new<int>(4);
    fault<<<1, 1>>>(device);
    check_code(cudaDeviceSynchronize(), cudaErrorIllegalAddress, "synchronise after the fault");
    check_code(cudaMalloc(&p, 16), cudaErrorIllegalAddress, "malloc");
    check_code(cudaMemcpy(&host, device, sizeof(host), cudaMemcpyDeviceToHost),
               cudaErrorIllegalAddress, "copy");
    check_code(cudaDeviceSynchronize(), cudaErrorIllegalAddress, "synchronise again");
    (void)cudaGetLastError();
    check_code(cudaGetLastError(), cudaSuccess, "the last error is told once");
    return check_end();
}

/* A kernel in which an assertion fails: the error comes late and stays. */
#include <assert.h>

#include "check.h"

__global__ static void fault(int *out)
{
    assert(*out > 1000);
}

int main(void)
{
    int *device, host = 0;
    void *p = NULL;

    check_begin("faulting_assert");
    device = device_new<int>(4);
    fault<<<1, 1>>>(device);
    check_code(cudaDeviceSynchronize(), cudaErrorAssert, "synchronise after the fault");
    check_code(cudaMalloc(&p, 16), cudaErrorAssert, "malloc");
    check_code(cudaMemcpy(&host, device, sizeof(host), cudaMemcpyDeviceToHost), cudaErrorAssert,
               "copy");
    check_code(cudaDeviceSynchronize(), cudaErrorAssert, "synchronise again");
    (void)cudaGetLastError();
    check_code(cudaGetLastError(), cudaSuccess, "the last error is told once");
    return check_end();
}

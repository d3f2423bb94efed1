/* Pinned host memory: equal addresses, flags, kernels that use it in place, seen by the host. */
#include "check.h"

__global__ static void increment(int *data, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] += i;
    }
}

static void kernel_access(const char *label, unsigned flags)
{
    const int n = 5000;
    int *host = NULL, *device = NULL, same = 1;
    unsigned seen = ~0u;
    char line[96];

    RT(cudaHostAlloc((void **)&host, n * sizeof(int), flags));
    RT(cudaHostGetDevicePointer((void **)&device, host, 0));
    snprintf(line, sizeof(line), "%s: device and host address are equal", label);
    check_true(device == host, line);
    for (int i = 0; i < n; i++) {
        host[i] = 7;
    }
    increment<<<(n + 127) / 128, 128>>>(device, n);
    increment<<<(n + 127) / 128, 128>>>(device, n);
    check_launch();
    for (int i = 0; i < n; i++) {
        same &= host[i] == 7 + 2 * i;
    }
    snprintf(line, sizeof(line), "%s: the host sees what kernels wrote", label);
    check_true(same, line);
    RT(cudaHostGetFlags(&seen, host));
    snprintf(line, sizeof(line), "%s: flags kept", label);
    check_true((seen & flags) == flags, line);
    RT(cudaFreeHost(host));
}

int main(void)
{
    int *pinned = NULL, on_stack[4] = {0};
    unsigned flags = 0;

    check_begin("host_memory");
    if (!device_attribute(cudaDevAttrCanMapHostMemory)) {
        check_skip("host memory cannot be mapped"); /* over a network */
    }
    check_true(device_attribute(cudaDevAttrUnifiedAddressing) == 1, "unified addressing");
    check_true(device_attribute(cudaDevAttrCanMapHostMemory) == 1, "host memory can be mapped");
    kernel_access("default", cudaHostAllocDefault);
    kernel_access("mapped", cudaHostAllocMapped);
    kernel_access("portable", cudaHostAllocPortable | cudaHostAllocMapped);
    kernel_access("write-combined", cudaHostAllocWriteCombined | cudaHostAllocMapped);
    RT(cudaMallocHost((void **)&pinned, 4096));
    pinned[3] = 33;
    int *device = device_new<int>(1024);
    RT(cudaMemcpy(device, pinned, 4096, cudaMemcpyDefault));
    increment<<<1, 4>>>(device, 4);
    RT(cudaMemcpy(pinned, device, 4096, cudaMemcpyDefault));
    check_int(pinned[3], 36, "copied without naming the direction");
    check_code(cudaHostAlloc((void **)&device, 64, 0x100), cudaErrorInvalidValue, "unknown flag");
    check_code(cudaHostGetFlags(&flags, on_stack), cudaErrorInvalidValue, "flags of the stack");
    (void)cudaGetLastError();
    RT(cudaFreeHost(pinned));
    return check_end();
}

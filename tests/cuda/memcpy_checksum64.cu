/* 64 MiB up, across and down, from pageable and from pinned memory, with a checksum. */
#include "check.h"

static uint64_t checksum(const uint64_t *words, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum = (sum ^ words[i]) * 0x9e3779b97f4a7c15ull;
    }
    return sum;
}

/* Looks at one word in each 4 KiB. */
__global__ static void probe(const uint64_t *words, size_t count, unsigned long long *sum)
{
    size_t i = (blockIdx.x * blockDim.x + threadIdx.x) * (size_t)512;
    if (i < count) {
        atomicAdd(sum, (unsigned long long)words[i]);
    }
}

int main(void)
{
    const size_t bytes = 64u << 20, count = bytes / 8;
    uint64_t *host = host_new<uint64_t>(count), *pinned = NULL, *a = NULL, *b = NULL;
    unsigned long long sampled = 0;
    uint64_t sum;

    check_begin("memcpy_checksum64");
    for (size_t i = 0; i < count; i++) {
        host[i] = i * 0xd1342543de82ef95ull + 1;
        sampled += i % 512 == 0 ? host[i] : 0;
    }
    sum = checksum(host, count);
    RT(cudaMalloc((void **)&a, bytes));
    RT(cudaMalloc((void **)&b, bytes));
    RT(cudaMemcpy(a, host, bytes, cudaMemcpyHostToDevice));
    RT(cudaMemcpy(b, a, bytes, cudaMemcpyDeviceToDevice));
    memset(host, 0, bytes);
    RT(cudaMemcpy(host, b, bytes, cudaMemcpyDeviceToHost));
    check_true(checksum(host, count) == sum, "pageable");
    unsigned long long *device_sum = device_new<unsigned long long>(1);
    probe<<<(unsigned)(count / 512 / 128), 128>>>(b, count, device_sum);
    check_launch();
    check_device(device_sum, &sampled, 1, "as a kernel sees it");
    RT(cudaMallocHost((void **)&pinned, bytes));
    RT(cudaMemcpy(pinned, a, bytes, cudaMemcpyDeviceToHost));
    check_true(checksum(pinned, count) == sum, "device to pinned");
    RT(cudaMemset(b, 0, bytes));
    RT(cudaMemcpy(b, pinned, bytes, cudaMemcpyHostToDevice));
    memset(host, 0, bytes);
    RT(cudaMemcpy(host, b, bytes, cudaMemcpyDeviceToHost));
    check_true(checksum(host, count) == sum, "pinned to device");
    RT(cudaFreeHost(pinned));
    RT(cudaFree(a));
    RT(cudaFree(b));
    return check_end();
}

/* CUB: block reduction and scan inside a kernel, device-wide scan, reduction and sort. */
#include <cub/cub.cuh>

#include "check.h"

constexpr int N = 5000;
constexpr int BLOCK = 128;

__global__ static void block_algorithms(const int *in, int *sums, int *scans)
{
    using reduce = cub::BlockReduce<int, BLOCK>;
    using scan = cub::BlockScan<int, BLOCK>;
    __shared__ typename reduce::TempStorage reduce_storage;
    __shared__ typename scan::TempStorage scan_storage;
    int i = blockIdx.x * BLOCK + threadIdx.x, v = i < N ? in[i] : 0, before;
    int sum = reduce(reduce_storage).Sum(v);

    scan(scan_storage).ExclusiveSum(v, before);
    scans[i] = before;
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

static int by_value(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

int main(void)
{
    constexpr int BLOCKS = (N + BLOCK - 1) / BLOCK;
    int in[N], sums[BLOCKS] = {0}, scans[BLOCKS * BLOCK], prefix[N], total = 0;
    void *storage = NULL;
    size_t bytes = 0;
    uint32_t seed = 8;

    check_begin("cub_scan_reduce");
    for (int i = 0; i < N; i++) {
        in[i] = (int)(check_random(&seed) % 2000) - 500;
        prefix[i] = total;
        total += in[i];
    }
    for (int i = 0; i < BLOCKS * BLOCK; i++) {
        scans[i] = sums[i / BLOCK];
        sums[i / BLOCK] += i < N ? in[i] : 0;
    }
    int *device_in = to_device(in, N), *device_sums = device_new<int>(BLOCKS);
    int *device_scans = device_new<int>(BLOCKS * BLOCK), *device_out = device_new<int>(N);
    block_algorithms<<<BLOCKS, BLOCK>>>(device_in, device_sums, device_scans);
    check_launch();
    check_device(device_sums, sums, BLOCKS, "block reduction");
    check_device(device_scans, scans, BLOCKS * BLOCK, "block scan");
    RT(cub::DeviceScan::ExclusiveSum(NULL, bytes, device_in, device_out, N));
    RT(cudaMalloc(&storage, bytes));
    RT(cub::DeviceScan::ExclusiveSum(storage, bytes, device_in, device_out, N));
    check_launch();
    check_device(device_out, prefix, N, "device scan");
    RT(cudaFree(storage));
    bytes = 0;
    RT(cub::DeviceReduce::Sum(NULL, bytes, device_in, device_sums, N));
    RT(cudaMalloc(&storage, bytes));
    RT(cub::DeviceReduce::Sum(storage, bytes, device_in, device_sums, N));
    check_launch();
    check_device(device_sums, &total, 1, "device reduction");
    RT(cudaFree(storage));
    bytes = 0;
    RT(cub::DeviceRadixSort::SortKeys(NULL, bytes, device_in, device_out, N));
    RT(cudaMalloc(&storage, bytes));
    RT(cub::DeviceRadixSort::SortKeys(storage, bytes, device_in, device_out, N));
    check_launch();
    qsort(in, N, sizeof(int), by_value);
    check_device(device_out, in, N, "device radix sort");
    RT(cudaFree(storage));
    return check_end();
}

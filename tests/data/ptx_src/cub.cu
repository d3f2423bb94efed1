// Whole-library kernels: device-wide reduce, scan, sort, select; cuda::atomic and cuda::barrier.
#include <cub/cub.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
extern "C" void host(int *in, int *out, void *temp, size_t bytes, int n)
{
    cub::DeviceReduce::Sum(temp, bytes, in, out, n);
    cub::DeviceScan::InclusiveSum(temp, bytes, in, out, n);
    cub::DeviceRadixSort::SortKeys(temp, bytes, in, out, n);
    cub::DeviceSelect::Flagged(temp, bytes, in, in, out, out, n);
    cub::DeviceHistogram::HistogramEven(temp, bytes, in, out, 17, 0, 16, n);
}
extern "C" __global__ void atomics(int *x, unsigned long long *y)
{
    cuda::atomic_ref<int, cuda::thread_scope_device> a(*x);
    a.fetch_add(1, cuda::memory_order_release);
    while (a.load(cuda::memory_order_acquire) < 3) {
        __nanosleep(20);
    }
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_system> b(*y);
    b.fetch_xor(7);
    b.exchange(9, cuda::memory_order_relaxed);
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
    }
    __syncthreads();
    bar.arrive_and_wait();
    x[1] = a.fetch_max(5);
}

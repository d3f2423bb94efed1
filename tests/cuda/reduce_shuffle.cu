/* Sums and maxima: a shared-memory tree with barriers, and warp shuffles. */
#include "check.h"

__global__ static void sum_tree(const int *in, int *out)
{
    __shared__ int part[256];

    part[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            part[threadIdx.x] += part[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = part[0];
    }
}

__global__ static void max_shuffle(const int *in, int *out)
{
    __shared__ int warp_max[8];
    int v = in[blockIdx.x * 256 + threadIdx.x];

    for (int step = 16; step > 0; step /= 2) {
        v = max(v, __shfl_down_sync(0xffffffffu, v, step));
    }
    if (threadIdx.x % 32 == 0) {
        warp_max[threadIdx.x / 32] = v;
    }
    __syncthreads();
    if (threadIdx.x < 8) {
        v = warp_max[threadIdx.x];
        for (int step = 4; step > 0; step /= 2) {
            v = max(v, __shfl_xor_sync(0xffu, v, step));
        }
        if (threadIdx.x == 0) {
            out[blockIdx.x] = v;
        }
    }
}

__global__ static void barrier_counts(const int *in, int *out)
{
    int big = in[blockIdx.x * 256 + threadIdx.x] > 500000;
    int count = __syncthreads_count(big), all = __syncthreads_and(big >= 0);
    int any = __syncthreads_or(big);

    if (threadIdx.x == 0) {
        out[blockIdx.x] = count * 4 + (all != 0) * 2 + (any != 0);
    }
}

int main(void)
{
    enum { BLOCKS = 128, N = BLOCKS * 256 };
    int *in = host_new<int>(N);
    int sum[BLOCKS] = {0}, top[BLOCKS] = {0}, counts[BLOCKS] = {0};
    uint32_t seed = 11;

    check_begin("reduce_shuffle");
    for (int i = 0; i < N; i++) {
        in[i] = (int)(check_random(&seed) % 1000000);
        sum[i / 256] += in[i];
        top[i / 256] = in[i] > top[i / 256] ? in[i] : top[i / 256];
        counts[i / 256] += in[i] > 500000;
    }
    for (int i = 0; i < BLOCKS; i++) {
        counts[i] = counts[i] * 4 + 2 + (counts[i] > 0);
    }
    int *device_in = to_device(in, N), *device_out = device_new<int>(BLOCKS);
    sum_tree<<<BLOCKS, 256>>>(device_in, device_out);
    check_launch();
    check_device(device_out, sum, BLOCKS, "block sums by tree");
    max_shuffle<<<BLOCKS, 256>>>(device_in, device_out);
    check_launch();
    check_device(device_out, top, BLOCKS, "block maxima by shuffle");
    barrier_counts<<<BLOCKS, 256>>>(device_in, device_out);
    check_launch();
    check_device(device_out, counts, BLOCKS, "barriers with count, and, or");
    return check_end();
}

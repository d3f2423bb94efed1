/* Byte histograms: one per block in shared memory and merged, and directly in global memory. */
#include "check.h"

enum { BINS = 256, N = 60000 };

__global__ static void by_blocks(const unsigned char *in, unsigned *bins)
{
    __shared__ unsigned mine[BINS];

    for (int b = threadIdx.x; b < BINS; b += blockDim.x) {
        mine[b] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x) {
        atomicAdd(&mine[in[i]], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) {
        if (mine[b] != 0) {
            atomicAdd(&bins[b], mine[b]);
        }
    }
}

__global__ static void directly(const uchar4 *in, unsigned *bins)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < N / 4) {
        uchar4 v = in[i];
        atomicAdd(&bins[v.x], 1u);
        atomicAdd(&bins[v.y], 1u);
        atomicAdd(&bins[v.z], 1u);
        atomicAdd(&bins[v.w], 1u);
    }
}

int main(void)
{
    unsigned char *in = host_new<unsigned char>(N);
    unsigned want[BINS] = {0};
    uint32_t seed = 99;

    check_begin("histogram");
    for (int i = 0; i < N; i++) {
        unsigned a = check_random(&seed) % 256, b = check_random(&seed) % 256;
        in[i] = (unsigned char)(a < b ? a : b);
        want[in[i]]++;
    }
    unsigned char *device = to_device(in, N);
    unsigned *bins = device_new<unsigned>(BINS);
    by_blocks<<<8, 192>>>(device, bins);
    check_launch();
    check_device(bins, want, BINS, "merged from blocks");
    RT(cudaMemset(bins, 0, sizeof(want)));
    directly<<<(N / 4 + 127) / 128, 128>>>((const uchar4 *)device, bins);
    check_launch();
    check_device(bins, want, BINS, "four bytes at a time");
    return check_end();
}

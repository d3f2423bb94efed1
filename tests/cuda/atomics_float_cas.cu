/* Floating-point atomics, compare-and-swap loops, and atomics on shared memory. */
#include <cuda_fp16.h>

#include "check.h"

__device__ static void atomic_max_float(float *cell, float value)
{
    int *bits = (int *)cell, seen = *bits;

    while (value > __int_as_float(seen)) {
        int before = atomicCAS(bits, seen, __float_as_int(value));
        if (before == seen) {
            break;
        }
        seen = before;
    }
}

__device__ static void atomic_mul64(unsigned long long *cell, unsigned long long value)
{
    unsigned long long seen = *(volatile unsigned long long *)cell, before;

    do {
        before = seen;
        seen = atomicCAS(cell, before, before * value);
    } while (seen != before);
}

__global__ static void sums(float *f, double *d, __half *h, float *top, unsigned long long *product)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.125 * i);
    atomicAdd(h, __float2half(1.0f));
    atomic_max_float(top, (float)((i * 37) % 1000));
    atomic_mul64(product, 3);
}

__global__ static void histogram(const unsigned char *in, int n, unsigned *out)
{
    __shared__ unsigned bins[16];
    __shared__ unsigned long long wide;
    __shared__ float weight;

    if (threadIdx.x < 16) {
        bins[threadIdx.x] = 0;
    }
    if (threadIdx.x == 0) {
        wide = 0;
        weight = 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        atomicAdd(&bins[in[i] % 16], 1u);
        atomicAdd(&wide, 1ull << 32);
        atomicAdd(&weight, 0.25f);
    }
    __syncthreads();
    if (threadIdx.x < 16) {
        out[threadIdx.x] = bins[threadIdx.x];
    }
    if (threadIdx.x == 0) {
        out[16] = (unsigned)(wide >> 32);
        out[17] = (unsigned)weight;
    }
}

int main(void)
{
    const int n = 512, bytes = 8192;
    unsigned char *in = host_new<unsigned char>(bytes);
    unsigned want[18] = {0};
    float f, top;
    double d;
    __half h;
    unsigned long long product = 1, power = 1;
    uint32_t seed = 5;

    check_begin("atomics_float_cas");
    float *device_f = device_new<float>(2);
    double *device_d = device_new<double>(1);
    __half *device_h = device_new<__half>(2);
    unsigned long long *device_product = to_device(&product, 1);
    sums<<<4, n / 4>>>(device_f, device_d, device_h, device_f + 1, device_product);
    check_launch();
    to_host(&f, device_f, 1);
    to_host(&top, device_f + 1, 1);
    to_host(&d, device_d, 1);
    to_host(&h, device_h, 1);
    to_host(&product, device_product, 1);
    for (int i = 0; i < n; i++) {
        power *= 3;
    }
    check_true(f == 256.0f, "float add");
    check_true(d == 0.125 * n * (n - 1) / 2, "double add");
    check_true(__half2float(h) == 512.0f, "half add");
    check_true(top == 999.0f, "float max by compare-and-swap");
    check_true(product == power, "64-bit product by compare-and-swap");
    for (int i = 0; i < bytes; i++) {
        in[i] = (unsigned char)check_random(&seed);
        want[in[i] % 16]++;
    }
    want[16] = bytes;
    want[17] = bytes / 4;
    unsigned char *device_in = to_device(in, bytes);
    unsigned *device_bins = device_new<unsigned>(18);
    histogram<<<1, 128>>>(device_in, bytes, device_bins);
    check_launch();
    check_device(device_bins, want, 18, "atomics on shared memory");
    return check_end();
}

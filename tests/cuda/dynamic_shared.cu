/* Dynamic shared memory: sizes chosen at launch, several arrays in it, more than 48 KB. */
#include "check.h"

extern __shared__ unsigned char pool[];

__global__ static void split(int n, double *out)
{
    double *reals = (double *)pool;
    int *numbers = (int *)(reals + n);
    int t = threadIdx.x;

    reals[t] = t * 0.5;
    numbers[t] = n - t;
    __syncthreads();
    out[t] = reals[n - 1 - t] + numbers[(t + 1) % n];
}

__global__ static void big(unsigned words, unsigned *out)
{
    unsigned *values = (unsigned *)pool;
    unsigned sum = 0;

    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
        values[i] = i * 2654435761u;
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
        sum += values[words - 1 - i] ^ i;
    }
    atomicAdd(out, sum);
}

static void run_split(int n)
{
    double *want = host_new<double>(n), *device = device_new<double>(n);
    char label[64];

    for (int t = 0; t < n; t++) {
        want[t] = (n - 1 - t) * 0.5 + (n - (t + 1) % n);
    }
    split<<<1, n, n *(sizeof(double) + sizeof(int))>>>(n, device);
    check_launch();
    snprintf(label, sizeof(label), "two arrays of %d", n);
    check_device(device, want, n, label);
}

int main(void)
{
    const unsigned words = 60 * 1024 / 4;
    unsigned want = 0, *device;

    check_begin("dynamic_shared");
    run_split(1);
    run_split(77);
    run_split(1024);
    check_true(device_attribute(cudaDevAttrMaxSharedMemoryPerBlock) == 48 * 1024,
               "48 KB without asking");
    check_true(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= 64 * 1024,
               "at least 64 KB when asked for");
    device = device_new<unsigned>(1);
    big<<<1, 128, words * 4>>>(words, device);
    check_code(cudaGetLastError(), cudaErrorInvalidValue, "60 KB without asking");
    RT(cudaFuncSetAttribute(big, cudaFuncAttributeMaxDynamicSharedMemorySize, words * 4));
    for (unsigned i = 0; i < words; i++) {
        want += (words - 1 - i) * 2654435761u ^ i;
    }
    big<<<1, 128, words * 4>>>(words, device);
    check_launch();
    check_device(device, &want, 1, "60 KB after asking");
    cudaFuncAttributes attributes;
    RT(cudaFuncGetAttributes(&attributes, big));
    check_int(attributes.maxDynamicSharedSizeBytes, words * 4, "attribute kept");
    check_code(cudaFuncSetAttribute(big, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 24),
               cudaErrorInvalidValue, "asking for 16 MB");
    (void)cudaGetLastError();
    return check_end();
}

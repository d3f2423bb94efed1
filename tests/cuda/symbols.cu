/* __constant__ and __device__ variables, by name from the host and by use in kernels. */
#include "check.h"

struct settings {
    int gain;
    double bias;
};

__constant__ float coefficients[8];
__constant__ struct settings constants = {2, 0.5};
__device__ int table[64];
__device__ int preset[4] = {10, 20, 30, 40};
static __device__ unsigned long long sum;

__global__ static void use(double *out)
{
    int i = threadIdx.x;

    out[i] = coefficients[i % 8] * constants.gain + constants.bias + table[i] + preset[i % 4];
    atomicAdd(&sum, (unsigned long long)table[i]);
    table[i] = -i;
}

int main(void)
{
    float host[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int numbers[64], back[64], pair[2] = {111, 222};
    double want[64];
    unsigned long long total = 0, host_sum = 0;
    struct settings other = {7, -1.5};
    void *address = NULL;
    size_t bytes = 0;
    cudaStream_t stream;

    check_begin("symbols");
    for (int i = 0; i < 64; i++) {
        numbers[i] = i * i;
    }
    double *device = device_new<double>(64);
    RT(cudaMemcpyToSymbol(coefficients, host, sizeof(host)));
    RT(cudaMemcpyToSymbol(table, numbers, sizeof(numbers)));
    RT(cudaMemcpyToSymbol(table, pair, sizeof(pair), 30 * sizeof(int)));
    numbers[30] = 111;
    numbers[31] = 222;
    for (int i = 0; i < 64; i++) {
        want[i] = (double)(host[i % 8] * 2) + 0.5 + numbers[i] + (i % 4 + 1) * 10;
        total += (unsigned long long)numbers[i];
    }
    use<<<1, 64>>>(device);
    check_launch();
    check_device(device, want, 64, "initialisers and copies to symbols");
    RT(cudaMemcpyFromSymbol(&host_sum, sum, sizeof(sum)));
    check_true(host_sum == total, "device variable read back");
    RT(cudaMemcpyFromSymbol(back, table, 8 * sizeof(int), 8 * sizeof(int)));
    check_true(back[0] == -8 && back[7] == -15, "copy from a symbol at an offset");

    RT(cudaGetSymbolSize(&bytes, table));
    check_int((long long)bytes, sizeof(numbers), "symbol size");
    RT(cudaGetSymbolAddress(&address, table));
    RT(cudaMemcpy(address, numbers, sizeof(numbers), cudaMemcpyHostToDevice));
    RT(cudaStreamCreate(&stream));
    RT(cudaMemcpyToSymbolAsync(constants, &other, sizeof(other), 0, cudaMemcpyHostToDevice,
                               stream));
    use<<<1, 64, 0, stream>>>(device);
    RT(cudaStreamSynchronize(stream));
    for (int i = 0; i < 64; i++) {
        want[i] = (double)(host[i % 8] * 7) - 1.5 + numbers[i] + (i % 4 + 1) * 10;
    }
    check_device(device, want, 64, "symbol address and asynchronous copy");
    check_code(cudaGetSymbolAddress(&address, (const void *)host), cudaErrorInvalidSymbol,
               "address of what is no symbol");
    check_code(cudaMemcpyToSymbol(coefficients, host, 64), cudaErrorInvalidValue,
               "copy longer than the symbol");
    (void)cudaGetLastError();
    RT(cudaStreamDestroy(stream));
    return check_end();
}

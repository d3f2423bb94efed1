/* Managed memory there and back by prefetches, and by faults: right in every round; the rates are printed. */
#include "check.h"

#include <time.h>

enum { MIB = 64, ROUNDS = 3 };

static const size_t BYTES = (size_t)MIB << 20, WORDS = BYTES / sizeof(float);

__global__ static void add(float *x, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        x[i] += 1;
    }
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static double prefetch(void *at, int device)
{
    double begin = now_ms();

#if CUDART_VERSION >= 13000
    struct cudaMemLocation where;
    where.type = device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
    where.id = device < 0 ? 0 : device;
    RT(cudaMemPrefetchAsync(at, BYTES, where, 0, 0));
#else
    RT(cudaMemPrefetchAsync(at, BYTES, device < 0 ? cudaCpuDeviceId : device, 0));
#endif
    RT(cudaDeviceSynchronize());
    return now_ms() - begin;
}

static int all_are(const float *x, float value)
{
    int good = 1;

    for (size_t i = 0; i < WORDS; i += 97) {
        good &= x[i] == value;
    }
    return good;
}

int main(void)
{
    float *x = NULL, value = 1;
    int good = 1;

    check_begin("managed_prefetch");
    if (!device_attribute(cudaDevAttrManagedMemory)) {
        check_skip("no managed memory");
    }
    RT(cudaMallocManaged((void **)&x, BYTES, cudaMemAttachGlobal));
    for (size_t i = 0; i < WORDS; i++) {
        x[i] = value;
    }
    for (int round = 0; round < ROUNDS; round++) {
        double there = prefetch(x, 0), back;

        add<<<256, 256>>>(x, WORDS);
        check_launch();
        back = prefetch(x, -1);
        good &= all_are(x, ++value);
        printf("%d MiB: there %.2f ms, back %.2f ms\n", MIB, there, back);
        x[round] = value; /* the device's bytes are old now */
        add<<<256, 256>>>(x, WORDS);
        check_launch();
        good &= all_are(x, ++value);
    }
    check_true(good, "there and back");
    RT(cudaFree(x));
    return check_end();
}

/* Kernels that are not measured: they fill buffers, compare them, keep SMs busy and watch. */
#include "values.h"

#include <cuda_fp16.h>

#define EACH(i, n)                                                                                 \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                    \
         i += (uint64_t)gridDim.x * blockDim.x)

extern "C" __global__ void fill_float(float *to, uint64_t n, uint32_t seed, float low, float span)
{
    EACH(i, n) to[i] = weir_value_float(seed, (uint32_t)i, low, span);
}

extern "C" __global__ void fill_half(__half *to, uint64_t n, uint32_t seed)
{
    EACH(i, n) to[i] = __float2half(weir_value_half(seed, (uint32_t)i));
}

extern "C" __global__ void fill_below(uint32_t *to, uint64_t n, uint32_t seed, uint32_t limit)
{
    EACH(i, n) to[i] = weir_value_below(seed, (uint32_t)i, limit);
}

extern "C" __global__ void fill_bytes(uint8_t *to, uint64_t n, uint32_t seed)
{
    EACH(i, n) to[i] = (uint8_t)weir_value_bits(seed, (uint32_t)i);
}

extern "C" __global__ void fill_near(int32_t *to, uint64_t n, uint32_t seed, uint32_t reach,
                                     uint32_t items)
{
    EACH(i, n) to[i] = weir_value_near(seed, (uint32_t)(i % items), (uint32_t)(i / items), reach,
                                       items);
}

extern "C" __global__ void fill_faces(int32_t *to, uint64_t n, uint32_t seed, uint32_t reach,
                                      uint32_t items)
{
    EACH(i, n) to[i] = weir_value_face(seed, (uint32_t)(i % items), (uint32_t)(i / items), reach,
                                       items);
}

extern "C" __global__ void fill_rows(int32_t *to, uint64_t n, uint32_t seed, uint32_t base,
                                     uint32_t spread)
{
    EACH(i, n) to[i] = weir_value_row(seed, (uint32_t)i, base, spread);
}

extern "C" __global__ void fill_places(float4 *to, uint64_t n, uint32_t seed)
{
    EACH(i, n) to[i] = make_float4(weir_value_place(seed, (uint32_t)i, 0),
                                   weir_value_place(seed, (uint32_t)i, 1),
                                   weir_value_place(seed, (uint32_t)i, 2), 0.0f);
}

extern "C" __global__ void count_differences(const uint32_t *a, const uint32_t *b, uint64_t n,
                                             uint32_t *differences)
{
    uint32_t mine = 0;

    EACH(i, n) mine += a[i] != b[i];
    if (mine != 0) {
        atomicAdd(differences, mine);
    }
}

/* A block that fills an SM by its dynamic shared memory and computes for a while. */
extern "C" __global__ void busy(uint32_t *out, uint32_t rounds)
{
    extern __shared__ uint32_t place[];
    uint32_t x = blockIdx.x * blockDim.x + threadIdx.x;

    for (uint32_t i = 0; i < rounds; i++) {
        x = x * 1664525u + 1013904223u;
    }
    place[threadIdx.x] = x;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = place[threadIdx.x ^ 1];
}

/*
 * Sum the counters first .. last again and again, and tell the host whenever the sum changes:
 * workers, and in the upper half the counters that are not 0. One warp; ends when the host says so,
 * or after limit_ns.
 */
extern "C" __global__ void watch(const uint32_t *counters, uint32_t first, uint32_t last,
                                 uint32_t *told, const uint32_t *quit, uint64_t limit_ns)
{
    volatile const uint32_t *from = counters;
    volatile const uint32_t *over = quit;
    uint64_t begin, now;
    uint32_t before = 0xffffffffu;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    for (uint32_t turn = 0;; turn++) {
        uint32_t sum = 0;

        for (uint32_t i = first + threadIdx.x; i <= last; i += 32) {
            uint32_t n = from[i];

            sum += n + (n != 0 ? 0x10000u : 0);
        }
        for (int step = 16; step > 0; step /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        }
        if (sum != before && threadIdx.x == 0) {
            *(volatile uint32_t *)told = sum;
            __threadfence_system();
        }
        before = sum;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (turn % 32 == 31 && (*over != 0 || now - begin > limit_ns)) {
            return;
        }
    }
}

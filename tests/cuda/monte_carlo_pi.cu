/* Pi by counting points in a quarter circle, with our own generator, so the count is exact. */
#include "check.h"

enum { THREADS = 2048, POINTS = 100 };

__host__ __device__ static unsigned long long next(unsigned long long *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 40;
}

__host__ __device__ static unsigned inside(unsigned long long seed)
{
    unsigned long long state = seed * 0x9e3779b97f4a7c15ull + 1;
    unsigned hits = 0;

    for (int i = 0; i < POINTS; i++) {
        unsigned long long x = next(&state), y = next(&state);
        hits += x * x + y * y < 1ull << 48;
    }
    return hits;
}

__global__ static void count(unsigned *total)
{
    unsigned hits = inside(blockIdx.x * blockDim.x + threadIdx.x);

    for (int step = 16; step > 0; step /= 2) {
        hits += __shfl_xor_sync(0xffffffffu, hits, step);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(total, hits);
    }
}

int main(void)
{
    unsigned want = 0, got = 0;

    check_begin("monte_carlo_pi");
    for (unsigned i = 0; i < THREADS; i++) {
        want += inside(i);
    }
    unsigned *total = device_new<unsigned>(1);
    count<<<THREADS / 128, 128>>>(total);
    check_launch();
    to_host(&got, total, 1);
    check_int(got, want, "hits");
    printf("pi is about %.4f\n", 4.0 * got / (THREADS * POINTS));
    check_true(fabs(4.0 * got / (THREADS * POINTS) - 3.14159265) < 0.02, "near pi");
    return check_end();
}

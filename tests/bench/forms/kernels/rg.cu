/* Quasi-random generator: point i of three dimensions, by the direction numbers of i's bits. */
#include "directions.h"

static __constant__ unsigned int directions[WEIR_DIRECTIONS_DIMS][WEIR_DIRECTIONS_BITS] =
    WEIR_DIRECTIONS;

extern "C" __global__ void rg(float *out, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int dimension = threadIdx.y;
    unsigned int bits = 0;

    if (i >= n) {
        return;
    }
    for (int bit = 0; bit < WEIR_DIRECTIONS_BITS; bit++) {
        if (i >> bit & 1) {
            bits ^= directions[dimension][bit];
        }
    }
    out[dimension * n + i] = (float)(bits + 1) * (1.0f / 2147483648.0f);
}

/* The second translation unit of rdc_units. */
#include "shared.h"

__device__ int shared_table[32];
__constant__ int shared_factor = 4;

__device__ __noinline__ int combine(int a, int b)
{
    return a * shared_factor + b;
}

__global__ void from_other(int *out)
{
    out[threadIdx.x] = combine(shared_table[threadIdx.x], 1);
}

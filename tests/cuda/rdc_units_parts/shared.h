/* What the two translation units of rdc_units share. */
#pragma once

extern __device__ int shared_table[32];
extern __constant__ int shared_factor;
extern __device__ int combine(int a, int b);
extern __global__ void from_other(int *out);

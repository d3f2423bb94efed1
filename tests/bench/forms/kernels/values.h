/*
 * Inputs of the benchmark kernels, as functions of an index: the device fills buffers with them,
 * and the host knows any element without reading one back. Plain C and CUDA C++; every result is
 * exact, so that both sides agree to the bit (the .cu files are compiled without contraction).
 */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define WEIR_VALUE static __host__ __device__ __forceinline__
#else
#define WEIR_VALUE static inline
#endif

/* 32 mixed bits of element i of the input that seed names. */
WEIR_VALUE uint32_t weir_value_bits(uint32_t seed, uint32_t i)
{
    uint32_t x = i * 0x9e3779b1u + seed * 0x7feb352du;

    x ^= x >> 16;
    x *= 0x85ebca77u;
    x ^= x >> 13;
    x *= 0xc2b2ae3du;
    return x ^ x >> 16;
}

/* low .. low + span, in steps of span / 2^16. */
WEIR_VALUE float weir_value_float(uint32_t seed, uint32_t i, float low, float span)
{
    float unit = (float)(weir_value_bits(seed, i) >> 16) * (1.0f / 65536.0f);
    float part = span * unit;

    return low + part;
}

/* -1 .. 1 - 2^-7 in steps of 2^-7: a half has it exactly. */
WEIR_VALUE float weir_value_half(uint32_t seed, uint32_t i)
{
    return (float)((int32_t)(weir_value_bits(seed, i) >> 24) - 128) * (1.0f / 128.0f);
}

/* Below limit. */
WEIR_VALUE uint32_t weir_value_below(uint32_t seed, uint32_t i, uint32_t limit)
{
    return weir_value_bits(seed, i) % limit;
}

/* Neighbour k of item i: another item, at most reach away, around the ends. */
WEIR_VALUE int32_t weir_value_near(uint32_t seed, uint32_t i, uint32_t k, uint32_t reach,
                                   uint32_t n)
{
    uint32_t step = 1 + weir_value_bits(seed + k, i) % reach;

    return (int32_t)((i + (k & 1 ? n - step % n : step)) % n);
}

/* Neighbour behind face k of a cell: a cell, or -1 (wall) or -2 (far away). */
WEIR_VALUE int32_t weir_value_face(uint32_t seed, uint32_t i, uint32_t k, uint32_t reach,
                                   uint32_t n)
{
    uint32_t kind = weir_value_bits(seed + 16 + k, i) % 100;

    return kind == 0 ? -1 : kind == 1 ? -2 : weir_value_near(seed, i, k, reach, n);
}

/* Where row i of a sparse matrix begins: rows of base - spread + 1 .. base + spread - 1. */
WEIR_VALUE int32_t weir_value_row(uint32_t seed, uint32_t i, uint32_t base, uint32_t spread)
{
    return (int32_t)(i * base + (i == 0 ? 0 : weir_value_bits(seed, i) % spread));
}

/* Coordinate axis (0, 1, 2) of atom i: a cubic lattice of pitch 1.2, shaken by up to 0.1. */
WEIR_VALUE float weir_value_place(uint32_t seed, uint32_t i, uint32_t axis)
{
    uint32_t cell = i >> (6 * axis) & (axis == 2 ? 0xfffffu : 63u);
    float base = (float)cell * 1.25f;

    return base + weir_value_float(seed + axis, i, -0.125f, 0.25f);
}

/*
 * Matrix multiplication on tensor cores, c = a b with halves in and floats out: tiles of 128 by 128,
 * 64 by 32 for each of eight warps. a is n by depth, b is depth by n; n divides by 128, depth by 32.
 */
#include <mma.h>

#define TILE 128
#define DEEP 32
#define PAD  8 /* halves, so that rows begin in other banks */

using namespace nvcuda;

extern "C" __global__ void __launch_bounds__(256)
    tg(const __half *a, const __half *b, float *c, int n, int depth)
{
    __shared__ __align__(16) __half tile_a[TILE][DEEP + PAD];
    __shared__ __align__(16) __half tile_b[DEEP][TILE + PAD];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4][2];
    int warp = threadIdx.x / 32;
    int row = warp / 4 * 64;
    int column = warp % 4 * 32;
    const __half *from_a = a + (size_t)blockIdx.y * TILE * depth;
    const __half *from_b = b + (size_t)blockIdx.x * TILE;

#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            wmma::fill_fragment(sums[i][j], 0.0f);
        }
    }
    for (int k = 0; k < depth; k += DEEP) {
        for (int i = threadIdx.x; i < TILE * DEEP / 8; i += 256) { /* eight halves at once */
            int in_a = i % (DEEP / 8) * 8;
            int in_b = i % (TILE / 8) * 8;

            *(int4 *)&tile_a[i / (DEEP / 8)][in_a] =
                *(const int4 *)&from_a[(size_t)(i / (DEEP / 8)) * depth + k + in_a];
            *(int4 *)&tile_b[i / (TILE / 8)][in_b] =
                *(const int4 *)&from_b[(size_t)(k + i / (TILE / 8)) * n + in_b];
        }
        __syncthreads();
#pragma unroll
        for (int deep = 0; deep < DEEP; deep += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left[4];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right[2];

#pragma unroll
            for (int i = 0; i < 4; i++) {
                wmma::load_matrix_sync(left[i], &tile_a[row + i * 16][deep], DEEP + PAD);
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                wmma::load_matrix_sync(right[j], &tile_b[deep][column + j * 16], TILE + PAD);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            size_t at = ((size_t)blockIdx.y * TILE + row + i * 16) * n +
                        (size_t)blockIdx.x * TILE + column + j * 16;

            wmma::store_matrix_sync(c + at, sums[i][j], n, wmma::mem_row_major);
        }
    }
}

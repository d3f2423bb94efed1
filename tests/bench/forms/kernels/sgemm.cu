/*
 * Single-precision matrix multiplication, d = alpha a b + beta c: tiles of 64 by 64 in shared
 * memory, 4 by 4 elements for each of 256 threads. a is n by depth, b is depth by n.
 */
#define TILE 64
#define DEEP 16
#define EACH 4

extern "C" __global__ void __launch_bounds__(256)
    sgemm(const float *a, const float *b, const float *c, float *d, float alpha, float beta, int n,
          int depth)
{
    __shared__ float tile_a[DEEP][TILE + 4];
    __shared__ float tile_b[DEEP][TILE];
    int thread = threadIdx.x;
    int tx = thread % 16 * EACH;
    int ty = thread / 16 * EACH;
    int row = blockIdx.y * TILE;
    int column = blockIdx.x * TILE;
    float sums[EACH][EACH] = {};

    for (int k = 0; k < depth; k += DEEP) {
        for (int i = thread; i < TILE * DEEP; i += 256) {
            tile_a[i % DEEP][i / DEEP] = a[(row + i / DEEP) * depth + k + i % DEEP];
            tile_b[i / TILE][i % TILE] = b[(k + i / TILE) * n + column + i % TILE];
        }
        __syncthreads();
#pragma unroll
        for (int deep = 0; deep < DEEP; deep++) {
            float left[EACH], right[EACH];

#pragma unroll
            for (int i = 0; i < EACH; i++) {
                left[i] = tile_a[deep][ty + i];
                right[i] = tile_b[deep][tx + i];
            }
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    sums[i][j] += left[i] * right[j];
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int at = (row + ty + i) * n + column + tx + j;

            d[at] = alpha * sums[i][j] + beta * c[at];
        }
    }
}

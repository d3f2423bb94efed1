/*
 * Matrix multiplication with tiles of 32 by 32 in shared memory, an element for each thread: a is
 * n by depth, b is depth by n.
 */
#define TILE 32

extern "C" __global__ void mm(const float *a, const float *b, float *c, int n,
                              int depth)
{
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;

    for (int k = 0; k < depth; k += TILE) {
        tile_a[threadIdx.y][threadIdx.x] = a[row * depth + k + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}

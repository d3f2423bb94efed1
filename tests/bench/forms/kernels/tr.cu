/* Matrix transpose through shared memory, tiles of 32 by 32, four elements for each thread. */
#define TILE 32

extern "C" __global__ void tr(const float *in, float *out, int n)
{
    __shared__ float tile[TILE][TILE + 1];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;

    for (int i = 0; i < TILE; i += 8) {
        tile[threadIdx.y + i][threadIdx.x] = in[(long long)(row + i) * n + column];
    }
    __syncthreads();
    column = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += 8) {
        out[(long long)(row + i) * n + column] = tile[threadIdx.x][threadIdx.y + i];
    }
}

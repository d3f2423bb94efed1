/* Sparse matrix (CSR) times vector, a warp for each row. */
extern "C" __global__ void spmv(const float *values, const int *columns, const int *rows,
                                const float *x, float *y, int n)
{
    int lane = threadIdx.x % 32;
    int row = (int)((blockIdx.x * blockDim.x + threadIdx.x) / 32);
    float sum = 0.0f;

    if (row >= n) {
        return;
    }
    int end = rows[row + 1];

    for (int i = rows[row] + lane; i < end; i += 32) {
        sum += values[i] * x[columns[i]];
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, step);
    }
    if (lane == 0) {
        y[row] = sum;
    }
}

/*
 * Gaussian elimination, the update behind a panel of pivots: from each element the products of its
 * row's multipliers and its column's pivot elements are taken off. Straight from global memory.
 */
extern "C" __global__ void gs(const float *matrix, const float *multipliers, const float *pivots,
                              float *out, int n, int panel)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;

    if (row >= n || column >= n) {
        return;
    }
    float value = matrix[(long long)row * n + column];

    for (int k = 0; k < panel; k++) {
        value -= multipliers[row * panel + k] * pivots[k * n + column];
    }
    out[(long long)row * n + column] = value;
}

/*
 * Path finder: dynamic programming over the rows of a grid, several rows a launch. A block works
 * on its columns and a border of one column for each row on both sides, which it gives up row by
 * row; two barriers a row.
 */
#define WIDTH 256 /* threads of a block */
#define FAR   (1 << 29)

extern "C" __global__ void pf(const int *wall, const int *before, int *after, int columns, int rows)
{
    __shared__ int costs[WIDTH];
    int thread = threadIdx.x;
    int x = (int)blockIdx.x * (WIDTH - 2 * rows) - rows + thread;
    bool inside = x >= 0 && x < columns;

    costs[thread] = inside ? before[x] : FAR;
    __syncthreads();
    for (int row = 0; row < rows; row++) {
        int cost = FAR;

        if (inside && thread > row && thread < WIDTH - 1 - row) {
            int least = min(min(costs[thread - 1], costs[thread]), costs[thread + 1]);

            cost = least + wall[(long long)row * columns + x];
        }
        __syncthreads();
        costs[thread] = cost;
        __syncthreads();
    }
    if (inside && thread >= rows && thread < WIDTH - rows) {
        after[x] = costs[thread];
    }
}

/* Sparse matrix times vector, rows compressed: a thread for each row, and a warp for each row. */
#include "check.h"

enum { ROWS = 500, COLUMNS = 300, MAX = ROWS * 40 };

__global__ static void by_thread(const int *start, const int *column, const double *value,
                                 const double *x, double *y)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;

    if (row < ROWS) {
        double sum = 0;
        for (int i = start[row]; i < start[row + 1]; i++) {
            sum += value[i] * x[column[i]];
        }
        y[row] = sum;
    }
}

__global__ static void by_warp(const int *start, const int *column, const double *value,
                               const double *x, double *y)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    double sum = 0;

    if (row >= ROWS) {
        return;
    }
    for (int i = start[row] + lane; i < start[row + 1]; i += 32) {
        sum += value[i] * __ldg(&x[column[i]]);
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, step);
    }
    if (lane == 0) {
        y[row] = sum;
    }
}

int main(void)
{
    int start[ROWS + 1], *column = host_new<int>(MAX), entries = 0;
    double *value = host_new<double>(MAX), x[COLUMNS], want[ROWS];
    uint32_t seed = 44;

    check_begin("spmv");
    for (int i = 0; i < COLUMNS; i++) {
        x[i] = (double)(i % 21) - 10;
    }
    for (int row = 0; row < ROWS; row++) {
        int length = row % 37;
        start[row] = entries;
        want[row] = 0;
        for (int k = 0; k < length; k++, entries++) {
            column[entries] = (int)(check_random(&seed) % COLUMNS);
            value[entries] = (double)(check_random(&seed) % 64) / 8;
            want[row] += value[entries] * x[column[entries]];
        }
    }
    start[ROWS] = entries;
    int *device_start = to_device(start, ROWS + 1), *device_column = to_device(column, entries);
    double *device_value = to_device(value, entries), *device_x = to_device(x, COLUMNS);
    double *y = device_new<double>(ROWS);
    by_thread<<<(ROWS + 127) / 128, 128>>>(device_start, device_column, device_value, device_x, y);
    check_launch();
    check_device(y, want, ROWS, "a thread for each row");
    RT(cudaMemset(y, 0, sizeof(want)));
    by_warp<<<(ROWS * 32 + 127) / 128, 128>>>(device_start, device_column, device_value, device_x,
                                              y);
    check_launch();
    check_device(y, want, ROWS, "a warp for each row");
    return check_end();
}

/* Matrix transposition through shared memory, and in place by swapping tiles. */
#include "check.h"

enum { TILE = 32, ROWS = 8 };

template <class T> __global__ static void transpose(const T *in, T *out, int width, int height)
{
    __shared__ T tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;

    for (int j = 0; j < TILE; j += ROWS) {
        if (x < width && y + j < height) {
            tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
        }
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS) {
        if (x < height && y + j < width) {
            out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
        }
    }
}

template <class T> static void run(int width, int height, const char *label)
{
    T *in = host_new<T>(width * height), *want = host_new<T>(width * height);

    for (int i = 0; i < width * height; i++) {
        in[i] = (T)(i * 7 % 251);
        want[i % width * height + i / width] = in[i];
    }
    T *device_in = to_device(in, width * height), *device_out = device_new<T>(width * height);
    dim3 grid((width + TILE - 1) / TILE, (height + TILE - 1) / TILE), block(TILE, ROWS);
    transpose<<<grid, block>>>(device_in, device_out, width, height);
    check_launch();
    check_device(device_out, want, width * height, label);
    free(in);
    free(want);
}

int main(void)
{
    check_begin("transpose");
    run<float>(128, 128, "128 x 128 float");
    run<double>(100, 37, "100 x 37 double");
    run<unsigned char>(33, 190, "33 x 190 bytes");
    run<short>(1, 77, "1 x 77 short");
    return check_end();
}

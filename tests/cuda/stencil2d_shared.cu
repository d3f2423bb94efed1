/* A five-point stencil on tiles with a halo in shared memory; edges count as zero. */
#include "check.h"

enum { TILE = 16, WIDTH = 203, HEIGHT = 117 };

__global__ static void stencil(const int *in, int *out)
{
    __shared__ int tile[TILE + 2][TILE + 2];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;

    for (int ty = threadIdx.y; ty < TILE + 2; ty += TILE) {
        for (int tx = threadIdx.x; tx < TILE + 2; tx += TILE) {
            int gx = blockIdx.x * TILE + tx - 1, gy = blockIdx.y * TILE + ty - 1;
            bool inside = gx >= 0 && gx < WIDTH && gy >= 0 && gy < HEIGHT;
            tile[ty][tx] = inside ? in[gy * WIDTH + gx] : 0;
        }
    }
    __syncthreads();
    if (x < WIDTH && y < HEIGHT) {
        int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
        out[y * WIDTH + x] = tile[ty - 1][tx] + tile[ty + 1][tx] + tile[ty][tx - 1] +
                             tile[ty][tx + 1] - 4 * tile[ty][tx];
    }
}

static int at(const int *field, int x, int y)
{
    return x >= 0 && x < WIDTH && y >= 0 && y < HEIGHT ? field[y * WIDTH + x] : 0;
}

int main(void)
{
    int *in = host_new<int>(WIDTH * HEIGHT), *want = host_new<int>(WIDTH * HEIGHT);
    uint32_t seed = 7;

    check_begin("stencil2d_shared");
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        in[i] = (int)(check_random(&seed) % 1000);
    }
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            want[y * WIDTH + x] = at(in, x, y - 1) + at(in, x, y + 1) + at(in, x - 1, y) +
                                  at(in, x + 1, y) - 4 * at(in, x, y);
        }
    }
    int *device_in = to_device(in, WIDTH * HEIGHT), *device_out = device_new<int>(WIDTH * HEIGHT);
    dim3 grid((WIDTH + TILE - 1) / TILE, (HEIGHT + TILE - 1) / TILE), block(TILE, TILE);
    stencil<<<grid, block>>>(device_in, device_out);
    check_launch();
    check_device(device_out, want, WIDTH * HEIGHT, "five-point stencil");
    return check_end();
}

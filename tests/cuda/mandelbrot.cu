/* The Mandelbrot set in fixed point, so that every device counts the same iterations. */
#include "check.h"

enum { W = 64, H = 48, LIMIT = 64, SHIFT = 24 };

__host__ __device__ static int iterations(int px, int py)
{
    const long long one = 1ll << SHIFT;
    long long cx = -2 * one + px * (3 * one / W), cy = -one + py * (2 * one / H), x = 0, y = 0;
    int n = 0;

    while (n < LIMIT) {
        long long xx = (x * x) >> SHIFT, yy = (y * y) >> SHIFT;
        if (xx + yy > 4 * one) {
            break;
        }
        y = ((2 * x * y) >> SHIFT) + cy;
        x = xx - yy + cx;
        n++;
    }
    return n;
}

__global__ static void paint(unsigned char *image)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < W && y < H) {
        image[y * W + x] = (unsigned char)iterations(x, y);
    }
}

int main(void)
{
    unsigned char *want = host_new<unsigned char>(W * H), *got = host_new<unsigned char>(W * H);
    char line[W / 2 + 1];

    check_begin("mandelbrot");
    for (int i = 0; i < W * H; i++) {
        want[i] = (unsigned char)iterations(i % W, i / W);
    }
    unsigned char *image = device_new<unsigned char>(W * H);
    paint<<<dim3((W + 15) / 16, (H + 7) / 8), dim3(16, 8)>>>(image);
    check_launch();
    to_host(got, image, W * H);
    for (int y = 0; y < H; y += 4) {
        for (int x = 0; x < W; x += 2) {
            line[x / 2] = " .:-=+*#%@"[got[y * W + x] * 9 / LIMIT];
        }
        line[W / 2] = 0;
        printf("|%s|\n", line);
    }
    check_true(memcmp(got, want, W * H) == 0, "every pixel's count");
    return check_end();
}

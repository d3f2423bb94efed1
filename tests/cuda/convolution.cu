/* A separable 9-tap filter: rows, then columns, with the taps in constant memory. */
#include "check.h"

enum { W = 160, H = 90, RADIUS = 4, TAPS = 2 * RADIUS + 1, BLOCK = 64 };

__constant__ int taps[TAPS];

__global__ static void rows(const int *in, int *out)
{
    __shared__ int line[BLOCK + 2 * RADIUS];
    int x = blockIdx.x * BLOCK + threadIdx.x, y = blockIdx.y, sum = 0;

    for (int i = threadIdx.x; i < BLOCK + 2 * RADIUS; i += BLOCK) {
        int at = blockIdx.x * BLOCK + i - RADIUS;
        line[i] = in[y * W + min(max(at, 0), W - 1)];
    }
    __syncthreads();
    if (x < W) {
        for (int t = 0; t < TAPS; t++) {
            sum += taps[t] * line[threadIdx.x + t];
        }
        out[y * W + x] = sum;
    }
}

__global__ static void columns(const int *in, int *out)
{
    int x = blockIdx.x * BLOCK + threadIdx.x, y = blockIdx.y, sum = 0;

    if (x < W) {
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
            sum += taps[t] * in[min(max(y + t - RADIUS, 0), H - 1) * W + x];
        }
        out[y * W + x] = sum;
    }
}

static int clamp(int v, int size)
{
    return v < 0 ? 0 : v >= size ? size - 1 : v;
}

int main(void)
{
    const int filter[TAPS] = {1, -2, 3, 5, 9, 5, 3, -2, 1};
    int *in = host_new<int>(W * H), *middle = host_new<int>(W * H), *want = host_new<int>(W * H);
    uint32_t seed = 3;

    check_begin("convolution");
    for (int i = 0; i < W * H; i++) {
        in[i] = (int)(check_random(&seed) % 256);
    }
    for (int i = 0; i < W * H; i++) {
        for (int t = 0; t < TAPS; t++) {
            middle[i] += filter[t] * in[i / W * W + clamp(i % W + t - RADIUS, W)];
        }
    }
    for (int i = 0; i < W * H; i++) {
        for (int t = 0; t < TAPS; t++) {
            want[i] += filter[t] * middle[clamp(i / W + t - RADIUS, H) * W + i % W];
        }
    }
    RT(cudaMemcpyToSymbol(taps, filter, sizeof(filter)));
    int *a = to_device(in, W * H), *b = device_new<int>(W * H);
    dim3 grid((W + BLOCK - 1) / BLOCK, H);
    rows<<<grid, BLOCK>>>(a, b);
    check_launch();
    check_device(b, middle, W * H, "rows");
    columns<<<grid, BLOCK>>>(b, a);
    check_launch();
    check_device(a, want, W * H, "columns");
    return check_end();
}

/* Matrix product by 16x16 tiles in shared memory, sizes that are no multiple of the tile. */
#include "check.h"

enum { TILE = 16 };

__global__ static void sgemm(int m, int n, int k, float alpha, const float *a, const float *b,
                             float beta, float *c)
{
    __shared__ float tile_a[TILE][TILE + 1], tile_b[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;

    for (int base = 0; base < k; base += TILE) {
        int ka = base + threadIdx.x, kb = base + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0;
        tile_b[threadIdx.y][threadIdx.x] = kb < k && column < n ? b[kb * n + column] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++) {
            sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < m && column < n) {
        c[row * n + column] = alpha * sum + beta * c[row * n + column];
    }
}

static void run(int m, int n, int k)
{
    float *a = host_new<float>(m * k), *b = host_new<float>(k * n), *c = host_new<float>(m * n);
    float *want = host_new<float>(m * n);
    uint32_t seed = (uint32_t)(m + n + k);
    char label[64];

    for (int i = 0; i < m * k; i++) {
        a[i] = (float)((int)(check_random(&seed) % 17) - 8);
    }
    for (int i = 0; i < k * n; i++) {
        b[i] = (float)((int)(check_random(&seed) % 17) - 8) * 0.5f;
    }
    for (int y = 0; y < m; y++) {
        for (int x = 0; x < n; x++) {
            float sum = 0;
            for (int i = 0; i < k; i++) {
                sum += a[y * k + i] * b[i * n + x];
            }
            c[y * n + x] = (float)(x - y);
            want[y * n + x] = 2.0f * sum + 0.5f * c[y * n + x];
        }
    }
    float *device_a = to_device(a, m * k), *device_b = to_device(b, k * n);
    float *device_c = to_device(c, m * n);
    dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), block(TILE, TILE);
    sgemm<<<grid, block>>>(m, n, k, 2.0f, device_a, device_b, 0.5f, device_c);
    check_launch();
    snprintf(label, sizeof(label), "%d x %d x %d", m, n, k);
    check_device(device_c, want, m * n, label);
}

int main(void)
{
    check_begin("sgemm_tiled");
    run(1, 1, 1);
    run(16, 16, 16);
    run(33, 17, 50);
    run(70, 90, 64);
    return check_end();
}

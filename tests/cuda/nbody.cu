/* Gravity between 256 bodies, three steps, with tiles of positions in shared memory. */
#include "check.h"

enum { N = 256, BLOCK = 64, STEPS = 3 };

__global__ static void step(const float4 *in, float4 *out, float4 *velocity, float dt)
{
    __shared__ float4 tile[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    float4 me = in[i];
    float3 a = make_float3(0, 0, 0);

    for (int base = 0; base < N; base += BLOCK) {
        tile[threadIdx.x] = in[base + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < BLOCK; k++) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float s = tile[k].w * inverse * inverse * inverse;
            a.x += dx * s;
            a.y += dy * s;
            a.z += dz * s;
        }
        __syncthreads();
    }
    float4 v = velocity[i];
    v.x += a.x * dt;
    v.y += a.y * dt;
    v.z += a.z * dt;
    velocity[i] = v;
    out[i] = make_float4(me.x + v.x * dt, me.y + v.y * dt, me.z + v.z * dt, me.w);
}

static double place[N][3], speed[N][3], mass[N];

static void host_step(double dt)
{
    static double next[N][3];

    for (int i = 0; i < N; i++) {
        double a[3] = {0, 0, 0};
        for (int k = 0; k < N; k++) {
            double d[3], r2 = 0.01;
            for (int c = 0; c < 3; c++) {
                d[c] = place[k][c] - place[i][c];
                r2 += d[c] * d[c];
            }
            for (int c = 0; c < 3; c++) {
                a[c] += d[c] * mass[k] / (r2 * sqrt(r2));
            }
        }
        for (int c = 0; c < 3; c++) {
            speed[i][c] += a[c] * dt;
            next[i][c] = place[i][c] + speed[i][c] * dt;
        }
    }
    memcpy(place, next, sizeof(place));
}

int main(void)
{
    float4 start[N], end[N];
    double got[N * 3], want[N * 3];
    uint32_t seed = 12;

    check_begin("nbody");
    for (int i = 0; i < N; i++) {
        float p[3];
        for (int c = 0; c < 3; c++) {
            p[c] = (float)(check_random(&seed) % 2001) / 1000.0f - 1.0f;
            place[i][c] = p[c];
        }
        start[i] = make_float4(p[0], p[1], p[2], (float)(i % 4 + 1) / 256.0f);
        mass[i] = start[i].w;
    }
    float4 *a = to_device(start, N), *b = device_new<float4>(N), *velocity = device_new<float4>(N);
    for (int s = 0; s < STEPS; s++) {
        float4 *swap = a;
        step<<<N / BLOCK, BLOCK>>>(a, b, velocity, 0.01f);
        a = b;
        b = swap;
        host_step(0.01f);
    }
    check_launch();
    to_host(end, a, N);
    for (int i = 0; i < N; i++) {
        got[3 * i] = end[i].x;
        got[3 * i + 1] = end[i].y;
        got[3 * i + 2] = end[i].z;
        memcpy(want + 3 * i, place[i], sizeof(place[i]));
    }
    check_close(got, want, N * 3, 1e-4, "places after three steps");
    return check_end();
}

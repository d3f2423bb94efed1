/* bfloat16, single and in pairs; all results are bit-exact. */
#include <cuda_bf16.h>

#include "check.h"

enum { N = 512, COLUMNS = 9 };

/* The fused forms exist from sm_80 on; before that float arithmetic gives the same bits here. */
__device__ static __nv_bfloat16 fused(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c)
{
#if __CUDA_ARCH__ >= 800
    return __hfma(a, b, c);
#else
    return __float2bfloat16(fmaf(__bfloat162float(a), __bfloat162float(b), __bfloat162float(c)));
#endif
}

__device__ static __nv_bfloat162 fused2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c)
{
#if __CUDA_ARCH__ >= 800
    return __hfma2(a, b, c);
#else
    return __halves2bfloat162(fused(a.x, b.x, c.x), fused(a.y, b.y, c.y));
#endif
}

__global__ static void single(const __nv_bfloat16 *a, const __nv_bfloat16 *b, __nv_bfloat16 *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat16 *row = out + i * COLUMNS;

    row[0] = __hadd(a[i], b[i]);
    row[1] = __hsub(a[i], b[i]);
    row[2] = __hmul(a[i], b[i]);
    row[3] = fused(a[i], b[i], a[i]);
    row[4] = __hneg(a[i]);
    row[5] = __hlt(a[i], b[i]) ? __float2bfloat16(1.0f) : __float2bfloat16(0.0f);
    row[6] = __int2bfloat16_rn(i * 5 + 2049);
    row[7] = __float2bfloat16_rz(__bfloat162float(a[i]) * 0.33203125f);
    row[8] = __habs(a[i]);
}

__global__ static void paired(const __nv_bfloat162 *a, const __nv_bfloat162 *b, __nv_bfloat162 *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat162 sum = __hadd2(a[i], b[i]);

    out[i * 2] = fused2(a[i], __lowhigh2highlow(b[i]), sum);
    out[i * 2 + 1] = __hmul2(__bfloat162bfloat162(__high2bfloat16(a[i])), sum);
}

static double value(__nv_bfloat16 h)
{
    return (double)__bfloat162float(h);
}

int main(void)
{
    __nv_bfloat16 *a = host_new<__nv_bfloat16>(N), *b = host_new<__nv_bfloat16>(N);
    __nv_bfloat16 *want = host_new<__nv_bfloat16>(N * COLUMNS),
                  *pairs = host_new<__nv_bfloat16>(2 * N);
    uint32_t seed = 31;

    check_begin("bf16_math");
    for (int i = 0; i < N; i++) {
        a[i] = __float2bfloat16((float)((int)(check_random(&seed) % 513) - 256) / 64.0f);
        b[i] = __float2bfloat16((float)((int)(check_random(&seed) % 513) - 256) / 128.0f);
        __nv_bfloat16 *row = want + i * COLUMNS;
        row[0] = __double2bfloat16(value(a[i]) + value(b[i]));
        row[1] = __double2bfloat16(value(a[i]) - value(b[i]));
        row[2] = __double2bfloat16(value(a[i]) * value(b[i]));
        row[3] = __double2bfloat16(value(a[i]) * value(b[i]) + value(a[i]));
        row[4] = __ushort_as_bfloat16((unsigned short)(__bfloat16_as_ushort(a[i]) ^ 0x8000u));
        row[5] = __float2bfloat16(value(a[i]) < value(b[i]) ? 1.0f : 0.0f);
        row[6] = __double2bfloat16((double)(i * 5 + 2049));
        row[7] = __float2bfloat16_rz(__bfloat162float(a[i]) * 0.33203125f);
        row[8] = __double2bfloat16(fabs(value(a[i])));
    }
    for (int i = 0; i < N / 2; i++) {
        for (int k = 0; k < 2; k++) {
            __nv_bfloat16 sum = __double2bfloat16(value(a[2 * i + k]) + value(b[2 * i + k]));
            double product = value(a[2 * i + k]) * value(b[2 * i + 1 - k]);
            pairs[i * 4 + k] = __double2bfloat16(product + value(sum));
            pairs[i * 4 + 2 + k] = __double2bfloat16(value(a[2 * i + 1]) * value(sum));
        }
    }
    __nv_bfloat16 *device_a = to_device(a, N), *device_b = to_device(b, N);
    __nv_bfloat16 *device_out = device_new<__nv_bfloat16>(N * COLUMNS);
    single<<<N / 64, 64>>>(device_a, device_b, device_out);
    check_launch();
    check_device(device_out, want, N * COLUMNS, "bf16: add, sub, mul, fma, compare, convert");
    paired<<<N / 128, 64>>>((__nv_bfloat162 *)device_a, (__nv_bfloat162 *)device_b,
                            (__nv_bfloat162 *)device_out);
    check_launch();
    check_device(device_out, pairs, 2 * N, "bf162: fma, mul, swap, broadcast");
    return check_end();
}

/* Half precision, single and in pairs; all results are bit-exact. */
#include <cuda_fp16.h>

#include "check.h"

enum { N = 512, COLUMNS = 9 };

__global__ static void single(const __half *a, const __half *b, __half *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __half *row = out + i * COLUMNS;

    row[0] = __hadd(a[i], b[i]);
    row[1] = __hsub(a[i], b[i]);
    row[2] = __hmul(a[i], b[i]);
    row[3] = __hfma(a[i], b[i], a[i]);
    row[4] = __hneg(a[i]);
    row[5] = __hlt(a[i], b[i]) ? __float2half(1.0f) : __float2half(0.0f);
    row[6] = __int2half_rn(i * 5 + 2049);
    row[7] = __float2half_rz(__half2float(a[i]) * 0.3330078125f);
    row[8] = __habs(a[i]);
}

__global__ static void paired(const __half2 *a, const __half2 *b, __half2 *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __half2 sum = __hadd2(a[i], b[i]);

    out[i * 2] = __hfma2(a[i], __lowhigh2highlow(b[i]), sum);
    out[i * 2 + 1] = __hmul2(__half2half2(__high2half(a[i])), sum);
}

static double value(__half h)
{
    return (double)__half2float(h);
}

int main(void)
{
    __half *a = host_new<__half>(N), *b = host_new<__half>(N);
    __half *want = host_new<__half>(N * COLUMNS), *pairs = host_new<__half>(2 * N);
    uint32_t seed = 31;

    check_begin("half_math");
    for (int i = 0; i < N; i++) {
        a[i] = __float2half((float)((int)(check_random(&seed) % 513) - 256) / 64.0f);
        b[i] = __float2half((float)((int)(check_random(&seed) % 513) - 256) / 128.0f);
        __half *row = want + i * COLUMNS;
        row[0] = __double2half(value(a[i]) + value(b[i]));
        row[1] = __double2half(value(a[i]) - value(b[i]));
        row[2] = __double2half(value(a[i]) * value(b[i]));
        row[3] = __double2half(value(a[i]) * value(b[i]) + value(a[i]));
        row[4] = __ushort_as_half((unsigned short)(__half_as_ushort(a[i]) ^ 0x8000u));
        row[5] = __float2half(value(a[i]) < value(b[i]) ? 1.0f : 0.0f);
        row[6] = __double2half((double)(i * 5 + 2049));
        row[7] = __float2half_rz(__half2float(a[i]) * 0.3330078125f);
        row[8] = __double2half(fabs(value(a[i])));
    }
    for (int i = 0; i < N / 2; i++) {
        for (int k = 0; k < 2; k++) {
            __half sum = __double2half(value(a[2 * i + k]) + value(b[2 * i + k]));
            double product = value(a[2 * i + k]) * value(b[2 * i + 1 - k]);
            pairs[i * 4 + k] = __double2half(product + value(sum));
            pairs[i * 4 + 2 + k] = __double2half(value(a[2 * i + 1]) * value(sum));
        }
    }
    __half *device_a = to_device(a, N), *device_b = to_device(b, N);
    __half *device_out = device_new<__half>(N * COLUMNS);
    single<<<N / 64, 64>>>(device_a, device_b, device_out);
    check_launch();
    check_device(device_out, want, N * COLUMNS, "half: add, sub, mul, fma, compare, convert");
    paired<<<N / 128, 64>>>((__half2 *)device_a, (__half2 *)device_b, (__half2 *)device_out);
    check_launch();
    check_device(device_out, pairs, 2 * N, "half2: fma, mul, swap, broadcast");
    return check_end();
}

/* Double precision: correctly rounded operations bit for bit, rounding modes, conversions. */
#include <float.h>

#include "check.h"

enum { N = 1000, COLUMNS = 7 };

__global__ static void basic(const double *a, const double *b, double *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < N) {
        double *row = out + i * COLUMNS;
        row[0] = __dadd_rn(a[i], b[i]);
        row[1] = __dmul_rn(a[i], b[i]);
        row[2] = a[i] / b[i];
        row[3] = sqrt(fabs(a[i]));
        row[4] = fma(a[i], b[i], -row[1]);
        row[5] = (double)(float)a[i];
        row[6] = fmax(fmin(a[i], 10.0), b[i]);
    }
}

__global__ static void rounding(double *d, long long *n)
{
    d[0] = __dadd_rz(1.0, -DBL_EPSILON / 4);
    d[1] = __dadd_rn(1.0, -DBL_EPSILON / 8);
    d[2] = __dadd_ru(1.0, DBL_EPSILON / 8);
    d[3] = __dadd_rd(1.0, DBL_EPSILON / 2);
    d[4] = __dadd_rd(1.0, -DBL_EPSILON / 8);
    d[5] = floor(-2.5);
    d[6] = ceil(-2.5);
    d[7] = trunc(-2.5);
    d[8] = rint(3.5);
    d[9] = rint(2.5);
    d[10] = ldexp(0.75, 10);
    d[11] = copysign(3.0, -0.0);
    n[0] = __double2int_rn(2.5);
    n[1] = __double2int_rz(-2.7);
    n[2] = __double2int_rd(-2.2);
    n[3] = __double2int_ru(2.2);
    n[4] = __double2ll_rn(-9007199254740993.0);
    n[5] = __float2int_rz(1e20f);
    n[6] = __float2int_rn(-1e20f);
    n[7] = (long long)__float2uint_rz(-5.0f);
    n[8] = __double_as_longlong(-1.0);
    n[9] = __double2hiint(1.0);
    n[10] = isnan(__longlong_as_double(0x7ff8000000000000ll)) ? 1 : 0;
    n[11] = __float2int_rn(__int_as_float(0x7fc00000));
}

int main(void)
{
    double *a = host_new<double>(N), *b = host_new<double>(N);
    double *want = host_new<double>(N * COLUMNS);
    const double eps = DBL_EPSILON;
    const double rounded[12] = {1.0 - eps / 2, 1.0,  1.0 + eps, 1.0, 1.0 - eps / 2, -3.0,
                                -2.0,          -2.0, 4.0,       2.0, 768.0,         -3.0};
    const long long integers[12] = {2,
                                    -2,
                                    -3,
                                    3,
                                    -9007199254740992ll,
                                    2147483647,
                                    -2147483648,
                                    0,
                                    -4616189618054758400ll,
                                    0x3ff00000,
                                    1,
                                    0};
    uint32_t seed = 21;

    check_begin("double_math");
    for (int i = 0; i < N; i++) {
        a[i] = ((double)check_random(&seed) - 8388608.0) / 1234.5;
        b[i] = ((double)check_random(&seed) + 1.0) / 98765.25;
        double *row = want + i * COLUMNS;
        volatile double sum = a[i] + b[i], product = a[i] * b[i];
        row[0] = sum;
        row[1] = product;
        row[2] = a[i] / b[i];
        row[3] = sqrt(fabs(a[i]));
        row[4] = fma(a[i], b[i], -product);
        row[5] = (double)(float)a[i];
        row[6] = fmax(fmin(a[i], 10.0), b[i]);
    }
    double *device_a = to_device(a, N), *device_b = to_device(b, N);
    double *device_out = device_new<double>(N * COLUMNS);
    basic<<<(N + 127) / 128, 128>>>(device_a, device_b, device_out);
    check_launch();
    check_device(device_out, want, N * COLUMNS, "add, mul, div, sqrt, fma, convert, min and max");
    double *device_d = device_new<double>(12);
    long long *device_n = device_new<long long>(12);
    rounding<<<1, 1>>>(device_d, device_n);
    check_launch();
    check_device(device_d, rounded, 12, "rounding modes");
    check_device(device_n, integers, 12, "conversions to integers and bits");
    return check_end();
}

/* The math library in float and double, within a tolerance of the host's. */
#include "check.h"

#define FUNCTIONS(X)                                                                               \
    X(sin, x)                                                                                      \
    X(cos, x)                                                                                      \
    X(tan, x * 0.4)                                                                                \
    X(asin, x * 0.09)                                                                              \
    X(acos, x * 0.09)                                                                              \
    X(atan, x)                                                                                     \
    X(sinh, x * 0.5)                                                                               \
    X(cosh, x * 0.5)                                                                               \
    X(tanh, x)                                                                                     \
    X(exp, x * 0.5)                                                                                \
    X(exp2, x)                                                                                     \
    X(expm1, x * 0.3)                                                                              \
    X(log, x + 11)                                                                                 \
    X(log2, x + 11)                                                                                \
    X(log10, x + 11)                                                                               \
    X(log1p, x + 10.5)                                                                             \
    X(sqrt, x + 11)                                                                                \
    X(cbrt, x)                                                                                     \
    X(erf, x * 0.3)                                                                                \
    X(erfc, x * 0.2)                                                                               \
    X(tgamma, x * 0.2 + 3)                                                                         \
    X(lgamma, x * 0.2 + 3)                                                                         \
    X(asinh, x)                                                                                    \
    X(acosh, x + 12)                                                                               \
    X(atanh, x * 0.09)

enum { N = 200 };

#define DEVICE_ROW(fn, argument)                                                                   \
    {                                                                                              \
        double x = in[i];                                                                          \
        d[row * N + i] = fn(argument);                                                             \
        s[row * N + i] = fn##f((float)(argument));                                                 \
        row++;                                                                                     \
    }

__global__ static void evaluate(const double *in, double *d, float *s)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;

    if (i < N) {
        FUNCTIONS(DEVICE_ROW)
    }
}

enum { PAIRS = 8 };

__global__ static void evaluate_pairs(const double *in, double *d, float *fast)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < N) {
        double x = in[i] + 11, y = in[(i + 7) % N] * 0.3;
        d[0 * N + i] = pow(x, y);
        d[1 * N + i] = atan2(y, x);
        d[2 * N + i] = hypot(x, y);
        d[3 * N + i] = fmod(x * 10, 0.7);
        d[4 * N + i] = rsqrt(x);
        d[5 * N + i] = powf((float)x, (float)y);
        d[6 * N + i] = rsqrtf((float)x);
        d[7 * N + i] = fmodf((float)i, 7.0f);
        fast[0 * N + i] = __sinf((float)in[i] * 0.3f);
        fast[1 * N + i] = __expf((float)in[i]);
        fast[2 * N + i] = __logf((float)x + 2);
        fast[3 * N + i] = __fdividef((float)y, (float)x);
    }
}

static double want[N], want_single[N], single[N];

static void check_rows(const double *got, const double *want, int rows, double tolerance,
                       const char *what)
{
    char label[64];

    for (int r = 0; r < rows; r++) {
        snprintf(label, sizeof(label), "%s row %d", what, r);
        check_close(got + r * N, want + r * N, N, tolerance, label);
    }
}

int main(void)
{
    double in[N];
    char label[64];
    double tail[PAIRS * N], tail_want[PAIRS * N], fast_got[4 * N], fast_want[4 * N];
    float fast[4 * N];
    int rows = 0, row = 0;

    check_begin("math_functions");
#define COUNT_ROW(f, argument) rows++;
    FUNCTIONS(COUNT_ROW)
    for (int i = 0; i < N; i++) {
        in[i] = -10 + i * 0.1 + 0.013;
    }
    double *device_in = to_device(in, N), *device_d = device_new<double>(rows * N);
    float *device_s = device_new<float>(rows * N);
    double *d = host_new<double>(rows * N);
    float *s = host_new<float>(rows * N);
    evaluate<<<(N + 63) / 64, 64>>>(device_in, device_d, device_s);
    check_launch();
    to_host(d, device_d, rows * N);
    to_host(s, device_s, rows * N);
#define HOST_ROW(fn, argument)                                                                     \
    for (int i = 0; i < N; i++) {                                                                  \
        double x = in[i];                                                                          \
        want[i] = fn(argument);                                                                    \
        want_single[i] = fn((double)(float)(argument));                                            \
        single[i] = s[row * N + i];                                                                \
    }                                                                                              \
    snprintf(label, sizeof(label), "double %s", #fn);                                              \
    check_close(d + row * N, want, N, 1e-13, label);                                               \
    snprintf(label, sizeof(label), "float %s", #fn);                                               \
    check_close(single, want_single, N, 1e-5, label);                                              \
    row++;
    FUNCTIONS(HOST_ROW)
    for (int i = 0; i < N; i++) {
        double x = in[i] + 11, y = in[(i + 7) % N] * 0.3;
        double results[PAIRS] = {pow(x, y),         atan2(y, x),    hypot(x, y),
                                 fmod(x * 10, 0.7), 1 / sqrt(x),    pow((float)x, (float)y),
                                 1 / sqrt(x),       (double)(i % 7)};
        double want_fast[4] = {sin(in[i] * 0.3), exp(in[i]), log(x + 2), y / x};
        for (int r = 0; r < PAIRS; r++) {
            tail_want[r * N + i] = results[r];
        }
        for (int r = 0; r < 4; r++) {
            fast_want[r * N + i] = want_fast[r];
        }
    }
    double *device_tail = device_new<double>(PAIRS * N);
    float *device_fast = device_new<float>(4 * N);
    evaluate_pairs<<<(N + 63) / 64, 64>>>(device_in, device_tail, device_fast);
    check_launch();
    to_host(tail, device_tail, PAIRS * N);
    to_host(fast, device_fast, 4 * N);
    for (int i = 0; i < 4 * N; i++) {
        fast_got[i] = fast[i];
    }
    check_rows(tail, tail_want, 5, 1e-12, "two-argument double");
    check_rows(tail + 5 * N, tail_want + 5 * N, 3, 2e-5, "two-argument float");
    check_rows(fast_got, fast_want, 4, 2e-5, "fast intrinsics");
    return check_end();
}

/* C++ on the device: templates, lambdas, functors, operators, constexpr, class members. */
#include "check.h"

template <class T, int WIDTH> struct vec {
    T v[WIDTH];

    __host__ __device__ vec operator+(const vec &o) const
    {
        vec r;
        for (int i = 0; i < WIDTH; i++) {
            r.v[i] = v[i] + o.v[i];
        }
        return r;
    }
    __host__ __device__ T dot(const vec &o) const
    {
        T sum = T(0);
        for (int i = 0; i < WIDTH; i++) {
            sum += v[i] * o.v[i];
        }
        return sum;
    }
};

template <int N> struct factorial {
    static constexpr long long value = N * factorial<N - 1>::value;
};

template <> struct factorial<0> {
    static constexpr long long value = 1;
};

template <class T, class OP> __global__ static void apply(T *data, int n, OP op)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] = op(data[i]);
    }
}

template <class T, int WIDTH>
__global__ static void dots(const vec<T, WIDTH> *a, const vec<T, WIDTH> *b, T *out)
{
    out[threadIdx.x] = (a[threadIdx.x] + b[threadIdx.x]).dot(b[threadIdx.x]);
}

struct scale_and_clip {
    int factor, limit;

    __host__ __device__ int operator()(int x) const
    {
        int y = x * factor;
        return y > limit ? limit : y;
    }
};

template <class T, int WIDTH> static void run_dots(const char *label)
{
    vec<T, WIDTH> a[32], b[32];
    T want[32];

    for (int i = 0; i < 32; i++) {
        for (int k = 0; k < WIDTH; k++) {
            a[i].v[k] = (T)(i + k);
            b[i].v[k] = (T)(i - 2 * k);
        }
        want[i] = (a[i] + b[i]).dot(b[i]);
    }
    T *out = device_new<T>(32);
    dots<T, WIDTH><<<1, 32>>>(to_device(a, 32), to_device(b, 32), out);
    check_launch();
    check_device(out, want, 32, label);
}

int main(void)
{
    const int n = 300, offset = 17;
    int host[n], want[n];
    scale_and_clip op = {3, 500};

    check_begin("templates");
    run_dots<int, 3>("vectors of three int");
    run_dots<double, 4>("vectors of four double");
    run_dots<long long, 1>("vectors of one long long");
    for (int i = 0; i < n; i++) {
        host[i] = i;
        want[i] = op(i);
    }
    int *device = to_device(host, n);
    apply<<<3, 128>>>(device, n, op);
    check_launch();
    check_device(device, want, n, "functor with state");
    apply<<<3, 128>>>(device, n, [=] __device__(int x) { return x * 2 - offset; });
    check_launch();
    for (int i = 0; i < n; i++) {
        want[i] = want[i] * 2 - offset;
    }
    check_device(device, want, n, "lambda with a capture");
    apply<<<3, 128>>>(device, n,
                      [] __device__(int x) { return (int)(factorial<10>::value % 1000) + x % 2; });
    check_launch();
    for (int i = 0; i < n; i++) {
        want[i] = 800 + want[i] % 2;
    }
    check_device(device, want, n, "constant computed by templates");
    return check_end();
}

/* Recursion, calls that are not inlined, arrays in local memory, and the stack limit. */
#include "check.h"

__device__ __noinline__ int fibonacci(int n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__device__ __noinline__ int is_odd(int n);

__device__ __noinline__ int is_even(int n)
{
    return n == 0 ? 1 : is_odd(n - 1);
}

__device__ __noinline__ int is_odd(int n)
{
    return n == 0 ? 0 : is_even(n - 1);
}

struct pair {
    long long first;
    int second;
};

__device__ __noinline__ struct pair make_pair(int x, struct pair old)
{
    struct pair p;
    p.first = old.first * 3 + x;
    p.second = old.second - x;
    return p;
}

__global__ static void recurse(long long *out)
{
    int i = threadIdx.x;
    struct pair p = {i, i};

    for (int k = 0; k < 5; k++) {
        p = make_pair(k, p);
    }
    out[i * 3] = fibonacci(i % 12);
    out[i * 3 + 1] = is_even(i);
    out[i * 3 + 2] = p.first * 1000 + p.second;
}

/* Reverses digits with an array whose index is only known at run time. */
__global__ static void local_array(const unsigned *in, unsigned *out)
{
    unsigned digits[16], v = in[threadIdx.x], count = 0, result = 0;

    do {
        digits[count++] = v % 10;
        v /= 10;
    } while (v != 0);
    for (unsigned k = 0; k < count; k++) {
        result = result * 10 + digits[(k * 7 + in[threadIdx.x] * 0) % count == 0 ? 0 : k];
    }
    out[threadIdx.x] = result;
}

static unsigned reversed(unsigned v)
{
    unsigned digits[16], count = 0, result = 0;

    do {
        digits[count++] = v % 10;
        v /= 10;
    } while (v != 0);
    for (unsigned k = 0; k < count; k++) {
        result = result * 10 + digits[(k * 7) % count == 0 ? 0 : k];
    }
    return result;
}

int main(void)
{
    const int fib[12] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
    long long want[64 * 3];
    unsigned in[64], flipped[64];
    size_t stack = 0;
    uint32_t seed = 9;

    check_begin("recursion_local");
    RT(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
    RT(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    check_true(stack >= 8192, "stack limit taken");
    for (int i = 0; i < 64; i++) {
        long long first = i;
        int second = i;
        for (int k = 0; k < 5; k++) {
            first = first * 3 + k;
            second -= k;
        }
        want[i * 3] = fib[i % 12];
        want[i * 3 + 1] = i % 2 == 0;
        want[i * 3 + 2] = first * 1000 + second;
        in[i] = check_random(&seed);
        flipped[i] = reversed(in[i]);
    }
    long long *device = device_new<long long>(64 * 3);
    recurse<<<1, 64>>>(device);
    check_launch();
    check_device(device, want, 64 * 3, "recursion and struct results");
    unsigned *device_in = to_device(in, 64), *device_out = device_new<unsigned>(64);
    local_array<<<1, 64>>>(device_in, device_out);
    check_launch();
    check_device(device_out, flipped, 64, "array in local memory");
    return check_end();
}

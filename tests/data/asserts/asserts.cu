/* Kernels that assert by every route, and some beside them that do not: see README.md. */
#include <assert.h>
#include <stdio.h>

typedef int (*function)(int);

struct base {
    __device__ virtual int get(int v) = 0;
};
struct asserting : base {
    __device__ int get(int v) override { assert(v != 1); return v; }
};
struct harmless : base {
    __device__ int get(int v) override { return v + 2; }
};

__device__ __noinline__ int check(int v) { assert(v != 3); return v * v; }
__device__ __noinline__ int seven(int v) { return v + 7; }
__device__ __noinline__ int fibonacci(int v)
{
    return v < 2 ? v : fibonacci(v - 1) + fibonacci(v - 2);
}
template <int N> __device__ int differs(int v) { assert(v != N); return v + N; }
__device__ function table[2] = {check, seven};

extern "C" {
__global__ void plain(int *x) { x[threadIdx.x]++; }
__global__ void divides(float *x) { x[threadIdx.x] /= x[1]; }
__global__ void recurses(int *x) { x[threadIdx.x] = fibonacci(x[threadIdx.x]); }
__global__ void switches(int *x, int k)
{
    switch (k) {
    case 0: x[1] = x[2] * 3; break;
    case 1: x[2] = x[1] / 7; break;
    case 2: x[3] ^= x[4]; break;
    case 3: x[4] = x[3] << x[1]; break;
    case 4: x[7] = x[2] - x[1]; break;
    case 5: x[6] = __popc(x[3]); break;
    case 6: x[8] = __clz(x[2]); break;
    case 7: x[5] = __ffs(x[7]); break;
    }
}
__global__ void inlined(int *x) { assert(x[threadIdx.x] != 3); x[threadIdx.x]++; }
__global__ void out_of_line(int *x) { x[threadIdx.x] = check(x[threadIdx.x]); }
__global__ void templated(int *x) { x[threadIdx.x] = differs<5>(x[threadIdx.x]); }
__global__ void by_argument(int *x, function f) { x[threadIdx.x] = f(x[threadIdx.x]); }
__global__ void by_table(int *x, int i) { x[threadIdx.x] = table[i](x[threadIdx.x]); }
__global__ void by_choice(int *x, int i)
{
    function f = i != 0 ? check : seven;

    x[threadIdx.x] = f(x[threadIdx.x]);
}
__global__ void makes(base **b, int i)
{
    if (i != 0) {
        *b = new asserting;
    } else {
        *b = new harmless;
    }
}
__global__ void by_object(base **b, int *x) { x[threadIdx.x] = (*b)->get(x[threadIdx.x]); }
__global__ void prints(int *x) { printf("%d\n", x[0]); }
#ifdef NESTED
__global__ void starts(int *x) { inlined<<<1, 1>>>(x); }
#endif
}

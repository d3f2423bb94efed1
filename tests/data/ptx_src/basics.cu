// Arithmetic, control flow, shared memory, constants, local arrays, atomics, printf, calls.
#include <cstdio>
__constant__ float table[16] = {1.0f, 2.5f, -3.0f};
__constant__ unsigned char bytes[5] = {1, 2, 3, 4, 5};
__device__ int counter;
__device__ int *pointer = &counter;
__managed__ int managed_value = 7;
__device__ double matrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
extern __shared__ int dynamic[];
struct Big {
    int a[7];
    double d;
};
__device__ __noinline__ float scale(float x, Big b) { return x * b.d + b.a[3]; }
__device__ __noinline__ float twice(float x) { return 2 * x; }
__device__ __noinline__ float half_of(float x) { return x / 2; }
typedef float (*unary)(float);
__device__ unary functions[2] = {twice, half_of};
extern "C" __global__ void vadd(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i] * table[i & 15];
    }
}
extern "C" __global__ void __launch_bounds__(256, 2) reduce(const int *in, int *out, int n)
{
    __shared__ int part[256];
    int sum = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        sum += in[i];
    }
    part[threadIdx.x] = sum;
    dynamic[threadIdx.x] = bytes[threadIdx.x % 5];
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s) {
            part[threadIdx.x] += part[threadIdx.x + s] + dynamic[s];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        atomicAdd(out, part[0]);
        atomicCAS(&counter, 0, part[0]);
        atomicMax((unsigned long long *)out, 4ull);
        printf("%d %d\n", part[0], managed_value);
    }
}
extern "C" __global__ void calls(float *x, int which, Big b)
{
    x[0] = functions[which](x[1]) + scale(x[2], b) + (float)matrix[which][1];
    char local[64];
    for (int i = 0; i < 64; i++) {
        local[(i * which) & 63] = i;
    }
    x[3] = local[which];
    if (which == 9) {
        __trap();
    }
}
extern "C" __global__ void jump(int *x, int k)
{
    switch (k) {
    case 0: x[0] = 1; break;
    case 1: x[1] = 5; __syncthreads(); break;
    case 2: x[2] = 7; x[9] = clock(); break;
    case 3: x[3] = 9; __threadfence(); break;
    case 4: x[4] = 2; break;
    case 5: x[5] = __popc(k + x[1]); break;
    case 6: x[6] = __brev(x[7]); break;
    default: x[8] = __clz(x[8]);
    }
}
extern "C" __global__ void math(double *d, float *f, long long *l)
{
    d[0] = sin(d[0]) + pow(d[1], d[2]) + sqrt(d[3]) / exp(d[4]);
    f[0] = __sinf(f[0]) + powf(f[1], f[2]) + rsqrtf(f[3]) + tanhf(f[4]) + fmodf(f[5], f[6]);
    l[0] = l[1] / l[2] + l[3] % l[4] + __mul64hi(l[5], l[6]) + llrint(d[5]);
    f[7] = __fdividef(f[1], f[2]) + __saturatef(f[3]);
}

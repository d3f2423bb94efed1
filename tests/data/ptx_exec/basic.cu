/* Kernels of tests/unit/softgpu_exec; the .ptx beside is what nvcc 13.0 made of it for sm_75. */
#include <cstdio>

extern "C" __global__ void vadd(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}

extern "C" __global__ void block_sum(const int *in, int *out)
{
    __shared__ int part[256];
    unsigned t = threadIdx.x;
    part[t] = in[blockIdx.x * 256 + t];
    __syncthreads();
    for (unsigned s = 128; s > 0; s >>= 1) {
        if (t < s) {
            part[t] += part[t + s];
        }
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = part[0];
    }
}

extern "C" __global__ void shuffles(int *out)
{
    int t = threadIdx.x;
    int v = t * 3 + 1;
    for (int o = 16; o > 0; o >>= 1) {
        v += __shfl_xor_sync(0xffffffffu, v, o);
    }
    out[t] = v;
    out[32 + t] = __shfl_up_sync(0xffffffffu, t, 3);
    out[64 + t] = __shfl_down_sync(0xffffffffu, t, 5, 8);
    out[96 + t] = __shfl_sync(0xffffffffu, t, 7, 16);
    out[128 + t] = (int)__ballot_sync(0xffffffffu, t % 3 == 0);
    out[160 + t] = __any_sync(0xffffffffu, t == 31) + 2 * __all_sync(0xffffffffu, t < 31);
}

extern "C" __global__ void divergent_shuffle(int *out)
{
    int t = threadIdx.x;
    int v;
    if (t & 1) {
        v = __shfl_xor_sync(0xaaaaaaaau, t, 2);
    } else {
        v = __shfl_xor_sync(0x55555555u, t * 10, 2);
    }
    __syncwarp();
    out[t] = v;
}

extern "C" __global__ void histogram(unsigned *bins, unsigned *total, float *fsum, double *dsum)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&bins[i % 16], 1u);
    atomicMax(&total[0], i);
    atomicInc(&total[1], 99u);
    atomicAdd(fsum, 0.5f);
    atomicAdd(dsum, 0.25);
}

extern "C" __global__ void hello(int n)
{
    printf("t%d of %d: %s %5.2f %c %%%x %lld\n", (int)threadIdx.x, n, "text", 1.5 * threadIdx.x, 'z',
           255u, -1ll);
}

/* A lock that lanes of one warp fight for: needs forward progress of each lane. */
extern "C" __global__ void spin_lock(int *lock, int *count)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            *(volatile int *)count = *(volatile int *)count + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

/* The nastier way: nothing but the spinning loop between lock and unlock. */
extern "C" __global__ void spin_lock_naive(int *lock, int *count)
{
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    *(volatile int *)count = *(volatile int *)count + 1;
    __threadfence();
    atomicExch(lock, 0);
}

/* Every block waits for the one after it. */
extern "C" __global__ void chain(volatile int *flags)
{
    if (threadIdx.x == 0) {
        if (blockIdx.x + 1 < gridDim.x) {
            while (flags[blockIdx.x + 1] == 0) {
            }
        }
        flags[blockIdx.x] = (int)blockIdx.x + 1;
    }
}

extern "C" __global__ void early_exit(int *out)
{
    if (threadIdx.x % 3 == 0) {
        return;
    }
    __shared__ int s[128];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x ^ 1] + (int)threadIdx.x;
}

extern "C" __global__ void barrier_votes(int *out)
{
    int t = threadIdx.x;
    int n = __syncthreads_count(t % 5 == 0);
    int all = __syncthreads_and(t < 100);
    int any = __syncthreads_or(t == 77);
    out[t] = n * 4 + all * 2 + any;
}

extern "C" __global__ void oob(int *p, int at)
{
    p[at] = 1;
}

extern "C" __global__ void misaligned(char *p)
{
    *(int *)(p + 1) = 1;
}

extern "C" __global__ void trap_kernel(int *p)
{
    if (p[threadIdx.x] == 0) {
        __trap();
    }
}

extern "C" __global__ void deadlock(int *p)
{
    if (threadIdx.x < 32) {
        asm volatile("bar.sync 1, 128;" ::: "memory");
    } else {
        asm volatile("bar.sync 2, 128;" ::: "memory");
    }
    p[0] = 1;
}

extern "C" __global__ void heap(int **out)
{
    int *p = (int *)malloc(40);
    for (int i = 0; i < 10; i++) {
        p[i] = i + threadIdx.x;
    }
    out[threadIdx.x] = p;
    if (threadIdx.x & 1) {
        free(p);
    }
}

__device__ __noinline__ int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

extern "C" __global__ void recursion(int *out)
{
    out[threadIdx.x] = fib(threadIdx.x % 12);
}

__device__ __noinline__ int op_add(int a, int b)
{
    return a + b;
}
__device__ __noinline__ int op_mul(int a, int b)
{
    return a * b;
}
__device__ __noinline__ int op_sub(int a, int b)
{
    return a - b;
}
typedef int (*op_fn)(int, int);
__device__ op_fn table[3] = {op_add, op_mul, op_sub};

extern "C" __global__ void pointers(int *out)
{
    out[threadIdx.x] = table[threadIdx.x % 3](threadIdx.x, 7);
}

__device__ int counter = 5;
__device__ int *counter_address = &counter;
__constant__ float weights[4] = {1.0f, 2.0f, 3.0f, 4.0f};

extern "C" __global__ void globals(float *out)
{
    out[threadIdx.x] = weights[threadIdx.x % 4] * *counter_address;
    if (threadIdx.x == 0) {
        counter++;
    }
}

extern "C" __global__ void dynamic_shared(int *out, int n)
{
    extern __shared__ int s[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        s[i] = i * i;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        out[i] = s[n - 1 - i];
    }
}

extern "C" __global__ void local_array(int *out, int k)
{
    int a[32];
    for (int i = 0; i < 32; i++) {
        a[i] = i * k + threadIdx.x;
    }
    int s = 0;
    for (int i = 0; i < 32; i++) {
        s += a[(i * 7 + k) % 32] * i;
    }
    out[threadIdx.x] = s;
}

struct big {
    int v[9];
    double d;
};

extern "C" __global__ void struct_param(struct big b, double *out)
{
    out[threadIdx.x] = b.v[threadIdx.x % 9] + b.d;
}

extern "C" __global__ void generic_space(int *out)
{
    __shared__ int s[32];
    int l[2] = {(int)threadIdx.x, (int)threadIdx.x * 2};
    s[threadIdx.x] = (int)threadIdx.x * 3;
    int *p = threadIdx.x % 3 == 0 ? &s[threadIdx.x] : threadIdx.x % 3 == 1 ? &l[1] : &out[64];
    out[threadIdx.x] = *p + (int)__isShared(p) * 1000 + (int)__isGlobal(p) * 2000;
}

extern "C" __global__ void spin(int *p, int n)
{
    int v = threadIdx.x;
    for (int i = 0; i < n; i++) {
        v = v * 1664525 + 1013904223;
        v ^= v >> 7;
    }
    p[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

extern "C" __global__ void fma_chain(float *p, int n)
{
    float a = threadIdx.x * 0.25f;
    float b = 1.0f;
    float c = 0.5f;
    for (int i = 0; i < n; i++) {
        a = fmaf(a, 0.999f, c);
        b = fmaf(b, 1.001f, a);
        c = fmaf(c, 0.5f, b * 0.001f);
    }
    p[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c;
}

extern "C" __global__ void forever(volatile int *p)
{
    while (p[0] == 0) {
    }
}

extern "C" __global__ void nothing(void)
{
}

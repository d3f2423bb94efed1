/*
 * Kernels for tests/integration/test_forms.c, compiled to compiled.ptx by
 *     nvcc -arch=compute_80 -ptx -o compiled.ptx compiled.cu
 * Each gets memory of n words, filled with a pattern, and changes it in a way that does not depend on
 * the order of its blocks.
 */
#define KERNEL extern "C" __global__ void

__device__ static unsigned mix(unsigned x)
{
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ x >> 13;
}

__device__ __forceinline__ unsigned linear_block()
{
    return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

KERNEL one_dimension(unsigned *data, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] = mix(data[i] + blockIdx.x);
    }
}

KERNEL three_dimensions(unsigned *data, unsigned n)
{
    unsigned i = linear_block() * blockDim.x + threadIdx.x;
    data[i % n] += mix(blockIdx.x * 7 + blockIdx.y * 77 + blockIdx.z * 777 + gridDim.x +
                       gridDim.y * 3 + gridDim.z * 5);
}

/* Adds only: whoever runs a block twice or not at all is seen. */
KERNEL counts(unsigned *data, unsigned n)
{
    atomicAdd(&data[0], 1);
    atomicAdd(&data[1 + (linear_block() * 31 + threadIdx.x) % (n - 1)], blockIdx.x + 1);
}

/* No barrier: a warp that is slow must not see the next task. */
KERNEL slow_warps(unsigned *data, unsigned n)
{
    unsigned b = linear_block(), x = b;
    for (unsigned i = 0; i < (threadIdx.x / 32) * 40u; i++) {
        x = mix(x + i);
    }
    atomicAdd(&data[(b * blockDim.x + threadIdx.x) % n], x + b);
}

/* Shared memory that the next block writes first. */
KERNEL shared_reused(unsigned *data, unsigned n)
{
    __shared__ unsigned s[128];
    unsigned b = linear_block();
    s[threadIdx.x] = data[(b * 128 + threadIdx.x) % n];
    __syncthreads();
    unsigned x = 0;
    for (unsigned i = 0; i < (threadIdx.x % 7) * 8; i++) {
        x += s[(threadIdx.x * 5 + i) % 128];
    }
    data[(b * 128 + threadIdx.x) % n] = x;
}

/* Threads, and a whole warp, that leave before barriers. */
KERNEL early_return(unsigned *data, unsigned n)
{
    __shared__ unsigned s[128];
    unsigned b = linear_block(), stay = 128 - 29 * (b % 4);
    if (threadIdx.x >= stay) {
        return;
    }
    for (int round = 0; round < 3; round++) {
        s[threadIdx.x] = mix(data[(b * 128 + threadIdx.x) % n] + round);
        __syncthreads();
        data[(b * 128 + threadIdx.x) % n] ^= s[(threadIdx.x + 1) % stay];
        __syncthreads();
    }
}

__device__ __noinline__ unsigned index_in_function(unsigned scale)
{
    return (blockIdx.y * gridDim.x + blockIdx.x) * scale;
}

__device__ __noinline__ unsigned index_in_caller(unsigned scale)
{
    return index_in_function(scale) + 1;
}

KERNEL functions(unsigned *data, unsigned n)
{
    unsigned i = index_in_caller(blockDim.x) - 1 + threadIdx.x;
    data[i % n] = mix(data[i % n] + index_in_function(3));
}

extern __shared__ __align__(1024) unsigned dynamic[];

KERNEL aligned_dynamic(unsigned *data, unsigned n)
{
    unsigned b = index_in_function(1), t = threadIdx.x;
    dynamic[t] = data[(b * blockDim.x + t) % n] + b;
    __syncthreads();
    data[(b * blockDim.x + t) % n] = dynamic[blockDim.x - 1 - t];
}

__device__ unsigned total;
__device__ unsigned cells[64];
static __device__ const unsigned primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__constant__ unsigned factors[4] = {3, 1, 4, 1};
__device__ unsigned *const places[2] = {&total, &cells[5]};

KERNEL variables(unsigned *data, unsigned n)
{
    unsigned b = linear_block();
    atomicAdd(&total, factors[b % 4]);
    atomicAdd(&cells[(b + threadIdx.x) % 64], primes[threadIdx.x % 8]);
    atomicAdd(places[threadIdx.x % 2], 1);
}

/* Run once, after variables. */
KERNEL show_variables(unsigned *data, unsigned n)
{
    data[threadIdx.x] = threadIdx.x < 64 ? cells[threadIdx.x] : total;
}

KERNEL votes(unsigned *data, unsigned n)
{
    unsigned i = linear_block() * blockDim.x + threadIdx.x;
    if (i >= n || mix(i) % 3 == 0) {
        return;
    }
    unsigned odd = __ballot_sync(0xffffffff, data[i] & 1);
    unsigned same = __match_any_sync(0xffffffff, data[i] & 6);
    data[i] = odd ^ same * 3 ^ (__any_sync(0xffffffff, data[i] % 5 == 0) ? 1u : 0u);
}

KERNEL shuffles(unsigned *data, unsigned n)
{
    unsigned i = linear_block() * blockDim.x + threadIdx.x;
    unsigned x = data[i % n];
    for (int by = 16; by > 0; by /= 2) {
        x += __shfl_xor_sync(0xffffffff, x, by);
    }
    __syncwarp();
    data[i % n] = x;
}

/* A copy that the kernel does not wait for at its end in all threads. */
KERNEL async_copies(unsigned *data, unsigned n)
{
    __shared__ unsigned s[128];
    unsigned b = linear_block(), t = threadIdx.x;
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(&data[(b * 128 + t) % n]));
    if (t < 64) {
        asm volatile("cp.async.wait_all;");
        data[(b * 128 + t) % n] = mix(s[t] + b);
    }
}

__device__ __noinline__ unsigned deep(unsigned x, unsigned level)
{
    volatile unsigned local[4];
    local[x % 4] = x;
    return level == 0 ? mix(local[x % 4] + blockIdx.x) : deep(mix(x), level - 1) + local[x % 4];
}

KERNEL recursion(unsigned *data, unsigned n)
{
    unsigned i = linear_block() * blockDim.x + threadIdx.x;
    data[i % n] = deep(data[i % n], i % 5);
}

typedef unsigned (*function)(unsigned);
__device__ __noinline__ unsigned plus_block(unsigned x)
{
    return x + blockIdx.x;
}
__device__ __noinline__ unsigned times_three(unsigned x)
{
    return x * 3;
}
__device__ function table[2] = {plus_block, times_three};

KERNEL pointers(unsigned *data, unsigned n)
{
    unsigned i = linear_block() * blockDim.x + threadIdx.x;
    data[i % n] = table[data[i % n] % 2](i);
}

/* The kernels of the drv_* programs; ptx/basic.ptx is made from this file. */
extern "C" {

__constant__ int factor = 3;
__device__ unsigned counter;
__device__ int table[16] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196, 225};

__global__ void fill(unsigned *out, unsigned value, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = value + i;
    }
}

__global__ void saxpy(float a, const float *x, float *y, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = a * x[i] + y[i];
    }
}

/* x = x * 3 + 1 on every element: the order of several launches shows in the result. */
__global__ void chain(unsigned *x, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        x[i] = x[i] * 3 + 1;
    }
}

/* One thread that takes its time. */
__global__ void spin(unsigned *out, unsigned seed, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        seed = seed * 1664525u + 1013904223u;
    }
    *out = seed;
}

__global__ void block_sum(const int *in, int *out)
{
    extern __shared__ int values[];
    unsigned t = threadIdx.x;

    values[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) {
            values[t] += values[t + half];
        }
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = values[0];
    }
}

__global__ void use_globals(int *out)
{
    out[threadIdx.x] = table[threadIdx.x % 16] * factor;
    atomicAdd(&counter, 1u);
}

struct mixed_value {
    double real;
    char tag;
};

__global__ void mixed(char c, short s, struct mixed_value v, int i, long long l, double *out)
{
    out[0] = c;
    out[1] = s;
    out[2] = v.real;
    out[3] = v.tag;
    out[4] = i;
    out[5] = (double)l;
}

__global__ void __launch_bounds__(128) limited(unsigned *out)
{
    __shared__ unsigned scratch[256];

    scratch[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = scratch[(threadIdx.x + 1) % blockDim.x];
}

__global__ void nothing(void)
{
}
}

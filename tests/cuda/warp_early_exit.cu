/* Threads of a warp that return early, before the rest exchanges values under the mask "all": who has
   ended is not waited for, and counts for nothing. */
#include "check.h"

static const int BLOCKS = 37, THREADS = 96, N = BLOCKS * THREADS - 19;

/* Every third block ends some threads by value, the last one by number. */
__host__ __device__ static bool leaves(const int *in, int i, int n)
{
    return i >= n || in[i] < 0;
}

__global__ void votes(const int *in, unsigned *ballots, int *alls, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (leaves(in, i, n)) {
        return;
    }
    unsigned odd = __ballot_sync(0xffffffff, in[i] & 1);
    int all = __all_sync(0xffffffff, in[i] < 1000);
    ballots[i] = odd;
    alls[i] = all;
}

__device__ __noinline__ unsigned count_in_function(int v)
{
    return __popc(__ballot_sync(0xffffffff, v & 2));
}

__global__ void in_function(const int *in, unsigned *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (leaves(in, i, n)) {
        return;
    }
    out[i] = count_in_function(in[i]);
}

/* The usual way to add once for a warp. */
__global__ void aggregated(const int *in, unsigned *total, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (leaves(in, i, n)) {
        return;
    }
    if (in[i] & 4) {
        unsigned mask = __activemask();
        unsigned lower;
        asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lower));
        __syncwarp(mask);
        if ((mask & lower) == 0) {
            atomicAdd(total, __popc(mask));
        }
    }
}

static unsigned ballot(const int *in, int first, int bit)
{
    unsigned mask = 0;
    for (int lane = 0; lane < 32; lane++) {
        if (!leaves(in, first + lane, N) && (in[first + lane] & bit)) {
            mask |= 1u << lane;
        }
    }
    return mask;
}

static unsigned popcount(unsigned x)
{
    unsigned n = 0;
    for (; x != 0; x &= x - 1) {
        n++;
    }
    return n;
}

int main()
{
    static int in[BLOCKS * THREADS], alls[BLOCKS * THREADS];
    static unsigned out[BLOCKS * THREADS];
    int *d_in, *d_alls;
    unsigned *d_out, total = 0, expected = 0;
    bool ok = true;

    check_begin("warp_early_exit");
    for (int i = 0; i < BLOCKS * THREADS; i++) {
        in[i] = (int)((unsigned)i * 2654435761u >> 8) % 1003;
        if (i / THREADS % 3 == 0 && i % 5 == 2) {
            in[i] = -1;
        }
        expected += !leaves(in, i, N) && (in[i] & 4);
    }
    RT(cudaMalloc(&d_in, sizeof(in)));
    RT(cudaMalloc(&d_out, sizeof(out)));
    RT(cudaMalloc(&d_alls, sizeof(alls)));
    RT(cudaMemcpy(d_in, in, sizeof(in), cudaMemcpyHostToDevice));

    votes<<<BLOCKS, THREADS>>>(d_in, d_out, d_alls, N);
    RT(cudaMemcpy(out, d_out, sizeof(out), cudaMemcpyDeviceToHost));
    RT(cudaMemcpy(alls, d_alls, sizeof(alls), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) {
        bool all = true;
        for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++) {
            all &= leaves(in, j, N) || in[j] < 1000;
        }
        ok &= leaves(in, i, N) || (out[i] == ballot(in, i / 32 * 32, 1) && alls[i] == all);
    }
    check_true(ok, "votes of those who have not returned");

    in_function<<<BLOCKS, THREADS>>>(d_in, d_out, N);
    RT(cudaMemcpy(out, d_out, sizeof(out), cudaMemcpyDeviceToHost));
    ok = true;
    for (int i = 0; i < N; i++) {
        ok &= leaves(in, i, N) || out[i] == popcount(ballot(in, i / 32 * 32, 2));
    }
    check_true(ok, "votes in a function");

    RT(cudaMemset(d_out, 0, sizeof(total)));
    aggregated<<<BLOCKS, THREADS>>>(d_in, d_out, N);
    RT(cudaMemcpy(&total, d_out, sizeof(total), cudaMemcpyDeviceToHost));
    check_true(total == expected, "one addition for a warp");
    return check_end();
}

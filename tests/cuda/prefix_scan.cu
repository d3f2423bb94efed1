/* Prefix sums over many blocks: scan blocks, scan their sums, add; and by warp shuffles. */
#include "check.h"

enum { BLOCK = 256 };

__global__ static void scan_blocks(const long long *in, long long *out, long long *sums, int n)
{
    __shared__ long long s[2][BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x, t = threadIdx.x, now = 0;

    s[0][t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = 1; step < BLOCK; step *= 2) {
        s[1 - now][t] = s[now][t] + (t >= step ? s[now][t - step] : 0);
        now = 1 - now;
        __syncthreads();
    }
    if (i < n) {
        out[i] = s[now][t];
    }
    if (t == BLOCK - 1 && sums != NULL) {
        sums[blockIdx.x] = s[now][t];
    }
}

__global__ static void add_sums(long long *out, const long long *sums, int n)
{
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n && blockIdx.x > 0) {
        out[i] += sums[blockIdx.x - 1];
    }
}

__global__ static void scan_warps(const long long *in, long long *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    long long v = i < n ? in[i] : 0;

    for (int step = 1; step < 32; step *= 2) {
        long long below = __shfl_up_sync(0xffffffffu, v, step);
        if (lane >= step) {
            v += below;
        }
    }
    if (i < n) {
        out[i] = v;
    }
}

static void run(int n)
{
    int blocks = (n + BLOCK - 1) / BLOCK;
    long long *in = host_new<long long>(n), *want = host_new<long long>(n), total = 0;
    uint32_t seed = (uint32_t)n;
    char label[64];

    for (int i = 0; i < n; i++) {
        in[i] = ((long long)check_random(&seed) - 8000000) * 1000003;
        total += in[i];
        want[i] = total;
    }
    long long *device_in = to_device(in, n), *out = device_new<long long>(n);
    long long *sums = device_new<long long>(blocks);
    scan_blocks<<<blocks, BLOCK>>>(device_in, out, sums, n);
    scan_blocks<<<1, BLOCK>>>(sums, sums, NULL, blocks);
    add_sums<<<blocks, BLOCK>>>(out, sums, n);
    check_launch();
    snprintf(label, sizeof(label), "%d elements in %d blocks", n, blocks);
    check_device(out, want, n, label);
    for (int i = 0; i < n; i++) {
        want[i] = (i % 32 == 0 ? 0 : want[i - 1]) + in[i];
    }
    scan_warps<<<blocks, BLOCK>>>(device_in, out, n);
    check_launch();
    snprintf(label, sizeof(label), "%d elements by warps", n);
    check_device(out, want, n, label);
}

int main(void)
{
    check_begin("prefix_scan");
    run(1);
    run(256);
    run(1000);
    run(20011);
    return check_end();
}

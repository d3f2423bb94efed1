/* Bitonic sort in global memory by many launches, and merge sort of blocks sorted in shared. */
#include "check.h"

enum { N = 4096, BLOCK = 128 };

__global__ static void bitonic_step(unsigned *data, unsigned j, unsigned k)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ j;

    if (other > i) {
        bool up = (i & k) == 0;
        unsigned a = data[i], b = data[other];
        if ((a > b) == up) {
            data[i] = b;
            data[other] = a;
        }
    }
}

__global__ static void sort_blocks(unsigned *data)
{
    __shared__ unsigned s[BLOCK];
    unsigned t = threadIdx.x;

    s[t] = data[blockIdx.x * BLOCK + t];
    __syncthreads();
    for (unsigned round = 0; round < BLOCK; round++) {
        unsigned a = 2 * t + round % 2;
        if (a + 1 < BLOCK && s[a] > s[a + 1]) {
            unsigned swap = s[a];
            s[a] = s[a + 1];
            s[a + 1] = swap;
        }
        __syncthreads();
    }
    data[blockIdx.x * BLOCK + t] = s[t];
}

/* Each element finds its place in the merged pair of runs by binary search in the other run. */
__global__ static void merge(const unsigned *in, unsigned *out, unsigned run)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, mine = i / run, other = mine ^ 1;
    unsigned low = 0, high = run, v = in[i];
    bool first = mine % 2 == 0;

    while (low < high) {
        unsigned middle = (low + high) / 2, w = in[other * run + middle];
        if (first ? w < v : w <= v) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    out[mine / 2 * 2 * run + i % run + low] = v;
}

static int ascending(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    unsigned *host = host_new<unsigned>(N), *want = host_new<unsigned>(N);
    uint32_t seed = 1234;

    check_begin("sort_bitonic_merge");
    for (int i = 0; i < N; i++) {
        host[i] = want[i] = check_random(&seed) % 10000;
    }
    qsort(want, N, sizeof(unsigned), ascending);
    unsigned *a = to_device(host, N), *b = to_device(host, N);
    for (unsigned k = 2; k <= N; k *= 2) {
        for (unsigned j = k / 2; j > 0; j /= 2) {
            bitonic_step<<<N / BLOCK, BLOCK>>>(a, j, k);
        }
    }
    check_launch();
    check_device(a, want, N, "bitonic, seventy-eight launches");
    sort_blocks<<<N / BLOCK, BLOCK>>>(b);
    for (unsigned run = BLOCK; run < N; run *= 2) {
        unsigned *swap = a;
        merge<<<N / BLOCK, BLOCK>>>(b, a, run);
        a = b;
        b = swap;
    }
    check_launch();
    check_device(b, want, N, "blocks, then merged");
    return check_end();
}

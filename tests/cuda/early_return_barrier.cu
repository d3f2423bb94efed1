/* Threads, and whole warps, that return before the others reach a barrier. */
#include "check.h"

__global__ static void shift(int *out, int active)
{
    __shared__ int values[128];
    int t = threadIdx.x;

    if (t >= active) {
        return;
    }
    for (int round = 1; round <= 4; round++) {
        values[t] = t * round;
        __syncthreads();
        out[blockIdx.x * 128 + t] += values[(t + 1) % active];
        __syncthreads();
    }
}

__global__ static void leave_one_by_one(int *out)
{
    __shared__ int total;

    if (threadIdx.x == 0) {
        total = 0;
    }
    __syncthreads();
    for (int round = 0; round < 8; round++) {
        if ((int)threadIdx.x >= 256 - 32 * round) {
            return;
        }
        atomicAdd(&total, 1);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        out[0] = total;
    }
}

int main(void)
{
    const int active[] = {128, 100, 64, 33, 1};
    int want[256];
    int *device = device_new<int>(256);
    char label[64];

    check_begin("early_return_barrier");
    for (size_t a = 0; a < sizeof(active) / sizeof(active[0]); a++) {
        RT(cudaMemset(device, 0, sizeof(want)));
        memset(want, 0, sizeof(want));
        for (int i = 0; i < 256; i++) {
            if (i % 128 < active[a]) {
                want[i] = (i % 128 + 1) % active[a] * 10;
            }
        }
        shift<<<2, 128>>>(device, active[a]);
        check_launch();
        snprintf(label, sizeof(label), "%d of 128 threads stay", active[a]);
        check_device(device, want, 256, label);
    }
    leave_one_by_one<<<1, 256>>>(device);
    check_launch();
    want[0] = 256 + 224 + 192 + 160 + 128 + 96 + 64 + 32;
    check_device(device, want, 1, "one warp leaves in each round");
    return check_end();
}

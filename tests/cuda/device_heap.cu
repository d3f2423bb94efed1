/* malloc and free inside kernels, also across two launches. */
#include "check.h"

__device__ static int *kept[32];

__global__ static void grow(int *out)
{
    int i = threadIdx.x, total = 0;
    int *mine = (int *)malloc((i + 1) * sizeof(int));

    if (mine == NULL) {
        out[i] = -1;
        return;
    }
    for (int k = 0; k <= i; k++) {
        mine[k] = k * i;
    }
    for (int k = 0; k <= i; k++) {
        total += mine[k];
    }
    out[i] = total;
    kept[i] = mine;
}

__global__ static void take_back(int *out)
{
    int i = threadIdx.x;

    out[i] = kept[i] == NULL ? -1 : kept[i][i];
    free(kept[i]);
}

int main(void)
{
    int totals[32], lasts[32];
    size_t heap = 0;

    check_begin("device_heap");
    RT(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16u << 20));
    RT(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    check_true(heap >= (16u << 20), "heap limit taken");
    for (int i = 0; i < 32; i++) {
        totals[i] = i * i * (i + 1) / 2;
        lasts[i] = i * i;
    }
    int *device = device_new<int>(32);
    grow<<<1, 32>>>(device);
    check_launch();
    check_device(device, totals, 32, "malloc in a kernel");
    take_back<<<1, 32>>>(device);
    check_launch();
    check_device(device, lasts, 32, "still there in the next kernel");
    return check_end();
}

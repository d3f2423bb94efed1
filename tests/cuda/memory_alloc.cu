/* Device memory: many sizes, no overlap, alignment, pitch, and free memory as it changes. */
#include "check.h"

#include <unistd.h>

__global__ static void stamp(unsigned char *p, size_t bytes, unsigned char value)
{
    if (threadIdx.x == 0) {
        p[0] = value;
        p[bytes / 2] = value;
        p[bytes - 1] = value;
    }
}

static void many_sizes(void)
{
    enum { COUNT = 64 };
    unsigned char *block[COUNT], seen[3];
    size_t bytes[COUNT];
    int aligned = 1, kept = 1;

    for (int i = 0; i < COUNT; i++) {
        bytes[i] = i < 32 ? (size_t)i * 37 + 1 : (size_t)(i - 31) * 40000 + i;
        RT(cudaMalloc((void **)&block[i], bytes[i]));
        aligned &= (uintptr_t)block[i] % 256 == 0;
        stamp<<<1, 1>>>(block[i], bytes[i], (unsigned char)(i + 1));
    }
    check_launch();
    for (int i = COUNT - 1; i >= 0; i--) {
        size_t at[3] = {0, bytes[i] / 2, bytes[i] - 1};
        for (int k = 0; k < 3; k++) {
            RT(cudaMemcpy(&seen[k], block[i] + at[k], 1, cudaMemcpyDeviceToHost));
            kept &= seen[k] == i + 1;
        }
        RT(cudaFree(block[i]));
    }
    check_true(aligned, "every block is aligned to 256 bytes");
    check_true(kept, "no block overlaps another");
}

static void free_memory(void)
{
    const size_t big = 64u << 20;
    size_t before, during, after, total, total_again;
    void *p;

    /* Others may use the same device meanwhile: one undisturbed try within two seconds is enough. */
    bool less = false, back = false, sane = true;
    for (int i = 0; i < 200 && !(less && back); i++) {
        usleep(i < 10 ? 0 : 10000);
        RT(cudaMemGetInfo(&before, &total));
        RT(cudaMalloc(&p, big));
        RT(cudaMemGetInfo(&during, &total_again));
        RT(cudaFree(p));
        RT(cudaMemGetInfo(&after, &total_again));
        sane = sane && before <= total && total == total_again;
        less = during + big <= before + (4u << 20);
        back = after + (4u << 20) >= during + big;
    }
    check_true(sane, "free is at most total");
    check_true(less, "64 MiB less while allocated");
    check_true(back, "given back by free");
    cudaDeviceProp properties;
    RT(cudaGetDeviceProperties(&properties, 0));
    check_true(properties.totalGlobalMem == total, "properties say the same total");
}

static void pitched(void)
{
    void *p = NULL;
    size_t pitch = 0;
    cudaPitchedPtr volume;

    RT(cudaMallocPitch(&p, &pitch, 1000, 20));
    check_true(pitch >= 1000 && pitch % 256 == 0, "pitch holds a row and is aligned");
    RT(cudaMemset2D(p, pitch, 1, 1000, 20));
    RT(cudaFree(p));
    RT(cudaMalloc3D(&volume, make_cudaExtent(130, 7, 5)));
    check_true(volume.pitch >= 130 && volume.xsize == 130 && volume.ysize == 7, "pitched volume");
    RT(cudaMemset3D(volume, 2, make_cudaExtent(130, 7, 5)));
    RT(cudaFree(volume.ptr));
}

int main(void)
{
    void *p = &p;

    check_begin("memory_alloc");
    many_sizes();
    free_memory();
    pitched();
    RT(cudaMalloc(&p, 0));
    check_true(p == NULL, "no bytes give a null pointer");
    RT(cudaFree(NULL));
    check_code(cudaMalloc(&p, (size_t)1 << 50), cudaErrorMemoryAllocation, "a petabyte");
    check_code(cudaGetLastError(), cudaErrorMemoryAllocation, "last error after that");
    for (int i = 0; i < 200; i++) {
        RT(cudaMalloc(&p, 1u << 20));
        RT(cudaFree(p));
    }
    check_true(1, "two hundred times the same megabyte");
    return check_end();
}

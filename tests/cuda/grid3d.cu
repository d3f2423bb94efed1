/* Three-dimensional grids and blocks: every index, every dimension, once each. */
#include "check.h"

__global__ static void mark(unsigned *out, unsigned *visits)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned id = block * (blockDim.x * blockDim.y * blockDim.z) + thread;

    out[id] = blockIdx.x | blockIdx.y << 4 | blockIdx.z << 8 | threadIdx.x << 12 |
              threadIdx.y << 18 | threadIdx.z << 24;
    atomicAdd(&visits[id], 1u);
}

static void run(dim3 grid, dim3 block, const char *label)
{
    unsigned count = grid.x * grid.y * grid.z * block.x * block.y * block.z, id = 0;
    unsigned *want = host_new<unsigned>(2 * count);
    unsigned *device = device_new<unsigned>(2 * count);

    for (unsigned b = 0; b < grid.x * grid.y * grid.z; b++) {
        for (unsigned t = 0; t < block.x * block.y * block.z; t++, id++) {
            want[id] = b % grid.x | b / grid.x % grid.y << 4 | b / grid.x / grid.y << 8 |
                       t % block.x << 12 | t / block.x % block.y << 18 |
                       t / block.x / block.y << 24;
            want[count + id] = 1;
        }
    }
    mark<<<grid, block>>>(device, device + count);
    check_launch();
    check_device(device, want, 2 * count, label);
    RT(cudaFree(device));
    free(want);
}

int main(void)
{
    check_begin("grid3d");
    run(dim3(3, 4, 5), dim3(4, 2, 3), "grid 3x4x5 of blocks 4x2x3");
    run(dim3(1, 15, 1), dim3(1, 1, 64), "grid 1x15x1 of blocks 1x1x64");
    run(dim3(7), dim3(33), "grid 7 of blocks 33");
    run(dim3(2, 2, 2), dim3(32, 32), "grid 2x2x2 of blocks 32x32");
    run(dim3(1), dim3(1), "one thread");
    return check_end();
}

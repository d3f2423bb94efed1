/* Two translation units with relocatable device code: shared variables, functions and kernels. */
#include "rdc_units_parts/shared.h"

#include "check.h"

__global__ static void from_main(int *out)
{
    shared_table[threadIdx.x] = (int)threadIdx.x * 2;
    out[threadIdx.x] = combine((int)threadIdx.x, shared_factor);
}

int main(void)
{
    int want[32], other[32], factor = 10;

    check_begin("rdc_units");
    for (int i = 0; i < 32; i++) {
        want[i] = i * 4 + 4;
        other[i] = i * 2 * 4 + 1;
    }
    int *device = device_new<int>(32);
    from_main<<<1, 32>>>(device);
    check_launch();
    check_device(device, want, 32, "function and constant of another unit");
    from_other<<<1, 32>>>(device);
    check_launch();
    check_device(device, other, 32, "kernel of another unit sees the shared table");
    RT(cudaMemcpyToSymbol(shared_factor, &factor, sizeof(factor)));
    from_other<<<1, 32>>>(device);
    check_launch();
    for (int i = 0; i < 32; i++) {
        other[i] = i * 2 * 10 + 1;
    }
    check_device(device, other, 32, "constant set through the first unit");
    return check_end();
}

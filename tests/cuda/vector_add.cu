/* The smallest complete program: allocate, copy, launch, copy back. */
#include "check.h"

__global__ static void add(const float *a, const float *b, float *sum, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        sum[i] = a[i] + b[i];
    }
}

int main(void)
{
    const int n = 100003;
    float *a = host_new<float>(n), *b = host_new<float>(n), *want = host_new<float>(n);

    check_begin("vector_add");
    for (int i = 0; i < n; i++) {
        a[i] = (float)i * 0.5f;
        b[i] = (float)(n - i) * 0.25f;
        want[i] = a[i] + b[i];
    }
    float *device_a = to_device(a, n), *device_b = to_device(b, n);
    float *device_sum = device_new<float>(n);
    add<<<(n + 255) / 256, 256>>>(device_a, device_b, device_sum, n);
    check_launch();
    check_device(device_sum, want, n, "sum of two vectors");
    add<<<1, 32>>>(device_a, device_a, device_sum, 7);
    check_launch();
    for (int i = 0; i < 7; i++) {
        want[i] = 2 * a[i];
    }
    check_device(device_sum, want, n, "second launch changes only the first seven");
    RT(cudaFree(device_a));
    RT(cudaFree(device_b));
    RT(cudaFree(device_sum));
    return check_end();
}

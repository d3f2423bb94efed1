/* Indirect calls: a table on the device, a pointer carried through the host, a chosen callee. */
#include "check.h"

typedef int (*binary_fn)(int, int);

__device__ __noinline__ int add(int a, int b)
{
    return a + b;
}

__device__ __noinline__ int sub(int a, int b)
{
    return a - b;
}

__device__ __noinline__ int mul(int a, int b)
{
    return a * b;
}

__device__ binary_fn operations[3] = {add, sub, mul};

__global__ static void by_table(const int *a, const int *b, int *out)
{
    int i = threadIdx.x;

    out[i] = operations[i % 3](a[i], b[i]);
}

__global__ static void by_argument(binary_fn op, const int *a, const int *b, int *out)
{
    int i = threadIdx.x;

    out[i] = op(a[i], op(b[i], 2));
}

int main(void)
{
    int a[96], b[96], want[96], twice[96];
    binary_fn table[3];

    check_begin("function_pointers");
    for (int i = 0; i < 96; i++) {
        a[i] = i * 7 - 100;
        b[i] = 50 - i;
        want[i] = i % 3 == 0 ? a[i] + b[i] : i % 3 == 1 ? a[i] - b[i] : a[i] * b[i];
        twice[i] = a[i] * (b[i] * 2);
    }
    int *device_a = to_device(a, 96), *device_b = to_device(b, 96), *out = device_new<int>(96);
    by_table<<<1, 96>>>(device_a, device_b, out);
    check_launch();
    check_device(out, want, 96, "a different callee in each lane");
    RT(cudaMemcpyFromSymbol(table, operations, sizeof(table)));
    by_argument<<<1, 96>>>(table[2], device_a, device_b, out);
    check_launch();
    check_device(out, twice, 96, "pointer copied through the host");
    binary_fn swapped[3] = {table[1], table[0], table[2]};
    RT(cudaMemcpyToSymbol(operations, swapped, sizeof(swapped)));
    for (int i = 0; i < 96; i++) {
        want[i] = i % 3 == 0 ? a[i] - b[i] : i % 3 == 1 ? a[i] + b[i] : a[i] * b[i];
    }
    by_table<<<1, 96>>>(device_a, device_b, out);
    check_launch();
    check_device(out, want, 96, "table rewritten by the host");
    return check_end();
}

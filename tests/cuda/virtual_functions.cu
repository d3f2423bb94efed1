/* Objects with virtual functions, built in device memory by placement new. */
#include <new>

#include "check.h"

struct shape {
    __device__ virtual int area(void) const = 0;
    __device__ virtual int sides(void) const
    {
        return 0;
    }
};

struct square : shape {
    int side;
    __device__ square(int s) : side(s)
    {
    }
    __device__ int area(void) const override
    {
        return side * side;
    }
    __device__ int sides(void) const override
    {
        return 4;
    }
};

struct box : square {
    int height;
    __device__ box(int s, int h) : square(s), height(h)
    {
    }
    __device__ int area(void) const override
    {
        return 2 * square::area() + 4 * side * height;
    }
};

struct disc : shape {
    int radius;
    __device__ disc(int r) : radius(r)
    {
    }
    __device__ int area(void) const override
    {
        return 3 * radius * radius;
    }
};

enum { SLOT = 32 };

__global__ static void build(char *memory)
{
    int i = threadIdx.x;
    void *slot = memory + i * SLOT;

    if (i % 3 == 0) {
        new (slot) square(i);
    } else if (i % 3 == 1) {
        new (slot) box(i, 2);
    } else {
        new (slot) disc(i);
    }
}

__global__ static void measure(const char *memory, int *out)
{
    int i = threadIdx.x;
    const shape *s = (const shape *)(memory + i * SLOT);

    out[i] = s->area() * 10 + s->sides();
}

int main(void)
{
    int want[64];

    check_begin("virtual_functions");
    for (int i = 0; i < 64; i++) {
        int area = i % 3 == 0 ? i * i : i % 3 == 1 ? 2 * i * i + 8 * i : 3 * i * i;
        want[i] = area * 10 + (i % 3 == 2 ? 0 : 4);
    }
    char *memory = device_new<char>(64 * SLOT);
    int *out = device_new<int>(64);
    build<<<1, 64>>>(memory);
    measure<<<1, 64>>>(memory, out);
    check_launch();
    check_device(out, want, 64, "virtual calls, also through a base class");
    return check_end();
}

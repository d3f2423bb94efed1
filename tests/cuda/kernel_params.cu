/* Kernel parameters: nearly 4 KB by value, structs with alignment, many small ones. */
#include "check.h"

struct large {
    int numbers[1000];
};

struct __align__(16) aligned
{
    float x, y, z, w;
};

struct odd {
    char tag;
    double real;
    short tail;
    unsigned char bytes[5];
};

struct empty {
};

__global__ static void take_large(struct large l, int *out, int factor)
{
    for (int i = threadIdx.x; i < 1000; i += blockDim.x) {
        out[i] = l.numbers[999 - i] * factor;
    }
}

__global__ static void take_mixed(char a, struct aligned v, bool b, short c, struct odd o,
                                  struct empty e, long long d, float f, unsigned char g, int3 t,
                                  double *out)
{
    (void)e;
    const double values[] = {(double)a,
                             v.x,
                             v.w,
                             (double)b,
                             (double)c,
                             o.real,
                             (double)o.tag,
                             (double)o.tail,
                             (double)o.bytes[4],
                             (double)d,
                             f,
                             (double)g,
                             (double)(t.x + t.y * 10 + t.z * 100)};
    for (int i = 0; i < 13; i++) {
        out[i] = values[i];
    }
}

__global__ static void changes_its_copy(struct aligned v, float *out)
{
    for (int i = 0; i < 3; i++) {
        v.x += v.y;
    }
    *out = v.x;
}

int main(void)
{
    static struct large l;
    struct aligned v = {1.5f, 2.0f, 3.0f, 4.25f};
    struct odd o = {'q', -2.5, -300, {1, 2, 3, 4, 250}};
    struct empty e;
    int reversed[1000];
    const double want[13] = {-5, 1.5, 4.25, 1, -1234, -2.5, 'q', -300, 250, 1e15, 0.125, 200, 321};
    float sum = 7.5f;

    check_begin("kernel_params");
    for (int i = 0; i < 1000; i++) {
        l.numbers[i] = i * i;
        reversed[i] = (999 - i) * (999 - i) * 3;
    }
    int *ints = device_new<int>(1000);
    take_large<<<1, 128>>>(l, ints, 3);
    memset(&l, 0, sizeof(l));
    check_launch();
    check_device(ints, reversed, 1000, "four thousand bytes by value");
    double *reals = device_new<double>(13);
    take_mixed<<<1, 1>>>(-5, v, true, -1234, o, e, 1000000000000000ll, 0.125f, 200,
                         make_int3(1, 2, 3), reals);
    check_launch();
    check_device(reals, want, 13, "eleven parameters of mixed alignment");
    float *single = device_new<float>(1);
    changes_its_copy<<<1, 1>>>(v, single);
    check_launch();
    check_device(single, &sum, 1, "a parameter the kernel changes");
    return check_end();
}

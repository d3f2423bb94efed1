/* printf in a kernel: the formats, strings, and the order with the host's own output. */
#include "check.h"

__global__ static void speak(int number, double real, const char *unused)
{
    char letters[4] = {'a', 'b', 'c', 0};

    printf("plain line\n");
    printf("int %d unsigned %u hex %x octal %o\n", number, 4000000000u, 0xbeef, 8);
    printf("wide %lld %llu char %c percent %%\n", -1234567890123ll, 0xffffffffffffffffull, 'z');
    printf("real %f %.3f %e %g\n", real, real, 12345.678, 0.0001);
    printf("width [%6d] [%-6d] [%06d] [%8.2f]\n", number, number, number, real);
    printf("string %s and %s\n", "constant", number > 0 ? "positive" : "negative");
    printf("local %s\n", letters);
    for (int i = 0; i < 3; i++) {
        printf("loop %d of %d\n", i, 3);
    }
}

__global__ static void count_down(int from)
{
    if (blockIdx.x == 1 && threadIdx.x == 17) {
        for (int i = from; i > 0; i--) {
            printf("count %d\n", i);
        }
    }
}

int main(void)
{
    check_begin("printf_device");
    printf("before the kernel\n");
    speak<<<1, 1>>>(42, 2.718281828, NULL);
    check_launch();
    printf("between the kernels\n");
    count_down<<<2, 32>>>(4);
    count_down<<<2, 32>>>(2);
    check_launch();
    printf("after the kernels\n");
    size_t bytes = 0;
    RT(cudaDeviceGetLimit(&bytes, cudaLimitPrintfFifoSize));
    check_true(bytes >= 4096, "printf buffer has a size");
    return check_end();
}

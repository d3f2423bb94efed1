/* Copies of rectangles and boxes between host and device with different pitches. */
#include "check.h"

enum { WIDTH = 77, HEIGHT = 23, DEPTH = 5, HOST_PITCH = 101 };

static unsigned char source[HOST_PITCH * HEIGHT * DEPTH], back[HOST_PITCH * HEIGHT * DEPTH];

static int rectangle_same(const unsigned char *a, size_t a_pitch, const unsigned char *b,
                          size_t b_pitch, int width, int height)
{
    int same = 1;

    for (int y = 0; y < height; y++) {
        same &= memcmp(a + y * a_pitch, b + y * b_pitch, (size_t)width) == 0;
    }
    return same;
}

static void rectangles(void)
{
    unsigned char *a = NULL, *b = NULL;
    size_t pitch_a, pitch_b;
    cudaStream_t stream;

    RT(cudaStreamCreate(&stream));
    RT(cudaMallocPitch((void **)&a, &pitch_a, WIDTH, HEIGHT));
    RT(cudaMallocPitch((void **)&b, &pitch_b, 3 * WIDTH, HEIGHT));
    RT(cudaMemset2D(b, pitch_b, 0, 3 * WIDTH, HEIGHT));
    RT(cudaMemcpy2D(a, pitch_a, source, HOST_PITCH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
    memset(back, 0, sizeof(back));
    RT(cudaMemcpy2D(back, WIDTH, a, pitch_a, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    check_true(rectangle_same(back, WIDTH, source, HOST_PITCH, WIDTH, HEIGHT), "rectangle");
    RT(cudaMemcpy2DAsync(b + WIDTH, pitch_b, a, pitch_a, WIDTH, HEIGHT, cudaMemcpyDeviceToDevice,
                         stream));
    RT(cudaMemcpy2DAsync(back, HOST_PITCH, b + WIDTH - 1, pitch_b, WIDTH + 2, HEIGHT,
                         cudaMemcpyDefault, stream));
    RT(cudaStreamSynchronize(stream));
    check_true(rectangle_same(back + 1, HOST_PITCH, source, HOST_PITCH, WIDTH, HEIGHT),
               "rectangle moved on the device");
    check_true(back[0] == 0 && back[WIDTH + 1] == 0, "nothing written beside it");
    RT(cudaFree(a));
    RT(cudaFree(b));
    RT(cudaStreamDestroy(stream));
}

static void boxes(void)
{
    cudaPitchedPtr device;
    cudaMemcpy3DParms copy;
    int same = 1;

    RT(cudaMalloc3D(&device, make_cudaExtent(WIDTH, HEIGHT, DEPTH)));
    memset(&copy, 0, sizeof(copy));
    copy.srcPtr = make_cudaPitchedPtr(source, HOST_PITCH, WIDTH, HEIGHT);
    copy.dstPtr = device;
    copy.extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
    copy.kind = cudaMemcpyHostToDevice;
    RT(cudaMemcpy3D(&copy));
    memset(back, 0, sizeof(back));
    memset(&copy, 0, sizeof(copy));
    copy.srcPtr = device;
    copy.srcPos = make_cudaPos(10, 3, 1);
    copy.dstPtr = make_cudaPitchedPtr(back, 40, 40, 12);
    copy.dstPos = make_cudaPos(2, 1, 0);
    copy.extent = make_cudaExtent(33, 9, 4);
    copy.kind = cudaMemcpyDeviceToHost;
    RT(cudaMemcpy3DAsync(&copy, 0));
    RT(cudaDeviceSynchronize());
    for (int z = 0; z < 4; z++) {
        same &=
            rectangle_same(back + z * 12 * 40 + 40 + 2, 40,
                           source + ((z + 1) * HEIGHT + 3) * HOST_PITCH + 10, HOST_PITCH, 33, 9);
    }
    check_true(same, "part of a box");
    check_true(back[0] == 0 && back[40 + 1] == 0 && back[40 + 35] == 0, "nothing around it");
    RT(cudaFree(device.ptr));
}

int main(void)
{
    uint32_t seed = 55;

    check_begin("memcpy_2d_3d");
    for (size_t i = 0; i < sizeof(source); i++) {
        source[i] = (unsigned char)(check_random(&seed) | 1);
    }
    rectangles();
    boxes();
    return check_end();
}

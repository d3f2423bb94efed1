/* memset of bytes, rows and volumes, at odd offsets, and asynchronously. */
#include "check.h"

static unsigned char host[1 << 16], want[1 << 16];

static void compare(const unsigned char *device, const char *label)
{
    to_host(host, device, sizeof(host));
    check_true(memcmp(host, want, sizeof(host)) == 0, label);
}

int main(void)
{
    cudaStream_t stream;

    check_begin("memset_all");
    unsigned char *device = device_new<unsigned char>(sizeof(want));
    RT(cudaStreamCreate(&stream));
    RT(cudaMemset(device, 0xa5, sizeof(want)));
    memset(want, 0xa5, sizeof(want));
    compare(device, "all bytes");
    RT(cudaMemset(device + 13, 0x13, 1001));
    memset(want + 13, 0x13, 1001);
    compare(device, "odd offset and length");
    RT(cudaMemset(device + 5000, 0x1ff, 1));
    want[5000] = 0xff;
    compare(device, "value taken as a byte");
    RT(cudaMemset2D(device + 8192, 256, 0x77, 100, 30));
    for (int y = 0; y < 30; y++) {
        memset(want + 8192 + y * 256, 0x77, 100);
    }
    compare(device, "rows");
    cudaPitchedPtr volume = make_cudaPitchedPtr(device + 20000 - 20000 % 256, 128, 128, 8);
    RT(cudaMemset3D(volume, 0x33, make_cudaExtent(50, 5, 3)));
    for (int z = 0; z < 3; z++) {
        for (int y = 0; y < 5; y++) {
            memset(want + 20000 - 20000 % 256 + (z * 8 + y) * 128, 0x33, 50);
        }
    }
    compare(device, "a volume");
    RT(cudaMemsetAsync(device + 40000, 0x44, 10000, stream));
    RT(cudaMemsetAsync(device + 41000, 0x45, 100, stream));
    RT(cudaMemset2DAsync(device + 51200, 64, 0x46, 33, 9, stream));
    RT(cudaStreamSynchronize(stream));
    memset(want + 40000, 0x44, 10000);
    memset(want + 41000, 0x45, 100);
    for (int y = 0; y < 9; y++) {
        memset(want + 51200 + y * 64, 0x46, 33);
    }
    compare(device, "asynchronous, in order");
    RT(cudaMemset(device, 9, 0));
    compare(device, "nothing");
    RT(cudaStreamDestroy(stream));
    return check_end();
}

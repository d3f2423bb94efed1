/* One-dimensional copies: directions, cudaMemcpyDefault, sizes and offsets that are not aligned. */
#include "check.h"

enum { BYTES = 300007 };

static unsigned char source[BYTES], back[BYTES], want[BYTES];

static void unaligned(unsigned char *device)
{
    const size_t sizes[] = {1, 2, 3, 5, 7, 15, 31, 63, 127, 1000, 4095, 4097, 65537, 262145};
    int same = 1;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t offset = 0; offset < 8; offset += 3) {
            memset(back, 0, sizeof(back));
            RT(cudaMemcpy(device + offset, source + 1, sizes[s], cudaMemcpyHostToDevice));
            RT(cudaMemcpy(back + 5, device + offset, sizes[s], cudaMemcpyDeviceToHost));
            same &= memcmp(back + 5, source + 1, sizes[s]) == 0 && back[4] == 0;
            same &= back[5 + sizes[s]] == 0;
        }
    }
    check_true(same, "sizes and offsets that are not aligned");
}

int main(void)
{
    uint32_t seed = 77;
    unsigned char *pinned = NULL;

    check_begin("memcpy_linear");
    for (int i = 0; i < BYTES; i++) {
        source[i] = (unsigned char)(check_random(&seed) | 1);
    }
    unsigned char *device = device_new<unsigned char>(BYTES);
    unsigned char *second = device_new<unsigned char>(BYTES);
    RT(cudaMemcpy(device, source, BYTES, cudaMemcpyHostToDevice));
    RT(cudaMemcpy(back, device, BYTES, cudaMemcpyDeviceToHost));
    check_true(memcmp(back, source, BYTES) == 0, "there and back");
    RT(cudaMemcpy(second, device + 7, BYTES - 7, cudaMemcpyDeviceToDevice));
    RT(cudaMemcpy(back, second, BYTES - 7, cudaMemcpyDeviceToHost));
    check_true(memcmp(back, source + 7, BYTES - 7) == 0, "device to device");
    RT(cudaMemcpy(back, source, BYTES, cudaMemcpyHostToHost));
    check_true(memcmp(back, source, BYTES) == 0, "host to host");
    unaligned(device);

    RT(cudaMallocHost((void **)&pinned, BYTES));
    memcpy(pinned, source, BYTES);
    RT(cudaMemcpy(device, pinned, BYTES, cudaMemcpyDefault));
    RT(cudaMemcpy(second, device, BYTES, cudaMemcpyDefault));
    memset(back, 0, BYTES);
    RT(cudaMemcpy(back, second, BYTES, cudaMemcpyDefault));
    check_true(memcmp(back, source, BYTES) == 0, "kind default, pinned to device to pageable");
    RT(cudaMemset(second, 0, BYTES));
    RT(cudaMemcpy(second + 100, source, 1000, cudaMemcpyDefault));
    memcpy(want + 100, source, 1000);
    RT(cudaMemcpy(pinned, second, BYTES, cudaMemcpyDefault));
    check_true(memcmp(pinned, want, BYTES) == 0, "kind default, pageable to device to pinned");

    /* The source may be changed as soon as the call returns, when it is pageable. */
    RT(cudaMemcpyAsync(device, source, 60000, cudaMemcpyHostToDevice, 0));
    memcpy(want, source, 60000);
    memset(source, 0, 60000);
    RT(cudaMemcpy(back, device, 60000, cudaMemcpyDeviceToHost));
    check_true(memcmp(back, want, 60000) == 0, "pageable source reused at once");
    RT(cudaFreeHost(pinned));
    return check_end();
}

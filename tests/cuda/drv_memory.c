/* Driver API memory: ranges, memset of 8, 16 and 32 bits, rectangles, copies, wrong frees. */
#include "check_driver.h"

enum { BYTES = 1 << 20 };

static unsigned char host[BYTES], want[BYTES];

static void compare(CUdeviceptr device, const char *label)
{
    DRV(cu.MemcpyDtoH_v2(host, device, BYTES));
    check_true(memcmp(host, want, BYTES) == 0, label);
}

static void memsets(CUdeviceptr device)
{
    DRV(cu.MemsetD8_v2(device, 0x11, BYTES));
    memset(want, 0x11, BYTES);
    compare(device, "memset of bytes");
    DRV(cu.MemsetD16_v2(device + 2, 0x2345, 999));
    for (size_t i = 0; i < 999; i++) {
        memcpy(want + 2 + 2 * i, "\x45\x23", 2);
    }
    compare(device, "memset of 16-bit words");
    DRV(cu.MemsetD32_v2(device + 5000 * 4, 0x89abcdef, 777));
    for (size_t i = 0; i < 777; i++) {
        memcpy(want + (5000 + i) * 4, "\xef\xcd\xab\x89", 4);
    }
    compare(device, "memset of 32-bit words");
    DRV(cu.MemsetD2D8_v2(device + 100000, 512, 0x66, 100, 20));
    for (size_t y = 0; y < 20; y++) {
        memset(want + 100000 + y * 512, 0x66, 100);
    }
    compare(device, "memset of a rectangle of bytes");
    DRV(cu.MemsetD2D32_v2(device + 200000, 512, 0x01020304, 25, 10));
    for (size_t y = 0; y < 10; y++) {
        for (size_t x = 0; x < 25; x++) {
            memcpy(want + 200000 + y * 512 + 4 * x, "\4\3\2\1", 4);
        }
    }
    compare(device, "memset of a rectangle of words");
    DRV(cu.MemcpyDtoD_v2(device + 500000, device, 300000));
    memcpy(want + 500000, want, 300000);
    compare(device, "copy on the device");
    DRV(cu.Memcpy(device + 900001, device + 33, 1001));
    memcpy(want + 900001, want + 33, 1001);
    compare(device, "copy without a direction");
}

static void rectangle(CUdeviceptr device)
{
    CUDA_MEMCPY2D_v2 copy;
    int same = 1;

    for (size_t i = 0; i < BYTES; i++) {
        host[i] = (unsigned char)(i * 31 >> 3);
    }
    memset(&copy, 0, sizeof(copy));
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host;
    copy.srcPitch = 300;
    copy.srcXInBytes = 10;
    copy.srcY = 5;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = device;
    copy.dstPitch = 512;
    copy.dstXInBytes = 16;
    copy.dstY = 2;
    copy.WidthInBytes = 123;
    copy.Height = 40;
    DRV(cu.Memcpy2D_v2(&copy));
    DRV(cu.MemcpyDtoH_v2(want, device, BYTES));
    for (size_t y = 0; y < 40; y++) {
        same &= memcmp(want + (y + 2) * 512 + 16, host + (y + 5) * 300 + 10, 123) == 0;
    }
    check_true(same, "rectangle with offsets");
}

int main(void)
{
    CUdeviceptr device = 0, base = 0, pitched = 0, p = 0;
    size_t bytes = 0, pitch = 0, available = 0, total = 0;

    driver_begin("drv_memory");
    DRV(cu.MemAlloc_v2(&device, BYTES));
    DRV(cu.MemGetAddressRange_v2(&base, &bytes, device + 777777));
    check_true(base == device && bytes == BYTES, "range of an inner address");
    DRV(cu.MemGetAddressRange_v2(NULL, &bytes, device));
    check_int((long long)bytes, BYTES, "size alone");
    memsets(device);
    rectangle(device);
    DRV(cu.MemAllocPitch_v2(&pitched, &pitch, 1000, 10, 4));
    check_true(pitch >= 1000 && pitch % 16 == 0, "pitch");
    DRV(cu.MemFree_v2(pitched));
    DRV(cu.MemGetInfo_v2(&available, &total));
    check_true(available > 0 && available <= total, "free and total");
    check_code(cu.MemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE, "malloc of nothing");
    check_code(cu.MemAlloc_v2(&p, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY, "a petabyte");
    check_code(cu.MemFree_v2(device + 256), CUDA_ERROR_INVALID_VALUE, "free of an inner address");
    DRV(cu.MemFree_v2(device));
    check_code(cu.MemFree_v2(device), CUDA_ERROR_INVALID_VALUE, "free twice");
    check_code(cu.MemcpyHtoD_v2(0, host, 16), CUDA_ERROR_INVALID_VALUE, "copy to null");
    DRV(cu.MemFree_v2(0));
    check_true(1, "free of null");
    return driver_end();
}

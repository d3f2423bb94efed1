/*
 * Copies of pageable memory in one stream while another one, that has copied before, is captured:
 * what the captured stream was given before is done, and waits for nothing.
 */
#include "check_driver.h"

enum { PIECE = 4 << 20, PIECES = 15, LARGE = 24 << 20 };

static int all_are(const unsigned char *p, size_t n, unsigned char value)
{
    int good = 1;

    for (size_t i = 0; i < n; i++) {
        good &= p[i] == value;
    }
    return good;
}

static void copy_beside(CUstream captured, CUstream other, CUdeviceptr device, unsigned char *host,
                        const char *label)
{
    CUgraph graph = NULL;

    memset(host, 3, LARGE);
    for (unsigned i = 0; i < PIECES; i++) {
        DRV(cu.MemcpyHtoDAsync_v2(device, host, PIECE, captured));
    }
    DRV(cu.StreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    memset(host, 5, LARGE);
    DRV(cu.MemcpyHtoDAsync_v2(device + LARGE, host, LARGE, other));
    DRV(cu.StreamSynchronize(other));
    DRV(cu.StreamEndCapture(captured, &graph));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamSynchronize(captured));
    DRV(cu.CtxSynchronize());
    memset(host, 0, LARGE);
    DRV(cu.MemcpyDtoH_v2(host, device, PIECE));
    check_true(all_are(host, PIECE, 3), label);
    DRV(cu.MemcpyDtoH_v2(host, device + LARGE, LARGE));
    check_true(all_are(host, LARGE, 5), label);
}

int main(void)
{
    CUstream captured, blocking, other;
    CUdeviceptr device;

    driver_begin("drv_capture_copies");
    unsigned char *host = malloc(LARGE);
    if (!host) {
        check_die("no memory");
    }
    DRV(cu.MemAlloc_v2(&device, 2 * LARGE));
    DRV(cu.StreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&blocking, CU_STREAM_DEFAULT));
    DRV(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    copy_beside(captured, other, device, host, "beside a captured stream");
    copy_beside(blocking, other, device, host, "beside a captured stream that blocks");
    DRV(cu.StreamDestroy_v2(captured));
    DRV(cu.StreamDestroy_v2(blocking));
    DRV(cu.StreamDestroy_v2(other));
    DRV(cu.MemFree_v2(device));
    free(host);
    return driver_end();
}

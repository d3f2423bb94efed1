/* A program that can open no more files: what fails for want of one fails by itself. */
#include "check_driver.h"

#include <sys/resource.h>
#include <unistd.h>

int main(void)
{
    struct rlimit limit, none;
    void *pinned = NULL;
    CUdeviceptr device;

    driver_begin("drv_descriptors");
    int next = dup(0);
    if (next < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        check_die("no limit of descriptors");
    }
    close(next);
    none = limit;
    none.rlim_cur = (rlim_t)next;
    setrlimit(RLIMIT_NOFILE, &none);
    if (cu.MemHostAlloc(&pinned, 1 << 20, 0) == CUDA_SUCCESS) { /* natively it needs none */
        DRV(cu.MemFreeHost(pinned));
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    DRV(cu.MemHostAlloc(&pinned, 1 << 20, 0));
    memset(pinned, 1, 1 << 20);
    DRV(cu.MemFreeHost(pinned));
    DRV(cu.MemAlloc_v2(&device, 1 << 20));
    DRV(cu.MemFree_v2(device));
    check_true(1, "goes on");
    return driver_end();
}

/*
 * Registering memory that the program shares with others: a file of /dev/shm mapped twice, as two
 * processes would have it. What a kernel writes through one mapping is seen through the other.
 */
#include "check_driver.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

CHECK_EMBED(basic_ptx, "basic.ptx");

/* As NCCL does it, the file ends shortly behind the begin of a page,
 * and is registered to its end. */
enum { N = 10000, BYTES = (64 << 10) + 4, OFFSET = 8192 };

static int filled(const unsigned *p, unsigned first)
{
    int good = 1;

    for (unsigned i = 0; i < N; i++) {
        good &= p[i] == first + i;
    }
    return good;
}

static char *map_file(int fd)
{
    char *at = mmap(NULL, OFFSET + BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED) {
        check_die("mmap");
    }
    return at;
}

static void use(CUfunction fill, char *mine, char *theirs, unsigned first)
{
    unsigned *words = (unsigned *)(void *)(mine + OFFSET), n = N;
    CUdeviceptr device = 0, copy;

    DRV(cu.MemHostGetDevicePointer_v2(&device, words, 0));
    void *params[] = {&device, &first, &n};
    driver_launch(fill, (N + 255) / 256, 256, NULL, params);
    DRV(cu.CtxSynchronize());
    check_true(filled(words, first), "the kernel's writes");
    check_true(filled((unsigned *)(void *)(theirs + OFFSET), first), "seen by the other mapping");
    DRV(cu.MemAlloc_v2(&copy, N * sizeof(unsigned)));
    memset(theirs + OFFSET, 9, N * sizeof(unsigned));
    DRV(cu.MemcpyHtoD_v2(copy, words, N * sizeof(unsigned)));
    memset(theirs + OFFSET, 0, N * sizeof(unsigned));
    DRV(cu.MemcpyDtoH_v2(words, copy, N * sizeof(unsigned)));
    check_int(theirs[OFFSET], 9, "copied from the other's writes, and back");
    DRV(cu.MemFree_v2(copy));
}

int main(void)
{
    char name[64];
    CUmodule module;
    int maps = 0;

    driver_begin("drv_register_shared");
    DRV(cu.DeviceGetAttribute(&maps, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
    if (!maps) {
        check_skip("host memory cannot be mapped"); /* over a network */
    }
    snprintf(name, sizeof(name), "/dev/shm/weir-test-%d", (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, OFFSET + BYTES) != 0) {
        check_die("no file in /dev/shm");
    }
    char *mine = map_file(fd), *theirs = map_file(fd);
    close(fd);
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    CUfunction fill = driver_function(module, "fill");
    DRV(cu.MemHostRegister_v2(mine + OFFSET, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
    unlink(name);
    use(fill, mine, theirs, 100);
    DRV(cu.MemHostUnregister(mine + OFFSET));
    theirs[OFFSET] = 77;
    check_int(mine[OFFSET], 77, "still shared afterwards");
    DRV(cu.ModuleUnload(module));
    return driver_end();
}

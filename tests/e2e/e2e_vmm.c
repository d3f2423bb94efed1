/*
 * Virtual memory management as the tests of it need it.
 *
 * e2e_vmm hold BYTES       create and map so much, print "held", keep it until stdin ends.
 * e2e_vmm offer BYTES PATH the same, exported; who connects to PATH gets the descriptor.
 * e2e_vmm take PATH        connect, import, map: the contents must be what the maker wrote.
 * e2e_vmm refused PATH     connect; importing must fail, and this session must go on.
 * e2e_vmm fresh BYTES      so much new memory, of which every word is zero.
 * e2e_vmm account BYTES    what cuMemGetInfo says while so much is made, mapped, released.
 * e2e_vmm fails BYTES      so much must be refused just now.
 * e2e_vmm reserve N        N reservations of 160 GiB at once, memory at both ends of each.
 */
#include "tests/cuda/vmm.h"

#include <sys/un.h>

#define SEGMENT_BYTES (160ull << 30)
#define MARK          0x600df00du

static void map_all(CUdeviceptr *ret_space, size_t bytes, CUmemGenericAllocationHandle handle)
{
    DRV(cu.MemAddressReserve(ret_space, bytes, 0, 0, 0));
    vmm_map(*ret_space, bytes, handle);
}

static void until_stdin_ends(void)
{
    while (getchar() != EOF) {
    }
}

static void hold(size_t bytes)
{
    CUdeviceptr space;
    map_all(&space, bytes, vmm_create(bytes, 0));
    DRV(cu.MemsetD32_v2(space, MARK, bytes / 4));
    printf("held\n");
    until_stdin_ends();
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return address;
}

/* Serves until it is killed. Handle and mapping are given up: the descriptor alone keeps it. */
static void offer(size_t bytes, const char *path)
{
    struct sockaddr_un address = address_of(path);
    CUdeviceptr space;
    int fd = -1;
    CUmemGenericAllocationHandle handle = vmm_create(bytes, 1);
    map_all(&space, bytes, handle);
    DRV(cu.MemsetD32_v2(space, MARK, bytes / 4));
    DRV(cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    DRV(cu.MemUnmap(space, bytes));
    DRV(cu.MemRelease(handle));
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, 8) != 0) {
        check_die("no socket at %s", path);
    }
    printf("offered\n");
    for (;;) {
        int client = accept(listener, NULL, NULL);
        uint64_t size = bytes;
        vmm_send_fd(client, fd, &size, sizeof(size));
        close(client);
    }
}

static int fetch(const char *path, uint64_t *ret_bytes)
{
    struct sockaddr_un address = address_of(path);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr *)&address, sizeof(address)) != 0) {
        check_die("nobody at %s", path);
    }
    int fd = vmm_receive_fd(s, ret_bytes, sizeof(*ret_bytes));
    close(s);
    return fd;
}

static void take(const char *path, int wanted)
{
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr space;
    uint64_t bytes;
    int fd = fetch(path, &bytes);
    CUresult result = cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    if (!wanted) {
        check_true(result != CUDA_SUCCESS, "another tenant's memory is refused");
        map_all(&space, vmm_unit, vmm_create(vmm_unit, 0));
        check_int(vmm_word(space), 0, "and this session goes on");
        return;
    }
    DRV(result);
    map_all(&space, bytes, handle);
    check_true(vmm_word(space) == MARK && vmm_word(space + bytes - 4) == MARK,
               "what the other process wrote");
    printf("taken\n");
    until_stdin_ends();
    check_true(vmm_word(space) == MARK, "still there");
}

/* In pieces that are mapped at once, every second one exported before. */
static void fresh(size_t bytes)
{
    CUdeviceptr space;
    int fd = -1, good = 1;
    size_t piece = 4 * vmm_unit, pieces = bytes / piece;
    unsigned *host = malloc(piece);
    DRV(cu.MemAddressReserve(&space, bytes, 0, 0, 0));
    for (size_t i = 0; i < pieces; i++) {
        CUmemGenericAllocationHandle handle = vmm_create(piece, 1);
        if (i % 2) {
            DRV(cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              0));
            close(fd);
        }
        DRV(cu.MemMap(space + i * piece, piece, 0, handle, 0));
    }
    DRV(vmm_access(space, pieces * piece, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    for (size_t i = 0; i < pieces; i++) {
        DRV(cu.MemcpyDtoH_v2(host, space + i * piece, piece));
        for (size_t k = 0; k < piece / sizeof(*host); k++) {
            good = good && host[k] == 0;
        }
    }
    DRV(cu.MemsetD32_v2(space, MARK, pieces * piece / 4));
    check_true(good, "new memory reads as zero");
    free(host);
}

static size_t free_bytes(void)
{
    size_t now = 0, total = 0;
    DRV(cu.MemGetInfo_v2(&now, &total));
    return now;
}

static void account(size_t bytes)
{
    CUdeviceptr space;
    CUmemGenericAllocationHandle handle, again;
    size_t before = free_bytes();
    DRV(cu.MemAddressReserve(&space, bytes, 0, 0, 0));
    check_true(free_bytes() + vmm_unit > before, "addresses cost nothing");
    handle = vmm_create(bytes, 0);
    check_true(free_bytes() + bytes <= before, "memory costs what it is");
    vmm_map(space, bytes, handle);
    DRV(cu.MemRelease(handle));
    check_true(free_bytes() + bytes <= before, "released but mapped: not free");
    DRV(cu.MemRetainAllocationHandle(&again, (void *)(uintptr_t)space));
    DRV(cu.MemUnmap(space, bytes));
    check_true(free_bytes() + bytes <= before, "unmapped but retained: not free");
    DRV(cu.MemRelease(again));
    check_true(free_bytes() + vmm_unit > before, "then it is free");
    DRV(cu.MemAddressFree(space, bytes));
}

static void reserve(int n)
{
    enum { MOST = 64 };
    CUdeviceptr space[MOST];
    CUmemGenericAllocationHandle handle = vmm_create(vmm_unit, 0);
    for (int i = 0; i < n && i < MOST; i++) {
        DRV(cu.MemAddressReserve(&space[i], SEGMENT_BYTES, 0, 0, 0));
        vmm_map(space[i], vmm_unit, handle);
        vmm_map(space[i] + SEGMENT_BYTES - vmm_unit, vmm_unit, handle);
        DRV(cu.MemsetD32_v2(space[i], (unsigned)i + 1, 4));
    }
    check_int(vmm_word(space[0] + SEGMENT_BYTES - vmm_unit), n, "one memory at all ends");
    check_int(vmm_word(space[n / 2]), n, "and in the middle");
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: e2e_vmm hold|offer|take|refused|fresh|account|fails|reserve ...\n");
        return 2;
    }
    vmm_begin("e2e_vmm");
    if (strcmp(argv[1], "hold") == 0) {
        hold(strtoull(argv[2], NULL, 0));
    } else if (strcmp(argv[1], "offer") == 0 && argc == 4) {
        offer(strtoull(argv[2], NULL, 0), argv[3]);
    } else if (strcmp(argv[1], "take") == 0) {
        take(argv[2], 1);
    } else if (strcmp(argv[1], "refused") == 0) {
        take(argv[2], 0);
    } else if (strcmp(argv[1], "fresh") == 0) {
        fresh(strtoull(argv[2], NULL, 0));
    } else if (strcmp(argv[1], "account") == 0) {
        account(strtoull(argv[2], NULL, 0));
    } else if (strcmp(argv[1], "reserve") == 0) {
        reserve(atoi(argv[2]));
    } else {
        CUmemAllocationProp prop = vmm_prop(0);
        CUmemGenericAllocationHandle handle = 0;
        check_code(cu.MemCreate(&handle, strtoull(argv[2], NULL, 0), &prop, 0),
                   CUDA_ERROR_OUT_OF_MEMORY, "refused");
    }
    return driver_end();
}

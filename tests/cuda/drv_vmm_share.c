/*
 * Memory passed between two processes as a descriptor (SCM_RIGHTS): one writes, the other reads and
 * writes back. The descriptor alone keeps the memory alive: the maker's handle and mapping are gone
 * before the other process imports it.
 */
#include "vmm.h"

enum { UNITS = 3 };

struct message {
    uint64_t bytes;
};

static int other_process(int socket_fd)
{
    struct message m;
    CUdeviceptr space = 0;
    CUmemGenericAllocationHandle handle = 0, twin = 0;
    CUmemAllocationProp prop;
    char letter;

    int fd = vmm_receive_fd(socket_fd, &m, sizeof(m));
    if (fd < 0) {
        return 10;
    }
    driver_begin("drv_vmm_share, the other process");
    if (cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return 11;
    }
    int second = dup(fd);
    if (cu.MemImportFromShareableHandle(&twin, (void *)(intptr_t)second,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return 12;
    }
    close(fd);
    close(second);
    if (cu.MemGetAllocationPropertiesFromHandle(&prop, handle) ||
        prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop.location.id != 0) {
        return 13;
    }
    DRV(cu.MemAddressReserve(&space, m.bytes, 0, 0, 0));
    vmm_map(space, m.bytes, handle);
    DRV(cu.MemRelease(handle));
    DRV(cu.MemRelease(twin));
    if (vmm_word(space) != 1234 || vmm_word(space + m.bytes - 4) != 1234) {
        return 14;
    }
    DRV(cu.MemsetD32_v2(space, 5678, m.bytes / 4));
    DRV(cu.CtxSynchronize());
    if (write(socket_fd, "w", 1) != 1 || read(socket_fd, &letter, 1) != 1) {
        return 15;
    }
    DRV(cu.MemUnmap(space, m.bytes));
    DRV(cu.MemAddressFree(space, m.bytes));
    return 0;
}

int main(int argc, char **argv)
{
    CUdeviceptr space = 0;
    CUmemGenericAllocationHandle mine = 0;
    int socket_fd = -1, fd = -1;
    char letter;

    if (argc > 1) {
        return other_process(atoi(argv[1]));
    }
    vmm_begin("drv_vmm_share");
    if (!vmm_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        check_skip("no descriptors for memory");
    }
    pid_t child = vmm_start_other(argv[0], &socket_fd);
    struct message m = {UNITS * vmm_unit};
    CUmemGenericAllocationHandle handle = vmm_create(m.bytes, 1);
    DRV(cu.MemAddressReserve(&space, 2 * m.bytes, 0, 0, 0));
    vmm_map(space, m.bytes, handle);
    DRV(cu.MemsetD32_v2(space, 1234, m.bytes / 4));
    DRV(cu.CtxSynchronize());
    DRV(cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    check_true(fd >= 0, "a descriptor");
    DRV(cu.MemUnmap(space, m.bytes));
    DRV(cu.MemRelease(handle));
    vmm_send_fd(socket_fd, fd, &m, sizeof(m));
    check_true(read(socket_fd, &letter, 1) == 1 && letter == 'w', "the other process has written");
    DRV(cu.MemImportFromShareableHandle(&mine, (void *)(intptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    vmm_map(space + m.bytes, m.bytes, mine);
    check_int(vmm_word(space + m.bytes), 5678, "what it wrote, at the beginning");
    check_int(vmm_word(space + 2 * m.bytes - 4), 5678, "and at the end");
    check_true(write(socket_fd, "d", 1) == 1, "the other may go");
    check_int(vmm_status_of(child), 0, "the other process found all well");
    check_int(vmm_word(space + m.bytes), 5678, "its end leaves the memory alone");
    DRV(cu.MemUnmap(space + m.bytes, m.bytes));
    DRV(cu.MemRelease(mine));
    DRV(cu.MemAddressFree(space, 2 * m.bytes));
    return driver_end();
}

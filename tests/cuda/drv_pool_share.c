/* A memory pool passed to another process as a descriptor, and pointers of it as 64 bytes. */
#include "vmm.h"

enum { BYTES = 1 << 20 };

static int other_process(int socket_fd)
{
    CUmemPoolPtrExportData data;
    CUmemoryPool pool = NULL;
    CUdeviceptr memory = 0, none = 0;

    int fd = vmm_receive_fd(socket_fd, &data, sizeof(data));
    if (fd < 0) {
        return 10;
    }
    driver_begin("drv_pool_share, the other process");
    if (cu.MemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)) {
        return 11;
    }
    close(fd);
    if (cu.MemAllocFromPoolAsync(&none, 4096, pool, NULL) == CUDA_SUCCESS) {
        return 12; /* nothing can be allocated from an imported pool */
    }
    if (cu.MemPoolImportPointer(&memory, pool, &data)) {
        return 13;
    }
    if (vmm_word(memory) != 21 || vmm_word(memory + BYTES - 4) != 21) {
        return 14;
    }
    DRV(cu.MemsetD32Async(memory, 42, BYTES / 4, NULL));
    DRV(cu.MemFreeAsync(memory, NULL));
    DRV(cu.StreamSynchronize(NULL));
    DRV(cu.MemPoolDestroy(pool));
    return 0;
}

int main(int argc, char **argv)
{
    CUmemPoolPtrExportData data;
    CUmemPoolProps props;
    CUmemoryPool pool = NULL, plain = NULL;
    CUdeviceptr memory = 0;
    int socket_fd = -1, fd = -1;

    if (argc > 1) {
        return other_process(atoi(argv[1]));
    }
    driver_begin("drv_pool_share");
    if ((vmm_attribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES) &
         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
        check_skip("no descriptors for pools");
    }
    pid_t child = vmm_start_other(argv[0], &socket_fd);
    memset(&props, 0, sizeof(props));
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    DRV(cu.MemPoolCreate(&plain, &props));
    check_true(cu.MemPoolExportToShareableHandle(
                   &fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS,
               "a pool that was not made for it is not exported");
    DRV(cu.MemPoolDestroy(plain));
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    DRV(cu.MemPoolCreate(&pool, &props));
    DRV(cu.MemAllocFromPoolAsync(&memory, BYTES, pool, NULL));
    DRV(cu.MemsetD32Async(memory, 21, BYTES / 4, NULL));
    DRV(cu.StreamSynchronize(NULL));
    DRV(cu.MemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    DRV(cu.MemPoolExportPointer(&data, memory));
    vmm_send_fd(socket_fd, fd, &data, sizeof(data));
    check_int(vmm_status_of(child), 0, "the other process found all well");
    check_int(vmm_word(memory), 42, "what it wrote, at the beginning");
    check_int(vmm_word(memory + BYTES - 4), 42, "and at the end");
    close(fd);
    DRV(cu.MemFreeAsync(memory, NULL));
    DRV(cu.StreamSynchronize(NULL));
    DRV(cu.MemPoolDestroy(pool));
    return driver_end();
}

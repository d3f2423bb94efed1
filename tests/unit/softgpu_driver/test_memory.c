/* Device, host, pool and mapped memory: what is given, refused, and answered about addresses. */
#include "support.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

static void alloc_and_copy_round_trip_keeps_bytes(void **state)
{
    (void)state;
    CUdeviceptr a, b;
    char in[5000], out[5000];
    memset(in, 0x5a, sizeof(in));
    OK(cuMemAlloc_v2(&a, sizeof(in)));
    OK(cuMemAlloc_v2(&b, sizeof(in)));
    assert_int_equal(a % 256, 0);
    OK(cuMemcpyHtoD_v2(a, in, sizeof(in)));
    OK(cuMemcpy(b, a, sizeof(in)));
    OK(cuMemcpyDtoH_v2(out, b, sizeof(out)));
    assert_memory_equal(in, out, sizeof(in));
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
}

static void copy_beyond_an_allocation_is_refused(void **state)
{
    (void)state;
    CUdeviceptr a;
    char bytes[300] = {0};
    OK(cuMemAlloc_v2(&a, 256));
    assert_int_equal(cuMemcpyHtoD_v2(a, bytes, 257), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoH_v2(bytes, a + 200, 57), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD32_v2(a, 1, 65), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD32_v2(a + 2, 1, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyHtoD_v2(0, bytes, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(a));
    assert_int_equal(cuMemcpyHtoD_v2(a, bytes, 1), CUDA_ERROR_INVALID_VALUE);
}

static void free_twice_or_inside_is_refused(void **state)
{
    (void)state;
    CUdeviceptr a;
    OK(cuMemAlloc_v2(&a, 512));
    assert_int_equal(cuMemFree_v2(a + 8), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(a));
    assert_int_equal(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(0xdead000), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(0));
}

static void alloc_over_the_device_memory_is_out_of_memory(void **state)
{
    (void)state;
    CUdeviceptr a;
    size_t before, after, total;
    OK(cuMemGetInfo_v2(&before, &total));
    assert_int_equal(total, 256u << 20);
    assert_int_equal(cuMemAlloc_v2(&a, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAlloc_v2(&a, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAlloc_v2(&a, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAlloc_v2(&a, total / 2));
    OK(cuMemGetInfo_v2(&after, &total));
    assert_int_equal(before - after, total / 2);
    OK(cuMemFree_v2(a));
    OK(cuMemGetInfo_v2(&after, &total));
    assert_int_equal(before, after);
}

static void memset_2d_writes_only_its_box(void **state)
{
    (void)state;
    CUdeviceptr a;
    unsigned char out[64];
    OK(cuMemAlloc_v2(&a, 64));
    OK(cuMemsetD8_v2(a, 1, 64));
    OK(cuMemsetD2D8_v2(a + 2, 16, 9, 3, 4));
    OK(cuMemcpyDtoH_v2(out, a, 64));
    for (int i = 0; i < 64; i++) {
        assert_int_equal(out[i], i % 16 >= 2 && i % 16 < 5 ? 9 : 1);
    }
    OK(cuMemFree_v2(a));
}

static void pointer_attributes_follow_the_kind_of_memory(void **state)
{
    (void)state;
    CUdeviceptr device;
    void *pinned;
    char pageable[16];
    unsigned type = 77;
    int ordinal = 77;
    OK(cuMemAlloc_v2(&device, 1000));
    OK(cuMemHostAlloc(&pinned, 100, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 999));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                             (CUdeviceptr)(uintptr_t)pinned));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)pageable;
    assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host),
                     CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute ids[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *outs[] = {&type, &ordinal};
    OK(cuPointerGetAttributes(2, ids, outs, host));
    assert_int_equal(type, 0);
    assert_int_equal(ordinal, -2);
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree_v2(device));
}

static void register_twice_or_what_is_not_mapped_is_refused(void **state)
{
    (void)state;
    size_t page = 4096;
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr device;
    assert_true(at != MAP_FAILED);
    OK(cuMemHostRegister_v2(at, page, 0));
    assert_int_equal(cuMemHostRegister_v2(at, page, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostGetDevicePointer_v2(&device, at, 0));
    assert_int_equal(device, (uintptr_t)at);
    OK(cuMemHostUnregister(at));
    assert_int_equal(cuMemHostUnregister(at), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    munmap(at, 2 * page);
    assert_int_equal(cuMemHostRegister_v2(at, page, 0), CUDA_ERROR_INVALID_VALUE);
}

static void vmm_maps_one_chunk_at_two_addresses(void **state)
{
    (void)state;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle chunk, again;
    CUdeviceptr base, wanted;
    size_t step;
    int fd;
    unsigned value = 0;
    OK(cuMemGetAllocationGranularity(&step, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    /* An address that is free wherever this process keeps its memory: one that was just given. */
    OK(cuMemAddressReserve(&wanted, 2 * step, 0, 0, 0));
    OK(cuMemAddressFree(wanted, 2 * step));
    OK(cuMemAddressReserve(&base, 2 * step, 0, wanted, 0));
    assert_int_equal(base, wanted);
    OK(cuMemCreate(&chunk, step, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(cuMemMap(base, step, 0, chunk, 0));
    assert_int_equal(cuMemsetD32_v2(base, 42, 1), CUDA_ERROR_INVALID_VALUE); /* no access yet */
    OK(cuMemMap(base + step, step, 0, again, 0));
    assert_int_equal(cuMemMap(base, step, 0, chunk, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemSetAccess(base, 2 * step, &access, 1));
    OK(cuMemsetD32_v2(base, 42, 1));
    OK(cuMemcpyDtoH_v2(&value, base + step, 4));
    assert_int_equal(value, 42);
    OK(cuMemRelease(chunk));
    assert_int_equal(cuMemRelease(chunk), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(base, 2 * step), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(base, 2 * step));
    OK(cuMemRelease(again));
    OK(cuMemAddressFree(base, 2 * step));
}

/* A file of another program could be cut short under a kernel. */
static void only_chunks_are_imported(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle chunk;
    int fd = memfd_create("something else", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 2 << 20), 0);
    assert_int_equal(cuMemImportFromShareableHandle(&chunk, (void *)(intptr_t)fd,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                     CUDA_ERROR_INVALID_VALUE);
    close(fd);
}

static void pool_memory_is_freed_in_stream_order(void **state)
{
    (void)state;
    CUstream stream;
    CUdeviceptr a;
    CUmemoryPool pool;
    uint64_t used;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&a, 4096, stream));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    assert_int_equal(used, 4096);
    OK(cuMemsetD8Async(a, 1, 4096, stream));
    OK(cuMemFreeAsync(a, stream));
    assert_int_equal(cuMemFreeAsync(a, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    assert_int_equal(used, 0);
    OK(cuStreamDestroy_v2(stream));
}

static void CUDA_CB wait_for_gate(void *gate)
{
    while (__atomic_load_n((int *)gate, __ATOMIC_ACQUIRE) == 0) {
        sched_yield();
    }
}

/* On a GPU, too, the copy finds nothing there. It used to write where other memory may lie by then,
 * or to end the process. */
static void copy_into_memory_that_was_unmapped_is_an_illegal_address(void **state)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr base, other;
    CUstream stream;
    size_t step;
    int gate = 0;

    (void)state;
    OK(cuMemGetAllocationGranularity(&step, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemAddressReserve(&base, step, 0, 0, 0));
    OK(cuMemCreate(&chunk, step, &prop, 0));
    OK(cuMemMap(base, step, 0, chunk, 0));
    OK(cuMemRelease(chunk));
    OK(cuMemSetAccess(base, step, &access, 1));
    OK(cuMemAlloc_v2(&other, 4096));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(stream, wait_for_gate, &gate));
    OK(cuMemcpyDtoDAsync_v2(base, other, 4096, stream));
    OK(cuMemUnmap(base, step));
    OK(cuMemAddressFree(base, step));
    assert_int_equal(cuMemAddressFree(base, step), CUDA_ERROR_INVALID_VALUE);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc_and_copy_round_trip_keeps_bytes),
        cmocka_unit_test(copy_beyond_an_allocation_is_refused),
        cmocka_unit_test(free_twice_or_inside_is_refused),
        cmocka_unit_test(alloc_over_the_device_memory_is_out_of_memory),
        cmocka_unit_test(memset_2d_writes_only_its_box),
        cmocka_unit_test(pointer_attributes_follow_the_kind_of_memory),
        cmocka_unit_test(register_twice_or_what_is_not_mapped_is_refused),
        cmocka_unit_test(vmm_maps_one_chunk_at_two_addresses),
        cmocka_unit_test(only_chunks_are_imported),
        cmocka_unit_test(pool_memory_is_freed_in_stream_order),
        /* The last: the context does not survive it. */
        cmocka_unit_test(copy_into_memory_that_was_unmapped_is_an_illegal_address),
    };
    return cmocka_run_group_tests(tests, enter_context, leave_context);
}

/* Virtual memory management in the guest: checks, counts of messages, handles' lifetimes. */
#include "guest_lib/entry.h"
#include "guest_lib/vmm.h"
#include "proto/common/ctx_stack.h"
#include "proto/guest_hand.h"
#include "proto/wire/export.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_host.h"
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OK(call)  assert_int_equal((call), CUDA_SUCCESS)
#define BAD(call) assert_int_equal((call), CUDA_ERROR_INVALID_VALUE)
#define UNIT      (2ull << 20)

static const CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};
static const CUmemAccessDesc read_write = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static int start(void **state)
{
    CUcontext ctx;
    *state = tl_host_start();
    OK(weir_guest_cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(weir_guest_cuCtxSetCurrent(ctx));
    return 0;
}

static int stop(void **state)
{
    weir_ctx_stack_set(NULL);
    tl_host_stop(*state);
    return 0;
}

static CUdeviceptr reserve(uint64_t bytes)
{
    CUdeviceptr at = 0;
    OK(weir_guest_cuMemAddressReserve(&at, bytes, 0, 0, 0));
    return at;
}

static CUmemGenericAllocationHandle create(uint64_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;
    OK(weir_guest_cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static void burst_waits_for_creation_alone(void **state)
{
    enum { N = 100 };
    struct tl_host *host = *state;
    CUdeviceptr at[N];
    for (int i = 0; i < N; i++) {
        CUmemGenericAllocationHandle handle = create(UNIT);
        at[i] = reserve(UNIT);
        OK(weir_guest_cuMemMap(at[i], UNIT, 0, handle, 0));
        OK(weir_guest_cuMemSetAccess(at[i], UNIT, &read_write, 1));
        OK(weir_guest_cuMemRelease(handle));
    }
    for (int i = 0; i < N; i++) {
        OK(weir_guest_cuMemUnmap(at[i], UNIT));
        OK(weir_guest_cuMemAddressFree(at[i], UNIT));
    }
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_reserve), 1); /* a slab */
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_create), N);
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_map), N);
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_access), N);
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_unmap), N);
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_release), N);
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_unreserve), 0);
}

static void reservations_are_disjoint_and_large_ones_go_back(void **state)
{
    struct tl_host *host = *state;
    CUdeviceptr a = reserve(UNIT), b = reserve(3 * UNIT), large = reserve(160ull << 30);
    assert_true(a + UNIT <= b || b + 3 * UNIT <= a);
    assert_true(weir_guest_vmm_is_reserved(a) &&
                weir_guest_vmm_is_reserved(large + (160ull << 30) - 1));
    assert_false(weir_guest_vmm_is_reserved(large - 1));
    BAD(weir_guest_cuMemAddressFree(b, UNIT));
    BAD(weir_guest_cuMemAddressFree(b + UNIT, UNIT));
    OK(weir_guest_cuMemAddressFree(large, 160ull << 30));
    BAD(weir_guest_cuMemAddressFree(large, 160ull << 30));
    assert_false(weir_guest_vmm_is_reserved(large));
    OK(weir_guest_cuMemAddressFree(b, 3 * UNIT));
    assert_true(reserve(3 * UNIT) == b);
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_reserve), 2);
}

/* The driver does not put small ones where the host wishes, so the host is not asked for them. */
static void small_reservations_are_cut_from_slabs_however_asked_for(void **state)
{
    struct tl_host *host = *state;
    CUdeviceptr first = reserve(UNIT), aligned = 0, wished = 0;
    OK(weir_guest_cuMemAddressReserve(&aligned, 2 * UNIT, 8 * UNIT, 0, 0));
    assert_true(aligned % (8 * UNIT) == 0);
    OK(weir_guest_cuMemAddressReserve(&wished, 2 * UNIT, 0, aligned + 2 * UNIT, 0));
    assert_true(wished != aligned && wished != first);
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_reserve), 1); /* the slab */
    OK(weir_guest_cuMemAddressFree(aligned, 2 * UNIT));
    BAD(weir_guest_cuMemAddressFree(aligned, 2 * UNIT));
    OK(weir_guest_cuMemAddressFree(wished, 2 * UNIT));
}

static void map_checks_place_size_and_handle(void **state)
{
    (void)state;
    CUdeviceptr at = reserve(4 * UNIT);
    CUmemGenericAllocationHandle handle = create(2 * UNIT);
    BAD(weir_guest_cuMemMap(at, 2 * UNIT, UNIT, handle, 0));
    BAD(weir_guest_cuMemMap(at + 512, 2 * UNIT, 0, handle, 0));
    BAD(weir_guest_cuMemMap(at, 3 * UNIT, 0, handle, 0));
    BAD(weir_guest_cuMemMap(at + 3 * UNIT, 2 * UNIT, 0, handle, 0));
    BAD(weir_guest_cuMemMap(at, 2 * UNIT, 0, handle + 1, 0));
    BAD(weir_guest_cuMemSetAccess(at, 2 * UNIT, &read_write, 1));
    OK(weir_guest_cuMemMap(at, 2 * UNIT, 0, handle, 0));
    BAD(weir_guest_cuMemMap(at + UNIT, 2 * UNIT, 0, handle, 0));
    BAD(weir_guest_cuMemUnmap(at, UNIT));
    BAD(weir_guest_cuMemSetAccess(at, UNIT, &read_write, 1));
    BAD(weir_guest_cuMemAddressFree(at, 4 * UNIT));
    OK(weir_guest_cuMemUnmap(at, 2 * UNIT));
    OK(weir_guest_cuMemAddressFree(at, 4 * UNIT));
}

static void copies_span_accessible_mappings_alone(void **state)
{
    (void)state;
    CUdeviceptr at = reserve(4 * UNIT);
    CUmemGenericAllocationHandle handle = create(UNIT);
    struct weir_mem mem;
    struct weir_guest_copy_side side;
    for (int i = 0; i < 3; i++) {
        OK(weir_guest_cuMemMap(at + (uint64_t)i * UNIT, UNIT, 0, handle, 0));
    }
    BAD(weir_mem_check(at, 16, &mem));
    OK(weir_guest_cuMemSetAccess(at, 2 * UNIT, &read_write, 1));
    OK(weir_mem_check(at, 2 * UNIT, &mem));
    OK(weir_copy_classify(at + UNIT - 8, 16, &side));
    assert_true(side.kind == WEIR_COPY_GPU && side.on_device);
    BAD(weir_mem_check(at, 2 * UNIT + 1, &mem));
    BAD(weir_copy_classify(at + 2 * UNIT - 8, 16, &side));
    BAD(weir_copy_classify(at + 3 * UNIT, 16, &side)); /* reserved, so not the program's own */
    OK(weir_guest_cuMemUnmap(at, 3 * UNIT));
    BAD(weir_copy_classify(at, 16, &side));
}

static void memory_lives_until_the_last_handle_and_mapping(void **state)
{
    struct tl_host *host = *state;
    CUdeviceptr at = reserve(UNIT);
    CUmemGenericAllocationHandle handle = create(UNIT), again, once_more;
    void *inside = (void *)(uintptr_t)(at + 4096);
    OK(weir_guest_cuMemMap(at, UNIT, 0, handle, 0));
    OK(weir_guest_cuMemRelease(handle));
    BAD(weir_guest_cuMemRelease(handle));
    OK(weir_guest_cuMemRetainAllocationHandle(&again, inside));
    OK(weir_guest_cuMemRetainAllocationHandle(&once_more, inside));
    assert_true(again == handle && once_more == handle);
    OK(weir_guest_cuMemUnmap(at, UNIT));
    BAD(weir_guest_cuMemRetainAllocationHandle(&again, inside));
    OK(weir_guest_cuMemRelease(handle));
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_release), 0);
    OK(weir_guest_cuMemRelease(handle));
    BAD(weir_guest_cuMemRelease(handle));
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_release), 1);
}

static void what_is_not_carried_is_refused(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp asked = prop;
    size_t granularity;
    int fd;
    asked.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    assert_int_equal(weir_guest_cuMemCreate(&handle, UNIT, &asked, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(weir_guest_cuMemGetAllocationGranularity(&granularity, &asked, 0),
                     CUDA_ERROR_NOT_SUPPORTED);
    asked = prop;
    asked.location.id = 1;
    assert_int_equal(weir_guest_cuMemCreate(&handle, UNIT, &asked, 0), CUDA_ERROR_INVALID_DEVICE);
    BAD(weir_guest_cuMemCreate(&handle, UNIT + 1, &prop, 0));
    handle = create(UNIT); /* made without a handle type */
    BAD(weir_guest_cuMemExportToShareableHandle(&fd, handle,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    assert_int_equal(
        weir_guest_cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
        CUDA_ERROR_NOT_SUPPORTED);
}

static void memory_of_the_host_is_mapped_in_reservations_of_its_own(void **state)
{
    struct tl_host *host = *state;
    CUmemAllocationProp asked = prop;
    CUmemAccessDesc here = read_write;
    CUmemGenericAllocationHandle handle, on_device = create(UNIT);
    CUdeviceptr slab = reserve(UNIT), at;
    unsigned long long flags;
    unsigned type;
    asked.location.type = here.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    OK(weir_guest_cuMemCreate(&handle, UNIT, &asked, 0));
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_create_host), 1);
    at = reserve(UNIT);
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_reserve), 1); /* the slab */
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_reserve_any), 1);
    OK(weir_guest_cuMemMap(at, UNIT, 0, handle, 0));
    assert_int_equal(tl_host_count(host, WEIR_OP_vmm_map_host), 1);
    OK(weir_guest_cuMemGetAccess(&flags, &here.location, at));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(weir_guest_cuMemSetAccess(at, UNIT, &here, 1));
    OK(weir_guest_cuMemGetAccess(&flags, &here.location, at));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(weir_guest_cuMemGetAccess(&flags, &read_write.location, at));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE); /* the GPU's is its own */
    OK(weir_guest_cuMemSetAccess(at, UNIT, &read_write, 1));
    OK(weir_guest_cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    OK(weir_guest_cuMemMap(slab, UNIT, 0, on_device, 0));
    BAD(weir_guest_cuMemSetAccess(slab, UNIT, &here, 1));
    BAD(weir_guest_cuMemGetAccess(&flags, &here.location, slab));
}

static void places_of_the_host_are_checked(void **state)
{
    static const struct {
        CUmemLocationType type;
        int id;
        bool exportable, good;
    } places[] = {
        {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, true, true},
        {CU_MEM_LOCATION_TYPE_HOST, 77, false, true},
        {CU_MEM_LOCATION_TYPE_HOST, 0, true, false},
        {CU_MEM_LOCATION_TYPE_HOST_NUMA, -1, false, false},
        {CU_MEM_LOCATION_TYPE_HOST_NUMA, 9999, false, false},
        {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0, false, false},
    };
    CUmemAllocationProp asked = prop;
    CUmemGenericAllocationHandle handle;
    size_t granularity;
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        CUresult want = places[i].good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        asked.location.type = places[i].type;
        asked.location.id = places[i].id;
        asked.requestedHandleTypes =
            places[i].exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
        assert_int_equal(weir_guest_cuMemCreate(&handle, UNIT, &asked, 0), want);
        assert_int_equal(weir_guest_cuMemGetAllocationGranularity(&granularity, &asked, 0), want);
    }
}

static void token_is_read_without_taking_it(void **state)
{
    (void)state;
    struct weir_export_message message = {.magic = WEIR_EXPORT_MAGIC, .token = {1, 2, 3}};
    uint8_t token[16];
    int pair[2], ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_false(weir_export_token(pair[1], token));
    assert_int_equal(send(pair[0], &message, sizeof message, 0), sizeof message);
    for (int i = 0; i < 3; i++) {
        assert_true(weir_export_token(pair[1], token));
        assert_memory_equal(token, message.token, sizeof token);
    }
    assert_int_equal(send(pair[1], "something else", 14, 0), 14);
    assert_false(weir_export_token(pair[0], token));
    assert_int_equal(pipe(ends), 0);
    assert_false(weir_export_token(ends[0], token));
    assert_false(weir_export_token(-1, token));
    close(pair[0]);
    close(pair[1]);
    close(ends[0]);
    close(ends[1]);
}

#define HOST_TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOST_TEST(burst_waits_for_creation_alone),
        HOST_TEST(reservations_are_disjoint_and_large_ones_go_back),
        HOST_TEST(small_reservations_are_cut_from_slabs_however_asked_for),
        HOST_TEST(map_checks_place_size_and_handle),
        HOST_TEST(copies_span_accessible_mappings_alone),
        HOST_TEST(memory_lives_until_the_last_handle_and_mapping),
        HOST_TEST(what_is_not_carried_is_refused),
        HOST_TEST(memory_of_the_host_is_mapped_in_reservations_of_its_own),
        HOST_TEST(places_of_the_host_are_checked),
        cmocka_unit_test(token_is_read_without_taking_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

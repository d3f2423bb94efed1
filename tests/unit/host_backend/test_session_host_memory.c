/* Memory of the host by cuMemCreate: which reservations get it, what guests may not do with it. */
#include "session_fixture.h"
#include <sys/mman.h>

static CUresult elsewhere(CUdeviceptr *ret, void *p, unsigned flags)
{
    (void)flags;
    *ret = (uintptr_t)p + UNIT;
    return CUDA_SUCCESS;
}

/* Mappings are made. The thread sanitizer allows them only where the kernel puts some by itself:
 * take the low end of free addresses, since the next ones come from the high end. */
static uint64_t free_base(void)
{
    static uint64_t base;
    const uint64_t room = UINT64_C(1) << 30, alignment = UINT64_C(64) << 20;

    if (base == 0) {
        void *got = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        assert_true(got != MAP_FAILED);
        munmap(got, room);
        base = ((uintptr_t)got + alignment - 1) & ~(alignment - 1);
    }
    return base;
}
#define BASE free_base()

static void begin(void)
{
    f.worker.config.vmm_base = BASE;
    weir_account_limit_set(&f.tenant->account, WEIR_ACCOUNT_PINNED_MEMORY, 4 * UNIT);
}

static CUresult create(uint32_t index, uint64_t bytes)
{
    struct weir_op_vmm_create_host_in in = {.h = name(WEIR_KIND_CHUNK, index), .bytes = bytes};

    return call(WEIR_OP_vmm_create_host, &in, NULL);
}

static CUresult map(enum weir_op op, uint32_t index, uint64_t address)
{
    struct weir_op_vmm_map_in on_device = {
        .address = address, .bytes = UNIT, .h = name(WEIR_KIND_CHUNK, index)};
    struct weir_op_vmm_map_host_in on_host = {.address = address, .bytes = UNIT, .h = on_device.h};

    return call(op, op == WEIR_OP_vmm_map ? (const void *)&on_device : &on_host, NULL);
}

static CUresult change(enum weir_op op, uint64_t address)
{
    struct weir_op_vmm_unmap_in unmap = {.address = address, .bytes = UNIT};
    struct weir_op_vmm_access_in access = {.address = address, .bytes = UNIT, .flags = 3};

    return call(op, op == WEIR_OP_vmm_unmap ? (const void *)&unmap : &access, NULL);
}

static void reserve_two_units(void)
{
    struct weir_op_vmm_reserve_any_in in = {.bytes = 2 * UNIT};

    assert_int_equal(call(WEIR_OP_vmm_reserve_any, &in, NULL), CUDA_SUCCESS);
}

static void create_on_device(uint32_t index)
{
    struct weir_op_vmm_create_in in = {.h = name(WEIR_KIND_CHUNK, index), .bytes = UNIT};

    assert_int_equal(call(WEIR_OP_vmm_create, &in, NULL), CUDA_SUCCESS);
}

/* The processor reads and writes it where the guest has mapped it. */
static void it_is_mapped_where_nothing_of_a_device_is(void **state)
{
    const uint64_t at = BASE;

    (void)state;
    make_context();
    begin();
    assert_int_equal(create(1, UNIT), CUDA_SUCCESS);
    create_on_device(2);
    reserve_two_units();
    assert_int_equal(map(WEIR_OP_vmm_map_host, 1, at), CUDA_SUCCESS);
    *(volatile unsigned *)(uintptr_t)at = 77;
    assert_int_equal(change(WEIR_OP_vmm_access, at), CUDA_SUCCESS);
    assert_int_equal(map(WEIR_OP_vmm_map, 2, at + UNIT), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(change(WEIR_OP_vmm_unmap, at), CUDA_SUCCESS);
    assert_int_equal(map(WEIR_OP_vmm_map, 2, at + UNIT), CUDA_SUCCESS);
    assert_int_equal(map(WEIR_OP_vmm_map_host, 1, at), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(change(WEIR_OP_vmm_unmap, at + UNIT), CUDA_SUCCESS);
    assert_int_equal(map(WEIR_OP_vmm_map_host, 1, at), CUDA_SUCCESS);
    assert_int_equal(*(volatile unsigned *)(uintptr_t)at, 77);
}

static void it_is_charged_as_pinned_memory(void **state)
{
    struct weir_op_vmm_release_in release = {.h = name(WEIR_KIND_CHUNK, 1)};

    (void)state;
    make_context();
    begin();
    assert_int_equal(create(1, 3 * UNIT), CUDA_SUCCESS);
    assert_true(weir_account_used(&f.tenant->account, WEIR_ACCOUNT_PINNED_MEMORY) == 3 * UNIT);
    assert_int_equal(create(2, 2 * UNIT), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(call(WEIR_OP_vmm_release, &release, NULL), CUDA_SUCCESS);
    assert_true(weir_account_used(&f.tenant->account, WEIR_ACCOUNT_PINNED_MEMORY) == 0);
    assert_int_equal(create(2, 2 * UNIT), CUDA_SUCCESS);
}

static void lies_are_refused(void **state)
{
    (void)state;
    make_context();
    begin();
    assert_int_equal(create(1, UNIT), CUDA_SUCCESS);
    create_on_device(2);
    assert_int_equal(create(3, UNIT + 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(create(3, 0), CUDA_ERROR_INVALID_VALUE);
    reserve_two_units();
    assert_int_equal(map(WEIR_OP_vmm_map_host, 1, BASE + 2 * UNIT), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(map(WEIR_OP_vmm_map_host, 2, BASE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(map(WEIR_OP_vmm_map_host, 9, BASE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(map(WEIR_OP_vmm_map, 1, BASE), CUDA_ERROR_INVALID_VALUE);
}

/* Who is refused by cuMemCreate does without; later it would be too late. */
static void a_driver_that_cannot_is_found_out_at_once(void **state)
{
    (void)state;
    make_context();
    begin();
    f.worker.platform.driver.cuMemHostGetDevicePointer_v2 = elsewhere;
    assert_int_equal(create(1, UNIT), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(create(1, UNIT), CUDA_ERROR_NOT_SUPPORTED);
    assert_true(weir_account_used(&f.tenant->account, WEIR_ACCOUNT_PINNED_MEMORY) == 0);
}

#define SESSION_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SESSION_TEST(it_is_mapped_where_nothing_of_a_device_is),
        SESSION_TEST(it_is_charged_as_pinned_memory),
        SESSION_TEST(lies_are_refused),
        SESSION_TEST(a_driver_that_cannot_is_found_out_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

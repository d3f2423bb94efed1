/* host_backend/worker/memory/spare.c: memory that a session has returned, and gets again. */
#include "host_backend/worker/memory/spare.h"

#include "session_fixture.h"

#define MIB         (1u << 20)
#define WINDOW_BASE (UINT64_C(1) << 44)

/* What there is of a chunk in the driver: its memory and a mapping. */
#define OF_CHUNK 2

static int at_first; /* in the driver, before any chunk */
static atomic_int n_made;

static CUresult count_made(CUmemGenericAllocationHandle *ret, size_t bytes,
                           const CUmemAllocationProp *prop, unsigned long long flags)
{
    atomic_fetch_add(&n_made, 1);
    return fake_memory_create(ret, bytes, prop, flags);
}

/* The device is full as long as there is spare memory. */
static CUresult refuse_beside_spares(CUmemGenericAllocationHandle *ret, size_t bytes,
                                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    return atomic_load(&spin_page.spares) != 0 ? CUDA_ERROR_OUT_OF_MEMORY
                                               : count_made(ret, bytes, prop, flags);
}

static void have_window(void)
{
    f.worker.config.window_bytes = UINT64_C(1) << 36;
    f.worker.platform.spares = weir_spares_create();
    f.worker.platform.driver.cuMemCreate = count_made;
    assert_non_null(f.worker.platform.spares);
    assert_int_equal(weir_window_init(&f.tenant->device_window, WINDOW_BASE, UINT64_C(1) << 35),
                     WEIR_OK);
}

static int begin(void **state)
{
    prepare = have_window;
    if (set_up(state) != 0) {
        return 1;
    }
    make_context();
    assert_int_equal(call(WEIR_OP_echo, &(struct weir_op_echo_in){0}, NULL), CUDA_SUCCESS);
    at_first = fake_live;
    atomic_store(&n_made, 0);
    return 0;
}

/* The session's end releases what is spare, too: nothing may live then. */
static int end(void **state)
{
    struct weir_spares *spares = f.worker.platform.spares;
    int failed = tear_down(state);

    weir_spares_destroy(spares);
    return failed;
}

static struct weir_op_mem_grant_out grant(uint64_t bytes)
{
    struct weir_op_mem_grant_in in = {
        .c = name(WEIR_KIND_CONTEXT, 1), .bytes = bytes, .kind = WEIR_GRANT_DEVICE};
    struct weir_op_mem_grant_out out;
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    assert_int_equal(send_op(WEIR_OP_mem_grant, 0, &in), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &record, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S), WEIR_OK);
    assert_int_equal(record->status, CUDA_SUCCESS);
    assert_true(weir_ops[WEIR_OP_mem_grant].out_decode(record + 1,
                                                       record->len_bytes - sizeof *record, &out));
    await_handled();
    return out;
}

static void give_back(const struct weir_op_mem_grant_out *granted)
{
    struct weir_op_mem_return_in in = {.chunk = granted->chunk};

    assert_int_equal(call(WEIR_OP_mem_return, &in, NULL), CUDA_SUCCESS);
}

static uint64_t used(void)
{
    return weir_account_used(&f.tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY);
}

static void memory_comes_back_to_who_has_had_it(void **state)
{
    struct weir_op_mem_grant_out first = grant(8 * MIB), second, other;

    (void)state;
    give_back(&first);
    assert_true(used() == 0); /* others may have as much */
    assert_int_equal(fake_live, at_first + OF_CHUNK);
    assert_int_equal(atomic_load(&spin_page.spares), 1);
    other = grant(16 * MIB); /* of another size */
    second = grant(8 * MIB);
    assert_true(second.base == first.base);
    assert_true(used() == 24 * MIB);
    assert_int_equal(atomic_load(&n_made), 2);
    assert_int_equal(atomic_load(&spin_page.spares), 0);
    give_back(&second);
    give_back(&other);
}

/* A session is a program: what one has freed no other may see. */
static void another_session_gets_none(void **state)
{
    struct weir_op_mem_grant_out granted = grant(8 * MIB);
    struct weir_session another = {.worker = f.session->worker};

    (void)state;
    give_back(&granted);
    assert_null(weir_spare_take(&another, 0, 8 * MIB));
    assert_null(weir_spare_take(f.session, 1, 8 * MIB)); /* it lies on another device */
}

static void no_more_is_kept_than_an_eighth(void **state)
{
    struct weir_op_mem_grant_out granted[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        granted[i] = grant((i == 3 ? 256 : 64) * MIB);
    }
    for (int i = 0; i < 4; i++) { /* of 1 GiB; the last is too large by itself */
        give_back(&granted[i]);
    }
    assert_int_equal(atomic_load(&spin_page.spares), 2);
    assert_int_equal(fake_live, at_first + 2 * OF_CHUNK);
    assert_true(grant(64 * MIB).base == granted[2].base); /* the oldest has gone */
}

static void spare_memory_goes_when_the_device_has_none(void **state)
{
    struct weir_op_mem_grant_out granted = grant(8 * MIB);

    (void)state;
    give_back(&granted);
    f.worker.platform.driver.cuMemCreate = refuse_beside_spares;
    (void)grant(16 * MIB);
    assert_int_equal(fake_live, at_first + OF_CHUNK);
}

static void spare_memory_goes_after_a_second(void **state)
{
    struct weir_op_mem_grant_out granted = grant(8 * MIB);

    (void)state;
    assert_false(weir_spares_age(&f.worker, weir_clock_now_ns()));
    give_back(&granted);
    assert_true(weir_spares_age(&f.worker, weir_clock_now_ns()));
    assert_false(weir_spares_age(&f.worker, weir_clock_now_ns() + WEIR_NS_PER_S));
    assert_int_equal(fake_live, at_first);
    assert_int_equal(atomic_load(&spin_page.spares), 0);
}

/* The device has no more than that. */
static CUresult mem_info(size_t *ret_free, size_t *ret_total)
{
    *ret_free = 4 * MIB;
    *ret_total = 1024 * MIB;
    return CUDA_SUCCESS;
}

static void spare_memory_counts_as_free(void **state)
{
    struct weir_op_mem_grant_out granted = grant(8 * MIB);
    struct weir_op_mem_info_out out;
    struct weir_op_mem_info_in in = {0};
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    (void)state;
    give_back(&granted);
    f.worker.platform.driver.cuMemGetInfo_v2 = mem_info;
    assert_int_equal(send_op(WEIR_OP_mem_info, 0, &in), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &record, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S), WEIR_OK);
    assert_true(weir_ops[WEIR_OP_mem_info].out_decode(record + 1,
                                                      record->len_bytes - sizeof *record, &out));
    await_handled();
    assert_true(out.free == 12 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_comes_back_to_who_has_had_it, begin, end),
        cmocka_unit_test_setup_teardown(another_session_gets_none, begin, end),
        cmocka_unit_test_setup_teardown(no_more_is_kept_than_an_eighth, begin, end),
        cmocka_unit_test_setup_teardown(spare_memory_goes_when_the_device_has_none, begin, end),
        cmocka_unit_test_setup_teardown(spare_memory_goes_after_a_second, begin, end),
        cmocka_unit_test_setup_teardown(spare_memory_counts_as_free, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

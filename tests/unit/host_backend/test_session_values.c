/* A session's stream memory operations: values written, values waited for, and memory that may only
 * be read. */
#include "host_backend/worker/device/awaited.h"

#include "base/memfd.h"
#include "host_backend/worker/state/handles.h"
#include "session_fixture.h"
#include <sys/mman.h>
#include <unistd.h>

/* A write that faults would end the context of all tenants. */
static void node_that_writes_read_only_memory_is_refused(void **state)
{
    static const struct {
        CUstreamBatchMemOpType operation;
        CUresult want;
    } rows[] = {{CU_STREAM_MEM_OP_WRITE_VALUE_32, CUDA_ERROR_INVALID_VALUE},
                {CU_STREAM_MEM_OP_WRITE_VALUE_64, CUDA_ERROR_INVALID_VALUE},
                {CU_STREAM_MEM_OP_WAIT_VALUE_32, CUDA_SUCCESS},
                {CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, CUDA_ERROR_NOT_SUPPORTED}};
    CUstreamBatchMemOpParams op = {0};
    struct weir_op_graph_add_memops_in in = {.g = name(WEIR_KIND_GRAPH, 1), .ops = &op, .n_ops = 1};

    (void)state;
    map_read_only();
    make_graph(1);
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        op.operation = rows[i].operation;
        op.writeValue.address = FAKE_VMM_BASE + 64;
        in.n = name(WEIR_KIND_NODE, i + 1);
        assert_int_equal(call(WEIR_OP_graph_add_memops, &in, NULL), rows[i].want);
    }
}

/* The end writes what streams still wait for: never to memory that may only be read. */
static void wait_for_read_only_memory_is_left(void **state)
{
    struct weir_op_stream_value_in in = {
        .s = name(WEIR_KIND_STREAM, 1), .address = FAKE_VMM_BASE, .value = 7, .kind = 1};
    uint32_t error;

    (void)state;
    map_read_only();
    assert_int_equal(send_op(WEIR_OP_stream_value, WEIR_RECORD_POSTED, &in), WEIR_OK);
    assert_int_equal(deferred(&error), 0);
    assert_int_equal(fake_noted("write"), 0);
}

static void wait_can_end_if_there_is_a_value_for_it(void **state)
{
    static const struct {
        uint32_t flags;
        uint64_t value;
        bool wide, can_come;
    } rows[] = {{CU_STREAM_WAIT_VALUE_AND, 0, false, false},
                {CU_STREAM_WAIT_VALUE_AND, 0, true, false},
                {CU_STREAM_WAIT_VALUE_AND, UINT64_C(1) << 32, false, false},
                {CU_STREAM_WAIT_VALUE_AND, UINT64_C(1) << 32, true, true},
                {CU_STREAM_WAIT_VALUE_NOR, UINT32_MAX, false, false},
                {CU_STREAM_WAIT_VALUE_NOR, UINT32_MAX, true, true},
                {CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH, UINT64_MAX, true, false},
                {CU_STREAM_WAIT_VALUE_NOR, 0, false, true},
                {CU_STREAM_WAIT_VALUE_EQ, 0, false, true},
                {CU_STREAM_WAIT_VALUE_GEQ, UINT64_MAX, true, true}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(weir_awaited_can_come(rows[i].value, rows[i].flags, rows[i].wide),
                         rows[i].can_come);
    }
}

/* The end of a session could not end it: its streams, and its memory, would stay for ever. */
static void wait_that_no_value_ends_is_refused(void **state)
{
    struct weir_op_stream_value_in wait = {.s = name(WEIR_KIND_STREAM, 1),
                                           .address = FAKE_VMM_BASE,
                                           .flags = CU_STREAM_WAIT_VALUE_AND,
                                           .kind = WEIR_VALUE_WAIT32};
    CUstreamBatchMemOpParams op = {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64,
                                                 .address = FAKE_VMM_BASE,
                                                 .flags = CU_STREAM_WAIT_VALUE_AND}};
    struct weir_op_graph_add_memops_in node = {
        .g = name(WEIR_KIND_GRAPH, 1), .n = name(WEIR_KIND_NODE, 1), .ops = &op, .n_ops = 1};
    uint32_t error;

    (void)state;
    map_read_only();
    make_graph(1);
    assert_int_equal(send_op(WEIR_OP_stream_value, WEIR_RECORD_POSTED, &wait), WEIR_OK);
    assert_int_equal(deferred(&error), 1);
    assert_int_equal(error, CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(call(WEIR_OP_graph_add_memops, &node, NULL), CUDA_ERROR_INVALID_VALUE);
    op.waitValue.value64 = UINT64_C(1) << 32;
    assert_int_equal(call(WEIR_OP_graph_add_memops, &node, NULL), CUDA_SUCCESS);
}

static void wait_in_stream(uint32_t index)
{
    struct weir_op_stream_value_in in = {.s = name(WEIR_KIND_STREAM, index),
                                         .address = FAKE_VMM_BASE,
                                         .value = 7,
                                         .kind = WEIR_VALUE_WAIT32};

    assert_int_equal(send_op(WEIR_OP_stream_value, WEIR_RECORD_POSTED, &in), WEIR_OK);
}

static uint64_t objects_after_destroying(uint32_t index)
{
    struct weir_op_stream_destroy_in in = {.s = name(WEIR_KIND_STREAM, index)};
    uint32_t error;

    assert_int_equal(send_op(WEIR_OP_stream_destroy, WEIR_RECORD_POSTED, &in), WEIR_OK);
    assert_int_equal(deferred(&error), 0);
    return atomic_load(&f.worker.counts.objects);
}

/* Nobody would write the value that it waits for, nor know that it waits. */
static void destroyed_stream_that_waits_stays_until_it_is_done(void **state)
{
    uint64_t objects;
    uint32_t error;

    (void)state;
    map_read_only();
    make_stream(2);
    make_stream(3);
    wait_in_stream(2);
    assert_int_equal(deferred(&error), 0);
    objects = atomic_load(&f.worker.counts.objects);
    assert_int_equal(objects_after_destroying(2), objects);
    fake_stuck = false;
    assert_int_equal(objects_after_destroying(3), objects - 2);
}

/* ---------------------------------------------------------------- what is kept of them */

/* Or the session would never end: see tear_down(). */
static void the_end_writes_what_is_waited_for_however_much_was_before(void **state)
{
    struct weir_op_stream_value_in in = {
        .s = name(WEIR_KIND_STREAM, 2), .value = 7, .kind = WEIR_VALUE_WAIT32};
    uint32_t error;

    (void)state;
    map_read_only();
    make_stream(2);
    wait_in_stream(1);
    for (uint32_t i = 1; i <= 1100; i++) {
        in.address = FAKE_VMM_BASE + 4 * (uint64_t)i;
        assert_int_equal(send_op(WEIR_OP_stream_value, WEIR_RECORD_POSTED, &in), WEIR_OK);
    }
    assert_int_equal(deferred(&error), 0);
}

/* A session of which only this part is there. */
static struct weir_driver kept_driver;
static struct weir_handles *kept_handles;
static struct weir_host_ctx kept_ctx;
static struct weir_host_stream kept_streams[2];
static struct weir_session kept;
static CUstream stuck_stream;        /* does nothing any more */
static CUstream stream_of_event[16]; /* that it was recorded in */

static CUresult record_event(CUevent event, CUstream stream)
{
    stream_of_event[(uintptr_t)event - 100] = stream;
    return CUDA_SUCCESS;
}

static CUresult query_stream(CUstream stream)
{
    return stream == stuck_stream ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult query_event(CUevent event)
{
    return query_stream(stream_of_event[(uintptr_t)event - 100]);
}

static int set_up_kept(void **state)
{
    (void)state;
    fake_driver_init(&kept_driver);
    kept_driver.cuEventRecord = record_event;
    kept_driver.cuEventQuery = query_event;
    kept_driver.cuStreamQuery = query_stream;
    kept_handles = weir_handles_create();
    assert_non_null(kept_handles);
    kept_handles->contexts = &kept_ctx;
    kept_ctx = (struct weir_host_ctx){.streams = &kept_streams[0]};
    memset(kept_streams, 0, sizeof kept_streams);
    kept_streams[0].next = &kept_streams[1];
    for (uintptr_t i = 0; i < 2; i++) {
        kept_streams[i].o.native = (CUstream)(i + 1);
    }
    kept = (struct weir_session){
        .driver = &kept_driver, .handles = kept_handles, .awaited = weir_awaited_create()};
    assert_non_null(kept.awaited);
    stuck_stream = NULL;
    return 0;
}

static int tear_down_kept(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        weir_awaited_stream_gone(&kept, &kept_streams[i]);
    }
    assert_int_equal(fake_live, 0);
    weir_awaited_destroy(kept.awaited);
    weir_handles_destroy(kept_handles);
    return 0;
}

static CUresult note(struct weir_host_stream *stream, uint64_t address)
{
    return weir_awaited_note(&kept, stream, address, 7, false);
}

static void what_streams_have_passed_is_forgotten_and_nothing_else(void **state)
{
    (void)state;
    stuck_stream = kept_streams[0].o.native;
    assert_int_equal(note(&kept_streams[0], 8), CUDA_SUCCESS);
    assert_int_equal(note(NULL, 16), CUDA_SUCCESS);
    for (uint64_t i = 0; i < 1000; i++) {
        assert_int_equal(note(&kept_streams[1], 1024 + i * 8), CUDA_SUCCESS);
    }
    assert_true(weir_awaited_within(&kept, 8, 8));
    assert_true(weir_awaited_within(&kept, 16, 8));
    assert_false(weir_awaited_within(&kept, 1024, 8 * 800));
    assert_true(weir_awaited_within(&kept, 1024 + 8 * 999, 8));
}

static void what_a_destroyed_stream_may_wait_for_is_kept(void **state)
{
    (void)state;
    stuck_stream = kept_streams[0].o.native;
    assert_int_equal(note(&kept_streams[0], 8), CUDA_SUCCESS);
    assert_int_equal(note(&kept_streams[1], 16), CUDA_SUCCESS);
    weir_awaited_stream_gone(&kept, &kept_streams[0]);
    weir_awaited_stream_gone(&kept, &kept_streams[1]);
    assert_true(weir_awaited_within(&kept, 8, 8));
    assert_false(weir_awaited_within(&kept, 16, 8));
}

/* One that is not remembered might go on for ever. */
static void a_wait_that_cannot_be_remembered_is_refused(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2 * WEIR_AWAITED_MAX; i++) { /* a value counts once */
        assert_int_equal(note(NULL, 8 * (i % 32)), CUDA_SUCCESS);
    }
    for (uint64_t i = 32; i < WEIR_AWAITED_MAX; i++) {
        assert_int_equal(note(NULL, 8 * i), CUDA_SUCCESS);
    }
    assert_int_equal(note(NULL, 8 * (uint64_t)WEIR_AWAITED_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(weir_awaited_within(&kept, 0, 8));
}

/* ---------------------------------------------------------------- registered memory */

#define FILE_BYTES 4096
/* Where this process has nothing; ThreadSanitizer allows no mappings much lower. */
#define FILE_AT UINT64_C(0x7e9000000000)

static void register_file(uint32_t flags)
{
    struct weir_op_host_register_in in = {
        .c = name(WEIR_KIND_CONTEXT, 1), .address = FILE_AT, .bytes = FILE_BYTES, .flags = flags};
    int fd = weir_memfd_sealed("pages", FILE_BYTES);

    assert_true(fd >= 0);
    assert_int_equal(f.guest->ops->send_fd(f.guest, fd), WEIR_OK);
    close(fd);
    assert_int_equal(call(WEIR_OP_host_register, &in, NULL), CUDA_SUCCESS);
}

static void write_to_memory_that_is_registered_read_only_is_refused(void **state)
{
    static const uint32_t flags[] = {CU_MEMHOSTREGISTER_READ_ONLY, 0};
    struct weir_op_stream_value_in write = {
        .s = name(WEIR_KIND_STREAM, 1), .address = FILE_AT + 64, .kind = WEIR_VALUE_WRITE32};
    struct weir_op_host_unregister_in unregister = {.device_address = FILE_AT};
    uint32_t error;

    (void)state;
    make_context();
    for (uint32_t i = 0; i < 2; i++) {
        register_file(flags[i]);
        assert_int_equal(send_op(WEIR_OP_stream_value, WEIR_RECORD_POSTED, &write), WEIR_OK);
        assert_int_equal(deferred(&error), 1); /* the first alone */
        assert_int_equal(error, CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(call(WEIR_OP_host_unregister, &unregister, NULL), CUDA_SUCCESS);
    }
}

/* In the driver, which would wait too, the session's thread could not see that the guest goes. */
static void unregistering_waits_for_values_outside_the_driver(void **state)
{
    struct weir_op_host_unregister_in in = {.device_address = FILE_AT};
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    (void)state;
    map_read_only();
    register_file(0);
    wait_in_stream(1);
    assert_int_equal(send_op(WEIR_OP_host_unregister, 0, &in), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &record, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_MS),
        WEIR_ERR_TIMED_OUT);
    fake_stuck = false;
    assert_int_equal(
        f.guest->ops->receive(f.guest, &record, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S), WEIR_OK);
    assert_int_equal(record->status, CUDA_SUCCESS);
}

/* ---------------------------------------------------------------- replaced pages */

static CUresult replace(uint64_t address, uint64_t bytes, struct weir_op_host_replace_out *out)
{
    struct weir_op_host_replace_in in = {
        .c = name(WEIR_KIND_CONTEXT, 1), .address = address, .bytes = bytes};
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    assert_int_equal(send_op(WEIR_OP_host_replace, 0, &in), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &record, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S), WEIR_OK);
    await_handled();
    assert_true(
        record->status != CUDA_SUCCESS ||
        weir_ops[record->op].out_decode(record + 1, record->len_bytes - sizeof *record, out));
    return (CUresult)record->status;
}

static CUresult replaced(uint64_t device)
{
    struct weir_op_host_replaced_in in = {.device_address = device};

    return call(WEIR_OP_host_replaced, &in, NULL);
}

static CUresult unregister(uint64_t device)
{
    struct weir_op_host_unregister_in in = {.device_address = device};

    return call(WEIR_OP_host_unregister, &in, NULL);
}

/* The guest's mapping of the file that came with the reply. */
static uint32_t *map_replacement(uint64_t bytes)
{
    void *at;
    int fd;

    assert_int_equal(f.guest->ops->receive_fd(f.guest, 5 * WEIR_NS_PER_S, &fd), WEIR_OK);
    assert_int_equal(ftruncate(fd, 0), -1); /* sealed: the worker never finds it shorter */
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    close(fd);
    return at;
}

static void replaced_pages_are_the_workers_and_reached_when_the_guest_says_so(void **state)
{
    struct weir_op_stream_value_in write = {
        .s = name(WEIR_KIND_STREAM, 1), .address = FILE_AT + 64, .kind = WEIR_VALUE_WRITE32};
    struct weir_op_host_replace_out out;
    uint32_t *mine, error;

    (void)state;
    make_context();
    assert_int_equal(replace(FILE_AT, FILE_BYTES, &out), CUDA_SUCCESS);
    assert_int_equal(out.device_address, FILE_AT);
    mine = map_replacement(FILE_BYTES);
    mine[0] = 4711;
    assert_int_equal(*(volatile uint32_t *)FILE_AT, 4711);
    assert_int_equal(send_op(WEIR_OP_stream_value, WEIR_RECORD_POSTED, &write), WEIR_OK);
    assert_int_equal(deferred(&error), 1); /* not yet */
    assert_int_equal(replaced(FILE_AT), CUDA_SUCCESS);
    assert_int_equal(replaced(FILE_AT), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(send_op(WEIR_OP_stream_value, WEIR_RECORD_POSTED, &write), WEIR_OK);
    assert_int_equal(deferred(&error), 1);
    assert_int_equal(unregister(FILE_AT + 64), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_int_equal(unregister(FILE_AT), CUDA_SUCCESS);
    assert_int_equal(unregister(FILE_AT), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_int_equal(mine[0], 4711); /* the guest's mapping keeps it */
    munmap(mine, FILE_BYTES);
}

/* What the guest says is checked, and what it forgets goes with the session. */
static void replacements_that_make_no_sense_are_refused(void **state)
{
    struct weir_op_host_replace_out out;
    uint64_t pinned;

    (void)state;
    make_context();
    pinned = weir_account_used(&f.session->tenant->account, WEIR_ACCOUNT_PINNED_MEMORY);
    assert_int_equal(replace(FILE_AT, 0, &out), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(replace(FILE_AT + 1, FILE_BYTES, &out), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(replace(FILE_AT, FILE_BYTES + 1, &out), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(replace(0, FILE_BYTES, &out), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(replace(FILE_AT, ~UINT64_C(0) & ~UINT64_C(4095), &out),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(replaced(FILE_AT), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_account_used(&f.session->tenant->account, WEIR_ACCOUNT_PINNED_MEMORY),
                     pinned);
    atomic_store(&fake_refusals, 1); /* by the driver */
    assert_int_equal(replace(FILE_AT, FILE_BYTES, &out), CUDA_SUCCESS);
    munmap(map_replacement(FILE_BYTES), FILE_BYTES);
    assert_int_not_equal(replaced(FILE_AT), CUDA_SUCCESS);
    assert_int_equal(unregister(FILE_AT), CUDA_SUCCESS);
    assert_int_equal(replace(FILE_AT, FILE_BYTES, &out), CUDA_SUCCESS);
    munmap(map_replacement(FILE_BYTES), FILE_BYTES);
}

static int tear_down_after_wait(void **state)
{
    int result = tear_down(state);

    assert_int_not_equal(fake_noted("access(3,1) write"), 0);
    return result;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(node_that_writes_read_only_memory_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(wait_for_read_only_memory_is_left, set_up,
                                        tear_down_after_wait),
        cmocka_unit_test(wait_can_end_if_there_is_a_value_for_it),
        cmocka_unit_test_setup_teardown(destroyed_stream_that_waits_stays_until_it_is_done, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(write_to_memory_that_is_registered_read_only_is_refused,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(unregistering_waits_for_values_outside_the_driver, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            replaced_pages_are_the_workers_and_reached_when_the_guest_says_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replacements_that_make_no_sense_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(wait_that_no_value_ends_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_writes_what_is_waited_for_however_much_was_before,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_streams_have_passed_is_forgotten_and_nothing_else,
                                        set_up_kept, tear_down_kept),
        cmocka_unit_test_setup_teardown(what_a_destroyed_stream_may_wait_for_is_kept, set_up_kept,
                                        tear_down_kept),
        cmocka_unit_test_setup_teardown(a_wait_that_cannot_be_remembered_is_refused, set_up_kept,
                                        tear_down_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

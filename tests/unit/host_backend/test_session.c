/* A session over the in-process transport and a recording driver: records in, objects, replies, the
 * end. */
#include "host_backend/worker/session/awaited.h"
#include "host_backend/worker/session/contexts.h"
#include "host_backend/worker/session/device_idle.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/session/tenant.h"
#include "host_backend/worker/session/vmm.h"
#include "host_backend/worker/session/vmm_area.h"
#include "host_backend/worker/session/worker.h"
#include "host_backend/worker/sessions.h"

#include "../../lib/tl_cmocka.h"
#include "base/clock.h"
#include "base/memfd.h"
#include "fake_driver.h"
#include "proto/ops.h"
#include "proto/wire/op_kinds.h"
#include <unistd.h>

#define ARENA_BYTES (2u << 20)
#define UNIT        (2u << 20)
#define WORDS_BYTES (64u * 4)

struct fixture {
    struct weir_worker worker;
    struct weir_tenant *tenant;
    struct weir_transport *guest;
    struct weir_session *session;
    pthread_t thread;
    uint64_t seq;
    uint8_t device; /* in the headers of records */
};

static struct fixture f;
static struct weir_spin_page spin_page = {.level = WEIR_SPIN_ALL};

static void *run(void *argument)
{
    weir_session_run(argument);
    weir_session_clear(argument);
    weir_session_destroy(argument);
    return NULL;
}

static int set_up(void **state)
{
    struct weir_tenant_config config = {.name = "a", .weight = 1, .sessions_max = 1};
    struct weir_segment_params sizes = {
        .n_words = 64, .ring_bytes = 1 << 16, .arena_bytes = ARENA_BYTES};
    struct weir_session_params params = {.worker = &f.worker, .id = 1, .program = "test"};

    (void)state;
    memset(&f, 0, sizeof f);
    fake_driver_init(&f.worker.platform.driver);
    f.worker.platform.spin.page = &spin_page;
    f.worker.wake_fd = f.worker.link = -1;
    f.worker.platform.granularity_bytes = UNIT;
    f.worker.config.vmm_base = FAKE_VMM_BASE;
    f.worker.config.vmm_bytes = FAKE_VMM_BYTES;
    f.worker.vmm_area = weir_vmm_area_create();
    f.worker.device_idle = weir_device_idle_create();
    assert_true(f.worker.vmm_area != NULL && f.worker.device_idle != NULL);
    f.worker.platform.n_devices = 2;
    for (uint32_t i = 0; i < 2; i++) {
        f.worker.platform.devices[i].context = (CUcontext)(uintptr_t)(100 + i);
        f.worker.platform.devices[i].write_value_ok = true;
        atomic_store(&f.worker.platform.devices[i].is_open, true);
    }
    f.worker.platform.devices[0].about.total_memory_bytes = 1 << 30;
    pthread_mutex_init(&f.worker.lock, NULL);
    f.tenant = weir_tenant_create(&f.worker, 0, &config);
    assert_non_null(f.tenant);
    weir_account_limit_set(&f.tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY, 1 << 30);
    weir_account_limit_set(&f.tenant->account, WEIR_ACCOUNT_PINNED_MEMORY, 1 << 20);
    assert_int_equal(weir_loop_create(&sizes, &params.transport, &f.guest), WEIR_OK);
    params.tenant = f.tenant;
    assert_int_equal(weir_session_create(&params, &f.session), WEIR_OK);
    pthread_create(&f.thread, NULL, run, f.session);
    return 0;
}

/* The guest goes away; whatever it made must be gone with it. */
static int tear_down(void **state)
{
    (void)state;
    f.guest->ops->destroy(f.guest);
    pthread_join(f.thread, NULL);
    assert_int_equal(fake_live, 0);
    assert_int_equal(atomic_load(&f.worker.counts.objects), 0);
    assert_true(weir_account_used(&f.tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY) == 0);
    weir_tenant_destroy(f.tenant);
    weir_vmm_area_destroy(f.worker.vmm_area);
    weir_device_idle_destroy(&f.worker);
    pthread_mutex_destroy(&f.worker.lock);
    return 0;
}

static enum weir_status send_op(enum weir_op op, uint8_t flags, const void *in)
{
    _Alignas(8) uint8_t room[65536];
    struct weir_record *record = (struct weir_record *)(void *)room;
    size_t bytes = weir_ops[op].in_bytes(in);

    *record = (struct weir_record){.len_bytes = (uint32_t)(sizeof *record + bytes),
                                   .op = (uint16_t)op,
                                   .flags = flags,
                                   .device = f.device,
                                   .seq = ++f.seq};
    weir_ops[op].in_encode(in, record + 1);
    return f.guest->ops->send(f.guest, record, NULL, 0, WEIR_NS_PER_S);
}

/* Call and wait for the reply. */
static CUresult call(enum weir_op op, const void *in, struct weir_record *ret_record)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    assert_int_equal(send_op(op, 0, in), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &record, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S), WEIR_OK);
    assert_int_equal(record->op, op);
    assert_true(record->seq == f.seq);
    if (ret_record != NULL) {
        *ret_record = *record;
    }
    return (CUresult)record->status;
}

static uint64_t name(enum weir_kind kind, uint32_t index)
{
    return weir_handle_make((uint8_t)kind, false, 1, index);
}

static void make_context(void)
{
    struct weir_op_ctx_create_in in = {
        .c = name(WEIR_KIND_CONTEXT, 1), .legacy = name(WEIR_KIND_STREAM, 1), .legacy_word = 1};

    assert_int_equal(send_op(WEIR_OP_ctx_create, WEIR_RECORD_POSTED, &in), WEIR_OK);
}

static void make_stream(uint32_t index)
{
    struct weir_op_stream_create_in in = {
        .s = name(WEIR_KIND_STREAM, index), .c = name(WEIR_KIND_CONTEXT, 1), .word = index};

    assert_int_equal(send_op(WEIR_OP_stream_create, WEIR_RECORD_POSTED, &in), WEIR_OK);
}

/* The deferred errors counted so far, once everything sent has been handled. */
static uint32_t deferred(uint32_t *ret_error)
{
    struct weir_op_echo_in in = {.value = 7};
    struct weir_record record;

    assert_int_equal(call(WEIR_OP_echo, &in, &record), CUDA_SUCCESS);
    *ret_error = record.deferred_error;
    return record.deferred_seq;
}

static void mark_of_a_stream_writes_its_word(void **state)
{
    struct weir_op_stream_mark_in in = {.s = name(WEIR_KIND_STREAM, 2), .value = 77};
    uint32_t error;

    (void)state;
    make_context();
    make_stream(2);
    assert_int_equal(send_op(WEIR_OP_stream_mark, WEIR_RECORD_POSTED, &in), WEIR_OK);
    assert_int_equal(deferred(&error), 0);
    assert_int_equal(f.guest->ops->view(f.guest)->words[2], 77);
}

static void posted_errors_are_deferred_and_counted(void **state)
{
    struct weir_op_stream_mark_in wild = {.s = 0x1234};
    struct weir_op_copy_in copy = {.dst = 0x200000000000, .src = 0, .bytes = 16, .flags = 2};
    uint32_t error;

    (void)state;
    make_context();
    assert_int_equal(send_op(WEIR_OP_stream_mark, WEIR_RECORD_POSTED, &wild), WEIR_OK);
    assert_int_equal(deferred(&error), 1);
    assert_int_equal(error, CUDA_ERROR_INVALID_HANDLE);
    copy.s = name(WEIR_KIND_STREAM, 1);
    assert_int_equal(send_op(WEIR_OP_copy, WEIR_RECORD_POSTED, &copy), WEIR_OK);
    assert_int_equal(deferred(&error), 2);
    assert_int_equal(error, CUDA_ERROR_INVALID_VALUE); /* no memory of this session is there */
    assert_int_equal(f.guest->ops->view(f.guest)->header->deferred_seq, 2);
    assert_string_equal(fake_log, "");
}

static void handle_of_another_kind_or_used_twice_is_refused(void **state)
{
    struct weir_op_event_query_in query = {.e = name(WEIR_KIND_STREAM, 1)};
    uint32_t error;

    (void)state;
    make_context();
    assert_int_equal(call(WEIR_OP_event_query, &query, NULL), CUDA_ERROR_INVALID_HANDLE);
    make_stream(2);
    make_stream(2);
    assert_int_equal(deferred(&error), 1);
    assert_int_equal(error, CUDA_ERROR_INVALID_HANDLE);
    make_stream(1u << 23); /* over the limit of streams */
    assert_int_equal(deferred(&error), 2);
}

static void nodes_die_with_their_graph(void **state)
{
    struct weir_op_cuGraphCreate_in graph = {.phGraph = name(WEIR_KIND_GRAPH, 1)};
    struct weir_op_cuGraphAddEmptyNode_in node = {.phGraphNode = name(WEIR_KIND_NODE, 1),
                                                  .hGraph = name(WEIR_KIND_GRAPH, 1)};
    struct weir_op_cuGraphDestroy_in destroy = {.hGraph = name(WEIR_KIND_GRAPH, 1)};
    struct weir_op_graph_host_set_in set = {.n = name(WEIR_KIND_NODE, 1)};

    (void)state;
    assert_int_equal(call(WEIR_OP_cuGraphCreate, &graph, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_cuGraphAddEmptyNode, &node, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_cuGraphDestroy, &destroy, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_cuGraphDestroy, &destroy, NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(call(WEIR_OP_graph_host_set, &set, NULL), CUDA_ERROR_INVALID_HANDLE);
}

/* A copy inside the arena, which needs no other memory; returns the deferred errors so far. */
static uint32_t copy_in_arena(uint64_t dst, uint64_t src, uint64_t bytes, uint32_t *ret_error)
{
    struct weir_op_copy_in in = {
        .s = name(WEIR_KIND_STREAM, 1), .dst = dst, .src = src, .bytes = bytes, .flags = 3};

    assert_int_equal(send_op(WEIR_OP_copy, WEIR_RECORD_POSTED, &in), WEIR_OK);
    return deferred(ret_error);
}

static void arena_is_registered_part_by_part_when_used(void **state)
{
    static const struct {
        uint64_t dst, src, bytes;
        size_t registered; /* of the arena, afterwards */
    } rows[] = {{0, 4096, 4096, 256u << 10},
                {8192, 0, 4096, 256u << 10},
                {(256u << 10) - 16, 0, 16, 256u << 10},
                {ARENA_BYTES - 16, 256u << 10, 16, (256u + 768 + 1024) << 10},
                {1u << 20, 256u << 10, 768u << 10, (256u + 768 + 1024) << 10}};
    uint32_t error;

    (void)state;
    make_context();
    assert_int_equal(deferred(&error), 0);
    assert_int_equal(atomic_load(&fake_registered_bytes), WORDS_BYTES);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(copy_in_arena(rows[i].dst, rows[i].src, rows[i].bytes, &error), 0);
        assert_int_equal(atomic_load(&fake_registered_bytes), WORDS_BYTES + rows[i].registered);
    }
}

static void block_in_two_parts_or_outside_is_refused(void **state)
{
    static const uint64_t rows[][2] = {
        {(256u << 10) - 16, 32}, {0, (256u << 10) + 1},        {ARENA_BYTES - 16, 17},
        {ARENA_BYTES, 1},        {ARENA_BYTES - 16, 1u << 31}, {~0ull - 7, 16},
        {16, ~0ull - 8}};
    uint32_t error;

    (void)state;
    make_context();
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(copy_in_arena(rows[i][0], 0, rows[i][1], &error), i + 1);
        assert_int_equal(error, CUDA_ERROR_INVALID_VALUE);
    }
}

static void part_that_could_not_be_registered_is_tried_again(void **state)
{
    uint32_t error;

    (void)state;
    make_context();
    assert_int_equal(deferred(&error), 0);
    atomic_store(&fake_refusals, 1);
    assert_int_equal(copy_in_arena(0, 16, 16, &error), 1);
    assert_int_equal(error, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(atomic_load(&fake_registered_bytes), WORDS_BYTES);
    assert_int_equal(copy_in_arena(0, 16, 16, &error), 1);
    assert_int_equal(atomic_load(&fake_registered_bytes), WORDS_BYTES + (256u << 10));
}

/* Memory at the area's begin that may only be read. */
static void map_read_only(void)
{
    struct weir_op_vmm_reserve_in reserve = {.bytes = UNIT};
    struct weir_op_vmm_create_in create = {.h = name(WEIR_KIND_CHUNK, 1), .bytes = UNIT};
    struct weir_op_vmm_map_in map = {.address = FAKE_VMM_BASE, .bytes = UNIT, .h = create.h};
    struct weir_op_vmm_access_in access = {.address = FAKE_VMM_BASE, .bytes = UNIT, .flags = 1};

    make_context();
    assert_int_equal(call(WEIR_OP_vmm_reserve, &reserve, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_vmm_create, &create, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_vmm_map, &map, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_vmm_access, &access, NULL), CUDA_SUCCESS);
}

static void make_graph(uint32_t index)
{
    struct weir_op_cuGraphCreate_in in = {.phGraph = name(WEIR_KIND_GRAPH, index)};

    assert_int_equal(call(WEIR_OP_cuGraphCreate, &in, NULL), CUDA_SUCCESS);
}

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
    struct weir_op_host_unregister_in unregister = {.address = FILE_AT};
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
    struct weir_op_host_unregister_in in = {.address = FILE_AT};
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

static int tear_down_after_wait(void **state)
{
    int result = tear_down(state);

    assert_int_not_equal(fake_noted("access(3,1) write"), 0);
    return result;
}

/* Names of graphs come again: a condition of the one before must not be taken for the new one's. */
static void condition_dies_with_its_graph(void **state)
{
    struct weir_op_graph_condition_in condition = {.g = name(WEIR_KIND_GRAPH, 1)};
    struct weir_op_graph_add_conditional_in in = {
        .g = name(WEIR_KIND_GRAPH, 1), .n = name(WEIR_KIND_NODE, 1), .size = 1};
    struct weir_op_cuGraphDestroy_in destroy = {.hGraph = name(WEIR_KIND_GRAPH, 1)};

    (void)state;
    make_graph(1);
    in.handle = fake_next + 1;
    assert_int_equal(call(WEIR_OP_graph_condition, &condition, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_cuGraphDestroy, &destroy, NULL), CUDA_SUCCESS);
    make_graph(1);
    assert_int_equal(call(WEIR_OP_graph_add_conditional, &in, NULL), CUDA_ERROR_INVALID_VALUE);
    in.handle = fake_next + 1;
    assert_int_equal(call(WEIR_OP_graph_condition, &condition, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_graph_add_conditional, &in, NULL), CUDA_SUCCESS);
}

/* A driver does not survive a graph that is gone. */
static void bodies_die_with_their_node(void **state)
{
    struct weir_op_graph_condition_in condition = {.g = name(WEIR_KIND_GRAPH, 1)};
    struct weir_op_graph_add_conditional_in in = {
        .g = name(WEIR_KIND_GRAPH, 1), .n = name(WEIR_KIND_NODE, 1), .size = 2};
    struct weir_op_cuGraphDestroyNode_in destroy = {.hNode = name(WEIR_KIND_NODE, 1)};

    (void)state;
    make_graph(1);
    in.handle = fake_next + 1;
    assert_int_equal(call(WEIR_OP_graph_condition, &condition, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_graph_add_conditional, &in, NULL), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&f.worker.counts.objects), 4);
    assert_int_equal(call(WEIR_OP_cuGraphDestroyNode, &destroy, NULL), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&f.worker.counts.objects), 1);
}

/* A place that the driver does not give is lost to the tenant that asked, not to all. */
static void lost_places_are_the_tenants_own(void **state)
{
    struct weir_op_vmm_reserve_in in = {.bytes = FAKE_VMM_BYTES / 16};

    (void)state;
    fake_elsewhere = true;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(call(WEIR_OP_vmm_reserve, &in, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    }
    pthread_mutex_lock(&f.worker.vmm_area->lock);
    assert_true(weir_window_free_bytes(&f.worker.vmm_area->window) == FAKE_VMM_BYTES / 4 * 3);
    pthread_mutex_unlock(&f.worker.vmm_area->lock);
}

/* Nobody would free what a guest with a page of its own sent besides. */
static void statistics_beside_a_page_are_refused(void **state)
{
    struct weir_op_stats_put_in in = {.n_data = 0};

    (void)state;
    assert_int_equal(call(WEIR_OP_stats_put, &in, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

static void everything_is_freed_when_the_guest_vanishes(void **state)
{
    struct weir_op_event_create_in event = {.c = name(WEIR_KIND_CONTEXT, 1), .word = 9};
    struct weir_op_cuGraphCreate_in graph = {.phGraph = name(WEIR_KIND_GRAPH, 1)};
    uint32_t error;

    (void)state;
    make_context();
    for (uint32_t i = 2; i < 20; i++) {
        make_stream(i);
        event.e = name(WEIR_KIND_EVENT, i);
        assert_int_equal(send_op(WEIR_OP_event_create, WEIR_RECORD_POSTED, &event), WEIR_OK);
    }
    assert_int_equal(call(WEIR_OP_cuGraphCreate, &graph, NULL), CUDA_SUCCESS);
    assert_int_equal(deferred(&error), 0);
    /* tear_down looks */
}

static void broken_record_ends_the_session(void **state)
{
    struct weir_record record = {.len_bytes = sizeof record, .op = 60000};
    const struct weir_record *reply;
    const void *bulk;
    size_t bulk_bytes;

    (void)state;
    make_context();
    assert_int_equal(f.guest->ops->send(f.guest, &record, NULL, 0, WEIR_NS_PER_S), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &reply, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S),
        WEIR_ERR_CLOSED);
}

/* The header's device for what names none; a context's own for what does. */
static void device_of_a_record_becomes_current(void **state)
{
    struct weir_op_ctx_create_in in = {.c = name(WEIR_KIND_CONTEXT, 2),
                                       .legacy = name(WEIR_KIND_STREAM, 2),
                                       .legacy_word = 2,
                                       .device = 1};
    uint32_t error;

    (void)state;
    make_context();
    assert_int_equal(deferred(&error), 0);
    assert_int_equal(fake_noted("current"), 0);
    assert_int_equal(send_op(WEIR_OP_ctx_create, WEIR_RECORD_POSTED, &in), WEIR_OK);
    make_stream(3); /* in the first context */
    assert_int_equal(deferred(&error), 0);
    assert_int_not_equal(fake_noted("current(101,0)"), 0);
    assert_int_not_equal(fake_noted("current(101,0) current(100,0)"), 0);
    in.c = name(WEIR_KIND_CONTEXT, 4);
    in.legacy = name(WEIR_KIND_STREAM, 4);
    in.device = 2;
    assert_int_equal(send_op(WEIR_OP_ctx_create, WEIR_RECORD_POSTED, &in), WEIR_OK);
    assert_int_equal(deferred(&error), 1);
    assert_int_equal(error, CUDA_ERROR_INVALID_DEVICE);
}

/* The second device has no context yet, and can reach the first one's memory. */
static void close_second(void)
{
    static uint32_t trial[2];
    struct weir_worker_device *second = &f.worker.platform.devices[1];

    second->cu = 1;
    second->peers = 1;
    second->context = NULL;
    second->write_value_ok = false;
    atomic_store(&second->is_open, false);
    f.worker.platform.trial = trial;
}

static struct weir_op_ctx_create_in context_of_second(void)
{
    return (struct weir_op_ctx_create_in){.c = name(WEIR_KIND_CONTEXT, 2),
                                          .legacy = name(WEIR_KIND_STREAM, 2),
                                          .legacy_word = 2,
                                          .device = 1};
}

/* Memory that the session had before is accessible to a device from its first use on. */
static void device_is_opened_at_its_first_use(void **state)
{
    const struct weir_worker_device *second = &f.worker.platform.devices[1];
    struct weir_op_ctx_create_in in = context_of_second();
    struct weir_op_echo_in echo = {.value = 1};

    (void)state;
    close_second();
    make_context();
    map_read_only();
    f.device = 1; /* as after cuCtxSetCurrent() of a context that is not active yet */
    assert_int_equal(call(WEIR_OP_echo, &echo, NULL), CUDA_SUCCESS);
    assert_int_equal(fake_opened, 0);
    assert_int_equal(fake_noted("current"), 0);
    assert_int_equal(fake_noted("access(1,2)"), 0);
    assert_int_equal(call(WEIR_OP_ctx_create, &in, NULL), CUDA_SUCCESS);
    assert_int_equal(fake_opened, 1);
    assert_true(weir_device_is_open(second) && second->write_value_ok &&
                second->limits[0] == FAKE_LIMIT);
    assert_int_not_equal(fake_noted("access(1,2)"), 0);
    assert_int_not_equal(fake_noted("current(101,0) current(100,0) access(1,2) current(101,0)"), 0);
    assert_int_equal(call(WEIR_OP_echo, &echo, NULL), CUDA_SUCCESS);
    assert_int_equal(fake_opened, 1);
}

static void device_that_cannot_be_opened_is_tried_again(void **state)
{
    struct weir_op_ctx_create_in in = context_of_second();
    struct weir_op_vmm_create_in create = {
        .h = name(WEIR_KIND_CHUNK, 1), .bytes = UNIT, .device = 1};

    (void)state;
    close_second();
    make_context();
    fake_full = 2;
    assert_int_equal(call(WEIR_OP_ctx_create, &in, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(call(WEIR_OP_vmm_create, &create, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_false(weir_device_is_open(&f.worker.platform.devices[1]));
    assert_int_equal(fake_noted("current"), 0); /* the session is where it was */
    make_stream(3);
    assert_int_equal(call(WEIR_OP_vmm_create, &create, NULL), CUDA_SUCCESS);
    assert_int_equal(fake_opened, 1);
    assert_int_equal(call(WEIR_OP_ctx_create, &in, NULL), CUDA_SUCCESS);
    assert_int_equal(fake_opened, 1);
}

static void *open_second(void *unused)
{
    (void)unused;
    assert_int_equal(weir_worker_device_open(&f.worker, 1), CUDA_SUCCESS);
    assert_ptr_equal(f.worker.platform.devices[1].context, (CUcontext)101);
    return NULL;
}

static void device_is_opened_once_by_two_at_once(void **state)
{
    struct weir_op_ctx_create_in in = context_of_second();
    pthread_t other;

    (void)state;
    close_second();
    assert_int_equal(pthread_create(&other, NULL, open_second, NULL), 0);
    assert_int_equal(call(WEIR_OP_ctx_create, &in, NULL), CUDA_SUCCESS);
    pthread_join(other, NULL);
    assert_int_equal(fake_opened, 1);
}

static void impossible_device_ends_the_session(void **state)
{
    struct weir_record record = {.len_bytes = sizeof record, .op = WEIR_OP_echo, .device = 2};
    const struct weir_record *reply;
    const void *bulk;
    size_t bulk_bytes;

    (void)state;
    assert_int_equal(f.guest->ops->send(f.guest, &record, NULL, 0, WEIR_NS_PER_S), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &reply, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S),
        WEIR_ERR_CLOSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(mark_of_a_stream_writes_its_word, set_up, tear_down),
        cmocka_unit_test_setup_teardown(posted_errors_are_deferred_and_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(handle_of_another_kind_or_used_twice_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nodes_die_with_their_graph, set_up, tear_down),
        cmocka_unit_test_setup_teardown(arena_is_registered_part_by_part_when_used, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(block_in_two_parts_or_outside_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(part_that_could_not_be_registered_is_tried_again, set_up,
                                        tear_down),
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
        cmocka_unit_test_setup_teardown(wait_that_no_value_ends_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(condition_dies_with_its_graph, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bodies_die_with_their_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lost_places_are_the_tenants_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(statistics_beside_a_page_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(everything_is_freed_when_the_guest_vanishes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(broken_record_ends_the_session, set_up, tear_down),
        cmocka_unit_test_setup_teardown(device_of_a_record_becomes_current, set_up, tear_down),
        cmocka_unit_test_setup_teardown(device_is_opened_at_its_first_use, set_up, tear_down),
        cmocka_unit_test_setup_teardown(device_that_cannot_be_opened_is_tried_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(device_is_opened_once_by_two_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(impossible_device_ends_the_session, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

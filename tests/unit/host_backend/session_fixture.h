/* A session over the in-process transport and a recording driver; the test is its guest. */
#pragma once

#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/memory/vmm_area.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/session/tenant_life.h"
#include "host_backend/worker/sessions.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"

#include "../../lib/tl_cmocka.h"
#include "../../lib/tl_loop.h"
#include "base/clock.h"
#include "fake_driver.h"
#include "proto/ops.h"
#include "proto/wire/op_kinds.h"

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

static inline void *run(void *argument)
{
    weir_session_run(argument);
    weir_session_clear(argument);
    weir_session_destroy(argument);
    return NULL;
}

/* What a test changes of the worker before the session's thread is there; or NULL. */
static void (*prepare)(void);
/* The test itself calls what the session's thread would: there is none. */
static bool no_thread;

/*
 * Tests look into the session between two calls. Each end of the loop has a mapping of its own, so
 * that the thread sanitizer sees no order between them: this lock is one that it sees. And a call
 * is over once the session asks for the next record.
 */
static const struct weir_transport_ops *loop_ops;
static struct weir_transport_ops ordered_ops;
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t sent, taken, handled; /* records to the session */
} order = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static inline void count(uint64_t sent, uint64_t taken, bool asks)
{
    pthread_mutex_lock(&order.lock);
    order.sent += sent;
    order.taken += taken;
    order.handled = asks ? order.taken : order.handled;
    pthread_cond_broadcast(&order.changed);
    pthread_mutex_unlock(&order.lock);
}

static inline void await_handled(void)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 5; /* the session has ended */
    pthread_mutex_lock(&order.lock);
    while (order.handled < order.sent &&
           pthread_cond_timedwait(&order.changed, &order.lock, &end) == 0) {
    }
    pthread_mutex_unlock(&order.lock);
}

static inline enum weir_status ordered_receive(struct weir_transport *t,
                                               const struct weir_record **ret_record,
                                               const void **ret_bulk, size_t *ret_bulk_bytes,
                                               uint64_t spin_ns, uint64_t timeout_ns)
{
    bool session = t != f.guest;
    enum weir_status status;

    count(0, 0, session);
    status = loop_ops->receive(t, ret_record, ret_bulk, ret_bulk_bytes, spin_ns, timeout_ns);
    count(0, session && status == WEIR_OK, false);
    return status;
}

static inline void put_in_order(struct weir_transport *host, struct weir_transport *guest)
{
    order.sent = order.taken = order.handled = 0;
    loop_ops = host->ops;
    ordered_ops = *loop_ops;
    ordered_ops.receive = ordered_receive;
    host->ops = guest->ops = &ordered_ops;
}

static inline int set_up(void **state)
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
    assert_true(f.worker.vmm_area && f.worker.device_idle);
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
    assert_int_equal(tl_loop_create(&sizes, &params.transport, &f.guest), WEIR_OK);
    put_in_order(params.transport, f.guest);
    params.tenant = f.tenant;
    if (prepare) {
        prepare();
    }
    assert_int_equal(weir_session_create(&params, &f.session), WEIR_OK);
    if (!no_thread) {
        pthread_create(&f.thread, NULL, run, f.session);
    }
    return 0;
}

/* The guest goes away; whatever it made must be gone with it. */
static inline int tear_down(void **state)
{
    (void)state;
    count(0, 0, false);
    f.guest->ops->destroy(f.guest);
    if (no_thread) {
        weir_session_finish(f.session);
        weir_session_clear(f.session);
        weir_session_destroy(f.session);
    } else {
        pthread_join(f.thread, NULL);
    }
    assert_int_equal(fake_live, 0);
    assert_int_equal(atomic_load(&f.worker.counts.objects), 0);
    assert_true(weir_account_used(&f.tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY) == 0);
    weir_tenant_destroy(f.tenant);
    weir_vmm_area_destroy(f.worker.vmm_area);
    weir_device_idle_destroy(&f.worker);
    pthread_mutex_destroy(&f.worker.lock);
    return 0;
}

static inline enum weir_status send_op(enum weir_op op, uint8_t flags, const void *in)
{
    _Alignas(8) uint8_t room[65536];
    struct weir_record *record = (struct weir_record *)(void *)room;
    size_t bytes = weir_ops[op].in_bytes(in);

    count(1, 0, false);
    *record = (struct weir_record){.len_bytes = (uint32_t)(sizeof *record + bytes),
                                   .op = (uint16_t)op,
                                   .flags = flags,
                                   .device = f.device,
                                   .seq = ++f.seq};
    weir_ops[op].in_encode(in, record + 1);
    return f.guest->ops->send(f.guest, record, NULL, 0, WEIR_NS_PER_S);
}

/* Call and wait for the reply. */
static inline CUresult call(enum weir_op op, const void *in, struct weir_record *ret_record)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    assert_int_equal(send_op(op, 0, in), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &record, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S), WEIR_OK);
    await_handled();
    assert_int_equal(record->op, op);
    assert_true(record->seq == f.seq);
    if (ret_record) {
        *ret_record = *record;
    }
    return (CUresult)record->status;
}

/* A record after which the host hangs up. */
static inline void assert_ends_session(const struct weir_record *record)
{
    const struct weir_record *reply;
    const void *bulk;
    size_t bulk_bytes;

    assert_int_equal(f.guest->ops->send(f.guest, record, NULL, 0, WEIR_NS_PER_S), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &reply, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S),
        WEIR_ERR_CLOSED);
}

static inline uint64_t name(enum weir_kind kind, uint32_t index)
{
    return weir_handle_make((uint8_t)kind, false, 1, index);
}

static inline void make_context(void)
{
    struct weir_op_ctx_create_in in = {
        .c = name(WEIR_KIND_CONTEXT, 1), .legacy = name(WEIR_KIND_STREAM, 1), .legacy_word = 1};

    assert_int_equal(send_op(WEIR_OP_ctx_create, WEIR_RECORD_POSTED, &in), WEIR_OK);
}

static inline void make_stream(uint32_t index)
{
    struct weir_op_stream_create_in in = {
        .s = name(WEIR_KIND_STREAM, index), .c = name(WEIR_KIND_CONTEXT, 1), .word = index};

    assert_int_equal(send_op(WEIR_OP_stream_create, WEIR_RECORD_POSTED, &in), WEIR_OK);
}

/* The deferred errors counted so far, once everything sent has been handled. */
static inline uint32_t deferred(uint32_t *ret_error)
{
    struct weir_op_echo_in in = {.value = 7};
    struct weir_record record;

    assert_int_equal(call(WEIR_OP_echo, &in, &record), CUDA_SUCCESS);
    *ret_error = record.deferred_error;
    return record.deferred_seq;
}

/* Memory at the area's begin that may only be read. */
static inline void map_read_only(void)
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

static inline void make_graph(uint32_t index)
{
    struct weir_op_cuGraphCreate_in in = {.phGraph = name(WEIR_KIND_GRAPH, index)};

    assert_int_equal(call(WEIR_OP_cuGraphCreate, &in, NULL), CUDA_SUCCESS);
}

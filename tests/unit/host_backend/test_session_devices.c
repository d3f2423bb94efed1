/* A session on a machine with two devices: which one is current, and the second one opened when it
 * is first used. */
#include "host_backend/worker/device/device.h"

#include "session_fixture.h"

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

/* Before the session's thread is there: its ring has two addresses, so no sanitizer sees order. */
static int set_up_one_open(void **state)
{
    int failed;

    prepare = close_second;
    failed = set_up(state);
    prepare = NULL;
    return failed;
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
    assert_int_equal(pthread_create(&other, NULL, open_second, NULL), 0);
    assert_int_equal(call(WEIR_OP_ctx_create, &in, NULL), CUDA_SUCCESS);
    pthread_join(other, NULL);
    assert_int_equal(fake_opened, 1);
}

static void impossible_device_ends_the_session(void **state)
{
    struct weir_record record = {.len_bytes = sizeof record, .op = WEIR_OP_echo, .device = 2};

    (void)state;
    assert_ends_session(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(device_of_a_record_becomes_current, set_up, tear_down),
        cmocka_unit_test_setup_teardown(device_is_opened_at_its_first_use, set_up_one_open,
                                        tear_down),
        cmocka_unit_test_setup_teardown(device_that_cannot_be_opened_is_tried_again,
                                        set_up_one_open, tear_down),
        cmocka_unit_test_setup_teardown(device_is_opened_once_by_two_at_once, set_up_one_open,
                                        tear_down),
        cmocka_unit_test_setup_teardown(impossible_device_ends_the_session, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

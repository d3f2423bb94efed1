/* The legacy stream's order: exactly the events that CUDA's promise needs, and no other. */
#include "host_backend/worker/device/order.h"

#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/worker.h"

#include "../../lib/tl_cmocka.h"
#include "fake_driver.h"

/* Streams: 1 legacy, 2 and 3 blocking, 4 non-blocking. */
struct fixture {
    struct weir_driver driver;
    struct weir_session session;
    struct weir_worker worker; /* without kernels that stop */
    struct weir_host_ctx ctx;
    struct weir_host_stream streams[5];
};

static struct fixture f;

static CUresult noted_query(CUstream stream)
{
    fake_note("query", stream, NULL);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static int set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    fake_driver_init(&f.driver);
    f.session.driver = &f.driver;
    f.session.worker = &f.worker;
    for (uintptr_t i = 1; i <= 4; i++) {
        f.streams[i].o.native = (void *)i;
        f.streams[i].o.ctx = &f.ctx;
        f.streams[i].legacy = i == 1;
        f.streams[i].blocking = i != 4;
        f.streams[i].next = f.ctx.streams;
        f.ctx.streams = &f.streams[i];
    }
    f.ctx.legacy = &f.streams[1];
    return 0;
}

/* Steps: digits give work to a stream, m marks the legacy stream, x destroys stream 2. */
static const struct row {
    const char *steps, *log;
} rows[] = {
    {"1111", ""},
    {"2233", ""},
    {"44", ""},
    {"1414", ""},
    {"21", "record(101,2) wait(1,101)"},
    {"221", "record(101,2) wait(1,101)"},
    {"211", "record(101,2) wait(1,101)"},
    {"12", "record(101,1) wait(2,101)"},
    {"122", "record(101,1) wait(2,101)"},
    {"123", "record(101,1) wait(2,101) wait(3,101)"},
    {"212", "record(101,2) wait(1,101) record(102,1) wait(2,102)"},
    {"2m2", "record(101,2) wait(1,101)"},
    {"2m1", "record(101,2) wait(1,101)"},
    {"2x1", "record(101,2) wait(1,101)"},
};

static void order_of_steps_inserts_what_is_needed(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_up(state);
        for (const char *step = rows[i].steps; *step != 0; step++) {
            CUresult result;

            if (*step == 'm') {
                result = weir_order_mark(&f.session, &f.streams[1]);
            } else if (*step == 'x') {
                result = weir_order_leave(&f.session, &f.streams[2]);
            } else {
                result = weir_order_begin(&f.session, &f.streams[*step - '0'], false);
            }
            assert_int_equal(result, CUDA_SUCCESS);
        }
        if (strcmp(fake_log, rows[i].log) != 0) {
            print_error("%s: %s\n", rows[i].steps, fake_log);
            fail();
        }
    }
}

static void capture_is_left_alone_and_forbids_legacy_work(void **state)
{
    (void)state;
    assert_int_equal(weir_order_begin(&f.session, &f.streams[1], false), CUDA_SUCCESS);
    f.session.n_captures = 1;
    f.driver.cuStreamQuery = noted_query;
    fake_capturing = (CUstream)2;
    assert_int_equal(weir_order_begin(&f.session, &f.streams[2], false), CUDA_SUCCESS);
    assert_string_equal(fake_log, "");
    assert_int_equal(weir_order_begin(&f.session, &f.streams[1], false),
                     CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_string_equal(fake_log, "query(2,0)"); /* which invalidates its capture */
    f.streams[2].dirty = f.streams[3].dirty = true;
    assert_int_equal(weir_order_mark(&f.session, &f.streams[1]), CUDA_SUCCESS);
    assert_string_equal(fake_log, "query(2,0) record(101,3) wait(1,101)");
    fake_capturing = (CUstream)4; /* a non-blocking one forbids nothing */
    assert_int_equal(weir_order_begin(&f.session, &f.streams[1], false), CUDA_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(order_of_steps_inserts_what_is_needed, set_up),
        cmocka_unit_test_setup(capture_is_left_alone_and_forbids_legacy_work, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Kernels that fill beside an equal, in a part of the device: what the gate does with their streams
 * (host_backend/worker/session/part.c), with the driver's green contexts made up.
 */
#include "tests/integration/gate_fixture.h"

#include "host_backend/worker/session/handles.h"

#define LEADS_NS (400 * WEIR_NS_PER_US)
#define FILLS_NS (10 * WEIR_NS_PER_US)
#define AHEAD    10
#define AWAY_NS  (2 * WEIR_NS_PER_MS) /* after that fair knows no credit */
#define PART     2u                   /* SMs: by weight one of them, but they are cut by two */

/* Who leads goes on leading when the other comes. */
static void open_for(struct guest **ret_leader, struct guest **ret_guest)
{
    gate_open_parts("fair");
    fx.tenants[0].config.weight = 10000;
    fx.tenants[2].config.weight = 500;
    *ret_leader = guest_new(0, 0);
    *ret_guest = guest_new(2, 0);
}

/* It has been served more than is its due; then the other leads, and it fills. */
static void fill_beside(struct guest *leader, struct guest *guest, struct weir_gate_work work)
{
    struct launch l;

    launch_once(leader, kernel_of(1, 0)); /* then both have rested when they are back */
    finish(leader);
    for (int i = 0; i < AHEAD; i++) {
        launch_once(guest, work);
        clock_forward(FILLS_NS);
        finish(guest);
    }
    clock_forward(AWAY_NS);
    for (int i = 0; i < 3; i++) { /* then it is sure what it takes */
        (void)kernel_of(1, LEADS_NS);
    }
    launch_once(leader, kernel_of(1, LEADS_NS)); /* its first turn is its own */
    clock_forward(LEADS_NS);
    finish(leader);
    launch_once(leader, kernel_of(1, LEADS_NS));
    launch_begin(&l, guest, work);
    launch_await_given(&l);
    assert_true(l.admission.pass.level == WEIR_SCHED_BELOW_EQUAL);
    launch_leave(&l);
    clock_forward(LEADS_NS);
    finish(leader);
    finish(guest);
}

/* It is sure what it takes. */
static struct weir_gate_work kernel_of_blocks(uint32_t blocks)
{
    struct weir_gate_work work = {
        .class = WEIR_SCHED_KERNEL, .key = 100 + blocks, .blocks = blocks, .blocks_per_sm = 4};

    pthread_mutex_lock(&fx.gate->lock);
    for (int i = 0; i < 4; i++) {
        weir_predict_learn(fx.gate->predict, work.class, work.key, work.blocks, FILLS_NS);
    }
    pthread_mutex_unlock(&fx.gate->lock);
    return work;
}

static void who_fills_is_moved_there_and_back(void **state)
{
    struct guest *a, *b;
    CUstream there;

    (void)state;
    open_for(&a, &b);
    fill_beside(a, b, kernel_of_blocks(1000));
    there = weir_host_stream_at(&b->stream);
    assert_ptr_not_equal(there, b->stream.o.native);
    assert_int_equal(parts.sms, PART);
    assert_int_equal(b->stream.parts->sms, PART);
    assert_ptr_equal(parts.from, b->stream.o.native);
    assert_ptr_equal(parts.to, there);
    assert_null(a->stream.parts); /* who leads is everywhere */
    clock_forward(100 * WEIR_NS_PER_MS);
    launch_once(b, kernel_of_blocks(1000)); /* it leads now */
    assert_ptr_equal(weir_host_stream_at(&b->stream), b->stream.o.native);
    assert_ptr_equal(parts.from, there);
    assert_ptr_equal(parts.to, b->stream.o.native);
    finish(b);
    fill_beside(a, b, kernel_of_blocks(1000));
    assert_ptr_equal(weir_host_stream_at(&b->stream), there); /* made once */
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

/* Its blocks may wait for each other. */
static void what_was_all_on_the_device_at_once_still_is(void **state)
{
    static const struct {
        uint32_t blocks, sms; /* 0: all */
    } cases[] = {{4 * 2, 2},  {4 * 9, 10},       {4 * 14, 14},
                 {4 * 15, 0}, {4 * GATE_SMS, 0}, {4 * GATE_SMS + 1, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct guest *a, *b;

        open_for(&a, &b);
        fill_beside(a, b, kernel_of_blocks(cases[i].blocks));
        assert_int_equal(b->stream.parts != NULL ? b->stream.parts->sms : 0, cases[i].sms);
        guest_gone(a);
        guest_gone(b);
        gate_close();
    }
}

static CUresult not_capturing(CUstream stream, CUstreamCaptureStatus *ret_status)
{
    (void)stream;
    *ret_status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static void streams_that_may_be_captured_are_whole(void **state)
{
    struct guest *a, *b;
    struct weir_host_ctx ctx = {0};
    struct weir_handles handles = {.contexts = &ctx};

    (void)state;
    open_for(&a, &b);
    ctx.streams = &b->stream;
    b->session.handles = &handles;
    fill_beside(a, b, kernel_of_blocks(1000));
    assert_int_equal(b->stream.parts->sms, PART);
    weir_admission_stream_captures(&b->session, &b->stream);
    assert_int_equal(b->stream.parts->sms, 0);
    b->session.n_captures = 1; /* of another stream, which may come to wait for this one */
    fx.worker.platform.driver.cuStreamIsCapturing = not_capturing;
    clock_forward(100 * WEIR_NS_PER_MS); /* nobody's place is kept any more */
    fill_beside(a, b, kernel_of_blocks(1000));
    assert_int_equal(b->stream.parts->sms, 0);
    b->session.n_captures = 0;
    guest_gone(a);
    guest_gone(b);
    gate_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_fills_is_moved_there_and_back),
        cmocka_unit_test(what_was_all_on_the_device_at_once_still_is),
        cmocka_unit_test(streams_that_may_be_captured_are_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

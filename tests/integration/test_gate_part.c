/*
 * Kernels that leave room for another tenant's small graph: what the gate does with their streams
 * (host_backend/worker/device/part.c), with the driver's green contexts made up.
 */
#include "tests/integration/gate_fixture.h"

#include "host_backend/worker/state/handles.h"

#define KERNEL_NS (10 * WEIR_NS_PER_US)
#define LONG_NS   (3 * WEIR_NS_PER_MS) /* after that the graph has been there for long enough */
#define AWAY_NS   (5 * WEIR_NS_PER_MS) /* after that nobody remembers it */
#define PART      8u                   /* SMs: of sixteen */
#define NORMAL    (-2)                 /* that class's stream priority */

static struct launch graph_launch;

/* It is sure what it takes. */
static struct weir_gate_work kernel_of_blocks(uint32_t blocks)
{
    struct weir_gate_work work = {
        .class = WEIR_SCHED_KERNEL, .key = 100 + blocks, .blocks = blocks, .blocks_per_sm = 4};

    for (int i = 0; i < 4; i++) {
        teach(&work, KERNEL_NS);
    }
    return work;
}

/* A graph of the second guest has been on the device for a while, beside a kernel of the first. */
static void begin_graph(struct guest *kernels, struct guest *graphs)
{
    struct weir_gate_work graph = {
        .class = WEIR_SCHED_GRAPH, .key = 7, .blocks = 4, .blocks_per_sm = 1};

    launch_once(kernels, kernel_of(1, LONG_NS));
    launch_begin(&graph_launch, graphs, graph);
    launch_await_given(&graph_launch);
    launch_leave(&graph_launch);
    clock_forward(LONG_NS);
    finish(kernels);
}

static void open_for(struct guest **ret_kernels, struct guest **ret_graphs)
{
    gate_open_filling("fair");
    *ret_kernels = guest_new(0, 0);
    *ret_graphs = guest_new(2, 0);
}

static void close_for(struct guest *kernels, struct guest *graphs)
{
    guest_gone(kernels);
    guest_gone(graphs);
    gate_close();
}

static void a_stream_is_moved_there_and_back(void **state)
{
    struct guest *a, *b;
    CUstream there;

    (void)state;
    open_for(&a, &b);
    launch_once(a, kernel_of_blocks(1000));
    finish(a);
    assert_ptr_equal(weir_host_stream_at(&a->stream), a->stream.o.native);
    begin_graph(a, b);
    launch_once(a, kernel_of_blocks(1000));
    there = weir_host_stream_at(&a->stream);
    assert_ptr_not_equal(there, a->stream.o.native);
    assert_int_equal(part.sms, PART);
    assert_int_equal(part.priority, NORMAL);
    assert_ptr_equal(part.from, a->stream.o.native);
    assert_ptr_equal(part.to, there);
    assert_ptr_equal(weir_host_stream_at(&b->stream), b->stream.o.native); /* graphs have all */
    finish(a);
    finish(b);
    clock_forward(AWAY_NS);
    launch_once(a, kernel_of_blocks(1000));
    assert_ptr_equal(weir_host_stream_at(&a->stream), a->stream.o.native);
    assert_ptr_equal(part.from, there);
    assert_ptr_equal(part.to, a->stream.o.native);
    finish(a);
    begin_graph(a, b);
    launch_once(a, kernel_of_blocks(1000));
    assert_ptr_equal(weir_host_stream_at(&a->stream), there); /* made once */
    finish(a);
    finish(b);
    close_for(a, b);
}

/* Its blocks may wait for each other. */
static void what_would_be_all_on_the_device_at_once_is(void **state)
{
    static const struct {
        uint32_t blocks;
        bool in;
    } cases[] = {
        {4 * PART, true}, {4 * PART + 1, false}, {4 * GATE_SMS, false}, {4 * GATE_SMS + 1, true}};
    struct guest *a, *b;

    (void)state;
    open_for(&a, &b);
    begin_graph(a, b);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        launch_once(a, kernel_of_blocks(cases[i].blocks));
        assert_int_equal(a->stream.part.in, cases[i].in);
        finish(a);
    }
    finish(b);
    close_for(a, b);
}

/* Else the scheduler would take durations on all SMs for those in the part, and learn less. */
static void the_scheduler_knows_whether_there_is_a_part(void **state)
{
    (void)state;
    gate_open_filling("fair");
    assert_int_equal(host.process->gpus[0].config.room_sms, PART);
    gate_close();
    gate_open_undivided("fair");
    assert_int_equal(host.process->gpus[0].config.above, 1);
    assert_int_equal(host.process->gpus[0].config.room_sms, 0);
    gate_close();
}

static bool there_are_runs;

static bool has_runs(struct weir_session *session, const struct weir_host_stream *stream)
{
    (void)session;
    (void)stream;
    return there_are_runs;
}

/* What waited in the part for a stopped run would keep a connection from what lets that go on. */
static void no_stream_is_moved_in_while_runs_are_under_way(void **state)
{
    static const struct weir_session_hooks hooks = {.has_runs = has_runs};
    struct guest *a, *b;

    (void)state;
    open_for(&a, &b);
    begin_graph(a, b);
    fx.worker.hooks = &hooks;
    there_are_runs = true;
    launch_once(a, kernel_of_blocks(1000));
    assert_false(a->stream.part.in);
    finish(a);
    there_are_runs = false;
    launch_once(a, kernel_of_blocks(1000));
    assert_true(a->stream.part.in);
    there_are_runs = true; /* of another stream, which came later */
    launch_once(a, kernel_of_blocks(1000));
    assert_true(a->stream.part.in);
    fx.worker.hooks = NULL;
    finish(a);
    finish(b);
    close_for(a, b);
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
    ctx.streams = &a->stream;
    a->session.handles = &handles;
    begin_graph(a, b);
    launch_once(a, kernel_of_blocks(1000));
    assert_true(a->stream.part.in);
    weir_admission_stream_captures(&a->session, &a->stream);
    assert_false(a->stream.part.in);
    a->session.n_captures = 1; /* of another stream, which may come to wait for this one */
    fx.worker.platform.driver.cuStreamIsCapturing = not_capturing;
    launch_once(a, kernel_of_blocks(1000));
    assert_false(a->stream.part.in);
    a->session.n_captures = 0;
    finish(a);
    finish(b);
    close_for(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_moved_there_and_back),
        cmocka_unit_test(what_would_be_all_on_the_device_at_once_is),
        cmocka_unit_test(no_stream_is_moved_in_while_runs_are_under_way),
        cmocka_unit_test(the_scheduler_knows_whether_there_is_a_part),
        cmocka_unit_test(streams_that_may_be_captured_are_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

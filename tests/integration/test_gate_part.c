/*
 * Kernels that leave room for another tenant's small graph: what the gate does with their streams
 * (host_backend/worker/device/place.c, part.c), with the driver's green contexts made up.
 */
#include "host_backend/worker/device/place.h"
#include "tests/integration/gate_fixture.h"

#define KERNEL_NS (10 * WEIR_NS_PER_US)
#define LONG_NS   (3 * WEIR_NS_PER_MS) /* after that the graph has been there for long enough */
#define AWAY_NS   (5 * WEIR_NS_PER_MS) /* after that nobody remembers it */
#define PART      8u                   /* SMs: of sixteen */
#define NORMAL    (-2)                 /* that class's stream priority */

static struct launch graph_launch;

/* It is sure what it takes. */
static struct weir_gate_work kernel_of_blocks(uint32_t blocks)
{
    struct weir_gate_work work = {.class = WEIR_SCHED_KERNEL,
                                  .key = 100 + blocks,
                                  .blocks = blocks,
                                  .blocks_per_sm = 4,
                                  .flags = WEIR_SCHED_PARTABLE};

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
    assert_int_equal(host.process->gpus[0].config.part_step, weir_sched_part_step(GATE_SMS));
    gate_close();
    gate_open_undivided("fair");
    assert_int_equal(host.process->gpus[0].config.above, 1);
    assert_int_equal(host.process->gpus[0].config.room_sms, 0);
    assert_int_equal(host.process->gpus[0].config.part_step, 0);
    gate_close();
}

static bool there_are_runs;

static bool has_runs(struct weir_session *session, const struct weir_host_stream *stream)
{
    (void)session;
    (void)stream;
    return there_are_runs;
}

static bool idle_begin(struct weir_forms *forms, uint64_t limit_ns, uint32_t *ret_idle)
{
    (void)forms;
    (void)limit_ns;
    *ret_idle = 0;
    return true;
}

static void idle_end(struct weir_forms *forms, uint32_t idle)
{
    (void)forms;
    assert_int_equal(idle, 0);
}

/* What waited in the part for a stopped run would keep a connection from what lets that go on. */
static void no_stream_is_moved_in_while_runs_are_under_way(void **state)
{
    static const struct weir_session_hooks hooks = {
        .has_runs = has_runs, .device_idle_begin = idle_begin, .device_idle_end = idle_end};
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

    (void)state;
    open_for(&a, &b);
    ctx.streams = &a->stream;
    a->handles.contexts = &ctx;
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
    a->handles.contexts = NULL;
    finish(a);
    finish(b);
    close_for(a, b);
}

/* Most workers never want a part. */
static void a_part_is_made_when_it_is_first_wanted(void **state)
{
    struct guest *a, *b;
    uint32_t made;

    (void)state;
    made = part.made;
    open_for(&a, &b);
    launch_once(a, kernel_of_blocks(1000));
    finish(a);
    assert_int_equal(part.made, made);
    begin_graph(a, b);
    for (int i = 0; i < 3; i++) {
        launch_once(a, kernel_of_blocks(1000));
        assert_true(a->stream.part.in);
        assert_int_equal(part.made, made + 1);
    }
    finish(a);
    finish(b);
    close_for(a, b);
}

static bool is_busy; /* the device has work that does not end */

static CUresult record_all(CUcontext ctx, CUevent event)
{
    (void)ctx;
    (void)event;
    return CUDA_SUCCESS;
}

static CUresult query(CUevent event)
{
    (void)event;
    clock_forward(WEIR_NS_PER_MS);
    return is_busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult no_context(CUcontext *ret)
{
    *ret = NULL;
    return CUDA_SUCCESS;
}

static struct weir_part *wanted(struct guest *guest, uint32_t sm_first, uint32_t sm_count)
{
    const struct weir_sched_place place = {.sm_first = sm_first, .sm_count = sm_count};

    return weir_place_part(&guest->session, &guest->stream, &place);
}

/* The driver would wait for a kernel that waits for its program's next call. */
static void no_part_is_made_until_the_work_on_the_device_has_ended(void **state)
{
    struct guest *a, *b;
    uint32_t made = part.made;
    struct weir_part *got;

    (void)state;
    open_for(&a, &b);
    fx.worker.platform.keeps_out = true;
    fx.worker.platform.by_program = true;
    fx.worker.n_sessions = 1;
    fx.worker.platform.driver.cuCtxRecordEvent = record_all;
    fx.worker.platform.driver.cuCtxGetCurrent = no_context;
    fx.worker.platform.driver.cuEventQuery = query;
    is_busy = true;
    assert_null(wanted(a, 0, PART));
    is_busy = false;
    assert_null(wanted(a, 0, PART)); /* it is not tried again at once, */
    clock_forward(2 * WEIR_NS_PER_S);
    a->session.n_captures = 1; /* and not while the driver would not say what is under way */
    assert_null(wanted(a, 0, PART));
    a->session.n_captures = 0;
    assert_int_equal(part.made, made);
    got = wanted(a, 0, PART);
    assert_non_null(got);
    weir_part_put(got);
    fx.worker.n_sessions = 0;
    fx.worker.platform.keeps_out = false;
    close_for(a, b);
}

static void only_the_first_sms_and_the_rest_behind_them_are_parts(void **state)
{
    static const struct {
        struct weir_sched_place place;
        bool is;
    } cases[] = {{{0, 2, 0}, true},  {{2, 14, 0}, true},  {{0, 14, 0}, true}, {{14, 2, 0}, true},
                 {{0, 0, 0}, false}, {{0, 16, 0}, false}, {{0, 3, 0}, false}, {{3, 13, 0}, false},
                 {{2, 4, 0}, false}, {{2, 16, 0}, false}, {{0, 2, 1}, false}, {{16, 2, 0}, false}};
    struct guest *a, *b;

    (void)state;
    open_for(&a, &b);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_part *got = weir_place_part(&a->session, &a->stream, &cases[i].place);

        assert_int_equal(got != NULL, cases[i].is);
        assert_int_equal(got ? weir_part_sms(got) : 0, cases[i].is ? cases[i].place.sm_count : 0);
        weir_part_put(got);
    }
    close_for(a, b);
}

/* Of ten parts eight are there at a time. What the session has in one that goes, goes too. */
static void a_session_lets_go_of_parts_for_others(void **state)
{
    struct weir_placed_graph graphs[10] = {{0}};
    struct weir_host_ctx ctx = {0};
    struct guest *a, *b;

    (void)state;
    open_for(&a, &b);
    ctx.streams = &a->stream;
    a->handles.contexts = &ctx;
    for (uint32_t i = 0; i < 10; i++) {
        uint32_t n = 2 + i / 2 * 2;
        struct weir_part *got = wanted(a, i % 2 ? n : 0, i % 2 ? GATE_SMS - n : n);

        assert_non_null(got);
        weir_place_stream(&a->session, &a->stream, got);
        assert_ptr_equal(a->stream.part.part, got);
        weir_placed_graph_keep(&a->session, &graphs[i], got, NULL);
        weir_part_put(got);
    }
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(graphs[i].part != NULL, i >= 2);
        weir_placed_graph_drop(a->session.driver, &graphs[i]);
    }
    assert_null(a->session.devices.placed);
    a->handles.contexts = NULL;
    close_for(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_moved_there_and_back),
        cmocka_unit_test(a_part_is_made_when_it_is_first_wanted),
        cmocka_unit_test(no_part_is_made_until_the_work_on_the_device_has_ended),
        cmocka_unit_test(only_the_first_sms_and_the_rest_behind_them_are_parts),
        cmocka_unit_test(a_session_lets_go_of_parts_for_others),
        cmocka_unit_test(what_would_be_all_on_the_device_at_once_is),
        cmocka_unit_test(no_stream_is_moved_in_while_runs_are_under_way),
        cmocka_unit_test(the_scheduler_knows_whether_there_is_a_part),
        cmocka_unit_test(streams_that_may_be_captured_are_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

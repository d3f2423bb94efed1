/* Functions of the guest in graphs: each goes with the last that has it. */
#include "session_fixture.h"

#include "host_backend/worker/session/graph_holds.h"
#include "host_backend/worker/state/handles.h"
#include "host_backend/worker/state/host_calls.h"

/* A driver with one graph, which has a host node and user objects. */
static struct {
    CUDA_HOST_NODE_PARAMS node;
    CUhostFn destroy[4]; /* by the object's number; NULL: gone */
    void *user[4];
    atomic_uintptr_t n;
    atomic_uintptr_t newest; /* token that the node was given */
    atomic_bool refuses;     /* to keep objects */
    atomic_bool late;        /* destroys none, as if a launch were under way */
} g;

#define NATIVE_GRAPH ((CUgraph)77)

static CUresult add_host(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                         const CUDA_HOST_NODE_PARAMS *params)
{
    g.node = *params;
    return fake_add_empty(ret, graph, dependencies, n);
}

static CUresult get_host(CUgraphNode node, CUDA_HOST_NODE_PARAMS *ret)
{
    (void)node;
    *ret = g.node;
    return CUDA_SUCCESS;
}

static CUresult set_host(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
    (void)node;
    g.node = *params;
    atomic_store(&g.newest, weir_host_call_token(params->userData));
    return CUDA_SUCCESS;
}

static CUresult launch_host(CUstream stream, CUhostFn fn, void *user)
{
    (void)stream;
    g.node = (CUDA_HOST_NODE_PARAMS){.fn = fn, .userData = user};
    return CUDA_SUCCESS;
}

static CUresult end_capture(CUstream stream, CUgraph *ret)
{
    (void)stream;
    fake_capturing = NULL;
    fake_live++;
    *ret = NATIVE_GRAPH;
    return CUDA_SUCCESS;
}

static CUresult create_object(CUuserObject *ret, void *user, CUhostFn destroy, unsigned count,
                              unsigned flags)
{
    assert_int_equal(count, 1);
    assert_int_equal(flags, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    assert_true(g.n < 4);
    g.destroy[g.n] = destroy;
    g.user[g.n] = user;
    *ret = (CUuserObject)++g.n;
    return CUDA_SUCCESS;
}

static CUresult retain_object(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    (void)graph;
    (void)object;
    assert_int_equal(count, 1);
    assert_int_equal(flags, CU_GRAPH_USER_OBJECT_MOVE);
    if (g.refuses) {
        g.destroy[(uintptr_t)object - 1] = NULL; /* nobody destroys it */
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult retain_shared(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    (void)graph;
    (void)object;
    assert_int_equal(count, 1);
    assert_int_equal(flags, 0);
    return CUDA_SUCCESS;
}

static CUresult let_go(CUuserObject object, unsigned count)
{
    (void)object;
    assert_int_equal(count, 1);
    return CUDA_SUCCESS;
}

static CUresult add_event_record(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t n, CUevent event)
{
    (void)event;
    return fake_add_empty(ret, graph, dependencies, n);
}

static void destroy_object(uintptr_t i)
{
    if (g.destroy[i]) {
        g.destroy[i](g.user[i]);
        g.destroy[i] = NULL;
    }
}

static CUresult release_object(CUgraph graph, CUuserObject object, unsigned count)
{
    (void)graph;
    assert_int_equal(count, 1);
    destroy_object((uintptr_t)object - 1);
    return CUDA_SUCCESS;
}

static CUresult destroy_graph(CUgraph graph)
{
    for (uintptr_t i = 0; i < g.n && !g.late; i++) {
        destroy_object(i);
    }
    return fake_graph_destroy(graph);
}

static void use_graphs(void)
{
    f.worker.platform.driver.cuGraphAddHostNode = add_host;
    f.worker.platform.driver.cuGraphHostNodeGetParams = get_host;
    f.worker.platform.driver.cuGraphHostNodeSetParams = set_host;
    f.worker.platform.driver.cuUserObjectCreate = create_object;
    f.worker.platform.driver.cuGraphRetainUserObject = retain_object;
    f.worker.platform.driver.cuGraphReleaseUserObject = release_object;
    f.worker.platform.driver.cuGraphDestroy = destroy_graph;
    f.worker.platform.driver.cuLaunchHostFunc = launch_host;
    f.worker.platform.driver.cuStreamBeginCapture_v2 = fake_capture_begin;
    f.worker.platform.driver.cuStreamGetCaptureInfo_v3 = fake_capture_info;
    fake_captured = NATIVE_GRAPH;
    f.worker.platform.driver.cuStreamEndCapture = end_capture;
}

static void use_events(void)
{
    use_graphs();
    f.worker.platform.driver.cuGraphRetainUserObject = retain_shared;
    f.worker.platform.driver.cuUserObjectRelease = let_go;
    f.worker.platform.driver.cuGraphAddEventRecordNode = add_event_record;
}

static int set_up_graphs(void **state)
{
    int result;

    memset(&g, 0, sizeof g);
    prepare = prepare ? prepare : use_graphs;
    result = set_up(state);
    prepare = NULL;
    make_graph(1);
    return result;
}

static int set_up_events(void **state)
{
    int result;

    prepare = use_events;
    result = set_up_graphs(state);
    make_context();
    return result;
}

static int tear_down_late(void **state)
{
    int result = tear_down(state);

    for (uintptr_t i = 0; i < g.n; i++) {
        destroy_object(i);
    }
    return result;
}

static void add(void)
{
    const struct weir_op_graph_add_host_in in = {
        .g = name(WEIR_KIND_GRAPH, 1), .n = name(WEIR_KIND_NODE, 1), .token = 5};

    assert_int_equal(call(WEIR_OP_graph_add_host, &in, NULL), CUDA_SUCCESS);
}

static void destroy(void)
{
    const struct weir_op_cuGraphDestroy_in in = {.hGraph = name(WEIR_KIND_GRAPH, 1)};

    assert_int_equal(call(WEIR_OP_cuGraphDestroy, &in, NULL), CUDA_SUCCESS);
}

/* So many calls can be had: all but those that are still there. */
static uint32_t calls_there(void)
{
    static struct weir_host_call *calls[WEIR_HOST_CALLS_MAX];
    uint32_t n = 0;

    while (n < WEIR_HOST_CALLS_MAX && (calls[n] = weir_host_call_create(f.session, 0, false))) {
        n++;
    }
    for (uint32_t i = 0; i < n; i++) {
        weir_host_call_cancel(calls[i]);
    }
    return WEIR_HOST_CALLS_MAX - n;
}

static void call_goes_with_its_graph(void **state)
{
    (void)state;
    add();
    assert_int_equal(calls_there(), 1);
    destroy();
    assert_int_equal(calls_there(), 0);
}

static void replaced_call_goes_at_once(void **state)
{
    const struct weir_op_graph_host_set_in set = {.n = name(WEIR_KIND_NODE, 1), .token = 6};

    (void)state;
    add();
    assert_int_equal(call(WEIR_OP_graph_host_set, &set, NULL), CUDA_SUCCESS);
    assert_int_equal(g.n, 2);
    assert_int_equal(calls_there(), 1);
    assert_int_equal(g.newest, 6);
    destroy();
    assert_int_equal(calls_there(), 0);
}

static void call_that_no_graph_keeps_goes_with_the_session(void **state)
{
    (void)state;
    g.refuses = true;
    add();
    destroy();
    assert_int_equal(calls_there(), 1);
}

static void graph_may_outlive_the_session(void **state)
{
    (void)state;
    g.late = true;
    add();
    destroy();
    assert_int_equal(calls_there(), 1);
}

static void captured_call_goes_with_its_graph(void **state)
{
    const struct weir_op_capture_begin_in begin = {.s = name(WEIR_KIND_STREAM, 2)};
    const struct weir_op_host_func_in in = {.s = name(WEIR_KIND_STREAM, 2), .token = 5};
    const struct weir_op_capture_end_in end = {.s = name(WEIR_KIND_STREAM, 2),
                                               .g = name(WEIR_KIND_GRAPH, 2)};
    const struct weir_op_cuGraphDestroy_in gone = {.hGraph = name(WEIR_KIND_GRAPH, 2)};

    (void)state;
    make_context();
    make_stream(2);
    assert_int_equal(call(WEIR_OP_capture_begin, &begin, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_host_func, &in, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_capture_end, &end, NULL), CUDA_SUCCESS);
    assert_int_equal(calls_there(), 1);
    assert_int_equal(call(WEIR_OP_cuGraphDestroy, &gone, NULL), CUDA_SUCCESS);
    assert_int_equal(calls_there(), 0);
}

/* A node that records an event of the same number. */
static CUresult add_event(uint32_t index)
{
    const struct weir_op_event_create_in event = {.e = name(WEIR_KIND_EVENT, index),
                                                  .c = name(WEIR_KIND_CONTEXT, 1)};
    const struct weir_op_cuGraphAddEventRecordNode_in in = {.hGraph = name(WEIR_KIND_GRAPH, 1),
                                                            .phGraphNode =
                                                                name(WEIR_KIND_NODE, index),
                                                            .event = event.e};

    assert_int_equal(call(WEIR_OP_event_create, &event, NULL), CUDA_SUCCESS);
    return call(WEIR_OP_cuGraphAddEventRecordNode, &in, NULL);
}

static void destroyed_events_that_graphs_name_are_bounded(void **state)
{
    const struct weir_op_event_destroy_in in = {.e = name(WEIR_KIND_EVENT, 2)};

    (void)state;
    assert_int_equal(add_event(2), CUDA_SUCCESS);
    f.session->handles->n_kept = WEIR_GRAPH_KEPT_MAX - 1; /* as if it had so many already */
    assert_int_equal(call(WEIR_OP_event_destroy, &in, NULL), CUDA_SUCCESS);
    assert_int_equal(add_event(3), CUDA_ERROR_OUT_OF_MEMORY);
    destroy();
    make_graph(1);
    assert_int_equal(add_event(4), CUDA_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(call_goes_with_its_graph, set_up_graphs, tear_down),
        cmocka_unit_test_setup_teardown(replaced_call_goes_at_once, set_up_graphs, tear_down),
        cmocka_unit_test_setup_teardown(call_that_no_graph_keeps_goes_with_the_session,
                                        set_up_graphs, tear_down),
        cmocka_unit_test_setup_teardown(captured_call_goes_with_its_graph, set_up_graphs,
                                        tear_down),
        cmocka_unit_test_setup_teardown(destroyed_events_that_graphs_name_are_bounded,
                                        set_up_events, tear_down),
        cmocka_unit_test_setup_teardown(graph_may_outlive_the_session, set_up_graphs,
                                        tear_down_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

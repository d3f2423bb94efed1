/* What a session's book keeps of graphs: as much as lives, and what that needs. */
#include "session_fixture.h"

#include "host_backend/worker/session/book.h"

/* A driver whose graphs have the nodes that were added, and no more than the tests need. */
static uintptr_t nodes[8];
static size_t n_nodes;

static CUresult add_event(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                          size_t n, CUevent event)
{
    (void)event;
    return fake_add_empty(ret, graph, dependencies, n);
}

static CUresult set_event(CUgraphNode node, CUevent event)
{
    (void)node;
    (void)event;
    return CUDA_SUCCESS;
}

static CUresult set_enabled(CUgraphExec exec, CUgraphNode node, unsigned enabled)
{
    (void)exec;
    (void)node;
    (void)enabled;
    return CUDA_SUCCESS;
}

static CUresult get_nodes(CUgraph graph, CUgraphNode *ret, size_t *n)
{
    (void)graph;
    for (size_t i = 0; ret && i < *n && i < n_nodes; i++) {
        ret[i] = (CUgraphNode)nodes[i];
    }
    *n = n_nodes;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *ret, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    (void)graph;
    (void)params;
    *ret = (CUgraphExec)++fake_next;
    fake_live++;
    return CUDA_SUCCESS;
}

static CUresult destroy_exec(CUgraphExec exec)
{
    (void)exec;
    fake_live--;
    return CUDA_SUCCESS;
}

static CUresult clone_graph(CUgraph *ret, CUgraph graph)
{
    (void)graph;
    return fake_graph_create(ret, 0);
}

static CUresult add_child(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                          size_t n, CUgraph child)
{
    (void)child;
    return fake_add_empty(ret, graph, dependencies, n);
}

static CUresult end_capture(CUstream stream, CUgraph *ret)
{
    (void)stream;
    fake_capturing = NULL;
    *ret = fake_captured;
    fake_live += fake_captured != NULL;
    return fake_captured ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

static CUresult launch_host(CUstream stream, CUhostFn fn, void *user)
{
    (void)stream;
    (void)fn;
    (void)user;
    return CUDA_SUCCESS;
}

static CUresult no_object(CUuserObject *ret, void *user, CUhostFn destroy, unsigned count,
                          unsigned flags)
{
    (void)ret;
    (void)user;
    (void)destroy;
    (void)count;
    (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void change_driver(void)
{
    struct weir_driver *d = &f.worker.platform.driver;

    f.worker.platform.by_program = true;
    n_nodes = 0;
    fake_captured = NULL;
    d->cuGraphAddEventRecordNode = add_event;
    d->cuGraphEventRecordNodeSetEvent = set_event;
    d->cuGraphNodeSetEnabled = set_enabled;
    d->cuGraphGetNodes = get_nodes;
    d->cuGraphInstantiateWithParams = instantiate;
    d->cuGraphExecDestroy = destroy_exec;
    d->cuGraphClone = clone_graph;
    d->cuGraphAddChildGraphNode = add_child;
    d->cuStreamBeginCapture_v2 = fake_capture_begin;
    d->cuStreamGetCaptureInfo_v3 = fake_capture_info;
    d->cuStreamEndCapture = end_capture;
    d->cuLaunchHostFunc = launch_host;
    d->cuUserObjectCreate = no_object;
}

static int set_up_book(void **state)
{
    prepare = change_driver;
    return set_up(state);
}

/* The records that are kept: names of their operations, with a space behind each. */
static const char *kept(void)
{
    static char text[1024];
    const struct weir_kept_record **records;
    uint32_t n, error;
    size_t at = 0;

    (void)deferred(&error);
    assert_int_equal(weir_session_book_list(f.session, &records, &n), WEIR_OK);
    text[0] = 0;
    for (uint32_t i = 0; i < n && at < sizeof text; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s ",
                               weir_ops[records[i]->record.op].name);
    }
    free(records);
    return text;
}

#define NODE(i)  name(WEIR_KIND_NODE, i)
#define GRAPH(i) name(WEIR_KIND_GRAPH, i)
#define EXEC(i)  name(WEIR_KIND_EXEC, i)
#define EVENT(i) name(WEIR_KIND_EVENT, i)

static void make_event(uint32_t i)
{
    struct weir_op_event_create_in in = {.e = EVENT(i), .c = name(WEIR_KIND_CONTEXT, 1)};

    assert_int_equal(send_op(WEIR_OP_event_create, WEIR_RECORD_POSTED, &in), WEIR_OK);
}

static void end_event(uint32_t i)
{
    struct weir_op_event_destroy_in in = {.e = EVENT(i)};

    assert_int_equal(send_op(WEIR_OP_event_destroy, WEIR_RECORD_POSTED, &in), WEIR_OK);
}

static void add_node(uint32_t graph, uint32_t node, uint32_t event)
{
    struct weir_op_cuGraphAddEventRecordNode_in in = {
        .phGraphNode = NODE(node), .hGraph = GRAPH(graph), .event = EVENT(event)};

    assert_int_equal(call(WEIR_OP_cuGraphAddEventRecordNode, &in, NULL), CUDA_SUCCESS);
}

static void set_node(uint32_t node, uint32_t event)
{
    struct weir_op_cuGraphEventRecordNodeSetEvent_in in = {.hNode = NODE(node),
                                                           .event = EVENT(event)};

    assert_int_equal(call(WEIR_OP_cuGraphEventRecordNodeSetEvent, &in, NULL), CUDA_SUCCESS);
}

static void make_exec(uint32_t exec, uint32_t graph)
{
    struct weir_op_graph_instantiate_in in = {.x = EXEC(exec), .g = GRAPH(graph)};

    assert_int_equal(call(WEIR_OP_graph_instantiate, &in, NULL), CUDA_SUCCESS);
}

static void end_exec(uint32_t exec)
{
    struct weir_op_cuGraphExecDestroy_in in = {.hGraphExec = EXEC(exec)};

    assert_int_equal(call(WEIR_OP_cuGraphExecDestroy, &in, NULL), CUDA_SUCCESS);
}

static void end_graph(uint32_t graph)
{
    struct weir_op_cuGraphDestroy_in in = {.hGraph = GRAPH(graph)};

    assert_int_equal(call(WEIR_OP_cuGraphDestroy, &in, NULL), CUDA_SUCCESS);
}

static void executable_graph_keeps_what_it_was_made_of(void **state)
{
    (void)state;
    make_context();
    make_event(1);
    make_graph(1);
    add_node(1, 1, 1);
    make_exec(1, 1);
    end_graph(1);
    end_event(1);
    assert_string_equal(kept(), "ctx_create event_create cuGraphCreate cuGraphAddEventRecordNode "
                                "graph_instantiate cuGraphDestroy event_destroy ");
    end_exec(1);
    assert_string_equal(kept(), "ctx_create ");
}

static void parameters_are_kept_once(void **state)
{
    struct weir_op_cuGraphNodeSetEnabled_in in = {.hGraphExec = EXEC(1), .hNode = NODE(1)};

    (void)state;
    make_context();
    make_event(1);
    make_graph(1);
    add_node(1, 1, 1);
    make_exec(1, 1);
    for (uint32_t i = 0; i < 100; i++) {
        in.isEnabled = i % 2;
        assert_int_equal(call(WEIR_OP_cuGraphNodeSetEnabled, &in, NULL), CUDA_SUCCESS);
    }
    assert_string_equal(kept(), "ctx_create event_create cuGraphCreate cuGraphAddEventRecordNode "
                                "graph_instantiate cuGraphNodeSetEnabled ");
    assert_int_equal(f.session->devices.book->n_past, 0);
    end_exec(1);
    end_graph(1);
}

static void earlier_parameters_stay_for_who_read_them(void **state)
{
    (void)state;
    make_context();
    make_event(1);
    make_event(2);
    make_graph(1);
    add_node(1, 1, 1);
    set_node(1, 2);
    make_exec(1, 1);
    set_node(1, 1);
    assert_string_equal(kept(), "ctx_create event_create event_create cuGraphCreate "
                                "cuGraphAddEventRecordNode cuGraphEventRecordNodeSetEvent "
                                "graph_instantiate cuGraphEventRecordNodeSetEvent ");
    end_exec(1);
    set_node(1, 2);
    assert_string_equal(kept(), "ctx_create event_create event_create cuGraphCreate "
                                "cuGraphAddEventRecordNode cuGraphEventRecordNodeSetEvent ");
    end_graph(1);
}

static void pages_make_no_circle(void **state)
{
    struct weir_op_cuGraphClone_in copy = {.phGraphClone = GRAPH(2), .originalGraph = GRAPH(1)};
    struct weir_op_cuGraphAddChildGraphNode_in child = {
        .phGraphNode = NODE(1), .hGraph = GRAPH(1), .childGraph = GRAPH(2)};

    (void)state;
    make_graph(1);
    assert_int_equal(call(WEIR_OP_cuGraphClone, &copy, NULL), CUDA_SUCCESS);
    assert_null(weir_session_book_why(f.session));
    assert_int_equal(call(WEIR_OP_cuGraphAddChildGraphNode, &child, NULL), CUDA_SUCCESS);
    assert_string_equal(weir_session_book_why(f.session), "graphs within themselves");
    end_graph(1);
    end_graph(2);
    assert_null(weir_session_book_why(f.session));
    assert_string_equal(kept(), "");
}

/* ---------------------------------------------------------------- captures */

static void capture(CUgraph into, CUresult result)
{
    struct weir_op_capture_begin_in begin = {.s = name(WEIR_KIND_STREAM, 2)};
    struct weir_op_host_func_in function = {.s = begin.s, .token = 7};
    struct weir_op_capture_end_in end = {.s = begin.s, .g = GRAPH(1)};

    fake_captured = into;
    assert_int_equal(call(WEIR_OP_host_func, &function, NULL), CUDA_SUCCESS); /* it is work */
    assert_int_equal(call(WEIR_OP_capture_begin, &begin, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_host_func, &function, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_capture_end, &end, NULL), result);
}

static void captured_records_go_with_the_graph(void **state)
{
    struct weir_op_stream_destroy_in end = {.s = name(WEIR_KIND_STREAM, 2)};

    (void)state;
    make_context();
    make_stream(2);
    capture((CUgraph)77, CUDA_SUCCESS);
    assert_int_equal(send_op(WEIR_OP_stream_destroy, WEIR_RECORD_POSTED, &end), WEIR_OK);
    assert_string_equal(kept(), "ctx_create stream_create capture_begin host_func capture_end "
                                "stream_destroy ");
    end_graph(1);
    assert_string_equal(kept(), "ctx_create ");
}

static void capture_that_fails_leaves_nothing(void **state)
{
    (void)state;
    make_context();
    make_stream(2);
    capture(NULL, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_string_equal(kept(), "ctx_create stream_create ");
    assert_null(weir_session_book_why(f.session));
}

static void names_of_the_host_are_kept(void **state)
{
    struct weir_op_cuGraphGetNodes_in in = {.hGraph = GRAPH(1), .numNodes = 8, .want = 1};
    const struct weir_kept_record **records;
    uint32_t n;

    (void)state;
    make_graph(1);
    nodes[0] = 100001;
    nodes[1] = 100002;
    n_nodes = 2;
    for (int i = 0; i < 2; i++) { /* the second time gives no name */
        assert_int_equal(call(WEIR_OP_cuGraphGetNodes, &in, NULL), CUDA_SUCCESS);
    }
    assert_string_equal(kept(), "cuGraphCreate cuGraphGetNodes ");
    assert_int_equal(weir_session_book_list(f.session, &records, &n), WEIR_OK);
    assert_int_equal(records[1]->n_names, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(weir_handle_origin_host(records[1]->names[i]));
        assert_non_null(weir_host_object_get(f.session, WEIR_KIND_NODE, records[1]->names[i]));
    }
    free(records);
    end_graph(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(executable_graph_keeps_what_it_was_made_of, set_up_book,
                                        tear_down),
        cmocka_unit_test_setup_teardown(parameters_are_kept_once, set_up_book, tear_down),
        cmocka_unit_test_setup_teardown(earlier_parameters_stay_for_who_read_them, set_up_book,
                                        tear_down),
        cmocka_unit_test_setup_teardown(pages_make_no_circle, set_up_book, tear_down),
        cmocka_unit_test_setup_teardown(captured_records_go_with_the_graph, set_up_book, tear_down),
        cmocka_unit_test_setup_teardown(capture_that_fails_leaves_nothing, set_up_book, tear_down),
        cmocka_unit_test_setup_teardown(names_of_the_host_are_kept, set_up_book, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Graphs within graphs: not in themselves, not too deep, not too many nodes. */
#include "session_fixture.h"

#include "host_backend/worker/session/graph_nesting.h"

static atomic_size_t nodes_of_each; /* as the driver counts them */

static CUresult add_child(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                          size_t n, CUgraph child)
{
    (void)child;
    return fake_add_empty(ret, graph, dependencies, n);
}

static CUresult get_nodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    (void)graph;
    (void)nodes;
    *n = nodes_of_each;
    return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode node, CUgraph *ret)
{
    *ret = (CUgraph)((uintptr_t)node + 100000); /* one for each node */
    return CUDA_SUCCESS;
}

static CUresult clone_graph(CUgraph *ret, CUgraph graph)
{
    (void)graph;
    return fake_graph_create(ret, 0);
}

static CUresult find_in_clone(CUgraphNode *ret, CUgraphNode node, CUgraph clone)
{
    (void)node;
    return fake_add_empty(ret, clone, NULL, 0);
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
    (void)fake_capture_begin(stream, mode);
    return fake_graph_create(&fake_captured, 0);
}

static CUresult begin_capture_to(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                 const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode)
{
    (void)dependencies;
    (void)edges;
    (void)n;
    (void)mode;
    fake_capturing = stream;
    fake_captured = graph;
    return CUDA_SUCCESS;
}

static CUresult end_capture(CUstream stream, CUgraph *ret)
{
    (void)stream;
    fake_capturing = NULL;
    *ret = fake_captured;
    return CUDA_SUCCESS;
}

static void use_children(void)
{
    f.worker.platform.driver.cuGraphNodeFindInClone = find_in_clone;
    f.worker.platform.driver.cuStreamBeginCapture_v2 = begin_capture;
    f.worker.platform.driver.cuStreamBeginCaptureToGraph = begin_capture_to;
    f.worker.platform.driver.cuStreamGetCaptureInfo_v3 = fake_capture_info;
    f.worker.platform.driver.cuStreamEndCapture = end_capture;
    f.worker.platform.driver.cuGraphAddChildGraphNode = add_child;
    f.worker.platform.driver.cuGraphGetNodes = get_nodes;
    f.worker.platform.driver.cuGraphChildGraphNodeGetGraph = get_child;
    f.worker.platform.driver.cuGraphClone = clone_graph;
}

static int set_up_children(void **state)
{
    nodes_of_each = 1;
    prepare = use_children;
    return set_up(state);
}

/* Node `node` of graph `parent` becomes a copy of graph `child`. */
static CUresult nest(uint64_t parent, uint64_t child, uint32_t node)
{
    struct weir_op_cuGraphAddChildGraphNode_in in = {
        .hGraph = parent, .childGraph = child, .phGraphNode = name(WEIR_KIND_NODE, node)};

    return call(WEIR_OP_cuGraphAddChildGraphNode, &in, NULL);
}

static uint64_t graph(uint32_t index)
{
    return name(WEIR_KIND_GRAPH, index);
}

/* The bulk of a reply to a call that succeeds. */
static void answer(enum weir_op op, const void *in, void *ret_out)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    assert_int_equal(send_op(op, 0, in), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &record, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S), WEIR_OK);
    assert_int_equal(record->status, CUDA_SUCCESS);
    assert_true(
        weir_ops[record->op].out_decode(record + 1, record->len_bytes - sizeof *record, ret_out));
}

/* The host's name of the graph in a node, which has this name. */
static uint64_t inner_of_named(uint64_t node)
{
    const struct weir_op_cuGraphChildGraphNodeGetGraph_in in = {.hNode = node};
    struct weir_op_cuGraphChildGraphNodeGetGraph_out out;

    answer(WEIR_OP_cuGraphChildGraphNodeGetGraph, &in, &out);
    return out.phGraph;
}

static uint64_t inner_of(uint32_t node)
{
    return inner_of_named(name(WEIR_KIND_NODE, node));
}

/* @param graph  to capture into; 0: a new one. */
static void begin(uint64_t graph)
{
    const struct weir_op_capture_begin_in in = {.s = name(WEIR_KIND_STREAM, 2), .g = graph};

    make_context();
    make_stream(2);
    assert_int_equal(call(WEIR_OP_capture_begin, &in, NULL), CUDA_SUCCESS);
}

static CUresult end(uint64_t graph)
{
    const struct weir_op_capture_end_in in = {.s = name(WEIR_KIND_STREAM, 2), .g = graph};

    return call(WEIR_OP_capture_end, &in, NULL);
}

/* The host's name of the graph under capture. */
static uint64_t captured_name(void)
{
    const struct weir_op_capture_info_in in = {.s = name(WEIR_KIND_STREAM, 2)};
    struct weir_op_capture_info_out out;

    answer(WEIR_OP_capture_info, &in, &out);
    return out.graph;
}

/* An executable of so many nodes is launched into the capture. */
static void launch(uint32_t nodes)
{
    const struct weir_exec exec = {.nodes = nodes};

    assert_int_equal(weir_graph_nest_captured(f.session, &exec), CUDA_SUCCESS);
}

static void graph_in_itself_is_refused(void **state)
{
    (void)state;
    make_graph(1);
    make_graph(2);
    assert_int_equal(nest(graph(1), graph(1), 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(nest(graph(1), graph(2), 1), CUDA_SUCCESS);
    assert_int_equal(nest(inner_of(1), graph(1), 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(nest(graph(2), graph(1), 2), CUDA_SUCCESS); /* node 1 has a copy of it */
}

static void depth_is_bounded(void **state)
{
    (void)state;
    make_graph(1);
    for (uint32_t i = 1; i <= WEIR_GRAPH_DEPTH_MAX; i++) {
        make_graph(i + 1);
        assert_int_equal(nest(graph(i + 1), graph(i), i), CUDA_SUCCESS);
    }
    make_graph(1000);
    assert_int_equal(nest(graph(1000), graph(WEIR_GRAPH_DEPTH_MAX + 1), 1000),
                     CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(nest(inner_of(WEIR_GRAPH_DEPTH_MAX), graph(2), 1000), CUDA_SUCCESS);
}

static void doubling_ends_at_the_bound(void **state)
{
    struct weir_op_cuGraphDestroyNode_in gone = {.hNode = name(WEIR_KIND_NODE, 2)};
    struct weir_op_cuGraphClone_in copy = {.originalGraph = graph(1), .phGraphClone = graph(3)};

    (void)state;
    nodes_of_each = WEIR_GRAPH_WITHIN_MAX / 4;
    make_graph(1);
    make_graph(2);
    make_graph(4);
    assert_int_equal(nest(graph(1), graph(2), 1), CUDA_SUCCESS); /* a quarter */
    assert_int_equal(nest(graph(4), graph(1), 2), CUDA_SUCCESS); /* half, with its own */
    assert_int_equal(call(WEIR_OP_cuGraphClone, &copy, NULL), CUDA_SUCCESS);
    assert_int_equal(nest(graph(4), graph(3), 3), CUDA_SUCCESS);
    assert_int_equal(nest(graph(4), graph(2), 4), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(nest(graph(2), graph(4), 4), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(call(WEIR_OP_cuGraphDestroyNode, &gone, NULL), CUDA_SUCCESS);
    assert_int_equal(nest(graph(4), graph(2), 4), CUDA_SUCCESS);
}

static void graph_that_was_found_counts(void **state)
{
    struct weir_op_cuGraphClone_in copy = {.originalGraph = graph(1), .phGraphClone = graph(3)};
    struct weir_op_cuGraphNodeFindInClone_in find = {.hOriginalNode = name(WEIR_KIND_NODE, 1),
                                                     .hClonedGraph = graph(3)};
    struct weir_op_cuGraphNodeFindInClone_out found;
    uint64_t inner;

    (void)state;
    nodes_of_each = WEIR_GRAPH_WITHIN_MAX / 4;
    for (uint32_t i = 1; i <= 5; i++) {
        if (i != 3) {
            make_graph(i);
        }
    }
    assert_int_equal(nest(graph(2), graph(4), 2), CUDA_SUCCESS);
    assert_int_equal(nest(graph(1), graph(2), 1), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_cuGraphClone, &copy, NULL), CUDA_SUCCESS);
    answer(WEIR_OP_cuGraphNodeFindInClone, &find, &found);
    inner = inner_of_named(found.phNode); /* has half; taken for three quarters */
    assert_int_equal(nest(graph(5), inner, 3), CUDA_SUCCESS);
    assert_int_equal(nest(graph(5), inner, 4), CUDA_ERROR_OUT_OF_MEMORY);
}

static void node_in_an_inner_graph_counts_outside(void **state)
{
    struct weir_op_cuGraphDestroyNode_in gone = {.hNode = name(WEIR_KIND_NODE, 2)};
    struct weir_op_cuGraphAddEmptyNode_in add = {.phGraphNode = name(WEIR_KIND_NODE, 2)};

    (void)state;
    make_graph(1);
    make_graph(2);
    assert_int_equal(nest(graph(1), graph(2), 1), CUDA_SUCCESS);
    add.hGraph = inner_of(1);
    assert_int_equal(call(WEIR_OP_cuGraphAddEmptyNode, &add, NULL), CUDA_SUCCESS);
    nodes_of_each = WEIR_GRAPH_WITHIN_MAX - 1;
    assert_int_equal(nest(graph(1), graph(2), 3), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(call(WEIR_OP_cuGraphDestroyNode, &gone, NULL), CUDA_SUCCESS);
    assert_int_equal(nest(graph(1), graph(2), 3), CUDA_SUCCESS);
}

/* A captured graph has half of what may be, with a quarter of its own: another has place for it
 * once. */
static void assert_half(uint64_t of)
{
    make_graph(6);
    assert_int_equal(nest(graph(6), of, 6), CUDA_SUCCESS);
    assert_int_equal(nest(graph(6), of, 7), CUDA_SUCCESS);
    assert_int_equal(nest(graph(6), of, 8), CUDA_ERROR_OUT_OF_MEMORY);
}

static void capture_keeps_what_is_in_it(void **state)
{
    (void)state;
    nodes_of_each = WEIR_GRAPH_WITHIN_MAX / 4;
    make_graph(2);
    begin(0);
    assert_int_equal(nest(captured_name(), graph(2), 1), CUDA_SUCCESS);
    assert_int_equal(end(graph(5)), CUDA_SUCCESS);
    assert_half(graph(5));
}

static void both_names_of_a_capture_count(void **state)
{
    uint64_t before;

    (void)state;
    nodes_of_each = WEIR_GRAPH_WITHIN_MAX / 4;
    make_graph(2);
    begin(0);
    before = captured_name();
    assert_int_equal(end(graph(5)), CUDA_SUCCESS);
    assert_int_equal(nest(graph(5), graph(2), 1), CUDA_SUCCESS);
    assert_half(before);
}

static void capture_that_ends_by_its_first_name_counts(void **state)
{
    uint64_t its_name;

    (void)state;
    nodes_of_each = WEIR_GRAPH_WITHIN_MAX / 4;
    begin(0);
    launch(WEIR_GRAPH_WITHIN_MAX / 4);
    its_name = captured_name();
    assert_int_equal(end(its_name), CUDA_SUCCESS);
    assert_half(its_name);
}

static void given_graph_counts_what_is_captured_and_what_is_added(void **state)
{
    (void)state;
    nodes_of_each = WEIR_GRAPH_WITHIN_MAX / 4;
    make_graph(1);
    make_graph(2);
    begin(graph(1));
    launch(WEIR_GRAPH_WITHIN_MAX / 2);
    assert_int_equal(nest(graph(1), graph(2), 1), CUDA_SUCCESS);
    assert_int_equal(nest(graph(1), graph(2), 2), CUDA_SUCCESS);
    assert_int_equal(nest(graph(1), graph(2), 3), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(end(graph(1)), CUDA_SUCCESS);
    assert_int_equal(nest(graph(1), graph(2), 3), CUDA_ERROR_OUT_OF_MEMORY);
}

static void given_graph_counts_what_was_captured_though_the_stream_is_gone(void **state)
{
    const struct weir_op_stream_destroy_in gone = {.s = name(WEIR_KIND_STREAM, 2)};

    (void)state;
    nodes_of_each = WEIR_GRAPH_WITHIN_MAX / 4;
    make_graph(1);
    begin(graph(1));
    launch(WEIR_GRAPH_WITHIN_MAX / 4);
    assert_int_equal(call(WEIR_OP_stream_destroy, &gone, NULL), CUDA_SUCCESS);
    assert_half(graph(1));
}

static void inner_graph_counts_outside_what_is_captured_into_it(void **state)
{
    (void)state;
    make_graph(1);
    make_graph(2);
    assert_int_equal(nest(graph(1), graph(2), 1), CUDA_SUCCESS);
    begin(inner_of(1));
    nodes_of_each = WEIR_GRAPH_WITHIN_MAX / 2 + 1;
    assert_int_equal(nest(graph(1), graph(2), 2), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(end(inner_of(1)), CUDA_SUCCESS);
    nodes_of_each = WEIR_GRAPH_WITHIN_MAX / 2;
    assert_int_equal(nest(graph(1), graph(2), 2), CUDA_ERROR_OUT_OF_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(graph_in_itself_is_refused, set_up_children, tear_down),
        cmocka_unit_test_setup_teardown(depth_is_bounded, set_up_children, tear_down),
        cmocka_unit_test_setup_teardown(doubling_ends_at_the_bound, set_up_children, tear_down),
        cmocka_unit_test_setup_teardown(graph_that_was_found_counts, set_up_children, tear_down),
        cmocka_unit_test_setup_teardown(node_in_an_inner_graph_counts_outside, set_up_children,
                                        tear_down),
        cmocka_unit_test_setup_teardown(capture_keeps_what_is_in_it, set_up_children, tear_down),
        cmocka_unit_test_setup_teardown(both_names_of_a_capture_count, set_up_children, tear_down),
        cmocka_unit_test_setup_teardown(capture_that_ends_by_its_first_name_counts, set_up_children,
                                        tear_down),
        cmocka_unit_test_setup_teardown(given_graph_counts_what_is_captured_and_what_is_added,
                                        set_up_children, tear_down),
        cmocka_unit_test_setup_teardown(
            given_graph_counts_what_was_captured_though_the_stream_is_gone, set_up_children,
            tear_down),
        cmocka_unit_test_setup_teardown(inner_graph_counts_outside_what_is_captured_into_it,
                                        set_up_children, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

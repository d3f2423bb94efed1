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

static void use_children(void)
{
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

/* The host's name of the graph in a node. */
static uint64_t inner_of(uint32_t node)
{
    const struct weir_op_cuGraphChildGraphNodeGetGraph_in in = {.hNode =
                                                                    name(WEIR_KIND_NODE, node)};
    struct weir_op_cuGraphChildGraphNodeGetGraph_out out;
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    assert_int_equal(send_op(WEIR_OP_cuGraphChildGraphNodeGetGraph, 0, &in), WEIR_OK);
    assert_int_equal(
        f.guest->ops->receive(f.guest, &record, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S), WEIR_OK);
    assert_int_equal(record->status, CUDA_SUCCESS);
    assert_true(
        weir_ops[record->op].out_decode(record + 1, record->len_bytes - sizeof *record, &out));
    return out.phGraph;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(graph_in_itself_is_refused, set_up_children, tear_down),
        cmocka_unit_test_setup_teardown(depth_is_bounded, set_up_children, tear_down),
        cmocka_unit_test_setup_teardown(doubling_ends_at_the_bound, set_up_children, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

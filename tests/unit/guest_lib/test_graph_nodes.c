/* What the library knows of a graph's nodes goes with the graph. */
#include "guest_lib/entry.h"
#include "guest_lib/graph.h"
#include "tests/lib/tl_cmocka.h"

#include <stdlib.h>

enum { NODES = 1000 };

static uint64_t add(uint64_t graph)
{
    uint64_t node;

    assert_int_equal(weir_guest_reserve(WEIR_KIND_NODE, &node), CUDA_SUCCESS);
    weir_graph_node_own(graph, node);
    const struct weir_graph_node record = {.handle = node, .type = CU_GRAPH_NODE_TYPE_HOST};
    assert_int_equal(weir_graph_node_keep(&record), CUDA_SUCCESS);
    return node;
}

static bool is_known(uint64_t node)
{
    struct weir_graph_node record;
    bool named = weir_guest_object_get(WEIR_KIND_NODE, (const void *)(uintptr_t)node) != NULL;

    assert_int_equal(named, weir_graph_node_find(node, &record));
    return named;
}

static void nodes_go_with_their_graph(void **state)
{
    uint64_t graphs[2], nodes[2][NODES];

    (void)state;
    for (int g = 0; g < 2; g++) {
        assert_int_equal(weir_guest_reserve(WEIR_KIND_GRAPH, &graphs[g]), CUDA_SUCCESS);
    }
    for (int i = 0; i < NODES; i++) {
        nodes[0][i] = add(graphs[0]);
        nodes[1][i] = add(graphs[1]);
    }
    weir_graph_nodes_forget(graphs[0]);
    weir_graph_nodes_forget(graphs[0]); /* it has none now */
    for (int i = 0; i < NODES; i++) {
        assert_false(is_known(nodes[0][i]));
        assert_true(is_known(nodes[1][i]));
    }
    weir_graph_nodes_forget(graphs[1]);
    assert_false(is_known(nodes[1][NODES - 1]));
}

static uint64_t make_graph(void)
{
    uint64_t graph;

    assert_int_equal(weir_guest_reserve(WEIR_KIND_GRAPH, &graph), CUDA_SUCCESS);
    return graph;
}

static uint64_t add_conditional(uint64_t graph, uint64_t body)
{
    uint64_t node = add(graph);
    CUgraph *bodies = calloc(1, sizeof(CUgraph));

    assert_non_null(bodies);
    bodies[0] = (CUgraph)(uintptr_t)body;
    const struct weir_graph_node record = {.handle = node,
                                           .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                                           .n_bodies = 1,
                                           .params = {.bodies = bodies}};
    /* The bodies are the record's now. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    assert_int_equal(weir_graph_node_keep(&record), CUDA_SUCCESS);
    return node;
}

static void nodes_of_bodies_go_with_the_graph_around_them(void **state)
{
    const uint64_t outer = make_graph(), body = make_graph(), inner = make_graph();
    const uint64_t conditional = add_conditional(outer, body);
    const uint64_t within = add_conditional(body, inner), last = add(inner);

    (void)state;
    weir_graph_nodes_forget(outer);
    assert_false(is_known(conditional));
    assert_false(is_known(within));
    assert_false(is_known(last));
}

static int start(void **state)
{
    (void)state;
    assert_int_equal(weir_guest_objects_init(&weir_guest.objects), WEIR_OK);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_go_with_their_graph),
        cmocka_unit_test(nodes_of_bodies_go_with_the_graph_around_them),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}

/*
 * Stream priorities: which one work has by its class, the scheduler's level and what the guest asks
 * for; and graphs whose kernels have priorities (worker/ops/graph_priority.c).
 */
#include "host_backend/worker/ops/graph_priority.h"
#include "tests/integration/gate_fixture.h"

#define KEPT CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
#define FREE CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH

/* ---------------------------------------------------------------- levels */

static void levels_do_not_collide(void **state)
{
    static const struct {
        const char *what;
        bool filling;
        enum weir_priority class;
        enum weir_sched_level level;
        bool decided;
        int asked, native;
    } cases[] = {
        {"fills", true, WEIR_PRIORITY_NORMAL, WEIR_SCHED_BELOW_EQUAL, true, -5, 0},
        {"fills for a higher class", true, WEIR_PRIORITY_LOW, WEIR_SCHED_BELOW, true, 0, 0},
        {"low", true, WEIR_PRIORITY_LOW, WEIR_SCHED_PLAIN, true, -5, -1},
        {"normal", true, WEIR_PRIORITY_NORMAL, WEIR_SCHED_PLAIN, true, 0, -2},
        {"normal, asks for more", true, WEIR_PRIORITY_NORMAL, WEIR_SCHED_PLAIN, true, -5, -2},
        {"above", true, WEIR_PRIORITY_NORMAL, WEIR_SCHED_ABOVE, true, 0, -3},
        {"above, asks for more", true, WEIR_PRIORITY_NORMAL, WEIR_SCHED_ABOVE, true, -5, -3},
        {"alone", true, WEIR_PRIORITY_NORMAL, WEIR_SCHED_PLAIN, false, 0, -2},
        {"alone, asks for more", true, WEIR_PRIORITY_NORMAL, WEIR_SCHED_PLAIN, false, -5, -3},
        {"nothing goes above", false, WEIR_PRIORITY_NORMAL, WEIR_SCHED_PLAIN, true, -1, -3},
        {"high", true, WEIR_PRIORITY_HIGH, WEIR_SCHED_PLAIN, true, -5, -4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int native;

        (cases[i].filling ? gate_open_filling : gate_open_leveled)("fair");
        native = weir_device_gate_priority(fx.worker.gates[0], cases[i].class, cases[i].level,
                                           cases[i].decided, cases[i].asked);
        gate_close();
        if (native != cases[i].native) {
            fail_msg("%s: %d", cases[i].what, native);
        }
    }
}

/* A launch of a session that is alone, asking for a priority or not. */
static void give(struct guest *guest, const int *asked)
{
    struct weir_gate_work work = kernel_of(1, 0);
    struct weir_admission admission;

    assert_int_equal(
        weir_admission_enter(&guest->session, &guest->stream, &work, asked, &admission),
        CUDA_SUCCESS);
    weir_admission_leave(&admission, CUDA_SUCCESS);
}

static void a_stream_has_the_priority_of_its_next_work(void **state)
{
    const int urgent = -5;
    struct guest *guest;
    uint32_t before;

    (void)state;
    gate_open_filling("fair");
    guest = guest_new(0, 0);
    make_alone(guest);
    give(guest, NULL);
    assert_int_equal(guest->stream.gate.priority, -2);
    give(guest, &urgent); /* a graph's kernels ask for it, whatever the stream does */
    assert_int_equal(priorities.last, -3);
    before = priorities.sets;
    give(guest, &urgent);
    assert_int_equal(priorities.sets, before); /* the driver is told once */
    give(guest, NULL);
    assert_int_equal(priorities.last, -2);
    guest_gone(guest);
    gate_close();
}

/* ---------------------------------------------------------------- graphs */

/* A graph of two kernels, and one in a child graph; of these priorities. */
static int node_priorities[3];
static CUgraphNodeType second_type;

static CUgraph handle_of(uintptr_t n)
{
    return (CUgraph)n;
}

static CUresult get_nodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    bool child = graph == handle_of(2);

    *n = child ? 1 : 3;
    for (size_t i = 0; nodes != NULL && i < *n; i++) {
        nodes[i] = (CUgraphNode)(uintptr_t)(child ? 3 : i + 1);
    }
    if (nodes != NULL && !child) {
        nodes[2] = (CUgraphNode)(uintptr_t)4;
    }
    return CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode node, CUgraphNodeType *type)
{
    *type = (uintptr_t)node == 4   ? CU_GRAPH_NODE_TYPE_GRAPH
            : (uintptr_t)node == 2 ? second_type
                                   : CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode node, CUgraph *child)
{
    assert_int_equal((uintptr_t)node, 4);
    *child = handle_of(2);
    return CUDA_SUCCESS;
}

static CUresult get_attribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value)
{
    assert_int_equal(id, CU_LAUNCH_ATTRIBUTE_PRIORITY);
    value->priority = node_priorities[(uintptr_t)node - 1];
    return CUDA_SUCCESS;
}

static void a_graph_of_one_priority_is_instantiated_without_the_flag(void **state)
{
    static const struct {
        const char *what;
        uint64_t flags;
        int nodes[3];
        CUgraphNodeType second;
        uint64_t kept;
        bool by_stream, of_nodes;
        int asked;
    } cases[] = {
        {"the same", KEPT | FREE, {-2, -2, -2}, CU_GRAPH_NODE_TYPE_KERNEL, FREE, true, false, 0},
        {"all urgent", KEPT, {-3, -3, -3}, CU_GRAPH_NODE_TYPE_KERNEL, 0, true, false, -1},
        {"not in range", KEPT, {-5, -5, -5}, CU_GRAPH_NODE_TYPE_KERNEL, 0, true, false, -1},
        {"not asked for", FREE, {-3, -2, -2}, CU_GRAPH_NODE_TYPE_KERNEL, FREE, false, false, 0},
        {"two", KEPT, {-2, -3, -2}, CU_GRAPH_NODE_TYPE_KERNEL, KEPT, false, true, 0},
        {"another within", KEPT, {-2, -2, -3}, CU_GRAPH_NODE_TYPE_KERNEL, KEPT, false, true, 0},
        {"with a copy", KEPT, {-2, 9, -2}, CU_GRAPH_NODE_TYPE_MEMCPY, 0, true, false, 0},
        {"condition", KEPT, {-2, 9, -2}, CU_GRAPH_NODE_TYPE_CONDITIONAL, KEPT, false, true, 0},
    };
    struct weir_driver *driver = &fx.worker.platform.driver;
    struct guest *guest;

    (void)state;
    gate_open_filling("fair");
    driver->cuGraphGetNodes = get_nodes;
    driver->cuGraphNodeGetType = get_type;
    driver->cuGraphChildGraphNodeGetGraph = get_child;
    driver->cuGraphKernelNodeGetAttribute = get_attribute;
    guest = guest_new(0, 0);
    guest->session.driver = driver;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weir_exec exec = {.sms = 1};
        uint64_t flags;

        memcpy(node_priorities, cases[i].nodes, sizeof node_priorities);
        second_type = cases[i].second;
        flags = weir_graph_priority_flags(&guest->session, handle_of(1), cases[i].flags,
                                          &exec.priority);
        if (flags != cases[i].kept || exec.priority.by_stream != cases[i].by_stream ||
            exec.priority.of_nodes != cases[i].of_nodes || exec.priority.asked != cases[i].asked) {
            fail_msg("%s: flags %llu, asked %d", cases[i].what, (unsigned long long)flags,
                     exec.priority.asked);
        }
        assert_true((weir_graph_priority_asked(&exec) != NULL) == cases[i].by_stream);
        node_priorities[0] = -3; /* an update: what goes by the stream asks for the highest */
        weir_graph_priority_updated(&guest->session, &exec, handle_of(1));
        assert_int_equal(exec.priority.asked, cases[i].by_stream ? -1 : 0);
    }
    guest_gone(guest);
    gate_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_do_not_collide),
        cmocka_unit_test(a_stream_has_the_priority_of_its_next_work),
        cmocka_unit_test(a_graph_of_one_priority_is_instantiated_without_the_flag),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

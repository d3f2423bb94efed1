/*
 * Stream priorities: which one work has by its class, the scheduler's level and what the guest asks
 * for; graphs whose kernels have priorities (worker/ops/graph_priority.c); and how many SMs graphs
 * need (worker/ops/graph_demand.c).
 */
#include "host_backend/worker/ops/graph_priority.h"
#include "host_backend/worker/ops/ops.h"
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
    for (size_t i = 0; nodes && i < *n; i++) {
        nodes[i] = (CUgraphNode)(uintptr_t)(child ? 3 : i + 1);
    }
    if (nodes && !child) {
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

static CUresult set_attribute(CUgraphNode node, CUkernelNodeAttrID id,
                              const CUkernelNodeAttrValue *value)
{
    assert_int_equal(id, CU_LAUNCH_ATTRIBUTE_PRIORITY);
    node_priorities[(uintptr_t)node - 1] = value->priority;
    return CUDA_SUCCESS;
}

static void a_node_gets_no_priority_above_its_tenants_class(void **state)
{
    struct weir_driver *driver = &fx.worker.platform.driver;
    struct weir_op_graph_kernel_attribute_in in = {
        .n = weir_handle_make(WEIR_KIND_NODE, false, 1, 1),
        .attribute = CU_LAUNCH_ATTRIBUTE_PRIORITY};
    struct weir_op_graph_kernel_attribute_out out = {0};
    struct weir_object *node;
    struct guest *guest;

    (void)state;
    gate_open_filling("fair");
    driver->cuGraphKernelNodeGetAttribute = get_attribute;
    driver->cuGraphKernelNodeSetAttribute = set_attribute;
    guest = guest_new(0, 0);
    guest->session.handles = weir_handles_create();
    assert_non_null(guest->session.handles);
    assert_int_equal(weir_host_object_create(&guest->session, WEIR_KIND_NODE, sizeof *node, in.n,
                                             handle_of(1), NULL, &node),
                     CUDA_SUCCESS);
    in.write = 1;
    in.value.priority = -5;
    assert_int_equal(weir_host_graph_kernel_attribute(&guest->session, &in, &out), CUDA_SUCCESS);
    assert_int_equal(node_priorities[0], -3); /* as that of a stream: levels_do_not_collide() */
    in.write = 0;
    assert_int_equal(weir_host_graph_kernel_attribute(&guest->session, &in, &out), CUDA_SUCCESS);
    assert_int_equal(out.value.priority, -1);
    weir_host_object_forget(&guest->session, node);
    weir_handles_destroy(guest->session.handles);
    guest_gone(guest);
    gate_close();
}

/* ---------------------------------------------------------------- what graphs need */

#define SMS 100

static uint32_t node_blocks[3]; /* of which two fit on an SM; 0: the driver does not tell */

static CUresult get_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *ret)
{
    *ret = (CUDA_KERNEL_NODE_PARAMS){.func = (CUfunction)node,
                                     .gridDimX = node_blocks[(uintptr_t)node - 1],
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 32,
                                     .blockDimY = 1,
                                     .blockDimZ = 1};
    return ret->gridDimX != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult occupancy(int *ret_blocks, CUfunction function, int threads, size_t shared_bytes)
{
    (void)function;
    assert_true(threads == 32 && shared_bytes == 0);
    *ret_blocks = 2;
    return CUDA_SUCCESS;
}

static struct guest *open_demand(void)
{
    struct weir_driver *driver = &fx.worker.platform.driver;
    struct guest *guest;

    gate_open_filling("fair");
    driver->cuGraphGetNodes = get_nodes;
    driver->cuGraphNodeGetType = get_type;
    driver->cuGraphChildGraphNodeGetGraph = get_child;
    driver->cuGraphKernelNodeGetParams_v2 = get_params;
    driver->cuOccupancyMaxActiveBlocksPerMultiprocessor = occupancy;
    second_type = CU_GRAPH_NODE_TYPE_KERNEL;
    guest = guest_new(0, 0);
    guest->session.driver = driver;
    fx.worker.config.sms.n = 1;
    fx.worker.config.sms.sms[0] = SMS;
    return guest;
}

static void close_demand(struct guest *guest)
{
    fx.worker.config.sms.n = 0;
    guest_gone(guest);
    gate_close();
}

static void a_graph_needs_what_all_its_kernels_need_in_the_mean(void **state)
{
    static const struct {
        const char *what;
        uint32_t blocks[3];
        CUgraphNodeType second;
        uint32_t sms;
    } cases[] = {
        {"alike", {2, 2, 2}, CU_GRAPH_NODE_TYPE_KERNEL, 1},
        {"a large one", {2, 199, 2}, CU_GRAPH_NODE_TYPE_KERNEL, 34},
        {"a large one within", {2, 2, 9999}, CU_GRAPH_NODE_TYPE_KERNEL, 34},
        {"one that is not known", {2, 0, 2}, CU_GRAPH_NODE_TYPE_KERNEL, 34},
        {"with a copy", {20, 0, 20}, CU_GRAPH_NODE_TYPE_MEMCPY, 10},
        {"condition", {2, 2, 2}, CU_GRAPH_NODE_TYPE_CONDITIONAL, 0},
    };
    struct guest *guest = open_demand();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t sms;

        memcpy(node_blocks, cases[i].blocks, sizeof node_blocks);
        second_type = cases[i].second;
        sms = weir_ops_graph_sms(&guest->session, handle_of(1));
        if (sms != cases[i].sms) {
            fail_msg("%s: %u SMs", cases[i].what, sms);
        }
    }
    close_demand(guest);
}

/* Or a large graph would pass as the small one that it was. */
static void what_an_executable_graph_needs_is_not_known_once_it_has_grown(void **state)
{
    static const uint32_t small[] = {2, 2, 2}, large[] = {200, 200, 200};
    struct guest *guest = open_demand();
    struct weir_object node = {.kind = WEIR_KIND_NODE, .native = handle_of(1)};
    struct weir_exec exec = {.sms = 1};
    CUDA_KERNEL_NODE_PARAMS params;

    (void)state;
    memcpy(node_blocks, small, sizeof node_blocks);
    (void)get_params(node.native, &params);
    params.gridDimX = 1;
    weir_ops_graph_sms_set(&guest->session, &exec, &node, &params);
    params.gridDimX = 2;
    weir_ops_graph_sms_set(&guest->session, &exec, &node, &params);
    assert_int_equal(exec.sms, 1);
    params.gridDimX = 200;
    weir_ops_graph_sms_set(&guest->session, &exec, &node, &params);
    assert_int_equal(exec.sms, 0);

    exec.sms = 1;
    memcpy(node_blocks, large, sizeof node_blocks); /* the node was changed, not the executable */
    node.altered = true;
    weir_ops_graph_sms_set(&guest->session, &exec, &node, &params);
    assert_int_equal(exec.sms, 0);

    node.altered = false;
    weir_ops_graph_sms_updated(&guest->session, &exec, handle_of(1));
    assert_int_equal(exec.sms, SMS);
    memcpy(node_blocks, small, sizeof node_blocks);
    weir_ops_graph_sms_updated(&guest->session, &exec, handle_of(1));
    assert_int_equal(exec.sms, 1);
    memcpy(node_blocks, large, sizeof node_blocks); /* of the graph that it was made of */
    weir_ops_graph_sms_set(&guest->session, &exec, &node, &params);
    assert_int_equal(exec.sms, 0);
    close_demand(guest);
}

/* @return how many SMs an executable graph that needed one is taken to need after an operation. */
static uint32_t sms_after(struct guest *guest, uint16_t op)
{
    uint64_t handle = weir_handle_make(WEIR_KIND_EXEC, false, 1, 1);
    struct weir_object *exec;
    void *native;
    uint32_t sms;

    assert_int_equal(weir_host_object_create(&guest->session, WEIR_KIND_EXEC,
                                             sizeof(struct weir_exec), handle, handle_of(1), NULL,
                                             &exec),
                     CUDA_SUCCESS);
    ((struct weir_exec *)exec)->sms = 1;
    guest->session.op.code = op;
    assert_int_equal(weir_session_use(&guest->session, WEIR_KIND_EXEC, handle, &native),
                     CUDA_SUCCESS);
    sms = ((struct weir_exec *)exec)->sms;
    weir_host_object_forget(&guest->session, exec);
    return sms;
}

static void nor_once_its_nodes_are_switched_or_replaced(void **state)
{
    struct guest *guest = open_demand();

    (void)state;
    guest->session.handles = weir_handles_create();
    assert_non_null(guest->session.handles);
    assert_int_equal(sms_after(guest, WEIR_OP_cuGraphNodeSetEnabled), 0);
    assert_int_equal(sms_after(guest, WEIR_OP_cuGraphExecChildGraphNodeSetParams), 0);
    assert_int_equal(sms_after(guest, WEIR_OP_graph_memset_set), 1);
    assert_int_equal(sms_after(guest, WEIR_OP_cuGraphNodeGetEnabled), 1);
    weir_handles_destroy(guest->session.handles);
    close_demand(guest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_do_not_collide),
        cmocka_unit_test(a_stream_has_the_priority_of_its_next_work),
        cmocka_unit_test(a_graph_of_one_priority_is_instantiated_without_the_flag),
        cmocka_unit_test(a_node_gets_no_priority_above_its_tenants_class),
        cmocka_unit_test(a_graph_needs_what_all_its_kernels_need_in_the_mean),
        cmocka_unit_test(what_an_executable_graph_needs_is_not_known_once_it_has_grown),
        cmocka_unit_test(nor_once_its_nodes_are_switched_or_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

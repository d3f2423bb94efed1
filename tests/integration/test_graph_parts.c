/* Graphs that keep to a part of a device, on softgpu: where their kernels run, and what they
 * compute. */
#include "../lib/tl_cmocka.h"
#include "host_backend/worker/ops/graph_parts.h"
#include "host_backend/worker/state/worker.h"
#include "proto/driver_table.h"
#include "tests/integration/soft_driver.h"
#include <string.h>

#define SMS    8u /* softgpu's, by WEIR_SOFTGPU_SMS; cut by two */
#define BLOCKS 2048u
#define WORDS  64u
#define ROUNDS 10

/* where: each block leaves a mark for its SM. step: x = 3x + 1 of each word, by one block. */
static const char ptx[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                          ".visible .entry where(.param .u64 marks)\n{\n"
                          "    .reg .b32 %r<3>;\n    .reg .b64 %d<3>;\n"
                          "    ld.param.u64 %d0, [marks];\n"
                          "    mov.u32 %r0, %smid;\n    mov.u32 %r1, 1;\n"
                          "    mul.wide.u32 %d1, %r0, 4;\n    add.s64 %d2, %d0, %d1;\n"
                          "    st.global.u32 [%d2], %r1;\n    ret;\n}\n"
                          ".visible .entry step(.param .u64 words)\n{\n"
                          "    .reg .b32 %r<3>;\n    .reg .b64 %d<3>;\n"
                          "    ld.param.u64 %d0, [words];\n    mov.u32 %r0, %tid.x;\n"
                          "    mul.wide.u32 %d1, %r0, 4;\n    add.s64 %d2, %d0, %d1;\n"
                          "    ld.global.u32 %r1, [%d2];\n    mad.lo.u32 %r2, %r1, 3, 1;\n"
                          "    st.global.u32 [%d2], %r2;\n    ret;\n}\n";

static struct fixture {
    struct weir_driver driver;
    struct weir_worker worker;
    struct weir_session session;
    struct weir_parts *parts;
    CUmodule module;
    CUlibrary library;
    CUfunction where, step;
    CUdeviceptr marks, words;
    CUstream stream;
} f;

static uint32_t alive; /* executable graphs */

#define DRV(call) assert_int_equal(f.driver.call, CUDA_SUCCESS)

static CUresult (*instantiate)(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *);
static CUresult (*exec_destroy)(CUgraphExec);

static int made_priority; /* of the last kernel of the last graph that one was made of */

static void note_priority(CUgraph graph)
{
    CUlaunchAttributeValue value = {.priority = 0};
    CUgraphNode nodes[64];
    CUgraphNodeType type;
    size_t n = 64;

    DRV(cuGraphGetNodes(graph, nodes, &n));
    for (size_t i = 0; i < n; i++) {
        DRV(cuGraphNodeGetType(nodes[i], &type));
        if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
            DRV(cuGraphKernelNodeGetAttribute(nodes[i], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
            made_priority = value.priority;
        }
    }
}

static CUresult count_made(CUgraphExec *ret, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    alive++;
    note_priority(graph);
    return instantiate(ret, graph, params);
}

static CUresult count_destroyed(CUgraphExec exec)
{
    alive--;
    return exec_destroy(exec);
}

static int set_up_group(void **state)
{
    (void)state;
    f.worker.platform.devices[0].context = soft_driver_open(&f.driver);
    instantiate = f.driver.cuGraphInstantiateWithParams;
    exec_destroy = f.driver.cuGraphExecDestroy;
    f.driver.cuGraphInstantiateWithParams = count_made;
    f.driver.cuGraphExecDestroy = count_destroyed;
    f.worker.platform.n_devices = 1;
    f.worker.config.sms.n = 1;
    f.worker.config.sms.sms[0] = SMS;
    f.session.worker = &f.worker;
    f.session.platform = &f.worker.platform;
    f.session.driver = &f.driver;
    DRV(cuModuleLoadData(&f.module, ptx));
    DRV(cuModuleGetFunction(&f.where, f.module, "where"));
    DRV(cuModuleGetFunction(&f.step, f.module, "step"));
    DRV(cuLibraryLoadData(&f.library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    DRV(cuMemAlloc_v2(&f.marks, SMS * 4));
    DRV(cuMemAlloc_v2(&f.words, WORDS * 4));
    DRV(cuStreamCreate(&f.stream, CU_STREAM_NON_BLOCKING));
    f.parts = weir_parts_create(&f.driver, 0);
    return 0;
}

static int tear_down_group(void **state)
{
    (void)state;
    weir_parts_destroy(f.parts);
    DRV(cuStreamDestroy_v2(f.stream));
    DRV(cuMemFree_v2(f.words));
    DRV(cuMemFree_v2(f.marks));
    DRV(cuLibraryUnload(f.library));
    DRV(cuModuleUnload(f.module));
    soft_driver_close(&f.driver);
    return 0;
}

static struct weir_part *part_of(uint32_t sm_first, uint32_t sm_count)
{
    struct weir_part *part = NULL;

    assert_int_equal(weir_parts_make(f.parts, sm_first, sm_count, &part), WEIR_OK);
    return part;
}

/* A kernel of one argument, behind a node or none. */
static CUgraphNode add(CUgraph graph, CUgraphNode behind, CUfunction function, uint32_t blocks,
                       CUdeviceptr argument)
{
    void *params[] = {&argument};
    const CUDA_KERNEL_NODE_PARAMS kernel = {.func = function,
                                            .gridDimX = blocks,
                                            .gridDimY = 1,
                                            .gridDimZ = 1,
                                            .blockDimX = WORDS,
                                            .blockDimY = 1,
                                            .blockDimZ = 1,
                                            .kernelParams = params};
    CUgraphNode node;

    DRV(cuGraphAddKernelNode_v2(&node, graph, &behind, behind != NULL, &kernel));
    return node;
}

/* An executable graph as a session has it. Takes the graph. */
static struct weir_exec exec_of(CUgraph graph)
{
    struct weir_exec exec = {.inside = {.graph = graph, .partable = true}};
    size_t n = 0;

    DRV(cuGraphGetNodes(graph, NULL, &n));
    exec.inside.n_nodes = (uint32_t)n;
    return exec;
}

static void end(struct weir_exec *exec)
{
    weir_exec_gone(&f.driver, exec);
    assert_int_equal(alive, 0);
}

static uint32_t marks_seen(void)
{
    uint32_t mark[SMS], seen = 0;

    DRV(cuStreamSynchronize(f.stream));
    DRV(cuMemcpyDtoH_v2(mark, f.marks, sizeof mark));
    for (unsigned i = 0; i < SMS; i++) {
        seen |= mark[i] != 0 ? 1u << i : 0;
    }
    return seen;
}

/* All words are what so many steps make of 1. */
static void assert_steps(int steps)
{
    uint32_t word[WORDS], expected = 1;

    while (steps-- > 0) {
        expected = 3 * expected + 1;
    }
    DRV(cuStreamSynchronize(f.stream));
    DRV(cuMemcpyDtoH_v2(word, f.words, sizeof word));
    for (unsigned i = 0; i < WORDS; i++) {
        assert_int_equal(word[i], expected);
    }
}

/* Words become 1, marks 0; a step beside a kernel that leaves marks; two steps behind both. */
static CUgraph make_graph(CUfunction where, CUfunction step)
{
    const CUDA_MEMSET_NODE_PARAMS clear = {
        .dst = f.marks, .elementSize = 4, .width = SMS, .height = 1};
    const CUDA_MEMSET_NODE_PARAMS ones = {
        .dst = f.words, .value = 1, .elementSize = 4, .width = WORDS, .height = 1};
    CUcontext context = f.worker.platform.devices[0].context;
    CUgraphNode cleared, set, first, marked, second;
    CUgraph graph;

    DRV(cuGraphCreate(&graph, 0));
    DRV(cuGraphAddMemsetNode(&cleared, graph, NULL, 0, &clear, context));
    DRV(cuGraphAddMemsetNode(&set, graph, &cleared, 1, &ones, context));
    first = add(graph, set, step, 1, f.words);
    marked = add(graph, cleared, where, BLOCKS, f.marks);
    second = add(graph, first, step, 1, f.words);
    DRV(cuGraphAddDependencies(graph, &marked, &second, 1));
    (void)add(graph, second, step, 1, f.words);
    return graph;
}

static void check_both_sides(CUfunction where, CUfunction step)
{
    struct weir_exec exec = exec_of(make_graph(where, step));

    for (uint32_t n = 2; n < SMS; n += 2) {
        struct weir_part *first = part_of(0, n), *rest = part_of(n, SMS - n);

        for (int i = 0; i < ROUNDS; i++) {
            uint32_t at_first;

            assert_true(weir_graph_parts_launch(&f.session, &exec, first, f.stream));
            assert_steps(3);
            at_first = marks_seen();
            assert_true(weir_graph_parts_launch(&f.session, &exec, rest, f.stream));
            assert_steps(3);
            assert_int_equal(at_first & marks_seen(), 0);
            assert_in_range(__builtin_popcount(at_first), 1, n);
            assert_in_range(__builtin_popcount(marks_seen()), 1, SMS - n);
        }
        weir_part_put(first);
        weir_part_put(rest);
    }
    assert_in_range(alive, 1, WEIR_EXEC_PARTS_MAX);
    end(&exec);
}

static void graphs_of_functions_keep_to_parts(void **state)
{
    (void)state;
    check_both_sides(f.where, f.step);
}

static void graphs_of_libraries_kernels_keep_to_parts(void **state)
{
    CUfunction where, step;
    CUkernel kernel;

    (void)state;
    DRV(cuLibraryGetKernel(&kernel, f.library, "where"));
    DRV(cuKernelGetFunction(&where, kernel));
    DRV(cuLibraryGetKernel(&kernel, f.library, "step"));
    DRV(cuKernelGetFunction(&step, kernel));
    check_both_sides(where, step);
}

/* Edges, too: softgpu runs nodes without an edge between them at the same time. */
static void each_launch_does_all_of_the_graph_in_its_order(void **state)
{
    struct weir_part *part = part_of(2, SMS - 2);
    CUgraphNode last = NULL;
    struct weir_exec exec;
    CUgraph graph;

    (void)state;
    DRV(cuGraphCreate(&graph, 0));
    for (int i = 0; i < 20; i++) {
        last = add(graph, last, f.step, 1, f.words);
    }
    exec = exec_of(graph);
    DRV(cuMemsetD32_v2(f.words, 1, WORDS));
    DRV(cuCtxSynchronize());
    for (int i = 0; i < ROUNDS; i++) {
        assert_true(weir_graph_parts_launch(&f.session, &exec, part, f.stream));
    }
    assert_steps(20 * ROUNDS);
    assert_int_equal(alive, 1);
    weir_part_put(part);
    end(&exec);
}

static uint32_t blocks_per_sm(CUfunction function)
{
    int blocks = 0;

    DRV(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, WORDS, 0));
    return (uint32_t)blocks;
}

/* They may wait for each other. */
static void blocks_that_are_all_on_the_device_at_once_are_not_kept_to_a_part(void **state)
{
    uint32_t per_sm = blocks_per_sm(f.where);
    const struct {
        uint32_t blocks;
        bool in_part;
    } cases[] = {{1, true},
                 {2 * per_sm, true},
                 {2 * per_sm + 1, false},
                 {SMS * per_sm, false},
                 {SMS * per_sm + 1, true}};
    struct weir_part *part = part_of(0, 2);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_exec exec;
        CUgraph graph;

        DRV(cuGraphCreate(&graph, 0));
        (void)add(graph, NULL, f.where, cases[i].blocks, f.marks);
        exec = exec_of(graph);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(weir_graph_parts_launch(&f.session, &exec, part, f.stream),
                             cases[i].in_part);
        }
        assert_int_equal(alive, cases[i].in_part);
        end(&exec);
    }
    weir_part_put(part);
}

static void cooperative_kernels_are_not_kept_to_a_part(void **state)
{
    const CUlaunchAttributeValue yes = {.cooperative = 1};
    struct weir_part *part = part_of(0, 2);
    struct weir_exec exec;
    CUgraphNode node;
    CUgraph graph;

    (void)state;
    DRV(cuGraphCreate(&graph, 0));
    node = add(graph, NULL, f.step, 1, f.words);
    DRV(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &yes));
    exec = exec_of(graph);
    assert_false(weir_graph_parts_launch(&f.session, &exec, part, f.stream));
    end(&exec);
    weir_part_put(part);
}

static void kernels_keep_their_attributes(void **state)
{
    struct weir_part *part = part_of(0, 4);

    (void)state;
    for (int priority = 0; priority >= -2; priority--) {
        const CUlaunchAttributeValue value = {.priority = priority};
        struct weir_exec exec;
        CUgraphNode node;
        CUgraph graph;

        DRV(cuGraphCreate(&graph, 0));
        node = add(graph, NULL, f.step, 1, f.words);
        DRV(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
        exec = exec_of(graph);
        assert_true(weir_graph_parts_launch(&f.session, &exec, part, f.stream));
        assert_int_equal(made_priority, priority);
        DRV(cuStreamSynchronize(f.stream));
        end(&exec);
    }
    weir_part_put(part);
}

static void graphs_with_child_graphs_are_in_no_part(void **state)
{
    struct weir_part *part = part_of(0, 4);
    CUgraph graph, child;
    struct weir_exec exec;
    CUgraphNode node;

    (void)state;
    DRV(cuGraphCreate(&child, 0));
    DRV(cuGraphCreate(&graph, 0));
    (void)add(child, NULL, f.step, 1, f.words);
    (void)add(graph, NULL, f.step, 1, f.words);
    DRV(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    DRV(cuGraphDestroy(child));
    exec = exec_of(graph);
    assert_false(weir_graph_parts_launch(&f.session, &exec, part, f.stream));
    assert_false(exec.inside.partable);
    assert_null(exec.inside.graph);
    end(&exec);
    weir_part_put(part);
}

static void a_change_of_the_graph_ends_what_stands_for_it(void **state)
{
    struct weir_part *part = part_of(0, 4);
    struct weir_exec exec = exec_of(make_graph(f.where, f.step));

    (void)state;
    assert_true(weir_graph_parts_launch(&f.session, &exec, part, f.stream));
    assert_int_equal(alive, 1);
    weir_exec_changes(&f.driver, &exec);
    assert_int_equal(alive, 0);
    assert_false(exec.inside.partable);
    assert_null(f.session.devices.placed);
    DRV(cuStreamSynchronize(f.stream));
    weir_part_put(part);
    end(&exec);
}

static CUresult refuse_launch(CUgraphExec exec, CUstream stream)
{
    (void)exec;
    (void)stream;
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

/* And not made again at each launch. */
static void what_the_driver_refuses_to_launch_goes(void **state)
{
    CUresult (*launch)(CUgraphExec, CUstream) = f.driver.cuGraphLaunch;
    struct weir_part *part = part_of(0, 4), *other = part_of(4, 4);
    struct weir_exec exec = exec_of(make_graph(f.where, f.step));

    (void)state;
    f.driver.cuGraphLaunch = refuse_launch;
    assert_false(weir_graph_parts_launch(&f.session, &exec, part, f.stream));
    f.driver.cuGraphLaunch = launch;
    assert_false(weir_graph_parts_launch(&f.session, &exec, part, f.stream));
    assert_int_equal(alive, 0);
    assert_false(exec.was_other);
    assert_true(weir_graph_parts_launch(&f.session, &exec, other, f.stream));
    assert_true(exec.was_other);
    assert_steps(3);
    weir_part_put(part);
    weir_part_put(other);
    end(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_of_functions_keep_to_parts),
        cmocka_unit_test(graphs_of_libraries_kernels_keep_to_parts),
        cmocka_unit_test(each_launch_does_all_of_the_graph_in_its_order),
        cmocka_unit_test(blocks_that_are_all_on_the_device_at_once_are_not_kept_to_a_part),
        cmocka_unit_test(cooperative_kernels_are_not_kept_to_a_part),
        cmocka_unit_test(kernels_keep_their_attributes),
        cmocka_unit_test(graphs_with_child_graphs_are_in_no_part),
        cmocka_unit_test(a_change_of_the_graph_ends_what_stands_for_it),
        cmocka_unit_test(what_the_driver_refuses_to_launch_goes),
    };

    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}

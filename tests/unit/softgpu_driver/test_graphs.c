/* Graphs: captured with a fork and a join, built by hand, updated, with memory of their own. */
#include "support.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

static void captured_fork_and_join_runs_in_order(void **state)
{
    (void)state;
    CUstream a, b;
    CUevent fork, join;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr d;
    size_t n_nodes = 0, n_edges = 0;
    unsigned out[3];
    OK(cuMemAlloc_v2(&d, 12));
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD32Async(d, 1, 3, a));
    OK(cuEventRecord(fork, a));
    OK(cuStreamWaitEvent(b, fork, 0));
    OK(cuMemsetD32Async(d + 4, 2, 1, b));
    OK(cuEventRecord(join, b));
    OK(cuMemsetD32Async(d + 8, 3, 1, a));
    OK(cuStreamWaitEvent(a, join, 0));
    OK(cuMemcpyDtoDAsync_v2(d, d + 4, 4, a));
    OK(cuStreamEndCapture(a, &graph));
    OK(cuGraphGetNodes(graph, NULL, &n_nodes));
    OK(cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &n_edges));
    assert_int_equal(n_nodes, 4);
    assert_int_equal(n_edges, 4);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 3; i++) {
        OK(cuMemsetD32Async(d, 99, 3, a));
        OK(cuGraphLaunch(exec, a));
        OK(cuStreamSynchronize(a));
        OK(cuMemcpyDtoH_v2(out, d, 12));
        assert_int_equal(out[0], 2);
        assert_int_equal(out[1], 2);
        assert_int_equal(out[2], 3);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuEventDestroy_v2(fork));
    OK(cuEventDestroy_v2(join));
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
    OK(cuMemFree_v2(d));
}

static void capture_with_an_unjoined_stream_is_refused(void **state)
{
    (void)state;
    CUstream a, b;
    CUevent fork;
    CUgraph graph;
    CUdeviceptr d;
    OK(cuMemAlloc_v2(&d, 12));
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(fork, a));
    OK(cuStreamWaitEvent(b, fork, 0));
    OK(cuMemsetD32Async(d, 2, 1, b));
    assert_int_equal(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    assert_int_equal(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(fork, a));
    OK(cuStreamWaitEvent(b, fork, 0));
    OK(cuMemsetD32Async(d, 2, 1, b));
    assert_int_equal(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    OK(cuMemsetD32Async(d, 2, 1, b)); /* the capture is over: this runs */
    OK(cuStreamSynchronize(b));
    OK(cuEventDestroy_v2(fork));
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
    OK(cuMemFree_v2(d));
}

/* A joined stream may go before the capture ends; its work stays, joined again or not. */
static void capture_outlives_a_joined_stream(void **state)
{
    (void)state;
    CUstream a, b;
    CUevent fork, join;
    CUgraph graph;
    CUdeviceptr d;
    size_t n_nodes = 0, n_edges = 0;
    OK(cuMemAlloc_v2(&d, 12));
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    for (int joined = 1; joined >= 0; joined--) {
        OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
        OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuMemsetD32Async(d, 1, 3, a));
        OK(cuEventRecord(fork, a));
        OK(cuStreamWaitEvent(b, fork, 0));
        OK(cuMemsetD32Async(d + 4, 2, 1, b));
        OK(cuEventRecord(join, b));
        if (joined) {
            OK(cuStreamWaitEvent(a, join, 0));
        }
        OK(cuStreamDestroy_v2(b));
        OK(cuMemsetD32Async(d + 8, 3, 1, a));
        if (!joined) {
            assert_int_equal(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
            continue;
        }
        OK(cuStreamEndCapture(a, &graph));
        OK(cuGraphGetNodes(graph, NULL, &n_nodes));
        OK(cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &n_edges));
        assert_int_equal(n_nodes, 3);
        assert_int_equal(n_edges, 3);
        OK(cuGraphDestroy(graph));
    }
    OK(cuEventDestroy_v2(fork));
    OK(cuEventDestroy_v2(join));
    OK(cuStreamDestroy_v2(a));
    OK(cuMemFree_v2(d));
}

static CUDA_MEMSET_NODE_PARAMS set_of(CUdeviceptr at, unsigned value)
{
    return (CUDA_MEMSET_NODE_PARAMS){
        .dst = at, .value = value, .elementSize = 4, .width = 1, .height = 1};
}

static void built_graph_takes_updates(void **state)
{
    (void)state;
    CUgraph graph, other;
    CUgraphNode first, second, same;
    CUgraphExec exec;
    CUdeviceptr d;
    CUgraphExecUpdateResultInfo info;
    unsigned out[2];
    OK(cuMemAlloc_v2(&d, 8));
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS set = set_of(d, 5);
    OK(cuGraphAddMemsetNode(&first, graph, NULL, 0, &set, NULL));
    set = set_of(d + 4, 6);
    OK(cuGraphAddMemsetNode(&second, graph, &first, 1, &set, NULL));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    set = set_of(d + 4, 7);
    OK(cuGraphExecMemsetNodeSetParams(exec, second, &set, NULL));
    OK(cuGraphLaunch(exec, CU_STREAM_LEGACY));
    OK(cuMemcpyDtoH_v2(out, d, 8));
    assert_int_equal(out[0], 5);
    assert_int_equal(out[1], 7);
    OK(cuGraphExecUpdate_v2(exec, graph, &info)); /* back to what the graph says */
    OK(cuGraphLaunch(exec, CU_STREAM_LEGACY));
    OK(cuMemcpyDtoH_v2(out, d, 8));
    assert_int_equal(out[1], 6);
    OK(cuGraphClone(&other, graph));
    OK(cuGraphNodeFindInClone(&same, second, other));
    OK(cuGraphDestroyNode(same));
    assert_int_equal(cuGraphExecUpdate_v2(exec, other, &info),
                     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    assert_int_equal(cuGraphAddDependencies(graph, &second, &second, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphAddDependencies(graph, &second, &first, 1));
    CUgraphExec cyclic;
    assert_int_equal(cuGraphInstantiateWithFlags(&cyclic, graph, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    assert_int_equal(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(other));
    OK(cuMemFree_v2(d));
}

static void child_graph_runs_between_its_neighbours(void **state)
{
    (void)state;
    CUgraph graph, child;
    CUgraphNode inner, outer, last;
    CUgraphExec exec;
    CUdeviceptr d;
    unsigned out = 0;
    OK(cuMemAlloc_v2(&d, 4));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    CUDA_MEMSET_NODE_PARAMS set = set_of(d, 1);
    OK(cuGraphAddMemsetNode(&inner, child, NULL, 0, &set, NULL));
    OK(cuGraphAddChildGraphNode(&outer, graph, NULL, 0, child));
    set = set_of(d, 2);
    OK(cuGraphAddMemsetNode(&last, graph, &outer, 1, &set, NULL));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, CU_STREAM_LEGACY));
    OK(cuMemcpyDtoH_v2(&out, d, 4));
    assert_int_equal(out, 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(child));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(d));
}

/* As NVIDIA's driver has it (H100 and H200, 580.159). */
static void launch_in_a_capture_is_refused(void **state)
{
    (void)state;
    CUgraph graph, outer = NULL;
    CUgraphNode node;
    CUgraphExec exec;
    CUstream stream;
    CUdeviceptr d;
    unsigned out = 0;
    OK(cuMemAlloc_v2(&d, 4));
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS set = set_of(d, 11);
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, NULL));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(stream, &outer), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(outer);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(&out, d, 4));
    assert_int_equal(out, 11);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFree_v2(d));
}

static atomic_int n_gone;
static atomic_bool may_end;

static void CUDA_CB note_gone(void *user)
{
    (void)user;
    atomic_fetch_add(&n_gone, 1);
}

static void CUDA_CB wait_until_it_may_end(void *user)
{
    (void)user;
    while (!atomic_load(&may_end)) {
        sched_yield();
    }
}

static CUgraph graph_with_object(void)
{
    CUDA_HOST_NODE_PARAMS params = {.fn = wait_until_it_may_end};
    CUgraph graph;
    CUgraphNode node;
    CUuserObject object;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
    OK(cuUserObjectCreate(&object, NULL, note_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    return graph;
}

static void user_object_lives_as_long_as_all_that_was_made_of_its_graph(void **state)
{
    (void)state;
    CUgraph graph = graph_with_object(), clone;
    CUgraphExec exec;
    CUstream stream;
    atomic_store(&n_gone, 0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphDestroy(graph));
    assert_int_equal(atomic_load(&n_gone), 0);
    OK(cuGraphInstantiateWithFlags(&exec, clone, 0));
    OK(cuGraphDestroy(clone));
    assert_int_equal(atomic_load(&n_gone), 0);
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec));
    assert_int_equal(atomic_load(&n_gone), 0);
    atomic_store(&may_end, true);
    OK(cuStreamSynchronize(stream));
    while (atomic_load(&n_gone) == 0) { /* a thread of the driver's is about to */
        sched_yield();
    }
    OK(cuStreamDestroy_v2(stream));
}

static void update_replaces_user_objects(void **state)
{
    (void)state;
    CUgraph graphs[] = {graph_with_object(), graph_with_object()};
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec;
    atomic_store(&n_gone, 0);
    OK(cuGraphInstantiateWithFlags(&exec, graphs[0], 0));
    OK(cuGraphDestroy(graphs[0]));
    OK(cuGraphExecUpdate_v2(exec, graphs[1], &info));
    assert_int_equal(atomic_load(&n_gone), 1);
    OK(cuGraphDestroy(graphs[1]));
    assert_int_equal(atomic_load(&n_gone), 1);
    OK(cuGraphExecDestroy(exec));
    assert_int_equal(atomic_load(&n_gone), 2);
}

static void child_graph_has_its_user_objects(void **state)
{
    (void)state;
    CUgraph outer, child = graph_with_object();
    CUgraphNode node;
    CUgraphExec exec;
    atomic_store(&n_gone, 0);
    OK(cuGraphCreate(&outer, 0));
    OK(cuGraphAddChildGraphNode(&node, outer, NULL, 0, child));
    OK(cuGraphDestroy(child));
    OK(cuGraphInstantiateWithFlags(&exec, outer, 0));
    OK(cuGraphDestroy(outer));
    assert_int_equal(atomic_load(&n_gone), 0);
    child = graph_with_object();
    OK(cuGraphExecChildGraphNodeSetParams(exec, node, child));
    OK(cuGraphDestroy(child));
    assert_int_equal(atomic_load(&n_gone), 0);
    OK(cuGraphExecDestroy(exec));
    assert_int_equal(atomic_load(&n_gone), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_fork_and_join_runs_in_order),
        cmocka_unit_test(capture_with_an_unjoined_stream_is_refused),
        cmocka_unit_test(capture_outlives_a_joined_stream),
        cmocka_unit_test(built_graph_takes_updates),
        cmocka_unit_test(child_graph_runs_between_its_neighbours),
        cmocka_unit_test(launch_in_a_capture_is_refused),
        cmocka_unit_test(user_object_lives_as_long_as_all_that_was_made_of_its_graph),
        cmocka_unit_test(update_replaces_user_objects),
        cmocka_unit_test(child_graph_has_its_user_objects),
    };
    return cmocka_run_group_tests(tests, enter_context, leave_context);
}

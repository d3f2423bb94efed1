/* Graph nodes that wait for or write values: batches of memory operations. */
#include "host_backend/worker/device/awaited.h"
#include "host_backend/worker/ops/ops.h"
#include <string.h>

/* Remember the values that a batch waits for, so that they can be written at the session's end. */
static CUresult note_wait(struct weir_session *s, const CUstreamBatchMemOpParams *op, bool wide)
{
    uint64_t value = wide ? op->waitValue.value64 : op->waitValue.value;

    WEIR_FAIL_IF(!weir_awaited_can_come(value, op->waitValue.flags, wide),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_session_check_dptr(s, op->waitValue.address, wide ? 8 : 4));
    return weir_awaited_note(s, NULL, op->waitValue.address, value, wide);
}

/* Convert each operation to the driver's struct, and check its address. */
static CUresult read_memops(struct weir_session *s, const CUstreamBatchMemOpParams *ops, uint32_t n,
                            CUDA_BATCH_MEM_OP_NODE_PARAMS *ret)
{
    CUstreamBatchMemOpParams *copy = weir_session_alloc(s, (n + 1) * sizeof *copy);

    WEIR_FAIL_IF(!copy, CUDA_ERROR_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < n; i++) {
        bool wide = ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                    ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        bool wait = ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                    ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;

        WEIR_FAIL_IF(!wide && !wait && ops[i].operation != CU_STREAM_MEM_OP_WRITE_VALUE_32,
                     CUDA_ERROR_NOT_SUPPORTED);
        copy[i] = ops[i];
        copy[i].waitValue.alias = 0;
        WEIR_FAIL_IF(copy[i].waitValue.address % (wide ? 8 : 4) != 0, CUDA_ERROR_INVALID_VALUE);
        WEIR_TRY(wait ? note_wait(s, &copy[i], wide)
                      : weir_session_check_write(s, copy[i].waitValue.address, wide ? 8 : 4));
    }
    memset(ret, 0, sizeof *ret);
    ret->ctx = weir_ops_context(s);
    ret->count = n;
    ret->paramArray = copy;
    return CUDA_SUCCESS;
}

CUresult weir_host_graph_add_memops(struct weir_session *s,
                                    const struct weir_op_graph_add_memops_in *in)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS params;
    struct weir_ops_place p;
    CUgraphNode node;

    WEIR_TRY(weir_ops_node_begin(s, in->g, in->n, in->dependencies, in->n_dependencies, &p));
    WEIR_TRY(read_memops(s, in->ops, in->n_ops, &params));
    WEIR_TRY(
        s->driver->cuGraphAddBatchMemOpNode(&node, p.graph, p.nodes, in->n_dependencies, &params));
    return weir_session_put(s, WEIR_KIND_NODE, in->n, node);
}

CUresult weir_host_graph_memops_set(struct weir_session *s,
                                    const struct weir_op_graph_memops_set_in *in)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS params;
    CUgraphExec exec = NULL;
    CUgraphNode node;

    if (in->x != 0) {
        WEIR_TRY(weir_session_use(s, WEIR_KIND_EXEC, in->x, (void **)&exec));
    }
    WEIR_TRY(weir_session_use(s, WEIR_KIND_NODE, in->n, (void **)&node));
    WEIR_TRY(read_memops(s, in->ops, in->n_ops, &params));
    return exec ? s->driver->cuGraphExecBatchMemOpNodeSetParams(exec, node, &params)
                : s->driver->cuGraphBatchMemOpNodeSetParams(node, &params);
}

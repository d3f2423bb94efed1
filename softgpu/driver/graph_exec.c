/*
 * Executable graphs.
 *
 * An executable is a list of the graph's nodes in an order that respects the edges. Each remembers
 * which node it was made from, because updates name that node. A launch makes one task for each
 * node, between a first and a last mark in the stream. Launches of one executable run one after the
 * other.
 */
#include "softgpu/driver/graph_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct exec_node {
    struct weir_soft_node *source; /* only compared, never read: its graph may be gone */
    CUgraphNodeType type;
    struct weir_soft_op *op;            /* counted; NULL for child graphs and empty nodes */
    struct weir_soft_graph_exec *child; /* owned */
    uint32_t *before;                   /* indices of earlier nodes; owned */
    uint32_t n_before;
    bool disabled;
    bool has_next;
    struct weir_soft_task *task; /* task of the launch being made */
};

struct weir_soft_graph_exec {
    struct weir_soft_object object;
    struct exec_node *nodes;
    uint32_t n_nodes;
    cuuint64_t flags;
    struct weir_soft_task *last; /* counted: the end of the last launch */
    struct weir_soft_users
        *users; /* counted; user objects of the whole graph. NULL: none, or this is a child graph */
};

static void exec_free_nodes(struct weir_soft_graph_exec *exec)
{
    for (uint32_t i = 0; i < exec->n_nodes; i++) {
        struct exec_node *node = &exec->nodes[i];
        weir_soft_op_put(node->op);
        weir_soft_object_retire(node->child);
        free(node->before);
    }
    free(exec->nodes);
    exec->nodes = NULL;
    exec->n_nodes = 0;
}

static void exec_release(void *object)
{
    struct weir_soft_graph_exec *exec = object;
    exec_free_nodes(exec);
    weir_soft_task_put(exec->last);
    weir_soft_users_put(exec->users);
}

/* Number the nodes in an order that respects the edges; false: there is a cycle. */
static bool sort_nodes(struct weir_soft_graph *graph, struct weir_soft_node **order)
{
    uint32_t n = 0;
    for (struct weir_soft_node *node = graph->first; node; node = node->next) {
        node->order = UINT32_MAX;
    }
    bool progress = true;
    while (progress && n < graph->n_nodes) {
        progress = false;
        for (struct weir_soft_node *node = graph->first; node; node = node->next) {
            bool ready = node->order == UINT32_MAX;
            for (uint32_t i = 0; ready && i < node->before.n; i++) {
                ready = node->before.at[i]->order != UINT32_MAX;
            }
            if (ready) {
                node->order = n;
                order[n++] = node;
                progress = true;
            }
        }
    }
    return n == graph->n_nodes;
}

/* Does the operation use a destroyed object? NVIDIA's driver faults on such a node. */
static bool names_gone(const struct weir_soft_op *op)
{
    switch (op ? (int)op->kind : -1) {
    case WEIR_SOFT_OP_KERNEL:
        return !weir_soft_object_find(WEIR_SOFT_MODULE, op->kernel.function->module);
    case WEIR_SOFT_OP_RECORD:
    case WEIR_SOFT_OP_WAIT:
        return !weir_soft_object_find(WEIR_SOFT_EVENT, op->event);
    case WEIR_SOFT_OP_COPY:
        return WEIR_ANY(i, 2,
                        op->copy.arrays[i] &&
                            !weir_soft_object_find(WEIR_SOFT_ARRAY, op->copy.arrays[i]));
    default:
        return false;
    }
}

static bool any_names_gone(const struct weir_soft_graph_exec *exec)
{
    return WEIR_ANY(i, exec->n_nodes,
                    names_gone(exec->nodes[i].op) ||
                        (exec->nodes[i].child && any_names_gone(exec->nodes[i].child)));
}

static CUresult exec_make(struct weir_soft_graph *graph, cuuint64_t flags,
                          struct weir_soft_ctx *ctx, struct weir_soft_graph_exec **ret_exec);

static CUresult exec_fill(struct weir_soft_graph_exec *exec, struct weir_soft_node **order,
                          uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct weir_soft_node *node = order[i];
        struct exec_node *out = &exec->nodes[i];
        *out = (struct exec_node){.source = order[i], .type = node->type, .op = node->op};
        exec->n_nodes = i + 1;
        if (node->op) {
            node->op->refs++;
        }
        WEIR_FAIL_IF(names_gone(node->op), CUDA_ERROR_INVALID_HANDLE);
        out->before = calloc(node->before.n + 1u, sizeof(uint32_t));
        WEIR_FAIL_IF(!out->before, CUDA_ERROR_OUT_OF_MEMORY);
        out->n_before = node->before.n;
        for (uint32_t b = 0; b < node->before.n; b++) {
            out->before[b] = node->before.at[b]->order;
            exec->nodes[out->before[b]].has_next = true;
        }
        if (node->child) {
            WEIR_TRY(exec_make(node->child, exec->flags, exec->object.ctx, &out->child));
        }
    }
    return CUDA_SUCCESS;
}

static CUresult exec_make(struct weir_soft_graph *graph, cuuint64_t flags,
                          struct weir_soft_ctx *ctx, struct weir_soft_graph_exec **ret_exec)
{
    struct weir_soft_node **order = calloc(graph->n_nodes + 1u, sizeof(struct weir_soft_node *));
    struct weir_soft_graph_exec *exec =
        weir_soft_object_new(WEIR_SOFT_GRAPH_EXEC, sizeof(*exec), ctx, exec_release);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (order && exec) {
        exec->flags = flags;
        exec->nodes = calloc(graph->n_nodes + 1u, sizeof(struct exec_node));
        if (exec->nodes) {
            result = sort_nodes(graph, order) ? exec_fill(exec, order, graph->n_nodes)
                                              : CUDA_ERROR_INVALID_VALUE;
        }
    }
    free(order);
    if (result != CUDA_SUCCESS) {
        weir_soft_object_retire(exec);
        return result;
    }
    *ret_exec = exec;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ instantiation */

#define INSTANTIATE_FLAGS                                                                          \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |        \
     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

/* NVIDIA's driver 580 does not report the other two flags (H100, 2026-11-27). */
#define SHOWN_FLAGS CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH

static CUresult instantiate(CUgraphExec *ret, CUgraph handle, unsigned long long flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph;
    struct weir_soft_graph_exec *exec;
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!ret, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0,
                 CUDA_ERROR_NOT_SUPPORTED);
    WEIR_FAIL_IF((flags & ~(unsigned long long)INSTANTIATE_FLAGS) != 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_graph_find(handle, &graph));
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(exec_make(graph, flags, ctx, &exec));
    CUresult result = weir_soft_users_add(&exec->users, graph);
    if (result != CUDA_SUCCESS) {
        weir_soft_object_retire(exec);
        return result;
    }
    *ret = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphInstantiateWithFlags(CUgraphExec *ret, CUgraph graph,
                                               unsigned long long flags)
{
    return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0 ? CUDA_ERROR_INVALID_VALUE
                                                             : instantiate(ret, graph, flags);
}

CUresult weir_soft_cuGraphInstantiateWithParams(CUgraphExec *ret, CUgraph graph,
                                                CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                                                CUstream default_stream)
{
    (void)default_stream; /* there is nothing to upload */
    WEIR_FAIL_IF(!params, CUDA_ERROR_INVALID_VALUE);
    params->hErrNode_out = NULL;
    CUresult result = instantiate(ret, graph, params->flags);
    params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                         : result == CUDA_ERROR_NOT_SUPPORTED
                             ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
                             : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult weir_soft_exec_find(CUgraphExec handle, struct weir_soft_graph_exec **ret_exec)
{
    *ret_exec = weir_soft_object_find(WEIR_SOFT_GRAPH_EXEC, handle);
    return *ret_exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_soft_cuGraphExecDestroy(CUgraphExec handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph_exec *exec;
    WEIR_TRY(weir_soft_exec_find(handle, &exec));
    weir_soft_object_retire(exec);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph_exec *exec;
    WEIR_FAIL_IF(!flags, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_exec_find(handle, &exec));
    *flags = exec->flags & SHOWN_FLAGS;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ launch */

/* Queue all nodes after `first`; `last` waits for the nodes without successors. */
static bool queue_nodes(struct weir_soft_graph_exec *exec, struct weir_soft_task *first,
                        struct weir_soft_task *last, int priority);

static bool queue_node(struct weir_soft_graph_exec *exec, struct exec_node *node,
                       struct weir_soft_task *first, struct weir_soft_task *last, int priority)
{
    struct weir_soft_ctx *ctx = exec->object.ctx;
    struct weir_soft_op *op = node->disabled ? NULL : node->op;
    struct weir_soft_task *begin = weir_soft_task_new(ctx, node->child ? NULL : op, priority);
    WEIR_FAIL_IF(!begin, false);
    begin->node = (uint32_t)(node - exec->nodes) + 1;
    bool good = node->n_before > 0 || weir_soft_task_after(begin, first);
    for (uint32_t i = 0; i < node->n_before; i++) {
        good = weir_soft_task_after(begin, exec->nodes[node->before[i]].task) && good;
    }
    if (op && op->kind == WEIR_SOFT_OP_WAIT) {
        good = weir_soft_event_wait_in(op->event, begin) == CUDA_SUCCESS && good;
    } else if (op && op->kind == WEIR_SOFT_OP_RECORD) {
        weir_soft_event_set_task(op->event, begin);
    }
    node->task = begin;
    if (node->child) {
        struct weir_soft_task *end = weir_soft_task_new(ctx, NULL, priority);
        if (end) {
            good = weir_soft_task_after(end, begin) && good;
            good = queue_nodes(node->child, begin, end, priority) && good;
            weir_soft_task_start(end);
            node->task = end;
        }
        good = good && end;
        weir_soft_task_start(begin);
        if (end) {
            weir_soft_task_put(begin);
        }
    } else {
        weir_soft_task_start(begin);
    }
    return (node->has_next || weir_soft_task_after(last, node->task)) && good;
}

static bool queue_nodes(struct weir_soft_graph_exec *exec, struct weir_soft_task *first,
                        struct weir_soft_task *last, int priority)
{
    bool good = true;
    uint32_t n = 0;
    for (; n < exec->n_nodes && good; n++) {
        exec->nodes[n].task = NULL;
        good = queue_node(exec, &exec->nodes[n], first, last, priority);
    }
    for (uint32_t i = 0; i < n; i++) {
        weir_soft_task_put(exec->nodes[i].task);
        exec->nodes[i].task = NULL;
    }
    return good;
}

/* The memory that a node of this kind allocates or frees, or NULL. */
static struct weir_soft_alloc *memory_of(const struct exec_node *node, CUgraphNodeType type)
{
    if (node->type != type || !node->op) {
        return NULL;
    }
    return weir_soft_space_at(type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? node->op->alloc.memory->base
                                                                   : node->op->free.address);
}

/* Is memory of an earlier launch still allocated? */
static bool any_live(const struct weir_soft_graph_exec *exec)
{
    for (uint32_t i = 0; i < exec->n_nodes; i++) {
        const struct weir_soft_alloc *alloc =
            memory_of(&exec->nodes[i], CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        if ((alloc && alloc->graph_live) ||
            (exec->nodes[i].child && any_live(exec->nodes[i].child))) {
            return true;
        }
    }
    return false;
}

static void note_live(const struct weir_soft_graph_exec *exec, CUgraphNodeType type)
{
    for (uint32_t i = 0; i < exec->n_nodes; i++) {
        struct weir_soft_alloc *alloc = memory_of(&exec->nodes[i], type);
        if (alloc) {
            alloc->graph_live = type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        }
        if (exec->nodes[i].child) {
            note_live(exec->nodes[i].child, type);
        }
    }
}

CUresult weir_soft_cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph_exec *exec;
    struct weir_soft_stream *stream;
    WEIR_TRY(weir_soft_exec_find(handle, &exec));
    WEIR_TRY(weir_soft_stream_find(stream_handle, &stream));
    if (stream->capture) {
        stream->capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    WEIR_FAIL_IF(any_names_gone(exec), CUDA_ERROR_INVALID_HANDLE);
    if (stream->legacy) {
        WEIR_TRY(weir_soft_capture_check_legacy(stream->object.ctx));
    }
    if ((exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0 && any_live(exec)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    note_live(exec, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    note_live(exec, CU_GRAPH_NODE_TYPE_MEM_FREE);
    struct weir_soft_ctx *ctx = stream->object.ctx;
    struct weir_soft_task *first = weir_soft_task_new(ctx, NULL, stream->priority);
    struct weir_soft_task *last = weir_soft_task_new(ctx, NULL, stream->priority);
    WEIR_FAIL_IF(!first || !last, CUDA_ERROR_OUT_OF_MEMORY);
    last->users = exec->users;
    if (last->users) {
        last->users->refs++;
    }
    /* The first mark is held back until all tasks exist,
     * so that no node runs ahead of the order. */
    first->n_waits++;
    bool good = weir_soft_task_after(first, exec->last);
    CUresult result = weir_soft_stream_push(stream, first);
    good = weir_soft_task_after(last, first) && good;
    good = queue_nodes(exec, first, last, stream->priority) && good;
    CUresult pushed = weir_soft_stream_push(stream, last);
    struct weir_soft_task *before = exec->last;
    exec->last = last;
    weir_soft_task_start(first);
    weir_soft_task_put(first);
    weir_soft_task_put(before);
    result = result != CUDA_SUCCESS ? result : pushed;
    return result != CUDA_SUCCESS ? result : good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ------------------------------------------------------------------ updates */

static struct exec_node *exec_node_of(struct weir_soft_graph_exec *exec, const void *source)
{
    for (uint32_t i = 0; i < exec->n_nodes; i++) {
        if (exec->nodes[i].source == source) {
            return &exec->nodes[i];
        }
        struct exec_node *inside =
            exec->nodes[i].child ? exec_node_of(exec->nodes[i].child, source) : NULL;
        if (inside) {
            return inside;
        }
    }
    return NULL;
}

static CUresult exec_node_find(CUgraphExec handle, CUgraphNode node, const void *params,
                               CUgraphNodeType type, struct exec_node **ret_node)
{
    struct weir_soft_graph_exec *exec;
    WEIR_TRY(weir_soft_exec_find(handle, &exec));
    *ret_node = !node ? NULL : exec_node_of(exec, node);
    return !*ret_node || !params || (*ret_node)->type != type ? CUDA_ERROR_INVALID_VALUE
                                                              : CUDA_SUCCESS;
}

CUresult weir_soft_node_op(uint64_t exec, CUgraphNode handle, CUgraphNodeType type,
                           struct weir_soft_op ***ret_op)
{
    struct exec_node *in_exec;
    struct weir_soft_node *node;
    if (exec) {
        WEIR_TRY(exec_node_find((CUgraphExec)(uintptr_t)exec, handle, ret_op, type, &in_exec));
        *ret_op = &in_exec->op;
    } else {
        WEIR_TRY(weir_soft_node_of(handle, type, &node));
        *ret_op = &node->op;
    }
    return CUDA_SUCCESS;
}

void weir_soft_op_replace(struct weir_soft_op **at, struct weir_soft_op *op)
{
    if (op) {
        weir_soft_op_put(*at);
        *at = op;
    }
}

/* Compare the shapes: the same number and types of nodes with the same edges, in the graph's own
 * order. */
static CUgraphExecUpdateResult compare(const struct weir_soft_graph_exec *exec,
                                       struct weir_soft_node **order, uint32_t n,
                                       struct weir_soft_node **ret_bad)
{
    *ret_bad = NULL;
    if (n != exec->n_nodes) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct exec_node *old = &exec->nodes[i];
        *ret_bad = order[i];
        if (order[i]->type != old->type) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        }
        if (order[i]->before.n != old->n_before) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
        if (WEIR_ANY(b, old->n_before, order[i]->before.at[b]->order != old->before[b])) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
        if (old->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || old->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        }
    }
    *ret_bad = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUgraphExecUpdateResult exec_update(struct weir_soft_graph_exec *exec,
                                           struct weir_soft_graph *graph,
                                           struct weir_soft_node **ret_bad)
{
    struct weir_soft_node **order = calloc(graph->n_nodes + 1u, sizeof(struct weir_soft_node *));
    *ret_bad = NULL;
    if (!order || !sort_nodes(graph, order)) {
        free(order);
        return CU_GRAPH_EXEC_UPDATE_ERROR;
    }
    CUgraphExecUpdateResult result = compare(exec, order, graph->n_nodes, ret_bad);
    for (uint32_t i = 0; i < graph->n_nodes && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
        if (exec->nodes[i].child) {
            result = exec_update(exec->nodes[i].child, order[i]->child, ret_bad);
        }
    }
    for (uint32_t i = 0; i < graph->n_nodes && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
        if (order[i]->op) {
            order[i]->op->refs++;
        }
        weir_soft_op_put(exec->nodes[i].op);
        exec->nodes[i].op = order[i]->op;
    }
    free(order);
    return result;
}

CUresult weir_soft_cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode source,
                                                      CUgraph child)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph_exec *exec;
    struct exec_node *node;
    struct weir_soft_graph *graph;
    struct weir_soft_node *bad;
    WEIR_TRY(exec_node_find(handle, source, child, CU_GRAPH_NODE_TYPE_GRAPH, &node));
    WEIR_TRY(weir_soft_exec_find(handle, &exec));
    WEIR_TRY(weir_soft_graph_find(child, &graph));
    WEIR_TRY(weir_soft_users_add(&exec->users, graph)); /* the objects from before stay, too */
    return exec_update(node->child, graph, &bad) == CU_GRAPH_EXEC_UPDATE_SUCCESS
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_soft_cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle,
                                        CUgraphExecUpdateResultInfo *info)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph_exec *exec;
    struct weir_soft_graph *graph;
    struct weir_soft_node *bad;
    WEIR_FAIL_IF(!info, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_exec_find(handle, &exec));
    WEIR_TRY(weir_soft_graph_find(graph_handle, &graph));
    struct weir_soft_users *users = NULL;
    WEIR_TRY(weir_soft_users_add(&users, graph));
    *info = (CUgraphExecUpdateResultInfo){.result = exec_update(exec, graph, &bad)};
    info->errorNode = (CUgraphNode)bad;
    if (info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        struct weir_soft_users *replaced = exec->users;
        exec->users = users;
        users = replaced;
    }
    weir_soft_users_put(users);
    return info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                        : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult weir_soft_cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode source,
                                         unsigned int enabled)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph_exec *exec;
    WEIR_TRY(weir_soft_exec_find(handle, &exec));
    struct exec_node *node = !source ? NULL : exec_node_of(exec, source);
    if (!node ||
        (node->type != CU_GRAPH_NODE_TYPE_KERNEL && node->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
         node->type != CU_GRAPH_NODE_TYPE_MEMSET)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    node->disabled = enabled == 0;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode source,
                                         unsigned int *enabled)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph_exec *exec;
    WEIR_TRY(weir_soft_exec_find(handle, &exec));
    const struct exec_node *node = !source ? NULL : exec_node_of(exec, source);
    WEIR_FAIL_IF(!node || !enabled, CUDA_ERROR_INVALID_VALUE);
    *enabled = !node->disabled;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ memory of graphs */

CUresult weir_soft_cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute id, void *value)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    WEIR_FAIL_IF(!value || (unsigned)id > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
                 CUDA_ERROR_INVALID_VALUE);
    bool high = id == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || id == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    *(cuuint64_t *)value = high ? device->graph_high_bytes : device->graph_used_bytes;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute id, void *value)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    if (!value || *(const cuuint64_t *)value != 0 ||
        (id != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && id != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    device->graph_high_bytes = device->graph_used_bytes;
    return CUDA_SUCCESS;
}

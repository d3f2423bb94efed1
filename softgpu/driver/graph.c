/*
 * Graphs: nodes, edges, clones and queries. Executable graphs are in graph_exec.c.
 *
 * A node holds its operation and the nodes that it depends on. Operations are immutable and
 * counted, so a clone or an executable shares them.
 */
#include "base/grow.h"
#include "softgpu/driver/graph_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ sets of nodes */

bool weir_soft_nodes_add(struct weir_soft_nodes *nodes, struct weir_soft_node *node,
                         const CUgraphEdgeData *edge)
{
    if (WEIR_ANY(i, nodes->n, nodes->at[i] == node)) {
        return true;
    }
    if (nodes->n == nodes->cap) {
        uint32_t cap = nodes->cap == 0 ? 4 : nodes->cap * 2;
        struct weir_soft_node **at = realloc(nodes->at, cap * sizeof(struct weir_soft_node *));
        nodes->at = at ? at : nodes->at;
        CUgraphEdgeData *edges = realloc(nodes->edges, cap * sizeof(*edges));
        nodes->edges = edges ? edges : nodes->edges;
        WEIR_FAIL_IF(!at || !edges, false);
        nodes->cap = cap;
    }
    nodes->at[nodes->n] = node;
    if (edge) {
        nodes->edges[nodes->n] = *edge;
    } else {
        memset(&nodes->edges[nodes->n], 0, sizeof(nodes->edges[0]));
    }
    nodes->n++;
    return true;
}

void weir_soft_nodes_clear(struct weir_soft_nodes *nodes)
{
    free(nodes->at);
    free(nodes->edges);
    memset(nodes, 0, sizeof(*nodes));
}

/* ------------------------------------------------------------------ life */

static void node_release(void *object)
{
    struct weir_soft_node *node = object;
    weir_soft_op_put(node->op);
    weir_soft_nodes_clear(&node->before);
    if (node->child) {
        weir_soft_object_retire(node->child);
        weir_soft_object_put(node->child);
    }
}

static uint32_t count_users(const struct weir_soft_graph *graph)
{
    uint32_t n = graph->n_user_objects;
    for (const struct weir_soft_node *node = graph->first; node; node = node->next) {
        n += node->child ? count_users(node->child) : 0;
    }
    return n;
}

static void add_users(const struct weir_soft_graph *graph, struct weir_soft_users *users)
{
    for (uint32_t i = 0; i < graph->n_user_objects; i++) {
        users->at[users->n] = graph->user_objects[i];
        users->at[users->n].object->count += users->at[users->n].count;
        users->n++;
    }
    for (const struct weir_soft_node *node = graph->first; node; node = node->next) {
        if (node->child) {
            add_users(node->child, users);
        }
    }
}

CUresult weir_soft_users_add(struct weir_soft_users **users, const struct weir_soft_graph *graph)
{
    struct weir_soft_users *old = *users, *both;
    uint32_t n_old = old ? old->n : 0, n = n_old + count_users(graph);
    if (n == n_old) {
        return CUDA_SUCCESS;
    }
    both = calloc(1, sizeof(*both) + n * sizeof(both->at[0]));
    WEIR_FAIL_IF(!both, CUDA_ERROR_OUT_OF_MEMORY);
    both->refs = 1;
    for (; both->n < n_old; both->n++) {
        both->at[both->n] = old->at[both->n];
        both->at[both->n].object->count += both->at[both->n].count;
    }
    add_users(graph, both);
    *users = both;
    weir_soft_users_put(old);
    return CUDA_SUCCESS;
}

static CUresult clone_users(const struct weir_soft_graph *graph, struct weir_soft_graph *clone)
{
    uint32_t n = graph->n_user_objects;
    if (n == 0) {
        return CUDA_SUCCESS;
    }
    clone->user_objects = calloc(n, sizeof(clone->user_objects[0]));
    WEIR_FAIL_IF(!clone->user_objects, CUDA_ERROR_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < n; i++) {
        clone->user_objects[i] = graph->user_objects[i];
        clone->user_objects[i].object->count += clone->user_objects[i].count;
    }
    clone->n_user_objects = n;
    return CUDA_SUCCESS;
}

static void graph_release(void *object)
{
    struct weir_soft_graph *graph = object;
    for (struct weir_soft_node *node; (node = WEIR_POP(graph->first));) {
        weir_soft_object_retire(node);
    }
    for (uint32_t i = 0; i < graph->n_user_objects; i++) {
        weir_soft_user_object_drop(graph->user_objects[i].object, graph->user_objects[i].count);
    }
    free(graph->user_objects);
}

CUresult weir_soft_graph_make(struct weir_soft_graph **ret_graph)
{
    struct weir_soft_graph *graph =
        weir_soft_object_new(WEIR_SOFT_GRAPH, sizeof(*graph), NULL, graph_release);
    *ret_graph = graph;
    return !graph ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUgraphNodeType weir_soft_op_node_type(const struct weir_soft_op *op)
{
    static const CUgraphNodeType types[] = {
        [WEIR_SOFT_OP_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,
        [WEIR_SOFT_OP_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
        [WEIR_SOFT_OP_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
        [WEIR_SOFT_OP_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
        [WEIR_SOFT_OP_HOST] = CU_GRAPH_NODE_TYPE_HOST,
        [WEIR_SOFT_OP_CALLBACK] = CU_GRAPH_NODE_TYPE_HOST,
        [WEIR_SOFT_OP_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        [WEIR_SOFT_OP_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        [WEIR_SOFT_OP_MEMOPS] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        [WEIR_SOFT_OP_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        [WEIR_SOFT_OP_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
        [WEIR_SOFT_OP_IPC_SIGNAL] = CU_GRAPH_NODE_TYPE_EMPTY,
        [WEIR_SOFT_OP_IPC_WAIT] = CU_GRAPH_NODE_TYPE_EMPTY,
    };
    return types[op->kind];
}

CUresult weir_soft_graph_add(struct weir_soft_graph *graph, CUgraphNodeType type,
                             struct weir_soft_op *op, const struct weir_soft_nodes *before,
                             struct weir_soft_node **ret_node)
{
    struct weir_soft_node *node =
        weir_soft_object_new(WEIR_SOFT_NODE, sizeof(*node), NULL, node_release);
    if (!node) {
        weir_soft_op_put(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->graph = graph;
    node->type = type;
    node->op = op;
    for (uint32_t i = 0; i < before->n; i++) {
        if (!weir_soft_nodes_add(&node->before, before->at[i], &before->edges[i])) {
            weir_soft_object_retire(node);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (graph->last) {
        graph->last->next = node;
    } else {
        graph->first = node;
    }
    graph->last = node;
    graph->n_nodes++;
    *ret_node = node;
    return CUDA_SUCCESS;
}

/* Find the node of a clone that was copied from this node of the original. */
static struct weir_soft_node *clone_of(const struct weir_soft_graph *clone,
                                       const struct weir_soft_node *original)
{
    for (struct weir_soft_node *node = clone->first; node; node = node->next) {
        if (node->cloned_from == original) {
            return node;
        }
    }
    return NULL;
}

/* Clone the nodes without edges. Each original's order becomes the index of its copy. */
static CUresult clone_nodes(const struct weir_soft_graph *graph, struct weir_soft_graph *clone,
                            struct weir_soft_node **ret_copies)
{
    const struct weir_soft_nodes none = {0};
    uint32_t number = 0;
    for (struct weir_soft_node *n = graph->first; n; n = n->next) {
        struct weir_soft_node *copy;
        if (n->op) {
            n->op->refs++;
        }
        WEIR_TRY(weir_soft_graph_add(clone, n->type, n->op, &none, &copy));
        copy->cloned_from = n;
        n->order = number;
        ret_copies[number++] = copy;
        if (n->child) {
            WEIR_TRY(weir_soft_graph_clone(n->child, &copy->child));
            weir_soft_object_ref(copy->child);
            copy->child->is_child = true;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult clone_edges(const struct weir_soft_graph *graph,
                            struct weir_soft_node *const *copies)
{
    for (struct weir_soft_node *n = graph->first; n; n = n->next) {
        for (uint32_t i = 0; i < n->before.n; i++) {
            WEIR_FAIL_IF(!weir_soft_nodes_add(&copies[n->order]->before,
                                              copies[n->before.at[i]->order], &n->before.edges[i]),
                         CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_graph_clone(const struct weir_soft_graph *graph,
                               struct weir_soft_graph **ret_clone)
{
    struct weir_soft_graph *clone;
    struct weir_soft_node **copies = calloc((size_t)graph->n_nodes + 1, sizeof(*copies));
    CUresult result = copies ? weir_soft_graph_make(&clone) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(copies);
        return result;
    }
    clone->cloned_from = (struct weir_soft_graph *)(uintptr_t)graph;
    result = clone_nodes(graph, clone, copies);
    WEIR_THEN(result, clone_edges(graph, copies));
    WEIR_THEN(result, clone_users(graph, clone));
    free(copies);
    if (result != CUDA_SUCCESS) {
        weir_soft_object_retire(clone);
        return result;
    }
    *ret_clone = clone;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ entries */

CUresult weir_soft_graph_find(CUgraph handle, struct weir_soft_graph **ret_graph)
{
    *ret_graph = weir_soft_object_find(WEIR_SOFT_GRAPH, handle);
    return *ret_graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_soft_node_find(CUgraphNode handle, struct weir_soft_node **ret_node)
{
    *ret_node = weir_soft_object_find(WEIR_SOFT_NODE, handle);
    return *ret_node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_soft_node_of(CUgraphNode handle, CUgraphNodeType type,
                           struct weir_soft_node **ret_node)
{
    WEIR_TRY(weir_soft_node_find(handle, ret_node));
    return (*ret_node)->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_soft_cuGraphCreate(CUgraph *ret, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph;
    WEIR_FAIL_IF(!ret || flags != 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_graph_make(&graph));
    *ret = (CUgraph)graph;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphDestroy(CUgraph handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph;
    WEIR_TRY(weir_soft_graph_find(handle, &graph));
    WEIR_FAIL_IF(graph->is_child, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(weir_soft_capture_uses(graph), CUDA_ERROR_ILLEGAL_STATE);
    weir_soft_object_retire(graph);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphClone(CUgraph *ret, CUgraph handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph, *clone;
    WEIR_FAIL_IF(!ret, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_graph_find(handle, &graph));
    WEIR_TRY(weir_soft_graph_clone(graph, &clone));
    *ret = (CUgraph)clone;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphNodeFindInClone(CUgraphNode *ret, CUgraphNode original,
                                          CUgraph clone_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *clone;
    struct weir_soft_node *node;
    WEIR_FAIL_IF(!ret, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_graph_find(clone_handle, &clone));
    WEIR_TRY(weir_soft_node_find(original, &node));
    struct weir_soft_node *found = clone_of(clone, node);
    WEIR_FAIL_IF(!found, CUDA_ERROR_INVALID_VALUE);
    *ret = (CUgraphNode)found;
    return CUDA_SUCCESS;
}

/* Return a list as CUDA does: NULL asks for the number, and spare slots are set to NULL. */
static CUresult list_nodes(const struct weir_soft_graph *graph, bool roots, CUgraphNode *nodes,
                           size_t *n_nodes)
{
    size_t n = 0;
    WEIR_FAIL_IF(!n_nodes, CUDA_ERROR_INVALID_VALUE);
    for (struct weir_soft_node *node = graph->first; node; node = node->next) {
        if (roots && node->before.n != 0) {
            continue;
        }
        if (nodes && n < *n_nodes) {
            nodes[n] = (CUgraphNode)node;
        }
        n++;
    }
    for (size_t i = n; nodes && i < *n_nodes; i++) {
        nodes[i] = NULL;
    }
    *n_nodes = !nodes || n < *n_nodes ? n : *n_nodes;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *n_nodes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph;
    WEIR_TRY(weir_soft_graph_find(handle, &graph));
    return list_nodes(graph, false, nodes, n_nodes);
}

CUresult weir_soft_cuGraphGetRootNodes(CUgraph handle, CUgraphNode *nodes, size_t *n_nodes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph;
    WEIR_TRY(weir_soft_graph_find(handle, &graph));
    return list_nodes(graph, true, nodes, n_nodes);
}

CUresult weir_soft_cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to,
                                      CUgraphEdgeData *data, size_t *n_edges)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph;
    WEIR_TRY(weir_soft_graph_find(handle, &graph));
    WEIR_FAIL_IF(!n_edges || !from != !to, CUDA_ERROR_INVALID_VALUE);
    size_t n = 0;
    for (struct weir_soft_node *node = graph->first; node; node = node->next) {
        for (uint32_t i = 0; i < node->before.n; i++, n++) {
            if (from && n < *n_edges) {
                from[n] = (CUgraphNode)node->before.at[i];
                to[n] = (CUgraphNode)node;
                if (data) {
                    data[n] = node->before.edges[i];
                }
            }
        }
    }
    for (size_t i = n; from && i < *n_edges; i++) {
        from[i] = to[i] = NULL;
    }
    *n_edges = !from || n < *n_edges ? n : *n_edges;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode *nodes,
                                                 CUgraphEdgeData *data, size_t *n_nodes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_node *node;
    WEIR_TRY(weir_soft_node_find(handle, &node));
    WEIR_FAIL_IF(!n_nodes, CUDA_ERROR_INVALID_VALUE);
    size_t n = node->before.n;
    for (size_t i = 0; nodes && i < *n_nodes; i++) {
        nodes[i] = i < n ? (CUgraphNode)node->before.at[i] : NULL;
        if (data && i < n) {
            data[i] = node->before.edges[i];
        }
    }
    *n_nodes = !nodes || n < *n_nodes ? n : *n_nodes;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode *nodes,
                                                   CUgraphEdgeData *data, size_t *n_nodes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_node *node;
    WEIR_TRY(weir_soft_node_find(handle, &node));
    WEIR_FAIL_IF(!n_nodes, CUDA_ERROR_INVALID_VALUE);
    size_t n = 0;
    for (struct weir_soft_node *other = node->graph->first; other; other = other->next) {
        for (uint32_t i = 0; i < other->before.n; i++) {
            if (other->before.at[i] != node) {
                continue;
            }
            if (nodes && n < *n_nodes) {
                nodes[n] = (CUgraphNode)other;
                if (data) {
                    data[n] = other->before.edges[i];
                }
            }
            n++;
        }
    }
    for (size_t i = n; nodes && i < *n_nodes; i++) {
        nodes[i] = NULL;
    }
    *n_nodes = !nodes || n < *n_nodes ? n : *n_nodes;
    return CUDA_SUCCESS;
}

static CUresult check_edges(const struct weir_soft_graph *graph, const CUgraphNode *from,
                            const CUgraphNode *to, size_t n)
{
    WEIR_FAIL_IF(n > 0 && (!from || !to), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++) {
        struct weir_soft_node *a, *b;
        WEIR_TRY(weir_soft_node_find(from[i], &a));
        WEIR_TRY(weir_soft_node_find(to[i], &b));
        WEIR_FAIL_IF(a->graph != graph || b->graph != graph || a == b, CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode *from,
                                             const CUgraphNode *to, const CUgraphEdgeData *data,
                                             size_t n)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph;
    WEIR_TRY(weir_soft_graph_find(handle, &graph));
    WEIR_TRY(check_edges(graph, from, to, n));
    for (size_t i = 0; i < n; i++) {
        struct weir_soft_node *node = (struct weir_soft_node *)to[i];
        uint32_t had = node->before.n;
        if (!weir_soft_nodes_add(&node->before, (struct weir_soft_node *)from[i],
                                 data ? &data[i] : NULL)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        WEIR_FAIL_IF(node->before.n == had, CUDA_ERROR_INVALID_VALUE); /* the edge exists */
    }
    return CUDA_SUCCESS;
}

static bool edge_remove(struct weir_soft_node *node, const struct weir_soft_node *before)
{
    for (uint32_t i = 0; i < node->before.n; i++) {
        if (node->before.at[i] == before) {
            node->before.n--;
            for (uint32_t j = i; j < node->before.n; j++) {
                node->before.at[j] = node->before.at[j + 1];
                node->before.edges[j] = node->before.edges[j + 1];
            }
            return true;
        }
    }
    return false;
}

CUresult weir_soft_cuGraphRemoveDependencies_v2(CUgraph handle, const CUgraphNode *from,
                                                const CUgraphNode *to, const CUgraphEdgeData *data,
                                                size_t n)
{
    WEIR_SOFT_LOCKED();
    (void)data;
    struct weir_soft_graph *graph;
    WEIR_TRY(weir_soft_graph_find(handle, &graph));
    WEIR_TRY(check_edges(graph, from, to, n));
    for (size_t i = 0; i < n; i++) {
        WEIR_FAIL_IF(!edge_remove((struct weir_soft_node *)to[i], (struct weir_soft_node *)from[i]),
                     CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphDestroyNode(CUgraphNode handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_node *node;
    WEIR_TRY(weir_soft_node_find(handle, &node));
    struct weir_soft_graph *graph = node->graph;
    WEIR_FAIL_IF(weir_soft_capture_uses(graph), CUDA_ERROR_ILLEGAL_STATE);
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct weir_soft_node *last = NULL;
    for (struct weir_soft_node **at = &graph->first; *at;) {
        struct weir_soft_node *other = *at;
        if (other == node) {
            *at = node->next;
            continue;
        }
        (void)edge_remove(other, node);
        last = other;
        at = &other->next;
    }
    graph->last = last;
    graph->n_nodes--;
    weir_soft_object_retire(node);
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ user objects */

CUresult weir_soft_cuUserObjectCreate(CUuserObject *ret, void *ptr, CUhostFn destroy,
                                      unsigned int count, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    if (!ret || !destroy || count == 0 || count > INT32_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct weir_soft_user_object *object =
        weir_soft_object_new(WEIR_SOFT_USER_OBJECT, sizeof(*object), NULL, NULL);
    WEIR_FAIL_IF(!object, CUDA_ERROR_OUT_OF_MEMORY);
    object->ptr = ptr;
    object->destroy = destroy;
    object->count = count;
    *ret = (CUuserObject)object;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuUserObjectRetain(CUuserObject handle, unsigned int count)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_user_object *object = weir_soft_object_find(WEIR_SOFT_USER_OBJECT, handle);
    WEIR_FAIL_IF(!object || count == 0 || count > INT32_MAX, CUDA_ERROR_INVALID_VALUE);
    object->count += count;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuUserObjectRelease(CUuserObject handle, unsigned int count)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_user_object *object = weir_soft_object_find(WEIR_SOFT_USER_OBJECT, handle);
    WEIR_FAIL_IF(!object || count == 0 || count > object->count, CUDA_ERROR_INVALID_VALUE);
    weir_soft_user_object_drop(object, count);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphRetainUserObject(CUgraph handle, CUuserObject object_handle,
                                           unsigned int count, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph;
    struct weir_soft_user_object *object =
        weir_soft_object_find(WEIR_SOFT_USER_OBJECT, object_handle);
    WEIR_TRY(weir_soft_graph_find(handle, &graph));
    if (!object || count == 0 || count > INT32_MAX ||
        (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < graph->n_user_objects; i++) {
        if (graph->user_objects[i].object == object) {
            graph->user_objects[i].count += count;
            object->count += (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0 ? 0 : count;
            return CUDA_SUCCESS;
        }
    }
    WEIR_FAIL_IF(!WEIR_GROW_POWER(graph->user_objects, graph->n_user_objects),
                 CUDA_ERROR_OUT_OF_MEMORY);
    graph->user_objects[graph->n_user_objects].object = object;
    graph->user_objects[graph->n_user_objects++].count = count;
    object->count += (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0 ? 0 : count;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphReleaseUserObject(CUgraph handle, CUuserObject object_handle,
                                            unsigned int count)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph;
    struct weir_soft_user_object *object =
        weir_soft_object_find(WEIR_SOFT_USER_OBJECT, object_handle);
    WEIR_TRY(weir_soft_graph_find(handle, &graph));
    for (uint32_t i = 0; object && i < graph->n_user_objects; i++) {
        if (graph->user_objects[i].object == object && count != 0 &&
            count <= graph->user_objects[i].count) {
            graph->user_objects[i].count -= count;
            if (graph->user_objects[i].count == 0) {
                graph->user_objects[i] = graph->user_objects[--graph->n_user_objects];
            }
            weir_soft_user_object_drop(object, count);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

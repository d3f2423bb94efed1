/* Reads the nodes and edges of a graph from the driver. */
#include "host_backend/worker/session/graph_level.h"

#include "host_backend/worker/session/objects.h"
#include <stdlib.h>

static int compare_nodes(const void *a, const void *b)
{
    uintptr_t one = (uintptr_t) * (const CUgraphNode *)a;
    uintptr_t other = (uintptr_t) * (const CUgraphNode *)b;

    return one < other ? -1 : one > other;
}

static CUresult read_edges(const struct weir_driver *d, CUgraph graph,
                           struct weir_graph_level *level)
{
    CUgraphEdgeData *data = NULL;
    CUresult result;

    if (!weir_driver_has(d, cuGraphGetEdges_v2)) {
        return d->cuGraphGetEdges(graph, level->from, level->to, &level->n_edges);
    }
    if (level->from) { /* without edge data the driver refuses special edges */
        data = calloc(level->n_edges + 1, sizeof *data);
        WEIR_FAIL_IF(!data, CUDA_ERROR_OUT_OF_MEMORY);
    }
    result = d->cuGraphGetEdges_v2(graph, level->from, level->to, data, &level->n_edges);
    free(data);
    return result;
}

CUresult weir_graph_level_read(const struct weir_driver *driver, CUgraph graph,
                               struct weir_graph_level *ret_level)
{
    struct weir_graph_level *level = ret_level;

    WEIR_TRY(driver->cuGraphGetNodes(graph, NULL, &level->n_nodes));
    WEIR_TRY(read_edges(driver, graph, level));
    WEIR_FAIL_IF(level->n_nodes > WEIR_GRAPH_NODES_MAX || level->n_edges > WEIR_GRAPH_EDGES_MAX,
                 CUDA_ERROR_NOT_SUPPORTED);
    level->nodes = calloc(level->n_nodes + 1, sizeof(CUgraphNode));
    level->from = calloc(level->n_edges + 1, sizeof(CUgraphNode));
    level->to = calloc(level->n_edges + 1, sizeof(CUgraphNode));
    WEIR_FAIL_IF(!level->nodes || !level->from || !level->to, CUDA_ERROR_OUT_OF_MEMORY);
    if (level->n_nodes != 0) {
        WEIR_TRY(driver->cuGraphGetNodes(graph, level->nodes, &level->n_nodes));
        qsort(level->nodes, level->n_nodes, sizeof(CUgraphNode), compare_nodes);
    }
    return level->n_edges != 0 ? read_edges(driver, graph, level) : CUDA_SUCCESS;
}

void weir_graph_level_finish(struct weir_graph_level *level)
{
    free(level->nodes);
    free(level->from);
    free(level->to);
}

struct visit {
    const struct weir_driver *driver;
    weir_graph_visit_fn *visit;
    void *user;
};

static bool visit_graph(const struct visit *v, CUgraph graph, unsigned depth);

static bool visit_node(const struct visit *v, CUgraphNode node, unsigned depth)
{
    CUgraphNodeType type;
    CUgraph child;

    return v->driver->cuGraphNodeGetType(node, &type) == CUDA_SUCCESS &&
           v->visit(node, type, v->user) &&
           (type != CU_GRAPH_NODE_TYPE_GRAPH ||
            (v->driver->cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS &&
             visit_graph(v, child, depth + 1)));
}

/* The recursion is as deep as child graphs are nested, WEIR_GRAPH_DEPTH_MAX. */
static bool visit_graph(const struct visit *v, CUgraph graph, unsigned depth)
{
    CUgraphNode *nodes = NULL;
    size_t n = 0;
    bool good = depth < WEIR_GRAPH_DEPTH_MAX &&
                v->driver->cuGraphGetNodes(graph, NULL, &n) == CUDA_SUCCESS &&
                n <= WEIR_GRAPH_NODES_MAX;

    if (good && n != 0) {
        nodes = calloc(n, sizeof(CUgraphNode));
        good = nodes && v->driver->cuGraphGetNodes(graph, nodes, &n) == CUDA_SUCCESS;
    }
    for (size_t i = 0; i < n && good; i++) {
        good = visit_node(v, nodes[i], depth);
    }
    free(nodes);
    return good;
}

bool weir_graph_visit(const struct weir_driver *driver, CUgraph graph, weir_graph_visit_fn *visit,
                      void *user)
{
    return visit_graph(&(struct visit){driver, visit, user}, graph, 0);
}

uint32_t weir_graph_level_find(const struct weir_graph_level *level, CUgraphNode node)
{
    const CUgraphNode *at =
        bsearch(&node, level->nodes, level->n_nodes, sizeof node, compare_nodes);

    return at ? (uint32_t)(at - level->nodes) : WEIR_GRAPH_NO_NODE;
}

typedef CUresult (*neighbours_fn)(CUgraphNode, CUgraphNode *, CUgraphEdgeData *, size_t *);

CUresult weir_graph_neighbours_read(const struct weir_driver *driver, CUgraphNode node, bool before,
                                    struct weir_graph_neighbours *ret)
{
    neighbours_fn list =
        before ? driver->cuGraphNodeGetDependencies_v2 : driver->cuGraphNodeGetDependentNodes_v2;

    WEIR_FAIL_IF(!weir_driver_has(driver, cuGraphNodeGetDependentNodes_v2),
                 CUDA_ERROR_NOT_SUPPORTED);
    ret->before = before;
    WEIR_TRY(list(node, NULL, NULL, &ret->n));
    ret->nodes = calloc(ret->n + 1, sizeof(CUgraphNode));
    ret->same = calloc(ret->n + 1, sizeof(CUgraphNode));
    ret->edges = calloc(ret->n + 1, sizeof *ret->edges);
    WEIR_FAIL_IF(!ret->nodes || !ret->same || !ret->edges, CUDA_ERROR_OUT_OF_MEMORY);
    return ret->n != 0 ? list(node, ret->nodes, ret->edges, &ret->n) : CUDA_SUCCESS;
}

CUresult weir_graph_neighbours_edit(const struct weir_driver *driver, CUgraph graph,
                                    CUgraphNode node,
                                    const struct weir_graph_neighbours *neighbours, bool add)
{
    const struct weir_graph_neighbours *n = neighbours;
    const CUgraphNode *from = n->before ? n->nodes : n->same;
    const CUgraphNode *to = n->before ? n->same : n->nodes;

    for (size_t i = 0; i < n->n; i++) {
        n->same[i] = node;
    }
    if (n->n == 0) {
        return CUDA_SUCCESS;
    }
    return add ? driver->cuGraphAddDependencies_v2(graph, from, to, n->edges, n->n)
               : driver->cuGraphRemoveDependencies_v2(graph, from, to, n->edges, n->n);
}

void weir_graph_neighbours_finish(struct weir_graph_neighbours *neighbours)
{
    free(neighbours->nodes);
    free(neighbours->same);
    free(neighbours->edges);
}

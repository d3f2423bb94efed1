/* What graphs name: see graph_names.h. */
#include "host_backend/worker/ops/graph_names.h"

#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/graph_level.h"
#include <stdlib.h>
#include <string.h>

static bool grow(struct weir_exec_names *names)
{
    uint32_t room = names->room != 0 ? 2 * names->room : 16;
    CUgraphNode *nodes = realloc(names->nodes, room * sizeof(CUgraphNode));
    uint64_t *pieces = nodes ? realloc(names->pieces, room * sizeof *pieces) : NULL;

    names->nodes = nodes ? nodes : names->nodes;
    names->pieces = pieces ? pieces : names->pieces;
    names->room = pieces ? room : names->room;
    return pieces != NULL;
}

/* What finds no memory is not named: the graph's launches are right, too. */
static void add(struct weir_session *s, struct weir_exec_names *names, CUgraphNode node,
                const void *words, size_t bytes)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
        uint64_t word, piece;

        memcpy(&word, (const uint8_t *)words + at, sizeof word);
        piece = weir_managed_piece(s, word);
        if (piece != 0 && (names->n < names->room || grow(names))) {
            names->nodes[names->n] = node;
            names->pieces[names->n++] = piece;
        }
    }
}

static void add_copy(struct weir_session *s, struct weir_exec_names *names, CUgraphNode node,
                     const CUDA_MEMCPY3D *copy)
{
    const uint64_t words[] = {copy->srcDevice, copy->dstDevice, (uintptr_t)copy->srcHost,
                              (uintptr_t)copy->dstHost};

    add(s, names, node, words, sizeof words);
}

struct reading {
    struct weir_session *session;
    struct weir_exec_names *names;
    uint8_t *params; /* room for a kernel's */
};

static bool read_node(CUgraphNode node, CUgraphNodeType type, void *user)
{
    const struct reading *r = user;
    const struct weir_driver *d = r->session->driver;
    CUDA_KERNEL_NODE_PARAMS kernel = {0};
    struct weir_host_function *f;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_MEMCPY3D copy;
    uint32_t n;

    if (type == CU_GRAPH_NODE_TYPE_KERNEL &&
        d->cuGraphKernelNodeGetParams_v2(node, &kernel) == CUDA_SUCCESS) {
        f = weir_ops_node_function(r->session, &kernel);
        if (f && weir_ops_node_params(r->session, f, &kernel, r->params, &n) == CUDA_SUCCESS) {
            add(r->session, r->names, node, r->params, n);
        }
    } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY &&
               d->cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS) {
        add_copy(r->session, r->names, node, &copy);
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET &&
               d->cuGraphMemsetNodeGetParams(node, &fill) == CUDA_SUCCESS) {
        add(r->session, r->names, node, &fill.dst, sizeof fill.dst);
    }
    return true;
}

void weir_graph_names_read(struct weir_session *session, struct weir_exec *exec, CUgraph graph)
{
    struct reading reading = {.session = session, .names = &exec->names};

    exec->names.n = 0;
    if (session->devices.managed &&
        (reading.params = weir_session_alloc(session, WEIR_OPS_PARAMS_BYTES))) {
        (void)weir_graph_visit(session->driver, graph, read_node, &reading);
    }
}

/* Forget what a node of an executable graph named before. @return where its names go now */
static struct weir_exec_names *forget(struct weir_session *s, uint64_t exec, CUgraphNode node)
{
    struct weir_exec *x = weir_host_object_get(s, WEIR_KIND_EXEC, exec);
    struct weir_exec_names *names = &x->names;
    uint32_t n = 0;

    for (uint32_t i = 0; i < names->n; i++) {
        if (names->nodes[i] != node) {
            names->nodes[n] = names->nodes[i];
            names->pieces[n++] = names->pieces[i];
        }
    }
    names->n = n;
    return names;
}

void weir_graph_names_set(struct weir_session *session, uint64_t exec, CUgraphNode node,
                          const void *words, size_t bytes)
{
    add(session, forget(session, exec, node), node, words, bytes);
}

void weir_graph_names_copy_set(struct weir_session *session, uint64_t exec, CUgraphNode node,
                               const CUDA_MEMCPY3D *copy)
{
    add_copy(session, forget(session, exec, node), node, copy);
}

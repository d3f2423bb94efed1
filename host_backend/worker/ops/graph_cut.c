/*
 * Cuts a graph into pieces.
 *
 * The nodes are divided (graph_split.c). Then the copy of the graph is halved until each half is
 * one piece: a half is a clone of the graph without the nodes of the other half. So nodes keep all
 * their attributes, also those that no function can read. Each node is cloned once for each
 * halving, not once for each piece.
 *
 * Dependencies inside a piece are edges, with their kinds. The stream's order keeps those between
 * pieces, since it is stricter.
 */
#include "host_backend/worker/ops/graph_cut.h"

#include "host_backend/worker/ops/graph_split.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/graph_level.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- dividing */

/* Find the ends of the edges, as indices of nodes. @param ret_ends 2 * n_edges of them: first all
 * starts, then all ends. false: an edge has a node that the driver did not list. */
static bool find_ends(const struct weir_graph_level *level, uint32_t *ret_ends)
{
    bool found = true;

    for (size_t i = 0; i < level->n_edges; i++) {
        uint32_t from = weir_graph_level_find(level, level->from[i]);
        uint32_t to = weir_graph_level_find(level, level->to[i]);

        found &= from != WEIR_GRAPH_NO_NODE && to != WEIR_GRAPH_NO_NODE;
        ret_ends[i] = from;
        ret_ends[level->n_edges + i] = to;
    }
    return found;
}

/* Guess the nodes' weights for the first cut. */
static bool weigh(struct weir_session *s, const struct weir_graph_level *level,
                  struct weir_exec_inside *inside)
{
    if (inside->weights) {
        return true;
    }
    inside->weights = calloc(level->n_nodes, sizeof *inside->weights);
    inside->piece_of = calloc(level->n_nodes, sizeof *inside->piece_of);
    for (size_t i = 0; i < level->n_nodes && inside->weights; i++) {
        inside->weights[i] = weir_ops_node_weight(s, level->nodes[i]);
    }
    return inside->weights && inside->piece_of;
}

/* @return the number of pieces; 0: the graph cannot be divided */
static uint32_t divide(struct weir_session *s, const struct weir_graph_level *level,
                       struct weir_exec_inside *inside, uint32_t n_pieces)
{
    struct weir_graph_shape shape = {.n_nodes = (uint32_t)level->n_nodes,
                                     .n_edges = (uint32_t)level->n_edges};
    uint32_t *ends = calloc(2 * level->n_edges + 1, sizeof *ends);
    uint32_t n = 0;

    if (ends && level->n_nodes == inside->n_nodes && weigh(s, level, inside) &&
        find_ends(level, ends)) {
        shape.from = ends;
        shape.to = ends + level->n_edges;
        shape.weights = inside->weights;
        n = weir_graph_split(&shape, n_pieces, inside->piece_of);
    }
    free(ends);
    return n;
}

/* ---------------------------------------------------------------- making pieces */

/* A graph with the nodes of some pieces. */
struct part {
    CUgraph graph;          /* owned */
    CUgraphNode *nodes;     /* by index; nodes of other pieces are no longer valid; owned */
    uint32_t first, behind; /* numbers of the first piece and of the one behind the last */
};

struct workshop {
    struct weir_session *session;
    const struct weir_exec_inside *inside;
    struct weir_exec_pieces *pieces;
    CUstream stream;
};

static void part_finish(const struct weir_driver *d, struct part *part)
{
    if (part->graph) {
        (void)d->cuGraphDestroy(part->graph);
    }
    free(part->nodes);
}

static bool is_in(const struct workshop *w, const struct part *part, uint32_t node)
{
    return w->inside->piece_of[node] >= part->first && w->inside->piece_of[node] < part->behind;
}

static CUresult clone_part(const struct workshop *w, const struct part *part, struct part *ret)
{
    const struct weir_driver *d = w->session->driver;

    ret->nodes = calloc(w->inside->n_nodes, sizeof(CUgraphNode));
    WEIR_FAIL_IF(!ret->nodes, CUDA_ERROR_OUT_OF_MEMORY);
    ret->first = part->first;
    ret->behind = part->behind;
    WEIR_TRY(d->cuGraphClone(&ret->graph, part->graph));
    for (uint32_t i = 0; i < w->inside->n_nodes; i++) {
        if (is_in(w, part, i)) {
            WEIR_TRY(d->cuGraphNodeFindInClone(&ret->nodes[i], part->nodes[i], ret->graph));
        }
    }
    return CUDA_SUCCESS;
}

/* Keep the nodes of these pieces only. */
static CUresult narrow(const struct workshop *w, struct part *part, uint32_t first, uint32_t behind)
{
    const struct part all = *part;

    part->first = first;
    part->behind = behind;
    for (uint32_t i = 0; i < w->inside->n_nodes; i++) {
        if (is_in(w, &all, i) && !is_in(w, part, i)) {
            WEIR_TRY(w->session->driver->cuGraphDestroyNode(part->nodes[i]));
        }
    }
    return CUDA_SUCCESS;
}

/* Instantiate a part with all the memory that launches need: a later piece must not fail to
 * launch. */
static CUresult instantiate(const struct workshop *w, const struct part *part)
{
    const struct weir_driver *d = w->session->driver;
    struct weir_exec_piece *piece = &w->pieces->piece[part->first];
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = w->inside->flags};

    WEIR_TRY(d->cuGraphInstantiateWithParams(&piece->native, part->graph, &params));
    return d->cuGraphUpload(piece->native, w->stream);
}

/* Make the pieces of a part, and free the part. The recursion is as deep as there are halvings. */
static CUresult make_all(const struct workshop *w, struct part *part)
{
    const struct weir_driver *d = w->session->driver;
    uint32_t middle = part->first + (part->behind - part->first) / 2;
    struct part other = {0};
    CUresult result;

    if (part->behind - part->first == 1) {
        result = instantiate(w, part);
        part_finish(d, part);
        return result;
    }
    result = clone_part(w, part, &other);
    WEIR_THEN(result, narrow(w, &other, middle, part->behind));
    WEIR_THEN(result, narrow(w, part, part->first, middle));
    if (result != CUDA_SUCCESS) {
        part_finish(d, part);
        part_finish(d, &other);
        return result;
    }
    result = make_all(w, part);
    if (result != CUDA_SUCCESS) {
        part_finish(d, &other);
        return result;
    }
    return make_all(w, &other);
}

static CUresult make_pieces(struct weir_session *s, const struct weir_graph_level *level,
                            const struct weir_exec_inside *inside, uint32_t n, CUstream stream,
                            struct weir_exec_pieces *pieces)
{
    const struct workshop w = {s, inside, pieces, stream};
    const struct part whole = {inside->graph, level->nodes, 0, n};
    struct part copy = {0};
    CUresult result = clone_part(&w, &whole, &copy);

    if (result != CUDA_SUCCESS) {
        part_finish(s->driver, &copy);
        return result;
    }
    result = make_all(&w, &copy);
    for (uint32_t i = 0; i < inside->n_nodes && result == CUDA_SUCCESS; i++) {
        pieces->piece[inside->piece_of[i]].weight += inside->weights[i];
    }
    return result;
}

CUresult weir_graph_cut(struct weir_session *session, struct weir_exec *exec, uint32_t n_pieces,
                        CUstream stream)
{
    struct weir_session *s = session;
    struct weir_exec_pieces *pieces = NULL;
    struct weir_graph_level level = {0};
    CUresult result = weir_graph_level_read(s->driver, exec->inside.graph, &level);
    uint32_t n = 0;

    if (result == CUDA_SUCCESS) {
        n = divide(s, &level, &exec->inside, n_pieces);
        result = n > 1 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (n > 1) {
        pieces = calloc(1, sizeof *pieces + n * sizeof pieces->piece[0]);
    }
    if (pieces) {
        pieces->n = n;
        result = make_pieces(s, &level, &exec->inside, n, stream, pieces);
    }
    if (pieces && result == CUDA_SUCCESS && !exec->done) {
        result = s->driver->cuEventCreate(&exec->done, CU_EVENT_DISABLE_TIMING);
    }
    if (result != CUDA_SUCCESS) {
        weir_exec_pieces_destroy(s->driver, pieces);
        pieces = NULL;
    }
    weir_graph_level_finish(&level);
    exec->pieces = pieces;
    return result;
}

void weir_graph_weigh_again(struct weir_exec *exec)
{
    struct weir_exec_inside *inside = &exec->inside;

    for (uint32_t i = 0; i < inside->n_nodes; i++) {
        const struct weir_exec_piece *piece = &exec->pieces->piece[inside->piece_of[i]];
        double part = (double)inside->weights[i] / (double)piece->weight;

        inside->weights[i] = 1 + (uint64_t)(part * (double)piece->hint.ns);
    }
}

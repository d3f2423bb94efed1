/* Launches graphs with marks: see graph_timed.h. */
#include "host_backend/worker/ops/graph_timed.h"

#include "base/log.h"
#include "host_backend/worker/device/profile.h"
#include "host_backend/worker/ops/graph_level.h"
#include "host_backend/worker/ops/ops.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

bool weir_graph_timed_possible(const struct weir_session *session, const struct weir_exec *exec,
                               const struct weir_host_stream *stream)
{
    return session->op.profile != 0 && !(session->op.profile & WEIR_PROFILE_WHOLE_GRAPHS) &&
           exec->inside.timable && exec->o.device == stream->o.device &&
           (exec->stream == 0 || exec->stream == stream->o.handle || exec->was_other);
}

/* ---------------------------------------------------------------- what a record says of a node */

static void describe_kernel(struct weir_session *s, CUgraphNode node,
                            struct weir_profile_record *about)
{
    CUDA_KERNEL_NODE_PARAMS params;

    memset(&params, 0, sizeof params);
    if (s->driver->cuGraphKernelNodeGetParams_v2(node, &params) == CUDA_SUCCESS) {
        const struct weir_host_function *function = weir_ops_node_function(s, &params);

        about->function = function ? function->o.handle : 0;
        about->shared_bytes = params.sharedMemBytes;
        weir_ops_node_shape(&params, about->grid, about->block);
    }
}

static bool is_host(const struct weir_driver *d, CUmemorytype type, CUdeviceptr address)
{
    unsigned int kind = CU_MEMORYTYPE_DEVICE;

    if (type != CU_MEMORYTYPE_UNIFIED && type != CU_MEMORYTYPE_DEVICE) {
        return type == CU_MEMORYTYPE_HOST;
    }
    return d->cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
               CUDA_SUCCESS &&
           kind == CU_MEMORYTYPE_HOST;
}

static void describe_copy(struct weir_session *s, CUgraphNode node,
                          struct weir_profile_record *about)
{
    const struct weir_driver *d = s->driver;
    CUDA_MEMCPY3D copy;

    if (d->cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS) {
        bool from_host = is_host(d, copy.srcMemoryType, copy.srcDevice);
        bool to_host = is_host(d, copy.dstMemoryType, copy.dstDevice);

        about->class = from_host == to_host ? WEIR_PROFILE_D2D
                       : to_host            ? WEIR_PROFILE_D2H
                                            : WEIR_PROFILE_H2D;
        about->bytes = (uint64_t)copy.WidthInBytes * copy.Height * copy.Depth;
    }
}

static void describe_fill(struct weir_session *s, CUgraphNode node,
                          struct weir_profile_record *about)
{
    CUDA_MEMSET_NODE_PARAMS fill;

    if (s->driver->cuGraphMemsetNodeGetParams(node, &fill) == CUDA_SUCCESS) {
        about->bytes = (uint64_t)fill.elementSize * fill.width * fill.height;
        about->value = fill.value;
    }
}

/* @return false: such nodes are not recorded */
static bool describe(struct weir_session *s, CUgraphNode node, CUgraphNodeType type,
                     struct weir_profile_record *about)
{
    switch ((int)type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        about->class = WEIR_PROFILE_KERNEL;
        describe_kernel(s, node, about);
        return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        about->class = WEIR_PROFILE_D2D;
        describe_copy(s, node, about);
        return true;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        about->class = WEIR_PROFILE_MEMSET;
        describe_fill(s, node, about);
        return true;
    default:
        return false;
    }
}

/* ---------------------------------------------------------------- marks */

struct marking {
    struct weir_session *session;
    struct weir_profile_graph *timed;
    uint32_t max_nodes, max_marks;
};

/* One level of the graph: the graph itself, or a child graph within it. */
struct level {
    CUgraph graph;
    struct weir_graph_level read; /* as it was before */
    struct level_node {
        uint32_t n_before, before; /* how many nodes it depends on, and the last of them */
        uint32_t recorded;         /* its number in timed->nodes; NONE: not recorded */
    } * nodes;
    uint32_t root; /* mark behind which the level begins; NONE: not made */
};

/* Put a mark behind nodes. */
static CUresult add_mark(const struct marking *m, CUgraph graph, const CUgraphNode *behind,
                         size_t n, uint32_t *ret_mark)
{
    const struct weir_driver *d = m->session->driver;
    uint32_t mark = m->timed->n_marks;

    if (mark == m->max_marks) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    WEIR_TRY(d->cuEventCreate(&m->timed->events->event[mark], CU_EVENT_DEFAULT));
    m->timed->n_marks++;
    *ret_mark = mark;
    return d->cuGraphAddEventRecordNode(&m->timed->marks[mark].node, graph, n != 0 ? behind : NULL,
                                        n, m->timed->events->event[mark]);
}

/* Put a mark between a node and its neighbours on one side. */
static CUresult insert_mark(const struct marking *m, CUgraph graph, CUgraphNode node, bool before,
                            uint32_t *ret_mark)
{
    const struct weir_driver *d = m->session->driver;
    struct weir_graph_neighbours n = {0};
    CUresult result = weir_graph_neighbours_read(d, node, before, &n);

    if (result == CUDA_SUCCESS) {
        result = weir_graph_neighbours_edit(d, graph, node, &n, false);
    }
    if (result == CUDA_SUCCESS) {
        result = before ? add_mark(m, graph, n.nodes, n.n, ret_mark)
                        : add_mark(m, graph, &node, 1, ret_mark);
    }
    if (result == CUDA_SUCCESS) { /* an event starts nothing early: plain edges are enough */
        memset(n.edges, 0, n.n * sizeof *n.edges);
        if (before) {
            result = d->cuGraphAddDependencies_v2(graph, &m->timed->marks[*ret_mark].node, &node,
                                                  NULL, 1);
        } else {
            result =
                weir_graph_neighbours_edit(d, graph, m->timed->marks[*ret_mark].node, &n, true);
        }
    }
    weir_graph_neighbours_finish(&n);
    return result;
}

/* Find the mark behind which a recorded node runs, or make it. */
static CUresult mark_before(const struct marking *m, struct level *level, uint32_t i,
                            uint32_t *ret_mark)
{
    const struct level_node *of = &level->nodes[i];
    CUgraphNode node = level->read.nodes[i];

    if (of->n_before == 1 && level->nodes[of->before].recorded != NONE) {
        *ret_mark = m->timed->nodes[level->nodes[of->before].recorded].end;
        return CUDA_SUCCESS;
    }
    if (of->n_before != 0) {
        return insert_mark(m, level->graph, node, true, ret_mark);
    }
    if (level->root == NONE) {
        WEIR_TRY(add_mark(m, level->graph, NULL, 0, &level->root));
    }
    *ret_mark = level->root;
    return m->session->driver->cuGraphAddDependencies_v2(
        level->graph, &m->timed->marks[level->root].node, &node, NULL, 1);
}

static CUresult mark_graph(struct marking *m, CUgraph graph);

/* Put a mark behind a node if it is recorded. A child graph gets its own marks. */
static CUresult mark_node(struct marking *m, struct level *level, uint32_t i)
{
    const struct weir_driver *d = m->session->driver;
    CUgraphNode node = level->read.nodes[i];
    struct weir_profile_record about = {.node = m->timed->n_nodes + 1};
    CUgraphNodeType type;
    CUgraph child;

    WEIR_TRY(d->cuGraphNodeGetType(node, &type));
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
        WEIR_TRY(d->cuGraphChildGraphNodeGetGraph(node, &child));
        return mark_graph(m, child);
    }
    if (!describe(m->session, node, type, &about)) {
        return CUDA_SUCCESS;
    }
    if (m->timed->n_nodes == m->max_nodes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    level->nodes[i].recorded = m->timed->n_nodes;
    m->timed->nodes[m->timed->n_nodes].about = about;
    return insert_mark(m, level->graph, node, false, &m->timed->nodes[m->timed->n_nodes++].end);
}

static CUresult mark_level(struct marking *m, struct level *level)
{
    for (uint32_t i = 0; i < level->read.n_nodes; i++) {
        level->nodes[i].recorded = NONE;
    }
    for (size_t i = 0; i < level->read.n_edges; i++) {
        uint32_t from = weir_graph_level_find(&level->read, level->read.from[i]);
        uint32_t to = weir_graph_level_find(&level->read, level->read.to[i]);

        if (from == WEIR_GRAPH_NO_NODE || to == WEIR_GRAPH_NO_NODE) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        level->nodes[to].n_before++;
        level->nodes[to].before = from;
    }
    for (uint32_t i = 0; i < level->read.n_nodes; i++) {
        WEIR_TRY(mark_node(m, level, i));
    }
    for (uint32_t i = 0; i < level->read.n_nodes; i++) {
        uint32_t recorded = level->nodes[i].recorded;

        if (recorded != NONE) {
            WEIR_TRY(mark_before(m, level, i, &m->timed->nodes[recorded].begin));
        }
    }
    return CUDA_SUCCESS;
}

/* The recursion is as deep as child graphs are nested, WEIR_GRAPH_DEPTH_MAX. */
static CUresult mark_graph(struct marking *m, CUgraph graph)
{
    struct level level = {.graph = graph, .root = NONE};
    CUresult result = weir_graph_level_read(m->session->driver, graph, &level.read);

    level.nodes = calloc(level.read.n_nodes + 1, sizeof *level.nodes);
    if (result == CUDA_SUCCESS) {
        result = level.nodes ? mark_level(m, &level) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    free(level.nodes);
    weir_graph_level_finish(&level.read);
    return result;
}

/* ---------------------------------------------------------------- launching */

static CUresult make(struct weir_session *s, struct weir_exec *exec)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = exec->inside.flags};
    struct marking m = {.session = s, .max_nodes = exec->inside.n_nodes + exec->o.within};

    if (m.max_nodes > WEIR_PROFILE_RECORDS_MAX) {
        return CUDA_ERROR_NOT_SUPPORTED; /* the records of a launch go into one reply */
    }
    m.max_marks = 3 * m.max_nodes + 1; /* before and behind a node, and for each child graph */
    m.timed = exec->timed = weir_profile_graph_create(m.max_nodes, m.max_marks);
    if (!m.timed) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!exec->done) {
        WEIR_TRY(s->driver->cuEventCreate(&exec->done, CU_EVENT_DISABLE_TIMING));
    }
    WEIR_TRY(s->driver->cuGraphClone(&m.timed->graph, exec->inside.graph));
    WEIR_TRY(mark_graph(&m, m.timed->graph));
    if (m.timed->n_nodes == 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return s->driver->cuGraphInstantiateWithParams(&m.timed->native, m.timed->graph, &params);
}

bool weir_graph_timed_launch(struct weir_session *session, struct weir_exec *exec, CUstream at)
{
    const struct weir_driver *d = session->driver;
    uint32_t room = weir_profile_graph_room(session);
    CUresult result = CUDA_SUCCESS;

    if (room == 0) {
        return false;
    }
    if (!exec->timed) {
        result = make(session, exec);
    }
    if (result == CUDA_SUCCESS && exec->timed->n_nodes > room) {
        return false;
    }
    if (result == CUDA_SUCCESS) {
        result = weir_profile_graph_ready(d, exec->timed);
    }
    if (result == CUDA_SUCCESS) {
        result = d->cuGraphLaunch(exec->timed->native, at);
    }
    if (result != CUDA_SUCCESS) { /* the next try would fail, too: keep one record */
        weir_log_info("profile: the nodes of a graph are not recorded session=%llu nodes=%u "
                      "result=%d",
                      (unsigned long long)session->id, exec->inside.n_nodes, (int)result);
        weir_profile_graph_destroy(d, exec->timed);
        exec->timed = NULL;
        exec->inside.timable = false;
        return false;
    }
    weir_profile_graph_given(session, exec->timed);
    weir_graph_timed_passed(session, exec, at);
    return true;
}

void weir_graph_timed_passed(struct weir_session *session, struct weir_exec *exec, CUstream at)
{
    const struct weir_driver *d = session->driver;

    if (exec->done || d->cuEventCreate(&exec->done, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        exec->was_other = true;
        (void)d->cuEventRecord(exec->done, at); /* if it fails, all later calls fail, too */
    }
}

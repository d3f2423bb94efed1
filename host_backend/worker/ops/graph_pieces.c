/*
 * Launches of graphs in pieces.
 *
 * A launch of a graph is one item to the scheduler, and cannot be stopped before its last node. So
 * a long graph is launched as several graphs if other tenants have had work lately:
 *
 *     instantiation   the graph is copied (exec->inside), since the guest may change or destroy it
 *     launch          the whole, while no other work waits, or while it is short
 *     cut             at a launch: the nodes are divided (graph_cut.c), and each piece becomes an
 *                     executable graph (exec->pieces)
 *     launch          the pieces, each an item of its own; the whole again when the tenant is alone
 *     other cuts      once the time of each piece is known, if one of them is much too long
 *
 * docs/design/graphs.md says which graphs stay whole, and why.
 */
#include "host_backend/worker/ops/graph_pieces.h"

#include "base/hash.h"
#include "base/log.h"
#include "host_backend/worker/ops/graph_cut.h"
#include "host_backend/worker/ops/graph_parts.h"
#include "host_backend/worker/ops/graph_priority.h"
#include "host_backend/worker/ops/graph_probe.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/graph_level.h"
#include "host_backend/worker/submit/submit.h"
#include "host_backend/worker/twins/forms.h"

#include <stdlib.h>

#define PIECES_MAX      128u
#define EXPLORE_MAX     7u /* most pieces in mode "explore" */
#define CUTS_MAX        3u /* the first by graph_demand.c, the others by the pieces' times */
#define LONG_PIECE      2u /* a piece of LONG_PIECE times the wanted length is worth another cut */
#define CERTAINLY_SHORT 4u /* a whole of at most 1/4 of a piece will not be cut */

/* Can graphs of this session ever be launched in pieces? */
static bool are_pieces_used(struct weir_session *s)
{
    uint64_t draw;

    return weir_admission_graph_piece_ns(s) != 0 || weir_forms_explores(s, &draw);
}

/* ---------------------------------------------------------------- what can be cut */

/* What a graph contains, with its child graphs. */
struct contents {
    bool is_plain;  /* all its nodes can be in pieces */
    uint32_t works; /* kernels, copies and memsets of a launch */
};

/*
 * Look at a node. Functions of the guest, memory operations and events cannot be in a piece: they
 * connect the graph with the outside, perhaps only after this launch. Between two pieces that could
 * have another effect than natively. Conditional nodes cannot be cloned.
 * @return false: what a launch does is not known
 */
static bool look_at(CUgraphNode node, CUgraphNodeType type, void *user)
{
    struct contents *contents = user;
    bool works = type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                 type == CU_GRAPH_NODE_TYPE_MEMSET;

    (void)node;
    contents->works += works;
    contents->is_plain &=
        works || type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_GRAPH;
    return type != CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

void weir_graph_pieces_keep(struct weir_session *session, struct weir_exec *exec, CUgraph graph,
                            uint64_t flags)
{
    const struct weir_driver *d = session->driver;
    bool pieces = are_pieces_used(session), partable = weir_place_has_parts(session);
    struct contents contents = {.is_plain = true};
    CUgraph copy = NULL;
    size_t n = 0;

    if ((!pieces && !partable && session->op.profile == 0) ||
        !weir_graph_visit(d, graph, look_at, &contents)) {
        return;
    }
    exec->works = contents.works;
    if ((pieces || partable) && contents.is_plain &&
        d->cuGraphGetNodes(graph, NULL, &n) == CUDA_SUCCESS && n > (partable ? 0 : 1) &&
        d->cuGraphClone(&copy, graph) == CUDA_SUCCESS) {
        exec->inside = (struct weir_exec_inside){.graph = copy,
                                                 .cuttable = pieces && n > 1,
                                                 .partable = partable,
                                                 .flags = flags,
                                                 .n_nodes = (uint32_t)n};
    }
}

/* ---------------------------------------------------------------- cuts */

static bool are_measured(const struct weir_exec_pieces *pieces)
{
    uint32_t n = 0;

    while (n < pieces->n && pieces->piece[n].hint.sure && pieces->piece[n].hint.ns != 0) {
        n++;
    }
    return n == pieces->n;
}

static uint64_t longest_ns(const struct weir_exec_pieces *pieces)
{
    uint64_t ns = 0;

    for (uint32_t i = 0; i < pieces->n; i++) {
        ns = WEIR_MAX(pieces->piece[i].hint.ns, ns);
    }
    return ns;
}

static uint32_t pieces_for(const struct weir_session *s, uint64_t ns)
{
    uint64_t n = (ns - 1) / weir_admission_graph_piece_ns(s) + 1;

    return n < PIECES_MAX ? (uint32_t)n : PIECES_MAX;
}

/*
 * Make pieces, or other pieces once the first ones were measured. The copy of the graph is freed
 * when it is no longer needed.
 *
 * @param ns  predicted duration of the whole graph.
 */
static void cut_as_needed(struct weir_session *s, struct weir_exec *exec, uint64_t ns,
                          CUstream stream)
{
    if (exec->pieces) {
        if (!exec->inside.cuttable || !are_measured(exec->pieces)) {
            return;
        }
        if (longest_ns(exec->pieces) <= LONG_PIECE * weir_admission_graph_piece_ns(s)) {
            weir_exec_cut_over(s->driver, &exec->inside);
            return;
        }
        weir_graph_weigh_again(exec);
        weir_exec_pieces_destroy(s->driver, exec->pieces);
        exec->pieces = NULL;
    }
    if (weir_graph_cut(s, exec, pieces_for(s, ns), stream) != CUDA_SUCCESS) {
        weir_log_debug("graph: stays whole session=%llu nodes=%u us=%llu",
                       (unsigned long long)s->id, exec->inside.n_nodes,
                       (unsigned long long)(ns / WEIR_NS_PER_US));
        weir_exec_stays_whole(s->driver, exec);
        return;
    }
    weir_log_debug("graph: cut session=%llu nodes=%u pieces=%u us=%llu", (unsigned long long)s->id,
                   exec->inside.n_nodes, exec->pieces->n,
                   (unsigned long long)(ns / WEIR_NS_PER_US));
    exec->pieces->cut = ++exec->inside.cuts;
    if (exec->inside.cuts == CUTS_MAX) {
        weir_exec_cut_over(s->driver, &exec->inside);
    }
}

/* ---------------------------------------------------------------- launches */

/* The mode "explore" launches some graphs in pieces, and some as a whole. */
static bool explore(struct weir_session *s, struct weir_exec *exec, uint64_t draw, CUstream stream)
{
    if (!exec->pieces && exec->inside.cuttable &&
        weir_graph_cut(s, exec, 2 + (uint32_t)(draw >> 8) % (EXPLORE_MAX - 1), stream) !=
            CUDA_SUCCESS) {
        weir_exec_stays_whole(s->driver, exec);
    }
    return exec->pieces && draw % 4 != 0;
}

bool weir_graph_pieces_wanted(struct weir_session *session, struct weir_exec *exec,
                              const struct weir_host_stream *stream)
{
    struct weir_session *s = session;
    uint64_t draw, ns, piece_ns = weir_admission_graph_piece_ns(s);

    if ((!exec->inside.cuttable && !exec->pieces) || s->prints ||
        (exec->stream != 0 && exec->stream != stream->o.handle)) {
        return false;
    }
    if (weir_forms_explores(s, &draw)) {
        return explore(s, exec, draw, weir_host_stream_at(stream));
    }
    if (piece_ns == 0 || weir_admission_is_small(s, exec->sms)) {
        return false; /* other tenants can run beside a small graph */
    }
    ns = weir_graph_probe_ns(s, exec);
    if (ns <= piece_ns) {
        if (exec->hint.sure && ns < piece_ns / CERTAINLY_SHORT) {
            weir_exec_cut_over(s->driver, &exec->inside);
        }
        return false;
    }
    if (!weir_admission_has_company(s) || weir_admission_on_several_devices(s)) {
        return false;
    }
    cut_as_needed(s, exec, ns, weir_host_stream_at(stream));
    return exec->pieces != NULL;
}

static CUresult call_piece(struct weir_session *s, CUstream at, const void *user)
{
    const struct weir_exec_piece *piece = user;

    return s->driver->cuGraphLaunch(piece->native, at);
}

/* Launch a piece, on all SMs. If it is granted a part, the device is divided now, so the next
 * launch is of the whole graph, in a part. */
static CUresult launch_piece(struct weir_session *s, struct weir_exec *exec, uint32_t i,
                             struct weir_host_stream *stream)
{
    const uint64_t of[] = {s->id, exec->o.handle, exec->pieces->cut, i};
    struct weir_exec_piece *piece = &exec->pieces->piece[i];
    struct weir_part *part = NULL;
    struct weir_submission what = {.work = {.class = WEIR_SCHED_GRAPH,
                                            .key = weir_hash64_of(of, sizeof of),
                                            .hint = &piece->hint,
                                            .flags = weir_graph_priority_work_flags(exec),
                                            .blocks = exec->sms,
                                            .blocks_per_sm = exec->sms != 0},
                                   .priority = weir_graph_priority_asked(exec),
                                   .call = call_piece,
                                   .user = piece};

    if (weir_graph_parts_possible(s, exec, stream)) {
        what.work.flags |= WEIR_SCHED_PARTABLE;
        what.ret_part = &part;
    }
    CUresult result = weir_submit(s, stream, &what);
    exec->is_divided |= part != NULL;
    return result;
}

CUresult weir_graph_pieces_launch(struct weir_session *session, struct weir_exec *exec,
                                  struct weir_host_stream *stream)
{
    CUresult result = CUDA_SUCCESS;

    exec->is_divided = false;
    for (uint32_t i = 0; i < exec->pieces->n && result == CUDA_SUCCESS; i++) {
        result = launch_piece(session, exec, i, stream);
    }
    exec->stream = stream->o.handle;
    exec->was_other = true;
    CUresult marked = session->driver->cuEventRecord(exec->done, weir_host_stream_at(stream));
    weir_forms_note(session, WEIR_FORMS_LAUNCHED_CUT_GRAPHS);
    return result != CUDA_SUCCESS ? result : marked;
}

CUresult weir_graph_pieces_follow(struct weir_session *session, struct weir_exec *exec,
                                  const struct weir_host_stream *stream)
{
    if (exec->was_other && exec->stream != stream->o.handle) {
        WEIR_TRY(weir_order_join(session->driver, &exec->done, NULL, weir_host_stream_at(stream)));
    }
    exec->stream = stream->o.handle;
    exec->was_other = false;
    return CUDA_SUCCESS;
}

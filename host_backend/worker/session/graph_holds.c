#include "host_backend/worker/session/graph_holds.h"

#include "host_backend/worker/device/order.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/session/capture.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/session.h"
#include <stdlib.h>

/* A reference that graphs have to an object. It is taken once, and again only if the object was to
 * be destroyed in between. */
struct weir_graph_hold {
    struct weir_graph_hold *older;
    atomic_uint refs; /* one of the object; one of the driver until the destructor ran */
    atomic_bool gone; /* no graph holds the reference any more */
    bool released;    /* the session has given its own reference back */
    bool for_ever;    /* the driver refused the user object: keep the object for ever */
    CUuserObject native;
    CUgraph last; /* the last graph that got the reference */
    uint64_t at;  /* graphs_gone at that time: addresses of graphs are reused */
};

static void put(struct weir_graph_hold *hold)
{
    if (atomic_fetch_sub(&hold->refs, 1) == 1) {
        free(hold);
    }
}

/* The destructor of the user object. @thread any, of the driver */
static void CUDA_CB graphs_gone(void *user)
{
    struct weir_graph_hold *hold = user;

    atomic_store(&hold->gone, true);
    put(hold);
}

/* Find the object whose destruction destroys this one: a function's library, a level's mipmapped
 * array. */
static struct weir_object *whole_of(struct weir_object *object)
{
    while (object->owner) {
        object = object->owner;
    }
    return object;
}

static struct weir_graph_hold *hold_of(struct weir_session *session, struct weir_object *object)
{
    struct weir_graph_hold *hold = object->hold;

    if (hold && !hold->released) {
        return hold;
    }
    hold = weir_session_n_kept(session) < WEIR_GRAPH_KEPT_MAX ? calloc(1, sizeof *hold) : NULL;
    WEIR_FAIL_IF(!hold, NULL);
    atomic_init(&hold->refs, 2);
    if (session->driver->cuUserObjectCreate(&hold->native, hold, graphs_gone, 1,
                                            CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS) {
        hold->native = NULL;
        hold->for_ever = true;
        atomic_store(&hold->refs, 1);
    }
    hold->older = object->hold;
    object->hold = hold;
    return hold;
}

CUresult weir_graph_hold(struct weir_session *session, struct weir_object *object, CUgraph graph)
{
    struct weir_graph_hold *hold = hold_of(session, whole_of(object));

    WEIR_FAIL_IF(!hold, CUDA_ERROR_OUT_OF_MEMORY);
    weir_session_book_needs(session, object);
    if (hold->for_ever || (hold->last == graph && hold->at == weir_session_graphs_gone(session))) {
        return CUDA_SUCCESS;
    }
    if (session->driver->cuGraphRetainUserObject(graph, hold->native, 1, 0) != CUDA_SUCCESS) {
        hold->for_ever = true;
    }
    hold->last = graph;
    hold->at = weir_session_graphs_gone(session);
    return CUDA_SUCCESS;
}

CUresult weir_graph_hold_captured(struct weir_session *session,
                                  const struct weir_host_stream *stream, struct weir_object *object)
{
    CUgraph graph;

    return weir_host_stream_capturing(session, stream) &&
                   weir_capture_graph(session, stream, &graph) == CUDA_SUCCESS
               ? weir_graph_hold(session, object, graph)
               : CUDA_SUCCESS;
}

CUresult weir_graph_hold_exec(struct weir_session *session, struct weir_object *object,
                              struct weir_exec *exec)
{
    struct weir_graph_hold *hold = hold_of(session, whole_of(object));
    CUuserObject *more;

    WEIR_FAIL_IF(!hold, CUDA_ERROR_OUT_OF_MEMORY);
    weir_session_book_needs(session, object);
    if (WEIR_ANY(i, exec->n_held, exec->held[i] == hold->native)) {
        return CUDA_SUCCESS;
    }
    more = hold->for_ever ? NULL : realloc(exec->held, (exec->n_held + 1) * sizeof *more);
    if (!more) {
        return hold->for_ever ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec->held = more;
    if (session->driver->cuUserObjectRetain(hold->native, 1) == CUDA_SUCCESS) {
        exec->held[exec->n_held++] = hold->native;
    } else {
        hold->for_ever = true;
    }
    return CUDA_SUCCESS;
}

CUresult weir_graph_hold_event(struct weir_session *session, struct weir_object *event)
{
    struct weir_object *first = session->op.first;

    if (first->kind == WEIR_KIND_EXEC) {
        return weir_graph_hold_exec(session, event, (struct weir_exec *)first);
    }
    if (first->kind == WEIR_KIND_NODE) {
        first = first->owner;
    }
    return first && first->kind == WEIR_KIND_GRAPH ? weir_graph_hold(session, event, first->native)
                                                   : CUDA_SUCCESS;
}

void weir_graph_hold_exec_gone(const struct weir_driver *driver, struct weir_exec *exec)
{
    for (uint32_t i = 0; i < exec->n_held; i++) {
        (void)driver->cuUserObjectRelease(exec->held[i], 1);
    }
    free(exec->held);
    exec->held = NULL;
    exec->n_held = 0;
}

static void release(const struct weir_driver *driver, struct weir_graph_hold *hold)
{
    if (!hold->released && hold->native) {
        (void)driver->cuUserObjectRelease(hold->native, 1);
    }
    hold->released = true;
}

bool weir_graph_holds(struct weir_session *session, struct weir_object *object)
{
    struct weir_graph_hold **at = &object->hold;

    while (*at) {
        struct weir_graph_hold *hold = *at;

        if (!hold->for_ever) {
            release(session->driver, hold);
        }
        if (!hold->for_ever && atomic_load(&hold->gone)) {
            *at = hold->older;
            put(hold);
        } else {
            at = &hold->older;
        }
    }
    return object->hold != NULL;
}

void weir_graph_holds_drop(struct weir_session *session, struct weir_object *object)
{
    while (object->hold) {
        struct weir_graph_hold *hold = object->hold;

        object->hold = hold->older;
        release(session->driver, hold);
        put(hold);
    }
}

/* ---------------------------------------------------------------- executable graphs (exec.h) */

void weir_exec_pieces_destroy(const struct weir_driver *driver, struct weir_exec_pieces *pieces)
{
    if (!pieces) {
        return;
    }
    for (uint32_t i = 0; i < pieces->n; i++) {
        if (pieces->piece[i].native) {
            (void)driver->cuGraphExecDestroy(pieces->piece[i].native);
        }
    }
    free(pieces);
}

static void free_unneeded(const struct weir_driver *driver, struct weir_exec_inside *inside)
{
    if (inside->graph && !inside->cuttable && !inside->partable) {
        (void)driver->cuGraphDestroy(inside->graph);
        inside->graph = NULL;
    }
}

void weir_exec_cut_over(const struct weir_driver *driver, struct weir_exec_inside *inside)
{
    free(inside->weights);
    free(inside->piece_of);
    inside->weights = NULL;
    inside->piece_of = NULL;
    inside->cuttable = false;
    free_unneeded(driver, inside);
}

void weir_exec_stays_whole(const struct weir_driver *driver, struct weir_exec *exec)
{
    weir_exec_cut_over(driver, &exec->inside);
    weir_exec_pieces_destroy(driver, exec->pieces);
    exec->pieces = NULL;
}

void weir_exec_not_partable(const struct weir_driver *driver, struct weir_exec *exec)
{
    exec->inside.partable = false;
    free_unneeded(driver, &exec->inside);
}

void weir_exec_changes(const struct weir_driver *driver, struct weir_exec *exec)
{
    weir_exec_not_partable(driver, exec);
    weir_exec_stays_whole(driver, exec);
    for (uint32_t i = 0; i < WEIR_EXEC_PARTS_MAX; i++) {
        weir_placed_graph_drop(driver, &exec->placed[i]);
    }
}

void weir_exec_gone(const struct weir_driver *driver, struct weir_exec *exec)
{
    weir_exec_changes(driver, exec);
    free(exec->names.nodes);
    free(exec->names.pieces);
    for (int i = 0; i < 2; i++) {
        if (exec->probe.event[i]) {
            (void)driver->cuEventDestroy_v2(exec->probe.event[i]);
        }
    }
    if (exec->done) {
        (void)driver->cuEventDestroy_v2(exec->done);
    }
    weir_graph_hold_exec_gone(driver, exec);
}

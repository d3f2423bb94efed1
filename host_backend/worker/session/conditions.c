#include "host_backend/worker/session/conditions.h"

#include "host_backend/worker/state/object.h"
#include "host_backend/worker/state/session.h"
#include <stdlib.h>

struct condition {
    CUgraphConditionalHandle native;
    const struct weir_object *graph; /* NULL: the graph is destroyed */
};

struct weir_conditions {
    uint32_t n;
    struct condition of[];
};

CUresult weir_condition_create(struct weir_session *session, const struct weir_object *graph,
                               CUcontext context, unsigned default_value, unsigned flags,
                               CUgraphConditionalHandle *ret_handle)
{
    struct weir_conditions *c = session->conditions;
    uint32_t n = c ? c->n : 0, at = 0;

    /* Use the entry of a condition whose graph is gone, or a new one. */
    while (at < n && c->of[at].graph) {
        at++;
    }
    if (at == n) {
        c = at == WEIR_CONDITIONS_MAX ? NULL : realloc(c, sizeof *c + (n + 1) * sizeof c->of[0]);
        WEIR_FAIL_IF(!c, CUDA_ERROR_OUT_OF_MEMORY);
        c->n = n;
        session->conditions = c;
    }
    WEIR_TRY(session->driver->cuGraphConditionalHandleCreate(ret_handle, graph->native, context,
                                                             default_value, flags));
    c->of[at] = (struct condition){*ret_handle, graph};
    c->n += at == n;
    return CUDA_SUCCESS;
}

bool weir_condition_good(const struct weir_session *session, CUgraphConditionalHandle handle)
{
    const struct weir_conditions *c = session->conditions;

    return c && WEIR_ANY(i, c->n, c->of[i].native == handle && c->of[i].graph);
}

void weir_conditions_graph_gone(struct weir_session *session, const struct weir_object *graph)
{
    struct weir_conditions *c = session->conditions;

    for (uint32_t i = 0; c && i < c->n; i++) {
        if (c->of[i].graph == graph) {
            c->of[i].graph = NULL;
        }
    }
}

void weir_conditions_destroy(struct weir_conditions *conditions)
{
    free(conditions);
}

/* Handles for other processes of the tenant: 64 random bytes that name a place in a chunk, or an
 * event. */
#include "host_backend/worker/session/ipc.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/tenant.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

CUresult weir_host_ipc_export(struct weir_session *s, const struct weir_op_ipc_export_in *in,
                              struct weir_op_ipc_export_out *out)
{
    struct weir_tenant *t = s->tenant;
    struct weir_ipc_token *token;
    struct weir_host_chunk *chunk = weir_ops_granted(s, in->base, in->bytes);

    if (chunk == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&t->lock);
    for (token = t->tokens; token != NULL; token = token->next) {
        if (token->chunk == chunk && token->base == in->base && token->bytes == in->bytes) {
            memcpy(out->handle, token->handle, sizeof out->handle);
            break;
        }
    }
    pthread_mutex_unlock(&t->lock);
    if (token != NULL) {
        return CUDA_SUCCESS;
    }
    token = calloc(1, sizeof *token);
    if (token == NULL ||
        getrandom(token->handle, sizeof token->handle, 0) != (ssize_t)sizeof token->handle) {
        free(token);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    token->chunk = chunk;
    token->base = in->base;
    token->bytes = in->bytes;
    memcpy(out->handle, token->handle, sizeof out->handle);
    pthread_mutex_lock(&t->lock);
    token->next = t->tokens;
    t->tokens = token;
    pthread_mutex_unlock(&t->lock);
    return CUDA_SUCCESS;
}

CUresult weir_host_ipc_event_export(struct weir_session *s,
                                    const struct weir_op_ipc_event_export_in *in,
                                    struct weir_op_ipc_event_export_out *out)
{
    struct weir_host_event *e = weir_ops_event(s, in->e);
    struct weir_tenant *t = s->tenant;

    if (e == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if ((e->flags & CU_EVENT_INTERPROCESS) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (e->shared == NULL) {
        struct weir_ipc_event *shared = calloc(1, sizeof *shared);

        if (shared == NULL ||
            getrandom(shared->handle, sizeof shared->handle, 0) != (ssize_t)sizeof shared->handle) {
            free(shared);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        shared->native = e->o.native;
        shared->refs = 1;
        pthread_mutex_lock(&t->lock);
        shared->next = t->events;
        t->events = shared;
        pthread_mutex_unlock(&t->lock);
        e->shared = shared;
    }
    memcpy(out->handle, e->shared->handle, sizeof out->handle);
    return CUDA_SUCCESS;
}

CUresult weir_host_ipc_event_open(struct weir_session *s,
                                  const struct weir_op_ipc_event_open_in *in,
                                  struct weir_op_ipc_event_open_out *out)
{
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);
    struct weir_tenant *t = s->tenant;
    struct weir_ipc_event *shared;
    struct weir_object *o;
    CUresult result;

    (void)out;
    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    pthread_mutex_lock(&t->lock);
    for (shared = t->events; shared != NULL; shared = shared->next) {
        if (memcmp(shared->handle, in->handle, sizeof shared->handle) == 0) {
            shared->refs++;
            break;
        }
    }
    pthread_mutex_unlock(&t->lock);
    if (shared == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = weir_host_object_create(s, WEIR_KIND_EVENT, sizeof(struct weir_host_event), in->e,
                                     shared->native, ctx, &o);
    if (result == CUDA_SUCCESS) {
        ((struct weir_host_event *)o)->shared = shared;
        ((struct weir_host_event *)o)->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&t->lock);
    shared->refs--; /* the exporter's reference is still there or was the last but ours */
    pthread_mutex_unlock(&t->lock);
    return result;
}

/*
 * What of a session's segment the driver knows: the words from the session's start, the arena part
 * by part.
 *
 * Registering pins every page, 22 ms for the whole of 72 MiB (H200, 2026-11-21), which a program
 * that copies little would wait for at its start and at nothing else. So a part is registered when
 * a copy first names it; the rings are only read and written by processors. The memory of a part
 * that no copy has used is not even allocated.
 */
#include "host_backend/worker/session/segment.h"

#include "host_backend/worker/session/channel.h"
#include "host_backend/worker/session/session.h"

#include <stdlib.h>

static CUresult register_range(struct weir_session *s, void *at, uint64_t bytes, uint64_t *ret_dptr)
{
    CUdeviceptr dptr;
    CUresult result = s->driver->cuMemHostRegister_v2(
        at, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = s->driver->cuMemHostGetDevicePointer_v2(&dptr, at, 0);
    if (result != CUDA_SUCCESS) {
        (void)s->driver->cuMemHostUnregister(at);
        return result;
    }
    *ret_dptr = dptr;
    return CUDA_SUCCESS;
}

uint8_t *weir_session_arena(const struct weir_session *session, uint64_t offset, uint64_t bytes)
{
    const struct weir_segment_view *view = &session->channel->view;

    return offset <= view->arena_bytes && bytes <= view->arena_bytes - offset ? view->arena + offset
                                                                              : NULL;
}

CUresult weir_session_register(struct weir_session *session)
{
    struct weir_session_channel *c = session->channel;

    c->n_parts = c->view.arena_bytes != 0 ? weir_segment_part(c->view.arena_bytes - 1) + 1 : 0;
    c->part_dptrs = calloc(c->n_parts + 1, sizeof *c->part_dptrs);
    if (c->part_dptrs == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return register_range(session, c->view.words, UINT64_C(4) * c->view.n_words, &c->words_dptr);
}

CUresult weir_session_arena_dptr(struct weir_session *session, uint64_t offset, uint64_t bytes,
                                 CUdeviceptr *ret_dptr)
{
    struct weir_session_channel *c = session->channel;
    uint64_t arena_bytes = c->view.arena_bytes, start, end;
    uint32_t part;

    if (bytes == 0 || offset >= arena_bytes || bytes > arena_bytes - offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    part = weir_segment_part(offset);
    start = weir_segment_part_start(part);
    end = weir_segment_part_end(part, arena_bytes);
    if (bytes > end - offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (c->part_dptrs[part] == 0) {
        WEIR_TRY(register_range(session, c->view.arena + start, end - start, &c->part_dptrs[part]));
    }
    *ret_dptr = c->part_dptrs[part] + (offset - start);
    return CUDA_SUCCESS;
}

void weir_session_unregister(struct weir_session *session)
{
    struct weir_session_channel *c = session->channel;

    for (uint32_t i = 0; c->part_dptrs != NULL && i < c->n_parts; i++) {
        if (c->part_dptrs[i] != 0) {
            (void)session->driver->cuMemHostUnregister(c->view.arena + weir_segment_part_start(i));
        }
    }
    free(c->part_dptrs);
    c->part_dptrs = NULL;
    if (c->words_dptr != 0) {
        (void)session->driver->cuMemHostUnregister(c->view.words);
        c->words_dptr = 0;
    }
}

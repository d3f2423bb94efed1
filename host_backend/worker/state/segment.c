/*
 * Registers a session's segment with the driver: the words at the session's start, the arena part
 * by part.
 *
 * Registering pins every page, 22 ms for the whole of 72 MiB (H200, 2026-11-21), which would delay
 * the start of a program that copies little. So a part is registered when a copy first names it.
 * Only processors access the rings. The memory of a part that no copy has used is not even
 * allocated.
 */
#include "host_backend/worker/state/segment.h"

#include "host_backend/worker/state/channel.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/session.h"
#include "proto/ops.h"
#include <stdlib.h>

static CUresult register_range(struct weir_session *s, void *at, uint64_t bytes, uint64_t *ret_dptr)
{
    CUdeviceptr dptr;
    WEIR_TRY(s->driver->cuMemHostRegister_v2(
        at, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    CUresult result = s->driver->cuMemHostGetDevicePointer_v2(&dptr, at, 0);
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
    WEIR_FAIL_IF(!c->part_dptrs, CUDA_ERROR_OUT_OF_MEMORY);
    return register_range(session, c->view.words, UINT64_C(4) * c->view.n_words, &c->words_dptr);
}

CUresult weir_session_arena_dptr(struct weir_session *session, uint64_t offset, uint64_t bytes,
                                 CUdeviceptr *ret_dptr)
{
    struct weir_session_channel *c = session->channel;
    uint64_t arena_bytes = c->view.arena_bytes, start, end;

    WEIR_FAIL_IF(bytes == 0 || offset >= arena_bytes || bytes > arena_bytes - offset,
                 CUDA_ERROR_INVALID_VALUE);
    uint32_t part = weir_segment_part(offset);
    start = weir_segment_part_start(part);
    end = weir_segment_part_end(part, arena_bytes);
    WEIR_FAIL_IF(bytes > end - offset, CUDA_ERROR_INVALID_VALUE);
    if (c->part_dptrs[part] == 0) {
        WEIR_TRY(register_range(session, c->view.arena + start, end - start, &c->part_dptrs[part]));
    }
    *ret_dptr = c->part_dptrs[part] + (offset - start);
    return CUDA_SUCCESS;
}

void weir_session_unregister(struct weir_session *session)
{
    struct weir_session_channel *c = session->channel;

    for (uint32_t i = 0; c->part_dptrs && i < c->n_parts; i++) {
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

/* ---------------------------------------------------------------- completion words */

void weir_session_show_managed(struct weir_session *session, uint32_t value)
{
    /* M1: before the program gets pages; it reads the word before it gives work. */
    __atomic_store_n(&session->channel->view.header->managed, value, __ATOMIC_RELEASE);
}

bool weir_session_word_ok(const struct weir_session *session, uint32_t word)
{
    return word < session->channel->view.n_words;
}

uint32_t weir_session_word(const struct weir_session *session, uint32_t word)
{
    return __atomic_load_n(&session->channel->view.words[word], __ATOMIC_ACQUIRE);
}

/* Has the GPU written value, or a later one? */
static bool reached(const struct weir_session *session, uint32_t word, uint32_t value)
{
    return (int32_t)(weir_session_word(session, word) - value) >= 0;
}

/* ---------------------------------------------------------------- writing */

/* If the GPU cannot write words itself, the driver's thread writes this one. */
struct word_write {
    uint32_t *word;
    uint32_t value;
};

static void CUDA_CB write_word(void *user_data)
{
    struct word_write *write = user_data;

    /* W1: publishes the stream's work; meets the guest's acquire of the word. */
    __atomic_store_n(write->word, write->value, __ATOMIC_RELEASE);
    free(write);
}

CUresult weir_session_word_write(struct weir_session *session, CUstream stream, uint32_t word,
                                 uint32_t value)
{
    struct weir_session_channel *c = session->channel;

    if (word == WEIR_WORD_NONE) {
        return CUDA_SUCCESS;
    }
    c->marks[c->n_marks++ % WEIR_MARKS_WATCHED] = (struct weir_recent_mark){word, value};
    if (session->platform->devices[session->device].write_value_ok) {
        return session->driver->cuStreamWriteValue32_v2(stream, c->words_dptr + UINT64_C(4) * word,
                                                        value, CU_STREAM_WRITE_VALUE_DEFAULT);
    }
    struct word_write *write = malloc(sizeof *write);
    WEIR_FAIL_IF(!write, CUDA_ERROR_OUT_OF_MEMORY);
    *write = (struct word_write){&c->view.words[word], value};
    CUresult result = session->driver->cuLaunchHostFunc(stream, write_word, write);
    if (result != CUDA_SUCCESS) {
        free(write);
    }
    return result;
}

bool weir_session_words_open(struct weir_session *session)
{
    struct weir_session_channel *c = session->channel;
    uint32_t n = WEIR_MIN(c->n_marks, WEIR_MARKS_WATCHED);

    for (uint32_t i = 0; i < n; i++) {
        if (!reached(session, c->marks[i].word, c->marks[i].value)) {
            return true;
        }
    }
    c->n_marks = 0;
    return false;
}

/* ---------------------------------------------------------------- waiting */

bool weir_session_word_wait(struct weir_session *session, uint32_t word, uint32_t value)
{
    struct weir_session_channel *c = session->channel;

    WEIR_FAIL_IF(c->n_waits == WEIR_WORD_WAITS_MAX, false);
    c->waits[c->n_waits++] = (struct weir_word_wait){session->op.seq, word, value};
    session->op.answer_later = true;
    return true;
}

bool weir_session_answer_waits(struct weir_session *session)
{
    struct weir_session_channel *c = session->channel;

    if (c->n_waits == 0) {
        return false;
    }
    CUresult sticky = weir_worker_sticky_error(session->worker);
    for (uint32_t i = 0; i < c->n_waits;) {
        struct weir_word_wait wait = c->waits[i];

        if (sticky == CUDA_SUCCESS && !reached(session, wait.word, wait.value)) {
            i++;
            continue;
        }
        struct weir_op_word_wait_out out = {.value = weir_session_word(session, wait.word)};

        c->waits[i] = c->waits[--c->n_waits];
        session->op.reply_bulk = NULL;
        session->op.reply_bulk_bytes = 0;
        weir_session_reply(session, WEIR_OP_word_wait, wait.seq, sticky,
                           &out); /* no thread writes the word any more */
    }
    return c->n_waits != 0;
}

/* Completion words: written by the GPU behind a stream's work, read by the guest. */
#include "host_backend/worker/session/channel.h"
#include "host_backend/worker/session/platform.h"
#include "host_backend/worker/session/segment.h"
#include "host_backend/worker/session/session.h"
#include "host_backend/worker/session/sticky.h"
#include "proto/ops.h"
#include <stdlib.h>

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

/* Where the GPU cannot write words itself, the driver's thread does. */
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
    struct word_write *write;
    CUresult result;

    if (word == WEIR_WORD_NONE) {
        return CUDA_SUCCESS;
    }
    c->marks[c->n_marks++ % WEIR_MARKS_WATCHED] = (struct weir_recent_mark){word, value};
    if (session->platform->devices[session->device].write_value_ok) {
        return session->driver->cuStreamWriteValue32_v2(stream, c->words_dptr + UINT64_C(4) * word,
                                                        value, CU_STREAM_WRITE_VALUE_DEFAULT);
    }
    write = malloc(sizeof *write);
    if (write == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *write = (struct word_write){&c->view.words[word], value};
    result = session->driver->cuLaunchHostFunc(stream, write_word, write);
    if (result != CUDA_SUCCESS) {
        free(write);
    }
    return result;
}

bool weir_session_words_open(struct weir_session *session)
{
    struct weir_session_channel *c = session->channel;
    uint32_t n = c->n_marks < WEIR_MARKS_WATCHED ? c->n_marks : WEIR_MARKS_WATCHED;

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

    if (c->n_waits == WEIR_WORD_WAITS_MAX) {
        return false;
    }
    c->waits[c->n_waits++] = (struct weir_word_wait){session->op.seq, word, value};
    session->op.answer_later = true;
    return true;
}

bool weir_session_answer_waits(struct weir_session *session)
{
    struct weir_session_channel *c = session->channel;
    CUresult sticky;

    if (c->n_waits == 0) {
        return false;
    }
    sticky = weir_worker_sticky_error(session->worker);
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
                           &out); /* nobody writes it any more */
    }
    return c->n_waits != 0;
}

/*
 * The inside of a session: its channel. Transport, segment, completion words, errors that are still
 * to be told. Handlers use state/segment.h and what state/session.h says of replies instead.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_CHANNEL_H
#define WEIR_HOST_BACKEND_WORKER_STATE_CHANNEL_H

#include "base/status.h"
#include "proto/transport/transport.h"
#include <pthread.h>

#define WEIR_WORD_WAITS_MAX 256
#define WEIR_MARKS_WATCHED  16

struct weir_region_end;

/* Owner thread only, unless a field says otherwise. */
struct weir_session_channel {
    struct weir_transport *transport;   /* constant; what of it other threads may call, it says */
    bool remote;                        /* constant, as is region_end */
    struct weir_region_end *region_end; /* of a virtual machine's session: its part there */
    uint32_t spin_epoch;                /* of the last record (host_backend/config/spin.h) */

    /* The segment, and where the GPU sees its words and arena (state/segment.c). */
    struct weir_segment_view view; /* constant: a private copy of the geometry, and our mapping */
    uint64_t words_dptr;           /* 0: not registered */
    uint64_t *part_dptrs;          /* of each part of the arena; 0: not registered yet */
    uint32_t n_parts;

    /* Calls that are answered once a word is there, and words that the GPU was last asked to write:
     * while one is open, the session looks for a dead context, because nobody would write it then
     * (state/segment.c). */
    struct weir_word_wait {
        uint64_t seq;
        uint32_t word, value;
    } waits[WEIR_WORD_WAITS_MAX];
    uint32_t n_waits;
    struct weir_recent_mark {
        uint32_t word, value;
    } marks[WEIR_MARKS_WATCHED];
    uint32_t n_marks;

    pthread_mutex_t send_lock; /* one sender at a time; guards the transport's sending half, and: */
    uint32_t deferred_seq;     /* deferred errors, mirrored in the segment's header */
    uint32_t deferred_error;
    uint8_t *reply; /* room for a reply's record; grows; the owner's */
    size_t reply_room;
};

#endif

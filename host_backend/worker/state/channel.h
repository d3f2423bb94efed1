/*
 * The inside of a session: its channel. It has the transport, the segment, completion words, and
 * errors that were not yet reported. Handlers use state/segment.h and the replies of
 * state/session.h instead.
 */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include <pthread.h>

#define WEIR_WORD_WAITS_MAX 256
#define WEIR_MARKS_WATCHED  16

struct weir_region_end;

/* Owner thread only, unless a field says otherwise. */
struct weir_session_channel {
    struct weir_transport *transport;   /* constant; its header says what other threads may call */
    bool remote;                        /* constant, as is region_end */
    struct weir_region_end *region_end; /* a virtual machine's session: its end in the region */
    uint32_t spin_epoch;                /* value at the last record (host_backend/config/spin.h) */

    /* The segment, and the GPU's addresses of its words and arena (state/segment.c). */
    struct weir_segment_view view; /* constant: a private copy of the geometry, and our mapping */
    uint64_t words_dptr;           /* 0: not registered */
    uint64_t *part_dptrs;          /* GPU address of each part of the arena; 0: not registered */
    uint32_t n_parts;

    /* Calls that are answered once a word has its value, and words that the GPU was last asked to
     * write. While one is open, the session checks for a dead context, which would never write it
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

    pthread_mutex_t send_lock; /* guards the transport's sending half and the deferred errors */
    uint32_t deferred_seq;     /* deferred errors, copied to the segment's header */
    uint32_t deferred_error;
    uint8_t *reply; /* buffer for a reply's record; it grows; only the owner uses it */
    size_t reply_room;
};

/*
 * A session's book: the records that made and changed its objects, so that another worker can make
 * it again (docs/design/rebuild.md).
 *
 * A record hangs on its object and is forgotten with it, however the object ends. So the book needs
 * no table of its own, and is as large as what lives. The description of each operation says what
 * of it is kept (proto/wire/op_info.h); work is never kept.
 *
 * Session thread only, unless a member says otherwise.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_BOOK_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_BOOK_H

#include "host_backend/worker/state/session.h"
#include "proto/cuda_abi.h"
#include "proto/ops.h"
#include "proto/transport/transport.h"
#include <stdatomic.h>
#include <stdbool.h>

struct weir_object;
struct weir_session;

struct weir_kept_record {
    struct weir_kept_record *next; /* of the same object, newest first */
    uint64_t number;               /* its place among the session's records */
    const char *why; /* why the object cannot be made again; static; NULL: it can, by the record */
    struct weir_record record; /* its body follows */
};

/* A session's part. Sessions have one in workers that serve one program: only those move. */
struct weir_session_book {
    uint64_t n_records; /* how many have been kept so far */
    bool is_incomplete; /* there was no memory for a record */
    uint32_t
        n_promised;   /* stored images of which the program knows and that it has not loaded yet */
    bool rests;       /* it has no work, and has got no record since that was seen */
    bool is_due;      /* a copy of its variables is, as soon as it has rested for longer */
    uint64_t copy_ns; /* how long the last copy of its variables took (rebuild/variables.c) */
    int box;          /* everything of it, for another worker (rebuild/box.h); -1: not yet */
    CUevent bases[WEIR_DEVICES_MAX];  /* of event_times.c */
    double base_ms[WEIR_DEVICES_MAX]; /* when they were recorded, by the host's clock */
    atomic_bool may_leave;            /* it rests and can be moved */
    atomic_bool asked;                /* it is to leave the worker, if it may */
    /* Why the session stays in its worker, as of when it last rested; static; "": it can be moved;
     * NULL: it has not rested yet. Any thread may read it. */
    const char *_Atomic why;
};

/** Copy a record if the book keeps its kind, before it is handled. @return NULL: it does not, or
 * cannot */
struct weir_kept_record *weir_session_book_copy(struct weir_session *session,
                                                const struct weir_record *record);
/**
 * A record was handled: keep it with its object, if there is one.
 * @param copy  of weir_session_book_copy(); taken.
 * @param in    the decoded record.
 */
void weir_session_book_note(struct weir_session *session, struct weir_kept_record *copy,
                            const union weir_op_any_in *in, CUresult result);
/** An object ends: forget its records, and the copy of a module's variables. */
void weir_session_book_forget(struct weir_object *object);

/**
 * All records of the session, in the order in which they came.
 * @param ret_records  gives the array; the records are borrowed.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_session_book_list(struct weir_session *session,
                                        const struct weir_kept_record ***ret_records,
                                        uint32_t *ret_n);
/** Why no other worker could make the session's objects again. @return static; NULL: one could */
const char *weir_session_book_why(struct weir_session *session);

#endif

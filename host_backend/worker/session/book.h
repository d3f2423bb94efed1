/*
 * A session's book: the records that made and changed its objects, so that another worker can make
 * it again (docs/design/rebuild.md).
 *
 * A record is on the page of its object. It refers to the pages of all other objects that it names.
 * An object's page is kept after the object's end while a record refers to it, with the record that
 * ended the object: a graph needs the kernels, streams and events of its capture, which may be
 * gone, and an executable graph its graph. All else is forgotten with its object, however that
 * ends, so the book is as large as what lives. The description of each operation says what of it is
 * kept (proto/wire/op_info.h); work is never kept, except what was captured.
 *
 * Session thread only, unless a member says otherwise.
 */
#pragma once

#include "base/account.h"
#include "host_backend/worker/state/session.h"
#include "proto/cuda_abi.h"
#include "proto/ops.h"
#include "proto/transport/transport.h"
#include <stdatomic.h>
#include <stdbool.h>

/* On what it depends whether a session can be moved whose variables' addresses may be in memory. */
extern const char weir_book_if_same[];

/* How many records may be kept that say what was: those that a later one has replaced, but not for
 * a graph that was made in between, and those that ended something. A session with more stays. */
#define WEIR_BOOK_PAST_MAX 65536u

struct weir_book_capture;
struct weir_book_page;
struct weir_book_reference;
struct weir_host_image;
struct weir_host_stream;
struct weir_object;

struct weir_kept_record {
    struct weir_kept_record *next, **back; /* of the same page, newest first */
    struct weir_kept_record *same;         /* in the same slot of the book's table */
    struct weir_book_page *page;           /* NULL: on none */
    uint64_t number;                       /* its place among the session's records */
    uint64_t key;     /* SETS, REPLACES, STAYS: equal if this stands for an earlier one; else 0 */
    const char *why;  /* why the object cannot be made again; static; NULL: it can, by the record */
    bool is_past;     /* counted in n_past */
    uint32_t holders; /* its page, and the pages of the objects that it has ended */
    uint32_t n_references, n_ranges, n_names;
    struct weir_book_reference *references; /* to pages of other objects */
    struct weir_named_range *ranges;        /* memory that it names, which its handler checks */
    uint64_t *names;                        /* the handles that the host chose, in their order */
    struct weir_record record;              /* its body follows */
};

struct weir_book_names {
    const uint64_t *of;
    uint32_t n;
};

/* How the session leaves its worker (rebuild/leave.c). */
struct weir_leaving {
    int box; /* everything of it, for another worker (rebuild/box.h); -1: not yet */
    struct weir_amounts lent; /* what its memory in the box is charged with */
    bool came;         /* another worker had the session before; never changes once it is listed */
    uint64_t by_ns;    /* when to give up a move for which it is asked; 0: it is not yet */
    atomic_bool may;   /* it rests and can be moved */
    atomic_bool dying; /* it is to leave the dying context, if it may */
    atomic_uint move;  /* enum weir_move, as it was last told */
};

/* A session's part. Sessions have one in workers that serve one program: only those move. */
struct weir_session_book {
    struct weir_book_page *pages;
    struct weir_book_page *unneeded;    /* pages to be freed */
    struct weir_book_capture *captures; /* those under way */
    struct weir_kept_record **slots;    /* a table of the records that have a key */
    struct weir_kept_record *current;   /* the record that is handled; NULL: it is not kept */
    struct weir_object *made;           /* what it makes, if no field says so; or NULL */
    struct weir_book_page **named;      /* pages of objects that the current record names */
    uint64_t *given;                    /* handles that the host has chosen for its reply */
    struct weir_book_names names;       /* handles that the host is to choose */
    uint32_t n_slots, n_keyed, n_named, named_room, n_given, given_room, n_past;
    uint64_t n_records; /* how many have been kept so far */
    uint64_t n_looks;   /* searches through pages */
    /* Captures' ids, which programs compare: the largest one that was told, and what is added to
     * the driver's. */
    uint64_t capture_last, capture_base;
    bool is_incomplete; /* there was no memory for a record, or too much is past */
    uint32_t
        n_promised;   /* stored images of which the program knows and that it has not loaded yet */
    bool rests;       /* it has no work, and has got no record since that was seen */
    bool ran;         /* kernels may have run since its arrays were saved */
    bool is_due;      /* a copy of its variables is, as soon as it has rested for longer */
    uint64_t copy_ns; /* how long the last copy of its variables and arrays took (rebuild/) */
    CUevent bases[WEIR_DEVICES_MAX];  /* of event_times.c */
    double base_ms[WEIR_DEVICES_MAX]; /* when they were recorded, by the host's clock */
    struct weir_leaving leaving;
    /* Why the session stays in its worker, as of when it last rested; static; "", or
     * weir_book_if_same: it can be moved; NULL: it has not rested yet. Any thread may read it. */
    const char *_Atomic why;
};

/** Does the book keep records of this kind, at this time? */
static inline bool weir_session_book_wants(const struct weir_session *session, uint16_t op)
{
    enum weir_op_book book = weir_ops[op].book;

    return book != WEIR_OP_LEAVES_NOTHING && session->devices.book &&
           (book != WEIR_OP_IS_CAPTURED || session->n_captures != 0);
}

/** A record that the book wants is about to be handled: copy it. @return NULL: no memory */
struct weir_kept_record *weir_session_book_begin(struct weir_session *session,
                                                 const struct weir_record *record,
                                                 const union weir_op_any_in *in);
/**
 * The record was handled: keep it, if it has made or changed an object.
 * @param copy  of weir_session_book_begin(); taken.
 * @param out   what the handler has given.
 */
void weir_session_book_note(struct weir_session *session, struct weir_kept_record *copy,
                            const union weir_op_any_out *out, CUresult result);

/** The record that is handled needs the object, though no field of it says so. */
void weir_session_book_needs(struct weir_session *session, const struct weir_object *object);
/** An object ends, or its name does. */
void weir_session_book_forget(struct weir_session *session, struct weir_object *object);
/** The session ends: forget everything. */
void weir_session_book_end(struct weir_session *session);

/** The handle that the host is to choose next, as another worker chose it; 0: any. */
uint64_t weir_session_book_next_name(struct weir_session *session);
/** The host has chosen a handle. */
void weir_session_book_named(struct weir_session *session, uint64_t handle);
/** The current record makes this object, and is kept as long as it lives: no field of it names the
 * object. */
void weir_session_book_made(struct weir_session *session, struct weir_object *object);
/**
 * The driver has chosen a number that the program knows.
 * @param due   as another worker's driver chose it (weir_session_book_next_name()); 0: any.
 * @param what, name  for the log, if it is another one.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_ADDRESS_SPACE
 */
CUresult weir_session_book_number(struct weir_session *session, uint64_t due, uint64_t is,
                                  const char *what, const char *name);

/**
 * All records of the session, in the order in which they came.
 * @param ret_records  gives the array; the records are borrowed.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_session_book_list(struct weir_session *session,
                                        const struct weir_kept_record ***ret_records,
                                        uint32_t *ret_n);
/** Visit the images that the records load; one may come several times. */
void weir_session_book_images(struct weir_session *session,
                              void (*visit)(const struct weir_host_image *image, void *user),
                              void *user);
/** Why no other worker could make the session's objects again. @return static; NULL: one could */
const char *weir_session_book_why(struct weir_session *session);

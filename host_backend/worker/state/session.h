/*
 * A session as the worker sees it: one guest process, its channel, and everything it holds.
 *
 * One thread runs each session: it receives, calls the handlers (weir_host_<op>()), replies. So its
 * parts have no lock: *owner thread only*, unless a field says otherwise. What sessions share lies
 * in the tenant (struct weir_tenant) and the worker (struct weir_worker), which are internally
 * locked.
 *
 * Source: docs/design/host.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_SESSION_H
#define WEIR_HOST_BACKEND_WORKER_STATE_SESSION_H

#include "base/arena.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include "proto/wire/control.h"
#include <stdatomic.h>

struct weir_awaited;
struct weir_conditions;
struct weir_forms_exposures;
struct weir_handles;
struct weir_holdings;
struct weir_host_ctx;
struct weir_host_stream;
struct weir_host_calls;
struct weir_managed;
struct weir_object;
struct weir_platform;
struct weir_record;
struct weir_session;
struct weir_region_end;
struct weir_session_about;
struct weir_session_channel;
struct weir_session_faults;
struct weir_session_idle;
struct weir_session_prints;
struct weir_stats_set;
struct weir_tenant;
struct weir_upload;
struct weir_worker;

#define WEIR_DEVICES_MAX WEIR_CONTROL_MAX_DEVICES /* most devices of a worker */

/* What the operation in hand lacked when it was last tried (state/ending.h). */
enum weir_lack {
    WEIR_LACK_NONE,
    WEIR_LACK_SOON,    /* the tenant's quota is full, but ended programs still hold some of it */
    WEIR_LACK_REFUSED, /* the tenant's quota is full; the refusal has been reported */
    WEIR_LACK_DEVICE,  /* the device has no memory left */
};

/* The operation in hand. */
struct weir_operation {
    uint16_t code; /* enum weir_op */
    bool posted;
    bool answer_later; /* the reply comes once a word is there (weir_session_word_wait()) */
    uint64_t seq;
    int32_t caller;   /* from the guest: which function sends it (proto/wire/caller.h) */
    const void *bulk; /* data that came with the record */
    size_t bulk_bytes;
    const void *reply_bulk; /* data that goes with the reply; borrowed from the segment */
    size_t reply_bulk_bytes;
    struct weir_object *first; /* the first object that the operation has named */
    struct weir_object *last;
    uint32_t device; /* the device in the record's header; perhaps without a context */
    int fd;          /* descriptor that came with the record, once received; -1 */
    enum weir_lack lack;
    uint64_t asked_bytes;    /* device memory that the operation last charged */
    uint32_t tries;          /* tries to get memory of the device */
    uint32_t ends;           /* weir_programs_ends() before the last try */
    uint64_t lacks_since_ns; /* since when the operation lacks memory; 0: it has not lacked any */
    struct weir_arena arena; /* weir_session_alloc() */
};

/* The devices that a session has used. */
struct weir_session_devices {
    uint32_t used; /* bit mask of the devices whose context was current */
    /* Called once for each but the first: its memory is to be within reach there, too. */
    void (*first_use)(struct weir_session *session, uint32_t device);
    /* A stream on each device to clear memory with, made when first needed. Guests' work never
     * goes there. */
    CUstream work_streams[WEIR_DEVICES_MAX];
    struct weir_placed_graph *placed; /* executable graphs for parts of them (device/place.c) */
    /* Memory that moves to and from them (memory/managed.h); NULL: none. Its thread writes. */
    struct weir_managed *_Atomic managed;
};

/*
 * What every handler needs, and the parts. A part's inside is known to its own files only: it is in
 * a header of the same name (about.h, channel.h, handles.h, holdings.h), or in one .c file.
 */
struct weir_session {
    uint64_t id;
    struct weir_worker *worker;
    struct weir_tenant *tenant; /* a reference */
    const struct weir_platform *platform;
    const struct weir_driver *driver; /* the platform's driver */
    struct weir_session *next;        /* next in the worker's list, under the worker's lock */
    struct weir_operation op;
    uint32_t device;                     /* the device whose context is current in this thread */
    struct weir_session_devices devices; /* the devices whose context was current */
    uint32_t n_captures;                 /* streams under capture (device/device_idle.h) */
    atomic_bool ending; /* set by anybody; the session's thread sees it within a second */

    struct weir_session_about *about;     /* what others see of it */
    struct weir_session_channel *channel; /* to the guest */
    struct weir_handles *handles;         /* of its objects */
    struct weir_holdings *holdings;       /* memory that it may name */
    struct weir_host_stream *unmarked;    /* that have work with no mark behind it (admission.c) */
    struct weir_session_idle *idle;       /* what it has to do with idle devices */
    struct weir_session_faults *faults;   /* which streams have kernels */
    struct weir_host_calls *host_calls;   /* functions of the guest in the GPU's queue */
    struct weir_awaited *awaited;         /* values that its streams wait for */
    struct weir_upload *uploads;          /* images that are on their way */
    struct weir_conditions *conditions;   /* of graphs; NULL: it made none */
    struct weir_session_prints *prints;   /* NULL: it has no kernel that prints */
    struct weir_forms_exposures *exposures; /* variables of modules with twins; NULL: none */
};

#define WEIR_TRY(call)                                                                             \
    do {                                                                                           \
        CUresult try_result = (call);                                                              \
        if (try_result != CUDA_SUCCESS) {                                                          \
            return try_result;                                                                     \
        }                                                                                          \
    } while (0)

/**
 * Take the worker's lock, under which its list of sessions does not change.
 * @return the first; each has the next as ->next. NULL: there is none.
 * @thread any
 */
struct weir_session *weir_sessions_lock(struct weir_worker *worker);
void weir_sessions_unlock(struct weir_worker *worker);

/** Make the session's thread, if it waits in the gate, check whether its session ends.
 * @thread any, while the session lives */
void weir_session_gates_wake(struct weir_session *session);

/** Is this an error that ends a context, so that the worker notes it, tells its sessions, and
 * exits?
 * @thread any */
bool weir_error_is_sticky(CUresult error);
/** The error that was noted; CUDA_SUCCESS: the contexts live. @thread any */
CUresult weir_worker_sticky_error(const struct weir_worker *worker);

/** Ask a session to end; it does so within a second. @thread any */
void weir_session_end(struct weir_session *session);

/** Answer a call with an error. @param op  whatever the call's record says @thread owner */
void weir_session_reply_error(struct weir_session *session, uint16_t op, uint64_t seq,
                              CUresult result);

/**
 * Answer a call.
 * @param out  of the operation; not looked at where result is no success. With it go reply_bulk's
 *             bytes.
 * @thread owner
 */
void weir_session_reply(struct weir_session *session, uint16_t op, uint64_t seq, CUresult result,
                        const void *out);

/** Note an asynchronous error (a posted record's). @thread owner */
void weir_session_defer(struct weir_session *session, CUresult error);

/** Send a record with the session's deferred errors in its header. @thread any */
enum weir_status weir_session_send(struct weir_session *session, struct weir_record *record,
                                   const void *bulk, size_t bulk_bytes) WEIR_MUST_CHECK;

/** Tell the guest whether a kernel may have failed an assert (device/fault.h). @thread owner */
void weir_session_show_unchecked(struct weir_session *session, bool unchecked);

/** Tell the guest that the context died. @thread any, while the session lives */
void weir_session_show_sticky(struct weir_session *session, CUresult error);

/** The first of the session's contexts, the newest; NULL: it has none. @thread owner */
struct weir_host_ctx *weir_session_contexts(const struct weir_session *session);
/** One more of its graphs and captures has ended; its handle may come again. @thread owner */
void weir_session_graph_gone(struct weir_session *session);

/** @return when the session began, by weir_clock_now_ns(). @thread any */
uint64_t weir_session_started_ns(const struct weir_session *session);
/** What a remote guest says about its calls. @param set  taken. @thread owner */
void weir_session_say_stats(struct weir_session *session, struct weir_stats_set *set);

/** How many operations it has been sent. @thread any */
uint64_t weir_session_calls(const struct weir_session *session);
/** The program's name as the guest reports it. @return borrowed; never changes. @thread any */
const char *weir_session_program(const struct weir_session *session);
/** May it only ask? @thread any */
bool weir_session_is_monitor(const struct weir_session *session);
/** Is its guest on another machine? @thread any */
bool weir_session_is_remote(const struct weir_session *session);
/** Is the session's work useless: it ends, its guest is gone, or its context died?
 * @thread any */
bool weir_session_is_over(const struct weir_session *session);
/** Is its guest gone, as far as the transport can tell? @thread any */
bool weir_session_peer_gone(const struct weir_session *session);
/** The session's end in a virtual machine's region; NULL: it has none. @thread any */
struct weir_region_end *weir_session_region(const struct weir_session *session);

/**
 * Pass a descriptor to the guest, or receive the one that it sent.
 * @param ret_fd  gives it.
 * @return WEIR_OK, WEIR_ERR_UNSUPPORTED (no transport for descriptors), the transport's
 * @thread owner
 */
enum weir_status weir_session_send_fd(struct weir_session *session, int fd) WEIR_MUST_CHECK;
enum weir_status weir_session_receive_fd(struct weir_session *session, uint64_t timeout_ns,
                                         int *ret_fd) WEIR_MUST_CHECK;
/** Can the transport pass descriptors? @thread owner */
bool weir_session_passes_fds(const struct weir_session *session);

#endif

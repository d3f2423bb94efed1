/*
 * A session: the worker's state of one guest process, with its channel and all its resources.
 *
 * One thread runs each session: it receives records, calls the handlers (weir_host_<op>()), and
 * replies. So its parts have no lock: *owner thread only*, unless a field says otherwise. What
 * sessions share lies in the tenant (struct weir_tenant) and the worker (struct weir_worker), which
 * are internally locked.
 *
 * Source: docs/design/host.md
 */
#pragma once

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
struct weir_profile;
struct weir_record;
struct weir_session;
struct weir_session_book;
struct weir_region_end;
struct weir_session_about;
struct weir_session_channel;
struct weir_session_faults;
struct weir_session_idle;
struct weir_session_prints;
struct weir_stats_set;
struct weir_suspension;
struct weir_tenant;
struct weir_upload;
struct weir_worker;

#define WEIR_DEVICES_MAX WEIR_CONTROL_MAX_DEVICES /* most devices of a worker */

/* What the current operation lacked when it was last tried (state/ending.h). */
enum weir_lack {
    WEIR_LACK_NONE,
    WEIR_LACK_SOON,    /* the tenant's quota is full, but ended programs still hold some of it */
    WEIR_LACK_REFUSED, /* the tenant's quota is full; the refusal has been reported */
    WEIR_LACK_DEVICE,  /* the device has no memory left */
};

/* Memory that an operation names, and that was found to be the session's. */
struct weir_named_range {
    uint64_t address, bytes;
    bool writes;
};

/* The current operation. */
struct weir_operation {
    uint16_t code; /* enum weir_op */
    bool posted;
    bool answer_later; /* the reply comes when a word is written (weir_session_word_wait()) */
    uint64_t seq;
    int32_t caller;   /* from the guest: the function that sends it (proto/wire/caller.h) */
    uint32_t profile; /* from the guest: number of a call that it profiles; 0: it does not */
    const void *bulk; /* data that came with the record */
    size_t bulk_bytes;
    const void *reply_bulk; /* data that goes with the reply; borrowed from the segment */
    size_t reply_bulk_bytes;
    struct weir_object *first; /* the first object that the operation has named */
    struct weir_object *last;
    uint32_t device;   /* the device in the record's header; it may have no context */
    int fd;            /* descriptor that came with the record, once received; else -1 */
    bool notes_ranges; /* the book keeps what memory the operation names (session/book.h) */
    uint32_t n_ranges;
    struct weir_named_range *ranges; /* of the arena */
    enum weir_lack lack;
    uint64_t asked_bytes;    /* device memory that the operation last charged */
    uint32_t tries;          /* tries to get memory of the device */
    bool hoped;              /* others were giving some back when it was last asked */
    uint32_t ends;           /* value of weir_programs_ends() before the last try */
    uint64_t lacks_since_ns; /* since when it lacks memory; 0: it has lacked none */
    struct weir_arena arena; /* memory for weir_session_alloc() */
};

/* The devices that a session has used. */
struct weir_session_devices {
    uint32_t used;  /* bit mask of the devices whose context was current */
    bool has_peers; /* kernels may wait for work on another device: it has contexts on two, or
                       shares memory with other programs (WEIR_SCHED_PEERS) */
    /* Called at the first use of each device but the first: makes the session's memory accessible
     * there. */
    void (*first_use)(struct weir_session *session, uint32_t device);
    /* A stream on each device for clearing memory, made when first needed. Guests' work never goes
     * there. */
    CUstream work_streams[WEIR_DEVICES_MAX];
    struct weir_placed_graph *placed; /* executable graphs for parts of them (device/place.c) */
    /* Memory that moves to and from them (memory/managed.h); NULL: none. Its thread writes. */
    struct weir_managed *_Atomic managed;
    struct weir_suspension *suspension; /* whether its memory is away (state/suspension.h) */
    struct weir_session_book *book; /* for another worker (session/book.h); NULL: it stays here */
    struct weir_profile *profile; /* records of profiled work (profile/profile.h); NULL: none yet */
};

/*
 * The members that every handler needs, and pointers to the session's parts. Only a part's own
 * files know its inside: it is in a header of the same name (about.h, channel.h, handles.h,
 * holdings.h), or in one .c file.
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
    atomic_bool ending; /* any thread sets it; the session's thread sees it within a second */

    struct weir_session_about *about;       /* what other threads may read of it */
    struct weir_session_channel *channel;   /* the channel to the guest */
    struct weir_handles *handles;           /* its objects */
    struct weir_holdings *holdings;         /* memory that it may name */
    struct weir_host_stream *unmarked;      /* streams with work behind their last mark */
    struct weir_session_idle *idle;         /* its state in the barrier for idle devices */
    struct weir_session_faults *faults;     /* records which streams have kernels */
    struct weir_host_calls *host_calls;     /* functions of the guest in streams and graphs */
    struct weir_awaited *awaited;           /* values that its streams wait for */
    struct weir_upload *uploads;            /* images that the guest is sending */
    struct weir_conditions *conditions;     /* conditions of graphs; NULL: it made none */
    struct weir_session_prints *prints;     /* state for printf; NULL: no kernel of it prints */
    struct weir_forms_exposures *exposures; /* variables of modules with twins; NULL: none */
};

/**
 * Take the worker's lock, under which its list of sessions does not change.
 * @return the first session; ->next is the following one. NULL: there is none.
 * @thread any
 */
struct weir_session *weir_sessions_lock(struct weir_worker *worker);
void weir_sessions_unlock(struct weir_worker *worker);

/**
 * If the session's thread waits in the gate, make it check whether its session ends.
 * @thread any, while the session lives
 */
void weir_session_gates_wake(struct weir_session *session);

/** Is this an error that ends a context, so that the worker notes it, tells its sessions, and
 * exits?
 * @thread any */
bool weir_error_is_sticky(CUresult error);
/** The error that ended the contexts; CUDA_SUCCESS: they live. @thread any */
CUresult weir_worker_sticky_error(const struct weir_worker *worker);

/** Wake a session's thread that waits for a record, as if its time had passed. @thread any, while
 * the session lives */
void weir_session_call(struct weir_session *session);

/** The pid of the session's program, as the host sees it. @thread any */
int64_t weir_session_pid(const struct weir_session *session);

/** Ask a session to end; it does so within a second. @thread any */
void weir_session_end(struct weir_session *session);

/** Answer a call with an error. @param op  whatever the call's record says @thread owner */
void weir_session_reply_error(struct weir_session *session, uint16_t op, uint64_t seq,
                              CUresult result);

/**
 * Answer a call.
 * @param out  the operation's outputs; ignored unless result is success. The bytes of reply_bulk go
 *             with them.
 * @thread owner
 */
void weir_session_reply(struct weir_session *session, uint16_t op, uint64_t seq, CUresult result,
                        const void *out);

/** Note an asynchronous error, such as that of a posted record. @thread owner */
void weir_session_defer(struct weir_session *session, CUresult error);

/** Send a record with the session's deferred errors in its header. @thread any */
enum weir_status weir_session_send(struct weir_session *session, struct weir_record *record,
                                   const void *bulk, size_t bulk_bytes) WEIR_MUST_CHECK;

/** Show the guest whether a kernel may have failed an assert (device/fault.h). @thread owner */
void weir_session_show_unchecked(struct weir_session *session, bool unchecked);

/** Tell the guest that the context died. @thread any, while the session lives */
void weir_session_show_sticky(struct weir_session *session, CUresult error);

/** The first of the session's contexts, the newest; NULL: it has none. @thread owner */
struct weir_host_ctx *weir_session_contexts(const struct weir_session *session);
/** Count an ended graph or capture of the session, since its handle may be reused. @thread owner */
void weir_session_graph_gone(struct weir_session *session);
/** How many have been counted. @thread owner */
uint64_t weir_session_graphs_gone(const struct weir_session *session);
/** How many objects live on for graphs alone. @thread owner */
uint32_t weir_session_n_kept(const struct weir_session *session);

/** @return when the session began, by weir_clock_now_ns(). @thread any */
uint64_t weir_session_started_ns(const struct weir_session *session);
/** Store a remote guest's statistics of its calls. @param set taken. @thread owner */
void weir_session_say_stats(struct weir_session *session, struct weir_stats_set *set);

/** How many operations it has been sent. @thread any */
uint64_t weir_session_calls(const struct weir_session *session);
/** The program's name as the guest reports it. @return borrowed; never changes. @thread any */
const char *weir_session_program(const struct weir_session *session);
/** Is the session a monitor, which only asks? @thread any */
bool weir_session_is_monitor(const struct weir_session *session);
/** Is the session's guest on another machine? @thread any */
bool weir_session_is_remote(const struct weir_session *session);
/**
 * Is the session's work useless, because it ends, its guest has ended, or its context died?
 * @thread any
 */
bool weir_session_is_over(const struct weir_session *session);
/** Has the session's guest ended, as far as the transport knows? @thread any */
bool weir_session_peer_gone(const struct weir_session *session);
/** The session's end in a virtual machine's region; NULL: it has none. @thread any */
struct weir_region_end *weir_session_region(const struct weir_session *session);

/**
 * Pass a descriptor to the guest, or receive the one that it sent.
 * @param ret_fd  gives the descriptor.
 * @return WEIR_OK, WEIR_ERR_UNSUPPORTED (the transport passes no descriptors), or an error of the
 *                  transport
 * @thread owner
 */
enum weir_status weir_session_send_fd(struct weir_session *session, int fd) WEIR_MUST_CHECK;
enum weir_status weir_session_receive_fd(struct weir_session *session, uint64_t timeout_ns,
                                         int *ret_fd) WEIR_MUST_CHECK;
/** Can the transport pass descriptors? @thread owner */
bool weir_session_passes_fds(const struct weir_session *session);

/*
 * A session as the worker sees it: one guest process, its channel, and everything it holds.
 *
 * One thread runs each session: it receives, calls the handlers (weir_host_<op>()), replies. So
 * tables, objects and ranges have no lock: *owner thread only*, unless a field says otherwise. What
 * sessions share lies in the tenant (struct weir_tenant) and the worker (struct weir_worker), which
 * are internally locked.
 *
 * Source: docs/design/host.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_SESSION_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_SESSION_H

#include "base/arena.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include "proto/wire/control.h"
#include <stdatomic.h>

#define WEIR_FORMS_LAUNCHED_COUNT 13u /* rows of twins/counts.def */

struct weir_awaited;
struct weir_session_channel;
struct weir_conditions;
struct weir_forms_exposures;
struct weir_gate_queue;
struct weir_host_ctx;
struct weir_host_stream;
struct weir_handles;
struct weir_holdings;
struct weir_host_calls;
struct weir_record;
struct weir_region_end;
struct weir_session_idle;
struct weir_session_prints;
struct weir_tenant;
struct weir_upload;
struct weir_worker;

#define WEIR_DEVICES_MAX WEIR_CONTROL_MAX_DEVICES /* of a worker */

/* The operation in hand. */
struct weir_operation {
    uint16_t code; /* enum weir_op */
    bool posted;
    bool answer_later; /* the reply comes once a word is there (weir_session_word_wait()) */
    uint64_t seq;
    const void *bulk; /* that came with the record */
    size_t bulk_bytes;
    const void *reply_bulk; /* that goes with the reply; borrowed from the segment */
    size_t reply_bulk_bytes;
    struct weir_object *first; /* the first object that it has named */
    struct weir_object *last;
    struct weir_arena arena; /* weir_session_alloc() */
};

struct weir_session {
    uint64_t id;
    struct weir_worker *worker;
    struct weir_tenant *tenant; /* a reference */
    const struct weir_driver *driver;
    struct weir_session *next; /* in the worker's list, under its lock */
    int64_t pid;
    uint32_t uid;
    uint32_t guest_pid; /* as the guest says, for other guests of the tenant to read */
    bool monitor;       /* it may only ask: nothing is registered for it */
    char program[128];
    uint64_t started_ns;

    struct weir_session_channel *channel; /* to the guest */

    struct weir_gate_queue *_Atomic gates[WEIR_DEVICES_MAX]; /* made at the first work */
    struct weir_host_stream *unmarked_streams; /* with work that no mark stands behind */

    struct weir_handles *handles;
    struct weir_holdings *holdings; /* memory that it may name */
    struct weir_upload *uploads;
    uint32_t n_captures; /* streams under capture */

    struct weir_awaited *awaited;
    struct weir_conditions *conditions; /* NULL: it made none */
    struct weir_session_prints *prints; /* NULL: it has no kernel that prints */
    struct weir_session_idle *idle;     /* session/device_idle.c */

    /* Variables of modules with twins whose addresses the guest has (twins/module_variables.c);
     * NULL: none. */
    struct weir_forms_exposures *exposures;
    uint32_t device; /* whose context is current in this thread */

    struct weir_operation op;

    struct weir_host_calls *host_calls; /* session/host_calls.c */

    atomic_bool ending; /* set by anybody; the session's thread sees it within a second */
    atomic_uint_fast64_t calls_total;
    atomic_uint_fast64_t held_bytes;
    atomic_uint_fast64_t device_bytes[WEIR_DEVICES_MAX]; /* held_bytes, by device */
    struct weir_limit_wish wish;                         /* constant */
    atomic_uint_fast64_t objects;
    atomic_uint n_contexts;

    atomic_uint_fast64_t launched[WEIR_FORMS_LAUNCHED_COUNT]; /* by enum weir_forms_launched */
    struct weir_stats_set *stats; /* what a remote guest last said, under the worker's lock */
};

/** Ask a session to end; it does so within a second. @thread any */
void weir_session_end(struct weir_session *session);

/** Make a device's context current, if it is not. @param device  below the worker's n_devices */
CUresult weir_session_switch(struct weir_session *session, uint32_t device);
static inline CUresult weir_session_enter(struct weir_session *session, uint32_t device)
{
    return __builtin_expect(session->device != device, 0) ? weir_session_switch(session, device)
                                                          : CUDA_SUCCESS;
}

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

/** Tell the guest that the context died. @thread any, while the session lives */
void weir_session_show_sticky(struct weir_session *session, CUresult error);

/** Is its guest on another machine? @thread any */
bool weir_session_is_remote(const struct weir_session *session);
/** Is its guest gone, as far as the transport can tell? @thread any */
bool weir_session_peer_gone(const struct weir_session *session);
/** The name of its transport. @thread any */
const char *weir_session_transport_name(const struct weir_session *session);
/** Its part of a virtual machine's region; NULL: it is in none. @thread any */
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

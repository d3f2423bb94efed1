/* Private to guests.c and guests_moved.c: guests on their way to a session. */
#pragma once

#include "base/account.h"
#include "host_backend/config/link.h"
#include "host_backend/worker/guests.h"
#include "host_backend/worker/stages.h"
#include "host_backend/worker/state/unknown_ops.h"
#include "proto/cuda_abi.h"
#include "proto/wire/control.h"
#include <stdatomic.h>

struct weir_moved;
struct weir_region_end;
struct weir_session;
struct weir_tenant;
struct weir_transport;
struct weir_zmq_pending;
struct weir_zmq_server;

struct weir_guests {
    atomic_uint_fast64_t next_session;
    bool closed;      /* this and the next: under the worker's lock; the worker is ending */
    uint32_t n_going; /* how many of the worker's n_sessions hold nothing any more */
    int gone_fd;      /* what weir_guests_gone_fd() returns; never changes */
    struct weir_zmq_server *zmq;
    char zmq_path[WEIR_CONFIG_PATH_BYTES + 96]; /* path of its socket, beside the tenants' */
};

struct weir_arrival {
    struct weir_worker *worker;
    uint64_t number;            /* the number that the supervisor gave it; 0: none */
    struct weir_tenant *tenant; /* counted in the tenant's n_arrivals */
    bool counted;               /* the tenant's account counts it */
    enum weir_account_item item;
    bool going;  /* counted in the worker's n_going */
    bool let_in; /* weir_connections_admit() has admitted it */
    int fd;      /* -1: it came without a socket, see the members below */
    int box_fd;  /* of `moved`, until it is opened; or -1 */
    bool in_box; /* it came in a box, and the supervisor does not know yet what became of it */
    int64_t pid;
    uint32_t pid_here; /* the process on this machine, from the kernel; 0: unknown */
    uint32_t guest_pid;
    bool monitor;
    struct weir_limit_wish wish;
    struct weir_unknown_ops unknown;
    char program[WEIR_HOST_TEXT_BYTES];
    struct weir_zmq_pending *pending;
    struct weir_region_mail *mail;
    struct weir_region_end *region_end;
    struct weir_moved *moved;      /* a session that has left another worker */
    struct weir_transport *stream; /* a virtual machine's transport before the handshake */
    struct weir_stages stages;
};

/* guests_moved.c */

/** Note what a guest says of itself: its program's name and process number are for people. @thread
 * owner */
void weir_arrival_note_hello(struct weir_arrival *a, const struct weir_hello *hello);
/** Tell that a session has begun. @param transport  its name @thread owner */
void weir_arrival_begin(struct weir_arrival *a, struct weir_session *session,
                        const char *transport);

/** Open the box of a session that has left another worker, and note whose it is. @return as
 * weir_moved_open() @thread owner */
enum weir_status weir_arrival_open(struct weir_arrival *a);
/** Reserve the tenant's window; for a session that has left another worker, without anything of
 * this one's own. @return as weir_tenant_reserve() @thread owner */
CUresult weir_arrival_reserve(struct weir_arrival *a);
/** Make everything of such a session again. If that fails, and its
 * other worker cannot go on with it, the program gets the error that it would have got there.
 * @return was it made? @thread owner */
bool weir_arrival_rebuild(struct weir_arrival *a, struct weir_session *session);
/** Say that such a session has arrived: from now on its records are taken here. @thread owner */
void weir_arrival_is_here(struct weir_arrival *a);
/** Nothing more is done for the arrival: say so if it was a session that has not arrived. @thread
 * owner */
void weir_arrival_is_over(struct weir_arrival *a);
/** Give a session that is in its box to another worker. @return false: no other worker has it, so
 * that it goes on here @thread owner */
bool weir_arrival_leaves(struct weir_arrival *a, struct weir_session *session);

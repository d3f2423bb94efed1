/* Functions of the guest that are in a stream or graph: trampolines in the worker. */
#pragma once

#include "base/status.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_HOST_CALLS_MAX 65536 /* calls of a session that wait to run or are owned by graphs */

struct weir_host_call;
struct weir_host_calls;
struct weir_record;
struct weir_session;

/** Make a session's list of calls. NULL: out of memory. */
struct weir_host_calls *weir_host_calls_create(void);
/** Free the list, after weir_host_calls_finish() or for a session that never began. Accepts
 * NULL. */
void weir_host_calls_destroy(struct weir_host_calls *calls);

/** Have ran called, by a thread of the driver, when a function has run and its stream is not let go
 * on yet. Before there are functions. */
void weir_host_calls_listen(struct weir_host_calls *calls, void (*ran)(struct weir_session *));

/** Set session->ending, and let no trampoline wait any longer. @thread any */
void weir_host_calls_end(struct weir_session *session);

/**
 * Make a call for a stream; give it to the driver as user data of weir_host_call_run().
 *
 * @param once  the call is freed when it has run; else it belongs to a graph's node:
 *              weir_host_call_keep().
 * @return NULL: out of memory or over the limit.
 * @thread session
 */
struct weir_host_call *weir_host_call_create(struct weir_session *session, uint64_t token,
                                             bool once);

/** The number by which the guest knows the function. @thread session */
uint64_t weir_host_call_token(const struct weir_host_call *call);

/** Free a call that the driver has refused. */
void weir_host_call_cancel(struct weir_host_call *call);

/** Tell the guest that a function will not run, since the operation that posted it has failed.
 * @thread session */
void weir_host_call_refuse(struct weir_session *session, uint64_t token);
/**
 * Let graphs own a call: the graph that has got it, its clones and executables, and their launches.
 * They share the graph's user objects. Without this the session owns it.
 * @thread session
 */
void weir_host_call_keep(struct weir_host_call *call, CUgraph graph);
/** A graph no longer names the call. The caller must not use it afterwards. @thread session */
void weir_host_call_let_go(struct weir_host_call *call, CUgraph graph);

/** The trampoline: a thread of the driver. Waits for the guest, or for the session's end. */
void CUDA_CB weir_host_call_run(void *user_data);

/** Does a function of the session run? @thread any */
bool weir_host_calls_any(const struct weir_session *session);

/** The guest has run the function of a ticket; CUDA_ERROR_INVALID_VALUE: the ticket is unknown. */
CUresult weir_host_call_done(struct weir_session *session, uint64_t ticket);

/**
 * A weir_transport.glance function: handles host_func_done, host_func_read and host_func_write when
 * they arrive at a remote session.
 * @param user  the session. @thread the transport's I/O thread
 */
void weir_host_call_glance(void *user, const struct weir_record *record);

/** Free the remaining calls; no trampoline runs. The session is ending, its streams are idle and
 * its graphs destroyed. */
void weir_host_calls_finish(struct weir_session *session);

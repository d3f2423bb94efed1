/* Functions of the guest that the GPU's queue reaches: trampolines in the worker. */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_HOST_CALLS_H
#define WEIR_HOST_BACKEND_WORKER_STATE_HOST_CALLS_H

#include "base/status.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_HOST_CALLS_MAX 65536 /* of one session, waiting to run or owned by graphs */

struct weir_host_call;
struct weir_host_calls;
struct weir_record;
struct weir_session;

/** A session's part. NULL: out of memory. */
struct weir_host_calls *weir_host_calls_create(void);
/** After weir_host_calls_finish(), or of a session that never began. Accepts NULL. */
void weir_host_calls_destroy(struct weir_host_calls *calls);

/** Have ran called, by a thread of the driver, when a function has run and its stream is not let go
 * on yet. Before there are functions. */
void weir_host_calls_listen(struct weir_host_calls *calls, void (*ran)(struct weir_session *));

/** Set session->ending, and let no trampoline wait any longer. @thread any */
void weir_host_calls_end(struct weir_session *session);

/**
 * A call for the driver's queue; give it to the driver as user data of weir_host_call_run().
 *
 * @param once  freed when it has run; else it is of a graph's node: weir_host_call_keep().
 * @return NULL: out of memory or over the limit.
 * @thread session
 */
struct weir_host_call *weir_host_call_create(struct weir_session *session, uint64_t token,
                                             bool once);

/** The guest's number for the function. @thread session */
uint64_t weir_host_call_token(const struct weir_host_call *call);

/** The driver did not take it. */
void weir_host_call_cancel(struct weir_host_call *call);

/** Tell the guest that a function will not run, since what posted it has failed. @thread session */
void weir_host_call_refuse(struct weir_session *session, uint64_t token);
/**
 * Have a call go with the graph that has got it, with all clones and executables that are made of
 * the graph, and with their launches: they have the graph's user objects, too. Without this it goes
 * with the session.
 * @thread session
 */
void weir_host_call_keep(struct weir_host_call *call, CUgraph graph);
/** The graph names it no more. The caller must not look at it afterwards. @thread session */
void weir_host_call_let_go(struct weir_host_call *call, CUgraph graph);

/** The trampoline: a thread of the driver. Waits for the guest, or for the session's end. */
void CUDA_CB weir_host_call_run(void *user_data);

/** Is a function of the session under way? @thread any */
bool weir_host_calls_any(const struct weir_session *session);

/** The guest has run the function of a ticket; CUDA_ERROR_INVALID_VALUE for an unknown one. */
CUresult weir_host_call_done(struct weir_session *session, uint64_t ticket);

/**
 * A weir_transport.glance: notices host_func_done, host_func_read and host_func_write as they
 * arrive at a remote session.
 * @param user  the session. @thread the transport's I/O thread
 */
void weir_host_call_glance(void *user, const struct weir_record *record);

/** No trampoline is left; free what is left. The session is ending, its streams are idle and its
 * graphs destroyed. */
void weir_host_calls_finish(struct weir_session *session);

#endif

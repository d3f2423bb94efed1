/*
 * What the layer above wants to be asked about objects and memory of sessions: kernels that can be
 * stopped (twins/). None where there is none of it.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_HOOKS_H
#define WEIR_HOST_BACKEND_WORKER_STATE_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

struct weir_forms;
struct weir_host_module;
struct weir_host_stream;
struct weir_session;
struct weir_worker;

/* A listener's state for a stream (stream_given). Zeroed: the listener has not seen the stream. */
struct weir_stream_told {
    const void *stream; /* the driver's stream that the listener was called with */
    uint64_t since;     /* when that was, in the listener's own count */
};

/* All on the session's thread, but for the first two: any with the context, holding no lock. */
struct weir_session_hooks {
    /** Around a driver call that may wait for the whole device: nothing is stopped meanwhile. Waits
     * limit_ns at most for what was stopped to go on.
     * @param ret_idle  for device_idle_end(), whatever is returned
     * @return false: something that was stopped does not go on */
    bool (*device_idle_begin)(struct weir_forms *forms, uint64_t limit_ns, uint32_t *ret_idle);
    void (*device_idle_end)(struct weir_forms *forms, uint32_t idle);
    /** A module's unloading begins. @return true: listener unloads, behind work that needs it */
    bool (*module_unloading)(struct weir_session *session, struct weir_host_module *module);
    /** The session's streams are about to be waited for, for the last time. */
    void (*streams_end)(struct weir_session *session);
    /** Work is about to be given to a stream that is not under capture. @param forks  it has
     * streams of its own inside */
    void (*stream_given)(struct weir_session *session, struct weir_host_stream *stream, bool forks);
    /** Are kernels under way on the stream's device that can be stopped? */
    bool (*has_runs)(struct weir_session *session, const struct weir_host_stream *stream);
    /** The driver's streams of one are about to be destroyed. */
    void (*stream_gone)(struct weir_session *session, struct weir_host_stream *stream);
    /** An operation is about to write memory. */
    void (*will_write)(struct weir_session *session, uint64_t address, uint64_t bytes);
};

/** The hooks of a worker; NULL: it has none. @thread any, after the worker's start */
const struct weir_session_hooks *weir_worker_hooks(const struct weir_worker *worker);
/** What they are asked about (twins/forms.h); NULL: all kernels are originals. @thread as above */
struct weir_forms *weir_worker_forms(const struct weir_worker *worker);

#endif

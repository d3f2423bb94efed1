/*
 * Callbacks for the layer of kernels that can be stopped (twins/): sessions call them about their
 * objects and memory. Without that layer there are none.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct weir_forms;
struct weir_host_module;
struct weir_host_stream;
struct weir_session;
struct weir_worker;

/* The layer's state for a stream (stream_given). Zeroed: the layer has not seen the stream. */
struct weir_stream_told {
    const void *stream; /* the driver's stream in the last call */
    uint64_t since;     /* number of the last call, counted by the layer */
};

/* All are called on the session's thread, except the first two: on any thread with the context,
 * holding no lock. */
struct weir_session_hooks {
    /** Called around a driver call that may wait for the whole device: no kernel is stopped
     * meanwhile. Waits limit_ns at most for stopped kernels to resume.
     * @param ret_idle  for device_idle_end(), also after false
     * @return false: a stopped kernel does not resume */
    bool (*device_idle_begin)(struct weir_forms *forms, uint64_t limit_ns, uint32_t *ret_idle);
    void (*device_idle_end)(struct weir_forms *forms, uint32_t idle);
    /** The unloading of a module begins. @return true: the layer unloads it, behind the work that
     * needs it */
    bool (*module_unloading)(struct weir_session *session, struct weir_host_module *module);
    /** The session is about to wait for its streams a last time. */
    void (*streams_end)(struct weir_session *session);
    /** Work is about to be given to a stream that is not under capture. @param forks the work has
     * several streams inside */
    void (*stream_given)(struct weir_session *session, struct weir_host_stream *stream, bool forks);
    /** Are kernels under way on the stream's device that can be stopped? */
    bool (*has_runs)(struct weir_session *session, const struct weir_host_stream *stream);
    /** The driver's streams of a guest's stream are about to be destroyed. */
    void (*stream_gone)(struct weir_session *session, struct weir_host_stream *stream);
    /** An operation is about to write memory. */
    void (*will_write)(struct weir_session *session, uint64_t address, uint64_t bytes);
};

/** The hooks of a worker; NULL: it has none. @thread any, after the worker's start */
const struct weir_session_hooks *weir_worker_hooks(const struct weir_worker *worker);
/** The state that the callbacks get (twins/forms.h); NULL: all kernels are originals. @thread as
 * above */
struct weir_forms *weir_worker_forms(const struct weir_worker *worker);

/* Sessions from begin to end: made, run by a thread of their own, taken apart. */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSIONS_H
#define WEIR_HOST_BACKEND_WORKER_SESSIONS_H

#include "host_backend/worker/session/session.h"

struct weir_session_params {
    struct weir_worker *worker;
    struct weir_tenant *tenant;       /* borrowed: the session takes a reference */
    struct weir_transport *transport; /* taken, also on failure */
    uint64_t id;
    bool remote;
    struct weir_region_end *region_end; /* NULL: not in a virtual machine */
    bool monitor;
    int64_t pid;
    uint32_t guest_pid;
    const char *program;
    const struct weir_limit_wish *wish; /* borrowed for the call; NULL: none */
};

/**
 * Make a session around an open transport whose segment exists; registers its words with the
 * driver.
 *
 * @param ret_session  gives it; run it with weir_session_run().
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_DRIVER, WEIR_ERR_QUOTA
 * @thread the thread that will run it, with the context current
 */
enum weir_status weir_session_create(const struct weir_session_params *params,
                                     struct weir_session **ret_session) WEIR_MUST_CHECK;

/** Serve records until the guest goes, breaks the protocol, or the session is ended.
 * @thread owner */
void weir_session_run(struct weir_session *session);

/**
 * Free everything that the session holds: cancels host functions, waits for its own streams,
 * destroys its objects, clears and returns its memory. Accepts NULL.
 * @thread owner
 */
void weir_session_destroy(struct weir_session *session);

#endif

/* Sessions from start to end: they are made, run by a thread of their own, and destroyed. */
#pragma once

#include "host_backend/worker/state/session.h"

struct weir_session_params {
    struct weir_worker *worker;
    struct weir_tenant *tenant;       /* borrowed: the session takes a reference */
    struct weir_transport *transport; /* ownership passes to the session, also on failure */
    uint64_t id;
    bool remote;
    struct weir_region_end *region_end; /* NULL: the guest is in no virtual machine */
    bool monitor;
    int64_t pid;
    uint32_t pid_here; /* the guest's process in this pid namespace; 0: unknown */
    uint32_t guest_pid;
    const char *program;
    const struct weir_limit_wish *wish;     /* borrowed for the call; NULL: no wish */
    const struct weir_unknown_ops *unknown; /* likewise; NULL: none */
};

/**
 * Make a session around an open transport whose segment exists; registers its words with the
 * driver.
 *
 * @param ret_session  gives the session; run it with weir_session_run().
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_DRIVER, WEIR_ERR_QUOTA
 * @thread the thread that will run it, with the context current
 */
enum weir_status weir_session_create(const struct weir_session_params *params,
                                     struct weir_session **ret_session) WEIR_MUST_CHECK;

/**
 * Handle a record of a session's book again, without a reply (rebuild/rebuild.h).
 * @param names  the handles that the host chose when it was handled first.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (no such record), the handler's
 * @thread owner
 */
CUresult weir_session_replay(struct weir_session *session, const struct weir_record *record,
                             const uint64_t *names, uint32_t n_names);

/**
 * Serve records until the guest ends, breaks the protocol, or the session is ended: then
 * weir_session_finish() has been called. Or until the session leaves its dead context: then
 * session->devices.book->leaving.box is set and the session is not ending.
 * @thread owner
 */
void weir_session_run(struct weir_session *session);

/**
 * Take no more records, and wait until the session's work on the GPU has ended. The wait has no
 * limit, unless its tenant has orphan_s or the context dies.
 * @thread owner
 */
void weir_session_finish(struct weir_session *session);

/**
 * Release all resources of the session: destroy its objects, clear and return its memory. Its work
 * has ended (weir_session_finish()), or it had none.
 * @thread owner
 */
void weir_session_clear(struct weir_session *session);

/**
 * Free a session that holds nothing (weir_session_clear()). May wait until the GPU is idle, since
 * its words are registered with the driver. Accepts NULL.
 * @thread owner
 */
void weir_session_destroy(struct weir_session *session);

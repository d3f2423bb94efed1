/*
 * Sessions that another worker makes again (docs/design/rebuild.md).
 *
 * For the session's thread, unless a function says otherwise.
 */
#pragma once

#include "host_backend/worker/session/book.h"
#include "host_backend/worker/state/carried.h"

struct weir_tenant;
struct weir_transport;

/* ---- leaving */

/** The session has had nothing to do for a while: find out whether another worker could make it
 * again. A second call does nothing until it has worked. */
void weir_rebuild_rests(struct weir_session *session);

/** Is that to be done soon, though it was too early? */
static inline bool weir_rebuild_is_due(const struct weir_session *session)
{
    return session->devices.book && session->devices.book->is_due;
}

/** A record has come. */
static inline void weir_rebuild_wakes(struct weir_session *session)
{
    if (session->devices.book) {
        session->devices.book->rests = session->devices.book->is_due = false;
        atomic_store(&session->devices.book->may_leave, false);
    }
}

/**
 * The context has died, or is about to: have all sessions leave that rest and can be moved, and
 * wait until they have left the worker's list. Makes no call of the driver.
 * @thread main, without the worker's lock
 */
void weir_rebuild_leave_all(struct weir_worker *worker);

/** If the session is asked to leave and may, put it into a box (session->devices.book->box).
 * @return it may not touch the driver any more */
bool weir_rebuild_leaves(struct weir_session *session);

/** For tests (WEIR_SOFTGPU_MOVE): put the session, which is alone in its worker, into a box if it
 * rests now and can be moved. @return it is to end here */
bool weir_rebuild_leaves_for_test(struct weir_session *session);

/* ---- arriving */

/* A session that has come from another worker. */
struct weir_moved;

/** @param names  the handles that the host chose when the record was handled first. */
typedef CUresult weir_moved_replay_fn(struct weir_session *session,
                                      const struct weir_record *record, const uint64_t *names,
                                      uint32_t n_names);

/** Open a session's box. @param box_fd  taken @return WEIR_OK, WEIR_ERR_VERSION, as
 * weir_box_receive() @thread any */
enum weir_status weir_moved_open(int box_fd, struct weir_moved **ret_moved);
/** Free it, with what nobody has taken. Accepts NULL. @thread owner */
void weir_moved_close(struct weir_moved *moved);
/** @return borrowed @thread owner */
const struct weir_session_carried *weir_moved_about(const struct weir_moved *moved);
/** Release the worker's ready chunk (memory/chunk.h): a session's chunks come to the tenant's
 * window at addresses that it may have. @thread any with the context current */
void weir_rebuild_clear_window(struct weir_tenant *tenant);
/** Take its transport. @return as weir_accept_resume() @thread owner */
enum weir_status weir_moved_transport(struct weir_moved *moved,
                                      struct weir_transport **ret_transport);
/**
 * Make everything of the session again.
 * @param session  new, with that transport.
 * @param replay   handles a record that its book has.
 * @param ret_why  static, if it fails: what could not be made.
 * @return CUDA_SUCCESS; else the session must end
 */
CUresult weir_moved_rebuild(struct weir_moved *moved, struct weir_session *session,
                            weir_moved_replay_fn *replay, const char **ret_why);

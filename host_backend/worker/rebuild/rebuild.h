/*
 * Sessions that another worker makes again (docs/design/rebuild.md).
 *
 * For the session's thread, unless a function says otherwise.
 */
#pragma once

#include "host_backend/config/link.h"
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
        atomic_store(&session->devices.book->leaving.may, false);
    }
}

/**
 * The context has died, or is about to: have all sessions leave that rest and can be moved, and
 * wait until they have left the worker's list. Makes no call of the driver.
 * @thread main, without the worker's lock
 */
void weir_rebuild_leave_all(struct weir_worker *worker);

/** If the session is asked to leave and may, put it into a box
 * (session->devices.book->leaving.box).
 * @return it may not touch the driver any more */
bool weir_rebuild_leaves(struct weir_session *session);

/** Give the session's box to the supervisor. @param waits  the session can go on here
 * @return false: it did not get it */
bool weir_rebuild_pass_on(struct weir_session *session, bool waits);

/** Do what the supervisor says of sessions that are to move. @thread main */
void weir_rebuild_told(struct weir_worker *worker, const struct weir_link_move *move);
/** Tell another supervisor of the sessions that have arrived here: the last one may not have told
 * the workers that wait. @thread main */
void weir_rebuild_say_again(struct weir_worker *worker);
/** Tell the supervisor of a session's move. @param session  its number @thread any */
void weir_rebuild_say(const struct weir_worker *worker, uint64_t session, uint32_t tenant_index,
                      enum weir_move what);

/** Use weir_rebuild_moves(). */
bool weir_rebuild_moves_now(struct weir_session *session);
/** If the session is asked to move and has nothing under way, put it into a box.
 * @return nothing of it may change before weir_rebuild_is_gone() */
static inline bool weir_rebuild_moves(struct weir_session *session)
{
    return session->devices.book &&
           __builtin_expect(atomic_load_explicit(&session->devices.book->leaving.move,
                                                 memory_order_relaxed) != WEIR_MOVE_NO,
                            0) &&
           weir_rebuild_moves_now(session);
}
/** Pass on the box of a session whose context lives, and wait until another worker has it.
 * @return false: none has it, so that it goes on here as if nothing had been */
bool weir_rebuild_is_gone(struct weir_session *session);

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
/** Does its worker wait to hear whether it was made again? @thread owner */
bool weir_moved_waits(const struct weir_moved *moved);
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

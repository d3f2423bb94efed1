/*
 * The workers of programs, and the programs that wait for one (programs.c); docs/design/workers.md.
 *
 * All functions: @thread main
 */
#pragma once

#include "host_backend/config/link.h"
#include "host_backend/supervisor/state/supervisor.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* pending.c */

/** A program has connected whose tenant has a worker for each program: keep the connection until
 * there is a worker for it. The function owns the descriptor. If all places for such connections
 * are used, another connection is closed for this one, or this one is closed. */
void weir_sup_program_arrived(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                              int fd, const struct weir_link_guest *guest);
/** A session has left its worker: keep it until there is another one for it. @param box_fd taken */
void weir_sup_program_moved(struct weir_supervisor *sup, int worker,
                            const struct weir_link_moved *moved, int box_fd);
/** Can the worker not go on with this session? It has left it, or is of an earlier release. */
bool weir_sup_pending_is_left(const struct weir_supervisor *sup,
                              const struct weir_sup_pending *pending, int worker);
/** Does it wait until the worker that it has left has ended, so that nothing is charged twice, and
 * until it is known whose fault that was? */
bool weir_sup_pending_is_held(const struct weir_supervisor *sup,
                              const struct weir_sup_pending *pending);
/** Watch for the hello and the end of a pending connection. @param i  in sup->programs.pending */
void weir_sup_pending_watch(struct weir_supervisor *sup, int i, struct weir_host_loop *loop);
/**
 * Get the slots of all pending connections, in the order in which they get workers: holders
 * (users.h) in turn, and each holder's connections in the order of their arrival. So a holder with
 * many connections only delays itself.
 * @return their number
 */
uint32_t weir_sup_pending_in_turn(const struct weir_supervisor *sup,
                                  uint16_t ret_slots[WEIR_PENDING_MAX]);
/** Take over sessions that have left their workers, when all workers of the last host have answered
 * what they serve. */
void weir_sup_pending_adopt(struct weir_supervisor *sup);
/** Tell the worker that waits with a session what becomes of it. @param what  WEIR_MOVE_GONE,
 * WEIR_MOVE_STAY @param except  the worker that has it, or -1 */
void weir_sup_move_ends(struct weir_supervisor *sup, int tenant, uint64_t session,
                        enum weir_move what, int except);
/** A session stays in its worker: it is not asked again by itself for a while. */
void weir_sup_move_stays(struct weir_sup_worker *worker);
/** Close a pending connection that its worker has received.
 * @return key of the keeper's row of a session whose other worker waits, which stays; or 0 */
uint64_t weir_sup_pending_given(struct weir_supervisor *sup, struct weir_sup_pending *pending);
/** Close a pending connection that has ended. */
void weir_sup_pending_forget(struct weir_supervisor *sup, struct weir_sup_pending *pending);
/** Refuse all pending connections, since the host stops. */
void weir_sup_pending_close(struct weir_supervisor *sup);
/** Close a pending connection, and send the reason. @param result CUresult for the program. */
void weir_sup_turn_away(struct weir_supervisor *sup, struct weir_sup_pending *pending,
                        enum weir_status reason, int32_t result, const char *why);

/* programs.c */

/** Tell a worker to end. It gets no more programs. */
void weir_sup_program_stop(struct weir_supervisor *sup, int worker);

/** Assign workers to waiting programs, and start and stop workers. */
void weir_sup_programs_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Watch pending connections, and wake the loop when weir_sup_programs_tick() is due. */
void weir_sup_programs_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);

/** Announce once that the host is ready: when all its first workers and spares are ready. */
void weir_sup_announce(struct weir_supervisor *sup);

/* moves.c */

/** Have a worker's sessions go on in another worker, or one of them. @param session  0: all */
void weir_sup_move_want(struct weir_supervisor *sup, int worker, uint64_t session);
/** A worker says how a move goes on. */
void weir_sup_move_heard(struct weir_supervisor *sup, int worker,
                         const struct weir_link_move *move);
/** A worker is gone: if it was making a session again, that stays where it was. */
void weir_sup_move_worker_gone(struct weir_supervisor *sup, int worker);
/** Ask for moves that are wanted, as soon as there are workers for them; and for those of programs
 * that have become alone on a GPU, or are not any more (mps_alone). */
void weir_sup_moves_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Wake the loop when weir_sup_moves_tick() is due. */
void weir_sup_moves_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);

/* program_ends.c */

/** A worker has no session left; n_guests: number of connections that it had received by then. */
void weir_sup_program_ended(struct weir_supervisor *sup, int worker,
                            const struct weir_link_idle *idle);
/** Kill a worker whose program has ended but has left work on the GPU that does not end. */
void weir_sup_program_left_behind(struct weir_supervisor *sup, int worker);
/** A worker of kind PROGRAM is gone. @param status  as waitpid() gives it. */
void weir_sup_program_died(struct weir_supervisor *sup, int worker, int status);
/** The state of a worker in a word for people; "": it is not of kind PROGRAM. */
const char *weir_sup_program_state(const struct weir_sup_worker *worker);
/** A tenant is removed: end its programs' workers, and refuse its waiting programs. */
void weir_sup_programs_drop(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);

/* giving.c */

/** A worker of any kind finds no device memory. At the next tick, but once a second for each
 * worker, end all idle workers for which nobody waits. Start no spares for a while. */
void weir_sup_program_lacks_memory(struct weir_supervisor *sup, int worker);
/** A worker asks when all its messages so far are handled: the next tick writes that to its
 * page. */
void weir_sup_program_syncs(struct weir_supervisor *sup, int worker);
/**
 * Has a program ended that still holds something, in a worker that serves one tenant?
 *
 * @param tenant   only workers of its holder (users.h); NULL: anybody's, in any worker.
 * @param devices  only workers on one of these; NULL: on any.
 */
bool weir_sup_any_has_ended(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                            const char *devices);
/** Ask all workers to release memory that nobody uses. false: no worker has any. */
bool weir_sup_take_spares(struct weir_supervisor *sup);
/** End idle workers if a worker lacks memory, and answer workers that have asked. */
void weir_sup_giving_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** The second half of weir_sup_giving_tick(): only answers. */
void weir_sup_giving_answer(struct weir_supervisor *sup, uint64_t now_ns);
/** When weir_sup_giving_tick() must be called. WEIR_FOREVER: never. */
uint64_t weir_sup_giving_next_ns(const struct weir_supervisor *sup);

/* shortage.c */

/** A worker with these devices could not start, apparently for lack of room.
 * @param wait_status  its end, as waitpid() gives it. */
void weir_sup_shortage_begin(struct weir_supervisor *sup, const char *devices, int wait_status,
                             uint64_t now_ns);
/** Why there is no room for a program's worker. @param ret_why static. @return the error for the
 * program */
enum weir_status weir_sup_shortage_cause(const struct weir_supervisor *sup, const char *devices,
                                         const char **ret_why);
/** A worker has ended, so there may be room again. */
void weir_sup_shortage_less(struct weir_supervisor *sup);
/** Is there room for a program's worker with these devices? */
bool weir_sup_has_room(const struct weir_supervisor *sup, const char *devices, uint64_t now_ns);
/** Is there room for a spare with these devices? */
bool weir_sup_has_room_for_spares(const struct weir_supervisor *sup, const char *devices,
                                  uint64_t now_ns);
/** When the answer to one of these questions may change. WEIR_FOREVER: never. */
uint64_t weir_sup_shortage_next_ns(const struct weir_supervisor *sup, uint64_t now_ns);
/**
 * Does a worker with other devices work, or start for the first time? Then a failure of this worker
 * may be due to its devices.
 * @param under_mps  only workers under MPS count.
 */
bool weir_sup_others_may_serve(const struct weir_supervisor *sup, int worker, bool under_mps);

/*
 * The workers of programs, and the programs that wait for one (programs.c); docs/design/workers.md.
 *
 * All functions: @thread main
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_WORKERS_PROGRAMS_H
#define WEIR_HOST_BACKEND_SUPERVISOR_WORKERS_PROGRAMS_H

#include "host_backend/config/link.h"
#include "host_backend/supervisor/state/supervisor.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* pending.c */

/** A program of a tenant whose programs have a worker each has connected: keep the connection until
 * there is a worker for it. The function owns the descriptor. If all places for such connections
 * are used, another connection is closed for this one, or this one is. */
void weir_sup_program_arrived(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                              int fd, const struct weir_link_guest *guest);
/** Watch for the hello and the end of a pending connection. @param i  in sup->programs.pending */
void weir_sup_pending_watch(struct weir_supervisor *sup, int i, struct weir_host_loop *loop);
/**
 * The slots of all pending connections, in the order in which they get workers: holders (users.h)
 * in turn, each one's in the order of their arrival. So one that has many waits for itself.
 * @return how many
 */
uint32_t weir_sup_pending_in_turn(const struct weir_supervisor *sup,
                                  uint16_t ret_slots[WEIR_PENDING_MAX]);
/** Close a pending connection which its worker has, or which is over. */
void weir_sup_pending_forget(struct weir_sup_pending *pending);
/** Turn all pending connections away: the host stops. */
void weir_sup_pending_close(struct weir_supervisor *sup);
/** Close a pending connection, and say why. @param result  CUresult for the program. */
void weir_sup_turn_away(struct weir_supervisor *sup, struct weir_sup_pending *pending,
                        enum weir_status reason, int32_t result, const char *why);

/* programs.c */

/** Tell a worker to end: it gets no program any more. */
void weir_sup_program_stop(struct weir_supervisor *sup, int worker);

/** Give workers to programs that wait, start and stop workers. */
void weir_sup_programs_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Watch pending connections, and wake the loop when weir_sup_programs_tick() is due. */
void weir_sup_programs_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);

/** Announce once that the host is ready: when all its first workers are, spares among them. */
void weir_sup_announce(struct weir_supervisor *sup);

/* program_ends.c */

/** A worker has no session left; n_guests: how many connections it had received by then. */
void weir_sup_program_ended(struct weir_supervisor *sup, int worker,
                            const struct weir_link_idle *idle);
/** Kill a worker whose program has ended while work of the program on the GPU does not end. */
void weir_sup_program_left_behind(struct weir_supervisor *sup, int worker);
/** A worker of kind PROGRAM is gone. @param status  as waitpid() gives it. */
void weir_sup_program_died(struct weir_supervisor *sup, int worker, int status);
/** The state of a worker in a word for people; "": it is not of kind PROGRAM. */
const char *weir_sup_program_state(const struct weir_sup_worker *worker);
/** A tenant is removed: end its programs' workers, and turn waiting programs away. */
void weir_sup_programs_drop(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);

/* giving.c */

/** A worker of any kind finds no device memory: at the next tick, but once a second for each
 * worker, all idle workers end that nobody waits for. No spares are started for a while. */
void weir_sup_program_lacks_memory(struct weir_supervisor *sup, int worker);
/** A worker asks when all its messages so far are handled: its page says so at the next tick. */
void weir_sup_program_syncs(struct weir_supervisor *sup, int worker);
/**
 * Has a program ended that still holds something, in a worker that serves one tenant?
 *
 * @param tenant   only workers of its holder (users.h); NULL: anybody's, in any worker.
 * @param devices  only workers on one of these; NULL: on any.
 */
bool weir_sup_any_has_ended(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                            const char *devices);
/** Have all workers release memory that nobody uses. false: no worker has any. */
bool weir_sup_take_spares(struct weir_supervisor *sup);
/** End idle workers where memory lacks, and answer workers that have asked. */
void weir_sup_giving_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** The second half of weir_sup_giving_tick(): only answers. */
void weir_sup_giving_answer(struct weir_supervisor *sup, uint64_t now_ns);
/** When weir_sup_giving_tick() has something to do. WEIR_FOREVER: never. */
uint64_t weir_sup_giving_next_ns(const struct weir_supervisor *sup);

/* shortage.c */

/** A worker with these devices could not start, apparently for lack of room.
 * @param wait_status  its end, as waitpid() gives it. */
void weir_sup_shortage_begin(struct weir_supervisor *sup, const char *devices, int wait_status,
                             uint64_t now_ns);
/** Why there is no room: for a program. @param ret_why  static. @return the reason for it */
enum weir_status weir_sup_shortage_cause(const struct weir_supervisor *sup, const char *devices,
                                         const char **ret_why);
/** A worker has ended, so try again: there may be room. */
void weir_sup_shortage_less(struct weir_supervisor *sup);
/** May a worker with these devices be started, for a program? */
bool weir_sup_has_room(const struct weir_supervisor *sup, const char *devices, uint64_t now_ns);
/** May a spare with these devices be started? */
bool weir_sup_has_room_for_spares(const struct weir_supervisor *sup, const char *devices,
                                  uint64_t now_ns);
/** When one of these answers may change. WEIR_FOREVER: never. */
uint64_t weir_sup_shortage_next_ns(const struct weir_supervisor *sup, uint64_t now_ns);
/**
 * Does a worker with other devices serve, or start for the first time? Then this worker's failure
 * may be due to its devices.
 * @param under_mps  only workers under MPS count.
 */
bool weir_sup_others_may_serve(const struct weir_supervisor *sup, int worker, bool under_mps);

#endif

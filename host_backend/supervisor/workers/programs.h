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

/** A connection of a tenant with a worker for each program; the descriptor is taken. If all places
 * are used, another one gives way, or this one is turned away. */
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
/** Close it: its worker has it, or it is over. */
void weir_sup_pending_forget(struct weir_sup_pending *pending);
/** Turn all away: the host stops. */
void weir_sup_pending_close(struct weir_supervisor *sup);
/** Close it, and say why. @param result  CUresult for the program. */
void weir_sup_turn_away(struct weir_supervisor *sup, struct weir_sup_pending *pending,
                        enum weir_status reason, int32_t result, const char *why);

/* programs.c */

/** A worker is to end: it takes no program any more. */
void weir_sup_program_stop(struct weir_supervisor *sup, int worker);

/** Give workers to programs that wait, start and stop workers. */
void weir_sup_programs_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Watch pending connections, and wake the loop when weir_sup_programs_tick() is due. */
void weir_sup_programs_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);

/** Say that the host is ready, once, when all workers that it began with are, spares among them. */
void weir_sup_announce(struct weir_supervisor *sup);

/* program_ends.c */

/** A worker says that no session is left; n_guests: how many connections it had got by then. */
void weir_sup_program_ended(struct weir_supervisor *sup, int worker,
                            const struct weir_link_idle *idle);
/** A worker says that the work of its program, which is gone, does not end. */
void weir_sup_program_left_behind(struct weir_supervisor *sup, int worker);
/** A worker of kind PROGRAM is gone. @param status  as waitpid() gives it. */
void weir_sup_program_died(struct weir_supervisor *sup, int worker, int status);
/** What a worker is at, in a word for people; "": it is not of kind PROGRAM. */
const char *weir_sup_program_state(const struct weir_sup_worker *worker);
/** A tenant goes: its programs' workers end, and who waits is turned away. */
void weir_sup_programs_drop(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);

/* giving.c */

/** A worker of any kind finds no device memory: at the next tick, but once a second for each
 * worker, all that serve nobody and are not waited for end. There are no spares for a while. */
void weir_sup_program_lacks_memory(struct weir_supervisor *sup, int worker);
/** A worker wants to know when all that it has said is done: its page says so at the next tick. */
void weir_sup_program_syncs(struct weir_supervisor *sup, int worker);
/**
 * Is there a program that has ended, and holds something still, in a worker that serves one tenant?
 * @param tenant   of whose holder (users.h); NULL: anybody's, in any worker.
 * @param devices  on one of which; NULL: on any.
 */
bool weir_sup_any_has_ended(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                            const char *devices);
/** Have all workers release memory that nobody uses. false: there is none. */
bool weir_sup_take_spares(struct weir_supervisor *sup);
/** Have workers that serve nobody give way, and answer workers that have asked. */
void weir_sup_giving_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** The second half of that. */
void weir_sup_giving_answer(struct weir_supervisor *sup, uint64_t now_ns);
/** When weir_sup_giving_tick() has something to do. WEIR_FOREVER: never. */
uint64_t weir_sup_giving_next_ns(const struct weir_supervisor *sup);

/* shortage.c */

/** A worker with these devices could not start: for want of room, it seems.
 * @param wait_status  its end, as waitpid() gives it. */
void weir_sup_shortage_begin(struct weir_supervisor *sup, const char *devices, int wait_status,
                             uint64_t now_ns);
/** Why there is no room: for a program. @param ret_why  static. @return the reason for it */
enum weir_status weir_sup_shortage_cause(const struct weir_supervisor *sup, const char *devices,
                                         const char **ret_why);
/** A worker has ended, so there may be room again. */
void weir_sup_shortage_less(struct weir_supervisor *sup);
/** May a worker with these devices be started, for a program? */
bool weir_sup_has_room(const struct weir_supervisor *sup, const char *devices, uint64_t now_ns);
/** May a spare with these devices? */
bool weir_sup_has_room_for_spares(const struct weir_supervisor *sup, const char *devices,
                                  uint64_t now_ns);
/** When one of these answers may be another. WEIR_FOREVER: never. */
uint64_t weir_sup_shortage_next_ns(const struct weir_supervisor *sup, uint64_t now_ns);
/**
 * Does a worker with other devices than this one's serve, or is one in its first start? Then this
 * one's failure may be its devices' own.
 * @param under_mps  only those under MPS count.
 */
bool weir_sup_others_may_serve(const struct weir_supervisor *sup, int worker, bool under_mps);

#endif

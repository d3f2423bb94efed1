/*
 * Fault domains of workers of programs: MPS servers that the supervisor runs (mps.c).
 *
 * All functions: @thread main
 */
#pragma once

#include "host_backend/config/config.h"
#include "host_backend/config/link.h"
#include "host_backend/confine/confine.h"
#include "host_backend/supervisor/state/supervisor.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WEIR_MPS_RESERVE_MAX 4 /* the most domains in reserve */

enum weir_mps_room {
    WEIR_MPS_ROOM,
    WEIR_MPS_ROOM_SOON, /* a domain starts, or recovers from a fault */
    WEIR_MPS_FULL,      /* all domains with these devices are full */
    WEIR_MPS_NO_ROOM,   /* there is no domain, and none can be opened */
};
/**
 * Find a domain for one more worker with these devices; opens the first one.
 * @param ret_domain  written with WEIR_MPS_ROOM: for weir_sup_program.domain.
 */
enum weir_mps_room weir_mps_room(struct weir_supervisor *sup, const char *devices,
                                 uint32_t *ret_domain);
/** Open a further domain, or take the one in reserve. Its programs take turns with those of other
 * domains.
 * @return false: there are as many as can be. */
bool weir_mps_open(struct weir_supervisor *sup, const char *devices);
/**
 * The number of domains is at its limit, and none has a program's devices: end a domain that no
 * program needs. When it has ended, another can be opened.
 * @return false: programs are in all of them
 */
bool weir_mps_make_place(struct weir_supervisor *sup);
/** The number of programs in a worker's domain; 0: it is in none. */
uint32_t weir_mps_busy(const struct weir_supervisor *sup, const struct weir_sup_worker *worker);
/** Does a domain with the same devices that is to be filled earlier have room for the worker? */
bool weir_mps_is_surplus(const struct weir_supervisor *sup, const struct weir_sup_worker *worker);
/**
 * The number of connections to the GPU for a worker that starts in its domain now: 8 if fewer than
 * 4 other workers there have 8, else 2. A program's own wish counts up to 2.
 * @return 0: it is in no domain
 */
uint32_t weir_mps_connections(const struct weir_supervisor *sup,
                              const struct weir_sup_worker *worker);
/** The worker's domain; NULL: it is under no MPS server. */
struct weir_sup_mps *weir_mps_of(struct weir_supervisor *sup, const struct weir_sup_worker *worker);
/** Is the worker in the domain? */
bool weir_mps_has(const struct weir_supervisor *sup, const struct weir_sup_mps *domain,
                  const struct weir_sup_worker *worker);
/** How many tenants have programs in the domain? */
uint32_t weir_mps_tenants(const struct weir_supervisor *sup, const struct weir_sup_mps *domain);
/** A client's context has died, and with it all others of the domain: make the workers leave. */
void weir_mps_faulted(struct weir_supervisor *sup, struct weir_sup_mps *domain);

/* mps_lists.c */

/**
 * Do the lists of devices share an MPS server? They do if they have a GPU in common, also by way of
 * the lists of tenants whose programs are under MPS.
 */
bool weir_mps_lists_meet(const struct weir_supervisor *sup, const char *list, const char *other);
/** How many SMs each of these devices has; NULL: no client has reported it yet. */
const struct weir_link_sms *weir_mps_sms(const struct weir_supervisor *sup, const char *devices);
/** Store the SMs of these devices, unless they are known, or `sms` is empty. */
void weir_mps_sms_note(struct weir_supervisor *sup, const char *devices,
                       const struct weir_link_sms *sms);
/** Store what a worker that is not ready yet has told, if its contexts have all SMs. */
void weir_mps_sms_told(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                       const struct weir_link_sms *sms);

/* mps_daemon.c */

#define WEIR_MPS_LOOK_MS      20 /* interval at which a starting daemon is checked */
#define WEIR_MPS_SAY_MS       1000
#define WEIR_MPS_ANSWER_BYTES 512u

/** Should programs' workers be under MPS? The configuration decides; `auto` means yes if a host
 * with a GPU has NVIDIA's control program on its PATH. */
bool weir_mps_is_wanted(const struct weir_host_config *config);
/** Start a domain's control daemon in its folder. On failure pid stays 0, and the log says why. */
void weir_mps_daemon_start(struct weir_supervisor *sup, struct weir_sup_mps *domain,
                           uint64_t now_ns);
/** Write down for the next supervisor what a domain is. */
void weir_mps_note(struct weir_supervisor *sup, const struct weir_sup_mps *domain);
/** Take over the last supervisor's domains. */
void weir_mps_adopt(struct weir_supervisor *sup);
/** Does the daemon accept commands? */
bool weir_mps_daemon_is_there(const struct weir_sup_mps *domain);
/**
 * Send a command to a daemon, and read its answer.
 * @param answer  always ends with 0.
 * @return false: it has not answered in time
 */
bool weir_mps_say(const struct weir_sup_mps *domain, const char *line, int wait_ms, char *answer,
                  size_t bytes);
/** Make the daemon start its server before there is a client. The process `starter` ends with
 * status 0 when the server runs. */
void weir_mps_server_start(struct weir_sup_mps *domain);
/** Begin to end a daemon and its server, whose workers have ended. */
void weir_mps_daemon_quit(struct weir_sup_mps *domain);
/** Wait for the daemon's end, and kill it if it takes too long. */
void weir_mps_daemon_await(struct weir_supervisor *sup, struct weir_sup_mps *domain);
/** The daemon has ended: kill the process that was sending it a command. */
void weir_mps_daemon_forget(struct weir_sup_mps *domain);
void weir_mps_folder_remove(const struct weir_sup_mps *domain);
/** Open the log of a domain's daemon and server. @param flags  of open(). @return -1: see errno */
int weir_mps_log_open(const struct weir_sup_mps *domain, int flags);

#define WEIR_MPS_VARIABLES 3 /* the most that weir_mps_environment() sets or removes */

struct weir_mps_room_for_texts {
    char percent[16];
};

/** The environment variables of a worker's MPS daemon, or of none, and of its share of the SMs.
 * @param ret_env    gives names with values, or NULL to remove them; ends in a NULL name.
 * @param ret_texts  what ret_env points to. */
void weir_mps_environment(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                          const char *ret_env[WEIR_MPS_VARIABLES + 1][2],
                          struct weir_mps_room_for_texts *ret_texts);

/* mps_blame.c */

/** The process that a line of an MPS server's log names as cause of a fault; 0: no line does. */
pid_t weir_mps_log_culprit(const char *text);
/** The first worker of the domain reports a fault: begin to find its cause. */
void weir_mps_blame_begin(struct weir_supervisor *sup, struct weir_sup_mps *domain,
                          const struct weir_link_fault *first);
/**
 * Is the cause of the fault known, or has the search ended?
 * @param ret_fault  written if so: n_suspects is 1 if the cause is known.
 * @param ret_user   written if so: as of weir_sup_share_user() at the time of the report.
 */
bool weir_mps_blame_end(struct weir_sup_mps *domain, uint64_t now_ns,
                        struct weir_link_fault *ret_fault, int64_t *ret_user);
/** The cause of the domain's fault is known: end the search. */
void weir_mps_blame_settled(struct weir_sup_mps *domain);
/** When to call weir_mps_blame_end() next; WEIR_FOREVER: there is no search. */
uint64_t weir_mps_blame_next_ns(const struct weir_sup_mps *domain, uint64_t now_ns);

/* mps.c */

/** Kill a worker in a way that is no fault for the others of its domain. */
void weir_mps_kill(struct weir_supervisor *sup, struct weir_sup_worker *worker);

/** Check daemons and domains, and do what is due. */
void weir_mps_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Wake the loop when weir_mps_tick() has something to do. */
void weir_mps_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** A worker is ready: if it is in a domain, note that the domain's server works. */
void weir_mps_serves(struct weir_supervisor *sup, const struct weir_sup_worker *worker);
/**
 * MPS seems not to work: give it up if no worker has ever been a client and the configuration says
 * mps = "auto".
 * @param why  for the log
 * @return whether it was given up, now or before; programs' workers are native then
 */
bool weir_mps_give_up(struct weir_supervisor *sup, const char *why);
/** Check which daemons have ended (after SIGCHLD). */
void weir_mps_reap(struct weir_supervisor *sup);
/** End all daemons; their workers have ended. */
void weir_mps_close(struct weir_supervisor *sup);

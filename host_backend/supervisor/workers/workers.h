/* Starts and watches workers and the gate process. All functions: @thread main */
#pragma once

#include "host_backend/supervisor/state/supervisor.h"

/* workers.c */

enum weir_status weir_sup_worker_start(struct weir_supervisor *sup, int worker) WEIR_MUST_CHECK;
/**
 * Start a worker with a slot of its own.
 * @param like  its kind, tenant, group, devices, connections and program are copied.
 * @return WEIR_OK
 * @return WEIR_ERR_FULL  there is no slot, or the system allows no further process.
 * @return WEIR_ERR_NO_DESCRIPTOR, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO and errors of weir_sup_listen()
 */
enum weir_status weir_sup_worker_new(struct weir_supervisor *sup,
                                     const struct weir_sup_worker *like,
                                     int *ret_worker) WEIR_MUST_CHECK;
/** Listen for remote guests, which failed before. The worker that serves them must be restarted,
 * and no program may be in it. */
void weir_sup_tcp_again(struct weir_supervisor *sup);
/** All tenants of the configuration exist: workers that have received theirs may listen for
 * guests. */
void weir_sup_workers_listen(struct weir_supervisor *sup);
/** Start workers whose restart is due. */
void weir_sup_workers_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Watch links and logs, and wake the loop when weir_sup_workers_tick() has something to do. */
void weir_sup_workers_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
void weir_sup_worker_receive(struct weir_supervisor *sup, int worker);
/** A worker's driver is open, which may have taken long, and no guest has reached the worker yet:
 * send it its tenants. Before this, their settings would have filled its link. Its report about
 * GPUs is trusted; the gate process gets it before it makes the port. */
void weir_sup_worker_reads(struct weir_supervisor *sup, int worker,
                           const struct weir_link_reads *reads);
/** A worker is ready: guests may connect to it. */
void weir_sup_worker_ready(struct weir_supervisor *sup, int worker,
                           const struct weir_status_worker *row);
/** Write down for the next supervisor that a worker is ready, and whose it is. */
void weir_sup_worker_note(struct weir_supervisor *sup, int worker);
/**
 * A program wants another number of connections in its tenant's own worker, which has no session.
 * From now on guests wait in the tenant's backlog.
 * @param connections  1 .. WEIR_CONTROL_MAX_CONNECTIONS; any other number is refused.
 */
void weir_sup_worker_renew(struct weir_supervisor *sup, int worker, uint32_t connections);
/** Check which workers have ended (SIGCHLD). */
void weir_sup_workers_reap(struct weir_supervisor *sup);
/** The first worker of all found no driver or no device: report that, and stop. */
void weir_sup_no_gpu(struct weir_supervisor *sup);
/** Close all workers' links and descriptors when the host ends. */
void weir_sup_workers_close(struct weir_supervisor *sup);
/** Store a worker's report about itself. */
void weir_sup_worker_row(struct weir_sup_worker *worker, const struct weir_status_worker *row);

/* adopt.c */

/** Take over the workers of the last supervisor. */
void weir_sup_workers_adopt(struct weir_supervisor *sup);
/** Ask these workers what they are doing, and wait for that. All that the answers are about has
 * been taken over before. */
void weir_sup_workers_resume(struct weir_supervisor *sup);
void weir_sup_worker_resumed(struct weir_supervisor *sup, int worker,
                             const struct weir_link_resumed *resumed);
/** The configuration is applied: send them what the last supervisor may not have sent. */
void weir_sup_workers_retell(struct weir_supervisor *sup);

/* worker_process.c */

/** A text for people: why weir_sup_worker_new() or weir_sup_worker_start() failed. */
const char *weir_sup_no_worker_text(enum weir_status status);
/** Fill in the settings that the workers and the gate process have in common. */
void weir_sup_config_fill(const struct weir_supervisor *sup, struct weir_link_config *config);

/* tenant_link.c */

/** Send all tenants to the gate process. */
void weir_sup_tenants_tell_gate(struct weir_supervisor *sup);
/** Send the gate process the tenants that a worker serves. */
void weir_sup_tenants_serve(struct weir_supervisor *sup, int worker);
/** Send a message about a tenant to the gate process, and then to all workers that serve the
 * tenant: TENANT or TENANT_GONE of enum weir_link_type. */
void weir_sup_tenant_tell(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                          uint32_t type);
/** Send a worker the settings and the account page of a tenant that it starts to serve. A worker
 * that is still starting gets them when it reads. */
void weir_sup_tenant_join(struct weir_supervisor *sup, struct weir_sup_tenant *tenant, int worker);
/** Send a worker that was taken over what its tenants and their settings are now. */
void weir_sup_tenants_retell(struct weir_supervisor *sup, int worker);
/** A worker has ended: give back what it had charged to its tenants' accounts. */
void weir_sup_tenants_settle(struct weir_supervisor *sup, int worker);

/* gate.c */

/** Start the gate process, if there is a scheduler.
 * @return WEIR_OK, WEIR_ERR_IO */
enum weir_status weir_sup_gate_open(struct weir_supervisor *sup) WEIR_MUST_CHECK;
/** Take over the last supervisor's gate process, its GPUs and its page. */
void weir_sup_gate_adopt(struct weir_supervisor *sup);
/** Send the gate process changed policies. */
void weir_sup_gate_configure(struct weir_supervisor *sup);
/**
 * Send the gate process a message. It gets tenants and policies by itself when it starts.
 * @param fd  goes with the message; borrowed; -1: none.
 * @return false: the gate process does not run
 */
bool weir_sup_gate_send(struct weir_supervisor *sup, const struct weir_link_message *message,
                        int fd);
/** Ask the gate process for its status. */
void weir_sup_gate_ask(struct weir_supervisor *sup, const struct weir_link_message *message);
/** A worker without guests reports its GPUs: announce them to the gate process. */
void weir_sup_gate_gpus(struct weir_supervisor *sup, const struct weir_link_reads *reads);
/** Request a port for a worker whose GPUs are known, or tell the worker that there is none. */
void weir_sup_gate_worker_starts(struct weir_supervisor *sup, int worker);
/** Tell the gate process that a worker serves a tenant. Call this after the tenant was announced
 * there, and before the worker gets the tenant. */
void weir_sup_gate_worker_serves(struct weir_supervisor *sup, int worker,
                                 const struct weir_sup_tenant *tenant);
/** A worker reports that the gate process is unresponsive, and has left it: check the gate
 * process. */
void weir_sup_gate_deaf(struct weir_supervisor *sup, int worker);
/** A worker is gone: remove its port, and thereby its work. */
void weir_sup_gate_worker_gone(struct weir_supervisor *sup, int worker);
void weir_sup_gate_receive(struct weir_supervisor *sup);
void weir_sup_gate_reap(struct weir_supervisor *sup);
void weir_sup_gate_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Watch the gate's link and log, and wake the loop when weir_sup_gate_tick() is due. */
void weir_sup_gate_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** End the gate process. It may save its durations first, and is killed if that takes too long. */
void weir_sup_gate_close(struct weir_supervisor *sup);

/* worker_user.c */

/** Find the workers' user. @return false: prints what is wrong with worker_user */
bool weir_sup_worker_user_find(struct weir_supervisor *sup) WEIR_MUST_CHECK;
/** Give the workers' user what workers write, and log who that is. */
void weir_sup_worker_user_open(struct weir_supervisor *sup);
/** Is the compiler there that the configuration names? */
void weir_sup_compiler_follow(struct weir_supervisor *sup);
/** Give the folder of the caches to the workers' user, if it can be used. */
void weir_sup_cache_follow(struct weir_supervisor *sup);
/** Set the folder of the caches in the workers' settings. */
void weir_sup_worker_user_cache(const struct weir_supervisor *sup, struct weir_forms_config *forms);

/* spin_governor.c */

/**
 * Make the page from which the gate process reads who may spin.
 * @return WEIR_OK, WEIR_ERR_IO, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_sup_spin_open(struct weir_supervisor *sup) WEIR_MUST_CHECK;
/** Close the governor's files, also if it was never opened. The page stays mapped. */
void weir_sup_spin_close(struct weir_supervisor *sup);
/** Wake the loop at the end of the epoch. */
void weir_sup_spin_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Decide for the next epoch, if one has ended. */
void weir_sup_spin_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Write the number of tenants to all pages. */
void weir_sup_spin_show(struct weir_supervisor *sup, uint32_t tenants);
/**
 * Make the page of a worker that starts; no other worker sees it.
 * @param ret_fd  gives the descriptor to pass to the worker.
 * @return WEIR_OK, WEIR_ERR_IO, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_sup_spin_worker_starts(struct weir_supervisor *sup,
                                             struct weir_sup_worker *worker,
                                             int *ret_fd) WEIR_MUST_CHECK;
/** A worker has ended: remove its page, if it has one. */
void weir_sup_spin_worker_gone(struct weir_sup_worker *worker);

/* chunks.c */

/** Divide this process's limit of descriptors among the tenants: once, at the start. */
void weir_sup_chunks_init(struct weir_supervisor *sup);
/** Take over a chunk's descriptor and hold it; close it if its tenant may have no more
 * descriptors. */
void weir_sup_keep(struct weir_supervisor *sup, int worker, const struct weir_link_chunk *chunk,
                   int fd);
/** Close the descriptor of a worker's chunk. */
void weir_sup_drop(struct weir_supervisor *sup, int worker, uint64_t id);
/** Close the descriptors of all of a worker's chunks. */
void weir_sup_drop_all(struct weir_supervisor *sup, int worker);
/** Take over the chunks that the last supervisor has kept. */
void weir_sup_chunks_adopt(struct weir_supervisor *sup);

/* claims.c */

/**
 * Claim the GPUs that a worker is about to use, unless this host is not exclusive. If another host
 * has one of them, the worker is killed; a host that was not ready yet stops.
 */
void weir_sup_claim(struct weir_supervisor *sup, int worker, const struct weir_link_devices *gpus);
/** Watch for other hosts that ask who has claimed a GPU. */
void weir_sup_claims_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Another host asks who has claimed the GPU of claim number i. */
void weir_sup_claim_answer(struct weir_supervisor *sup, unsigned i);

/* stop.c */

/** Tell all workers to stop, wait for them together, and kill the rest. Takes a minute at most. */
void weir_sup_workers_stop(struct weir_supervisor *sup);

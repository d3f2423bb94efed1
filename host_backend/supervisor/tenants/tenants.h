/* Tenants: sockets, shares on demand, faults, and what they share. All functions: @thread main */
#pragma once

#include "host_backend/supervisor/state/supervisor.h"

/* tenants.c */

/** Apply the configuration: open sockets of new tenants, close those of gone ones, tell workers. */
enum weir_status weir_sup_tenants_apply(struct weir_supervisor *sup,
                                        const struct weir_host_config *config) WEIR_MUST_CHECK;
/** At the host's start, when all of its tenants are there: update what they share. */
void weir_sup_tenants_follow(struct weir_supervisor *sup);
/** A source has other settings for a tenant that it has made. */
enum weir_status weir_sup_tenant_set_base(struct weir_supervisor *sup, enum weir_origin source,
                                          const struct weir_tenant_config *config) WEIR_MUST_CHECK;
/** Make a tenant while the host runs. The diagnosis says why not; later failures are logged. */
enum weir_status weir_sup_tenant_add(struct weir_supervisor *sup,
                                     const struct weir_tenant_config *config,
                                     enum weir_origin source,
                                     struct weir_diag *ret_diag) WEIR_MUST_CHECK;
/** Remove a tenant: its socket is closed and its sessions end. */
void weir_sup_tenant_remove(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** A worker reports that nothing is left of the tenant that was removed as this generation. */
void weir_sup_tenant_freed(struct weir_supervisor *sup, uint32_t index, uint32_t generation);
/** A worker has died, and with it all its state of removed tenants. */
void weir_sup_tenants_died(struct weir_supervisor *sup, int worker);
/** A worker of one of the tenant's programs has died; the tenant may have been removed before. */
void weir_sup_tenant_worker_gone(struct weir_supervisor *sup, uint32_t index);
/**
 * Change one setting in `config`, which becomes the tenant's with weir_sup_tenant_commit().
 * @param text  "": go back to the source's value.
 */
enum weir_status weir_sup_setting_try(const struct weir_supervisor *sup,
                                      const struct weir_sup_tenant *tenant, size_t setting,
                                      const char *text, struct weir_tenant_config *config,
                                      struct weir_diag *ret_diag) WEIR_MUST_CHECK;
/** Put new settings in effect, and send them to the worker. */
void weir_sup_tenant_commit(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                            const struct weir_tenant_config *config);
/** Name the source for people: "weir.toml", or "built in" if the host has no file, and so on. */
const char *weir_origin_text(const struct weir_supervisor *sup, enum weir_origin origin);
/** Make the run directory, and tenants' sockets in it, again where somebody has removed them. */
void weir_sup_sockets_renew(struct weir_supervisor *sup);
/**
 * Watch for connections to tenants' sockets. While a tenant's worker is not ready, or has not read
 * about earlier guests yet, guests wait in the socket's backlog. Where each program gets a worker
 * of its own, guests are accepted and wait in the supervisor.
 */
void weir_sup_tenants_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Let another worker serve a tenant of which the worker before has nothing. */
void weir_sup_tenant_move(struct weir_supervisor *sup, struct weir_sup_tenant *tenant, int worker);
/** Close all tenants' sockets. */
void weir_sup_tenants_close(struct weir_supervisor *sup);
/** Send a worker that begins to read its link all settings of its tenants. */
void weir_sup_tenants_tell(struct weir_supervisor *sup, int worker);

/* containers.c */

/** After any change of the tenants: update their sockets for containers, and the CDI file. */
void weir_sup_containers_follow(struct weir_supervisor *sup);
/** Close the sockets for containers and remove the CDI file. */
void weir_sup_containers_close(struct weir_supervisor *sup);

/* demand.c */

/** Listen for requests for shares, or report that this extra fails. Removes the shares of an
 * earlier host. */
void weir_sup_demand_open(struct weir_supervisor *sup);
void weir_sup_demand_close(struct weir_supervisor *sup);
void weir_sup_demand_accept(struct weir_supervisor *sup);
/** Make new.sock and the folders of shares again where somebody has removed them. */
void weir_sup_demand_renew(struct weir_supervisor *sup);
/** Set other bounds for shares that are made from now on. */
void weir_sup_demand_follow(struct weir_supervisor *sup, const struct weir_demand_config *demand);
void weir_sup_demand_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Watch for new connections, for requests, and for the ends of processes that have shares. */
void weir_sup_demand_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Make a share's folder and listen there. */
enum weir_status weir_sup_share_listen(struct weir_supervisor *sup,
                                       struct weir_sup_tenant *tenant) WEIR_MUST_CHECK;
/** A tenant is removed: remove its folder, if it is a share. */
void weir_sup_share_gone(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Divide the total weight of shares again, and each user's part. */
void weir_sup_shares_weigh(struct weir_supervisor *sup);

/* drain.c */

/**
 * Let a tenant, or all, take no new programs, or take them again. It holds over restarts, as long
 * as the run directory keeps its files.
 * @param tenant  NULL: all; with drained = false also those that were drained one by one.
 * @return false: it holds until this host ends, since the file that keeps it cannot be written
 */
bool weir_sup_drain_set(struct weir_supervisor *sup, struct weir_sup_tenant *tenant, bool drained);
/** A tenant is removed, and with it that it was drained. */
void weir_sup_drain_forget(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** At the host's start, when its tenants are there: drain what an earlier host had drained. */
void weir_sup_drain_load(struct weir_supervisor *sup);

/* kept.c */

/** At the host's start, when the tenants of weir.toml are there: make those that are kept. */
void weir_sup_kept_load(struct weir_supervisor *sup);
/** Write down which tenants are kept. @return false: the file cannot be written */
bool weir_sup_kept_store(const struct weir_supervisor *sup);

/* faults.c */

/** A worker's death has ended its MPS domain; if by_signal, its tenant is to blame. */
void weir_sup_fault_of_dead(struct weir_supervisor *sup, int worker, bool by_signal);
/** A worker reports that a tenant has ended, or may have ended, its GPU context. */
void weir_sup_fault(struct weir_supervisor *sup, int worker, const struct weir_link_fault *fault);
/** Put a new share of the user demand_user in quarantine if the user is. */
void weir_sup_quarantine_inherit(struct weir_supervisor *sup, struct weir_sup_tenant *share);
/** A worker of several tenants has died: tenants whose fault may be the cause get workers of their
 * own. */
void weir_sup_quarantine_begin(struct weir_supervisor *sup, int worker);
/**
 * A worker has died: if its tenant's quarantine is over, or it has long had a key, the tenant moves
 * to the shared worker, and this one is not restarted.
 * @return whether the tenant moves
 */
bool weir_sup_quarantine_end(struct weir_supervisor *sup, int worker);
/** Finish the search for causes of faults under MPS. Ask the workers of tenants whose quarantine
 * has ended whether they can end. */
void weir_sup_faults_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Wake the loop when weir_sup_faults_tick() must act on a quarantine. */
void weir_sup_faults_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Fill a tenant's row with its faults. */
void weir_sup_faults_show(const struct weir_sup_tenant *tenant, struct weir_status_tenant *row);

/* user_tenants.c */

struct weir_peer;

/** Permissions of a tenant's socket. */
mode_t weir_sup_tenant_mode(const struct weir_supervisor *sup,
                            const struct weir_sup_tenant *tenant);
/**
 * The tenant of a program that has connected to a tenant's socket: that tenant, or the user's own.
 * @param fd  the connection; if NULL is returned, it was refused.
 */
struct weir_sup_tenant *weir_sup_tenant_of_peer(struct weir_supervisor *sup,
                                                struct weir_sup_tenant *tenant,
                                                const struct weir_peer *peer, int fd);
/** Apply a changed configuration to users' tenants. */
void weir_sup_user_tenants_follow(struct weir_supervisor *sup);
/** Wake the loop when a user's tenant may be removed. */
void weir_sup_user_tenants_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Remove users' tenants that have had no program for a while. */
void weir_sup_user_tenants_tick(struct weir_supervisor *sup, uint64_t now_ns);

/* grants.c */

/** A worker asks for more of the machine's memory for a tenant: grant it if the tenant's holder may
 * have more, and answer. */
void weir_sup_grant(struct weir_supervisor *sup, int worker, const struct weir_link_more *more);

/* directory.c */

/** @return false: this process can open no more descriptors */
bool weir_sup_directory_open(struct weir_supervisor *sup);
/** Take over the last supervisor's entries. */
void weir_sup_directory_adopt(struct weir_supervisor *sup);
void weir_sup_directory_close(struct weir_supervisor *sup);
/** Add an entry that a worker publishes, and answer. @param fd taken; -1: none */
void weir_sup_publish(struct weir_supervisor *sup, int worker, const struct weir_link_entry *entry,
                      int fd);
/** Find an entry that a worker asks for, and answer. */
void weir_sup_find(struct weir_supervisor *sup, int worker, const struct weir_link_entry *entry);
/** End one use of an entry by a worker that published or found it. */
void weir_sup_withdraw(struct weir_supervisor *sup, int worker,
                       const struct weir_link_entry *entry);
/** Watch for guests that close their descriptors. */
void weir_sup_directory_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Handle descriptors that guests have closed. */
void weir_sup_directory_look(struct weir_supervisor *sup);
/** A worker has died: end all its uses of entries. */
void weir_sup_directory_worker_gone(struct weir_supervisor *sup, int worker);
/** A tenant is removed: drop all entries that it has published. */
void weir_sup_directory_tenant_gone(struct weir_supervisor *sup,
                                    const struct weir_sup_tenant *tenant);
/** Memory that is charged to the tenant and to none of its workers: of devices, or pinned. */
uint64_t weir_sup_directory_bytes(const struct weir_sup_tenant *tenant,
                                  enum weir_account_item item);

/* remarks.c */

#define WEIR_SUP_MEMORY_REMARK                                                                     \
    "the memory quotas promise %u %% of a GPU's memory: who asks late may get none"

/** Log which changed keys of a reloaded configuration need a restart. */
void weir_sup_remark_restart(const struct weir_supervisor *sup, const struct weir_host_config *now);
/**
 * How much memory of its devices a tenant's programs may use together, in bytes. 0: all of it, or
 * the quota is a percentage of a size that no worker has reported yet.
 */
uint64_t weir_sup_quota_bytes(const struct weir_supervisor *sup,
                              const struct weir_sup_tenant *tenant);
/**
 * The memory of the devices of a tenant with these settings, in bytes; if no worker has reported
 * it, that of all the host's devices. 0: no worker has reported any.
 */
uint64_t weir_sup_device_bytes(const struct weir_supervisor *sup,
                               const struct weir_tenant_config *config);
/** The percentage of a GPU's memory promised by quotas; the highest of all lists of devices. */
uint32_t weir_sup_promised_pct(const struct weir_supervisor *sup);
/** Log a promised percentage above 100, once for each value. */
void weir_sup_remark_memory(struct weir_supervisor *sup);
/** Log the tenants that have a key although no worker listens for remote guests. */
void weir_sup_remark_keys(const struct weir_supervisor *sup);

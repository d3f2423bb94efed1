/*
 * Which worker a tenant's programs and machines go to, by its settings.
 *
 * All of it: the supervisor's thread.
 *
 * Source: docs/design/workers.md
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_WORKERS_WORKER_FOR_H
#define WEIR_HOST_BACKEND_SUPERVISOR_WORKERS_WORKER_FOR_H

#include "host_backend/supervisor/state/supervisor.h"

/** Does each of the tenant's programs get a worker of its own? */
bool weir_sup_by_program(const struct weir_sup_tenant *tenant);
/** May guests of the tenant come by TCP? */
bool weir_sup_has_remote_guests(const struct weir_supervisor *sup,
                                const struct weir_sup_tenant *tenant);
/** Do its guests outside this machine's processes use a shared worker, apart from quarantine? Where
 * each program has a worker, that is so if the tenant has remote guests. */
bool weir_sup_uses_shared_worker(const struct weir_supervisor *sup,
                                 const struct weir_sup_tenant *tenant);
/** May its workers neither be under MPS nor serve two programs at a time? */
bool weir_sup_is_strict(const struct weir_sup_tenant *tenant);
/** Are new programs of the tenant let in? */
enum weir_drain weir_sup_drain_of(const struct weir_supervisor *sup,
                                  const struct weir_sup_tenant *tenant);
/** Is the worker of its guests that are no processes of this machine, or of all its guests, for
 * this tenant alone? */
bool weir_sup_has_own_worker(const struct weir_supervisor *sup,
                             const struct weir_sup_tenant *tenant);
/** Is it a worker of one of the tenant's programs? */
bool weir_sup_is_of_program(const struct weir_sup_worker *w, const struct weir_sup_tenant *tenant);
/** The list of a tenant's devices, as its worker has it. */
const char *weir_sup_devices_of(const struct weir_supervisor *sup,
                                const struct weir_sup_tenant *tenant);
/**
 * The worker that a tenant's programs share, or its machines if each program has one of its own.
 * Starts it if it does not exist. -1: it cannot start, which is logged.
 */
int weir_sup_worker_for(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);
/**
 * New settings for a tenant that there is: those that choose its worker change with a restart of
 * the host. Logs which one is different.
 * @param settings  gets isolation, group and devices back as the tenant's worker has them.
 * @return true: none is
 */
bool weir_sup_worker_keep(const struct weir_sup_tenant *tenant,
                          struct weir_tenant_config *settings);

/** Is it one of the workers that have the tenant's work? */
bool weir_sup_serves(const struct weir_supervisor *sup, int worker,
                     const struct weir_sup_tenant *tenant);
/** The worker of the tenant's machines, started if it does not exist. -1: it cannot start. */
int weir_sup_machine_worker(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Is the tenant's worker ready, with nothing left to read? */
bool weir_sup_takes_guests(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);

#endif

/*
 * Chooses the worker for a tenant's programs and machines, by its settings.
 *
 * All functions: @thread the supervisor's.
 *
 * Source: docs/design/workers.md
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_WORKERS_WORKER_FOR_H
#define WEIR_HOST_BACKEND_SUPERVISOR_WORKERS_WORKER_FOR_H

#include "host_backend/supervisor/state/supervisor.h"

/** Does each of the tenant's programs get a worker of its own? */
bool weir_sup_by_program(const struct weir_sup_tenant *tenant);
/** May guests of the tenant connect by TCP? */
bool weir_sup_has_remote_guests(const struct weir_supervisor *sup,
                                const struct weir_sup_tenant *tenant);
/** Do the tenant's remote guests and virtual machines use a shared worker, apart from quarantine?
 * If each program has a worker, they do if the tenant has remote guests. */
bool weir_sup_uses_shared_worker(const struct weir_supervisor *sup,
                                 const struct weir_sup_tenant *tenant);
/** Must the tenant's workers stay outside MPS and serve one program at a time? */
bool weir_sup_is_strict(const struct weir_sup_tenant *tenant);
/** Are new programs of the tenant accepted? */
enum weir_drain weir_sup_drain_of(const struct weir_supervisor *sup,
                                  const struct weir_sup_tenant *tenant);
/** Does the tenant alone have the worker of its remote guests and virtual machines, or of all its
 * guests? */
bool weir_sup_has_own_worker(const struct weir_supervisor *sup,
                             const struct weir_sup_tenant *tenant);
/** Is this a worker for one of the tenant's programs? */
bool weir_sup_is_of_program(const struct weir_sup_worker *w, const struct weir_sup_tenant *tenant);
/** A tenant's list of devices, in the form in which its worker has it. */
const char *weir_sup_devices_of(const struct weir_supervisor *sup,
                                const struct weir_sup_tenant *tenant);
/**
 * The worker that a tenant's programs share or, if each program has its own, the worker of its
 * machines. It is started if it does not exist. -1: it cannot start, which is logged.
 */
int weir_sup_worker_for(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);
/**
 * An existing tenant gets new settings: keep those that choose its worker, since they change only
 * with a restart of the host. Logs a changed one.
 * @param settings  isolation, group and devices are set to the values of the tenant's worker.
 * @return true: none was changed
 */
bool weir_sup_worker_keep(const struct weir_sup_tenant *tenant,
                          struct weir_tenant_config *settings);

/** Does the worker have work of the tenant? */
bool weir_sup_serves(const struct weir_supervisor *sup, int worker,
                     const struct weir_sup_tenant *tenant);
/** The worker of the tenant's machines, started if it does not exist. -1: it cannot start. */
int weir_sup_machine_worker(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Is the tenant's worker ready, and has it read all its messages? */
bool weir_sup_takes_guests(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);

#endif

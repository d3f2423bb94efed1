/*
 * Chooses the worker for a tenant's programs and machines, by its settings.
 *
 * All functions: @thread the supervisor's.
 *
 * Source: docs/design/workers.md
 */
#pragma once

#include "host_backend/supervisor/state/placement.h"
#include "host_backend/supervisor/state/supervisor.h"

/** Are new programs of the tenant accepted? */
enum weir_drain weir_sup_drain_of(const struct weir_supervisor *sup,
                                  const struct weir_sup_tenant *tenant);
/** Does the tenant alone have the worker of its remote guests and virtual machines, or of all its
 * guests? */
bool weir_sup_has_own_worker(const struct weir_supervisor *sup,
                             const struct weir_sup_tenant *tenant);
/** Is this a worker for one of the tenant's programs? */
bool weir_sup_is_of_program(const struct weir_sup_worker *w, const struct weir_sup_tenant *tenant);
/**
 * The worker that a tenant's programs share or, if each program has its own, the worker of its
 * machines. It is started if it does not exist. -1: it cannot start, which is logged.
 */
int weir_sup_worker_for(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);

/** Does the worker have work of the tenant? */
bool weir_sup_serves(const struct weir_supervisor *sup, int worker,
                     const struct weir_sup_tenant *tenant);
/** The worker of the tenant's machines, started if it does not exist. -1: it cannot start. */
int weir_sup_machine_worker(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Is the tenant's worker ready, and has it read all its messages? */
bool weir_sup_takes_guests(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);

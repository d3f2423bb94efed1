/*
 * What a tenant's settings say of its workers: how many programs share one, and which devices they
 * have.
 *
 * All functions: @thread main
 */
#pragma once

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
/** A tenant's list of devices, in the form in which its worker has it. */
const char *weir_sup_devices_of(const struct weir_supervisor *sup,
                                const struct weir_sup_tenant *tenant);
/** The group whose worker the tenant shares; "": none. */
const char *weir_sup_group_of(const struct weir_sup_tenant *tenant);
/**
 * An existing tenant gets new settings: keep those that choose its worker, since they change only
 * with a restart of the host. Logs a changed one.
 * @param settings  isolation, group and devices are set to the values of the tenant's worker.
 * @return true: none was changed
 */
bool weir_sup_worker_keep(const struct weir_sup_tenant *tenant,
                          struct weir_tenant_config *settings);

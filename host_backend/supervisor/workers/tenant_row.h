/* A tenant as a row of the keeper's book (tenant_row.c). All functions: @thread main */
#pragma once

#include "host_backend/supervisor/state/supervisor.h"
#include <stdio.h>

/** Write down a tenant for the next supervisor. */
void weir_sup_tenant_note(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Like weir_sup_tenant_note(), for tenants that had a fault, or whose quarantine has changed. */
void weir_sup_tenants_note_faults(struct weir_supervisor *sup, uint64_t now_ns);
/** Take over the last supervisor's tenants, each in its slot; the configuration follows. */
void weir_sup_tenants_adopt(struct weir_supervisor *sup);

/** Write a line with the settings that are not the usual ones. */
void weir_sup_tenant_write(FILE *file, const struct weir_tenant_config *config);
/** Read such a line, without its end. @param line  changed. @return WEIR_OK, WEIR_ERR_INVALID */
enum weir_status weir_sup_tenant_read(char *line, struct weir_tenant_config *ret_config,
                                      struct weir_diag *diag) WEIR_MUST_CHECK;

/* The CDI specification of a running host. */
#pragma once

#include "host_backend/config/control.h"
#include <stdio.h>

/**
 * Write it as the host writes it, from this installation's files.
 *
 * @param output  a file to put in place of the old one; NULL: to `out`.
 * @param names   only the names of the devices, to `out`.
 * @return WEIR_OK, WEIR_ERR_NOT_FOUND (no guest library, no run directory, or no device)
 * @return else as weir_cdi_write(), weir_cdi_store()
 * @thread main
 */
enum weir_status weir_cdi_generate(const struct weir_status_report *report, FILE *out,
                                   const char *output, bool names) WEIR_MUST_CHECK;

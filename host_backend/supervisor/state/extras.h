/* Services of the host beside the GPU (extras.def). All functions: @thread main */
#pragma once

#include "host_backend/supervisor/state/supervisor.h"

#define WEIR_EXTRAS_AGAIN_S 5 /* pause between attempts; each costs a system call */

/** The extra's name, for people and programs. */
const char *weir_sup_extra_name(enum weir_extra extra);
/** Note that the configuration asks for the extra, and that it works. */
void weir_sup_extra_works(struct weir_supervisor *sup, enum weir_extra extra);
/** Note that the configuration asks for the extra, and that it fails. Logs a reason that is new.
 * @param why  for people, a format. */
void weir_sup_extra_fails(struct weir_supervisor *sup, enum weir_extra extra, const char *why, ...)
    WEIR_PRINTF(3, 4);
/** Note that the configuration no longer asks for the extra. */
void weir_sup_extra_unwanted(struct weir_supervisor *sup, enum weir_extra extra);

/*
 * Twins that share SMs with another kernel's blocks.
 *
 * An SM divides its memory between cache and shared memory while it is empty; as long as blocks are
 * on it the division stays. A kernel without shared memory sets hardly any aside, and while its
 * blocks never all leave an SM, no block that needs more ever gets there: beside a quota of one
 * block an SM, another kernel's ran on the few SMs that the first did not reach, at a thirtieth of
 * its speed (H200, 2026-11-23). So who shares SMs sets all aside that can be.
 *
 * Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 9.0.
 */
#ifndef WEIR_HOST_BACKEND_FORMS_BESIDE_H
#define WEIR_HOST_BACKEND_FORMS_BESIDE_H

#include "proto/driver_table.h"
#include <stdbool.h>

/* Of one twin; zeroes: it does not share. */
struct weir_forms_beside {
    bool shares;
    int carveout; /* its own, as the function attribute has it; while it shares */
};

/**
 * See to a twin's carve-out before it is launched. Costs two driver calls where that changes.
 *
 * @param twin    of the current context.
 * @param shares  does the launch leave room on its SMs for others' blocks?
 * @param beside  of this twin. Where the driver refuses, nothing changes, and it is asked again
 *                with the next launch.
 * @thread the session's
 */
void weir_forms_beside_set(const struct weir_driver *driver, CUfunction twin, bool shares,
                           struct weir_forms_beside *beside);

#endif

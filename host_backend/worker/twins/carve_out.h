/*
 * The carve-out of twins: shared memory that a twin sets aside on an SM for its neighbours.
 *
 * An SM divides its memory between cache and shared memory only while it is empty. A kernel without
 * shared memory leaves hardly any, and while its blocks never all leave an SM, no block that needs
 * more gets there. Beside a kernel with a block limit of one, another kernel ran at a thirtieth of
 * its speed, on the few SMs that the first did not reach (H200, 2026-11-23). So a twin that shares
 * SMs also sets aside what its neighbours need.
 *
 * It sets aside no more, since the cache loses it. With all of it set aside, or 32 KiB where 16
 * suffice, spmv takes twice as long, and so does rg beside it, because of the memory's bandwidth.
 * What both got done fell from 1.57 of one alone to 0.86 when both ended at once, so that empty SMs
 * were divided anew (H200, 2026-11-23).
 *
 * The grant says how much they need, since they may be in other workers (gate/process/needs.c).
 *
 * Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 9.0.
 */
#pragma once

#include "proto/driver_table.h"
#include <stdbool.h>
#include <stdint.h>

/* A twin's carve-out. Zeroed: the twin shares no SMs. */
struct weir_forms_carve_out {
    bool shares;
    int own; /* while it shares SMs: the earlier value of the attribute */
    int set; /* while it shares SMs: the new value of the attribute */
};

/**
 * Set a twin's carve-out before it is launched. Costs two driver calls if it changes.
 *
 * @param twin     of the current context.
 * @param the part of an SM's shared memory to set aside, 0 .. 100, if the launch leaves room on its
 *                 SMs for others' blocks; WEIR_FORMS_NO_CARVEOUT: it leaves none.
 * @param carve_out  of this twin. If the driver refuses, nothing changes, and the next launch tries
 *                 again.
 * @thread the session's
 */
void weir_forms_carve_out_set(const struct weir_driver *driver, CUfunction twin, int percent,
                              struct weir_forms_carve_out *carve_out);

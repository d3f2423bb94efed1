/*
 * The carve-out of twins: shared memory that a twin sets aside on an SM for its neighbours.
 *
 * An SM divides its memory between cache and shared memory while it is empty; as long as blocks are
 * on it the division stays. A kernel without shared memory sets hardly any aside, and while its
 * blocks never all leave an SM, no block that needs more ever gets there. Next to a kernel with a
 * block limit of one block an SM, another kernel's blocks ran only on the few SMs that the first
 * did not reach, at a thirtieth of its speed (H200, 2026-11-23). So a twin that shares SMs sets
 * aside what its neighbours need, too.
 *
 * It sets aside no more than that, because the cache loses it. With all of it set aside, or 32 KiB
 * where 16 suffice, spmv takes twice as long, and so does rg next to it, because of the memory's
 * bandwidth (1.57 of one alone became 0.86 when both ended at once, so that the SMs were empty and
 * divided anew; H200, 2026-11-23).
 *
 * At a launch the neighbour is unknown. But policies give two kernels together no
 * more than an SM holds, a block of a kernel being 1/blocks of it. So it is enough to fill what a
 * block limit leaves with blocks of the one kernel that needs most, of those that other sessions
 * launched lately.
 *
 * Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 9.0.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_TWINS_CARVE_OUT_H
#define WEIR_HOST_BACKEND_WORKER_TWINS_CARVE_OUT_H

#include "proto/driver_table.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR_FORMS_NEEDS    16u         /* most kernels remembered for a device */
#define WEIR_FORMS_NEEDS_NS 1000000000u /* how long a launched kernel is remembered */

/* How much of an SM a kernel's twin needs. */
struct weir_forms_need {
    const void *kernel;   /* identifies the kernel with all its twins; never dereferenced */
    const void *owner;    /* identifies the session; never dereferenced */
    uint64_t block_bytes; /* weir_forms_block_bytes() */
    uint32_t per_sm;      /* blocks that fit on an SM */
};

/* The kernels that were launched lately. Empty: zeroes and an initialized lock. */
struct weir_forms_needs {
    pthread_mutex_t lock;
    struct weir_forms_need of[WEIR_FORMS_NEEDS];
    uint64_t at_ns[WEIR_FORMS_NEEDS];
};

/* A twin's carve-out. Zeroes: it does not share SMs. */
struct weir_forms_carve_out {
    bool shares;
    int own; /* while it shares SMs: the function attribute's value before */
    int set; /* while it shares SMs: the value that the attribute was given */
};

/**
 * Note a kernel that is about to be launched, and say how much its SMs should set aside.
 *
 * @param own          what the kernel needs.
 * @param block_limit  most blocks of it on an SM, 1 or more.
 * @param now_ns       weir_clock_now_ns().
 * @return KiB: room for block_limit blocks, and in what they leave of an SM for the kernel that
 *         needs most there, of other owners' that were noted within WEIR_FORMS_NEEDS_NS.
 * @thread any
 */
uint32_t weir_forms_needs_kib(struct weir_forms_needs *needs, const struct weir_forms_need *own,
                              uint32_t block_limit, uint64_t now_ns);

/**
 * Set a twin's carve-out before it is launched. Costs two driver calls if it changes.
 *
 * @param twin     of the current context.
 * @param percent  of an SM's shared memory it is to set aside, 0 .. 100, because the launch leaves
 *                 room on its SMs for others' blocks; WEIR_FORMS_NO_CARVEOUT: it does not.
 * @param carve_out  of this twin. Where the driver refuses, nothing changes, and it is asked again
 *                 with the next launch.
 * @thread the session's
 */
void weir_forms_carve_out_set(const struct weir_driver *driver, CUfunction twin, int percent,
                              struct weir_forms_carve_out *carve_out);

#endif

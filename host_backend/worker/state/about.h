/*
 * The inside of a session: what other threads may read of it. Statistics, accounts and the sessions
 * of the same tenant read it under the worker's lock.
 */
#pragma once

#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/unknown_ops.h"
#include <stdatomic.h>

#define WEIR_FORMS_LAUNCHED_COUNT 15u /* number of rows of twins/counts.def */

struct weir_gate_queue;
struct weir_stats_set;

struct weir_session_about {
    /* Constant. */
    int64_t pid;
    uint32_t guest_pid; /* the pid that the guest reports, shown to other guests of the tenant */
    bool monitor;       /* a monitor: it only asks, and nothing is registered for it */
    char program[128];
    uint64_t started_ns;
    struct weir_limit_wish wish;
    struct weir_unknown_ops unknown;
    uint32_t number; /* number among the tenant's programs (base/programs.h); 0: none */

    /* The session's thread. */
    bool unknown_told;  /* the log says that the program used an operation of these */
    bool launches_told; /* the log says that the program cannot launch kernels from kernels */
    char refused[256];  /* why memory was last refused, for the program's user; "": never */
    bool lasts, gone;   /* set by weir_session_lasts(), weir_session_gone() */

    /* The session's thread writes these, any thread may read them. */
    atomic_uint_fast64_t calls_total;
    atomic_uint_fast64_t held_bytes;
    atomic_uint_fast64_t device_bytes[WEIR_DEVICES_MAX]; /* held_bytes of each device */
    atomic_uint_fast64_t opened_bytes;                   /* device memory of other programs */
    atomic_uint_fast64_t objects;
    atomic_uint_fast64_t pinned_bytes;       /* pinned host memory */
    atomic_uint_fast64_t managed_host_bytes; /* managed memory that found no room on a device */
    atomic_uint n_contexts;
    atomic_bool ended;                /* set by weir_session_ended() on any thread */
    atomic_uint_fast64_t orphaned_ns; /* when its program left work behind; 0: never */
    struct weir_gate_queue *_Atomic gate_queues[WEIR_DEVICES_MAX]; /* made at the first use */
    atomic_uint_fast64_t launched[WEIR_FORMS_LAUNCHED_COUNT];      /* by enum weir_forms_launched */

    struct weir_stats_set *stats; /* a remote guest's last statistics; under the worker's lock */
};

/*
 * What the worker recorded of one piece of work of a profiled call: a kernel, a graph, a copy or a
 * memset. The guest asks for records with the operation profile_take.
 *
 * A graph is one record, or one for each of its kernels, copies and memsets. The guest knows what a
 * call launched, but not what a graph contains: records of its nodes say that.
 *
 * Times are nanoseconds of the host's clock (CLOCK_MONOTONIC of the host's machine).
 *
 * Source: docs/design/profiling.md
 */
#pragma once

#include <stdint.h>

/* Kind of the work, numbered as the scheduler's classes. */
enum weir_profile_class {
    WEIR_PROFILE_KERNEL,
    WEIR_PROFILE_GRAPH,
    WEIR_PROFILE_H2D,
    WEIR_PROFILE_D2H,
    WEIR_PROFILE_D2D,
    WEIR_PROFILE_MEMSET,
    WEIR_PROFILE_CLASSES
};

/* Why work waited, numbered as the scheduler's causes (sched/causes.def), with one more: */
enum weir_profile_cause {
    WEIR_PROFILE_ALONE, /* no other tenant had work: it waited for its own tenant's earlier work */
    WEIR_PROFILE_OWN,
    WEIR_PROFILE_LIMIT,
    WEIR_PROFILE_CLASS,
    WEIR_PROFILE_TURN,
    WEIR_PROFILE_STARVED,
    WEIR_PROFILE_FLIGHT,
    WEIR_PROFILE_DOMAIN,
    WEIR_PROFILE_LINGER,
    WEIR_PROFILE_IDLE,
    WEIR_PROFILE_CAUSES
};

struct weir_profile_record {
    uint64_t begin_ns;   /* the device began the work .. */
    uint64_t end_ns;     /* .. and had done it */
    uint64_t arrived_ns; /* the work came to the gate */
    uint64_t waited_ns;  /* how long it waited there */
    uint64_t bytes;      /* of copies and memsets */
    uint32_t call;       /* the guest's number of the call (struct weir_record, profile) */
    uint8_t class;       /* enum weir_profile_class */
    uint8_t cause;       /* enum weir_profile_cause: the last reason why the work waited */
    uint16_t device;     /* index in the welcome */
    uint32_t node;       /* the graph's node that this is, from 1; 0: it is none. Of nodes only: */
    uint32_t value;      /* a memset's */
    uint64_t function;   /* a kernel's handle; 0: not known */
    uint32_t grid[3], block[3];
    uint32_t shared_bytes; /* asked by the launch */
    uint32_t reserved;
};
_Static_assert(sizeof(struct weir_profile_record) == 96, "layout on the wire");

/* In the header of a request, beside a call's number: a graph is one record. */
#define WEIR_PROFILE_WHOLE_GRAPHS 0x80000000u

/* Most records that a worker keeps for a session, and most in one reply. */
#define WEIR_PROFILE_RECORDS_MAX 16384u

/*
 * Why items of a trace waited: what the policy justifies, and what is left.
 *
 * The wait of an item goes from its arrival to its grant, and from a stop to the resume. Each
 * moment of it has one cause (tl_tail_causes.def). Under `fair` an item may wait while its tenant
 * is not behind its share by more than its slice and its longest item; beyond that, only for what
 * was on the device already. docs/design/simulation.md explains the rules and what they cannot see.
 *
 * Owner thread only.
 */
#pragma once

#include "base/status.h"
#include "sched/trace/trace.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tl_tail_cause {
#define TL_TAIL_CAUSE(name, word, explained, text) TL_TAIL_##name,
#include "tests/lib/tl_tail_causes.def"
#undef TL_TAIL_CAUSE
    TL_TAIL_COUNT
};

extern const struct tl_tail_cause_info {
    const char *word, *text;
    bool is_explained;
} tl_tail_causes[TL_TAIL_COUNT];

/* What an item waited, by cause. */
struct tl_tail_wait {
    uint32_t tenant;  /* index */
    uint8_t class;    /* enum weir_sched_class */
    uint8_t ended_by; /* the kind of the last event before its grant: enum weir_sched_record_kind */
    weir_sched_id queue, item;
    uint64_t arrived_ns; /* since the trace began */
    uint64_t waited_ns;
    uint64_t cause_ns[TL_TAIL_COUNT];
    uint64_t unexplained_ns; /* sum of those that are not explained */
};

struct tl_tail_tenant {
    char name[WEIR_SCHED_TRACE_NAME_BYTES];
    uint32_t weight;
    uint8_t priority;
    uint64_t items; /* that were granted, or still waited in the end */
    uint64_t waited_ns, longest_ns;
    uint64_t cause_ns[TL_TAIL_COUNT];
    uint64_t longest_by_cause_ns[TL_TAIL_COUNT]; /* of one item */
    uint64_t unexplained_ns, longest_unexplained_ns;
};

struct tl_tail {
    struct tl_tail_tenant *tenants;
    uint32_t n_tenants;
    struct tl_tail_wait *worst; /* most unexplained first; none with nothing unexplained */
    uint32_t n_worst;
    uint64_t lost;    /* records that the recording has not */
    uint64_t unknown; /* records about what came before the recording */
    uint64_t ns;      /* how long the trace is */
};

/**
 * @param data       a trace; borrowed for the call.
 * @param n_worst    how many waits to keep.
 * @param ret_tail   tl_tail_finish().
 * @param ret_error  filled in at WEIR_ERR_SYNTAX and WEIR_ERR_VERSION.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_SYNTAX, WEIR_ERR_VERSION
 * @thread any
 */
enum weir_status tl_tail_read(const void *data, uint64_t bytes, uint32_t n_worst,
                              struct tl_tail *ret_tail,
                              struct weir_sched_trace_error *ret_error) WEIR_MUST_CHECK;

/** Frees what it holds. @thread owner */
void tl_tail_finish(struct tl_tail *tail);

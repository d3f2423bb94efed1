/*
 * The statistics page of a co-located session: how often the guest called each function, and how
 * long it waited.
 *
 * Part of the shared segment. The guest alone writes it: names once, when the session starts, then
 * counters, each block by one thread at a time (block 0 by all, atomically). So a reader that sums
 * the blocks sees every call that has ended, also after the guest is gone. The host only reads, and
 * trusts nothing: it copies, cuts names at the first character that no symbol has, and its
 * arithmetic is safe for any value.
 *
 * Source: docs/design/stats.md
 */
#pragma once

#include <stdint.h>

#define WEIR_STATS_MAGIC         0x31535457u /* "WTS1" */
#define WEIR_STATS_NAME_BYTES    64
#define WEIR_STATS_MAX_FUNCTIONS 1024
#define WEIR_STATS_BLOCKS        16

/* One function's numbers. Times are in nanoseconds. */
struct weir_stats_counts {
    uint64_t guest;   /* calls answered in the guest */
    uint64_t posted;  /* calls that sent a record and did not wait */
    uint64_t waited;  /* calls that waited for the host or the GPU */
    uint64_t wait_ns; /* time of the waited calls, each from its first wait to its end */
    uint64_t max_ns;  /* the longest time of a waited call */
    /* Time of the other calls; only while calls are timed (WEIR_STATS, WEIR_TRACE). */
    uint64_t busy_ns;
};

struct weir_stats_page {
    uint32_t magic; /* written last; 0: the guest does not count */
    uint32_t n_functions;
    uint8_t pad[56];
    char names[WEIR_STATS_MAX_FUNCTIONS][WEIR_STATS_NAME_BYTES];
    struct weir_stats_counts blocks[WEIR_STATS_BLOCKS][WEIR_STATS_MAX_FUNCTIONS];
};

/* One function's sum, as a remote guest sends it. */
struct weir_stats_row {
    char name[WEIR_STATS_NAME_BYTES]; /* NUL-terminated */
    struct weir_stats_counts counts;
};

_Static_assert(sizeof(struct weir_stats_row) == 112, "layout on the wire");
_Static_assert(sizeof(struct weir_stats_counts) == 48, "layout shared between processes");
_Static_assert(sizeof(struct weir_stats_page) == 64 + 65536 + 786432, "layout shared");

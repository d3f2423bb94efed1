/*
 * Times of the device's work by NVIDIA's libcupti, where the host has it.
 *
 * libcupti records for the whole process. The thread that gives work to the driver names its owner
 * by an id; each record comes back with the id, and goes to the *sink* that made it, to no other.
 * While nobody records, the library is not even loaded; after the last one has ended, its
 * activities are off.
 *
 * Source: docs/design/profiling.md
 */
#pragma once

#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_cupti_sink; /* owned by one thread */

/* A kernel, copy or memset that has ended. */
struct weir_cupti_record {
    uint64_t begin_ns, end_ns; /* of the host's monotonic clock */
    uint64_t bytes;            /* of copies and memsets */
    const char *name;          /* a kernel's; else NULL. Valid until the sink is closed */
    uint32_t id;               /* from weir_cupti_push() */
    uint32_t node;             /* in a graph: a number that only this node of it has; 0: in none */
    uint32_t value;            /* a memset's */
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint8_t class; /* enum weir_profile_class; no graph */
};

/**
 * Begin to record for a session.
 * @param wanted  path of libcupti; "auto": it is looked for. Borrowed.
 * @return NULL: there is none, or it does not work; the log says why, once
 * @thread any with a context
 */
struct weir_cupti_sink *weir_cupti_open(const char *wanted);

/** Accepts NULL. @thread the sink's */
void weir_cupti_close(struct weir_cupti_sink *sink);

/** What the calling thread gives to the driver until weir_cupti_pop() has this id. @thread the
 * sink's */
void weir_cupti_push(const struct weir_cupti_sink *sink, uint32_t id);
/** @thread the sink's */
void weir_cupti_pop(void);

/**
 * Take the records of work that has ended, in no order.
 * @param ret_lost  how many found no room since the last call.
 * @return the records, valid until the next call; ret_n: how many
 * @thread the sink's
 */
const struct weir_cupti_record *weir_cupti_take(struct weir_cupti_sink *sink, uint32_t *ret_n,
                                                uint32_t *ret_lost);

/** Was it loaded? Then driver calls stay slower, also while nobody records. @thread any */
bool weir_cupti_was_used(void);

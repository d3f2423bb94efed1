/* The address ranges that a session may name. Owner thread only. */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

struct weir_range {
    uint64_t base, bytes;
    const void *owner; /* the object that the range belongs to */
};

/* Sorted by base; a zeroed set is empty. Ranges may overlap (memory opened in its own process). */
struct weir_range_set {
    struct weir_range *ranges; /* owned */
    size_t n, room;
};

/** Add [base, base + bytes). WEIR_ERR_INVALID (empty or past the end), WEIR_ERR_NO_MEMORY. */
enum weir_status weir_host_range_add(struct weir_range_set *set, uint64_t base, uint64_t bytes,
                                     const void *owner) WEIR_MUST_CHECK;

/** Remove all ranges of an owner. */
void weir_host_range_remove(struct weir_range_set *set, const void *owner);

/** Remove the range of an owner that begins at base, if there is one. */
void weir_host_range_remove_at(struct weir_range_set *set, uint64_t base, const void *owner);

/** Find the range that contains address, in a set without overlaps; borrowed. NULL: none. */
const struct weir_range *weir_host_range_find(const struct weir_range_set *set, uint64_t address);

/** Is every byte of [base, base + bytes) in some range? Adjacent ranges count as one. */
bool weir_host_range_covers(const struct weir_range_set *set, uint64_t base, uint64_t bytes);

/** Free the memory; the set is empty afterwards. */
void weir_host_range_finish(struct weir_range_set *set);

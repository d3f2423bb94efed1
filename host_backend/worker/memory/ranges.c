/* The address ranges that a session may name: a sorted array with a binary search. */
#include "host_backend/worker/memory/ranges.h"

#include "base/grow.h"
#include <stdlib.h>
#include <string.h>

/* The number of ranges whose base is at most address. */
static size_t upper(const struct weir_range_set *set, uint64_t address)
{
    size_t low = 0, high = set->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (set->ranges[middle].base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

enum weir_status weir_host_range_add(struct weir_range_set *set, uint64_t base, uint64_t bytes,
                                     const void *owner)
{
    WEIR_FAIL_IF(bytes == 0 || base + bytes < base, WEIR_ERR_INVALID);
    WEIR_FAIL_IF(!WEIR_GROW(set->ranges, set->n, set->room), WEIR_ERR_NO_MEMORY);
    size_t at = upper(set, base);
    memmove(set->ranges + at + 1, set->ranges + at, (set->n - at) * sizeof *set->ranges);
    set->ranges[at] = (struct weir_range){base, bytes, owner};
    set->n++;
    return WEIR_OK;
}

void weir_host_range_remove(struct weir_range_set *set, const void *owner)
{
    size_t left = 0;

    for (size_t i = 0; i < set->n; i++) {
        if (set->ranges[i].owner != owner) {
            set->ranges[left++] = set->ranges[i];
        }
    }
    set->n = left;
}

void weir_host_range_remove_at(struct weir_range_set *set, uint64_t base, const void *owner)
{
    for (size_t at = upper(set, base); at > 0 && set->ranges[at - 1].base == base; at--) {
        if (set->ranges[at - 1].owner == owner) {
            memmove(set->ranges + at - 1, set->ranges + at, (set->n - at) * sizeof *set->ranges);
            set->n--;
            return;
        }
    }
}

const struct weir_range *weir_host_range_find(const struct weir_range_set *set, uint64_t address)
{
    size_t at = upper(set, address);
    const struct weir_range *r = at > 0 ? &set->ranges[at - 1] : NULL;

    return r && address - r->base < r->bytes ? r : NULL;
}

bool weir_host_range_covers(const struct weir_range_set *set, uint64_t base, uint64_t bytes)
{
    uint64_t at = base, end = base + bytes;

    if (bytes == 0 || end < base) {
        return false;
    }
    while (at < end) {
        uint64_t reached = at;

        /* Overlaps are rare, so the nearest range before almost always decides. */
        for (size_t i = upper(set, at); i > 0 && reached == at; i--) {
            const struct weir_range *r = &set->ranges[i - 1];

            if (r->base + r->bytes > at) {
                reached = r->base + r->bytes;
            }
        }
        if (reached == at) {
            return false;
        }
        at = reached;
    }
    return true;
}

void weir_host_range_finish(struct weir_range_set *set)
{
    free(set->ranges);
    *set = (struct weir_range_set){0};
}

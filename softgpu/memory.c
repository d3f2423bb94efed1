/*
 * The map behind softgpu/memory.h.
 *
 * Writers, under one lock, copy the sorted array of ranges, change the copy, publish it and
 * increment the generation. Readers count themselves in one of two counters (chosen by the low bit
 * of `epoch`), read the published array and leave. To free the old array, a writer changes the
 * epoch and waits until the old epoch's counter is zero: then no earlier reader can hold the array.
 * Readers never wait; writers wait for the few instructions of a search.
 *
 * R1: publishes a finished array; meets A1 in snapshot_enter(). R2: a reader has finished with its
 * array; meets A2 in wait_for_readers().
 */
#include "softgpu/memory.h"

#include "base/thread.h"
#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct snapshot {
    uint32_t n;
    struct weir_soft_range ranges[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct snapshot *current; /* atomic; written under lock */
static uint64_t generation;      /* atomic; written under lock */
static uint32_t epoch;           /* atomic; written under lock */
static uint32_t readers[2];      /* atomic */

static const struct snapshot *snapshot_enter(uint32_t *ret_slot)
{
    for (;;) {
        uint32_t slot = __atomic_load_n(&epoch, __ATOMIC_SEQ_CST) & 1u;
        __atomic_fetch_add(&readers[slot], 1, __ATOMIC_SEQ_CST);
        if ((__atomic_load_n(&epoch, __ATOMIC_SEQ_CST) & 1u) == slot) {
            *ret_slot = slot;
            return __atomic_load_n(&current, __ATOMIC_SEQ_CST); /* A1 */
        }
        __atomic_fetch_sub(&readers[slot], 1, __ATOMIC_RELEASE);
    }
}

static void snapshot_leave(uint32_t slot)
{
    __atomic_fetch_sub(&readers[slot], 1, __ATOMIC_RELEASE); /* R2 */
}

/* Position of the first range that ends after the address. */
static uint32_t search(const struct snapshot *map, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = !map ? 0 : map->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct weir_soft_range *range = &map->ranges[middle];
        if (address >= range->base && address - range->base >= range->bytes) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void wait_for_readers(uint32_t slot)
{
    while (__atomic_load_n(&readers[slot], __ATOMIC_ACQUIRE) != 0) { /* A2 */
        sched_yield();
    }
}

static void publish_locked(struct snapshot *next)
{
    struct snapshot *old = __atomic_exchange_n(&current, next, __ATOMIC_SEQ_CST); /* R1 */
    __atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
    uint32_t before = __atomic_fetch_add(&epoch, 1, __ATOMIC_SEQ_CST);
    wait_for_readers(before & 1u);
    free(old);
}

static struct snapshot *snapshot_alloc(uint32_t n)
{
    struct snapshot *map = malloc(sizeof *map + n * sizeof map->ranges[0]);
    if (map) {
        map->n = n;
    }
    return map;
}

static enum weir_status add_locked(const struct weir_soft_range *range)
{
    const struct snapshot *map = __atomic_load_n(&current, __ATOMIC_RELAXED);
    uint32_t n = !map ? 0 : map->n;
    uint32_t at = search(map, range->base);
    assert(at <= n);
    WEIR_FAIL_IF(at < n && map->ranges[at].base < range->base + range->bytes, WEIR_ERR_EXISTS);
    struct snapshot *next = snapshot_alloc(n + 1);
    WEIR_FAIL_IF(!next, WEIR_ERR_NO_MEMORY);
    if (at != 0) {
        memcpy(next->ranges, map->ranges, at * sizeof next->ranges[0]);
    }
    next->ranges[at] = *range;
    if (at < n) {
        memcpy(&next->ranges[at + 1], &map->ranges[at], (n - at) * sizeof next->ranges[0]);
    }
    publish_locked(next);
    return WEIR_OK;
}

enum weir_status weir_soft_memory_add(uint64_t base, uint64_t bytes, uint32_t access)
{
    if (bytes == 0 || base == 0 || base + bytes < base || access == 0 ||
        (access & ~(WEIR_SOFT_READ | WEIR_SOFT_WRITE)) != 0) {
        return WEIR_ERR_INVALID;
    }
    struct weir_soft_range range = {.base = base, .bytes = bytes, .access = access};
    WEIR_LOCKED(&lock);
    return add_locked(&range);
}

static enum weir_status remove_locked(uint64_t base)
{
    const struct snapshot *map = __atomic_load_n(&current, __ATOMIC_RELAXED);
    uint32_t n = !map ? 0 : map->n;
    uint32_t at = search(map, base);
    WEIR_FAIL_IF(at >= n || map->ranges[at].base != base, WEIR_ERR_NOT_FOUND);
    struct snapshot *next = NULL;
    if (n > 1) {
        next = snapshot_alloc(n - 1);
        WEIR_FAIL_IF(!next, WEIR_ERR_NO_MEMORY);
        memcpy(next->ranges, map->ranges, at * sizeof next->ranges[0]);
        memcpy(&next->ranges[at], &map->ranges[at + 1], (n - 1 - at) * sizeof next->ranges[0]);
    }
    publish_locked(next);
    return WEIR_OK;
}

enum weir_status weir_soft_memory_remove(uint64_t base)
{
    WEIR_LOCKED(&lock);
    return remove_locked(base);
}

uint64_t weir_soft_memory_generation(void)
{
    return __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
}

bool weir_soft_memory_find(uint64_t address, struct weir_soft_range *ret_range)
{
    uint32_t slot;
    const struct snapshot *map = snapshot_enter(&slot);
    uint32_t at = search(map, address);
    bool found = map && at < map->n && address >= map->ranges[at].base;
    if (found) {
        *ret_range = map->ranges[at];
    }
    snapshot_leave(slot);
    return found;
}

bool weir_soft_memory_covers(uint64_t base, uint64_t bytes, uint32_t access)
{
    uint32_t slot;
    const struct snapshot *map = snapshot_enter(&slot);
    uint64_t end = base + bytes;
    uint32_t at = search(map, base);
    bool covered = end >= base;
    while (covered && base < end) {
        covered = map && at < map->n && base >= map->ranges[at].base &&
                  (map->ranges[at].access & access) == access;
        if (covered) {
            base = map->ranges[at].base + map->ranges[at].bytes;
            at++;
        }
    }
    snapshot_leave(slot);
    return covered;
}

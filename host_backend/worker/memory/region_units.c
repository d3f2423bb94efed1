/*
 * Units of a region, and the ends of the sessions that own them.
 * See regions.c for the model.
 */
#include "base/fd.h"
#include "host_backend/worker/memory/region_private.h"

#include "base/clock.h"
#include "host_backend/worker/state/bus_guard.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void weir_region_put(struct region *region)
{
    pthread_mutex_lock(&region->lock);
    bool last = --region->refs == 0;
    pthread_mutex_unlock(&region->lock);
    if (!last) {
        return;
    }
    munmap(region->base, region->about.bytes);
    weir_bus_unguard((uint64_t)(uintptr_t)region->base, region->about.bytes);
    close(region->fd);
    close(region->stop_fd);
    weir_fd_close(region->bell_fd);
    pthread_mutex_destroy(&region->lock);
    free(region->owners);
    free(region);
}

void weir_region_get(struct region *region)
{
    WEIR_LOCKED(&region->lock);
    region->refs++;
}

/* ---------------------------------------------------------------- units */

void weir_region_own_locked(struct region *region, uint32_t unit, uint16_t owner)
{
    region->owners[unit] = owner;
    weir_region_owners(region->base)[unit] = owner;
}

/* Give the pages back to the host, so that the next owner sees zeros. */
static void clear(const struct region *region, uint64_t offset, uint64_t bytes)
{
    if (fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(region->about.offset + offset), (off_t)bytes) != 0) {
        memset(region->base + offset, 0, bytes);
    }
}

bool weir_region_end_is_loose(const struct weir_region_end *end)
{
    return weir_region_is_loose(end->region);
}

bool weir_region_take_locked(struct region *region, uint32_t slot, uint32_t n, uint32_t *ret_unit)
{
    uint32_t run = 0;

    for (uint32_t unit = 1; unit < region->n_units && n != 0; unit++) {
        run = region->owners[unit] == 0 ? run + 1 : 0;
        if (run == n) {
            *ret_unit = unit + 1 - n;
            for (uint32_t i = 0; i < n; i++) {
                weir_region_own_locked(region, *ret_unit + i, (uint16_t)(slot + 1));
            }
            return true;
        }
    }
    return false;
}

static void give_locked(struct region *region, uint32_t unit, uint32_t n)
{
    clear(region, unit * WEIR_REGION_UNIT_BYTES, n * WEIR_REGION_UNIT_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        weir_region_own_locked(region, unit + i, 0);
    }
}

/* The guest's process has ended: free all of its units. */
void weir_region_free_slot_locked(struct region *region, uint32_t slot)
{
    struct weir_region_slot *shared = weir_region_slot(region->base, slot);

    for (uint32_t unit = 1; unit < region->n_units; unit++) {
        if (region->owners[unit] == slot + 1) {
            give_locked(region, unit, 1);
        }
    }
    __atomic_store_n(&shared->session, 0, __ATOMIC_RELEASE);
    region->slots[slot] = (struct slot){.state = SLOT_FREE};
    region->n_used--;
}

uint64_t weir_region_file_offset(const struct weir_region_end *end, uint64_t offset)
{
    return end->region->about.offset + offset;
}

enum weir_status weir_region_take(struct weir_region_end *end, uint64_t bytes, int *ret_fd,
                                  uint64_t *ret_offset)
{
    struct region *region = end->region;
    uint32_t unit = 0;

    WEIR_FAIL_IF(bytes == 0 || bytes > region->about.bytes, WEIR_ERR_QUOTA);
    pthread_mutex_lock(&region->lock);
    bool found = weir_region_take_locked(region, end->slot, weir_region_units(bytes), &unit);
    pthread_mutex_unlock(&region->lock);
    WEIR_FAIL_IF(!found, WEIR_ERR_QUOTA);
    *ret_fd = region->fd;
    *ret_offset = unit * WEIR_REGION_UNIT_BYTES;
    return WEIR_OK;
}

void weir_region_give(struct weir_region_end *end, uint64_t offset, uint64_t bytes)
{
    if (atomic_load(&end->closing)) {
        return;
    }
    WEIR_LOCKED(&end->region->lock);
    give_locked(end->region, (uint32_t)(offset / WEIR_REGION_UNIT_BYTES), weir_region_units(bytes));
}

void weir_region_end_closing(struct weir_region_end *end)
{
    atomic_store(&end->closing, true);
}

/* ---------------------------------------------------------------- ends */

bool weir_region_end_gone(void *user)
{
    struct weir_region_end *end = user;

    return atomic_load(&end->gone) ||
           __atomic_load_n(&weir_region_slot(end->region->base, end->slot)->guest_left,
                           __ATOMIC_ACQUIRE) != 0;
}

/* The session has unmapped its segment. */
void weir_region_end_close(void *user)
{
    struct weir_region_end *end = user;
    struct region *region = end->region;
    struct slot *slot = &region->slots[end->slot];

    pthread_mutex_lock(&region->lock);
    slot->end = NULL;
    if (weir_region_end_gone(end)) {
        weir_region_free_slot_locked(region, end->slot);
    } else {
        slot->state = SLOT_KEPT;
        __atomic_store_n(&weir_region_slot(region->base, end->slot)->session, 0, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&region->lock);
    weir_bus_unguard(end->segment_base, end->segment_bytes);
    weir_region_put(region);
    free(end);
}

static struct weir_ring_control *ring_of(const struct weir_region_end *end, bool to_host)
{
    struct weir_segment_header *header =
        (struct weir_segment_header *)(void *)(end->region->base + end->segment_offset);

    return to_host ? &header->to_host : &header->to_guest;
}

/* Do the guest's half of a futex: wake the sleeping threads. */
bool weir_region_wake_end(struct weir_region_end *end)
{
    uint32_t tail = __atomic_load_n(&ring_of(end, true)->tail, __ATOMIC_RELAXED);
    uint32_t head = __atomic_load_n(&ring_of(end, false)->head, __ATOMIC_RELAXED);
    bool changed = tail != end->tail || head != end->head;
    uint32_t *words =
        (uint32_t *)(void *)(end->region->base + end->segment_offset + WEIR_SEGMENT_PAGE_BYTES);

    end->tail = tail;
    end->head = head;
    weir_futex_wake(&ring_of(end, true)->tail, 1);
    weir_futex_wake(&ring_of(end, false)->head, 1);
    for (uint32_t i = 0; i < WEIR_WORDS_TICKETS; i++) {
        uint32_t *word = &words[end->n_words - WEIR_WORDS_TICKETS + i];
        uint32_t now = __atomic_load_n(word, __ATOMIC_ACQUIRE);

        if (now != end->tickets[i]) {
            end->tickets[i] = now;
            changed = true;
            weir_futex_wake(word, INT32_MAX);
        }
    }
    return changed;
}

bool weir_region_wake_all_locked(struct region *region)
{
    bool changed = false;

    for (uint32_t i = 0; i < WEIR_REGION_SLOTS && region->n_used != 0; i++) {
        if (region->slots[i].end) {
            changed |= weir_region_wake_end(region->slots[i].end);
        }
    }
    return changed;
}

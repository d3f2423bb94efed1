/* The inside of a region. Only region_units.c, regions.c and region_mail.c use it. */
#pragma once

#include "base/thread.h"
#include "host_backend/config/link.h"
#include "host_backend/worker/memory/region.h"
#include "host_backend/worker/memory/vm_clock.h"
#include "proto/transport/region.h"
#include "proto/transport/transport.h"
#include <stdatomic.h>

struct weir_worker;

enum slot_state { SLOT_FREE, SLOT_OPEN, SLOT_KEPT };

struct slot {
    enum slot_state state;
    uint32_t beat;               /* the guest's heartbeat counter as last seen */
    uint64_t beat_ns;            /* value of clock.run_ns when beat last changed */
    struct weir_region_end *end; /* set while the slot is OPEN */
};

struct box {
    uint32_t state; /* state of the mailbox as last seen */
    uint64_t since_ns;
};

struct region {
    struct region *next; /* list of the worker, under the worker's lock */
    struct weir_worker *worker;
    struct weir_link_region about;
    int fd;
    int bell_fd; /* -1: none */
    int stop_fd;
    uint8_t *base; /* mapping of the whole region */
    uint64_t epoch;
    pthread_t thread;
    bool running;
    bool cut;                                /* the file was truncated; only its thread uses this */
    struct box boxes[WEIR_REGION_MAILBOXES]; /* thread's own */

    pthread_mutex_t lock; /* guards what follows */
    bool detached;
    uint32_t refs; /* one reference for the list, one for each end and mail */
    struct weir_vm_clock clock;
    uint32_t n_used; /* number of slots that are not FREE */
    struct slot slots[WEIR_REGION_SLOTS];
    uint8_t boot_id[WEIR_REGION_BOOT_ID_BYTES];
    uint32_t n_units;
    uint16_t *owners; /* slot + 1 for each unit; copied to the region */
};

struct weir_region_end {
    struct region *region;
    uint32_t slot;
    uint64_t segment_offset;
    uint32_t n_words;
    uint64_t segment_base; /* address of the segment if it is guarded against SIGBUS; else 0 */
    uint64_t segment_bytes;
    uint32_t tail, head; /* as last seen; only the region's thread uses this and tickets */
    uint32_t tickets[WEIR_WORDS_TICKETS];
    atomic_bool gone; /* the guest's process has ended */
    atomic_bool closing;
};

struct weir_region_mail {
    struct region *region;
    uint32_t box;
    uint32_t state; /* value of the mailbox's state TAKEN with the guest's number */
    struct weir_hello *hello;
};

/* region_units.c */

void weir_region_get(struct region *region);
/** Drop a reference; the last frees it. */
void weir_region_put(struct region *region);
/** Take units for a slot; false: there is no room. */
bool weir_region_take_locked(struct region *region, uint32_t slot, uint32_t n, uint32_t *ret_unit);
/** Set the owner of one unit: slot + 1, or 0. */
void weir_region_own_locked(struct region *region, uint32_t unit, uint16_t owner);
/** The guest's process has ended: free all of its units. */
void weir_region_free_slot_locked(struct region *region, uint32_t slot);
/** Functions of a session's host end (struct weir_ivshmem_owner). */
bool weir_region_end_gone(void *end);
void weir_region_end_close(void *end);
/** Wake threads that wait for words that this end's guest has changed. @return whether it has
 * changed any */
bool weir_region_wake_end(struct weir_region_end *end);
/** Like weir_region_wake_end(), for all ends. @return whether any guest has changed a word */
bool weir_region_wake_all_locked(struct region *region);

/** May QEMU truncate the region's file, because it has a name and no seals? */
static inline bool weir_region_is_loose(const struct region *region)
{
    return region->about.transport == WEIR_TRANSPORT_DEVDAX;
}

static inline uint32_t weir_region_units(uint64_t bytes)
{
    return (uint32_t)((bytes + WEIR_REGION_UNIT_BYTES - 1) / WEIR_REGION_UNIT_BYTES);
}

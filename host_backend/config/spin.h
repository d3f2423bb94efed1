/*
 * Who may wait by spinning, on the whole machine.
 *
 * A thread that spins sees an event some microseconds earlier than one that sleeps, and takes a
 * core from everybody else meanwhile. That pays only while cores are idle, and no single process
 * can know that: 20 guests and their 20 workers that all spin lose a third of their throughput
 * (docs/measurements.md). So the supervisor decides for all of them.
 *
 * A page of shared memory carries the decision to a worker. Each session counts itself active there
 * once in an epoch; the supervisor reads the number of active sessions and of threads that want a
 * core (/proc/loadavg), and decides who may spin in the next epoch. Each worker, and the gate
 * process, has a page of its own, so one that was taken over can only miscount its own sessions. A
 * worker passes the decision on to its guests by a word in their segments (struct
 * weir_segment_header), because guests are not trusted with a count.
 *
 * The gate process is one thread that others wait for. It counts itself, too, and the page says
 * separately whether it may spin: one core for it saves each waiting thread a wake-up.
 *
 * Guests in virtual machines and remote guests have cores of their own: they decide for themselves.
 */
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How long a thread may poll before it sleeps, even where it may not spin. */
#define WEIR_SHORT_SPIN_NS (15 * WEIR_NS_PER_US)

enum weir_spin_level {
    WEIR_SPIN_NOBODY, /* cores are short: all threads sleep without spinning */
    WEIR_SPIN_GUESTS, /* each active session's guest may spin, its worker thread may not */
    WEIR_SPIN_ALL,
};

/* Shared by the supervisor and one other process. All fields are atomic and relaxed, since no other
 * data depends on them. The supervisor does not read the fields that it writes. */
struct weir_spin_page {
    atomic_uint level;     /* enum weir_spin_level; written by the supervisor */
    atomic_uint epoch;     /* number of the epoch; written by the supervisor */
    atomic_uint active[2]; /* sessions that handled a record in an epoch of this parity */
    atomic_uint gate_may;  /* the gate process may spin; written by the supervisor */
    atomic_uint gate_asks; /* the gate process has enough work to spin in this epoch */
    /* Values that have nothing to do with spinning, but that workers read here: how many tenants
     * the host has, how many workers and programs may give back device memory soon, and how many
     * WEIR_LINK_SYNC of this worker the supervisor has done. */
    atomic_uint tenants, giving, synced;
    /* The worker writes: programs that have ended and hold something; pieces of device memory that
     * nobody uses (WEIR_LINK_GIVE_BACK). */
    atomic_uint ending, spares;
    /* The worker writes these, too, for room on demand (docs/design/suspend.md). */
    atomic_uint_fast64_t rests_since_ns; /* weir_clock_now_ns() when its program's work ended; 0:
                                            the program works */
    atomic_uint_fast64_t movable_bytes;  /* device memory that could be moved while it rests */
    atomic_uint_fast64_t lacks_bytes;    /* device memory that the worker wants and cannot get */
    atomic_uint_fast64_t managed_bytes;  /* managed memory that could also leave the device */
};

/**
 * Make the page. It begins with WEIR_SPIN_ALL, and the gate process may spin.
 * @param ret_fd    gives a sealed memfd for weir_spin_page_map() in another process.
 * @param ret_page  gives the mapping, for weir_spin_page_unmap().
 * @return WEIR_OK, WEIR_ERR_IO, WEIR_ERR_NO_MEMORY, WEIR_ERR_NO_DESCRIPTOR
 * @thread any
 */
enum weir_status weir_spin_page_create(int *ret_fd,
                                       struct weir_spin_page **ret_page) WEIR_MUST_CHECK;

/**
 * Map the page that the supervisor made.
 * @param fd  borrowed.
 * @return WEIR_OK, WEIR_ERR_INVALID (too small), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_spin_page_map(int fd, struct weir_spin_page **ret_page) WEIR_MUST_CHECK;

/** Accepts NULL. @thread any */
void weir_spin_page_unmap(struct weir_spin_page *page);

/**
 * A session handles a record: count the session as active, once an epoch, and return the level that
 * is allowed now.
 * @param last_epoch  the session's own; zero at first.
 * @thread session
 */
static inline enum weir_spin_level weir_spin_note(struct weir_spin_page *page, uint32_t *last_epoch)
{
    uint32_t epoch = atomic_load_explicit(&page->epoch, memory_order_relaxed);

    if (epoch != *last_epoch) {
        *last_epoch = epoch;
        atomic_fetch_add_explicit(&page->active[epoch & 1], 1, memory_order_relaxed);
    }
    return (enum weir_spin_level)atomic_load_explicit(&page->level, memory_order_relaxed);
}

/** May threads of the host itself spin? @thread any */
static inline bool weir_spin_host_may(const struct weir_spin_page *page)
{
    return atomic_load_explicit(&page->level, memory_order_relaxed) == WEIR_SPIN_ALL;
}

/** Is the gate process likely to be awake? @thread any */
static inline bool weir_spin_gate_is_allowed(const struct weir_spin_page *page)
{
    return atomic_load_explicit(&page->gate_may, memory_order_relaxed) != 0;
}

/**
 * The gate process wants to wait by spinning: count it, and return whether it may. @thread gate
 * process
 */
static inline bool weir_spin_gate_may(struct weir_spin_page *page)
{
    if (atomic_load_explicit(&page->gate_asks, memory_order_relaxed) == 0) {
        atomic_store_explicit(&page->gate_asks, 1, memory_order_relaxed);
    }
    return weir_spin_gate_is_allowed(page);
}

/* Keeps a level that was lowered from rising again too soon. */
struct weir_spin_hold {
    uint64_t hold_ns, until_ns, raised_ns;
};

/* What the supervisor keeps from one decision to the next. Zeroed at first. Owner thread only. */
struct weir_spin_governor {
    enum weir_spin_level level;
    bool gate_may;
    uint32_t running[8], active[8]; /* values of the last epochs: a ring */
    uint64_t n;                     /* number of epochs so far */
    struct weir_spin_hold level_hold, gate_hold;
};

/* What the supervisor measures in an epoch. */
struct weir_spin_seen {
    uint32_t running; /* threads of the machine that run or want a core, without the host's own */
    uint32_t active;  /* sessions that handled a record */
    bool gate_asks;   /* the gate process wants to spin */
    uint32_t cores;   /* 1 or more */
};

/**
 * Decide who may spin in the next epoch: the level, and governor->gate_may.
 *
 * Each active session has a thread in the guest and one in the worker, and one of the two waits
 * while the other works. All may spin while these, the gate process and everybody else's threads
 * have a core each. Where not even the guests may, the gate process still may if a core is idle.
 * Whoever lowers a level because threads really waited for cores keeps it low for a while, twice
 * as long each time: whether there is room for spinning can only be seen while threads spin.
 *
 * @param seen    in the epoch that ended; borrowed for the call.
 * @param now_ns  monotonic.
 * @thread owner
 */
enum weir_spin_level weir_spin_decide(struct weir_spin_governor *governor,
                                      const struct weir_spin_seen *seen, uint64_t now_ns);

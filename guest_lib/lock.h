/*
 * A small mutex for critical sections of tens of nanoseconds: one word, spins briefly, then sleeps
 * on a futex. Not recursive, not fair; zeroed memory is an unlocked lock.
 *
 * Lock order in the guest library, outermost first: init, context, grant, pool, stream, memory
 * index, channel send, channel receive. No callback into the program is made with any of them held.
 */
#pragma once

#include "base/clock.h"
#include <stdbool.h>
#include <stdint.h>

/* 0 free, 1 held, 2 held and a thread may sleep. Internally locked. */
struct weir_lock {
    uint32_t word;
};

/** The slow half of weir_lock_acquire(). @thread any */
void weir_lock_acquire_slow(struct weir_lock *lock);

/** @thread any; not while holding it */
static inline void weir_lock_acquire(struct weir_lock *lock)
{
    uint32_t expected = 0;
    /* L1: pairs with the release in weir_lock_release(). */
    if (__builtin_expect(!__atomic_compare_exchange_n(&lock->word, &expected, 1, false,
                                                      __ATOMIC_ACQUIRE, __ATOMIC_RELAXED),
                         0)) {
        weir_lock_acquire_slow(lock);
    }
}

/** True if it was free and is now held. @thread any */
static inline bool weir_lock_try(struct weir_lock *lock)
{
    uint32_t expected = 0;
    return __atomic_compare_exchange_n(&lock->word, &expected, 1, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

/** @thread the holder */
static inline void weir_lock_release(struct weir_lock *lock)
{
    if (__builtin_expect(__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2, 0)) {
        weir_futex_wake(&lock->word, 1);
    }
}

static inline struct weir_lock *weir_lock_hold(struct weir_lock *lock)
{
    weir_lock_acquire(lock);
    return lock;
}

static inline void weir_lock_let_go(struct weir_lock *const *lock)
{
    weir_lock_release(*lock);
}

/** Hold a lock until the end of the block, as WEIR_LOCKED() a mutex. */
#define WEIR_GUEST_LOCKED(lock)                                                                    \
    __attribute__((cleanup(weir_lock_let_go), unused)) struct weir_lock *const held_lock =         \
        weir_lock_hold(lock)

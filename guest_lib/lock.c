#include "guest_lib/lock.h"

/* A critical section lasts tens of nanoseconds, a futex sleep about ten microseconds. */
#define SPIN_ROUNDS 100

void weir_lock_acquire_slow(struct weir_lock *lock)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (__atomic_load_n(&lock->word, __ATOMIC_RELAXED) == 0 && weir_lock_try(lock)) {
            return;
        }
        weir_cpu_pause();
    }
    /* A thread that sleeps leaves 2 behind, so that each release wakes one more. */
    while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0) {
        weir_futex_wait(&lock->word, 2, WEIR_FOREVER);
    }
}

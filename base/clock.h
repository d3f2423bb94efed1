/* Monotonic time in nanoseconds, a pause for spin loops, and futexes on words that processes
 * share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WEIR_NS_PER_US 1000ull
#define WEIR_NS_PER_MS 1000000ull
#define WEIR_NS_PER_S  1000000000ull
#define WEIR_FOREVER   UINT64_MAX

/** CLOCK_MONOTONIC in nanoseconds. @thread any */
uint64_t weir_clock_now_ns(void);

/**
 * A fast clock for questions like "was this just now?". It costs a few ns, its rate is unknown (1
 * to 5 ticks a ns on x86-64, 1 elsewhere), and it may differ between cores. @thread any
 */
static inline uint64_t weir_clock_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return weir_clock_now_ns();
#endif
}

/*
 * A spin loop reads the clock every few hundred nanoseconds. If two readings lie this far apart,
 * the thread has lost its core in between: it should sleep instead, this time and the next.
 */
#define WEIR_PREEMPTED_NS (200 * WEIR_NS_PER_US)

/** Tell the core that this is a spin loop. @thread any */
static inline void weir_cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/** The timeout for poll() until next_ns, rounded up; WEIR_FOREVER: -1, no limit. @thread any */
static inline int weir_poll_ms(uint64_t next_ns, uint64_t now_ns)
{
    if (next_ns == WEIR_FOREVER) {
        return -1;
    }
    return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns) / WEIR_NS_PER_MS) + 1;
}

/**
 * Sleep while *word equals expected (a futex, shared between processes).
 *
 * @param word        4-byte aligned; borrowed.
 * @param expected    the value that means "nothing has happened yet".
 * @param timeout_ns  at most this long; WEIR_FOREVER for no limit.
 * @return true   woken, interrupted, or the word already differs: check again.
 * @return false  the time has passed.
 * @thread any; errno is preserved
 */
bool weir_futex_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns);

/** Wake up to count waiters of word (shared between processes). @thread any; errno preserved */
void weir_futex_wake(uint32_t *word, int count);

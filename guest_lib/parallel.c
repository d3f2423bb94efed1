/*
 * memcpy by several threads: one core cannot fill a PCIe link. The helpers are started by the first
 * copy that is large enough and sleep between copies. Only one copy at a time uses the helpers; a
 * second one is done by its own thread alone.
 */
#include "base/thread.h"
#include "guest_lib/memory.h"
#include <pthread.h>
#include <string.h>

#define PARALLEL_BYTES (1u << 20) /* below this, waking helpers costs more than it gains */
#define MAX_HELPERS    3
#define SLICE_BYTES    (256u << 10)
#define IDLE_SPINS                                                                                 \
    4000 /* pauses, about 0.15 ms: the next piece of a pipelined copy comes by then */

/* The current copy. next is atomic: the thread that adds a slice to it copies that slice. */
static struct {
    struct weir_lock busy; /* held by the thread that makes the copy */
    uint8_t *dst;
    const uint8_t *src;
    uint64_t bytes;
    uint64_t next;
    uint32_t inside;     /* atomic: helpers at work */
    uint32_t generation; /* atomic, futex: odd while a copy is open */
    int n_helpers;       /* -1: not started */
} team = {.n_helpers = -1};

static void copy_slices(void)
{
    for (;;) {
        uint64_t at = __atomic_fetch_add(&team.next, SLICE_BYTES, __ATOMIC_RELAXED);
        if (at >= team.bytes) {
            return;
        }
        uint64_t left = team.bytes - at;
        memcpy(team.dst + at, team.src + at, WEIR_MIN(left, SLICE_BYTES));
    }
}

/* Wait for the generation of the next copy, spinning at first: waking a sleeping helper takes as
 * long as copying a megabyte. */
static uint32_t await_copy(uint32_t seen)
{
    uint32_t now = __atomic_load_n(&team.generation, __ATOMIC_ACQUIRE);
    for (int spins = 0; now == seen || !(now & 1); spins++) {
        if (spins < IDLE_SPINS) {
            weir_cpu_pause();
        } else {
            weir_futex_wait(&team.generation, now, WEIR_FOREVER);
            spins = 0;
        }
        now = __atomic_load_n(&team.generation, __ATOMIC_ACQUIRE);
    }
    return now;
}

static void *helper_main(void *arg)
{
    (void)arg;
    uint32_t seen = 0;
    for (;;) {
        uint32_t now = await_copy(seen);
        seen = now;
        __atomic_add_fetch(&team.inside, 1, __ATOMIC_SEQ_CST);
        /* Did this helper join in time? The owner closes the copy first and then waits for inside
         * to be 0. */
        if (__atomic_load_n(&team.generation, __ATOMIC_SEQ_CST) == now) {
            copy_slices();
        }
        __atomic_sub_fetch(&team.inside, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* requires team.busy held */
static void start_helpers_locked(void)
{
    int want = weir_guest.n_cpus / 2 - 1;
    want = WEIR_MIN(want, MAX_HELPERS);
    team.n_helpers = 0;
    for (int i = 0; i < want; i++) {
        pthread_t thread;
        if (weir_thread_start(&thread, 0, helper_main, NULL) != 0) {
            break;
        }
        pthread_detach(thread);
        team.n_helpers++;
    }
}

static void share_out_locked(void *dst, const void *src, size_t bytes)
{
    team.dst = dst;
    team.src = src;
    team.bytes = bytes;
    __atomic_store_n(&team.next, 0, __ATOMIC_RELAXED);
    __atomic_add_fetch(&team.generation, 1, __ATOMIC_SEQ_CST); /* odd: open */
    weir_futex_wake(&team.generation, team.n_helpers);
    copy_slices();
    __atomic_add_fetch(&team.generation, 1, __ATOMIC_SEQ_CST); /* even: closed */
    while (__atomic_load_n(&team.inside, __ATOMIC_ACQUIRE)) {
        weir_cpu_pause();
    }
}

void weir_parallel_copy(void *dst, const void *src, size_t bytes)
{
    if (bytes < PARALLEL_BYTES || weir_guest.n_cpus < 4 || !weir_lock_try(&team.busy)) {
        memcpy(dst, src, bytes);
        return;
    }
    if (team.n_helpers < 0) {
        start_helpers_locked();
    }
    if (team.n_helpers > 0) {
        share_out_locked(dst, src, bytes);
    } else {
        memcpy(dst, src, bytes);
    }
    weir_lock_release(&team.busy);
}

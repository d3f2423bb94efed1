/*
 * Records which threads are inside calls that use a context, so that a context is only destroyed
 * when none is.
 *
 * A call enters a context when it looks it up, and leaves it at its end. A call that has found an
 * object by its handle, but no context yet, may be about to use any. A thread that destroys a
 * context first marks that in its state, then waits until no other thread is inside. Later calls
 * see the state and return an error.
 *
 * Entering is a store and then a load of the state, which a processor may swap. A barrier in each
 * call would cost more than all the rest, so the waiting side asks the kernel to execute one in all
 * threads (membarrier). Where the kernel refuses that, each call has its own barrier.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir_guest_ctx;

/* The place of one thread. It is never freed, so that other threads may read it at any time; later
 * threads reuse it. */
struct weir_inside {
    /* Atomic; NULL: the thread is in no call, or in one that has named no context. */
    const struct weir_guest_ctx *ctx;
    uint32_t taken; /* atomic: a thread has this place */
    struct weir_inside *next;
} __attribute__((aligned(64)));

/* Stands for some context: the call has looked up an object and may name the context later. */
#define WEIR_INSIDE_ANY ((const struct weir_guest_ctx *)1)
/* Stands for several contexts. */
#define WEIR_INSIDE_ALL ((const struct weir_guest_ctx *)2)

extern bool weir_inside_fences __attribute__((visibility("hidden"))); /* set by cuInit */

/** Find out which barriers the kernel offers. @thread init_lock held */
void weir_inside_init(void);

/** Take a place for this thread; NULL: no memory. weir_inside_give() gives it back. @thread any */
struct weir_inside *weir_inside_take(void);
void weir_inside_give(struct weir_inside *place);

/** Enter a context, besides those that the place names already. Check the context's state
 * afterwards. */
static inline void weir_inside_enter(struct weir_inside *place, const struct weir_guest_ctx *ctx)
{
    const struct weir_guest_ctx *now = __atomic_load_n(&place->ctx, __ATOMIC_RELAXED);
    if (now == ctx || now == WEIR_INSIDE_ALL || (now && ctx == WEIR_INSIDE_ANY)) {
        return;
    }
    const struct weir_guest_ctx *all = !now || now == WEIR_INSIDE_ANY ? ctx : WEIR_INSIDE_ALL;
    if (__builtin_expect(weir_inside_fences, 0)) {
        (void)!__atomic_exchange_n(&place->ctx, all, __ATOMIC_SEQ_CST);
    } else {
        __atomic_store_n(&place->ctx, all, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the barrier is executed by weir_inside_wait() */
    }
}

static inline void weir_inside_leave(struct weir_inside *place)
{
    /* I1: what the call did comes before this; meets the acquire in weir_inside_wait(). */
    __atomic_store_n(&place->ctx, NULL, __ATOMIC_RELEASE);
}

/**
 * Wait until no other thread is inside the context. Before this call the context's state must
 * forbid entering it, or the object to be freed must be in no table any more.
 * @param mine  the caller's own place, which is not waited for; or NULL.
 * @thread any; no lock held that a call takes
 */
void weir_inside_wait(const struct weir_guest_ctx *ctx, struct weir_inside *mine);

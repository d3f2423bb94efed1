/*
 * Counts calls: every export begins with weir_calls_begin() and ends with weir_calls_end().
 *
 * How a call counts depends on what its thread did: the channel marks it when it sends or waits. A
 * call without a mark was answered in the guest. Counters are in the session's statistics page
 * (proto/transport/stats_page.h), one block for each thread, so that counting is a plain addition.
 * Before the session, and for a remote one, they are in the process's memory.
 *
 * Source: docs/design/stats.md
 */
#pragma once

#include "guest_lib/inside.h"
#include "proto/cuda_abi.h"
#include "proto/symbols.h"
#include "proto/transport/stats_page.h"
#include "proto/wire/caller.h"
#include <stdbool.h>
#include <stdint.h>

enum weir_calls_mark {
    WEIR_CALLS_POSTED = 1, /* the thread sent a record that has no reply */
    WEIR_CALLS_WAITED = 2, /* the thread waited for a reply, a word, or room in the ring */
    WEIR_CALLS_DETAIL = 4, /* the call is timed: weir_calls_log_begin() must follow */
    WEIR_CALLS_LACKED = 8, /* the host had no memory for the thread */
    WEIR_CALLS_TOLD = 16,  /* a profiler knows that the call has begun (profile.h) */
};

enum weir_calls_detail {
    WEIR_CALLS_PLAIN = 0,
    WEIR_CALLS_TIMED = 1,     /* all calls are timed */
    WEIR_CALLS_LOGGED = 2,    /* all calls are timed and printed */
    WEIR_CALLS_UNDECIDED = 4, /* no thread has read the environment yet */
    WEIR_CALLS_WATCHED = 8,   /* all calls are timed, and a profiler is told (profile.h) */
};

/*
 * The state of the calling thread. An export looks it up once, because in a library that is loaded
 * late the look-up is a function call. (It is not in the static TLS block, since programs with many
 * libraries run out of that.)
 */
struct weir_calls_thread {
    /* The thread's block of the page; NULL: it has none, or shares one. */
    struct weir_stats_counts *counts;
    struct weir_inside *inside; /* NULL until the thread first uses a context */
    uint32_t marks;
    int32_t caller; /* for the current call (proto/wire/caller.h) */
    uint32_t block; /* number of the thread's block; 0: it has none */
    uint32_t
        profile; /* for requests: number of the current call, if its work is recorded; else 0 */
    uint32_t posts;
    uint64_t start_ns;
    uint64_t wait_start_ns;
};

/* How a call was answered, for printing it. */
struct weir_calls_last {
    uint64_t start_ns;
    uint64_t ns;
    uint32_t marks;
};

extern __thread struct weir_calls_thread weir_calls_thread __attribute__((visibility("hidden")));
extern uint32_t weir_calls_detail __attribute__((visibility("hidden"))); /* atomic */

/** The part of weir_calls_begin() that only timed calls need. @thread any */
void weir_calls_begin_timed(struct weir_calls_thread *mine);

/** The part of weir_calls_end() for all calls except those answered in the guest. @thread any */
bool weir_calls_end_slow(struct weir_calls_thread *mine, enum weir_symbol symbol, CUresult result);

/** The calling thread's place in the list of inside.h; NULL: no memory for one. @thread any */
struct weir_inside *weir_calls_take_place(void);

/** Mark that the call uses the context from now on; WEIR_INSIDE_ANY: a context that it has yet to
 * find. @thread any */
static inline void weir_calls_enter(const struct weir_guest_ctx *ctx)
{
    struct weir_inside *place = weir_calls_thread.inside;
    if (__builtin_expect(!place, 0)) {
        place = weir_calls_take_place();
    }
    if (__builtin_expect(place != NULL, 1)) {
        weir_inside_enter(place, ctx);
    }
}

/** Mark that the call uses no context any more: at its end, and before it waits for other calls. */
static inline void weir_calls_leave(const struct weir_calls_thread *mine)
{
    if (mine->inside) {
        weir_inside_leave(mine->inside);
    }
}

/** Begin or end the watching of all calls that begin from now on. @thread any */
void weir_calls_watch(bool on);

/** Begin a call. @return what weir_calls_end() needs @thread any */
static inline struct weir_calls_thread *weir_calls_begin(enum weir_symbol symbol)
{
    struct weir_calls_thread *mine = &weir_calls_thread;
    mine->marks = 0;
    mine->caller = weir_caller_of(symbol);
    if (__builtin_expect(__atomic_load_n(&weir_calls_detail, __ATOMIC_RELAXED) != 0, 0)) {
        weir_calls_begin_timed(mine);
    }
    return mine;
}

/** Count the call. @return true: the call is logged or watched, so weir_calls_log_add() must follow
 * @thread any */
static inline bool weir_calls_end(struct weir_calls_thread *mine, enum weir_symbol symbol,
                                  CUresult result)
{
    struct weir_stats_counts *counts = mine->counts;
    weir_calls_leave(mine);
    if (__builtin_expect(mine->marks == 0 && counts, 1)) {
        uint64_t *guest = &counts[symbol].guest;
        /* No other thread writes this counter. */
        __atomic_store_n(guest, *guest + 1, __ATOMIC_RELAXED);
        return false;
    }
    return weir_calls_end_slow(mine, symbol, result);
}

/** Mark that the thread sent a record that has no reply. @thread any */
static inline void weir_calls_mark_posted(void)
{
    weir_calls_thread.marks |= WEIR_CALLS_POSTED;
}

/** Mark that the host had no memory for the thread: if the call fails for this reason, the call log
 * says so.
 * @thread any */
static inline void weir_calls_mark_lacked(void)
{
    weir_calls_thread.marks |= WEIR_CALLS_LACKED;
}

/** Mark that the thread is about to wait; the first wait of a call reads the clock. @thread any */
void weir_calls_mark_waiting(void);

/** The last ended call of this thread, if weir_calls_end() asked to print it. @thread any */
struct weir_calls_last weir_calls_last(void);

/**
 * A session begins: count in its page from now on, and add the earlier counts.
 *
 * @param page  of the segment, mapped until the process ends; NULL: remote, count in memory of our
 * own.
 * @thread init_lock held
 */
void weir_calls_session(struct weir_stats_page *page);

/** The session is destroyed (tests; a failed cuInit): forget its page. @thread no other calls */
void weir_calls_session_over(void);

/** In a forked child: stop using the parent's page. @thread the child's only one */
void weir_calls_in_child(void);

/**
 * Sum the counts of a function over all threads.
 * @thread any
 */
void weir_calls_sum(enum weir_symbol symbol, struct weir_stats_counts *ret_counts);

/** After a call that waited: send the counts to a remote host if a second has passed since the last
 * time. @thread any; no lock held */
void weir_calls_push(uint64_t now_ns);

/** The process ends: send the counts to a remote host a last time. @thread any; no lock held */
void weir_calls_push_last(void);

/** At the end of the process: print the table that WEIR_STATS requests. @thread any */
void weir_calls_report(void);

/*
 * Counts calls in blocks of the statistics page, which are given to threads and taken back when
 * these end.
 *
 * Only its thread writes a block. Threads that find none free share block 0 and add atomically. A
 * block keeps its numbers when its thread ends, and the next thread continues from there.
 */
#include "guest_lib/calls.h"
#include "base/clock.h"
#include "guest_lib/calls_log.h"
#include "guest_lib/state.h"
#include "proto/calls_log_table.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert((int)WEIR_SYMBOL_COUNT <= WEIR_STATS_MAX_FUNCTIONS, "room for every function");

__thread struct weir_calls_thread weir_calls_thread;
uint32_t weir_calls_detail = WEIR_CALLS_UNDECIDED;

/* Set when the thread has given its block back: from then on its calls count in block 0. */
static __thread bool thread_over;
static __thread struct weir_calls_last last;

/* Posted calls between two readings of the clock while the thread does not wait. */
#define POSTS_A_LOOK 1024

/* Calls are counted here while there is no page: before cuInit, and in sessions without one.
 * Atomic. */
static struct weir_stats_counts own[WEIR_SYMBOL_COUNT];
static struct weir_stats_page *page;         /* atomic */
static struct weir_stats_page *private_page; /* memory of this process, for a remote session */
static uint32_t blocks_taken = 1; /* atomic; one bit for each block; all threads share block 0 */
static pthread_key_t block_key;
static bool have_block_key;
static pthread_once_t block_key_once = PTHREAD_ONCE_INIT;

/* ---------------------------------------------------------------- blocks */

static void give_back(void *arg)
{
    struct weir_calls_thread *mine = arg;
    uint32_t block = mine->block;
    mine->counts = NULL;
    mine->block = 0;
    thread_over = true;
    if (block) {
        /* B1: publishes the block's counts; meets the acquire of the block's next owner. */
        __atomic_fetch_and(&blocks_taken, ~(1u << block), __ATOMIC_RELEASE);
    }
    if (mine->inside) {
        weir_inside_give(mine->inside);
        mine->inside = NULL;
    }
}

static void make_block_key(void)
{
    have_block_key = pthread_key_create(&block_key, give_back) == 0;
}

struct weir_inside *weir_calls_take_place(void)
{
    struct weir_inside *place = weir_inside_take();
    pthread_once(&block_key_once, make_block_key);
    if (place && have_block_key) { /* also if the thread's destructors have run: setting the key
                                      makes this destructor run again */
        pthread_setspecific(block_key, &weir_calls_thread);
    }
    weir_calls_thread.inside = place;
    return place;
}

/* Take a block for this thread; false: it shares block 0. */
static bool take_block(struct weir_stats_page *from)
{
    pthread_once(&block_key_once, make_block_key);
    if (thread_over || !have_block_key) {
        return false;
    }
    uint32_t taken = __atomic_load_n(&blocks_taken, __ATOMIC_RELAXED);
    uint32_t block;
    do {
        block = (uint32_t)__builtin_ctz(~taken | 1u << 31);
        if (block >= WEIR_STATS_BLOCKS) {
            return false;
        }
    } while (!__atomic_compare_exchange_n(&blocks_taken, &taken, taken | 1u << block, true,
                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)); /* B1 */
    weir_calls_thread.counts = from->blocks[block];
    weir_calls_thread.block = block;
    pthread_setspecific(block_key, &weir_calls_thread);
    return true;
}

static void add_shared(struct weir_stats_counts *to, const struct weir_stats_counts *more)
{
    __atomic_fetch_add(&to->guest, more->guest, __ATOMIC_RELAXED);
    __atomic_fetch_add(&to->posted, more->posted, __ATOMIC_RELAXED);
    __atomic_fetch_add(&to->waited, more->waited, __ATOMIC_RELAXED);
    __atomic_fetch_add(&to->wait_ns, more->wait_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&to->busy_ns, more->busy_ns, __ATOMIC_RELAXED);
    uint64_t max_ns = __atomic_load_n(&to->max_ns, __ATOMIC_RELAXED);
    while (max_ns < more->max_ns &&
           !__atomic_compare_exchange_n(&to->max_ns, &max_ns, more->max_ns, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
}

static void add_alone(struct weir_stats_counts *to, const struct weir_stats_counts *more)
{
    __atomic_store_n(&to->guest, to->guest + more->guest, __ATOMIC_RELAXED);
    __atomic_store_n(&to->posted, to->posted + more->posted, __ATOMIC_RELAXED);
    __atomic_store_n(&to->waited, to->waited + more->waited, __ATOMIC_RELAXED);
    __atomic_store_n(&to->wait_ns, to->wait_ns + more->wait_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&to->busy_ns, to->busy_ns + more->busy_ns, __ATOMIC_RELAXED);
    if (to->max_ns < more->max_ns) {
        __atomic_store_n(&to->max_ns, more->max_ns, __ATOMIC_RELAXED);
    }
}

static void add(enum weir_symbol symbol, const struct weir_stats_counts *more)
{
    struct weir_stats_page *now = __atomic_load_n(&page, __ATOMIC_ACQUIRE); /* P1 */
    if (weir_calls_thread.counts || (now && take_block(now))) {
        add_alone(&weir_calls_thread.counts[symbol], more);
    } else {
        add_shared(now ? &now->blocks[0][symbol] : &own[symbol], more);
    }
}

/* ---------------------------------------------------------------- a call */

void weir_calls_watch(bool on)
{
    if (on) {
        __atomic_fetch_or(&weir_calls_detail, WEIR_CALLS_WATCHED, __ATOMIC_RELAXED);
    } else {
        __atomic_fetch_and(&weir_calls_detail, ~(uint32_t)WEIR_CALLS_WATCHED, __ATOMIC_RELAXED);
    }
}

void weir_calls_mark_waiting(void)
{
    struct weir_calls_thread *mine = &weir_calls_thread;
    if (!(mine->marks & WEIR_CALLS_WAITED)) {
        mine->marks |= WEIR_CALLS_WAITED;
        mine->wait_start_ns = weir_clock_now_ns();
    }
}

static void count_posted(struct weir_calls_thread *mine, enum weir_symbol symbol)
{
    uint64_t *posted = &mine->counts[symbol].posted;
    __atomic_store_n(posted, *posted + 1, __ATOMIC_RELAXED);
    if (++mine->posts % POSTS_A_LOOK == 0) {
        weir_calls_push(weir_clock_now_ns());
    }
}

bool weir_calls_end_slow(struct weir_calls_thread *mine, enum weir_symbol symbol, CUresult result)
{
    uint32_t marks = mine->marks;
    /* Launches use this path, so it must be as short as possible. */
    if (marks == WEIR_CALLS_POSTED && mine->counts) {
        count_posted(mine, symbol);
        return false;
    }
    if (marks & WEIR_CALLS_LACKED && result == CUDA_ERROR_OUT_OF_MEMORY) {
        weir_guest_tell_lack();
    }
    struct weir_stats_counts more = {0};
    bool timed = marks & WEIR_CALLS_DETAIL;
    uint64_t now_ns = marks & (WEIR_CALLS_WAITED | WEIR_CALLS_DETAIL) ? weir_clock_now_ns() : 0;
    if (marks & WEIR_CALLS_WAITED) {
        more.waited = 1;
        more.wait_ns = more.max_ns = now_ns - mine->wait_start_ns;
    } else {
        more.guest = !(marks & WEIR_CALLS_POSTED);
        more.posted = !more.guest;
        more.busy_ns = timed ? now_ns - mine->start_ns : 0;
    }
    add(symbol, &more);
    if (more.waited) {
        weir_calls_push(now_ns);
    }
    mine->profile = 0;
    if (timed && (marks & WEIR_CALLS_TOLD ||
                  __atomic_load_n(&weir_calls_detail, __ATOMIC_RELAXED) & WEIR_CALLS_LOGGED)) {
        last = (struct weir_calls_last){mine->start_ns, now_ns - mine->start_ns, marks};
        return true;
    }
    return false;
}

struct weir_calls_last weir_calls_last(void)
{
    return last;
}

/* ---------------------------------------------------------------- the session */

static void bring_along(struct weir_stats_page *to)
{
    for (int i = 0; i < WEIR_SYMBOL_COUNT; i++) {
        struct weir_stats_counts *from = &own[i];
        struct weir_stats_counts before = {
            .guest = __atomic_exchange_n(&from->guest, 0, __ATOMIC_RELAXED),
            .posted = __atomic_exchange_n(&from->posted, 0, __ATOMIC_RELAXED),
            .waited = __atomic_exchange_n(&from->waited, 0, __ATOMIC_RELAXED),
            .wait_ns = __atomic_exchange_n(&from->wait_ns, 0, __ATOMIC_RELAXED),
            .max_ns = __atomic_exchange_n(&from->max_ns, 0, __ATOMIC_RELAXED),
            .busy_ns = __atomic_exchange_n(&from->busy_ns, 0, __ATOMIC_RELAXED),
        };
        if (before.guest || before.posted || before.waited) {
            add_shared(&to->blocks[0][i], &before);
        }
    }
}

void weir_calls_session(struct weir_stats_page *new_page)
{
    if (!new_page) {
        void *memory = mmap(NULL, sizeof *new_page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            return; /* all threads count in own[] */
        }
        new_page = private_page = memory;
    }
    for (int i = 0; i < WEIR_SYMBOL_COUNT; i++) {
        strncpy(new_page->names[i], weir_calls_log_symbols[i].name, WEIR_STATS_NAME_BYTES - 1);
    }
    new_page->n_functions = WEIR_SYMBOL_COUNT;
    bring_along(new_page);
    __atomic_store_n(&new_page->magic, WEIR_STATS_MAGIC, __ATOMIC_RELEASE);
    __atomic_store_n(&page, new_page, __ATOMIC_RELEASE); /* P1 */
}

static void forget_block(void)
{
    weir_calls_thread = (struct weir_calls_thread){.inside = weir_calls_thread.inside};
    __atomic_store_n(&page, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&blocks_taken, 1, __ATOMIC_RELAXED);
}

void weir_calls_session_over(void)
{
    forget_block();
    if (private_page) {
        munmap(private_page, sizeof *private_page);
        private_page = NULL;
    }
}

void weir_calls_in_child(void)
{
    forget_block();
    memset(own, 0, sizeof own);
}

static void sum_in(struct weir_stats_counts *sum, const struct weir_stats_counts *part)
{
    uint64_t max_ns = __atomic_load_n(&part->max_ns, __ATOMIC_RELAXED);
    sum->guest += __atomic_load_n(&part->guest, __ATOMIC_RELAXED);
    sum->posted += __atomic_load_n(&part->posted, __ATOMIC_RELAXED);
    sum->waited += __atomic_load_n(&part->waited, __ATOMIC_RELAXED);
    sum->wait_ns += __atomic_load_n(&part->wait_ns, __ATOMIC_RELAXED);
    sum->busy_ns += __atomic_load_n(&part->busy_ns, __ATOMIC_RELAXED);
    sum->max_ns = WEIR_MAX(sum->max_ns, max_ns);
}

void weir_calls_sum(enum weir_symbol symbol, struct weir_stats_counts *ret_counts)
{
    const struct weir_stats_page *now = __atomic_load_n(&page, __ATOMIC_ACQUIRE);
    memset(ret_counts, 0, sizeof *ret_counts);
    sum_in(ret_counts, &own[symbol]);
    for (int i = 0; now && i < WEIR_STATS_BLOCKS; i++) {
        sum_in(ret_counts, &now->blocks[i][symbol]);
    }
}

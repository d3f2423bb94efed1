/*
 * The callback runner. Whichever thread reads the channel queues notifications here. One thread
 * runs them in that order, so a slow function delays the next one, as CUDA specifies.
 */
#include "guest_lib/callback.h"
#include "base/log.h"
#include "base/thread.h"
#include "guest_lib/entry.h"
#include "guest_lib/memory.h"
#include "proto/guest_calls.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PUMP_NS (50 * WEIR_NS_PER_MS)
/* While another thread reads the channel, the runner checks again after this time. */
#define OTHER_READ_NS WEIR_NS_PER_MS

struct entry {
    struct entry *next;
    uint64_t token;
    weir_callback_fn fn, refused;
    void *user;
    bool once;
};

struct job {
    struct job *next;
    uint64_t token;
    uint64_t ticket;
    uint32_t word; /* where the guest writes its answer; WEIR_WORD_NONE: it sends a record */
};

/* The lock guards these members. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct entry *entries;
    struct job *first;
    struct job **last;
    uint64_t next_token;
    pthread_t thread;
    bool started;
    bool stop;
} runner = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Data that a running function has requested from its host. runner.lock guards it. */
static struct {
    uint8_t *to; /* NULL: nothing is requested */
    uint64_t bytes;
    bool answered;
    bool good;
} wanted;

/* Ticket of the function that this thread runs; 0: it runs none. */
static __thread uint64_t own_ticket;

static uint32_t pending; /* atomic; counts functions that were entered and may still run */

static struct entry **find_locked(uint64_t token)
{
    struct entry **at = &runner.entries;
    while (*at && (*at)->token != token) {
        at = &(*at)->next;
    }
    return at;
}

/* Report to the host that a function has run. With a word this does not use the ring, which the
 * host may be slow to read. */
static void answer(const struct job *job)
{
    struct weir_channel *channel = weir_guest_channel();
    if (job->word != WEIR_WORD_NONE && !channel->remote && job->word < channel->n_words) {
        uint32_t *word = (uint32_t *)(uintptr_t)&channel->words[job->word];
        /* H2: publishes what the function did; meets H1 in the worker's trampoline. */
        __atomic_store_n(word, (uint32_t)job->ticket, __ATOMIC_RELEASE);
        weir_futex_wake(word, 1);
        if (channel->transport->ops->ring_bell) {
            channel->transport->ops->ring_bell(channel->transport);
        }
        return;
    }
    CUresult result = weir_post_host_func_done(
        channel, &(struct weir_op_host_func_done_in){.ticket = job->ticket});
    (void)result; /* the host is gone: no thread waits for the function any more */
}

/* Forget a function: the host has refused its record, so the stream will never reach it. */
static void forget_refused(const struct job *job)
{
    pthread_mutex_lock(&runner.lock);
    struct entry **at = find_locked(job->token);
    struct entry *found = *at;
    if (found) {
        *at = found->next;
        __atomic_sub_fetch(&pending, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&runner.lock);
    if (found && found->refused) {
        found->refused(found->user);
    }
    free(found);
}

/* Is this a child of the process that has the session? The program's function may have called
 * fork(), and have returned in the child as well. The child has only this thread, and has no
 * session. */
static bool is_forked(void)
{
    return weir_guest_phase_now() == WEIR_PHASE_FORKED;
}

/* Run a function. Returns false in a child of the process that ran it; then the caller does
 * nothing. */
static bool run_job(const struct job *job)
{
    pthread_mutex_lock(&runner.lock);
    struct entry **at = find_locked(job->token);
    struct entry *found = *at;
    weir_callback_fn fn = found ? found->fn : NULL;
    void *user = found ? found->user : NULL;
    bool last = found && found->once;
    if (last) {
        *at = found->next;
        free(found);
    }
    pthread_mutex_unlock(&runner.lock);
    if (fn) {
        own_ticket = job->ticket;
        fn(user);
        own_ticket = 0;
        if (is_forked()) {
            return false;
        }
        __atomic_sub_fetch(&pending, last, __ATOMIC_RELEASE);
    } else {
        weir_log_warn("guest: the host asked for an unknown function, token=%llu",
                      (unsigned long long)job->token);
    }
    answer(job);
    return true;
}

static struct job *take_job_locked(void)
{
    struct job *job = runner.first;
    if (job) {
        runner.first = job->next;
        if (!runner.first) {
            runner.last = &runner.first;
        }
    }
    return job;
}

static void nap_locked(uint64_t ns)
{
    (void)weir_thread_condition_wait(&runner.changed, &runner.lock, weir_clock_now_ns() + ns);
}

/* There is no function to run: read the channel if functions are expected and no other thread
 * reads. */
static void await_work_locked(void)
{
    if (!runner.entries || __atomic_load_n(&weir_guest.channel.dead, __ATOMIC_ACQUIRE)) {
        pthread_cond_wait(&runner.changed, &runner.lock);
        return;
    }
    pthread_mutex_unlock(&runner.lock);
    bool led = weir_channel_pump(weir_guest_channel(), PUMP_NS);
    pthread_mutex_lock(&runner.lock);
    if (!led && !runner.first && !runner.stop) {
        nap_locked(OTHER_READ_NS);
    }
}

static void *runner_main(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&runner.lock);
    while (!runner.stop) {
        struct job *job = take_job_locked();
        if (!job) {
            await_work_locked();
            continue;
        }
        pthread_mutex_unlock(&runner.lock);
        if (job->ticket == 0) {
            forget_refused(job);
        } else if (!run_job(job)) {
            free(job);
            return NULL; /* the child has no other thread, so it ends here */
        }
        free(job);
        pthread_mutex_lock(&runner.lock);
    }
    pthread_mutex_unlock(&runner.lock);
    return NULL;
}

static bool start_locked(void)
{
    if (runner.started) {
        return true;
    }
    weir_thread_condition_init(&runner.changed);
    runner.stop = false;
    runner.started = weir_thread_start(&runner.thread, 0, runner_main, NULL) == 0;
    return runner.started;
}

CUresult weir_callback_add(weir_callback_fn fn, weir_callback_fn refused, void *user, bool once,
                           uint64_t *ret_token)
{
    struct entry *entry = malloc(sizeof *entry);
    WEIR_FAIL_IF(!entry, CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&runner.lock);
    if (!start_locked()) {
        pthread_mutex_unlock(&runner.lock);
        free(entry);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *entry = (struct entry){.next = runner.entries,
                            .token = ++runner.next_token,
                            .fn = fn,
                            .refused = refused,
                            .user = user,
                            .once = once};
    runner.entries = entry;
    __atomic_add_fetch(&pending, 1, __ATOMIC_RELAXED);
    *ret_token = entry->token;
    pthread_cond_signal(&runner.changed);
    pthread_mutex_unlock(&runner.lock);
    return CUDA_SUCCESS;
}

void weir_callback_remove(uint64_t token)
{
    pthread_mutex_lock(&runner.lock);
    struct entry **at = find_locked(token);
    struct entry *found = *at;
    if (found) {
        *at = found->next;
        __atomic_sub_fetch(&pending, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&runner.lock);
    free(found);
}

CUresult weir_callback_in_stream(struct weir_guest_stream *stream, weir_callback_fn fn,
                                 weir_callback_fn refused, void *user)
{
    struct weir_op_host_func_in in = {.s = stream->handle};
    CUresult result = weir_callback_add(fn, refused, user, true, &in.token);
    if (result != CUDA_SUCCESS) {
        refused(user);
        return result;
    }
    weir_guest_stream_work_begin(stream);
    result = weir_guest_capturing() ? weir_call_host_func(weir_guest_channel(), &in, NULL)
                                    : weir_post_host_func(weir_guest_channel(), &in);
    if (result != CUDA_SUCCESS) {
        weir_callback_remove(in.token);
        refused(user);
    }
    return weir_guest_stream_work_end(stream, result);
}

bool weir_callbacks_pending(void)
{
    return __atomic_load_n(&pending, __ATOMIC_ACQUIRE) != 0;
}

/* -------------------------------------------------------------- access to a remote host's arena */

static bool within_remote_function(void)
{
    return own_ticket && weir_guest.channel.remote;
}

CUresult weir_callback_staging_write(uint64_t offset, const void *data, uint64_t bytes)
{
    if (!within_remote_function()) {
        return weir_staging_write(offset, data, bytes);
    }
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS;) {
        uint64_t left = bytes - done;
        uint32_t piece =
            left < WEIR_HOST_FUNC_DATA_BYTES ? (uint32_t)left : WEIR_HOST_FUNC_DATA_BYTES;
        const struct weir_op_host_func_write_in in = {.ticket = own_ticket,
                                                      .offset = offset + done,
                                                      .data = (const uint8_t *)data + done,
                                                      .n_data = piece};
        result = weir_post_host_func_write(weir_guest_channel(), &in);
        done += piece;
    }
    return result;
}

/* Request a piece, and read the channel until it has arrived, or until another thread has received
 * it. */
static CUresult read_piece(uint64_t offset, uint8_t *to, uint64_t bytes)
{
    struct weir_channel *channel = weir_guest_channel();
    const struct weir_op_host_func_read_in in = {own_ticket, offset, bytes};
    pthread_mutex_lock(&runner.lock);
    wanted.to = to;
    wanted.bytes = bytes;
    wanted.answered = wanted.good = false;
    pthread_mutex_unlock(&runner.lock);
    CUresult result = weir_post_host_func_read(channel, &in);
    pthread_mutex_lock(&runner.lock);
    while (result == CUDA_SUCCESS && !wanted.answered) {
        pthread_mutex_unlock(&runner.lock);
        bool led = weir_channel_pump(channel, OTHER_READ_NS);
        result = (CUresult)__atomic_load_n(&channel->dead, __ATOMIC_ACQUIRE);
        pthread_mutex_lock(&runner.lock);
        if (!led && !wanted.answered) {
            nap_locked(OTHER_READ_NS);
        }
    }
    wanted.to = NULL;
    result = result == CUDA_SUCCESS && !wanted.good ? CUDA_ERROR_UNKNOWN : result;
    pthread_mutex_unlock(&runner.lock);
    return result;
}

CUresult weir_callback_staging_read(uint64_t offset, void *ret_data, uint64_t bytes)
{
    if (!within_remote_function()) {
        return weir_staging_read(offset, ret_data, bytes);
    }
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS;) {
        uint64_t left = bytes - done;
        uint64_t piece = WEIR_MIN(left, WEIR_HOST_FUNC_DATA_BYTES);
        result = read_piece(offset + done, (uint8_t *)ret_data + done, piece);
        done += piece;
    }
    return result;
}

static void take_data(const void *body, size_t body_bytes)
{
    struct weir_op_host_func_data_in in;
    bool good = weir_ops[WEIR_OP_host_func_data].in_decode(body, body_bytes, &in);
    WEIR_LOCKED(&runner.lock);
    if (wanted.to && !wanted.answered) {
        wanted.good = good && in.n_data == wanted.bytes;
        if (wanted.good) {
            memcpy(wanted.to, in.data, in.n_data);
        }
        wanted.answered = true;
        pthread_cond_signal(&runner.changed);
    }
}

/* ---------------------------------------------------------------- notifications */

void weir_callback_notify(void *user, enum weir_op op, const void *body, size_t body_bytes)
{
    (void)user;
    if (op == WEIR_OP_host_func_data) {
        take_data(body, body_bytes);
        return;
    }
    struct weir_op_host_func_call_in call;
    if (op != WEIR_OP_host_func_call || !weir_ops[op].in_decode(body, body_bytes, &call)) {
        weir_log_error("guest: malformed notification, op=%d", (int)op);
        return;
    }
    struct job *job = malloc(sizeof *job);
    if (!job) {
        weir_log_error("guest: no memory for a host function");
        weir_channel_kill(weir_guest_channel(),
                          CUDA_ERROR_OUT_OF_MEMORY); /* otherwise the caller would wait for ever */
        return;
    }
    *job = (struct job){.token = call.token, .ticket = call.ticket, .word = call.word};
    WEIR_LOCKED(&runner.lock);
    if (!runner.first) {
        runner.last = &runner.first;
    }
    *runner.last = job;
    runner.last = &job->next;
    pthread_cond_signal(&runner.changed);
}

void weir_callbacks_finish(void)
{
    pthread_mutex_lock(&runner.lock);
    bool started = runner.started;
    runner.stop = true;
    pthread_cond_signal(&runner.changed);
    pthread_mutex_unlock(&runner.lock);
    if (started) {
        pthread_join(runner.thread, NULL);
    }
    runner.started = false;
    for (struct entry *first; (first = WEIR_POP(runner.entries));) {
        free(first);
    }
    __atomic_store_n(&pending, 0, __ATOMIC_RELAXED);
    for (struct job *gone; (gone = WEIR_POP(runner.first));) {
        free(gone);
    }
}

/*
 * Running queued work: a graph of tasks, and the threads that run those that are ready.
 *
 * Every operation of a stream, every node of a launched graph and every mark (an event, the join of
 * a graph) is a task that waits for its predecessors. A task becomes ready when its last
 * predecessor finishes: a mark then finishes at once, and an operation goes to a queue by priority.
 * A thread is started when there are more ready tasks than idle threads, because operations may
 * block for long (host functions, waits for a memory value), and ends after ten idle seconds.
 * Threads are never joined: when the process exits, they end with it, and kernels see the cancel
 * flag.
 *
 * The driver's lock guards all of this; operations run without the lock.
 */
#include "base/clock.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/thread.h"
#include "softgpu/driver/driver.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define IDLE_SECONDS 10
#define MAX_THREADS  1024

static struct {
    struct weir_soft_task *first; /* ready tasks by priority: smaller numbers first */
    uint32_t n_ready, n_idle, n_threads;
    pthread_cond_t more;
    bool have_cond;
} pool;

const struct weir_soft_task_watcher *weir_soft_task_watcher;

static bool is_watched(const struct weir_soft_op *op)
{
    return op->kind == WEIR_SOFT_OP_KERNEL || op->kind == WEIR_SOFT_OP_COPY ||
           op->kind == WEIR_SOFT_OP_SET;
}

struct weir_soft_task *weir_soft_task_new(struct weir_soft_ctx *ctx, struct weir_soft_op *op,
                                          int priority)
{
    struct weir_soft_task *task = calloc(1, sizeof(*task));
    WEIR_FAIL_IF(!task, NULL);
    task->refs = 2; /* one for the caller, and one that the task keeps until it has run */
    task->n_waits = 1;
    task->op = op;
    if (op) {
        op->refs++;
        task->tag = weir_soft_task_watcher && is_watched(op) ? weir_soft_task_watcher->given() : 0;
    }
    task->priority = priority;
    task->ctx = weir_soft_object_ref(ctx);
    if (ctx) {
        task->live_next = ctx->tasks;
        task->live_prev = &ctx->tasks;
        if (ctx->tasks) {
            ctx->tasks->live_prev = &task->live_next;
        }
        ctx->tasks = task;
    }
    return task;
}

void weir_soft_task_put(struct weir_soft_task *task)
{
    if (!task || --task->refs != 0) {
        return;
    }
    weir_soft_op_put(task->op);
    weir_soft_object_put(task->ctx);
    free(task->next);
    free(task);
}

bool weir_soft_task_after(struct weir_soft_task *task, struct weir_soft_task *earlier)
{
    if (weir_soft_task_is_done(earlier) || earlier == task) {
        return true;
    }
    WEIR_FAIL_IF(!WEIR_GROW(earlier->next, earlier->n_next, earlier->cap_next), false);
    earlier->next[earlier->n_next++] = task;
    task->n_waits++;
    task->refs++;
    return true;
}

static void *worker(void *unused);

static void add_thread(void)
{
    pthread_t thread;
    /* Fault signals stay unblocked: the program handles faults in memory that a copy accesses. */
    if (weir_thread_start(&thread, 0, worker, NULL) == 0) {
        pthread_detach(thread);
        pool.n_threads++;
    } else {
        weir_log_error("softgpu: no thread for a stream threads=%u", pool.n_threads);
    }
}

static void make_ready(struct weir_soft_task *task)
{
    struct weir_soft_task **at = &pool.first;
    while (*at && (*at)->priority <= task->priority) {
        at = &(*at)->queue_next;
    }
    task->queue_next = *at;
    *at = task;
    pool.n_ready++;
    if (pool.n_ready > pool.n_idle && pool.n_threads < MAX_THREADS) {
        add_thread();
    } else {
        pthread_cond_signal(&pool.more);
    }
}

static bool is_mark(const struct weir_soft_task *task)
{
    return !task->op || task->op->kind == WEIR_SOFT_OP_EMPTY ||
           task->op->kind == WEIR_SOFT_OP_RECORD || task->op->kind == WEIR_SOFT_OP_WAIT;
}

/* Finish a task and, without recursion, all marks that this frees. */
static void finish(struct weir_soft_task *task)
{
    struct weir_soft_task *list = task;
    task->queue_next = NULL;
    while (list) {
        struct weir_soft_task *t = list;
        list = t->queue_next;
        t->finished_ns = weir_clock_now_ns();
        if (t->live_prev) {
            *t->live_prev = t->live_next;
            if (t->live_next) {
                t->live_next->live_prev = t->live_prev;
            }
            t->live_prev = NULL;
        }
        __atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
        weir_futex_wake(&t->done, INT32_MAX);
        for (uint32_t i = 0; i < t->n_next; i++) {
            struct weir_soft_task *later = t->next[i];
            assert(later->refs > 1); /* one that it keeps until it has run, and the one of t */
            if (--later->n_waits == 0) {
                if (is_mark(later)) {
                    later->queue_next = list;
                    list = later;
                } else {
                    make_ready(later);
                }
            }
            weir_soft_task_put(later); /* its own reference keeps it alive */
        }
        t->n_next = 0;
        struct weir_soft_users *users = t->users;
        t->users = NULL;
        weir_soft_task_put(t);
        /* This may release the lock; no other thread uses the list. */
        weir_soft_users_put(users);
    }
}

void weir_soft_task_start(struct weir_soft_task *task)
{
    if (!pool.have_cond) {
        weir_thread_condition_init(&pool.more);
        pool.have_cond = true;
    }
    if (--task->n_waits == 0) {
        if (is_mark(task)) {
            finish(task);
        } else {
            make_ready(task);
        }
    }
}

static void make_sticky(struct weir_soft_ctx *ctx, CUresult result)
{
    if (ctx->sticky == CUDA_SUCCESS) {
        ctx->sticky = result;
    }
}

/* Under MPS, work queued behind a failed assert still runs (seen on an H200, driver 580). */
void weir_soft_ctx_kernel_failed(struct weir_soft_ctx *ctx, CUresult result)
{
    if (result == CUDA_ERROR_ASSERT && ctx->device->under_mps) {
        ctx->untold = result;
    } else {
        make_sticky(ctx, result);
    }
}

CUresult weir_soft_ctx_tell(struct weir_soft_ctx *ctx)
{
    if (ctx->untold != CUDA_SUCCESS) {
        make_sticky(ctx, ctx->untold);
    }
    return ctx->sticky;
}

/* Does this work run even in a faulted context, since other contexts may wait for it? */
static bool runs_after_fault(const struct weir_soft_op *op)
{
    return op->kind == WEIR_SOFT_OP_CALLBACK || op->kind == WEIR_SOFT_OP_FREE ||
           op->kind == WEIR_SOFT_OP_IPC_SIGNAL;
}

static void run_one(struct weir_soft_task *task)
{
    struct weir_soft_ctx *ctx = task->ctx;
    CUresult result = ctx ? ctx->sticky : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS || runs_after_fault(task->op)) {
        task->begun_ns = weir_soft_task_watcher ? weir_clock_now_ns() : 0;
        weir_soft_unlock();
        result = weir_soft_op_run(task->op);
        weir_soft_lock();
    }
    task->result = result;
    if (result != CUDA_SUCCESS && ctx) {
        weir_soft_ctx_kernel_failed(ctx, result);
    }
    if (weir_soft_task_watcher && is_watched(task->op)) {
        task->finished_ns = weir_clock_now_ns();
        weir_soft_task_watcher->ended(task);
    }
    finish(task);
}

static void *worker(void *unused)
{
    (void)unused;
    (void)prctl(PR_SET_NAME, "softgpu-stream");
    weir_soft_lock_runs_tasks();
    weir_soft_lock();
    for (;;) {
        struct weir_soft_task *task = pool.first;
        if (task) {
            pool.first = task->queue_next;
            pool.n_ready--;
            run_one(task);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += IDLE_SECONDS;
        pool.n_idle++;
        bool late = !weir_soft_lock_wait(&pool.more, &until);
        pool.n_idle--;
        if (late && !pool.first) {
            break;
        }
    }
    pool.n_threads--;
    weir_soft_unlock();
    return NULL;
}

void weir_soft_task_wait_unlocked(struct weir_soft_task *task)
{
    if (weir_soft_task_is_done(task)) {
        return;
    }
    task->refs++;
    weir_soft_unlock();
    while (!weir_soft_task_is_done(task)) {
        weir_futex_wait(&task->done, 0, WEIR_FOREVER);
    }
    weir_soft_lock();
    assert(task->refs > 1); /* the caller has a reference, too */
    weir_soft_task_put(task);
}

struct weir_soft_task *weir_soft_task_barrier(struct weir_soft_ctx *ctx)
{
    struct weir_soft_task *mark = weir_soft_task_new(NULL, NULL, 0);
    WEIR_FAIL_IF(!mark, NULL);
    for (struct weir_soft_task *t = ctx->tasks; t; t = t->live_next) {
        if (!weir_soft_task_after(mark, t)) {
            break; /* out of memory: the barrier covers fewer tasks, and the caller waits again */
        }
    }
    weir_soft_task_start(mark);
    return mark; /* the caller's reference keeps it. NOLINT(clang-analyzer-unix.Malloc) */
}

void weir_soft_tasks_forget(void)
{
    pool.first = NULL;
    pool.n_ready = pool.n_idle = pool.n_threads = 0;
    pool.have_cond = false;
}

static void wait_for_tasks(struct weir_soft_ctx *ctx)
{
    struct weir_soft_task *barrier = ctx->tasks ? weir_soft_task_barrier(ctx) : NULL;
    if (barrier) {
        weir_soft_task_wait_unlocked(barrier);
        weir_soft_task_put(barrier);
    }
}

void weir_soft_ctx_wait_keeping_out(struct weir_soft_ctx *ctx)
{
    weir_soft_object_ref(ctx);
    weir_soft_lock_keep_out();
    wait_for_tasks(ctx);
    weir_soft_object_put(ctx);
    weir_soft_lock_let_in();
}

void weir_soft_ctx_settle(struct weir_soft_ctx *ctx)
{
    if (weir_soft_device_waits()) {
        weir_soft_ctx_wait_keeping_out(ctx);
    } else {
        wait_for_tasks(ctx);
    }
}

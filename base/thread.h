/* Threads for libraries that are loaded into other people's programs: they leave the program's
 * signals alone. Also conditions with a monotonic clock. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Start a thread that takes no signals: those sent to the process are for the program's own
 * threads. Signals that the thread causes itself (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP) still
 * reach the program's handlers; if they were blocked, they would end the program without them.
 *
 * @param ret_thread   to join or detach.
 * @param stack_bytes  0: the system's default.
 * @param run, user    the function that it runs, and its argument.
 * @return 0, or pthread_create()'s error
 * @thread any
 */
int weir_thread_start(pthread_t *ret_thread, size_t stack_bytes, void *(*run)(void *), void *user);

/**
 * Make a condition whose timed waits end by weir_clock_now_ns(), independent of the time of day.
 *
 * @param condition  no thread may wait for it. Destroy it with pthread_cond_destroy().
 * @thread any
 */
void weir_thread_condition_init(pthread_cond_t *condition);

/**
 * Wait for a condition, or until a time. As with pthread_cond_wait(), test the condition before and
 * afterwards.
 *
 * @param condition  from weir_thread_condition_init().
 * @param mutex      held by the caller.
 * @param end_ns     by weir_clock_now_ns().
 * @return false: the time has come
 */
bool weir_thread_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t end_ns);

static inline pthread_mutex_t *weir_thread_hold(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void weir_thread_let_go(pthread_mutex_t *const *mutex)
{
    pthread_mutex_unlock(*mutex);
}

/** Hold a mutex until the end of the block. The value of a return statement is computed while the
 * mutex is held. */
#define WEIR_LOCKED(mutex)                                                                         \
    __attribute__((cleanup(weir_thread_let_go), unused)) pthread_mutex_t *const held_mutex =       \
        weir_thread_hold(mutex)

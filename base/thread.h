/* Threads for libraries that are loaded into other people's programs, which leave the program's
 * signals alone; and conditions with a monotonic clock. */
#ifndef WEIR_BASE_THREAD_H
#define WEIR_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Start a thread that takes no signals: those sent to the process are for the program's own
 * threads. What the thread brings on itself (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP) still
 * reaches the program's handlers; blocked, it would end the program without them.
 *
 * @param ret_thread   to join or detach.
 * @param stack_bytes  0: the system's default.
 * @param run, user    what it runs.
 * @return 0, or pthread_create()'s error
 * @thread any
 */
int weir_thread_start(pthread_t *ret_thread, size_t stack_bytes, void *(*run)(void *), void *user);

/**
 * Make a condition whose timed waits end by weir_clock_now_ns(), whatever becomes of the time of
 * day.
 *
 * @param condition  nobody may wait for it. pthread_cond_destroy() when it is needed no more.
 * @thread any
 */
void weir_thread_condition_init(pthread_cond_t *condition);

/**
 * Wait for a condition, or until a time. As with pthread_cond_wait(), test the condition before and
 * afterwards.
 *
 * @param condition  of weir_thread_condition_init().
 * @param mutex      held by the caller.
 * @param end_ns     by weir_clock_now_ns().
 * @return false: the time has come
 */
bool weir_thread_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t end_ns);

#endif

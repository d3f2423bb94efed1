#include "base/thread.h"

#include "base/clock.h"
#include "base/search.h"
#include <signal.h>
#include <time.h>

int weir_thread_start(pthread_t *ret_thread, size_t stack_bytes, void *(*run)(void *), void *user)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t all, before;
    pthread_attr_t attr;
    int error = pthread_attr_init(&attr);

    if (error != 0) {
        return error;
    }
    if (stack_bytes != 0) {
        /* If the size is too small, the default stays. */
        (void)pthread_attr_setstacksize(&attr, stack_bytes);
    }
    (void)sigfillset(&all);
    for (size_t i = 0; i < WEIR_COUNT(own); i++) {
        (void)sigdelset(&all, own[i]);
    }
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* a thread inherits its maker's mask */
    error = pthread_create(ret_thread, &attr, run, user);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return error;
}

void weir_thread_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

bool weir_thread_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t end_ns)
{
    const struct timespec end = {(time_t)(end_ns / WEIR_NS_PER_S), (long)(end_ns % WEIR_NS_PER_S)};

    return pthread_cond_timedwait(condition, mutex, &end) == 0;
}

#include "base/clock.h"
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t weir_clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* this cannot fail for CLOCK_MONOTONIC */
    return (uint64_t)now.tv_sec * WEIR_NS_PER_S + (uint64_t)now.tv_nsec;
}

bool weir_futex_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    int saved_errno = errno;
    struct timespec relative = {.tv_sec = (time_t)(timeout_ns / WEIR_NS_PER_S),
                                .tv_nsec = (long)(timeout_ns % WEIR_NS_PER_S)};
    long result = syscall(SYS_futex, word, FUTEX_WAIT, expected,
                          timeout_ns == WEIR_FOREVER ? NULL : &relative, NULL, 0);
    bool again = result == 0 || errno != ETIMEDOUT;
    errno = saved_errno;
    return again;
}

void weir_futex_wake(uint32_t *word, int count)
{
    int saved_errno = errno;
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
    errno = saved_errno;
}

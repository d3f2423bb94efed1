/* Waiting for what another thread or process does. */
#pragma once

#include "base/clock.h"
#include "tests/lib/tl_cmocka.h"

#include <stdint.h>
#include <time.h>

#define TL_AWAIT_S 60 /* bounds a hang, also on a busy machine */

/* Wait until an expression holds; fails the test when it does not, and says which one it was. */
#define tl_await(expression)                                                                       \
    do {                                                                                           \
        uint64_t end_ = weir_clock_now_ns() + TL_AWAIT_S * WEIR_NS_PER_S;                          \
        while (!(expression)) {                                                                    \
            tl_await_pause(end_, #expression, __FILE__, __LINE__);                                 \
        }                                                                                          \
    } while (0)

static inline void tl_await_pause(uint64_t end_ns, const char *what, const char *file, int line)
{
    struct timespec pause = {0, 200 * 1000};

    if (weir_clock_now_ns() > end_ns) {
        print_error("not within %d s: %s\n", TL_AWAIT_S, what);
        _fail(file, line);
    }
    nanosleep(&pause, NULL);
}

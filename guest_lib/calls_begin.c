/* The beginning of a timed call, and the reading of the environment's settings for all calls. */
#include "guest_lib/calls.h"

#include "base/clock.h"
#include "guest_lib/calls_log.h"
#include <stdlib.h>
#include <string.h>

/* Read the settings from the environment; the first call decides for all later ones. */
static void decide(void)
{
    uint32_t detail = weir_calls_log_wanted() ? WEIR_CALLS_TIMED | WEIR_CALLS_LOGGED : 0;
    const char *stats = getenv("WEIR_STATS");
    if (stats && *stats && strcmp(stats, "0") != 0) {
        detail |= WEIR_CALLS_TIMED;
    }
    __atomic_fetch_or(&weir_calls_detail, detail, __ATOMIC_RELAXED);
    __atomic_fetch_and(&weir_calls_detail, ~(uint32_t)WEIR_CALLS_UNDECIDED, __ATOMIC_RELAXED);
}

void weir_calls_begin_timed(struct weir_calls_thread *mine)
{
    if (__atomic_load_n(&weir_calls_detail, __ATOMIC_RELAXED) & WEIR_CALLS_UNDECIDED) {
        decide();
    }
    uint32_t detail = __atomic_load_n(&weir_calls_detail, __ATOMIC_RELAXED);
    if (detail & (WEIR_CALLS_TIMED | WEIR_CALLS_WATCHED)) {
        mine->marks = WEIR_CALLS_DETAIL;
        mine->start_ns = weir_clock_now_ns();
    }
}

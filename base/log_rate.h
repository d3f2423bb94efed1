/*
 * How many lines of the log somebody may cause: so many of each level in an interval, then none
 * until it is over. Their number is kept, and told with the next line.
 */
#ifndef WEIR_BASE_LOG_RATE_H
#define WEIR_BASE_LOG_RATE_H

#include "base/log.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR_LOG_RATE_LINES      200 /* of each level, and ten times as many for who debugs */
#define WEIR_LOG_RATE_INTERVAL_S 10

/* Internally locked. */
struct weir_log_rate {
    pthread_mutex_t lock;
    uint32_t several; /* it is for so many that may each cause as much; 0: for one */
    uint64_t
        since_ns[WEIR_LOG_COUNT]; /* when the interval began; guarded by lock, as is the rest */
    uint32_t n[WEIR_LOG_COUNT];   /* lines in it */
    uint64_t left_out;            /* of all levels, and not told yet */
};

void weir_log_rate_init(struct weir_log_rate *rate);
void weir_log_rate_finish(struct weir_log_rate *rate);

/** How many lines of a level it lets through in an interval. @thread any */
uint32_t weir_log_rate_lines(const struct weir_log_rate *rate, enum weir_log_level level);

enum weir_log_verdict {
    WEIR_LOG_WRITE,
    WEIR_LOG_WRITE_LAST, /* the last line of this level before some may be left out */
    WEIR_LOG_LEAVE_OUT,
};

/**
 * A line is to be written: may it be?
 *
 * @param now_ns        by weir_clock_now_ns().
 * @param ret_left_out  with WEIR_LOG_WRITE, how many lines were left out since this was last told.
 * @thread any
 */
enum weir_log_verdict weir_log_rate_ask(struct weir_log_rate *rate, enum weir_log_level level,
                                        uint64_t now_ns, uint64_t *ret_left_out);

/**
 * From now on the lines of this thread are limited.
 * @param rate   borrowed until the next call; NULL: no longer.
 * @param whose  a tenant's name, borrowed as long.
 * @thread any; for itself
 */
void weir_log_limit_thread(struct weir_log_rate *rate, const char *whose);

#endif

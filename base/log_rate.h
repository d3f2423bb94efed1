/*
 * Limits the lines that one user may cause in the log: a number for each level in an interval, then
 * none until the interval ends. Omitted lines are counted, and the next line reports their number.
 */
#pragma once

#include "base/log.h"
#include "base/thread.h"
#include <stdbool.h>
#include <stdint.h>

/* The most lines of one level that are logged in an interval. If debug lines are logged, the limit
 * is ten times as high. */
#define WEIR_LOG_RATE_LINES      200
#define WEIR_LOG_RATE_INTERVAL_S 10

/* Internally locked. */
struct weir_log_rate {
    pthread_mutex_t lock;
    uint32_t several; /* number of users that share it, each with its full limit; 0: one */
    uint64_t since_ns[WEIR_LOG_COUNT]; /* when the interval began; guarded by lock, as are all
                                          members below */
    uint32_t n[WEIR_LOG_COUNT];        /* lines written in the interval */
    uint64_t left_out; /* lines of all levels that were left out and not reported yet */
};

void weir_log_rate_init(struct weir_log_rate *rate);
void weir_log_rate_finish(struct weir_log_rate *rate);

/** How many lines of a level a rate allows in an interval. @thread any */
uint32_t weir_log_rate_lines(const struct weir_log_rate *rate, enum weir_log_level level);

enum weir_log_verdict {
    WEIR_LOG_WRITE,
    WEIR_LOG_WRITE_LAST, /* write this line; the next ones of its level may be left out */
    WEIR_LOG_LEAVE_OUT,
};

/**
 * May a line be written?
 *
 * @param now_ns        by weir_clock_now_ns().
 * @param ret_left_out  with WEIR_LOG_WRITE, how many lines were left out since this was last
 * reported.
 * @thread any
 */
enum weir_log_verdict weir_log_rate_ask(struct weir_log_rate *rate, enum weir_log_level level,
                                        uint64_t now_ns, uint64_t *ret_left_out);

/**
 * From now on the lines of this thread are limited.
 * @param rate   borrowed until the next call; NULL: end the limit.
 * @param whose  a tenant's name, borrowed as long as rate.
 * @thread any; for itself
 */
void weir_log_limit_thread(struct weir_log_rate *rate, const char *whose);

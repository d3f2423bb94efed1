#include "base/log_rate.h"

#include "base/clock.h"
#include <string.h>

void weir_log_rate_init(struct weir_log_rate *rate)
{
    memset(rate, 0, sizeof *rate);
    pthread_mutex_init(&rate->lock, NULL);
}

void weir_log_rate_finish(struct weir_log_rate *rate)
{
    pthread_mutex_destroy(&rate->lock);
}

uint32_t weir_log_rate_lines(const struct weir_log_rate *rate, enum weir_log_level level)
{
    return (level == WEIR_LOG_DEBUG ? 10 : 1) * (rate->several != 0 ? rate->several : 1) *
           WEIR_LOG_RATE_LINES;
}

enum weir_log_verdict weir_log_rate_ask(struct weir_log_rate *rate, enum weir_log_level level,
                                        uint64_t now_ns, uint64_t *ret_left_out)
{
    enum weir_log_verdict verdict = WEIR_LOG_WRITE;
    uint32_t most = weir_log_rate_lines(rate, level);

    *ret_left_out = 0;
    WEIR_LOCKED(&rate->lock);
    if (rate->n[level] == 0 ||
        now_ns - rate->since_ns[level] >= WEIR_LOG_RATE_INTERVAL_S * WEIR_NS_PER_S) {
        rate->since_ns[level] = now_ns;
        rate->n[level] = 0;
    }
    if (rate->n[level] >= most) {
        rate->left_out++;
        verdict = WEIR_LOG_LEAVE_OUT;
    } else if (++rate->n[level] == most) {
        verdict = WEIR_LOG_WRITE_LAST;
    } else {
        *ret_left_out = rate->left_out;
        rate->left_out = 0;
    }
    return verdict;
}

/* Decisions. */
#include "sched/private.h"

uint64_t item_rest_ns(const struct weir_sched *sched, const struct item *item)
{
    uint64_t served = item->served_ns;

    if (item->predicted_ns == 0) {
        return 0;
    }
    if (resource_of(item->params.class) == WEIR_SCHED_COMPUTE) {
        served /= sched->config.sms;
    }
    return served < item->predicted_ns ? item->predicted_ns - served : 1;
}

void decide(struct weir_sched *sched)
{
    static const struct weir_sched_place anywhere;
    uint32_t at = 0;
    struct queue *queue;

    while ((queue = table_next(&sched->queues, &at)) != NULL) {
        while (queue->candidate != NULL) {
            item_start(sched, queue->candidate, &anywhere);
        }
    }
}

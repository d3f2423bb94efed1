/*
 * Service, charged as time passes.
 *
 * Of each queue only the first item on the device is at work (the others wait for it): the fronts.
 * A copy direction is served in equal parts to its fronts. SMs go to the fronts of compute in the
 * order in which they came to the device, higher classes first, as the device itself deals them
 * out: whoever has a range of SMs pays for that range, whoever has none for all that are left, so
 * that a newcomer behind a kernel that runs out pays nothing until it is gone. Items with a quota
 * of blocks share SMs with each other, and what they have is charged in equal parts.
 */
#include "sched/private.h"

static bool goes_before(const struct item *a, const struct item *b)
{
    return a->queue->tenant->view.priority > b->queue->tenant->view.priority;
}

void front_add(struct weir_sched *sched, struct item *item)
{
    enum weir_sched_resource resource = resource_of(item->params.class);
    struct item *after = sched->front_last[resource];

    while (after != NULL && goes_before(item, after)) {
        after = after->front_prev;
    }
    item->is_front = true;
    item->front_ns = sched->now_ns;
    item->front_prev = after;
    item->front_next = after != NULL ? after->front_next : sched->front_first[resource];
    *(item->front_next != NULL ? &item->front_next->front_prev : &sched->front_last[resource]) =
        item;
    *(after != NULL ? &after->front_next : &sched->front_first[resource]) = item;
}

void front_remove(struct weir_sched *sched, struct item *item)
{
    enum weir_sched_resource resource = resource_of(item->params.class);

    if (!item->is_front) {
        return;
    }
    *(item->front_prev != NULL ? &item->front_prev->front_next : &sched->front_first[resource]) =
        item->front_next;
    *(item->front_next != NULL ? &item->front_next->front_prev : &sched->front_last[resource]) =
        item->front_prev;
    item->front_next = item->front_prev = NULL;
    item->is_front = false;
}

static void pay(struct item *item, enum weir_sched_resource resource, uint64_t service_ns)
{
    item->served_ns += service_ns;
    item->queue->tenant->view.service_ns[resource] += service_ns;
}

static void charge_copies(struct weir_sched *sched, enum weir_sched_resource direction, uint64_t ns)
{
    uint64_t count = 0;

    for (struct item *i = sched->front_first[direction]; i != NULL; i = i->front_next) {
        count++;
    }
    for (struct item *i = sched->front_first[direction]; i != NULL; i = i->front_next) {
        uint64_t part = ns / count;

        pay(i, direction, part);
        ns -= part;
        count--;
    }
}

static void charge_compute(struct weir_sched *sched, uint64_t ns)
{
    uint32_t left = sched->config.sms;
    uint64_t sharing = 0;
    uint64_t shared_ns;

    for (struct item *i = sched->front_first[0]; i != NULL && left > 0; i = i->front_next) {
        if (i->place.quota != 0) {
            sharing++;
        } else if (sharing == 0 || i->place.sm_count != 0) {
            uint32_t sms =
                i->place.sm_count != 0 && i->place.sm_count < left ? i->place.sm_count : left;

            pay(i, WEIR_SCHED_COMPUTE, ns * sms);
            left -= sms;
        }
    }
    shared_ns = ns * left;
    for (struct item *i = sched->front_first[0]; i != NULL && sharing > 0; i = i->front_next) {
        if (i->place.quota != 0) {
            uint64_t part = shared_ns / sharing;

            pay(i, WEIR_SCHED_COMPUTE, part);
            shared_ns -= part;
            sharing--;
        }
    }
}

void charge_until(struct weir_sched *sched, uint64_t now_ns)
{
    uint64_t ns;

    if (now_ns <= sched->charged_ns) {
        return;
    }
    ns = now_ns - sched->charged_ns;
    sched->charged_ns = now_ns;
    charge_compute(sched, ns);
    charge_copies(sched, WEIR_SCHED_TO_DEVICE, ns);
    charge_copies(sched, WEIR_SCHED_FROM_DEVICE, ns);
}

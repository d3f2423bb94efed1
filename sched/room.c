/*
 * Room: beside small graphs, kernels leave a part of the device's SMs free.
 *
 * A small graph is many short kernels, one after the other. Even at a higher level each of them
 * waits until blocks of another tenant's kernel have ended, because a running block is not taken
 * off its SM. So a token of a language model, whose graph has a thousand kernels, took 14 ms beside
 * a training, and 6.8 alone. If the training's kernels are kept to 80 of 132 SMs, the token takes
 * 10 to 11 ms, and the training gets as much done as before, since its kernels make better use of
 * their SMs. (H100, docs/measurements/other-programs.md, "Room for small graphs".)
 *
 * So while other tenants' small graphs are on the device most of the time, a kernel is granted with
 * config.room_sms of the SMs. A kernel whose blocks fit on the device at once, but not on the part,
 * has all SMs: its blocks may wait for each other. A kernel that can be stopped is not kept to a
 * part, since that form of launch cannot use a green context.
 *
 * A kernel on a part of the SMs costs as before: in the end its time alone, if that is known
 * (charge.c). Its duration there is learned, converted to all SMs, only if it was unsure
 * (learn_durations.c).
 */
#include "sched/private.h"

#define STEP 8u

uint32_t weir_sched_room_sms(uint32_t sms)
{
    return sms * tuning.room_eighths / 8 / STEP * STEP;
}

/* 16 SMs are an eighth of a large GPU: finer parts would only be more of them to make. 8 is the
 * coarsest step that a GPU asks for (compute capability 9.0), and softgpu's is 2. */
uint32_t weir_sched_part_step(uint32_t sms)
{
    return sms >= 64 ? 16 : sms >= 32 ? STEP : sms >= 4 ? 2 : 0;
}

void room_pass(struct weir_sched *sched, const struct item *small, uint64_t ns)
{
    if (sched->config.room_sms == 0 || sched->config.room_sms >= sched->config.sms) {
        return;
    }
    if (small) {
        sched->room_ns = min_u64(sched->room_ns + ns, 2 * tuning.room_from_ns);
        sched->room_for = small->queue->tenant->view.id;
        sched->room_class = small->queue->tenant->view.priority;
    } else {
        sched->room_ns -= min_u64(sched->room_ns, ns);
    }
}

bool room_is_made(const struct weir_sched *sched)
{
    return sched->room_ns >= tuning.room_from_ns;
}

/* Is the room for another tenant, of this tenant's class or a higher one? */
static bool is_for_another(const struct weir_sched *sched, const struct tenant *tenant)
{
    const struct item *front = sched->front_first[WEIR_SCHED_COMPUTE];

    if (sched->room_for != tenant->view.id) {
        return sched->room_class >= tenant->view.priority;
    }
    while (front && (small_sms(front) == 0 || front->queue->tenant == tenant ||
                     front->queue->tenant->view.priority < tenant->view.priority)) {
        front = front->front_next;
    }
    return front != NULL;
}

bool room_needs_all(const struct weir_sched *sched, const struct item *item, uint32_t sms)
{
    const struct weir_sched_item_params *p = &item->params;
    uint32_t needed;

    if (sms == 0 || p->class != WEIR_SCHED_KERNEL) {
        return false;
    }
    if (p->blocks == 0 || p->blocks_per_sm == 0) {
        return true; /* it is not known */
    }
    needed = (p->blocks - 1) / p->blocks_per_sm + 1;
    return needed > sms && needed <= sched->config.sms;
}

uint32_t room_part(const struct weir_sched *sched, const struct item *item)
{
    const struct weir_sched_item_params *p = &item->params;

    if (!room_is_made(sched) || p->class != WEIR_SCHED_KERNEL ||
        (p->flags & (WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE)) != 0 || p->blocks == 0 ||
        p->blocks_per_sm == 0 || !is_for_another(sched, item->queue->tenant)) {
        return 0;
    }
    return room_needs_all(sched, item, sched->config.room_sms) ? 0 : sched->config.room_sms;
}

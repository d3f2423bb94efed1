/* A lone tenant's work may bypass the scheduler when no other tenant has had work for quiet_ns. */
#include "sched/private.h"

const struct weir_sched_shared *weir_sched_shared(const struct weir_sched *sched)
{
    return &sched->alone.shared;
}

weir_sched_id weir_sched_close(struct weir_sched *sched)
{
    weir_sched_id alone = atomic_exchange(&sched->alone.shared.alone, 0);
    struct tenant *tenant = table_get(&sched->tenants, alone);

    if (tenant) {
        tenant->view.passed = true;
    }
    return alone;
}

void weir_sched_allow_alone(struct weir_sched *sched, bool allow)
{
    sched->alone.allowed = allow;
    if (!allow) {
        weir_sched_close(sched);
    }
}

void alone_look(struct weir_sched *sched, struct tenant *tenant)
{
    weir_sched_id alone = atomic_load_explicit(&sched->alone.shared.alone, memory_order_relaxed);

    if (sched->alone.busy > 1 || sched->alone.sole != tenant) {
        sched->alone.sole = sched->alone.busy == 1 ? tenant : NULL;
        sched->alone.sole_since_ns = sched->now_ns;
        if (alone != 0 && (alone != tenant->view.id || !sched->alone.sole)) {
            weir_sched_close(sched);
        }
    } else if (sched->alone.allowed && alone == 0 && tenant->counts.stopped == 0 &&
               tenant->bound.limits == 0 && tenant->span == WEIR_SCHED_SPAN_FREE &&
               sched->now_ns - sched->alone.sole_since_ns >= sched->config.quiet_ns) {
        atomic_store(&sched->alone.shared.alone, tenant->view.id);
    }
}

/* A lone tenant's work may bypass the scheduler when no other tenant has had work for quiet_ns. */
#include "sched/private.h"

const struct weir_sched_shared *weir_sched_shared(const struct weir_sched *sched)
{
    return &sched->shared;
}

weir_sched_id weir_sched_close(struct weir_sched *sched)
{
    weir_sched_id alone = atomic_exchange(&sched->shared.alone, 0);
    struct tenant *tenant = table_get(&sched->tenants, alone);

    if (tenant) {
        tenant->view.passed = true;
    }
    return alone;
}

void weir_sched_allow_alone(struct weir_sched *sched, bool allow)
{
    sched->allow_alone = allow;
    if (!allow) {
        weir_sched_close(sched);
    }
}

void alone_look(struct weir_sched *sched, struct tenant *tenant)
{
    weir_sched_id alone = atomic_load_explicit(&sched->shared.alone, memory_order_relaxed);

    if (sched->busy_tenants > 1 || sched->sole != tenant) {
        sched->sole = sched->busy_tenants == 1 ? tenant : NULL;
        sched->sole_since_ns = sched->now_ns;
        if (alone != 0 && (alone != tenant->view.id || !sched->sole)) {
            weir_sched_close(sched);
        }
    } else if (sched->allow_alone && alone == 0 && tenant->stopped == 0 && tenant->limits == 0 &&
               sched->now_ns - sched->sole_since_ns >= sched->config.quiet_ns) {
        atomic_store(&sched->shared.alone, tenant->view.id);
    }
}

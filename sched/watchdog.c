/*
 * The watchdog: no tenant with work waits without end, whatever the policy `next` says.
 *
 * A tenant that has waited for starve_ns (or lease_ns, if less) is *helped*: it has the device for
 * a slice, and no policy is asked. If it is of the leader's class or a higher one, it is helped
 * until it has had its weight's part of the time that it waited. Otherwise a tenant that is never
 * named would get one slice for each starve_ns, and a kernel longer than a slice would not end. All
 * help together takes at most a tenth of the time, so a policy may still prefer others.
 */
#include "sched/private.h"

#include <assert.h>

/* Does the tenant wait? Not if it is the leader, or a member with items on the device. */
static bool may_starve(struct weir_sched *sched, struct tenant *tenant)
{
    view_refresh(sched, tenant);
    return tenant != sched->turn.leader && (!tenant->view.member || tenant->view.granted == 0) &&
           tenant->view.waiting_since_ns != NEVER;
}

/* Is a helped tenant still due service? Not while a higher class leads. */
static bool is_due(const struct weir_sched *sched, const struct tenant *tenant)
{
    const struct tenant *leader = sched->turn.leader;

    return tenant->view.service_ns[WEIR_SCHED_COMPUTE] < tenant->watchdog.due_ns &&
           (!leader || tenant->view.priority >= leader->view.priority);
}

/* Since when has the tenant waited without help? */
static uint64_t since_ns(const struct tenant *tenant)
{
    return max_u64(tenant->view.waiting_since_ns, tenant->watchdog.helped_ns);
}

/* The tenant that has waited longest of those to be helped now; NULL: none, and *ret_next_ns is
 * when to look again. */
static struct tenant *to_help(struct weir_sched *sched, uint64_t *ret_next_ns)
{
    struct tenant *best = NULL;

    *ret_next_ns = sched->now_ns + patience_ns(sched);
    for (uint32_t i = 0; i < sched->ready.count; i++) {
        struct tenant *tenant = tenant_of(sched->ready.list[i]);

        if (!may_starve(sched, tenant)) {
            continue;
        }
        uint64_t at_ns =
            is_due(sched, tenant) ? 0 : tenant->view.waiting_since_ns + patience_ns(sched);
        if (at_ns > sched->now_ns) {
            *ret_next_ns = min_u64(*ret_next_ns, at_ns);
        } else if (!best || since_ns(tenant) < since_ns(best)) {
            best = tenant;
        }
    }
    return best;
}

/* The service up to which a tenant is helped: its weight's part of the time that it waited. */
static uint64_t due_ns(const struct weir_sched *sched, const struct tenant *tenant)
{
    uint64_t weights = 0;

    for (uint32_t i = 0; i < sched->ready.count; i++) {
        weights += sched->ready.list[i]->priority == tenant->view.priority
                       ? sched->ready.list[i]->weight
                       : 0;
    }
    assert(weights != 0); /* the tenant is ready itself, and its weight is 1 or more */
    return tenant->view.service_ns[WEIR_SCHED_COMPUTE] +
           patience_ns(sched) * sched->config.sms * tenant->view.weight / weights;
}

void watchdog_look(struct weir_sched *sched)
{
    if (sched->now_ns < sched->rescue_after_ns) {
        return;
    }
    struct tenant *tenant = to_help(sched, &sched->rescue_after_ns);
    if (!tenant) {
        return;
    }
    if (!is_due(sched, tenant)) {
        tenant->watchdog.due_ns = due_ns(sched, tenant);
    }
    policy_blame(sched, WEIR_POLICY_NEXT, MISTAKE_STARVED, "let somebody wait", tenant);
    tenant->watchdog.helped_ns = sched->now_ns;
    sched->counts.rescues++;
    sched->rescue_after_ns = sched->now_ns + tuning.rescue_slice_ns * tuning.rescue_every;
    turn_begin(sched, tenant, tuning.rescue_slice_ns, 0);
    sched->turn.rescue = true;
    group_alone(sched);
}

void watchdog_rest(struct weir_sched *sched)
{
    sched->rescue_after_ns = sched->now_ns + patience_ns(sched);
}

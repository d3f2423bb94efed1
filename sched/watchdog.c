/*
 * The watchdog: whatever the policy `next` says, nobody with work waits without end.
 *
 * Who has waited for starve_ns is *helped*: it has the device for a slice that no policy is asked
 * about. Of the leader's class or a higher one it is helped until it has had its weight's part of
 * the time that it waited for: else who is never named would get one slice for each starve_ns, and
 * a kernel that is longer than a slice would not end. All help together takes a tenth of the time
 * at most, so a policy that prefers others may still do that.
 *
 * Who waits is looked at only when somebody can have waited for too long.
 */
#include "sched/private.h"

#include <assert.h>

static uint64_t patience_ns(const struct weir_sched *sched)
{
    return min_u64(sched->config.starve_ns, sched->config.lease_ns);
}

/* Can it be let wait? Not the leader, nor a member that has something on the device. */
static bool may_starve(struct weir_sched *sched, struct tenant *tenant)
{
    view_refresh(sched, tenant);
    return tenant != sched->turn.leader && (!tenant->view.member || tenant->view.granted == 0) &&
           tenant->view.waiting_since_ns != NEVER;
}

/* Has it not had yet what it is due since it waited for too long? Not beside a higher class. */
static bool is_due(const struct weir_sched *sched, const struct tenant *tenant)
{
    const struct tenant *leader = sched->turn.leader;

    return tenant->view.service_ns[WEIR_SCHED_COMPUTE] < tenant->due_ns &&
           (leader == NULL || tenant->view.priority >= leader->view.priority);
}

/* Since when has it waited, and not been helped? */
static uint64_t since_ns(const struct tenant *tenant)
{
    return max_u64(tenant->view.waiting_since_ns, tenant->helped_ns);
}

/* Of those that are to be helped now, who has waited longest; or NULL, and *ret_next_ns is when one
 * will be. */
static struct tenant *to_help(struct weir_sched *sched, uint64_t *ret_next_ns)
{
    struct tenant *best = NULL;

    *ret_next_ns = sched->now_ns + patience_ns(sched);
    for (uint32_t i = 0; i < sched->ready_count; i++) {
        struct tenant *tenant = tenant_of(sched->ready[i]);
        uint64_t at_ns;

        if (!may_starve(sched, tenant)) {
            continue;
        }
        at_ns = is_due(sched, tenant) ? 0 : tenant->view.waiting_since_ns + patience_ns(sched);
        if (at_ns > sched->now_ns) {
            *ret_next_ns = min_u64(*ret_next_ns, at_ns);
        } else if (best == NULL || since_ns(tenant) < since_ns(best)) {
            best = tenant;
        }
    }
    return best;
}

/* Its weight's part of the time that it was let wait for; in all, not only in the next slice. */
static uint64_t due_ns(const struct weir_sched *sched, const struct tenant *tenant)
{
    uint64_t weights = 0;

    for (uint32_t i = 0; i < sched->ready_count; i++) {
        weights += sched->ready[i]->priority == tenant->view.priority ? sched->ready[i]->weight : 0;
    }
    assert(weights != 0); /* it is ready itself, and weighs 1 at least */
    return tenant->view.service_ns[WEIR_SCHED_COMPUTE] +
           patience_ns(sched) * sched->config.sms * tenant->view.weight / weights;
}

void watchdog_look(struct weir_sched *sched)
{
    struct tenant *tenant;

    if (sched->now_ns < sched->rescue_after_ns) {
        return;
    }
    tenant = to_help(sched, &sched->rescue_after_ns);
    if (tenant == NULL) {
        return;
    }
    if (!is_due(sched, tenant)) {
        tenant->due_ns = due_ns(sched, tenant);
    }
    policy_blame(sched, WEIR_POLICY_NEXT, MISTAKE_STARVED, "let somebody wait", tenant);
    tenant->helped_ns = sched->now_ns;
    sched->counts.rescues++;
    sched->rescue_after_ns = sched->now_ns + RESCUE_SLICE_NS * RESCUE_EVERY;
    turn_begin(sched, tenant, RESCUE_SLICE_NS, 0);
    sched->turn.rescue = true;
    group_alone(sched);
}

void watchdog_rest(struct weir_sched *sched)
{
    sched->rescue_after_ns = sched->now_ns + patience_ns(sched);
}

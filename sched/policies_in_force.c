/* Policies in force: their memory, how they are set and removed,
 * and how their mistakes are logged. */
#include "sched/private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ops_are_sound(const struct weir_policy_ops *ops)
{
    return ops->name && ops->tenant_bytes <= WEIR_POLICY_TENANT_BYTES &&
           ((ops->kind == WEIR_POLICY_NEXT && ops->next) ||
            (ops->kind == WEIR_POLICY_TOGETHER && ops->together));
}

static void slot_finish(struct weir_sched *sched, enum weir_policy_kind kind)
{
    free(sched->policy[kind].state);
    sched->policy[kind] = (struct weir_policy){0};
}

void policies_finish(struct weir_sched *sched)
{
    for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
        slot_finish(sched, (enum weir_policy_kind)i);
    }
}

static void join(struct weir_policy *policy, struct tenant *tenant)
{
    memset(tenant->policy_state[policy->ops->kind], 0, WEIR_POLICY_TENANT_BYTES);
    if (policy->ops->joined) {
        policy->ops->joined(policy, &tenant->view);
    }
}

enum weir_status weir_sched_policy_set(struct weir_sched *sched, uint64_t now_ns,
                                       const struct weir_policy_ops *ops)
{
    struct weir_policy *policy;
    struct tenant *tenant;
    void *state;
    uint32_t at = 0;

    if (!ops_are_sound(ops)) {
        return WEIR_ERR_INVALID;
    }
    time_is(sched, now_ns);
    state = calloc(1, ops->state_bytes != 0 ? ops->state_bytes : 1);
    if (!state) {
        return WEIR_ERR_NO_MEMORY;
    }
    slot_finish(sched, ops->kind);
    policy = &sched->policy[ops->kind];
    *policy = (struct weir_policy){.ops = ops, .config = &sched->config, .state = state};
    sched->named[ops->kind] = 0;
    while ((tenant = table_next(&sched->tenants, &at))) {
        join(policy, tenant);
    }
    for (uint32_t i = 0; i < sched->ready_count && ops->ready; i++) {
        ops->ready(policy, sched->now_ns, &tenant_of(sched->ready[i])->view);
    }
    sched->changed = true;
    sched->group_stale = true;
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_policy_clear(struct weir_sched *sched, uint64_t now_ns, int kind)
{
    if (kind < 0 || kind >= WEIR_POLICY_KIND_COUNT) {
        return WEIR_ERR_INVALID;
    }
    if (kind == WEIR_POLICY_NEXT) {
        return weir_sched_policy_set(sched, now_ns, weir_policy_find("fair"));
    }
    time_is(sched, now_ns);
    slot_finish(sched, WEIR_POLICY_TOGETHER);
    group_alone(sched);
    decide(sched);
    return WEIR_OK;
}

void policies_join(struct weir_sched *sched, struct tenant *tenant)
{
    for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
        tenant->view.state[i] = tenant->policy_state[i];
        if (sched->policy[i].ops) {
            join(&sched->policy[i], tenant);
        }
    }
}

void policies_leave(struct weir_sched *sched, struct tenant *tenant)
{
    for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
        struct weir_policy *policy = &sched->policy[i];

        if (policy->ops && policy->ops->left) {
            policy->ops->left(policy, &tenant->view);
        }
    }
}

void policies_changing(struct weir_sched *sched, struct tenant *tenant)
{
    for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
        struct weir_policy *policy = &sched->policy[i];

        if (policy->ops && policy->ops->changing) {
            policy->ops->changing(policy, &tenant->view);
        }
    }
}

void policies_ready(struct weir_sched *sched, struct tenant *tenant, bool ready)
{
    for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
        struct weir_policy *policy = &sched->policy[i];

        if (!policy->ops) {
            continue;
        }
        if (ready && policy->ops->ready) {
            policy->ops->ready(policy, sched->now_ns, &tenant->view);
        } else if (!ready && policy->ops->idle) {
            policy->ops->idle(policy, sched->now_ns, &tenant->view);
        }
    }
}

void policy_blame(struct weir_sched *sched, enum weir_policy_kind kind, enum mistake mistake,
                  const char *what, const struct tenant *tenant)
{
    char line[160];

    sched->counts.nonsense += mistake == MISTAKE_NONSENSE;
    if ((sched->named[kind] & 1u << mistake) != 0) {
        return;
    }
    sched->named[kind] |= 1u << mistake;
    if (!sched->env.log) {
        return;
    }
    if (tenant) {
        snprintf(line, sizeof(line),
                 "sched: policy %s too long; its work is granted all the same "
                 "policy=%s tenant=%s",
                 what, sched->policy[kind].ops->name, tenant->name);
    } else {
        snprintf(line, sizeof(line), "sched: policy %s; a plain answer takes its place policy=%s",
                 what, sched->policy[kind].ops->name);
    }
    sched->env.log(sched->env.user, line);
}

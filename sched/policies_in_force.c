/* Policies in force: their memory, what they are told, and how their mistakes are logged. */
#include "sched/private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void policies_end(struct weir_sched *sched, enum weir_policy_kind kind)
{
    free(sched->policy[kind].state);
    sched->policy[kind] = (struct weir_policy){0};
}

static void join(struct weir_policy *policy, struct tenant *tenant)
{
    memset(tenant->policy_state[policy->ops->kind], 0, WEIR_POLICY_TENANT_BYTES);
    if (policy->ops->joined) {
        policy->ops->joined(policy, &tenant->view);
    }
}

enum weir_status policies_put(struct weir_sched *sched, const struct weir_policy_ops *ops)
{
    struct weir_policy *policy = &sched->policy[ops->kind];
    void *state = calloc(1, ops->state_bytes != 0 ? ops->state_bytes : 1);
    struct tenant *tenant;
    uint32_t at = 0;

    WEIR_FAIL_IF(!state, WEIR_ERR_NO_MEMORY);
    policies_end(sched, ops->kind);
    *policy = (struct weir_policy){.ops = ops, .config = &sched->config, .state = state};
    sched->named[ops->kind] = 0;
    while ((tenant = table_next(&sched->tenants, &at))) {
        join(policy, tenant);
    }
    for (uint32_t i = 0; i < sched->ready.count && ops->ready; i++) {
        ops->ready(policy, sched->now_ns, &tenant_of(sched->ready.list[i])->view);
    }
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

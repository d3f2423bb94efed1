/* Policies in force: their memory, how they are set and removed,
 * and how their mistakes are logged. */
#include "sched/private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ops_are_sound(const struct weir_policy_ops *ops)
{
    if (!ops->name) {
        return false;
    }
    switch (ops->kind) {
    case WEIR_POLICY_NEXT:
        return ops->next != NULL;
    case WEIR_POLICY_TOGETHER:
        return ops->together != NULL;
    case WEIR_POLICY_KIND_COUNT:
    default:
        return false;
    }
}

static void tenant_forget(struct tenant *tenant, int kind)
{
    free(tenant->view.state[kind]);
    tenant->view.state[kind] = NULL;
}

static void slot_finish(struct weir_sched *sched, int kind)
{
    struct weir_policy *policy = &sched->policy[kind];
    uint32_t at = 0;
    struct tenant *tenant;

    if (!policy->ops) {
        return;
    }
    if (policy->ops->finish) {
        policy->ops->finish(policy);
    }
    while ((tenant = table_next(&sched->tenants, &at))) {
        tenant_forget(tenant, kind);
    }
    free(policy->state);
    *policy = (struct weir_policy){0};
}

void policies_finish(struct weir_sched *sched)
{
    for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
        slot_finish(sched, i);
    }
}

/* Allocate a policy's state of a tenant. */
static enum weir_status tenant_state(const struct weir_policy_ops *ops, void **ret_state)
{
    *ret_state = NULL;
    if (ops->tenant_bytes != 0) {
        *ret_state = calloc(1, ops->tenant_bytes);
        return *ret_state ? WEIR_OK : WEIR_ERR_NO_MEMORY;
    }
    return WEIR_OK;
}

/* Allocate all states of a new policy, before the old one is removed. NULL: no memory. */
static void **all_states(struct weir_sched *sched, const struct weir_policy_ops *ops)
{
    void **states = calloc((size_t)sched->tenants.live + 1, sizeof(*states));

    for (uint32_t i = 0; states && i < sched->tenants.live; i++) {
        if (tenant_state(ops, &states[i]) != WEIR_OK) {
            while (i > 0) {
                free(states[--i]);
            }
            free(states);
            return NULL;
        }
    }
    return states;
}

static void all_join(struct weir_sched *sched, struct weir_policy *policy, void **states)
{
    enum weir_policy_kind kind = policy->ops->kind;
    struct tenant *tenant;
    uint32_t at = 0;
    uint32_t i = 0;

    while ((tenant = table_next(&sched->tenants, &at))) {
        tenant->view.state[kind] = states[i++];
        if (policy->ops->joined) {
            policy->ops->joined(policy, &tenant->view);
        }
    }
    for (i = 0; i < sched->ready_count; i++) {
        if (policy->ops->ready) {
            policy->ops->ready(policy, sched->now_ns, &tenant_of(sched->ready[i])->view);
        }
    }
}

enum weir_status weir_sched_policy_set(struct weir_sched *sched, uint64_t now_ns,
                                       const struct weir_policy_ops *ops)
{
    struct weir_policy policy = {.ops = ops, .config = &sched->config};
    void **states;
    enum weir_status status = WEIR_OK;

    if (!ops_are_sound(ops)) {
        return WEIR_ERR_INVALID;
    }
    time_is(sched, now_ns);
    policy.state = calloc(1, ops->state_bytes != 0 ? ops->state_bytes : 1);
    states = all_states(sched, ops);
    if (!policy.state || !states) {
        status = WEIR_ERR_NO_MEMORY;
    } else if (ops->init) {
        status = ops->init(&policy);
    }
    if (status != WEIR_OK) {
        for (uint32_t i = 0; states && i < sched->tenants.live; i++) {
            free(states[i]);
        }
        free(states);
        free(policy.state);
        return status;
    }
    slot_finish(sched, (int)ops->kind);
    sched->policy[ops->kind] = policy;
    sched->named[ops->kind] = 0;
    all_join(sched, &sched->policy[ops->kind], states);
    free(states);
    sched->changed = true;
    sched->group_stale = true;
    sched->group_why = WEIR_POLICY_CHANGED;
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
    slot_finish(sched, kind);
    if (kind == WEIR_POLICY_TOGETHER) {
        group_alone(sched);
    }
    decide(sched);
    return WEIR_OK;
}

enum weir_status policies_join(struct weir_sched *sched, struct tenant *tenant)
{
    for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
        const struct weir_policy_ops *ops = sched->policy[i].ops;

        if (ops && tenant_state(ops, &tenant->view.state[i]) != WEIR_OK) {
            while (i > 0) {
                tenant_forget(tenant, --i);
            }
            return WEIR_ERR_NO_MEMORY;
        }
    }
    for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
        struct weir_policy *policy = &sched->policy[i];

        if (policy->ops && policy->ops->joined) {
            policy->ops->joined(policy, &tenant->view);
        }
    }
    return WEIR_OK;
}

void policies_leave(struct weir_sched *sched, struct tenant *tenant)
{
    for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
        struct weir_policy *policy = &sched->policy[i];

        if (policy->ops && policy->ops->left) {
            policy->ops->left(policy, &tenant->view);
        }
        tenant_forget(tenant, i);
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

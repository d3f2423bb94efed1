/*
 * priority: a higher class runs at once; among equals, the one with the shortest remaining time.
 *
 * FLEP's HPF keeps a queue per class. A newcomer of a higher class preempts what runs. Among equals
 * the one with the shortest remaining time goes first, and preempts only if its rest and the cost
 * of the preemption together are less than what remains of the running one.
 *
 * What differs:
 *
 * - Unknown kernels have no remaining time. As long as a tenant of a class has such a kernel,
 * `fair` decides within that class.
 * - FLEP's programs end. Here a program that launches short kernels for ever would keep longer ones
 * out. So a remaining time counts for less the longer its kernel has waited: it is divided by the
 * slowdown so far, whose mean HPF minimizes. A tenant chosen by that may finish its kernel.
 * - A newcomer that needs few SMs takes all of them; in FLEP the running kernel goes on beside it
 * (spatial preemption). On devices with stream priorities the lower class fills instead.
 *
 * Source: FLEP (ASPLOS 2017) 5.2.1
 */
#include "sched/policy/fair.h"

struct priority_tenant {
    struct fair_tenant fair;
    uint64_t finishes_at_ns; /* equals do not preempt it until its service reaches this */
};

static struct priority_tenant *priority_of(const struct weir_policy_tenant *tenant)
{
    return tenant->state[WEIR_POLICY_NEXT];
}

/* The ready tenants of the highest class. */
struct top {
    enum weir_priority class;
    uint32_t count;
    uint32_t first; /* index of the first */
    bool unknown;   /* one of them has no known rest */
};

static struct top look(const struct weir_policy_next_view *view)
{
    struct top top = {.class = WEIR_PRIORITY_LOW};

    for (uint32_t i = 0; i < view->ready_count; i++) {
        const struct weir_policy_tenant *tenant = view->ready[i];

        if (tenant->priority < top.class) {
            continue;
        }
        if (tenant->priority > top.class || top.count == 0) {
            top = (struct top){.class = tenant->priority, .first = i};
        }
        top.count++;
        top.unknown |= tenant->kernel.rest_ns == 0;
    }
    return top;
}

/* The rest of a tenant's kernel, divided by its slowdown by waiting so far. */
static uint64_t aged_rest_ns(const struct weir_policy_next_view *view,
                             const struct weir_policy_tenant *tenant)
{
    uint64_t waited_ns = tenant->waiting_since_ns < view->now_ns && tenant->granted == 0
                             ? view->now_ns - tenant->waiting_since_ns
                             : 0;
    double whole_ns = (double)tenant->kernel.predicted_ns;

    return (uint64_t)((double)tenant->kernel.rest_ns * whole_ns / (whole_ns + (double)waited_ns));
}

static bool may_finish(const struct weir_policy_tenant *tenant)
{
    return tenant->service_ns[WEIR_SCHED_COMPUTE] < priority_of(tenant)->finishes_at_ns;
}

/* Would the leader's work have to be stopped for another? Unstoppable work ends first. */
static bool is_to_stop(const struct weir_policy_tenant *leader)
{
    return leader && leader->granted > 0 && leader->stoppable;
}

static uint32_t shortest(const struct weir_policy *self, const struct weir_policy_next_view *view,
                         const struct top *top)
{
    uint32_t best = top->first;
    uint64_t best_ns = UINT64_MAX;

    for (uint32_t i = 0; i < view->ready_count; i++) {
        const struct weir_policy_tenant *tenant = view->ready[i];

        if (tenant->priority != top->class) {
            continue;
        }
        uint64_t rest_ns = aged_rest_ns(view, tenant);
        if (tenant == view->leader && tenant->granted > 0) {
            if (may_finish(tenant)) {
                return i;
            }
        } else {
            rest_ns += self->config->launch_ns;
            rest_ns += is_to_stop(view->leader) ? view->leader->stop_ns : 0;
        }
        if (rest_ns < best_ns) {
            best_ns = rest_ns;
            best = i;
        }
    }
    return best;
}

static uint64_t clamp(uint64_t ns, uint64_t least, uint64_t most)
{
    return ns < least ? least : ns > most ? most : ns;
}

static void choose_equal(const struct weir_policy *self, const struct weir_policy_next_view *view,
                         const struct top *top, struct weir_policy_choice *choice)
{
    choice->ready = shortest(self, view, top);
    const struct weir_policy_tenant *tenant = view->ready[choice->ready];
    choice->slice_ns = clamp(tenant->kernel.rest_ns, tuning.brief_ns, tuning.slice_max_ns);
    if (aged_rest_ns(view, tenant) < tenant->kernel.rest_ns / 2) {
        priority_of(tenant)->finishes_at_ns =
            tenant->service_ns[WEIR_SCHED_COMPUTE] + tenant->kernel.rest_ns * self->config->sms;
    }
}

static void priority_next(struct weir_policy *self, const struct weir_policy_next_view *view,
                          struct weir_policy_choice *choice)
{
    struct top top = look(view);

    if (top.count == 1) {
        choice->ready = top.first;
        choice->slice_ns = tuning.slice_max_ns;
    } else if (top.unknown) {
        fair_next(self, view, choice);
    } else {
        choose_equal(self, view, &top, choice);
    }
}

const struct weir_policy_ops weir_policy_priority = {
    .name = "priority",
    .kind = WEIR_POLICY_NEXT,
    .state_bytes = sizeof(struct fair),
    .tenant_bytes = sizeof(struct priority_tenant),
    .joined = fair_joined,
    .changing = fair_changing,
    .ready = fair_ready,
    .idle = fair_idle,
    .next = priority_next,
    .beside = fair_beside,
};

/*
 * Kernels of a collective operation wait for each other on their devices. If one job led on one
 * device and another job on a second, each would hold a device and wait for the other. So devices
 * have an order: of the tenants that work on several devices, the one that leads on an earlier
 * device goes before the others on all later ones. Tenants that work on one device lead there when
 * the policy says so, and the jobs wait.
 */
#include "sched/spans.h"

#include <assert.h>

/* A tenant works on a device if its work came there within this time: in a second each tenant of a
 * host has usually had several turns. */
#define WORKS_NS UINT64_C(1000000000)

/* A call of the rule. */
struct look {
    struct weir_sched_spans *spans;
    weir_sched_member_fn member;
    void *user;
    uint32_t devices;
    uint64_t now_ns;
};

static bool works_on(const struct look *l, uint32_t device, uint32_t tenant)
{
    const struct weir_sched_member member = l->member(l->user, device, tenant);

    return member.id != 0 && member.seen_ns != 0 && l->now_ns - member.seen_ns < WORKS_NS;
}

static bool works_on_several(const struct look *l, uint32_t tenant)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < l->devices; i++) {
        n += works_on(l, i, tenant);
    }
    return n > 1;
}

static void set(const struct look *l, uint32_t device, uint32_t tenant, enum weir_sched_span span)
{
    const struct weir_sched_member member = l->member(l->user, device, tenant);
    struct weir_sched_tenant_info info;

    if (member.id != 0 && weir_sched_tenant_query(member.sched, member.id, &info) == WEIR_OK &&
        info.params.span != span) {
        enum weir_status status;

        info.params.span = span;
        status = weir_sched_tenant_set(member.sched, l->now_ns, member.id, &info.params);
        assert(status == WEIR_OK); /* the rest is what the scheduler has */
        (void)status;
    }
}

/* The number + 1 of the tenant that leads on the device, if it works on several. */
static uint32_t leader_of(const struct look *l, uint32_t device)
{
    const struct weir_sched *sched = l->member(l->user, device, 0).sched;
    struct weir_sched_tenant_info info;
    weir_sched_id id = weir_sched_leader(sched);
    uint32_t number = 0;

    if (id != 0 && weir_sched_tenant_query(sched, id, &info) == WEIR_OK) {
        number = (uint32_t)(uintptr_t)info.params.user;
    }
    return number != 0 && works_on_several(l, number - 1) ? number : 0;
}

/* The number + 1 of the tenant that is to lead on a device, since it does on an earlier one. */
static uint32_t led_before(const struct look *l, uint32_t device)
{
    for (uint32_t i = 0; i < device; i++) {
        uint32_t number = l->spans->device[i].leads;

        if (number != 0 && works_on(l, device, number - 1)) {
            return number;
        }
    }
    return 0;
}

void weir_sched_spans_forget(struct weir_sched_spans *spans, uint32_t device, uint32_t tenant)
{
    uint32_t *led = &spans->device[device].led;

    *led = *led == tenant + 1 ? 0 : *led;
}

void weir_sched_spans_tick(struct weir_sched_spans *spans, weir_sched_member_fn member, void *user,
                           uint32_t devices, uint64_t now_ns)
{
    const struct look l = {spans, member, user, devices, now_ns};

    for (uint32_t i = 0; devices > 1 && i < devices; i++) {
        uint32_t first = led_before(&l, i), *leads = &spans->device[i].leads;

        if (spans->device[i].led != first) {
            if (spans->device[i].led != 0) {
                set(&l, i, spans->device[i].led - 1, WEIR_SCHED_SPAN_OTHERS);
            }
            spans->device[i].led = first;
            if (first != 0) {
                set(&l, i, first - 1, WEIR_SCHED_SPAN_LEADS);
            }
        }
        *leads = leader_of(&l, i);
        if (*leads != 0 && *leads != first) {
            set(&l, i, *leads - 1, WEIR_SCHED_SPAN_OTHERS);
        }
    }
}

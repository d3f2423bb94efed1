/*
 * Tenants that work on several GPUs: they lead on all of them together.
 *
 * Kernels of a collective operation wait for each other on their GPUs. If one job led on one GPU
 * and another job on a second, each would hold a GPU and wait for the other. So GPUs have an order,
 * that of their first use: of the tenants that work on several GPUs, the one that leads on an
 * earlier GPU goes before the others on all later ones. Tenants that work on one GPU lead there
 * when the policy says so, and the jobs wait.
 */
#include "host_backend/gate/process/served.h"

/* A tenant works on a GPU if its work came there within this time: in a second each tenant of a
 * host has usually had several turns. */
#define WORKS_NS WEIR_NS_PER_S

static bool works_on(const struct served_gpu *gpu, uint32_t slot, uint64_t now_ns)
{
    const struct served_member *member = &gpu->members[slot];

    return member->id != 0 && member->seen_ns != 0 && now_ns - member->seen_ns < WORKS_NS;
}

static bool works_on_several(const struct weir_gate_process *process, uint32_t slot,
                             uint64_t now_ns)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < process->n_gpus; i++) {
        n += works_on(&process->gpus[i], slot, now_ns);
    }
    return n > 1;
}

struct weir_sched_tenant_params served_params(const struct served_gpu *gpu, uint32_t slot)
{
    struct weir_sched_tenant_params params = gpu->process->tenants[slot].params;

    params.span = gpu->members[slot].span;
    return params;
}

static void set(struct served_gpu *gpu, uint32_t slot, enum weir_sched_span span, uint64_t now_ns)
{
    struct weir_sched_tenant_params params = served_params(gpu, slot);
    struct served_member *member = &gpu->members[slot];

    params.span = span;
    if (member->id != 0 && member->span != span &&
        weir_sched_tenant_set(gpu->sched, now_ns, member->id, &params) == WEIR_OK) {
        member->span = span;
    }
}

/* The slot + 1 of the tenant that leads on the GPU, if it works on several. */
static uint32_t leader_of(const struct served_gpu *gpu, uint64_t now_ns)
{
    struct weir_sched_tenant_info info;
    weir_sched_id id = weir_sched_leader(gpu->sched);
    uint32_t slot = 0;

    if (id != 0 && weir_sched_tenant_query(gpu->sched, id, &info) == WEIR_OK) {
        slot = (uint32_t)(uintptr_t)info.params.user;
    }
    return slot != 0 && works_on_several(gpu->process, slot - 1, now_ns) ? slot : 0;
}

/* The slot + 1 of the tenant that is to lead on a GPU, since it does on an earlier one. */
static uint32_t led_before(const struct weir_gate_process *process, uint32_t gpu, uint64_t now_ns)
{
    for (uint32_t i = 0; i < gpu; i++) {
        uint32_t slot = process->gpus[i].leads;

        if (slot != 0 && works_on(&process->gpus[gpu], slot - 1, now_ns)) {
            return slot;
        }
    }
    return 0;
}

void served_spans_tick(struct weir_gate_process *process, uint64_t now_ns)
{
    for (uint32_t i = 0; process->n_gpus > 1 && i < process->n_gpus; i++) {
        struct served_gpu *gpu = &process->gpus[i];
        uint32_t first = led_before(process, i, now_ns);

        if (gpu->led != first) {
            if (gpu->led != 0) {
                set(gpu, gpu->led - 1, WEIR_SCHED_SPAN_OTHERS, now_ns);
            }
            gpu->led = first;
            if (first != 0) {
                set(gpu, first - 1, WEIR_SCHED_SPAN_LEADS, now_ns);
            }
        }
        gpu->leads = leader_of(gpu, now_ns);
        if (gpu->leads != 0 && gpu->leads != first) {
            set(gpu, gpu->leads - 1, WEIR_SCHED_SPAN_OTHERS, now_ns);
        }
    }
}

/* Finds the kinds of programs' workers: see program_kinds.h. */
#include "host_backend/supervisor/workers/program_kinds.h"

#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/worker_for.h"

#include <stdatomic.h>
#include <string.h>

/* The share of the SMs for the contexts of a worker under MPS: the tenant's limit, or the program's
 * request if that is less. 0: all. */
static uint32_t share_of(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                         uint32_t wish_pct)
{
    bool limited = weir_tenant_sm_limit(&tenant->config, 0) < 100;

    return limited && weir_mps_sms(sup, weir_sup_devices_of(sup, tenant))
               ? weir_tenant_sm_limit(&tenant->config, wish_pct)
               : 0;
}

bool weir_program_is_served(const struct weir_sup_worker *worker)
{
    return weir_program_worker_is_there(worker) && worker->ready && worker->program.busy &&
           worker->tenant >= 0;
}

bool weir_program_works(const struct weir_sup_worker *worker, uint64_t within_ns)
{
    uint64_t since_ns = worker->spin_page ? atomic_load_explicit(&worker->spin_page->rests_since_ns,
                                                                 memory_order_relaxed)
                                          : 0;

    return since_ns == 0 || weir_host_clock_ns() < since_ns + within_ns;
}

bool weir_program_is_only(const struct weir_supervisor *sup, const char *devices, int worker,
                          uint64_t within_ns)
{
    pid_t own = worker >= 0 ? sup->workers[worker].program.pid : 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];
        bool is_same = i == worker || (own != 0 && w->program.pid == own); /* it moves just now */

        if (!is_same && weir_program_is_served(w) && weir_program_works(w, within_ns) &&
            weir_devices_meet(w->devices, devices)) {
            return false;
        }
    }
    return true;
}

/* The kind of worker that a program of the tenant gets. @param p  the program's requests; all zeros
 * for a spare. */
static struct weir_program_kind kind_for(const struct weir_supervisor *sup,
                                         const struct weir_sup_tenant *tenant,
                                         const struct weir_sup_pending *p)
{
    const char *devices = weir_sup_devices_of(sup, tenant);
    bool native = !sup->mps.wanted || weir_sup_is_strict(tenant) ||
                  tenant->faults.quarantine_end_ns != 0 || p->native;
    uint32_t share_pct = native ? 0 : share_of(sup, tenant, p->sm_pct);
    bool alone = !native && share_pct == 0 && !sup->config.workers.mps_alone &&
                 weir_program_is_only(sup, devices, p->moved ? p->from : -1, WEIR_ALONE_NS);

    return (struct weir_program_kind){.devices = devices,
                                      .connections = p->connections,
                                      .sm_share_pct = share_pct,
                                      .native = native || alone,
                                      .is_alone = alone};
}

struct weir_program_kind weir_program_kind_wanted(const struct weir_supervisor *sup,
                                                  const struct weir_sup_pending *p)
{
    return kind_for(sup, &sup->tenants[p->guest.tenant_index], p);
}

struct weir_program_kind weir_program_kind_now(const struct weir_supervisor *sup, int worker)
{
    const struct weir_sup_worker *w = &sup->workers[worker];
    struct weir_program_kind own = weir_program_kind_of(w), now;
    const struct weir_sup_pending p = {.connections = own.connections,
                                       .native = own.native && !w->program.is_alone,
                                       .moved = true,
                                       .from = worker};

    now = kind_for(sup, &sup->tenants[w->tenant], &p);
    now.sm_share_pct = now.native ? 0 : own.sm_share_pct;
    return now;
}

struct weir_program_kind weir_program_kind_of(const struct weir_sup_worker *w)
{
    return (struct weir_program_kind){.devices = w->devices,
                                      .connections = w->connections.wanted,
                                      .sm_share_pct = w->program.sm_share_pct,
                                      .native = w->program.native};
}

bool weir_program_kind_is_same_but_share(const struct weir_program_kind *a,
                                         const struct weir_program_kind *b)
{
    return a->connections == b->connections && a->native == b->native &&
           (a->devices == b->devices || strcmp(a->devices, b->devices) == 0);
}

bool weir_program_kind_is_same(const struct weir_program_kind *a, const struct weir_program_kind *b)
{
    return a->sm_share_pct == b->sm_share_pct && weir_program_kind_is_same_but_share(a, b);
}

bool weir_program_worker_is_there(const struct weir_sup_worker *w)
{
    return w->used && w->kind == WEIR_WORKER_PROGRAM && !w->program.stopping;
}

uint32_t weir_program_n_unassigned(const struct weir_supervisor *sup,
                                   const struct weir_program_kind *kind)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (weir_program_worker_is_there(w) && w->tenant < 0) {
            struct weir_program_kind own = weir_program_kind_of(w);

            n += weir_program_kind_is_same(&own, kind);
        }
    }
    return n;
}

uint32_t weir_program_n_waiting(const struct weir_supervisor *sup,
                                const struct weir_program_kind *kind)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < sup->programs.waiting.n; i++) {
        const struct weir_sup_pending *p = &sup->programs.pending[sup->programs.waiting.of[i]];

        if (p->used) {
            struct weir_program_kind wanted = weir_program_kind_wanted(sup, p);

            n += weir_program_kind_is_same(&wanted, kind);
        }
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (w->program.move.wanted && weir_program_worker_is_there(w) && w->tenant >= 0) {
            struct weir_program_kind wanted = weir_program_kind_now(sup, i);

            n += weir_program_kind_is_same(&wanted, kind);
        }
    }
    return n;
}

static bool has_spares(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    return weir_sup_drain_of(sup, tenant) != WEIR_DRAIN_ON && tenant->used && !tenant->gone &&
           weir_sup_by_program(tenant) && !weir_sup_is_strict(tenant) &&
           tenant->faults.quarantine_end_ns == 0;
}

static bool has_kind(const struct weir_spare_kinds *kinds, const struct weir_program_kind *kind)
{
    uint32_t i = 0;

    while (i < kinds->n && !weir_program_kind_is_same(&kinds->of[i], kind)) {
        i++;
    }
    return i < kinds->n;
}

bool weir_program_is_waited_for(const struct weir_supervisor *sup,
                                const struct weir_sup_worker *worker)
{
    struct weir_program_kind kind = weir_program_kind_of(worker);

    return weir_program_n_waiting(sup, &kind) != 0;
}

void weir_spare_kinds_find(const struct weir_supervisor *sup, struct weir_spare_kinds *kinds)
{
    bool any = sup->gpus.known;

    kinds->n = 0;
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX && !any; i++) {
        any = sup->tenants[i].used && !sup->tenants[i].gone &&
              strcmp(weir_sup_devices_of(sup, &sup->tenants[i]), sup->config.devices) == 0;
    }
    if (!any) { /* nobody else makes a worker that tells what GPUs the host has */
        kinds->of[kinds->n++] =
            (struct weir_program_kind){.devices = sup->config.devices, .native = !sup->mps.wanted};
    }
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];

        if (has_spares(sup, t)) {
            struct weir_program_kind kind = kind_for(sup, t, &(struct weir_sup_pending){0});

            /* Keep no spares with a share of the SMs: each would only fit one limit. */
            if (kind.sm_share_pct == 0 && !has_kind(kinds, &kind)) {
                kinds->of[kinds->n++] = kind;
            }
        }
    }
}

const char *weir_sup_program_state(const struct weir_sup_worker *worker)
{
    if (worker->kind != WEIR_WORKER_PROGRAM) {
        return "";
    }
    if (worker->program.stopping) {
        return "stopping";
    }
    if (!worker->ready) {
        return "starting";
    }
    if (worker->program.move.wanted) {
        return "moving";
    }
    return worker->program.busy ? "busy" : worker->tenant >= 0 ? "kept" : "spare";
}

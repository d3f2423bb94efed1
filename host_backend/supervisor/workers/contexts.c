/* Divides contexts of GPUs, and workers of programs, among holders: see contexts.h. */
#include "host_backend/supervisor/workers/contexts.h"

#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/workers/worker_for.h"

#include "base/account.h"
#include <stdio.h>
#include <string.h>

#define UNTOLD_CONTEXTS 98u /* per GPU, until a worker has reported it (worker/device/device.c) */

/* Contexts of the smallest GPU that workers have reported. */
static uint32_t contexts_of_a_gpu(const struct weir_supervisor *sup)
{
    uint32_t least = UNTOLD_CONTEXTS;

    for (uint32_t i = 0; i < sup->gate.n_gpus; i++) {
        uint32_t n = sup->gate.gpus[i].contexts;

        least = n != 0 && n < least ? n : least;
    }
    return least;
}

/* Get the name of the k-th GPU of a list, as written there. false: the list is shorter. */
static bool gpu_of(const struct weir_supervisor *sup, const char *list, uint32_t k,
                   char ret_gpu[WEIR_GPU_NAME_BYTES])
{
    list = *list != 0 ? list : sup->config.devices;
    if (*list == 0) { /* "" stands for all GPUs */
        snprintf(ret_gpu, WEIR_GPU_NAME_BYTES, "%u", k);
        return k == 0 || k < sup->gate.n_gpus;
    }
    for (; k != 0 && *list != 0; k--) {
        list += strcspn(list, ",");
        list += *list == ',';
    }
    snprintf(ret_gpu, WEIR_GPU_NAME_BYTES, "%.*s", (int)strcspn(list, ","), list);
    return *list != 0;
}

/* ---------------------------------------------------------------- contexts of each holder */

static bool is_of_programs(const struct weir_sup_worker *w)
{
    return w->used && w->kind == WEIR_WORKER_PROGRAM;
}

/* Does the worker serve a tenant, and may it have a context on the GPU? */
static bool counts(const struct weir_sup_worker *w, const char *gpu)
{
    if (*gpu == 0) {
        return is_of_programs(w) && w->program.busy;
    }
    return w->used && (w->kind != WEIR_WORKER_PROGRAM || w->program.busy) &&
           weir_devices_meet(w->devices, gpu);
}

/* Count contexts by holder. Tenants whose programs get their own workers divide them; contexts of
 * shared workers belong to nobody and leave less to divide. */
static void count(const struct weir_supervisor *sup, struct weir_sup_division *d)
{
    d->total = *d->gpu == 0 ? WEIR_PROGRAMS_MAX : contexts_of_a_gpu(sup);
    for (uint32_t i = 0; i < WEIR_HOLDERS_MAX; i++) {
        d->used[i] = WEIR_SUPPLY_NOBODY;
    }
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];

        if (t->used && !t->gone && weir_sup_by_program(t) &&
            weir_devices_meet(weir_sup_devices_of(sup, t), d->gpu)) {
            d->used[weir_sup_holder(t)] = 0;
        }
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (counts(w, d->gpu) && w->tenant >= 0) {
            weir_sup_holder_uses(&sup->tenants[w->tenant], d->used);
        } else if (counts(w, d->gpu)) {
            d->total -= d->total > 1;
        }
    }
}

/* @param gpu  "": all workers of programs. */
static struct weir_sup_division *division_of(const struct weir_supervisor *sup,
                                             struct weir_sup_contexts *c, const char *gpu)
{
    uint32_t i = 0;

    while (i < c->n && strcmp(c->of[i].gpu, gpu) != 0) {
        i++;
    }
    if (i == c->n) {
        i = i < WEIR_DIVISIONS_MAX ? c->n++ : i - 1; /* a full table reuses its last entry */
        snprintf(c->of[i].gpu, sizeof c->of[i].gpu, "%s", gpu);
        count(sup, &c->of[i]);
    }
    return &c->of[i];
}

static enum weir_status ask(const struct weir_sup_division *d, uint32_t holder)
{
    struct weir_supply supply = {
        .total = d->total, .least = 1, .used = d->used, .n = WEIR_HOLDERS_MAX};

    if (weir_supply_allows(&supply, holder, 1)) {
        return WEIR_OK;
    }
    return d->used[holder] >= weir_supply_part(&supply) ? WEIR_ERR_QUOTA : WEIR_ERR_FULL;
}

enum weir_status weir_sup_contexts_ask(const struct weir_supervisor *sup,
                                       struct weir_sup_contexts *c,
                                       const struct weir_sup_tenant *tenant, const char **ret_why)
{
    enum weir_status status = ask(division_of(sup, c, ""), weir_sup_holder(tenant));
    char gpu[WEIR_GPU_NAME_BYTES];

    if (status != WEIR_OK) {
        *ret_why = status == WEIR_ERR_QUOTA
                       ? "the tenant has its part of the workers that the host has for programs: "
                         "those that are left are for other tenants"
                       : "the host has as many workers as it may: other tenants' programs have all";
        return status;
    }
    for (uint32_t k = 0; status == WEIR_OK && gpu_of(sup, weir_sup_devices_of(sup, tenant), k, gpu);
         k++) {
        status = ask(division_of(sup, c, gpu), weir_sup_holder(tenant));
    }
    *ret_why = status == WEIR_ERR_QUOTA
                   ? "the tenant has its part of the contexts that the GPU takes: those that are "
                     "left are for other tenants"
                   : "the GPU has no room for another context: other tenants' programs have all";
    return status;
}

void weir_sup_contexts_take(const struct weir_supervisor *sup, struct weir_sup_contexts *c,
                            const struct weir_sup_tenant *tenant)
{
    char gpu[WEIR_GPU_NAME_BYTES];

    weir_sup_holder_uses(tenant, division_of(sup, c, "")->used);
    for (uint32_t k = 0; gpu_of(sup, weir_sup_devices_of(sup, tenant), k, gpu); k++) {
        weir_sup_holder_uses(tenant, division_of(sup, c, gpu)->used);
    }
}

/* ---------------------------------------------------------------- all contexts */

/* May the worker have a context on the GPU? It opens its first device at once, others when its
 * programs use them. */
static bool has_context(const struct weir_supervisor *sup, const struct weir_sup_worker *w,
                        const char *gpu)
{
    char first[WEIR_GPU_NAME_BYTES];

    return w->used && gpu_of(sup, w->devices, 0, first) &&
           (strcmp(first, gpu) == 0 || (w->row.contexts > 1 && weir_devices_meet(w->devices, gpu)));
}

bool weir_sup_contexts_are_full(const struct weir_supervisor *sup, const char *devices)
{
    char gpu[WEIR_GPU_NAME_BYTES];
    uint32_t n = 0;

    if (!gpu_of(sup, devices, 0, gpu)) {
        return false;
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        n += has_context(sup, &sup->workers[i], gpu);
    }
    return n >= contexts_of_a_gpu(sup);
}

bool weir_sup_places_are_full(const struct weir_supervisor *sup)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        n += is_of_programs(&sup->workers[i]);
    }
    return n >= WEIR_PROGRAMS_MAX;
}

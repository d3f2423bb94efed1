/*
 * The host's GPUs, as the first worker that had all of them reported them before it had a guest.
 *
 * Workers report the GPUs that they have. Where tenants have lists of devices of their own, some of
 * the host's GPUs may belong to no worker, and without tenants there are no workers. But who gives
 * shares away (weir-dra) must know all GPUs. So the host keeps a spare worker with all of its GPUs
 * until one has reported them (workers/program_kinds.c). For a GPU that no worker reports now, the
 * host shows what that spare worker reported.
 */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/placement.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/watch/append.h"

#include "host_backend/config/status_text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a context takes of a GPU's memory (docs/measurements/kubernetes.md: 550.8 MiB). */
#define CONTEXT_BYTES (UINT64_C(551) << 20)

static bool is_host_list(const struct weir_supervisor *sup, int worker)
{
    return worker >= 0 && strcmp(sup->workers[worker].devices, sup->config.devices) == 0;
}

bool weir_sup_gpus_wanted(const struct weir_supervisor *sup, int worker)
{
    return !sup->gpus.known && is_host_list(sup, worker);
}

void weir_sup_gpus_row(struct weir_supervisor *sup, int worker,
                       const struct weir_status_device *row)
{
    struct weir_sup_gpus *gpus = &sup->gpus;

    if (gpus->known || !is_host_list(sup, worker) || gpus->n == WEIR_LINK_DEVICES_MAX) {
        return;
    }
    for (uint32_t i = 0; i < gpus->n; i++) {
        if (strcmp(gpus->of[i].uuid, row->uuid) == 0) {
            return;
        }
    }
    struct weir_status_device *to = &gpus->of[gpus->n++];
    weir_status_device_init(to, (const uint8_t[16]){0}); /* values that change are not known */
    memcpy(to->uuid, row->uuid, sizeof to->uuid);
    memcpy(to->name, row->name, sizeof to->name);
    to->ordinal = row->ordinal;
    to->sms = row->sms;
    to->memory_bytes = row->memory_bytes;
}

void weir_sup_gpus_end(struct weir_supervisor *sup, int worker)
{
    sup->gpus.known |= sup->gpus.n != 0 && is_host_list(sup, worker);
}

static uint64_t context_bytes(const struct weir_status_device *row)
{
    const char *text = getenv("WEIR_SOFTGPU_CONTEXT_BYTES");

    if (!strstr(row->name, "softgpu")) {
        return CONTEXT_BYTES;
    }
    return text ? strtoull(text, NULL, 10) : 0; /* softgpu's contexts take nothing */
}

/* How many tenants that were made while the host runs may use the GPU? */
static uint32_t shares_on(const struct weir_supervisor *sup, const struct weir_status_device *row)
{
    char number[12];
    uint32_t n = 0;

    snprintf(number, sizeof number, "%u", row->ordinal);
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];
        const char *list = weir_sup_devices_of(sup, t);

        n += t->used && !t->gone &&
             (t->source == WEIR_ORIGIN_KEPT || t->source == WEIR_ORIGIN_DEMAND) &&
             (weir_devices_among(row->uuid, list) || weir_devices_among(number, list));
    }
    return n;
}

/* How much of its memory quotas may promise, and what the programs of shares take beyond them. */
static void fill_promise(const struct weir_supervisor *sup, struct weir_status_device *row)
{
    uint64_t taken = sup->config.workers.spares * context_bytes(row);

    row->promise_bytes = taken < row->memory_bytes ? row->memory_bytes - taken : 0;
    row->context_bytes = context_bytes(row);
    row->shares = shares_on(sup, row);
}

static int by_ordinal(const void *a, const void *b)
{
    const struct weir_status_device *one = a, *other = b;

    return (one->ordinal > other->ordinal) - (one->ordinal < other->ordinal);
}

void weir_sup_gpus_report(struct weir_supervisor *sup)
{
    struct weir_status_report *g = &sup->admin.gathered;

    for (uint32_t k = 0; k < sup->gpus.n; k++) {
        size_t i = 0;

        while (i < g->n_devices && strcmp(g->devices[i].uuid, sup->gpus.of[k].uuid) != 0) {
            i++;
        }
        if (i == g->n_devices) {
            weir_sup_append((void **)&g->devices, &g->n_devices, &sup->gpus.of[k],
                            sizeof sup->gpus.of[k]);
        } else { /* another row of the GPU: the gate process knows its use, but not its memory */
            weir_status_merge(weir_status_device_fields, &g->devices[i], &sup->gpus.of[k]);
        }
    }
    if (g->n_devices > 1) { /* the gate process has them in the order in which workers came */
        qsort(g->devices, g->n_devices, sizeof *g->devices, by_ordinal);
    }
    for (size_t i = 0; i < g->n_devices; i++) {
        fill_promise(sup, &g->devices[i]);
    }
}

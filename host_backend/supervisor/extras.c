/* Retries extras that have failed, and reports them. */
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/machines/channels.h"
#include "host_backend/supervisor/machines/ivshmem.h"
#include "host_backend/supervisor/tenants/libvirt.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/watch/append.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/clock.h"
#include <stdio.h>

#define AGAIN_NS (WEIR_EXTRAS_AGAIN_S * WEIR_NS_PER_S)

static void log_again(struct weir_supervisor *sup)
{
    (void)weir_sup_open_log(sup);
}

static void (*const again[WEIR_EXTRA_COUNT])(struct weir_supervisor *sup) = {
    [WEIR_EXTRA_LOG] = log_again,
    [WEIR_EXTRA_METRICS] = weir_sup_metrics_open,
    [WEIR_EXTRA_TCP] = weir_sup_tcp_again,
    [WEIR_EXTRA_CONTAINERS] = weir_sup_containers_follow,
    [WEIR_EXTRA_SHARES] = weir_sup_demand_open,
    [WEIR_EXTRA_VSOCK] = weir_sup_vsock_follow,
    [WEIR_EXTRA_LIBVIRT] = weir_sup_libvirt_open,
    [WEIR_EXTRA_MACHINES] = weir_sup_vm_user_follow,
    [WEIR_EXTRA_COMPILER] = weir_sup_compiler_follow,
    [WEIR_EXTRA_CACHE] = weir_sup_cache_follow,
};

static bool any_fails(const struct weir_supervisor *sup)
{
    return WEIR_ANY(i, WEIR_EXTRA_COUNT, sup->extras.of[i].why[0] != 0);
}

void weir_sup_extras_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    if (!any_fails(sup) || now_ns < sup->extras.again_ns) {
        return;
    }
    for (int i = 0; i < WEIR_EXTRA_COUNT; i++) {
        /* In the first call all extras have just been tried. */
        if (sup->extras.again_ns != 0 && sup->extras.of[i].why[0] != 0) {
            again[i](sup);
        }
    }
    sup->extras.again_ns = now_ns + AGAIN_NS;
}

void weir_sup_extras_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    weir_host_loop_wake(loop, any_fails(sup) ? sup->extras.again_ns : WEIR_FOREVER);
}

void weir_sup_extras_report(struct weir_supervisor *sup, struct weir_status_report *report)
{
    /* Check what is used later: it may have gone since the host's start. */
    weir_sup_compiler_follow(sup);
    weir_sup_cache_follow(sup);
    for (int i = 0; i < WEIR_EXTRA_COUNT; i++) {
        const struct weir_sup_extra *e = &sup->extras.of[i];
        struct weir_status_extra row = {.up = e->why[0] == 0};

        snprintf(row.name, sizeof row.name, "%s", weir_sup_extra_name((enum weir_extra)i));
        snprintf(row.why, sizeof row.why, "%s", e->why);
        if (e->wanted) {
            weir_sup_append((void **)&report->extras, &report->n_extras, &row, sizeof row);
        }
    }
}

/* Adds, changes and removes a tenant in a worker: see tenant_life.h. */
#include "host_backend/worker/session/tenant_life.h"
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/state/limits.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HOST_MEMORY_BYTES (UINT64_C(4) << 30) /* all of PyTorch's libraries are 1 to 2 GiB */

/* Copy word by word, since weir_tenant_setting() may read at the same time. */
static void store_settings(struct weir_tenant_config *to, const struct weir_tenant_config *from)
{
    typedef uint32_t __attribute__((may_alias)) word;
    word *words = (word *)to;

    _Static_assert(sizeof *to % sizeof(word) == 0, "whole words");
    for (size_t i = 0; i < sizeof *to / sizeof(word); i++) {
        __atomic_store_n(&words[i], ((const word *)from)[i], __ATOMIC_RELAXED);
    }
}

/* Set each device's quota. Devices that the list does not name, or that are absent, have none. */
static void limit_devices(struct weir_tenant *tenant, const struct weir_tenant_config *config)
{
    const struct weir_platform *platform = weir_worker_platform(tenant->worker);

    _Static_assert(WEIR_DEVICES_MAX <= WEIR_ACCOUNT_DEVICES, "an item for each");
    for (uint32_t i = 0; i < WEIR_ACCOUNT_DEVICES; i++) {
        struct weir_amount amount;
        bool limited = i < platform->n_devices &&
                       weir_amounts_get(config->device_memory, i, &amount) == WEIR_OK;

        weir_account_limit_set(
            &tenant->account, WEIR_ACCOUNT_OF_DEVICE + i,
            limited ? weir_amount_of(amount, platform->devices[i].about.total_memory_bytes)
                    : UINT64_MAX);
    }
}

void weir_tenant_configure(struct weir_tenant *tenant, const struct weir_tenant_config *config)
{
    uint64_t host_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    (void)weir_sessions_lock(tenant->worker);
    store_settings(&tenant->config, config);
    tenant->gone = false;
    weir_sessions_unlock(tenant->worker);
    weir_account_limit_set(
        &tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY,
        weir_amount_of(config->memory,
                       weir_platform_total_bytes(weir_worker_platform(tenant->worker))));
    limit_devices(tenant, config);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_PINNED_MEMORY,
                           weir_amount_of(config->pinned, host_bytes));
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_HOST_MEMORY, HOST_MEMORY_BYTES);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_SESSIONS, config->sessions_max);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_MONITORS, config->sessions_max);
    /* Only the worker's pool limits these items. */
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_DESCRIPTORS, UINT64_MAX);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_MAPPINGS, UINT64_MAX);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_BUS_GUARDS, UINT64_MAX);
}

/* Most of these pages are never touched. */
static struct weir_programs *own_programs(void)
{
    void *at = mmap(NULL, sizeof(struct weir_programs), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return at != MAP_FAILED ? at : NULL;
}

void weir_tenant_share_account(struct weir_tenant *tenant, struct weir_account_page *page,
                               uint32_t place)
{
    munmap(tenant->programs, sizeof *tenant->programs);
    tenant->account.place = place;
    tenant->account.page = page;
    tenant->programs = &page->programs;
}

struct weir_tenant *weir_tenant_create(struct weir_worker *worker, uint32_t index,
                                       const struct weir_tenant_config *config)
{
    struct weir_tenant *tenant = calloc(1, sizeof *tenant);

    if (!tenant || !(tenant->programs = own_programs())) {
        free(tenant);
        return NULL;
    }
    tenant->worker = worker;
    tenant->index = index;
    tenant->account.pool = weir_worker_pool(worker);
    tenant->account.ask = weir_tenant_ask;
    memcpy(tenant->name, config->name, sizeof tenant->name);
    pthread_mutex_init(&tenant->lock, NULL);
    pthread_mutex_init(&tenant->publishing, NULL);
    weir_log_rate_init(&tenant->log_rate);
    weir_host_image_store_init(&tenant->images, &tenant->account);
    weir_tenant_configure(tenant, config);
    return tenant;
}

void weir_tenant_destroy(struct weir_tenant *tenant)
{
    weir_gates_tenant_gone(tenant);
    weir_exports_drop_all(tenant);
    weir_tenant_unreserve(tenant);
    weir_host_image_store_finish(&tenant->images);
    weir_log_rate_finish(&tenant->log_rate);
    if (tenant->account.page) {
        munmap(tenant->account.page, sizeof *tenant->account.page);
    } else {
        munmap(tenant->programs, sizeof *tenant->programs);
    }
    pthread_mutex_destroy(&tenant->publishing);
    pthread_mutex_destroy(&tenant->lock);
    free(tenant);
}

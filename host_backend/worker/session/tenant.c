/*
 * A tenant in the worker: its window of addresses, its quota, its images.
 *
 * Windows belong to the worker, which gives a tenant the lowest free one when its first session
 * comes, so tenants without work cost nothing. The window's lower half is reserved through the
 * driver for device memory then, the upper half by mmap for pinned host memory.
 */
#include "host_backend/worker/session/tenant.h"
#include "host_backend/worker/session/chunk.h"
#include "host_backend/worker/session/gates.h"
#include "host_backend/worker/session/vmm.h"
#include "host_backend/worker/session/worker.h"

#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Where Linux on x86-64 loads programs that may lie anywhere (from ELF_ET_DYN_BASE, plus 28 random
 * bits of pages), with their heaps behind them. */
#define LOWEST_HEAP       0x555555554000u
#define HIGHEST_HEAP      0x570000000000u
#define HOST_MEMORY_BYTES (UINT64_C(4) << 30) /* all of PyTorch's libraries are 1 to 2 GiB */

uint64_t weir_tenant_window_bytes(const struct weir_tenant *tenant)
{
    return tenant->worker->config.window_bytes;
}

uint64_t weir_tenant_window_base(const struct weir_tenant *tenant)
{
    return tenant->worker->config.window_base + tenant->window * weir_tenant_window_bytes(tenant);
}

/*
 * Nothing may lie in a tenant's window, nor where one that comes later will have its own. But
 * programs may have libraries above their heaps: of windows there only the taken ones count. And
 * nothing may lie where guests' reservations will.
 */
bool weir_tenant_windows_overlap(struct weir_worker *worker, uint64_t address, uint64_t bytes)
{
    const struct weir_link_config *c = &worker->config;
    bool found = address < c->vmm_base + c->vmm_bytes && address + bytes > c->vmm_base;

    pthread_mutex_lock(&worker->lock);
    for (uint32_t i = 0; i < WEIR_WINDOWS_MAX && !found; i++) {
        uint64_t base = c->window_base + i * c->window_bytes;

        found = address < base + c->window_bytes && address + bytes > base &&
                (worker->platform.window_taken[i] || base + c->window_bytes <= LOWEST_HEAP);
    }
    pthread_mutex_unlock(&worker->lock);
    return found;
}

/* Copy word by word: weir_tenant_setting() reads meanwhile. */
static void store_settings(struct weir_tenant_config *to, const struct weir_tenant_config *from)
{
    typedef uint32_t __attribute__((may_alias)) word;
    word *words = (word *)to;

    _Static_assert(sizeof *to % sizeof(word) == 0, "whole words");
    for (size_t i = 0; i < sizeof *to / sizeof(word); i++) {
        __atomic_store_n(&words[i], ((const word *)from)[i], __ATOMIC_RELAXED);
    }
}

struct weir_tenant_config weir_tenant_settings(struct weir_tenant *tenant)
{
    struct weir_tenant_config config;

    pthread_mutex_lock(&tenant->worker->lock);
    config = tenant->config;
    pthread_mutex_unlock(&tenant->worker->lock);
    return config;
}

void weir_tenant_configure(struct weir_tenant *tenant, const struct weir_tenant_config *config)
{
    uint64_t host_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    pthread_mutex_lock(&tenant->worker->lock);
    store_settings(&tenant->config, config);
    tenant->gone = false;
    pthread_mutex_unlock(&tenant->worker->lock);
    weir_gates_tenant_changed(tenant);
    weir_account_limit_set(
        &tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY,
        weir_amount_of(config->memory, weir_platform_total_bytes(&tenant->worker->platform)));
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_PINNED_MEMORY,
                           weir_amount_of(config->pinned, host_bytes));
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_HOST_MEMORY, HOST_MEMORY_BYTES);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_SESSIONS, config->sessions_max);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_MONITORS, config->sessions_max);
    /* Of these only the worker's pool says how many. */
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_DESCRIPTORS, UINT64_MAX);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_MAPPINGS, UINT64_MAX);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_BUS_GUARDS, UINT64_MAX);
}

void weir_tenant_refused(struct weir_tenant *tenant, enum weir_account_item item)
{
    weir_log_warn("tenant: it may have no more %s tenant=%s used=%llu",
                  weir_account_item_text(item), tenant->name,
                  (unsigned long long)weir_account_used(&tenant->account, item));
}

CUresult weir_tenant_charge(struct weir_tenant *tenant, const struct weir_amounts *amounts)
{
    enum weir_account_item refused;

    if (weir_account_charge_all(&tenant->account, amounts, &refused)) {
        return CUDA_SUCCESS;
    }
    if (refused != WEIR_ACCOUNT_DEVICE_MEMORY && refused != WEIR_ACCOUNT_PINNED_MEMORY) {
        weir_tenant_refused(tenant, refused);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

struct weir_tenant *weir_tenant_create(struct weir_worker *worker, uint32_t index,
                                       const struct weir_tenant_config *config)
{
    struct weir_tenant *tenant = calloc(1, sizeof *tenant);

    if (tenant == NULL) {
        return NULL;
    }
    tenant->worker = worker;
    tenant->index = index;
    tenant->account.pool = worker->counts.pool;
    memcpy(tenant->name, config->name, sizeof tenant->name);
    pthread_mutex_init(&tenant->lock, NULL);
    pthread_mutex_init(&tenant->publishing, NULL);
    weir_log_rate_init(&tenant->log_rate);
    weir_host_image_store_init(&tenant->images, &tenant->account);
    weir_tenant_configure(tenant, config);
    return tenant;
}

bool weir_window_reclaim(uint64_t base, uint64_t bytes)
{
    return mmap((void *)(uintptr_t)base, bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static bool has_heaps(const struct weir_worker *worker, uint32_t window)
{
    uint64_t bytes = worker->config.window_bytes;
    uint64_t base = worker->config.window_base + window * bytes;

    return base < HIGHEST_HEAP && base + bytes > LOWEST_HEAP;
}

/* The lowest one that is free; WEIR_WINDOWS_MAX: there is none. */
static uint32_t take_window(struct weir_worker *worker)
{
    uint32_t window = 0;

    pthread_mutex_lock(&worker->lock);
    while (window < WEIR_WINDOWS_MAX &&
           (worker->platform.window_taken[window] || has_heaps(worker, window))) {
        window++;
    }
    if (window != WEIR_WINDOWS_MAX) {
        worker->platform.window_taken[window] = true;
    }
    pthread_mutex_unlock(&worker->lock);
    return window;
}

static void give_window_back(const struct weir_tenant *tenant)
{
    pthread_mutex_lock(&tenant->worker->lock);
    tenant->worker->platform.window_taken[tenant->window] = false;
    pthread_mutex_unlock(&tenant->worker->lock);
}

/* CUDA_ERROR_ALREADY_MAPPED: something else lies there. */
static CUresult reserve_window(struct weir_tenant *tenant)
{
    const struct weir_driver *driver = &tenant->worker->platform.driver;
    uint64_t base = weir_tenant_window_base(tenant);
    uint64_t half = weir_tenant_window_bytes(tenant) / 2;
    CUdeviceptr got = 0;
    CUresult result;
    void *host;

    result = driver->cuMemAddressReserve(&got, half, tenant->worker->platform.granularity_bytes,
                                         base, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    host = mmap((void *)(uintptr_t)(base + half), half, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    result = got == base && host == (void *)(uintptr_t)(base + half) ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_ALREADY_MAPPED;
    if (result == CUDA_SUCCESS &&
        (weir_window_init(&tenant->device_window, base, half) != WEIR_OK ||
         weir_window_init(&tenant->host_window, base + half, half) != WEIR_OK)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        (void)driver->cuMemAddressFree(got, half);
        if (host != MAP_FAILED) {
            munmap(host, half);
        }
        weir_window_finish(&tenant->device_window);
        weir_window_finish(&tenant->host_window);
    }
    return result;
}

/* Where the last windows are, this program may have something. */
static CUresult find_window(struct weir_tenant *tenant)
{
    CUresult result = CUDA_ERROR_ALREADY_MAPPED;

    while (result == CUDA_ERROR_ALREADY_MAPPED) {
        tenant->window = take_window(tenant->worker);
        if (tenant->window == WEIR_WINDOWS_MAX) {
            weir_log_error("tenant: no window is left in this worker tenant=%s", tenant->name);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        result = reserve_window(tenant); /* nobody can have what something lies in */
    }
    if (result != CUDA_SUCCESS) {
        give_window_back(tenant);
    }
    return result;
}

CUresult weir_tenant_reserve(struct weir_tenant *tenant)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&tenant->lock);
    if (!tenant->reserved) {
        result = find_window(tenant);
        tenant->reserved = result == CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&tenant->lock);
    return result;
}

void weir_tenant_destroy(struct weir_tenant *tenant)
{
    uint64_t half = weir_tenant_window_bytes(tenant) / 2;

    weir_gates_tenant_gone(tenant);
    weir_exports_drop_all(tenant);
    if (tenant->reserved) {
        (void)tenant->worker->platform.driver.cuMemAddressFree(tenant->device_window.base, half);
        munmap((void *)(uintptr_t)tenant->host_window.base, half);
        give_window_back(tenant);
    }
    weir_window_finish(&tenant->device_window);
    weir_window_finish(&tenant->host_window);
    weir_host_image_store_finish(&tenant->images);
    weir_log_rate_finish(&tenant->log_rate);
    if (tenant->account.page != NULL) {
        munmap(tenant->account.page, sizeof *tenant->account.page);
    }
    pthread_mutex_destroy(&tenant->publishing);
    pthread_mutex_destroy(&tenant->lock);
    free(tenant);
}

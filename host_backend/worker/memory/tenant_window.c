/*
 * Tenants' windows: see tenant_window.h.
 *
 * Windows belong to the worker, which gives a tenant the lowest free one when its first session
 * comes, so tenants without work cost nothing. The window's lower half is reserved through the
 * driver for device memory then, the upper half by mmap for pinned host memory.
 */
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"

#include "base/addresses.h"
#include "base/log.h"
#include <sys/mman.h>

/* The lowest address where Linux on x86-64 loads position-independent programs (from
 * ELF_ET_DYN_BASE, plus 28 random bits of pages); their heaps follow. */
#define LOWEST_HEAP  0x555555554000u
#define HIGHEST_HEAP 0x570000000000u

uint64_t weir_tenant_window_bytes(const struct weir_tenant *tenant)
{
    return tenant->worker->config.window_bytes;
}

uint64_t weir_tenant_window_base(const struct weir_tenant *tenant)
{
    return tenant->worker->config.window_base + tenant->window * weir_tenant_window_bytes(tenant);
}

/*
 * No other memory may lie in a tenant's window, or where a later tenant will have its window. But
 * programs may have libraries above their heaps: there only windows that are taken count. The
 * addresses that guests may reserve must also stay free.
 */
bool weir_tenant_windows_overlap(struct weir_worker *worker, uint64_t address, uint64_t bytes)
{
    const struct weir_link_config *c = &worker->config;
    bool found = address < c->vmm_base + c->vmm_bytes && address + bytes > c->vmm_base;

    WEIR_LOCKED(&worker->lock);
    for (uint32_t i = 0; i < WEIR_WINDOWS_MAX && !found; i++) {
        uint64_t base = c->window_base + i * c->window_bytes;

        found = address < base + c->window_bytes && address + bytes > base &&
                (worker->platform.window_taken[i] || base + c->window_bytes <= LOWEST_HEAP);
    }
    return found;
}

static bool has_heaps(const struct weir_worker *worker, uint32_t window)
{
    uint64_t bytes = worker->config.window_bytes;
    uint64_t base = worker->config.window_base + window * bytes;

    return base < HIGHEST_HEAP && base + bytes > LOWEST_HEAP;
}

/* Take the lowest free window; WEIR_WINDOWS_MAX: there is none. */
static uint32_t take_window(struct weir_worker *worker)
{
    uint32_t window = 0;

    WEIR_LOCKED(&worker->lock);
    while (window < WEIR_WINDOWS_MAX &&
           (worker->platform.window_taken[window] || has_heaps(worker, window))) {
        window++;
    }
    if (window != WEIR_WINDOWS_MAX) {
        worker->platform.window_taken[window] = true;
    }
    return window;
}

static void give_window_back(struct weir_worker *worker, uint32_t window)
{
    WEIR_LOCKED(&worker->lock);
    worker->platform.window_taken[window] = false;
}

/* Reserve the window's addresses. CUDA_ERROR_ALREADY_MAPPED: they are in use. */
static CUresult hold_window(struct weir_worker *worker, uint32_t window)
{
    const struct weir_driver *driver = &worker->platform.driver;
    uint64_t base = worker->config.window_base + window * worker->config.window_bytes;
    uint64_t half = worker->config.window_bytes / 2;
    CUdeviceptr got = 0;

    WEIR_TRY(driver->cuMemAddressReserve(&got, half, worker->platform.granularity_bytes, base, 0));
    bool held = weir_addresses_hold(base + half, half);
    if (got == base && held) {
        return CUDA_SUCCESS;
    }
    (void)driver->cuMemAddressFree(got, half);
    if (held) {
        munmap((void *)(uintptr_t)(base + half), half);
    }
    return CUDA_ERROR_ALREADY_MAPPED;
}

static void let_window_go(struct weir_worker *worker, uint32_t window)
{
    uint64_t base = worker->config.window_base + window * worker->config.window_bytes;
    uint64_t half = worker->config.window_bytes / 2;

    (void)worker->platform.driver.cuMemAddressFree(base, half);
    munmap((void *)(uintptr_t)(base + half), half);
    give_window_back(worker, window);
}

/* Find a free window and reserve it. This process may use some of the last windows' addresses
 * itself. */
static CUresult find_window(struct weir_worker *worker, uint32_t *ret_window)
{
    CUresult result = CUDA_ERROR_ALREADY_MAPPED;
    uint32_t window = 0;

    while (result == CUDA_ERROR_ALREADY_MAPPED) {
        window = take_window(worker);
        WEIR_FAIL_IF(window == WEIR_WINDOWS_MAX, CUDA_ERROR_OUT_OF_MEMORY);
        result = hold_window(worker, window); /* no tenant can use these addresses */
    }
    if (result != CUDA_SUCCESS) {
        give_window_back(worker, window);
        return result;
    }
    *ret_window = window;
    return CUDA_SUCCESS;
}

CUresult weir_worker_window_prepare(struct weir_worker *worker)
{
    CUresult result = find_window(worker, &worker->platform.ready.window);

    worker->platform.ready.has_window = result == CUDA_SUCCESS;
    return result;
}

uint64_t weir_worker_ready_window_base(const struct weir_worker *worker)
{
    return worker->config.window_base + worker->platform.ready.window * worker->config.window_bytes;
}

void weir_worker_window_finish(struct weir_worker *worker)
{
    (void)weir_chunk_ready_drop(worker);
    if (worker->platform.ready.has_window) {
        worker->platform.ready.has_window = false;
        let_window_go(worker, worker->platform.ready.window);
    }
}

static bool take_ready_window(struct weir_worker *worker, uint32_t *ret_window)
{
    WEIR_LOCKED(&worker->lock);
    bool has = worker->platform.ready.has_window;
    worker->platform.ready.has_window = false;
    *ret_window = worker->platform.ready.window;
    return has;
}

/* Keep the ready chunk, which lies at the beginning of the window. */
static bool keep_ready_chunk(struct weir_tenant *tenant)
{
    const struct weir_ready_chunk *ready = &tenant->worker->platform.ready.chunk;
    bool is_here = ready->there && ready->base == weir_tenant_window_base(tenant);

    return !is_here ||
           weir_window_take_at(&tenant->device_window, ready->base, ready->bytes) == WEIR_OK;
}

static CUresult reserve_window(struct weir_tenant *tenant)
{
    struct weir_worker *worker = tenant->worker;
    uint64_t half = weir_tenant_window_bytes(tenant) / 2, base;

    if (!take_ready_window(worker, &tenant->window)) {
        CUresult result = find_window(worker, &tenant->window);

        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            weir_log_error("tenant: no window is left in this worker tenant=%s", tenant->name);
        }
        WEIR_TRY(result);
    }
    base = weir_tenant_window_base(tenant);
    if (weir_window_init(&tenant->device_window, base, half) != WEIR_OK ||
        weir_window_init(&tenant->host_window, base + half, half) != WEIR_OK ||
        !keep_ready_chunk(tenant)) {
        (void)weir_chunk_ready_drop(worker);
        weir_window_finish(&tenant->device_window);
        weir_window_finish(&tenant->host_window);
        let_window_go(worker, tenant->window);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult weir_tenant_reserve(struct weir_tenant *tenant)
{
    CUresult result = CUDA_SUCCESS;

    WEIR_LOCKED(&tenant->lock);
    if (!tenant->reserved) {
        result = reserve_window(tenant);
        tenant->reserved = result == CUDA_SUCCESS;
    }
    return result;
}

void weir_tenant_unreserve(struct weir_tenant *tenant)
{
    if (tenant->reserved) {
        (void)weir_chunk_ready_drop(tenant->worker); /* the ready chunk lies in the window */
        let_window_go(tenant->worker, tenant->window);
    }
    weir_window_finish(&tenant->device_window);
    weir_window_finish(&tenant->host_window);
}

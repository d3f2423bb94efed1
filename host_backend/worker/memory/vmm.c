/*
 * Memory without an address, and a session's mappings of it.
 *
 * Addresses come from the worker's VMM area, which all tenants share; each reservation is one of
 * the driver's. The book (vmm_book.c) checks each request before the driver gets it. While a
 * mapping is accessible, it is in the session's ranges, which copies are checked against.
 */
#include "host_backend/worker/memory/vmm.h"
#include "base/fd.h"
#include "host_backend/worker/memory/access.h"

#include "base/addresses.h"
#include "base/log.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/memory/holdings.h"
#include "host_backend/worker/memory/ipc.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/memory/vmm_area.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"
#include "proto/wire/export.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TENANT_SHARE  4 /* a tenant may reserve at most 1/TENANT_SHARE of the area */
#define RESERVE_TRIES 6
/* If the driver uses the addresses of a place itself, the next try is at least this far away. */
#define STEP_BYTES (UINT64_C(64) << 30)
/* softgpu gives addresses up once its present work has ended: wait for up to a second. */
#define HOLD_TRIES    100
#define HOLD_PAUSE_US 10000
/* Driver 580 rounds the address of a reservation up to a multiple of this (H200, 2026-11-21). */
#define PLACE_BYTES (UINT64_C(32) << 20)

/* ---------------------------------------------------------------- memory */

static void count(const struct weir_vmm_alloc *alloc)
{
    struct weir_worker_counts *counts = &alloc->tenant->worker->counts;

    atomic_fetch_add(&counts->chunks, 1);
    atomic_fetch_add(&counts->chunk_bytes, alloc->bytes);
}

CUresult weir_vmm_alloc_make(struct weir_session *session, const struct weir_vmm_alloc *as,
                             weir_vmm_back_fn back, struct weir_vmm_alloc **ret_alloc)
{
    struct weir_tenant *tenant = session->tenant;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    WEIR_TRY(weir_session_charge_all(session, as->device, &as->charged));
    struct weir_vmm_alloc *alloc = malloc(sizeof *alloc);
    if (alloc) {
        *alloc = *as;
        alloc->tenant = tenant;
        alloc->id = atomic_fetch_add(&tenant->worker->counts.next_chunk, 1) + 1;
        alloc->refs = 1;
        result = back(session, alloc);
    }
    if (result != CUDA_SUCCESS) {
        weir_account_release_all(&tenant->account, &as->charged);
        free(alloc);
        return result;
    }
    count(alloc);
    *ret_alloc = alloc;
    return CUDA_SUCCESS;
}

CUresult weir_vmm_alloc_create(struct weir_session *session, uint32_t device, uint64_t bytes,
                               uint32_t handle_types, struct weir_vmm_alloc **ret_alloc)
{
    struct weir_worker *w = session->worker;
    const struct weir_vmm_alloc as = {.bytes = bytes,
                                      .file = -1,
                                      .charged = weir_device_memory_cost(w, device, bytes),
                                      .handle_types = handle_types,
                                      .device = device};

    /* Open the device now, while the guest waits for an error: clearing needs it later. */
    WEIR_TRY(weir_worker_device_open(w, device));
    weir_managed_make_room(session, device, bytes);
    return weir_vmm_alloc_make(session, &as, weir_vmm_alloc_back, ret_alloc);
}

/* Get the memory of a token for an alloc whose own cost has been charged. */
static CUresult import_memory(struct weir_vmm_alloc *alloc, const uint8_t token[16])
{
    struct weir_link_entry entry = {.kind = WEIR_ENTRY_DESCRIPTOR};
    int fd;

    memcpy(entry.key, token, WEIR_EXPORT_TOKEN_BYTES);
    WEIR_TRY(weir_ipc_memory_import(alloc->tenant, &entry, &alloc->memory, &fd));
    alloc->bytes = alloc->cleared_bytes = entry.bytes;
    alloc->handle_types = entry.handle_types;
    alloc->published = true;
    memcpy(alloc->key, entry.key, sizeof alloc->key);
    if (entry.device != WEIR_ENTRY_ON_HOST) {
        alloc->device = entry.device;
        return CUDA_SUCCESS;
    }
    CUresult result = weir_vmm_host_adopt(alloc, fd);
    if (result != CUDA_SUCCESS) {
        weir_directory_withdraw(alloc->tenant, WEIR_ENTRY_MEMORY, alloc->key);
    }
    return result;
}

CUresult weir_vmm_alloc_import(struct weir_tenant *tenant, const uint8_t token[16],
                               struct weir_vmm_alloc **ret_alloc)
{
    const struct weir_amounts cost = weir_device_memory_cost(tenant->worker, 0, 0);

    WEIR_TRY(weir_tenant_charge(tenant, &cost));
    struct weir_vmm_alloc *alloc = calloc(1, sizeof *alloc);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (alloc) {
        *alloc = (struct weir_vmm_alloc){.tenant = tenant, .file = -1, .charged = cost, .refs = 1};
        result = import_memory(alloc, token);
    }
    if (result != CUDA_SUCCESS) {
        weir_account_release_all(&tenant->account, &cost);
        free(alloc);
        return result;
    }
    count(alloc);
    *ret_alloc = alloc;
    return CUDA_SUCCESS;
}

void weir_vmm_alloc_unback(struct weir_vmm_alloc *alloc)
{
    struct weir_worker *w = alloc->tenant->worker;

    if (alloc->on_host) {
        close(alloc->file);
    }
    if (alloc->memory == 0) {
        return;
    }
    (void)w->platform.driver.cuMemRelease(alloc->memory);
    alloc->file = weir_fd_close(alloc->file);
    if (alloc->kept) {
        weir_memory_drop(w, alloc->id);
    }
    alloc->memory = 0;
    alloc->kept = false;
}

CUresult weir_vmm_alloc_back(struct weir_session *session, struct weir_vmm_alloc *alloc)
{
    WEIR_TRY(weir_memory_create(session, alloc->device, alloc->bytes, &alloc->memory));
    alloc->kept =
        weir_memory_keep(alloc->tenant, alloc->memory, alloc->id, 0, alloc->bytes, &alloc->file);
    return CUDA_SUCCESS;
}

static CUresult back_by_file(struct weir_session *session, struct weir_vmm_alloc *alloc)
{
    WEIR_TRY(session->driver->cuMemImportFromShareableHandle(
        &alloc->memory, (void *)(intptr_t)alloc->file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    alloc->kept =
        weir_memory_keep(alloc->tenant, alloc->memory, alloc->id, 0, alloc->bytes, &alloc->file);
    return CUDA_SUCCESS;
}

CUresult weir_vmm_alloc_adopt(struct weir_session *session, struct weir_vmm_alloc as,
                              struct weir_vmm_alloc **ret_alloc)
{
    CUresult result = weir_worker_device_open(session->worker, as.device);

    as.charged = weir_device_memory_cost(session->worker, as.device, as.bytes);
    WEIR_THEN(result, weir_vmm_alloc_make(session, &as, back_by_file, ret_alloc));
    if (result != CUDA_SUCCESS) {
        close(as.file);
    }
    return result;
}

void weir_vmm_alloc_put(struct weir_vmm_alloc *alloc)
{
    struct weir_tenant *t = alloc->tenant;

    pthread_mutex_lock(&t->lock);
    bool last = --alloc->refs == 0;
    pthread_mutex_unlock(&t->lock);
    if (!last) {
        return;
    }
    weir_vmm_alloc_unback(alloc);
    if (alloc->published) {
        weir_directory_withdraw(t, WEIR_ENTRY_MEMORY, alloc->key);
    }
    weir_account_release_all(&t->account, &alloc->charged);
    atomic_fetch_sub(&t->worker->counts.chunks, 1);
    atomic_fetch_sub(&t->worker->counts.chunk_bytes, alloc->bytes);
    free(alloc);
}

static CUresult clear_mapped(struct weir_vmm_alloc *alloc, uint64_t at, CUstream stream)
{
    const struct weir_driver *driver = &alloc->tenant->worker->platform.driver;

    WEIR_TRY(driver->cuMemsetD8Async(at + alloc->cleared_bytes, 0,
                                     alloc->bytes - alloc->cleared_bytes, stream));
    WEIR_TRY(weir_memory_cleared(driver, stream));
    alloc->cleared_bytes = alloc->bytes;
    return CUDA_SUCCESS;
}

CUresult weir_vmm_alloc_clear(struct weir_vmm_alloc *alloc, CUstream stream)
{
    struct weir_worker *w = alloc->tenant->worker;
    const struct weir_driver *driver = &w->platform.driver;
    CUdeviceptr at = 0;

    if (alloc->cleared_bytes == alloc->bytes) {
        return CUDA_SUCCESS;
    }
    WEIR_TRY(driver->cuMemAddressReserve(&at, alloc->bytes, w->platform.granularity_bytes, 0, 0));
    CUresult result = driver->cuMemMap(at, alloc->bytes, 0, alloc->memory, 0);
    if (result == CUDA_SUCCESS) {
        result = weir_memory_access(w, alloc->device, 0, at, alloc->bytes,
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        WEIR_THEN(result, clear_mapped(alloc, at, stream));
        (void)driver->cuMemUnmap(at, alloc->bytes);
    }
    (void)driver->cuMemAddressFree(at, alloc->bytes);
    return result;
}

void weir_vmm_handle_drop(struct weir_session *session, struct weir_host_vmm_handle *handle)
{
    if (!handle->alloc) {
        return;
    }
    if (handle->alloc->on_host) {
        weir_session_unpins(session, handle->alloc->bytes);
    } else if (handle->imported) {
        weir_session_closes(session, handle->alloc->bytes);
    } else {
        weir_session_let_go(session, handle->alloc->device, handle->alloc->bytes);
    }
    weir_vmm_alloc_put(handle->alloc);
    handle->alloc = NULL;
}

/* ---------------------------------------------------------------- addresses */

struct weir_vmm_area *weir_vmm_area_create(void)
{
    struct weir_vmm_area *area = calloc(1, sizeof *area);

    if (area) {
        pthread_mutex_init(&area->lock, NULL);
    }
    return area;
}

void weir_vmm_area_destroy(struct weir_vmm_area *area)
{
    if (area) {
        weir_window_finish(&area->window);
        pthread_mutex_destroy(&area->lock);
        free(area);
    }
}

static void give_area(struct weir_session *s, const struct weir_vmm_space *space)
{
    struct weir_worker *w = s->worker;

    WEIR_LOCKED(&w->vmm_area->lock);
    s->tenant->vmm_bytes -= space->room;
    if (weir_window_give(&w->vmm_area->window, space->base, space->room) != WEIR_OK) {
        weir_log_error("vmm: addresses lost tenant=%s base=0x%llx", s->tenant->name,
                       (unsigned long long)space->base);
    }
}

/* Take addresses at the hint if they are free; else wherever there is room. */
static CUresult take_area(struct weir_session *s, uint64_t hint, uint64_t alignment,
                          struct weir_vmm_space *space)
{
    struct weir_worker *w = s->worker;
    enum weir_status status = WEIR_ERR_QUOTA;

    WEIR_LOCKED(&w->vmm_area->lock);
    if (w->vmm_area->window.bytes == 0 && /* the first reservation sets the window up */
        weir_window_init(&w->vmm_area->window, w->config.vmm_base, w->config.vmm_bytes) !=
            WEIR_OK) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (space->room <= w->config.vmm_bytes / TENANT_SHARE &&
        s->tenant->vmm_bytes <= w->config.vmm_bytes / TENANT_SHARE - space->room) {
        if (hint != 0 && hint % alignment == 0) {
            status = weir_window_take_at(&w->vmm_area->window, hint, space->room);
            space->base = hint;
        }
        if (status != WEIR_OK) {
            status = weir_window_take(&w->vmm_area->window, space->room, alignment, &space->base);
        }
    }
    if (status == WEIR_OK) {
        s->tenant->vmm_bytes += space->room;
    }
    return status == WEIR_OK ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Size of the driver's reservation, which it rounds up (WISH_BYTES in guest_lib/vmm_space.c). */
static uint64_t driver_bytes(const struct weir_vmm_space *space)
{
    return (space->bytes + PLACE_BYTES - 1) & ~(PLACE_BYTES - 1);
}

/* Get the addresses of a space: from the driver, which may give others, or from the system. */
static CUresult get_addresses(const struct weir_session *s, const struct weir_vmm_space *space,
                              CUdeviceptr *ret_got)
{
    if (space->held) {
        *ret_got = weir_addresses_hold(space->base, space->bytes) ? space->base : 0;
        return CUDA_SUCCESS;
    }
    WEIR_TRY(s->driver->cuMemAddressReserve(ret_got, driver_bytes(space),
                                            s->platform->granularity_bytes, space->base, 0));
    if (*ret_got != space->base) {
        (void)s->driver->cuMemAddressFree(*ret_got, driver_bytes(space));
    }
    return CUDA_SUCCESS;
}

static CUresult free_addresses(const struct weir_session *s, const struct weir_vmm_space *space)
{
    if (space->held) {
        munmap((void *)(uintptr_t)space->base, space->bytes);
        return CUDA_SUCCESS;
    }
    return s->driver->cuMemAddressFree(space->base, driver_bytes(space));
}

/*
 * Reserve the addresses with the driver. If the driver uses them itself, they are given up for
 * good. They stay charged to the tenant: otherwise a tenant could use up all tenants' addresses by
 * large reservations around them. The driver's part may be much larger, so each try is twice as far
 * away as the last.
 */
static CUresult reserve_area(struct weir_session *s, uint64_t alignment, uint64_t hint,
                             struct weir_vmm_space *space)
{
    for (int i = 0; i < RESERVE_TRIES; i++) {
        CUdeviceptr got = 0;

        WEIR_TRY(take_area(s, hint, alignment, space));
        CUresult result = get_addresses(s, space, &got);
        if (result != CUDA_SUCCESS) {
            give_area(s, space);
            return result;
        }
        if (got == space->base) {
            return CUDA_SUCCESS;
        }
        weir_log_warn("vmm: there is no room at base=0x%llx bytes=%llu, but at 0x%llx",
                      (unsigned long long)space->base, (unsigned long long)space->bytes,
                      (unsigned long long)got);
        hint = space->base + ((WEIR_MAX(space->room, STEP_BYTES)) << i);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_session_vmm_reserve(struct weir_session *s, uint64_t bytes, uint64_t alignment,
                                  uint64_t hint, bool held, uint64_t *ret_base)
{
    struct weir_worker *w = s->worker;
    uint64_t unit = w->platform.granularity_bytes;
    struct weir_vmm_space space = {.bytes = bytes, .held = held};

    alignment = WEIR_MAX(alignment, unit);
    WEIR_FAIL_IF(bytes == 0 || bytes % unit != 0 || (alignment & (alignment - 1)) != 0,
                 CUDA_ERROR_INVALID_VALUE);
    if (bytes > w->config.vmm_bytes || alignment > w->config.vmm_bytes ||
        s->holdings->vmm.n_spaces >= WEIR_VMM_SPACES_MAX) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    alignment = WEIR_MAX(alignment, PLACE_BYTES);
    space.room = (bytes + alignment - 1) & ~(alignment - 1);
    WEIR_TRY(reserve_area(s, alignment, hint, &space));
    if (weir_vmm_space_add(&s->holdings->vmm, space) != WEIR_OK) {
        (void)free_addresses(s, &space);
        give_area(s, &space);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_base = space.base;
    return CUDA_SUCCESS;
}

/* Unmap memory of the host at these addresses whose unmapping was put off. */
static CUresult settle(struct weir_session *s, const struct weir_vmm_space *space)
{
    return weir_put_off_holds(s, space->base, space->bytes) ? weir_put_off_settle(s) : CUDA_SUCCESS;
}

CUresult weir_session_vmm_unreserve(struct weir_session *s, uint64_t base)
{
    struct weir_vmm_space space;

    WEIR_FAIL_IF(weir_vmm_space_remove(&s->holdings->vmm, base, &space) != WEIR_OK,
                 CUDA_ERROR_INVALID_VALUE);
    CUresult result = settle(s, &space);
    result = result == CUDA_SUCCESS ? free_addresses(s, &space) : result;
    if (result != CUDA_SUCCESS) { /* the driver keeps the addresses, so nobody else may have them */
        weir_log_error("vmm: addresses not freed session=%llu base=0x%llx bytes=%llu result=%d",
                       (unsigned long long)s->id, (unsigned long long)space.base,
                       (unsigned long long)space.bytes, (int)result);
        return result;
    }
    give_area(s, &space);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- mappings */

/*
 * Change who holds the addresses of a reservation, the driver or the worker. Nothing is mapped
 * there. A driver may keep addresses in use for a while after they were freed, until its work has
 * ended. The old holder takes them back between two tries, so that nobody else gets them.
 */
static CUresult change_holder(const struct weir_session *s, struct weir_vmm_space *space)
{
    CUdeviceptr got = 0, back = 0;
    CUresult result = CUDA_SUCCESS;

    for (int i = 0; i < HOLD_TRIES && result == CUDA_SUCCESS; i++) {
        usleep(i != 0 ? HOLD_PAUSE_US : 0);
        WEIR_TRY(free_addresses(s, space));
        space->held = !space->held;
        result = get_addresses(s, space, &got);
        if (result == CUDA_SUCCESS && got == space->base) {
            return CUDA_SUCCESS;
        }
        space->held = !space->held;
        if (get_addresses(s, space, &back) != CUDA_SUCCESS || back != space->base) {
            break;
        }
    }
    weir_log_warn("vmm: addresses do not change hands base=0x%llx bytes=%llu from=%s result=%d "
                  "got=0x%llx",
                  (unsigned long long)space->base, (unsigned long long)space->bytes,
                  space->held ? "worker" : "driver", (int)result, (unsigned long long)got);
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Make the reservation around the range one for this memory. A mapping may not be in it yet. */
static CUresult prepare_space(struct weir_session *s, uint64_t base, uint64_t bytes,
                              const struct weir_vmm_alloc *alloc)
{
    const struct weir_vmm_book *book = &s->holdings->vmm;
    struct weir_vmm_space *space = weir_vmm_space_of(book, base, bytes);

    WEIR_FAIL_IF(!space, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(settle(s, space));
    if (space->held == alloc->on_host) {
        return CUDA_SUCCESS;
    }
    return weir_vmm_space_is_empty(book, space) ? change_holder(s, space)
                                                : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult weir_session_vmm_map(struct weir_session *s, uint64_t base, uint64_t bytes,
                              struct weir_vmm_alloc *alloc)
{
    uint64_t unit = s->platform->granularity_bytes;
    struct weir_session_vmm_map map = {.base = base, .bytes = bytes, .alloc = alloc};
    size_t first;

    WEIR_FAIL_IF(base % unit != 0 || bytes % unit != 0 || bytes > alloc->bytes,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(prepare_space(s, base, bytes, alloc));
    enum weir_status status = weir_vmm_map_add(&s->holdings->vmm, map);
    if (status != WEIR_OK) {
        return status == WEIR_ERR_INVALID ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = alloc->on_host ? weir_vmm_host_map(s, base, bytes, alloc)
                                     : s->driver->cuMemMap(base, bytes, 0, alloc->memory, 0);
    if (result != CUDA_SUCCESS) {
        size_t n = weir_vmm_maps_of(&s->holdings->vmm, base, bytes, &first);

        weir_vmm_maps_remove(&s->holdings->vmm, first, n);
        return result;
    }
    WEIR_LOCKED(&alloc->tenant->lock);
    alloc->refs++;
    return CUDA_SUCCESS;
}

static void unmap_all(struct weir_session *s, size_t first, size_t n)
{
    for (size_t i = first; i < first + n; i++) {
        const struct weir_session_vmm_map *map = &s->holdings->vmm.maps[i];

        if (map->access != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            weir_host_range_remove_at(&s->holdings->ranges, map->base, &s->holdings->vmm);
        }
        if (map->alloc->on_host) {
            weir_vmm_host_unmap(s, map->base, map->bytes, map->alloc);
            continue;
        }
        if (map->alloc->memory != 0 &&
            s->driver->cuMemUnmap(map->base, map->bytes) != CUDA_SUCCESS) {
            weir_log_error("vmm: not unmapped session=%llu base=0x%llx", (unsigned long long)s->id,
                           (unsigned long long)map->base);
        }
        weir_vmm_alloc_put(map->alloc);
    }
    weir_vmm_maps_remove(&s->holdings->vmm, first, n);
}

CUresult weir_session_vmm_unmap(struct weir_session *s, uint64_t base, uint64_t bytes)
{
    size_t first, n = weir_vmm_maps_of(&s->holdings->vmm, base, bytes, &first);

    WEIR_FAIL_IF(n == 0, CUDA_ERROR_INVALID_VALUE);
    unmap_all(s, first, n);
    return CUDA_SUCCESS;
}

/* Clear memory that no guest has seen. The range is writable now. */
static CUresult clear_new(struct weir_session *s, size_t first, size_t n)
{
    CUstream busy = NULL, stream;

    for (size_t i = first; i < first + n; i++) {
        const struct weir_session_vmm_map *map = &s->holdings->vmm.maps[i];
        uint64_t done = map->alloc->cleared_bytes;

        if (done >= map->bytes) { /* a mapping begins where its memory does */
            continue;
        }
        WEIR_TRY(weir_session_enter(s, map->alloc->device));
        WEIR_TRY(weir_session_work_stream(s, &stream));
        if (busy && busy != stream) {
            WEIR_TRY(weir_memory_cleared(s->driver, busy));
        }
        busy = stream;
        WEIR_TRY(s->driver->cuMemsetD8Async(map->base + done, 0, map->bytes - done, stream));
        map->alloc->cleared_bytes = map->bytes;
    }
    return busy ? weir_memory_cleared(s->driver, busy) : CUDA_SUCCESS;
}

static bool any_on_host(const struct weir_session *s, size_t first, size_t n)
{
    for (size_t i = first; i < first + n; i++) {
        if (s->holdings->vmm.maps[i].alloc->on_host) {
            return true;
        }
    }
    return false;
}

/* Set access to a range, in one call if all its memory lies on one device. Devices reach memory of
 * the host as long as it is mapped. */
static CUresult set_access(struct weir_session *s, size_t first, size_t n, uint64_t base,
                           uint64_t bytes, uint32_t flags)
{
    struct weir_worker *w = s->worker;

    if (w->platform.n_devices == 1 && !any_on_host(s, first, n)) {
        return weir_memory_access(w, 0, 0, base, bytes, (CUmemAccess_flags)flags);
    }
    for (size_t i = first; i < first + n; i++) {
        const struct weir_session_vmm_map *map = &s->holdings->vmm.maps[i];

        WEIR_TRY(map->alloc->on_host
                     ? CUDA_SUCCESS
                     : weir_memory_access(w, map->alloc->device, s->devices.used, map->base,
                                          map->bytes, (CUmemAccess_flags)flags));
    }
    return CUDA_SUCCESS;
}

static bool any_new(const struct weir_session *s, size_t first, size_t n)
{
    for (size_t i = first; i < first + n; i++) {
        if (s->holdings->vmm.maps[i].alloc->cleared_bytes < s->holdings->vmm.maps[i].bytes) {
            return true;
        }
    }
    return false;
}

static CUresult note_access(struct weir_session *s, size_t at, uint32_t flags)
{
    struct weir_session_vmm_map *map = &s->holdings->vmm.maps[at];
    bool was = map->access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    bool is = flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;

    if (is && !was &&
        weir_host_range_add(&s->holdings->ranges, map->base, map->bytes, &s->holdings->vmm) !=
            WEIR_OK) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (was && !is) {
        weir_host_range_remove_at(&s->holdings->ranges, map->base, &s->holdings->vmm);
    }
    weir_vmm_map_set_access(&s->holdings->vmm, at, flags);
    return CUDA_SUCCESS;
}

CUresult weir_session_vmm_access(struct weir_session *s, uint64_t base, uint64_t bytes,
                                 uint32_t flags)
{
    size_t first, n = weir_vmm_maps_of(&s->holdings->vmm, base, bytes, &first);

    if (n == 0 ||
        (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
         flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool fresh = flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && any_new(s, first, n);
    if (fresh) {
        WEIR_TRY(set_access(s, first, n, base, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        WEIR_TRY(clear_new(s, first, n));
    }
    if (!fresh || flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        WEIR_TRY(set_access(s, first, n, base, bytes, flags));
    }
    for (size_t i = first; i < first + n; i++) {
        WEIR_TRY(note_access(s, i, flags));
    }
    return CUDA_SUCCESS;
}

CUresult weir_session_vmm_try_host(struct weir_session *s, struct weir_vmm_alloc *alloc)
{
    uint64_t unit = s->platform->granularity_bytes, base;

    if (atomic_load(&s->worker->vmm_area->maps_host_memory)) {
        return CUDA_SUCCESS;
    }
    WEIR_TRY(weir_session_vmm_reserve(s, unit, 0, 0, true, &base));
    CUresult result = weir_session_vmm_map(s, base, unit, alloc);
    if (result == CUDA_SUCCESS) {
        result = weir_session_vmm_unmap(s, base, unit);
        atomic_store(&s->worker->vmm_area->maps_host_memory, true);
    } else {
        weir_log_warn("vmm: the driver maps no host memory at reserved addresses, so cuMemCreate "
                      "refuses it tenant=%s result=%d",
                      s->tenant->name, (int)result);
    }
    (void)weir_session_vmm_unreserve(s, base);
    return result;
}

bool weir_session_vmm_make_writable(struct weir_session *s, uint64_t base, uint64_t bytes)
{
    for (size_t i = 0; i < s->holdings->vmm.n_maps; i++) {
        struct weir_session_vmm_map map = s->holdings->vmm.maps[i];

        if (map.access == CU_MEM_ACCESS_FLAGS_PROT_READ && map.base < base + bytes &&
            base < map.base + map.bytes &&
            weir_session_vmm_access(s, map.base, map.bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) !=
                CUDA_SUCCESS) {
            return false;
        }
    }
    return true;
}

void weir_session_vmm_finish(struct weir_session *s)
{
    unmap_all(s, 0, s->holdings->vmm.n_maps);
    weir_put_off_finish(s); /* memory of the host may have to be unmapped before */
    while (s->holdings->vmm.n_spaces != 0) {
        (void)weir_session_vmm_unreserve(
            s, s->holdings->vmm.spaces[s->holdings->vmm.n_spaces - 1].base);
    }
    weir_vmm_book_finish(&s->holdings->vmm);
}

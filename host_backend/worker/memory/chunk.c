/*
 * Chunks: pieces of a tenant's window that the worker grants.
 *
 * Device: cuMemCreate, mapped at the address that the window gives, cleared before any guest sees
 * it; its descriptor goes to the supervisor. Pinned: a sealed memfd over the window's host half,
 * registered with the driver, so that host and device addresses are one. Driver calls are made
 * outside the tenant's lock.
 *
 * Device memory of another worker is a chunk, too: at an address of this worker's own, not charged
 * again, and not cleared.
 */
#include "host_backend/worker/memory/chunk.h"
#include "base/fd.h"
#include "host_backend/worker/memory/access.h"
#include "host_backend/worker/memory/ipc.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/memory/pieces.h"
#include "host_backend/worker/memory/region.h"
#include "host_backend/worker/memory/spare.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/state/bus_guard.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"

#include "base/addresses.h"
#include "base/log.h"
#include "base/memfd.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/put_off.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Can QEMU truncate the file of the chunk's pages? */
static bool is_loose(const struct weir_host_chunk *chunk)
{
    return chunk->region_end && weir_region_end_is_loose(chunk->region_end);
}

/* What to charge: memory that another worker has published is charged already. */
static struct weir_amounts cost_of(const struct weir_host_chunk *chunk)
{
    if (chunk->pinned) {
        return weir_host_memory_cost(chunk->bytes, is_loose(chunk));
    }
    return weir_device_memory_cost(chunk->tenant->worker, chunk->device,
                                   chunk->published ? 0 : chunk->bytes);
}

static CUresult charge(struct weir_session *session, struct weir_host_chunk *chunk)
{
    chunk->charged = cost_of(chunk);
    return weir_session_charge_all(session, chunk->device, &chunk->charged);
}

/* Take a place in the window. If there is none, the charge is given back. @param alignment 0: the
 * place must be at the chunk's own base */
static CUresult take_place(struct weir_host_chunk *chunk, uint64_t alignment)
{
    struct weir_tenant *t = chunk->tenant;
    struct weir_window *window = chunk->pinned ? &t->host_window : &t->device_window;

    pthread_mutex_lock(&t->lock);
    enum weir_status status = alignment == 0
                                  ? weir_window_take_at(window, chunk->base, chunk->bytes)
                                  : weir_window_take(window, chunk->bytes, alignment, &chunk->base);
    pthread_mutex_unlock(&t->lock);
    if (status != WEIR_OK) {
        weir_account_release_all(&t->account, &chunk->charged);
        return alignment == 0 ? CUDA_ERROR_ALREADY_MAPPED : CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult take_address(struct weir_session *session, struct weir_host_chunk *chunk,
                             uint64_t alignment)
{
    WEIR_TRY(charge(session, chunk));
    return take_place(chunk, alignment);
}

static void give_address(struct weir_host_chunk *chunk)
{
    struct weir_tenant *t = chunk->tenant;

    weir_account_release_all(&t->account, &chunk->charged);
    WEIR_LOCKED(&t->lock);
    if (weir_window_give(chunk->pinned ? &t->host_window : &t->device_window, chunk->base,
                         chunk->bytes) != WEIR_OK) {
        weir_log_error("chunk: addresses lost tenant=%s base=0x%llx", t->name,
                       (unsigned long long)chunk->base);
    }
}

static CUresult create_memory(struct weir_worker *worker, uint32_t device, uint64_t bytes,
                              CUmemGenericAllocationHandle *ret_memory)
{
    CUmemAllocationProp prop;

    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = worker->platform.devices[device].cu;
    if (worker->platform.posix_fds) {
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    return worker->platform.driver.cuMemCreate(ret_memory, bytes, &prop, 0);
}

CUresult weir_memory_create(struct weir_session *session, uint32_t device, uint64_t bytes,
                            CUmemGenericAllocationHandle *ret_memory)
{
    CUresult result = create_memory(session->worker, device, bytes, ret_memory);

    if (result == CUDA_ERROR_OUT_OF_MEMORY && weir_spares_release(session->worker)) {
        result = create_memory(session->worker, device, bytes, ret_memory);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && weir_chunk_ready_drop(session->worker)) {
        result = create_memory(session->worker, device, bytes, ret_memory);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY &&
        weir_managed_give_way(session, bytes, UINT64_MAX) != 0) {
        result = create_memory(session->worker, device, bytes, ret_memory);
    }
    return weir_session_note_lack(session, result);
}

/* Half of the process's descriptors are for other uses. */
bool weir_memory_holds_file(const struct weir_worker *worker, int fd)
{
    struct rlimit limit;

    return worker->config.by_program && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           (rlim_t)fd < limit.rlim_cur / 2;
}

bool weir_memory_keep(struct weir_tenant *tenant, CUmemGenericAllocationHandle memory, uint64_t id,
                      uint64_t base, uint64_t bytes, int *fd)
{
    struct weir_worker *w = tenant->worker;
    struct weir_link_message message = {.type = WEIR_LINK_KEEP};

    if (!w->platform.posix_fds || w->link < 0 ||
        (*fd < 0 && w->platform.driver.cuMemExportToShareableHandle(
                        fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)) {
        return false;
    }
    message.chunk.id = id;
    message.chunk.base = base;
    message.chunk.bytes = bytes;
    message.chunk.tenant_index = tenant->index;
    bool kept = weir_link_send(w->link, &message, *fd) == WEIR_OK;
    if (!weir_memory_holds_file(w, *fd)) {
        close(*fd);
        *fd = -1;
    }
    return kept;
}

void weir_memory_drop(struct weir_worker *worker, uint64_t id)
{
    struct weir_link_message message = {.type = WEIR_LINK_DROP};

    message.chunk.id = id;
    weir_worker_tell(worker, &message);
}

/* Map the chunk's memory at its address, for a session's devices. */
static CUresult map_memory(struct weir_host_chunk *chunk, const struct weir_session *session)
{
    struct weir_worker *w = chunk->tenant->worker;

    WEIR_TRY(w->platform.driver.cuMemMap(chunk->base, chunk->bytes, 0, chunk->memory, 0));
    CUresult result = weir_memory_access(w, chunk->device, session->devices.used, chunk->base,
                                         chunk->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result != CUDA_SUCCESS) {
        (void)w->platform.driver.cuMemUnmap(chunk->base, chunk->bytes);
    }
    return result;
}

static CUresult clear_device(const struct weir_host_chunk *chunk, CUstream stream)
{
    const struct weir_driver *driver = &chunk->tenant->worker->platform.driver;
    CUresult result = driver->cuMemsetD8Async(chunk->base, 0, chunk->bytes, stream);

    result = result == CUDA_SUCCESS ? weir_memory_cleared(driver, stream) : result;
    if (result != CUDA_SUCCESS) {
        (void)driver->cuMemUnmap(chunk->base, chunk->bytes);
    }
    return result;
}

/* @param stream clears the memory; NULL: it is not cleared */
static CUresult map_device(struct weir_host_chunk *chunk, struct weir_session *session,
                           CUstream stream)
{
    struct weir_worker *w = chunk->tenant->worker;

    WEIR_TRY(weir_memory_create(session, chunk->device, chunk->bytes, &chunk->memory));
    CUresult result = map_memory(chunk, session);
    if (result == CUDA_SUCCESS && stream) {
        result = clear_device(chunk, stream);
    }
    if (result != CUDA_SUCCESS) {
        (void)w->platform.driver.cuMemRelease(chunk->memory);
        chunk->memory = 0;
        return result;
    }
    chunk->kept = weir_memory_keep(chunk->tenant, chunk->memory, chunk->id, chunk->base,
                                   chunk->bytes, &chunk->fd);
    return CUDA_SUCCESS;
}

CUresult weir_chunk_back(struct weir_session *session, struct weir_host_chunk *chunk)
{
    return map_device(chunk, session, NULL);
}

/* Get a pinned chunk's pages: from the region, or from a memfd, new or another worker's. */
static bool take_pages(struct weir_host_chunk *chunk, int *ret_fd)
{
    if (chunk->region_end) {
        return weir_region_take(chunk->region_end, chunk->bytes, ret_fd, &chunk->region_offset) ==
               WEIR_OK;
    }
    if (chunk->fd < 0) {
        chunk->fd = weir_memfd_sealed("weir-pinned", chunk->bytes);
    }
    *ret_fd = chunk->fd;
    return chunk->fd >= 0;
}

static void close_file(struct weir_host_chunk *chunk)
{
    chunk->fd = weir_fd_close(chunk->fd);
}

void weir_chunk_file_sent(struct weir_host_chunk *chunk)
{
    if (chunk->pieces ||
        (chunk->pinned && !weir_memory_holds_file(chunk->tenant->worker, chunk->fd))) {
        close_file(chunk);
    }
}

static void give_pages(struct weir_host_chunk *chunk)
{
    if (chunk->region_end) {
        if (is_loose(chunk)) {
            weir_bus_unguard(chunk->base, chunk->bytes);
        }
        weir_region_give(chunk->region_end, chunk->region_offset, chunk->bytes);
    } else {
        close_file(chunk);
    }
}

static off_t offset_of_pages(const struct weir_host_chunk *chunk)
{
    return !chunk->region_end
               ? 0
               : (off_t)weir_region_file_offset(chunk->region_end, chunk->region_offset);
}

static bool guard_pages(const struct weir_host_chunk *chunk)
{
    return !is_loose(chunk) || weir_bus_guard(chunk->base, chunk->bytes);
}

static CUresult map_pinned(struct weir_host_chunk *chunk)
{
    const struct weir_driver *driver = &chunk->tenant->worker->platform.driver;
    void *at = (void *)(uintptr_t)chunk->base;
    CUdeviceptr device = 0;
    int fd;

    WEIR_FAIL_IF(!take_pages(chunk, &fd), CUDA_ERROR_OUT_OF_MEMORY);
    /* Map over the window's own reservation, which is PROT_NONE and belongs to this tenant. */
    if (mmap(at, chunk->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             offset_of_pages(chunk)) != at ||
        !guard_pages(chunk)) {
        (void)weir_addresses_reclaim(chunk->base, chunk->bytes);
        give_pages(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = driver->cuMemHostRegister_v2(
        at, chunk->bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_SUCCESS) {
        result = driver->cuMemHostGetDevicePointer_v2(&device, at, 0);
        if (result == CUDA_SUCCESS && device != chunk->base) {
            result = CUDA_ERROR_NOT_SUPPORTED;
        }
        if (result != CUDA_SUCCESS) {
            (void)driver->cuMemHostUnregister(at);
        }
    }
    if (result != CUDA_SUCCESS) {
        (void)weir_addresses_reclaim(chunk->base, chunk->bytes);
        give_pages(chunk);
    }
    return result;
}

static void count(const struct weir_host_chunk *chunk)
{
    struct weir_worker_counts *counts = &chunk->tenant->worker->counts;

    atomic_fetch_add(&counts->chunks, 1);
    atomic_fetch_add(&counts->chunk_bytes, chunk->bytes);
}

/* ---------------------------------------------------------------- the chunk made before the first
 * program */

#define READY_BYTES (UINT64_C(32) << 20) /* size that guests ask for first (guest_lib/chunk.c) */

CUresult weir_chunk_ready_make(struct weir_worker *worker, CUstream stream)
{
    const struct weir_driver *d = &worker->platform.driver;
    struct weir_ready_chunk ready = {.there = true,
                                     .base = weir_worker_ready_window_base(worker),
                                     .bytes = READY_BYTES,
                                     .clearing = stream};

    WEIR_FAIL_IF(ready.bytes % worker->platform.granularity_bytes != 0, CUDA_ERROR_NOT_SUPPORTED);
    WEIR_TRY(create_memory(worker, 0, ready.bytes, &ready.memory));
    CUresult result = d->cuMemMap(ready.base, ready.bytes, 0, ready.memory, 0);
    if (result != CUDA_SUCCESS) {
        (void)d->cuMemRelease(ready.memory);
        return result;
    }
    result = weir_memory_access(worker, 0, 1, ready.base, ready.bytes,
                                CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    WEIR_THEN(result, d->cuMemsetD8Async(ready.base, 0, ready.bytes, stream));
    if (result != CUDA_SUCCESS) {
        (void)d->cuMemUnmap(ready.base, ready.bytes);
        (void)d->cuMemRelease(ready.memory);
        return result;
    }
    worker->platform.ready.chunk = ready;
    return CUDA_SUCCESS;
}

void weir_chunk_ready_cleared(struct weir_worker *worker)
{
    worker->platform.ready.chunk.clearing = NULL;
}

static bool take_ready(struct weir_worker *worker, uint64_t bytes,
                       struct weir_ready_chunk *ret_ready)
{
    WEIR_LOCKED(&worker->lock);
    bool taken = worker->platform.ready.chunk.there &&
                 (bytes == 0 || bytes == worker->platform.ready.chunk.bytes);
    if (taken) {
        *ret_ready = worker->platform.ready.chunk;
        worker->platform.ready.chunk.there = false;
    }
    return taken;
}

static CUresult await_cleared(const struct weir_driver *d, const struct weir_ready_chunk *ready)
{
    CUresult result = CUDA_SUCCESS;

    if (ready->clearing) {
        result = d->cuStreamSynchronize(ready->clearing);
        (void)d->cuStreamDestroy_v2(ready->clearing);
    }
    return result;
}

bool weir_chunk_ready_drop(struct weir_worker *worker)
{
    const struct weir_driver *d = &worker->platform.driver;
    struct weir_ready_chunk ready;

    if (!take_ready(worker, 0, &ready)) {
        return false;
    }
    (void)await_cleared(d, &ready);
    (void)d->cuMemUnmap(ready.base, ready.bytes);
    (void)d->cuMemRelease(ready.memory);
    return true;
}

/* Use the ready chunk. Its addresses were taken in the tenant's window (tenant.c). */
static CUresult use_ready(struct weir_session *session, struct weir_host_chunk *chunk,
                          const struct weir_ready_chunk *ready)
{
    const struct weir_driver *d = session->driver;
    CUresult result = await_cleared(d, ready);

    chunk->base = ready->base;
    chunk->memory = ready->memory;
    if (result == CUDA_SUCCESS) {
        weir_chunk_reach(session, chunk, session->devices.used);
        chunk->kept = weir_memory_keep(chunk->tenant, chunk->memory, chunk->id, chunk->base,
                                       chunk->bytes, &chunk->fd);
        return CUDA_SUCCESS;
    }
    (void)d->cuMemUnmap(chunk->base, chunk->bytes);
    (void)d->cuMemRelease(chunk->memory);
    return result;
}

/* ---------------------------------------------------------------- made */

/* Find an address for pinned memory, or for memory of another worker, and map it there. */
static CUresult map_at_new_address(struct weir_session *session, struct weir_host_chunk *chunk)
{
    WEIR_TRY(take_address(session, chunk, session->platform->granularity_bytes));
    CUresult result = chunk->pinned ? map_pinned(chunk) : map_memory(chunk, session);
    if (result != CUDA_SUCCESS) {
        give_address(chunk);
    }
    return result;
}

static CUresult make_device(struct weir_session *session, struct weir_host_chunk *chunk,
                            uint64_t unit, CUstream stream)
{
    struct weir_ready_chunk ready;
    CUresult result;

    weir_managed_make_room(session, chunk->device, chunk->bytes);
    WEIR_TRY(charge(session, chunk));
    if (chunk->device == 0 && take_ready(session->worker, chunk->bytes, &ready)) {
        result = use_ready(session, chunk, &ready);
    } else {
        WEIR_TRY(take_place(chunk, unit));
        result = map_device(chunk, session, stream);
    }
    if (result != CUDA_SUCCESS) {
        give_address(chunk);
    }
    return result;
}

static CUresult make_managed(struct weir_session *session, struct weir_host_chunk *chunk,
                             uint64_t unit, CUstream stream)
{
    WEIR_TRY(take_place(chunk, unit));
    CUresult result = weir_pieces_make(session, chunk, stream);
    if (result != CUDA_SUCCESS) {
        session->op.lack = WEIR_LACK_REFUSED; /* the guest asks for pinned memory then */
        give_address(chunk);
    }
    return result;
}

/* Use spare memory that the session has had before. false: there is none of this size. */
static bool use_spare(struct weir_session *session, uint32_t device, uint64_t bytes,
                      CUresult *ret_result, struct weir_host_chunk **ret_chunk)
{
    struct weir_host_chunk *chunk = weir_spare_take(session, device, bytes);

    WEIR_FAIL_IF(!chunk, false);
    *ret_result = charge(session, chunk);
    if (*ret_result != CUDA_SUCCESS) {
        chunk->charged = (struct weir_amounts){{0}};
        weir_chunk_release(chunk);
        return true;
    }
    chunk->refs = 1;
    weir_chunk_reach(session, chunk, session->devices.used);
    *ret_chunk = chunk;
    return true;
}

CUresult weir_chunk_create(struct weir_session *session, uint32_t device, uint64_t bytes,
                           enum weir_grant_kind kind, CUstream stream, struct weir_region_end *end,
                           struct weir_host_chunk **ret_chunk)
{
    struct weir_worker *w = session->worker;
    uint64_t unit = w->platform.granularity_bytes;
    bool pinned = kind == WEIR_GRANT_PINNED;
    CUresult result;

    WEIR_FAIL_IF(bytes == 0 || bytes > w->config.window_bytes, CUDA_ERROR_OUT_OF_MEMORY);
    bytes = (bytes + unit - 1) / unit * unit;
    if (kind == WEIR_GRANT_DEVICE && use_spare(session, device, bytes, &result, ret_chunk)) {
        return result;
    }
    struct weir_host_chunk *chunk = calloc(1, sizeof *chunk);
    WEIR_FAIL_IF(!chunk, CUDA_ERROR_OUT_OF_MEMORY);
    *chunk = (struct weir_host_chunk){.tenant = session->tenant,
                                      .id = atomic_fetch_add(&w->counts.next_chunk, 1) + 1,
                                      .bytes = bytes,
                                      .pinned = pinned,
                                      .device = (uint8_t)device,
                                      .fd = -1,
                                      .region_end = pinned ? end : NULL,
                                      .refs = 1};
    result = pinned                       ? map_at_new_address(session, chunk)
             : kind == WEIR_GRANT_MANAGED ? make_managed(session, chunk, unit, stream)
                                          : make_device(session, chunk, unit, stream);
    if (result != CUDA_SUCCESS) {
        free(chunk);
        return result;
    }
    count(chunk);
    *ret_chunk = chunk;
    return CUDA_SUCCESS;
}

static CUresult import_device(struct weir_session *session, struct weir_host_chunk *chunk)
{
    WEIR_TRY(session->driver->cuMemImportFromShareableHandle(
        &chunk->memory, (void *)(intptr_t)chunk->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUresult result = map_memory(chunk, session);
    if (result != CUDA_SUCCESS) {
        (void)session->driver->cuMemRelease(chunk->memory);
        return result;
    }
    chunk->kept = weir_memory_keep(chunk->tenant, chunk->memory, chunk->id, chunk->base,
                                   chunk->bytes, &chunk->fd);
    return CUDA_SUCCESS;
}

CUresult weir_chunk_adopt(struct weir_session *session, const struct weir_host_chunk *as,
                          struct weir_host_chunk **ret_chunk)
{
    struct weir_host_chunk *chunk = calloc(1, sizeof *chunk);

    if (!chunk) {
        close(as->fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *chunk = *as;
    chunk->tenant = session->tenant;
    chunk->id = atomic_fetch_add(&session->worker->counts.next_chunk, 1) + 1;
    chunk->refs = 1;
    CUresult result = take_address(session, chunk, 0);
    if (result == CUDA_SUCCESS) {
        result = chunk->pinned ? map_pinned(chunk) : import_device(session, chunk);
        if (result != CUDA_SUCCESS) {
            give_address(chunk);
        }
    }
    if (result != CUDA_SUCCESS) {
        close_file(chunk);
        free(chunk);
        return result;
    }
    count(chunk);
    *ret_chunk = chunk;
    return CUDA_SUCCESS;
}

void weir_chunk_reach(struct weir_session *session, const struct weir_host_chunk *chunk,
                      uint32_t users)
{
    if (!chunk->pinned) {
        weir_memory_reach(session->worker, chunk->device, users, chunk->base, chunk->bytes,
                          CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
}

/* ---------------------------------------------------------------- for other processes */

/* List the chunk, so that sessions of this worker find it. */
static void enter_shared(struct weir_host_chunk *chunk)
{
    struct weir_tenant *t = chunk->tenant;

    WEIR_LOCKED(&t->lock);
    chunk->shared = true;
    chunk->next_shared = t->shared_chunks;
    t->shared_chunks = chunk;
}

static void leave_shared_locked(struct weir_host_chunk *chunk)
{
    WEIR_UNLINK(chunk->tenant->shared_chunks, chunk, next_shared);
}

CUresult weir_chunk_share(struct weir_host_chunk *chunk)
{
    struct weir_link_entry entry = {.device = chunk->device, .bytes = chunk->bytes};

    if (chunk->shared) {
        return CUDA_SUCCESS;
    }
    if (weir_directory_is_used(chunk->tenant)) {
        WEIR_TRY(
            weir_ipc_memory_publish(chunk->tenant, chunk->memory, -1, &entry, &chunk->charged));
        chunk->published = true;
    } else if (!weir_directory_new_key(entry.key)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    memcpy(chunk->key, entry.key, sizeof chunk->key);
    enter_shared(chunk);
    return CUDA_SUCCESS;
}

static bool is_same_key(const uint8_t *a, const uint8_t *b)
{
    unsigned differ = 0;

    for (size_t i = 0; i < WEIR_ENTRY_KEY_BYTES; i++) {
        differ |= (unsigned)(a[i] ^ b[i]);
    }
    return differ == 0;
}

static struct weir_host_chunk *find_shared(struct weir_tenant *t, const uint8_t *key)
{
    WEIR_LOCKED(&t->lock);
    struct weir_host_chunk *chunk = t->shared_chunks;
    while (chunk && !is_same_key(chunk->key, key)) {
        chunk = chunk->next_shared;
    }
    if (chunk) {
        chunk->refs++;
    }
    return chunk;
}

static CUresult import_chunk(struct weir_session *session, const uint8_t *key,
                             struct weir_host_chunk **ret_chunk)
{
    struct weir_tenant *t = session->tenant;
    struct weir_link_entry entry = {.kind = WEIR_ENTRY_MEMORY};
    struct weir_host_chunk *chunk = calloc(1, sizeof *chunk);
    CUresult result = chunk ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    WEIR_TRY(result);
    memcpy(entry.key, key, sizeof entry.key);
    *chunk = (struct weir_host_chunk){.tenant = t, .fd = -1, .refs = 1, .published = true};
    result = weir_ipc_memory_import(t, &entry, &chunk->memory, NULL);
    if (result != CUDA_SUCCESS) {
        free(chunk);
        return result;
    }
    chunk->device = (uint8_t)entry.device;
    chunk->bytes = entry.bytes;
    memcpy(chunk->key, key, sizeof chunk->key);
    result = map_at_new_address(session, chunk);
    if (result != CUDA_SUCCESS) {
        (void)session->driver->cuMemRelease(chunk->memory);
        weir_directory_withdraw(t, WEIR_ENTRY_MEMORY, key);
        free(chunk);
        return result;
    }
    count(chunk);
    enter_shared(chunk);
    *ret_chunk = chunk;
    return CUDA_SUCCESS;
}

CUresult weir_chunk_open(struct weir_session *session, const uint8_t key[WEIR_ENTRY_KEY_BYTES],
                         struct weir_host_chunk **ret_chunk)
{
    *ret_chunk = find_shared(session->tenant, key);
    if (*ret_chunk) {
        weir_chunk_reach(session, *ret_chunk, session->devices.used);
        return CUDA_SUCCESS;
    }
    return weir_directory_is_used(session->tenant) ? import_chunk(session, key, ret_chunk)
                                                   : CUDA_ERROR_INVALID_VALUE;
}

/* ---------------------------------------------------------------- the end */

static void finish(struct weir_host_chunk *chunk)
{
    struct weir_worker *worker = chunk->tenant->worker;

    give_address(chunk);
    atomic_fetch_sub(&worker->counts.chunks, 1);
    atomic_fetch_sub(&worker->counts.chunk_bytes, chunk->bytes);
    free(chunk);
}

void weir_chunk_unback(struct weir_host_chunk *chunk)
{
    const struct weir_driver *driver = &chunk->tenant->worker->platform.driver;

    if (chunk->memory != 0) { /* pieces have gone before (weir_pieces_drop()) */
        (void)driver->cuMemUnmap(chunk->base, chunk->bytes);
        (void)driver->cuMemRelease(chunk->memory);
    }
    if (chunk->kept) {
        weir_memory_drop(chunk->tenant->worker, chunk->id);
    }
    close_file(chunk);
    chunk->memory = 0;
    chunk->kept = false;
}

void weir_chunk_release(struct weir_host_chunk *chunk)
{
    weir_chunk_unback(chunk);
    if (chunk->published) {
        weir_directory_withdraw(chunk->tenant, WEIR_ENTRY_MEMORY, chunk->key);
    }
    finish(chunk);
}

/* Unregister pinned memory. The device is idle. */
static void unpin(struct weir_session *session, void *what)
{
    struct weir_host_chunk *chunk = what;

    (void)session->driver->cuMemHostUnregister((void *)(uintptr_t)chunk->base);
    (void)weir_addresses_reclaim(chunk->base, chunk->bytes);
    give_pages(chunk);
    finish(chunk);
}

void weir_chunk_put(struct weir_session *session, struct weir_host_chunk *chunk)
{
    struct weir_tenant *t = chunk->tenant;
    uint32_t idle;

    pthread_mutex_lock(&t->lock);
    bool last = --chunk->refs == 0;
    if (last && chunk->shared) {
        leave_shared_locked(chunk);
    }
    pthread_mutex_unlock(&t->lock);
    if (!last) {
        return;
    }
    if (!chunk->pinned) {
        if (!weir_spare_keep(session, chunk)) {
            weir_chunk_release(chunk);
        }
    } else if (weir_put_off_begin(session, &idle) == CUDA_SUCCESS) {
        unpin(session, chunk);
        weir_device_idle_end(session->worker, idle);
    } else {
        weir_put_off(session, unpin, chunk, 0, 0);
    }
}

/*
 * Suspended sessions: see away.h.
 *
 * The device memory that only this session has is copied, part by part, to one mapping of huge
 * pages. While one part is copied, the next is registered. Then the device memory and its mappings
 * go, and the addresses stay reserved. Memory that others may have, managed and pinned memory,
 * arrays, and variables of modules stay.
 */
#include "host_backend/worker/memory/away.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/memory/access.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/memory/holdings.h"
#include "host_backend/worker/memory/spare.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/limits.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/suspension.h"
#include "host_backend/worker/state/tenant.h"
#include <stdlib.h>
#include <sys/mman.h>

/* An H100 copies 51 GiB/s and the kernel registers 55 GiB/s of huge pages, in steps of a
 * millisecond each at this size (docs/design/suspend.md). */
#define PART_BYTES (UINT64_C(64) << 20)
#define ASK_NS     (50 * WEIR_NS_PER_MS) /* how often others are asked for device memory */

/* A piece of device memory: a chunk's or a VMM allocation's. */
struct item {
    struct weir_host_chunk *chunk;
    struct weir_vmm_alloc *alloc;
    uint64_t base, bytes;
    uint64_t offset;
    uint32_t device;
    bool registers; /* a registered part of the host memory begins with this item */
};

struct weir_away {
    struct item *items; /* owned */
    uint32_t n;
    uint64_t bytes;
    uint8_t *at; /* host memory; NULL: none yet */
    struct weir_amounts charged;
};

/* ---------------------------------------------------------------- what can be moved */

static bool is_movable_chunk(const struct weir_grant *grant)
{
    const struct weir_host_chunk *chunk = grant->chunk;

    return !chunk->pinned && chunk->memory != 0 && !grant->opened && !chunk->shared &&
           !chunk->published;
}

/* Can an allocation be moved through this mapping of all of it? */
static bool is_movable_map(const struct weir_session_vmm_map *map)
{
    return !map->alloc->on_host && !map->alloc->seen && !map->alloc->published &&
           map->access != CU_MEM_ACCESS_FLAGS_PROT_NONE && map->bytes == map->alloc->bytes;
}

uint64_t weir_away_movable(const struct weir_session *session)
{
    const struct weir_vmm_book *vmm = &session->holdings->vmm;
    uint64_t bytes = 0;

    for (const struct weir_grant *g = session->holdings->grants; g; g = g->next) {
        bytes += is_movable_chunk(g) ? g->chunk->bytes : 0;
    }
    for (size_t i = 0; i < vmm->n_maps; i++) {
        bytes += is_movable_map(&vmm->maps[i]) ? vmm->maps[i].bytes : 0;
    }
    return bytes;
}

static void add(struct weir_away *away, struct item item)
{
    item.offset = away->bytes;
    away->items[away->n++] = item;
    away->bytes += item.bytes;
}

/* List what is to be moved, so that the tenant keeps `least_bytes`. */
static void collect(struct weir_session *s, struct weir_away *away, uint64_t least_bytes)
{
    uint64_t used = weir_account_used(&s->tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY);
    uint64_t most = used > least_bytes ? used - least_bytes : 0;
    const struct weir_vmm_book *vmm = &s->holdings->vmm;

    for (struct weir_grant *g = s->holdings->grants; g; g = g->next) {
        struct weir_host_chunk *chunk = g->chunk;

        if (is_movable_chunk(g) && away->bytes + chunk->bytes <= most) {
            add(away, (struct item){.chunk = chunk,
                                    .base = chunk->base,
                                    .bytes = chunk->bytes,
                                    .device = chunk->device});
        }
    }
    for (size_t i = 0; i < vmm->n_maps; i++) {
        const struct weir_session_vmm_map *map = &vmm->maps[i];

        if (is_movable_map(map) && map->alloc->away == 0 && away->bytes + map->bytes <= most) {
            add(away, (struct item){.alloc = map->alloc,
                                    .base = map->base,
                                    .bytes = map->bytes,
                                    .device = map->alloc->device});
            map->alloc->away = away->n; /* its item's number, from 1 on */
        }
    }
}

bool weir_session_has_no_work(const struct weir_session *session)
{
    const struct weir_session *s = session;

    if (s->n_captures != 0) {
        return false;
    }
    for (struct weir_host_ctx *ctx = weir_session_contexts(s); ctx; ctx = ctx->next) {
        WEIR_FAIL_IF(
            WEIR_LINKED(stream, ctx->streams,
                        stream->capturing || weir_mark_kernels_pending(&stream->gate.word) ||
                            s->driver->cuStreamQuery(weir_host_stream_at(stream)) != CUDA_SUCCESS),
            false);
    }
    return true;
}

/* ---------------------------------------------------------------- copies */

static CUresult copy(struct weir_session *s, const struct item *item, bool back)
{
    CUdeviceptr there = (CUdeviceptr)(uintptr_t)(s->holdings->away->at + item->offset);
    CUstream stream;

    WEIR_TRY(weir_session_enter(s, item->device));
    WEIR_TRY(weir_session_work_stream(s, &stream));
    return back ? s->driver->cuMemcpyAsync(item->base, there, item->bytes, stream)
                : s->driver->cuMemcpyAsync(there, item->base, item->bytes, stream);
}

static CUresult await_copies(struct weir_session *s)
{
    const struct weir_away *away = s->holdings->away;
    CUresult result = CUDA_SUCCESS;
    uint32_t awaited = 0;

    for (uint32_t i = 0; i < away->n; i++) {
        uint32_t device = away->items[i].device;
        CUstream stream;

        if ((awaited >> device & 1) == 0 && weir_session_enter(s, device) == CUDA_SUCCESS &&
            weir_session_work_stream(s, &stream) == CUDA_SUCCESS) {
            CUresult waited = s->driver->cuStreamSynchronize(stream);

            result = result == CUDA_SUCCESS ? waited : result;
            awaited |= 1u << device;
        }
    }
    return result;
}

/* Register host memory, a part of it at a time, and copy what goes there. */
static CUresult copy_out(struct weir_session *s)
{
    struct weir_away *away = s->holdings->away;

    for (uint32_t first = 0, next; first < away->n; first = next) {
        uint64_t begin = away->items[first].offset, end = begin;

        for (next = first; next < away->n && end - begin < PART_BYTES; next++) {
            end += away->items[next].bytes;
        }
        WEIR_TRY(s->driver->cuMemHostRegister_v2(away->at + begin, end - begin,
                                                 CU_MEMHOSTREGISTER_PORTABLE));
        away->items[first].registers = true;
        for (uint32_t i = first; i < next; i++) {
            WEIR_TRY(copy(s, &away->items[i], false));
        }
    }
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- host memory */

static CUresult take_room(struct weir_session *s)
{
    struct weir_away *away = s->holdings->away;

    away->charged = weir_host_memory_cost(away->bytes, false);
    WEIR_TRY(weir_session_charge_all(s, s->device, &away->charged));
    void *at = mmap(NULL, away->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        weir_account_release_all(&s->tenant->account, &away->charged);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (void)madvise(at, away->bytes, MADV_HUGEPAGE);
    away->at = at;
    weir_session_pins(s, away->bytes);
    return CUDA_SUCCESS;
}

/* Free the list, and its host memory, which the kernel clears before anybody else has it. */
static void destroy(struct weir_session *s)
{
    struct weir_away *away = s->holdings->away;

    for (uint32_t i = 0; i < away->n; i++) {
        if (away->items[i].registers) {
            (void)s->driver->cuMemHostUnregister(away->at + away->items[i].offset);
        }
        if (away->items[i].alloc) {
            away->items[i].alloc->away = 0;
        }
    }
    if (away->at) {
        munmap(away->at, away->bytes);
        weir_account_release_all(&s->tenant->account, &away->charged);
        weir_session_unpins(s, away->bytes);
    }
    free(away->items);
    free(away);
    s->holdings->away = NULL;
    atomic_store(&s->devices.suspension->away_bytes, 0);
}

/* ---------------------------------------------------------------- out */

/* Release what was copied. The driver waits for the device, and holds its lock meanwhile. */
static void release_all(struct weir_session *s)
{
    const struct weir_away *away = s->holdings->away;
    const struct weir_vmm_book *vmm = &s->holdings->vmm;

    for (size_t i = 0; i < vmm->n_maps; i++) {
        if (vmm->maps[i].alloc->away != 0) {
            (void)s->driver->cuMemUnmap(vmm->maps[i].base, vmm->maps[i].bytes);
        }
    }
    for (uint32_t i = 0; i < away->n; i++) {
        if (away->items[i].chunk) {
            weir_chunk_unback(away->items[i].chunk);
        } else {
            weir_vmm_alloc_unback(away->items[i].alloc);
        }
    }
}

static CUresult begin(struct weir_session *s, uint64_t least_bytes)
{
    struct weir_away *away = calloc(1, sizeof *away);
    CUresult result, waited;

    if (!away || !(away->items = calloc(s->holdings->n_grants + s->holdings->vmm.n_maps + 1,
                                        sizeof *away->items))) {
        free(away);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    s->holdings->away = away;
    weir_spares_end(s);
    collect(s, away, least_bytes);
    result = away->n == 0 ? CUDA_ERROR_NOT_FOUND : take_room(s);
    if (result == CUDA_SUCCESS) {
        result = copy_out(s);
        waited = await_copies(s);
        result = result == CUDA_SUCCESS ? waited : result;
    }
    if (result != CUDA_SUCCESS) {
        destroy(s);
        return result;
    }
    release_all(s);
    atomic_store(&s->devices.suspension->away_bytes, away->bytes);
    return CUDA_SUCCESS;
}

CUresult weir_away_begin(struct weir_session *session, uint64_t least_bytes)
{
    struct weir_session *s = session;
    uint64_t begin_ns = weir_clock_now_ns();
    uint32_t idle;

    if (s->holdings->away) {
        return CUDA_SUCCESS;
    }
    if (!weir_session_has_no_work(s) || weir_device_idle_begin_or_fail(s, &idle) != CUDA_SUCCESS) {
        return CUDA_ERROR_NOT_READY;
    }
    CUresult result = begin(s, least_bytes);
    weir_device_idle_end(s->worker, idle);
    WEIR_TRY(result);
    if (s->platform->posix_fds) {
        (void)weir_worker_sync(s->worker, WEIR_LINK_SYNC); /* the supervisor released its copies */
    }
    weir_log_info("session: suspended session=%llu tenant=%s bytes=%llu pieces=%u ms=%.1f",
                  (unsigned long long)s->id, s->tenant->name,
                  (unsigned long long)s->holdings->away->bytes, s->holdings->away->n,
                  (double)(weir_clock_now_ns() - begin_ns) / (double)WEIR_NS_PER_MS);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- back */

static CUresult back_item(struct weir_session *s, const struct item *item)
{
    return item->chunk ? weir_chunk_back(s, item->chunk) : weir_vmm_alloc_back(s, item->alloc);
}

/* Get device memory for an item again. If there is none, ask others to give theirs, and wait. */
static CUresult make(struct weir_session *s, const struct item *item)
{
    CUresult result = back_item(s, item);
    uint64_t asked_ns = 0;

    while (result == CUDA_ERROR_OUT_OF_MEMORY && !weir_session_is_over(s)) {
        uint64_t now_ns = weir_clock_now_ns();

        if (asked_ns == 0) {
            weir_log_info("session: waits for device memory to be resumed session=%llu tenant=%s",
                          (unsigned long long)s->id, s->tenant->name);
        }
        if (now_ns - asked_ns >= ASK_NS) {
            asked_ns = now_ns;
            (void)weir_memory_may_come(s->worker, s->holdings->away->bytes - item->offset);
        }
        weir_memory_pause();
        result = back_item(s, item);
    }
    return result;
}

/* Map VMM memory as it was mapped. What is read-only stays writable until its bytes are back. */
static CUresult map_again(struct weir_session *s, const struct weir_session_vmm_map *map)
{
    const struct item *item = &s->holdings->away->items[map->alloc->away - 1];

    WEIR_TRY(s->driver->cuMemMap(map->base, map->bytes, 0, map->alloc->memory, 0));
    if (map->access != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        WEIR_TRY(weir_memory_access(s->worker, map->alloc->device, s->devices.used, map->base,
                                    map->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    }
    return map->base == item->base ? copy(s, item, true) : CUDA_SUCCESS;
}

static CUresult copy_back(struct weir_session *s)
{
    const struct weir_away *away = s->holdings->away;
    const struct weir_vmm_book *vmm = &s->holdings->vmm;

    for (uint32_t i = 0; i < away->n; i++) {
        WEIR_TRY(make(s, &away->items[i]));
        if (away->items[i].chunk) {
            WEIR_TRY(copy(s, &away->items[i], true));
        }
    }
    for (size_t i = 0; i < vmm->n_maps; i++) {
        if (vmm->maps[i].alloc->away != 0) {
            WEIR_TRY(map_again(s, &vmm->maps[i]));
        }
    }
    return CUDA_SUCCESS;
}

static CUresult forbid_writes(struct weir_session *s)
{
    const struct weir_vmm_book *vmm = &s->holdings->vmm;

    for (size_t i = 0; i < vmm->n_maps; i++) {
        const struct weir_session_vmm_map *map = &vmm->maps[i];

        if (map->alloc->away != 0 && map->access == CU_MEM_ACCESS_FLAGS_PROT_READ) {
            WEIR_TRY(weir_memory_access(s->worker, map->alloc->device, s->devices.used, map->base,
                                        map->bytes, CU_MEM_ACCESS_FLAGS_PROT_READ));
        }
    }
    return CUDA_SUCCESS;
}

CUresult weir_away_end(struct weir_session *session)
{
    struct weir_session *s = session;
    uint64_t begin_ns = weir_clock_now_ns();
    CUresult result, waited;
    uint32_t idle;

    if (!s->holdings->away) {
        return CUDA_SUCCESS;
    }
    result = copy_back(s);
    waited = await_copies(s);
    result = result == CUDA_SUCCESS ? waited : result;
    WEIR_TRY(result == CUDA_SUCCESS ? forbid_writes(s) : result);
    weir_log_info("session: resumed session=%llu tenant=%s bytes=%llu ms=%.1f",
                  (unsigned long long)s->id, s->tenant->name,
                  (unsigned long long)s->holdings->away->bytes,
                  (double)(weir_clock_now_ns() - begin_ns) / (double)WEIR_NS_PER_MS);
    /* To unregister the host memory the driver waits for the device. */
    result = weir_device_idle_begin_or_fail(s, &idle);
    destroy(s);
    if (result == CUDA_SUCCESS) {
        weir_device_idle_end(s->worker, idle);
    }
    return CUDA_SUCCESS;
}

void weir_away_forget(struct weir_session *session)
{
    if (session->holdings->away) {
        destroy(session);
    }
}

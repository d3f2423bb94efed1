/* A session's memory in another worker: device memory by its descriptors, pinned and registered
 * memory by its files. */
#include "host_backend/worker/rebuild/private.h"

#include "base/thread.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/memory/holdings.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <stdlib.h>
#include <unistd.h>

static const char *why_chunk_stays(const struct weir_grant *grant)
{
    return grant->opened || grant->chunk->shared || grant->chunk->published
               ? "memory shared with other programs"
           : grant->chunk->fd < 0 ? "memory without a descriptor"
                                  : NULL;
}

static const char *why_alloc_stays(const struct weir_vmm_alloc *alloc)
{
    return alloc->seen || alloc->published ? "memory shared with other programs"
           : alloc->file < 0               ? "memory without a descriptor"
                                           : NULL;
}

static const char *why_registered_stays(const struct weir_range_set *registered)
{
    for (size_t i = 0; i < registered->n; i++) {
        if (((const struct weir_registration *)registered->ranges[i].owner)->file < 0) {
            return "registered memory without a descriptor";
        }
    }
    return NULL;
}

static void look_at_handle(weir_handle handle, void *object, void *user)
{
    const struct weir_host_vmm_handle *h = object;
    const char **why = user;

    (void)handle;
    *why = *why ? *why : why_alloc_stays(h->alloc);
}

static bool has_exports(struct weir_tenant *tenant)
{
    WEIR_LOCKED(&tenant->lock);
    return tenant->exports != NULL;
}

const char *weir_rebuild_memory_why(struct weir_session *session)
{
    const struct weir_holdings *h = session->holdings;
    const char *why = session->devices.managed       ? "managed memory"
                      : h->away                      ? "suspended memory"
                      : has_exports(session->tenant) ? "descriptors for other programs"
                                                     : why_registered_stays(&h->registered);

    for (const struct weir_grant *g = h->grants; g && !why; g = g->next) {
        why = why_chunk_stays(g);
    }
    for (size_t i = 0; i < h->vmm.n_maps && !why; i++) {
        why = why_alloc_stays(h->vmm.maps[i].alloc);
    }
    weir_host_objects_visit(session, WEIR_KIND_CHUNK, look_at_handle, &why);
    return why;
}

/* ---------------------------------------------------------------- into a box */

struct chunk {
    uint64_t reference, base, bytes;
    uint32_t device, pinned;
};

struct registered {
    uint64_t device, bytes, offset;
    uint32_t read_only, in_window, pinned, unused;
};

struct alloc {
    uint64_t id, bytes, cleared_bytes;
    uint32_t device, handle_types, on_host, unused;
};

struct space {
    uint64_t base, bytes;
    uint32_t held, unused;
};

struct map {
    uint64_t base, bytes, alloc;
    uint32_t access, unused;
};

struct handle {
    uint64_t handle, alloc;
};

struct packing {
    struct weir_box *box;
    struct weir_box_counts *counts;
    struct weir_amounts *charged;
};

static void add_charge(struct weir_amounts *sum, const struct weir_amounts *charged)
{
    for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++) {
        sum->of[i] += charged->of[i];
    }
}

static void put_registered(const struct weir_range_set *registered, struct packing *p)
{
    for (size_t i = 0; i < registered->n; i++) {
        const struct weir_registration *r = registered->ranges[i].owner;
        const struct registered as = {r->device,    r->bytes,  r->offset, r->read_only,
                                      r->in_window, r->pinned, 0};

        (void)weir_box_put(p->box, &as, sizeof as);
        weir_box_put_file(p->box, WEIR_BOX_REGISTERED, r->device, r->file);
        add_charge(p->charged, &r->charged);
    }
}

/* Put an allocation, which may have several mappings and handles, once. */
static void put_alloc(struct packing *p, const struct weir_vmm_alloc *a)
{
    const struct alloc alloc = {a->id,      a->bytes, a->cleared_bytes, a->device, a->handle_types,
                                a->on_host, 0};

    if (weir_box_find_file(p->box, WEIR_BOX_ALLOC, a->id) == 0) {
        (void)weir_box_put(p->box, &alloc, sizeof alloc);
        weir_box_put_file(p->box, WEIR_BOX_ALLOC, a->id, a->file);
        add_charge(p->charged, &a->charged);
        p->counts->allocs++;
    }
}

static void put_alloc_of_handle(weir_handle handle, void *object, void *user)
{
    const struct weir_host_vmm_handle *h = object;
    struct packing *p = user;

    (void)handle;
    put_alloc(p, h->alloc);
}

static void put_handle(weir_handle handle, void *object, void *user)
{
    const struct handle h = {handle, ((struct weir_host_vmm_handle *)object)->alloc->id};
    struct packing *p = user;

    (void)weir_box_put(p->box, &h, sizeof h);
    p->counts->handles++;
}

void weir_rebuild_memory_put(struct weir_session *session, struct weir_box *box,
                             struct weir_box_counts *ret_counts, struct weir_amounts *ret_charged)
{
    const struct weir_vmm_book *vmm = &session->holdings->vmm;
    struct weir_box_counts *n = ret_counts;
    struct packing p = {box, n, ret_charged};

    *ret_charged = (struct weir_amounts){0};
    *n = (struct weir_box_counts){.spaces = (uint32_t)vmm->n_spaces,
                                  .maps = (uint32_t)vmm->n_maps,
                                  .registered = (uint32_t)session->holdings->registered.n,
                                  .next_reference = session->holdings->next_reference};
    for (const struct weir_grant *g = session->holdings->grants; g; g = g->next, n->chunks++) {
        const struct chunk chunk = {g->reference, g->chunk->base, g->chunk->bytes, g->chunk->device,
                                    g->chunk->pinned};

        (void)weir_box_put(box, &chunk, sizeof chunk);
        weir_box_put_file(box, WEIR_BOX_CHUNK, g->reference, g->chunk->fd);
        add_charge(ret_charged, &g->chunk->charged);
    }
    put_registered(&session->holdings->registered, &p);
    for (size_t i = 0; i < vmm->n_maps; i++) {
        put_alloc(&p, vmm->maps[i].alloc);
    }
    weir_host_objects_visit(session, WEIR_KIND_CHUNK, put_alloc_of_handle, &p);
    for (size_t i = 0; i < vmm->n_spaces; i++) {
        const struct space space = {vmm->spaces[i].base, vmm->spaces[i].bytes, vmm->spaces[i].held,
                                    0};

        (void)weir_box_put(box, &space, sizeof space);
    }
    for (size_t i = 0; i < vmm->n_maps; i++) {
        const struct map map = {vmm->maps[i].base, vmm->maps[i].bytes, vmm->maps[i].alloc->id,
                                vmm->maps[i].access, 0};

        (void)weir_box_put(box, &map, sizeof map);
    }
    weir_host_objects_visit(session, WEIR_KIND_CHUNK, put_handle, &p);
}

static void forget_charge(weir_handle handle, void *object, void *user)
{
    (void)handle;
    (void)user;
    ((struct weir_host_vmm_handle *)object)->alloc->charged = (struct weir_amounts){0};
}

void weir_rebuild_memory_is_lent(struct weir_session *session)
{
    const struct weir_range_set *registered = &session->holdings->registered;
    const struct weir_vmm_book *vmm = &session->holdings->vmm;

    for (size_t i = 0; i < registered->n; i++) {
        ((struct weir_registration *)(uintptr_t)registered->ranges[i].owner)->charged =
            (struct weir_amounts){0};
    }
    for (const struct weir_grant *g = session->holdings->grants; g; g = g->next) {
        g->chunk->charged = (struct weir_amounts){0};
    }
    for (size_t i = 0; i < vmm->n_maps; i++) {
        vmm->maps[i].alloc->charged = (struct weir_amounts){0};
    }
    weir_host_objects_visit(session, WEIR_KIND_CHUNK, forget_charge, NULL);
}

/* ---------------------------------------------------------------- out of a box */

static CUresult get_chunk(struct weir_session *s, struct weir_box *box)
{
    const struct chunk *c = weir_box_get(box, sizeof *c);
    struct weir_host_chunk *chunk;
    struct weir_host_chunk as;

    if (!c || c->device >= s->platform->n_devices) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    as = (struct weir_host_chunk){.base = c->base,
                                  .bytes = c->bytes,
                                  .pinned = c->pinned != 0,
                                  .device = (uint8_t)c->device,
                                  .fd = weir_box_take_file(box, WEIR_BOX_CHUNK, c->reference)};
    if (as.fd < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_chunk_adopt(s, &as, &chunk));
    return weir_ops_grant_again(s, chunk, c->reference);
}

static CUresult get_registered(struct weir_session *s, struct weir_box *box)
{
    const struct registered *r = weir_box_get(box, sizeof *r);
    struct weir_registration was;
    CUresult result;

    WEIR_FAIL_IF(!r, CUDA_ERROR_INVALID_VALUE);
    was =
        (struct weir_registration){.device = r->device,
                                   .bytes = r->bytes,
                                   .offset = r->offset,
                                   .read_only = r->read_only != 0,
                                   .in_window = r->in_window != 0,
                                   .pinned = r->pinned != 0,
                                   .file = weir_box_take_file(box, WEIR_BOX_REGISTERED, r->device)};
    WEIR_FAIL_IF(was.file < 0, CUDA_ERROR_INVALID_VALUE);
    result = weir_ops_register_again(s, &was);
    close(was.file);
    return result;
}

/* The allocations of a box by the numbers of their descriptors: each keeps a reference until all is
 * made. */
struct allocs {
    struct weir_vmm_alloc **of;
    const struct weir_box *box;
};

static struct weir_vmm_alloc *find_alloc(const struct allocs *allocs, uint64_t id)
{
    return allocs->of[weir_box_find_file(allocs->box, WEIR_BOX_ALLOC, id)];
}

static CUresult get_alloc(struct weir_session *s, struct weir_box *box, struct allocs *allocs)
{
    const struct alloc *a = weir_box_get(box, sizeof *a);
    struct weir_vmm_alloc as = {.file = -1}, **at;

    if (!a || a->device >= s->platform->n_devices || a->cleared_bytes > a->bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    as.bytes = a->bytes;
    as.cleared_bytes = a->cleared_bytes;
    as.handle_types = a->handle_types;
    as.device = a->device;
    as.file = weir_box_take_file(box, WEIR_BOX_ALLOC, a->id);
    if (as.file < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    at = &allocs->of[weir_box_find_file(box, WEIR_BOX_ALLOC, a->id)];
    return a->on_host != 0 ? weir_vmm_host_again(s, as.bytes, as.handle_types, as.file, at)
                           : weir_vmm_alloc_adopt(s, as, at);
}

static CUresult get_space(struct weir_session *s, struct weir_box *box)
{
    const struct space *space = weir_box_get(box, sizeof *space);
    uint64_t got;

    if (!space) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_session_vmm_reserve(s, space->bytes, 0, space->base, space->held != 0, &got));
    return got == space->base ? CUDA_SUCCESS : CUDA_ERROR_ALREADY_MAPPED;
}

static CUresult get_map(struct weir_session *s, struct weir_box *box, const struct allocs *allocs)
{
    const struct map *map = weir_box_get(box, sizeof *map);
    struct weir_vmm_alloc *alloc = map ? find_alloc(allocs, map->alloc) : NULL;

    if (!alloc) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_session_vmm_map(s, map->base, map->bytes, alloc));
    return map->access == CU_MEM_ACCESS_FLAGS_PROT_NONE
               ? CUDA_SUCCESS
               : weir_session_vmm_access(s, map->base, map->bytes, map->access);
}

static CUresult get_handle(struct weir_session *s, struct weir_box *box,
                           const struct allocs *allocs)
{
    const struct handle *h = weir_box_get(box, sizeof *h);
    struct weir_vmm_alloc *alloc = h ? find_alloc(allocs, h->alloc) : NULL;

    if (!alloc) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&s->tenant->lock);
    alloc->refs++;
    pthread_mutex_unlock(&s->tenant->lock);
    return weir_ops_name_alloc(s, h->handle, alloc, false);
}

static CUresult get_mapped(struct weir_session *s, struct weir_box *box,
                           const struct weir_box_counts *n, struct allocs *allocs)
{
    for (uint32_t i = 0; i < n->allocs; i++) {
        WEIR_TRY(get_alloc(s, box, allocs));
    }
    for (uint32_t i = 0; i < n->spaces; i++) {
        WEIR_TRY(get_space(s, box));
    }
    for (uint32_t i = 0; i < n->maps; i++) {
        WEIR_TRY(get_map(s, box, allocs));
    }
    for (uint32_t i = 0; i < n->handles; i++) {
        WEIR_TRY(get_handle(s, box, allocs));
    }
    return CUDA_SUCCESS;
}

CUresult weir_rebuild_memory_get(struct weir_session *session, struct weir_box *box,
                                 const struct weir_box_counts *counts)
{
    struct allocs allocs = {.box = box};
    CUresult result;

    for (uint32_t i = 0; i < counts->chunks; i++) {
        WEIR_TRY(get_chunk(session, box));
    }
    for (uint32_t i = 0; i < counts->registered; i++) {
        WEIR_TRY(get_registered(session, box));
    }
    session->holdings->next_reference = counts->next_reference;
    allocs.of = calloc(box->n_files + (size_t)1, sizeof(struct weir_vmm_alloc *));
    if (!allocs.of) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = get_mapped(session, box, counts, &allocs);
    for (uint32_t i = 0; i <= box->n_files; i++) {
        if (allocs.of[i]) {
            weir_vmm_alloc_put(allocs.of[i]);
        }
    }
    free(allocs.of);
    return result;
}

void weir_rebuild_clear_window(struct weir_tenant *tenant)
{
    struct weir_worker *worker = tenant->worker;
    struct weir_ready_chunk ready;

    (void)weir_sessions_lock(worker);
    ready = weir_worker_platform(worker)->ready.chunk;
    weir_sessions_unlock(worker);
    if (!weir_chunk_ready_drop(worker)) {
        return;
    }
    pthread_mutex_lock(&tenant->lock);
    if (tenant->reserved && ready.base == weir_tenant_window_base(tenant)) {
        (void)!weir_window_give(&tenant->device_window, ready.base, ready.bytes);
    }
    pthread_mutex_unlock(&tenant->lock);
}

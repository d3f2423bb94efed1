/*
 * The address space of the device: one arena for its memory, and a sorted list of everything that a
 * kernel or a copy may touch.
 *
 * The arena is a sparse memfd, mapped shared, so that another process can open an allocation by
 * (pid, descriptor, offset). Its size is twice the device's memory plus a margin, so that first fit
 * does not fail from fragmentation long before used_bytes reaches the limit. Each allocation is
 * followed by a gap, so that an overrun leaves every range of the memory map and faults.
 */
#include "base/fd.h"
#include "base/grow.h"
#include "base/log.h"
#include "softgpu/driver/driver.h"
#include "softgpu/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRAIN_BYTES  512u
#define GAP_BYTES    256u
#define PAGE_BYTES   4096u
#define ARENA_MARGIN (1ull << 30)

struct extent {
    uint64_t base, bytes;
};

static struct {
    int fd;
    uint64_t base, bytes;
    struct extent *free_at; /* free ranges, sorted by address and never adjacent */
    uint32_t n_free, cap_free;
    struct weir_soft_alloc **allocs; /* sorted by base */
    uint32_t n_allocs, cap_allocs;
    uint64_t next_id;
} space = {.fd = -1};

uint64_t weir_soft_next_id(void)
{
    return __atomic_add_fetch(&space.next_id, 1, __ATOMIC_RELAXED);
}

int weir_soft_space_arena(uint64_t *ret_base)
{
    *ret_base = space.base;
    return space.fd;
}

bool weir_soft_space_in_arena(uint64_t address)
{
    return address - space.base < space.bytes;
}

static void *map_arena(uint64_t bytes)
{
    space.fd = memfd_create("weir-softgpu", MFD_CLOEXEC);
    if (space.fd >= 0 && ftruncate(space.fd, (off_t)bytes) == 0) {
        void *at =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, space.fd, 0);
        if (at != MAP_FAILED) {
            return at;
        }
    }
    space.fd = weir_fd_close(space.fd);
    weir_log_warn("softgpu: no shared arena, memory cannot be shared between processes");
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
}

CUresult weir_soft_space_init(uint64_t memory_bytes)
{
    if (space.base != 0) {
        return CUDA_SUCCESS;
    }
    uint64_t bytes = memory_bytes * 2 + ARENA_MARGIN;
    void *at = map_arena(bytes);
    space.free_at = calloc(16, sizeof(*space.free_at));
    WEIR_FAIL_IF(at == MAP_FAILED || !space.free_at, CUDA_ERROR_OUT_OF_MEMORY);
    space.cap_free = 16;
    space.base = (uint64_t)(uintptr_t)at;
    space.bytes = bytes;
    space.free_at[0] = (struct extent){space.base, bytes};
    space.n_free = 1;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ extents of the arena */

static bool extent_room(void)
{
    if (space.n_free + 2 <= space.cap_free) {
        return true;
    }
    struct extent *grown = realloc(space.free_at, 2 * space.cap_free * sizeof(*grown));
    WEIR_FAIL_IF(!grown, false);
    space.free_at = grown;
    space.cap_free *= 2;
    return true;
}

static void extent_insert(uint32_t at, struct extent extent)
{
    memmove(&space.free_at[at + 1], &space.free_at[at],
            (space.n_free - at) * sizeof(space.free_at[0]));
    space.free_at[at] = extent;
    space.n_free++;
}

static void extent_remove(uint32_t at)
{
    space.n_free--;
    memmove(&space.free_at[at], &space.free_at[at + 1],
            (space.n_free - at) * sizeof(space.free_at[0]));
}

static uint64_t arena_take(uint64_t bytes, uint64_t alignment)
{
    if (!extent_room()) {
        return 0;
    }
    for (uint32_t i = 0; i < space.n_free; i++) {
        struct extent *e = &space.free_at[i];
        uint64_t base = (e->base + alignment - 1) & ~(alignment - 1);
        uint64_t skipped = base - e->base;
        if (skipped > e->bytes || e->bytes - skipped < bytes) {
            continue;
        }
        struct extent after = {base + bytes, e->bytes - skipped - bytes};
        if (skipped == 0) {
            *e = after;
            if (after.bytes == 0) {
                extent_remove(i);
            }
        } else {
            e->bytes = skipped;
            if (after.bytes != 0) {
                extent_insert(i + 1, after);
            }
        }
        return base;
    }
    return 0;
}

static void arena_give(uint64_t base, uint64_t bytes)
{
    uint64_t first = (base + PAGE_BYTES - 1) & ~(uint64_t)(PAGE_BYTES - 1);
    uint64_t last = (base + bytes) & ~(uint64_t)(PAGE_BYTES - 1);
    if (last > first) { /* the memory goes back to the system */
        (void)madvise((void *)(uintptr_t)first, last - first,
                      space.fd >= 0 ? MADV_REMOVE : MADV_DONTNEED);
    }
    uint32_t i = 0;
    uint32_t high = space.n_free;
    while (i < high) {
        uint32_t mid = (i + high) / 2;
        if (space.free_at[mid].base < base) {
            i = mid + 1;
        } else {
            high = mid;
        }
    }
    bool joins_last = i > 0 && space.free_at[i - 1].base + space.free_at[i - 1].bytes == base;
    bool joins_next = i < space.n_free && base + bytes == space.free_at[i].base;
    if (joins_last) {
        space.free_at[i - 1].bytes += bytes;
        if (joins_next) {
            space.free_at[i - 1].bytes += space.free_at[i].bytes;
            extent_remove(i);
        }
    } else if (joins_next) {
        space.free_at[i].base = base;
        space.free_at[i].bytes += bytes;
    } else if (extent_room()) {
        extent_insert(i, (struct extent){base, bytes});
    } else {
        weir_log_error("softgpu: no memory to free memory: bytes=%llu lost",
                       (unsigned long long)bytes);
    }
}

/* ------------------------------------------------------------------ the list of allocations */

static uint32_t alloc_above(uint64_t address)
{
    uint32_t low = 0, high = space.n_allocs;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (space.allocs[mid]->base <= address) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

struct weir_soft_alloc *weir_soft_space_find(uint64_t address)
{
    uint32_t above = alloc_above(address);
    WEIR_FAIL_IF(above == 0, NULL);
    struct weir_soft_alloc *alloc = space.allocs[above - 1];
    return address - alloc->base < alloc->bytes ? alloc : NULL;
}

struct weir_soft_alloc *weir_soft_space_at(uint64_t base)
{
    struct weir_soft_alloc *alloc = weir_soft_space_find(base);
    return alloc && alloc->base == base ? alloc : NULL;
}

bool weir_soft_space_is_empty(uint64_t base, uint64_t bytes)
{
    if (weir_soft_space_find(base)) {
        return false;
    }
    uint32_t above = alloc_above(base);
    return above >= space.n_allocs || space.allocs[above]->base - base >= bytes;
}

static bool list_insert(struct weir_soft_alloc *alloc)
{
    WEIR_FAIL_IF(!WEIR_GROW(space.allocs, space.n_allocs, space.cap_allocs), false);
    uint32_t at = alloc_above(alloc->base);
    memmove(&space.allocs[at + 1], &space.allocs[at],
            (space.n_allocs - at) * sizeof(space.allocs[0]));
    space.allocs[at] = alloc;
    space.n_allocs++;
    return true;
}

static void list_remove(const struct weir_soft_alloc *alloc)
{
    uint32_t at = alloc_above(alloc->base) - 1;
    space.n_allocs--;
    memmove(&space.allocs[at], &space.allocs[at + 1],
            (space.n_allocs - at) * sizeof(space.allocs[0]));
}

CUresult weir_soft_space_set_accessible(struct weir_soft_alloc *alloc, bool accessible)
{
    if (alloc->accessible == accessible) {
        return CUDA_SUCCESS;
    }
    enum weir_status status =
        accessible ? weir_soft_memory_add(alloc->base, alloc->bytes,
                                          alloc->read_only ? WEIR_SOFT_READ
                                                           : WEIR_SOFT_READ | WEIR_SOFT_WRITE)
                   : weir_soft_memory_remove(alloc->base);
    if (status != WEIR_OK) {
        return status == WEIR_ERR_NO_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    }
    alloc->accessible = accessible;
    return CUDA_SUCCESS;
}

static struct weir_soft_alloc *alloc_new(const struct weir_soft_alloc *like)
{
    struct weir_soft_alloc *alloc = malloc(sizeof(*alloc));
    if (alloc) {
        *alloc = *like;
        alloc->id = weir_soft_next_id();
        alloc->accessible = false;
        alloc->advice = (struct weir_advice){0};
    }
    return alloc;
}

static bool is_counted(enum weir_soft_alloc_kind kind)
{
    return kind == WEIR_SOFT_ALLOC_DEVICE || kind == WEIR_SOFT_ALLOC_MANAGED ||
           kind == WEIR_SOFT_ALLOC_POOL || kind == WEIR_SOFT_ALLOC_GRAPH ||
           kind == WEIR_SOFT_ALLOC_MODULE;
}

static bool in_arena(const struct weir_soft_alloc *alloc)
{
    return is_counted(alloc->kind);
}

CUresult weir_soft_space_alloc(struct weir_soft_ctx *ctx, uint64_t bytes, uint64_t alignment,
                               enum weir_soft_alloc_kind kind, struct weir_soft_alloc **ret_alloc)
{
    struct weir_soft_device *device = ctx->device;
    WEIR_FAIL_IF(bytes > weir_soft_device_free_bytes(device), CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t span = (bytes + GAP_BYTES + GRAIN_BYTES - 1) & ~(uint64_t)(GRAIN_BYTES - 1);
    alignment = WEIR_MAX(alignment, GRAIN_BYTES);
    uint64_t base = arena_take(span, alignment);
    WEIR_FAIL_IF(base == 0, CUDA_ERROR_OUT_OF_MEMORY);
    struct weir_soft_alloc *alloc = alloc_new(&(struct weir_soft_alloc){.base = base,
                                                                        .bytes = bytes,
                                                                        .kind = kind,
                                                                        .ctx = ctx,
                                                                        .device = device,
                                                                        .span_bytes = span});
    if (!alloc || !list_insert(alloc)) {
        free(alloc);
        arena_give(base, span);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    weir_soft_device_use(device, (int64_t)bytes);
    CUresult result = weir_soft_space_set_accessible(alloc, true);
    if (result != CUDA_SUCCESS) {
        weir_soft_space_free(alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_alloc = alloc;
    return CUDA_SUCCESS;
}

CUresult weir_soft_space_adopt(const struct weir_soft_alloc *like, uint32_t access,
                               struct weir_soft_alloc **ret_alloc)
{
    struct weir_soft_alloc *alloc = alloc_new(like);
    if (!alloc || !list_insert(alloc)) {
        free(alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    alloc->read_only = (access & WEIR_SOFT_WRITE) == 0;
    CUresult result = access != 0 ? weir_soft_space_set_accessible(alloc, true) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        list_remove(alloc);
        free(alloc);
        return result;
    }
    *ret_alloc = alloc;
    return CUDA_SUCCESS;
}

void weir_soft_space_free(struct weir_soft_alloc *alloc)
{
    (void)weir_soft_space_set_accessible(alloc, false);
    list_remove(alloc);
    if (in_arena(alloc)) {
        weir_soft_device_use(alloc->device, -(int64_t)alloc->bytes);
        arena_give(alloc->base, alloc->span_bytes);
    } else if (alloc->kind == WEIR_SOFT_ALLOC_HOST || alloc->kind == WEIR_SOFT_ALLOC_IPC) {
        munmap((void *)(uintptr_t)alloc->map_base, alloc->span_bytes);
    }
    if (alloc->pool) {
        weir_soft_pool_account(alloc->pool, -(int64_t)alloc->bytes);
        weir_soft_object_put(alloc->pool);
    }
    weir_soft_object_put(alloc->chunk);
    weir_advice_finish(&alloc->advice);
    free(alloc);
}

void weir_soft_space_visit(struct weir_soft_ctx *ctx, void (*fn)(struct weir_soft_alloc *alloc))
{
    for (uint32_t i = space.n_allocs; i > 0; i--) {
        if (i <= space.n_allocs && space.allocs[i - 1]->ctx == ctx) {
            fn(space.allocs[i - 1]);
        }
    }
}

/* ------------------------------------------------------------------ pools */

static void raise_to(uint64_t *high, uint64_t value)
{
    *high = *high < value ? value : *high;
}

void weir_soft_pool_account(struct weir_soft_pool *pool, int64_t bytes)
{
    pool->used += (uint64_t)bytes;
    raise_to(&pool->reserved, pool->used);
    if (pool->reserved > pool->threshold) {
        pool->reserved = WEIR_MAX(pool->used, pool->threshold);
    }
    raise_to(&pool->used_high, pool->used);
    raise_to(&pool->reserved_high, pool->reserved);
}

void weir_soft_graph_memory_put(struct weir_soft_graph_memory *memory)
{
    if (memory && --memory->refs == 0) {
        /* The context may have freed the memory; another allocation may have its address. */
        struct weir_soft_alloc *alloc = weir_soft_space_at(memory->base);
        if (alloc && alloc->id == memory->id) {
            alloc->device->graph_used_bytes -= alloc->bytes;
            weir_soft_space_free(alloc);
        }
        free(memory);
    }
}

/*
 * Memory pools and stream-ordered allocation.
 *
 * Pools only count memory, which comes from the context's heap of chunks. A block freed on a stream
 * is *pending* at that point of the stream. The same stream may reuse it at once, other streams
 * only when the point is known to be passed. This needs no message unless memory is short. Then all
 * pools, including destroyed ones, return the blocks whose points have passed.
 */
#include "guest_lib/graph_mem.h"
#include "guest_lib/ops/forward.h"
#include "guest_lib/range.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NAME_BYTES 16
#define LOOK_AT    64 /* most pending blocks that one allocation examines */

struct pending {
    struct pending *next;
    struct weir_mem mem;
    uint64_t block_bytes;
    struct weir_stream_point point;
};

struct weir_pool {
    uint64_t handle;
    CUdevice device;
    bool is_default;
    bool destroyed;
    uint32_t access; /* atomic; bit per other device to which cuMemPoolSetAccess gave access */
    bool imported;   /* from another process: nothing is allocated from it here */
    bool exportable; /* made with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
    uint8_t name[NAME_BYTES]; /* the name in an exported descriptor */
    struct weir_pool *next;   /* next of all pools; only weir_pools_finish() frees them */

    struct weir_lock lock; /* guards what follows */
    int reuse[3];          /* the three attributes CU_MEMPOOL_ATTR_REUSE_* */
    uint64_t release_threshold;
    uint64_t used, used_high;
    uint64_t reserved, reserved_high; /* bytes used and pending; the high-water mark */
    struct pending *pending;          /* newest first */
};

/* Guarded by lock. */
static struct {
    struct weir_lock lock;
    struct weir_pool *all;
    struct weir_pool *defaults[WEIR_GUEST_MAX_DEVICES];
    struct weir_pool *current[WEIR_GUEST_MAX_DEVICES];
} pools;

uint64_t weir_pool_handle(const struct weir_pool *pool)
{
    return pool->handle;
}

static CUresult new_pool(CUdevice device, bool is_default, struct weir_pool **ret_pool)
{
    struct weir_pool *pool = calloc(1, sizeof *pool);
    WEIR_FAIL_IF(!pool, CUDA_ERROR_OUT_OF_MEMORY);
    pool->device = device;
    pool->is_default = is_default;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    CUresult result = weir_guest_object_add(WEIR_KIND_POOL, pool, &pool->handle);
    if (result != CUDA_SUCCESS) {
        free(pool);
        return result;
    }
    *ret_pool = pool;
    return CUDA_SUCCESS;
}

static CUresult default_pool_locked(CUdevice device, struct weir_pool **ret_pool)
{
    if (!pools.defaults[device]) {
        WEIR_TRY(new_pool(device, true, &pools.defaults[device]));
        pools.defaults[device]->next = pools.all;
        pools.all = pools.defaults[device];
    }
    *ret_pool = pools.defaults[device];
    return CUDA_SUCCESS;
}

static CUresult device_pool(CUdevice device, bool want_default, struct weir_pool **ret_pool)
{
    WEIR_FAIL_IF(!weir_guest_device_get(device), CUDA_ERROR_INVALID_DEVICE);
    WEIR_GUEST_LOCKED(&pools.lock);
    CUresult result = CUDA_SUCCESS;
    if (!want_default && pools.current[device]) {
        *ret_pool = pools.current[device];
    } else {
        result = default_pool_locked(device, ret_pool);
    }
    return result;
}

static CUresult get_pool(CUmemoryPool handle, struct weir_pool **ret_pool)
{
    *ret_pool = weir_guest_object_get(WEIR_KIND_POOL, handle);
    return *ret_pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---------------------------------------------------------------- accounts */

static uint64_t block_bytes(const struct weir_mem *mem)
{
    return ((const struct weir_range_block *)mem->owner)->bytes;
}

static void count_locked(struct weir_pool *pool, uint64_t used, uint64_t reserved)
{
    pool->used += used;
    pool->used_high = WEIR_MAX(pool->used, pool->used_high);
    pool->reserved += reserved;
    pool->reserved_high = WEIR_MAX(pool->reserved, pool->reserved_high);
}

void weir_pool_forget(const struct weir_mem *mem)
{
    struct weir_pool *pool = mem->pool;
    WEIR_GUEST_LOCKED(&pool->lock);
    pool->used -= block_bytes(mem);
    pool->reserved -= block_bytes(mem);
}

/* ---------------------------------------------------------------- pending blocks */

static void release_list(struct pending *list)
{
    for (struct pending *first; (first = WEIR_POP(list));) {
        weir_mem_release(&first->mem);
        free(first);
    }
}

/*
 * Return passed blocks to the heap while more than keep_bytes are reserved. pools.lock is held
 * throughout, since a context that is destroyed meanwhile destroys its heap.
 */
static bool harvest_locked(struct weir_pool *pool, uint64_t keep_bytes)
{
    struct pending *gone = NULL;
    weir_lock_acquire(&pool->lock);
    for (struct pending **at = &pool->pending; *at;) {
        struct pending *pending = *at;
        if (pool->reserved > keep_bytes && weir_guest_stream_passed(&pending->point)) {
            *at = pending->next;
            pool->reserved -= pending->block_bytes;
            WEIR_PUSH(gone, pending);
        } else {
            at = &pending->next;
        }
    }
    weir_lock_release(&pool->lock);
    bool any = gone != NULL;
    release_list(gone);
    return any;
}

static void harvest(struct weir_pool *pool, uint64_t keep_bytes)
{
    WEIR_GUEST_LOCKED(&pools.lock);
    harvest_locked(pool, keep_bytes);
}

bool weir_pools_give_back(bool all)
{
    bool any = false;
    WEIR_GUEST_LOCKED(&pools.lock);
    for (struct weir_pool *pool = pools.all; pool; pool = pool->next) {
        any |= harvest_locked(pool, all || pool->destroyed ? 0 : pool->release_threshold);
    }
    return any;
}

/* Wait for every pending block of the pool, then return them all. */
static CUresult drain(struct weir_pool *pool)
{
    CUresult result = CUDA_SUCCESS;
    for (;;) {
        weir_lock_acquire(&pool->lock);
        struct pending *first = pool->pending;
        struct weir_stream_point point = first ? first->point : (struct weir_stream_point){0};
        weir_lock_release(&pool->lock);
        if (!first || result != CUDA_SUCCESS) {
            return result;
        }
        result = weir_guest_stream_wait(&point);
        harvest(pool, 0);
    }
}

static bool fits(const struct pending *pending, uint64_t bytes)
{
    uint64_t slack = bytes / 4 + 4096;
    return pending->block_bytes >= bytes && pending->block_bytes - bytes <= slack;
}

/* Take a pending block for this stream: its own, or one whose point has passed. */
static struct pending *take_pending(struct weir_pool *pool, const struct weir_guest_ctx *ctx,
                                    struct weir_guest_stream *stream, uint64_t bytes)
{
    struct pending *found = NULL;
    WEIR_GUEST_LOCKED(&pool->lock);
    int looked = 0;
    for (struct pending **at = &pool->pending; *at && looked < LOOK_AT; at = &(*at)->next) {
        struct pending *pending = *at;
        looked++;
        if (fits(pending, bytes) && pending->mem.ctx == ctx &&
            ((pending->point.stream == stream && pending->point.stream_id == stream->id) ||
             weir_guest_stream_passed(&pending->point))) {
            *at = pending->next;
            found = pending;
            break;
        }
    }
    return found;
}

/* ---------------------------------------------------------------- allocation */

static CUresult reuse_block(struct weir_pool *pool, struct pending *pending, uint64_t bytes,
                            CUdeviceptr *dptr)
{
    struct weir_mem mem = pending->mem;
    mem.bytes = bytes;
    mem.pool = pool;
    mem.buffer_id = weir_guest_objects_next_id();
    if (!weir_mem_insert(&mem)) {
        weir_lock_acquire(&pool->lock);
        WEIR_PUSH(pool->pending, pending);
        weir_lock_release(&pool->lock);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    weir_lock_acquire(&pool->lock);
    count_locked(pool, pending->block_bytes, 0);
    weir_lock_release(&pool->lock);
    free(pending);
    *dptr = mem.base;
    return CUDA_SUCCESS;
}

static CUresult new_block(struct weir_pool *pool, struct weir_guest_ctx *ctx, uint64_t bytes,
                          CUdeviceptr *dptr)
{
    struct weir_mem mem;
    CUresult result = weir_mem_alloc(ctx, WEIR_MEM_DEVICE, bytes, 0, pool, &mem);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && drain(pool) == CUDA_SUCCESS) {
        result = weir_mem_alloc(ctx, WEIR_MEM_DEVICE, bytes, 0, pool, &mem);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    weir_lock_acquire(&pool->lock);
    count_locked(pool, block_bytes(&mem), block_bytes(&mem));
    weir_lock_release(&pool->lock);
    *dptr = mem.base;
    return CUDA_SUCCESS;
}

static CUresult alloc_from(struct weir_pool *pool, CUdeviceptr *dptr, size_t bytes,
                           CUstream hStream)
{
    struct weir_guest_stream *stream;
    WEIR_TRY(weir_guest_stream_get(hStream, &stream));
    WEIR_FAIL_IF(!dptr || !bytes, CUDA_ERROR_INVALID_VALUE);
    CUresult result;
    if (weir_guest_capturing() && weir_graph_capture_alloc(stream, hStream, bytes, dptr, &result)) {
        return result;
    }
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_on_device(stream->ctx, pool->device, &ctx));
    struct pending *pending = take_pending(pool, ctx, stream, bytes);
    if (pending) {
        return reuse_block(pool, pending, bytes, dptr);
    }
    harvest(pool, pool->release_threshold);
    return new_block(pool, ctx, bytes, dptr);
}

CUresult weir_guest_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    struct weir_guest_ctx *ctx;
    struct weir_pool *pool;
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_TRY(device_pool(ctx->device, false, &pool));
    return alloc_from(pool, dptr, bytesize, hStream);
}

CUresult weir_guest_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                            CUstream hStream)
{
    struct weir_pool *found;
    WEIR_TRY(get_pool(pool, &found));
    WEIR_FAIL_IF(found->imported, CUDA_ERROR_INVALID_VALUE);
    return alloc_from(found, dptr, bytesize, hStream);
}

static CUresult free_later(const struct weir_mem *mem, struct weir_guest_stream *stream)
{
    struct weir_pool *pool = mem->pool;
    struct pending *pending = malloc(sizeof *pending);
    struct weir_stream_point point = weir_guest_stream_here(stream);
    if (!pending) { /* no memory to remember it: wait now */
        CUresult result = weir_guest_stream_wait(&point);
        weir_pool_forget(mem);
        weir_mem_release(mem);
        return result;
    }
    *pending = (struct pending){.mem = *mem, .block_bytes = block_bytes(mem), .point = point};
    weir_lock_acquire(&pool->lock);
    pool->used -= pending->block_bytes;
    WEIR_PUSH(pool->pending, pending);
    weir_lock_release(&pool->lock);
    return weir_guest_report();
}

CUresult weir_guest_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    struct weir_guest_stream *stream;
    CUresult result = weir_guest_stream_get(hStream, &stream);
    if (result != CUDA_SUCCESS || !dptr) {
        return result;
    }
    if ((weir_guest_capturing() && weir_graph_capture_free(stream, hStream, dptr, &result)) ||
        weir_graph_mem_free(dptr, &result)) {
        return result;
    }
    struct weir_mem mem;
    if (weir_mem_find(dptr, &mem) && weir_mem_is_pool_import(&mem)) {
        struct weir_stream_point point = weir_guest_stream_here(stream);
        WEIR_TRY(weir_guest_stream_wait(&point));
        return weir_pool_free_import(dptr);
    }
    WEIR_FAIL_IF(!weir_mem_remove(dptr, 1u << WEIR_MEM_DEVICE, &mem), CUDA_ERROR_INVALID_VALUE);
    if (mem.pool) {
        return free_later(&mem, stream);
    }
    /* Memory from cuMemAlloc: count it in the default pool from now on. */
    WEIR_TRY(device_pool(mem.device, true, &mem.pool));
    weir_lock_acquire(&mem.pool->lock);
    count_locked(mem.pool, block_bytes(&mem), block_bytes(&mem));
    weir_lock_release(&mem.pool->lock);
    return free_later(&mem, stream);
}

/* ---------------------------------------------------------------- pools as objects */

static CUmemoryPool handle_of(const struct weir_pool *pool)
{
    return (CUmemoryPool)(uintptr_t)pool->handle;
}

static void enter_pool(struct weir_pool *pool)
{
    WEIR_GUEST_LOCKED(&pools.lock);
    WEIR_PUSH(pools.all, pool);
}

CUresult weir_guest_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    WEIR_FAIL_IF(!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED,
                 CUDA_ERROR_INVALID_VALUE);
    bool shared = poolProps->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                  weir_guest.channel.passes_fds;
    if ((poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE && !shared) ||
        poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    WEIR_FAIL_IF(!weir_guest_device_get(poolProps->location.id), CUDA_ERROR_INVALID_DEVICE);
    struct weir_pool *made;
    WEIR_TRY(new_pool(poolProps->location.id, false, &made));
    made->exportable = shared;
    if (shared && getrandom(made->name, NAME_BYTES, 0) != NAME_BYTES) {
        weir_guest_object_remove(WEIR_KIND_POOL, made->handle);
        free(made);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    enter_pool(made);
    *pool = handle_of(made);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemPoolDestroy(CUmemoryPool pool)
{
    struct weir_pool *found;
    CUresult result = get_pool(pool, &found);
    if (result != CUDA_SUCCESS || found->is_default) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    weir_guest_object_remove(WEIR_KIND_POOL, found->handle);
    WEIR_GUEST_LOCKED(&pools.lock);
    found->destroyed = true;
    if (pools.current[found->device] == found) {
        pools.current[found->device] = NULL;
    }
    harvest_locked(found, 0); /* other blocks are freed when they have passed and memory is short */
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    struct weir_pool *found;
    WEIR_TRY(get_pool(pool, &found));
    harvest(found, minBytesToKeep);
    weir_mem_trim();
    return CUDA_SUCCESS;
}

CUresult weir_guest_pool_set(CUdevice device, CUmemoryPool pool)
{
    struct weir_pool *found;
    WEIR_TRY(get_pool(pool, &found));
    WEIR_FAIL_IF(!weir_guest_device_get(device) || found->device != device,
                 CUDA_ERROR_INVALID_DEVICE);
    WEIR_GUEST_LOCKED(&pools.lock);
    pools.current[device] = found;
    return CUDA_SUCCESS;
}

CUresult weir_guest_pool_give(CUdevice device, bool want_default, CUmemoryPool *ret_pool)
{
    struct weir_pool *pool;
    WEIR_FAIL_IF(!ret_pool, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(device_pool(device, want_default, &pool));
    *ret_pool = handle_of(pool);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- between processes */

CUresult weir_guest_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                                     CUmemAllocationHandleType handleType,
                                                     unsigned long long flags)
{
    struct weir_pool *found;
    int fd;
    CUresult result = get_pool(pool, &found);
    if (result != CUDA_SUCCESS || !handle_out || flags ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !found->exportable) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_export_pool(found->name, &fd));
    memcpy(handle_out, &fd, sizeof fd);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                       CUmemAllocationHandleType handleType,
                                                       unsigned long long flags)
{
    uint8_t name[NAME_BYTES];
    struct weir_pool *made;
    WEIR_FAIL_IF(!pool_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_import_pool((int)(intptr_t)handle, name));
    WEIR_TRY(new_pool(0, false, &made));
    made->imported = true;
    memcpy(made->name, name, NAME_BYTES);
    enter_pool(made);
    *pool_out = handle_of(made);
    return CUDA_SUCCESS;
}

/* The exported name of a pointer is that of cuIpcGetMemHandle. */
CUresult weir_guest_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    struct weir_mem mem;
    if (!shareData_out || !weir_mem_find(ptr, &mem) || mem.base != ptr || !mem.pool ||
        !mem.pool->exportable) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct weir_op_ipc_export_in in = {.base = mem.base, .bytes = mem.bytes};
    struct weir_op_ipc_export_out out;
    WEIR_TRY(weir_call_ipc_export(weir_guest_channel(), &in, &out));
    _Static_assert(sizeof out.handle == sizeof shareData_out->reserved, "64 bytes both");
    memcpy(shareData_out->reserved, out.handle, sizeof out.handle);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
                                           CUmemPoolPtrExportData *shareData)
{
    struct weir_pool *found;
    struct weir_op_ipc_open_in in;
    struct weir_op_ipc_open_out out;
    CUresult result = get_pool(pool, &found);
    WEIR_FAIL_IF(result != CUDA_SUCCESS || !ptr_out || !shareData || !found->imported,
                 CUDA_ERROR_INVALID_VALUE);
    memcpy(in.handle, shareData->reserved, sizeof in.handle);
    WEIR_TRY(weir_call_ipc_open(weir_guest_channel(), &in, &out));
    const struct weir_mem mem = {.base = out.base,
                                 .bytes = out.bytes,
                                 .kind = WEIR_MEM_IMPORTED,
                                 .flags = WEIR_MEM_OF_POOL,
                                 .device_base = out.base,
                                 .device = weir_guest_ordinal_of_host((int)out.device),
                                 .buffer_id = weir_guest_objects_next_id(),
                                 .owner = (void *)(uintptr_t)out.reference};
    if (!weir_mem_insert(&mem)) {
        const struct weir_op_ipc_close_in close = {.reference = out.reference};
        (void)weir_call_ipc_close(weir_guest_channel(), &close, NULL);
        return CUDA_ERROR_ALREADY_MAPPED;
    }
    *ptr_out = out.base;
    return CUDA_SUCCESS;
}

CUresult weir_pool_free_import(uint64_t address)
{
    struct weir_mem mem;
    WEIR_FAIL_IF(!weir_mem_remove(address, 1u << WEIR_MEM_IMPORTED, &mem),
                 CUDA_ERROR_INVALID_VALUE);
    const struct weir_op_ipc_close_in in = {.reference = (uintptr_t)mem.owner};
    return weir_call_ipc_close(weir_guest_channel(), &in, NULL);
}

/* ---------------------------------------------------------------- attributes and access */

static uint64_t *counter_locked(struct weir_pool *pool, CUmemPool_attribute attr)
{
    switch ((int)attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->release_threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

static bool is_reuse(CUmemPool_attribute attr)
{
    return attr == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
           attr == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC ||
           attr == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult weir_guest_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    struct weir_pool *found;
    CUresult result = get_pool(pool, &found);
    WEIR_FAIL_IF(result != CUDA_SUCCESS || !value, CUDA_ERROR_INVALID_VALUE);
    harvest(found, found->release_threshold);
    WEIR_GUEST_LOCKED(&found->lock);
    uint64_t *counter = counter_locked(found, attr);
    if (is_reuse(attr)) {
        memcpy(value, &found->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES],
               sizeof(int));
    } else if (counter) {
        memcpy(value, counter, sizeof *counter);
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return result;
}

/* High-water marks can only be reset to 0, which sets them to the present value. */
static CUresult set_counter_locked(struct weir_pool *pool, CUmemPool_attribute attr, uint64_t value)
{
    if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->release_threshold = value;
    } else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !value) {
        pool->reserved_high = pool->reserved;
    } else if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !value) {
        pool->used_high = pool->used;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    struct weir_pool *found;
    CUresult result = get_pool(pool, &found);
    WEIR_FAIL_IF(result != CUDA_SUCCESS || !value, CUDA_ERROR_INVALID_VALUE);
    WEIR_GUEST_LOCKED(&found->lock);
    if (is_reuse(attr)) {
        memcpy(&found->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], value,
               sizeof(int));
    } else {
        uint64_t number;
        memcpy(&number, value, sizeof number);
        result = set_counter_locked(found, attr, number);
    }
    return result;
}

CUresult weir_guest_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    struct weir_pool *found;
    CUresult result = get_pool(pool, &found);
    WEIR_FAIL_IF(result != CUDA_SUCCESS || (count && !map), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !weir_guest_device_get(map[i].location.id)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (map[i].location.id == found->device &&
            map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            return CUDA_ERROR_INVALID_VALUE; /* a device cannot lose its own pool */
        }
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t bit = 1u << map[i].location.id;
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            __atomic_fetch_and(&found->access, ~bit, __ATOMIC_RELAXED);
        } else {
            __atomic_fetch_or(&found->access, bit, __ATOMIC_RELAXED);
        }
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool,
                                       CUmemLocation *location)
{
    struct weir_pool *found;
    CUresult result = get_pool(memPool, &found);
    WEIR_FAIL_IF(result != CUDA_SUCCESS || !flags || !location, CUDA_ERROR_INVALID_VALUE);
    bool device =
        location->type == CU_MEM_LOCATION_TYPE_DEVICE && weir_guest_device_get(location->id);
    bool in = device && (location->id == found->device ||
                         (__atomic_load_n(&found->access, __ATOMIC_RELAXED) >> location->id & 1));
    *flags = in ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- ends */

/* The context's work has ended: forget its pending and used blocks. */
void weir_pools_context_gone(struct weir_guest_ctx *ctx)
{
    weir_lock_acquire(&pools.lock);
    for (struct weir_pool *pool = pools.all; pool; pool = pool->next) {
        struct pending *gone = NULL;
        weir_lock_acquire(&pool->lock);
        for (struct pending **at = &pool->pending; *at;) {
            struct pending *pending = *at;
            if (pending->mem.ctx != ctx) {
                at = &pending->next;
                continue;
            }
            *at = pending->next;
            pool->reserved -= pending->block_bytes;
            WEIR_PUSH(gone, pending);
        }
        weir_lock_release(&pool->lock);
        release_list(gone);
    }
    weir_lock_release(&pools.lock);
}

void weir_pools_finish(void)
{
    for (struct weir_pool *pool; (pool = WEIR_POP(pools.all));) {
        for (struct pending *first; (first = WEIR_POP(pool->pending));) {
            free(first);
        }
        free(pool);
    }
    memset(&pools, 0, sizeof pools);
}

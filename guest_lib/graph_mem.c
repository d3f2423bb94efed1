/* See graph_mem.h. There is one lock; the count of blocks lets calls skip it while there are
 * none. */
#include "guest_lib/graph_mem.h"

#include "base/thread.h"
#include "guest_lib/memory.h"
#include "guest_lib/stream.h"
#include "proto/guest_hand.h"
#include <stdlib.h>
#include <string.h>

struct block {
    struct weir_mem mem;
    bool live;
    struct block *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct block *blocks;
static uint32_t n_blocks; /* atomic for readers without the lock */
static uint64_t used, used_high, reserved, reserved_high;

static struct block **find_locked(uint64_t base)
{
    struct block **at = &blocks;
    while (*at && (*at)->mem.base != base) {
        at = &(*at)->next;
    }
    return at;
}

static bool none(void)
{
    return __atomic_load_n(&n_blocks, __ATOMIC_ACQUIRE) == 0;
}

static void set_live_locked(struct block *block, bool live)
{
    if (block->live != live) {
        block->live = live;
        used = live ? used + block->mem.bytes : used - block->mem.bytes;
        used_high = WEIR_MAX(used, used_high);
    }
}

CUresult weir_graph_mem_new(struct weir_guest_ctx *ctx, uint64_t bytes, uint64_t *ret_base)
{
    struct block *block = calloc(1, sizeof(*block));
    WEIR_FAIL_IF(!block, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = weir_mem_alloc(ctx, WEIR_MEM_DEVICE, bytes, 0, NULL, &block->mem);
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    *ret_base = block->mem.base;
    WEIR_LOCKED(&lock);
    WEIR_PUSH(blocks, block);
    reserved += bytes;
    reserved_high = WEIR_MAX(reserved, reserved_high);
    __atomic_store_n(&n_blocks, n_blocks + 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

bool weir_graph_mem_known(uint64_t base)
{
    if (none()) {
        return false;
    }
    WEIR_LOCKED(&lock);
    return *find_locked(base) != NULL;
}

void weir_graph_mem_drop(uint64_t base)
{
    struct weir_mem now;
    pthread_mutex_lock(&lock);
    struct block **at = find_locked(base);
    struct block *block = *at;
    bool live = block && block->live;
    if (block) {
        *at = block->next;
        set_live_locked(block, false);
        reserved -= block->mem.bytes;
        __atomic_store_n(&n_blocks, n_blocks - 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    /* The block's context may be destroyed, and another owner may have its address. */
    if (block && !live && weir_mem_find(base, &now) && now.buffer_id == block->mem.buffer_id &&
        weir_mem_remove(base, 1u << WEIR_MEM_DEVICE, &now)) {
        weir_mem_release(&now);
    }
    free(block);
}

void weir_graph_mem_set_live(uint64_t base, bool live)
{
    WEIR_LOCKED(&lock);
    struct block *block = *find_locked(base);
    if (block) {
        set_live_locked(block, live);
    }
}

bool weir_graph_mem_is_live(uint64_t base)
{
    WEIR_LOCKED(&lock);
    const struct block *block = *find_locked(base);
    return block && block->live;
}

bool weir_graph_mem_free(uint64_t base, CUresult *ret_result)
{
    if (none()) {
        return false;
    }
    WEIR_LOCKED(&lock);
    struct block *block = *find_locked(base);
    if (block) {
        *ret_result = block->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        set_live_locked(block, false);
    }
    return block != NULL;
}

/* ---------------------------------------------------------------- the account */

static uint64_t *counter_of(CUgraphMem_attribute attr)
{
    switch ((unsigned int)attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return &used;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return &used_high;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return &reserved;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return &reserved_high;
    default:
        return NULL;
    }
}

CUresult weir_guest_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr,
                                                 void *value)
{
    const uint64_t *counter = counter_of(attr);
    WEIR_FAIL_IF(!weir_guest_device_get(device), CUDA_ERROR_INVALID_DEVICE);
    WEIR_FAIL_IF(!value || !counter, CUDA_ERROR_INVALID_VALUE);
    WEIR_LOCKED(&lock);
    memcpy(value, counter, sizeof(*counter));
    return CUDA_SUCCESS;
}

/* Only high-water marks can be set, and only to 0: then they restart at the present value. */
CUresult weir_guest_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr,
                                                 void *value)
{
    uint64_t wanted;
    bool high =
        attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    WEIR_FAIL_IF(!weir_guest_device_get(device), CUDA_ERROR_INVALID_DEVICE);
    WEIR_FAIL_IF(!value || !high, CUDA_ERROR_INVALID_VALUE);
    memcpy(&wanted, value, sizeof(wanted));
    WEIR_FAIL_IF(wanted, CUDA_ERROR_INVALID_VALUE);
    WEIR_LOCKED(&lock);
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
        used_high = used;
    } else {
        reserved_high = reserved;
    }
    return CUDA_SUCCESS;
}

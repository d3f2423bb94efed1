/*
 * The index of known address ranges: a treap (binary search tree by base, heap by random priority)
 * under one short lock. Ranges never overlap, so the range of an address is its predecessor's or
 * none.
 */
#include "guest_lib/memory.h"
#include "guest_lib/register.h"
#include <stdlib.h>

struct node {
    struct weir_mem mem;
    struct node *left, *right;
    uint32_t priority;
};

/* Guarded by lock. */
static struct {
    struct weir_lock lock;
    struct node *root;
    uint32_t random;
} tree = {.random = 0x9e3779b9u};

static uint32_t next_random_locked(void)
{
    tree.random ^= tree.random << 13;
    tree.random ^= tree.random >> 17;
    tree.random ^= tree.random << 5;
    return tree.random;
}

/* Split a tree: keys below `key` go left. The depth is logarithmic, so recursion is shallow. */
static void split(struct node *node, uint64_t key, struct node **ret_left, struct node **ret_right)
{
    if (!node) {
        *ret_left = *ret_right = NULL;
    } else if (node->mem.base < key) {
        split(node->right, key, &node->right, ret_right);
        *ret_left = node;
    } else {
        split(node->left, key, ret_left, &node->left);
        *ret_right = node;
    }
}

static struct node *join(struct node *left, struct node *right)
{
    if (!left || !right) {
        return left ? left : right;
    }
    if (left->priority > right->priority) {
        left->right = join(left->right, right);
        return left;
    }
    right->left = join(left, right->left);
    return right;
}

/* Find the node with the greatest base <= address. */
static struct node *floor_locked(uint64_t address)
{
    struct node *found = NULL;
    for (struct node *node = tree.root; node;) {
        if (node->mem.base <= address) {
            found = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return found;
}

static struct node *holder_locked(uint64_t address)
{
    struct node *node = floor_locked(address);
    return node && address - node->mem.base < node->mem.bytes ? node : NULL;
}

static const struct node *overlapped_locked(const struct weir_mem *mem)
{
    const struct node *before = floor_locked(mem->base + (mem->bytes - 1));
    return before && before->mem.base + before->mem.bytes > mem->base ? before : NULL;
}

bool weir_mem_insert(const struct weir_mem *mem)
{
    WEIR_FAIL_IF(!mem->bytes || mem->base + mem->bytes < mem->base, false);
    struct node *node = calloc(1, sizeof *node);
    WEIR_FAIL_IF(!node, false);
    node->mem = *mem;
    weir_lock_acquire(&tree.lock);
    bool free_range = !overlapped_locked(mem);
    if (free_range) {
        struct node *left, *right;
        node->priority = next_random_locked();
        struct node **at = &tree.root;
        while (*at && (*at)->priority >= node->priority) {
            at = (*at)->mem.base < mem->base ? &(*at)->right : &(*at)->left;
        }
        split(*at, mem->base, &left, &right);
        node->left = left;
        node->right = right;
        *at = node;
    }
    weir_lock_release(&tree.lock);
    if (!free_range) {
        free(node);
    }
    return free_range;
}

bool weir_mem_find(uint64_t address, struct weir_mem *ret_mem)
{
    WEIR_GUEST_LOCKED(&tree.lock);
    const struct node *node = holder_locked(address);
    if (node) {
        *ret_mem = node->mem;
    }
    return node != NULL;
}

static struct node *unlink_locked(uint64_t base)
{
    struct node **at = &tree.root;
    while (*at && (*at)->mem.base != base) {
        at = (*at)->mem.base < base ? &(*at)->right : &(*at)->left;
    }
    struct node *node = *at;
    if (node) {
        *at = join(node->left, node->right);
    }
    return node;
}

static void node_free(struct node *node, struct weir_mem *ret_mem)
{
    weir_advice_finish(&node->mem.advice);
    *ret_mem = node->mem;
    free(node);
}

bool weir_mem_remove(uint64_t base, uint32_t kind_mask, struct weir_mem *ret_mem)
{
    struct node *gone = NULL;
    weir_lock_acquire(&tree.lock);
    const struct node *node = floor_locked(base);
    if (node && node->mem.base == base && (kind_mask >> node->mem.kind & 1)) {
        gone = unlink_locked(base);
    }
    weir_lock_release(&tree.lock);
    WEIR_FAIL_IF(!gone, false);
    node_free(gone, ret_mem);
    return true;
}

bool weir_mem_set_sync(uint64_t address, bool sync_memops)
{
    WEIR_GUEST_LOCKED(&tree.lock);
    struct node *node = holder_locked(address);
    if (node) {
        node->mem.sync_memops = sync_memops;
    }
    return node != NULL;
}

/* Find the range that contains all these bytes. */
static struct node *span_locked(uint64_t address, uint64_t bytes, struct weir_advice_span *ret_span)
{
    struct node *node = holder_locked(address);
    WEIR_FAIL_IF(!node || bytes > node->mem.bytes - (address - node->mem.base), NULL);
    *ret_span = (struct weir_advice_span){node->mem.base, node->mem.bytes, address, bytes};
    return node;
}

CUresult weir_mem_advise(uint64_t address, uint64_t bytes, CUmem_advise advice, CUmemLocation at)
{
    struct weir_advice_span span;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    WEIR_GUEST_LOCKED(&tree.lock);
    struct node *node = span_locked(address, bytes, &span);
    if (node) {
        result = weir_advice_say(&node->mem.advice, &span, advice, at) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_OUT_OF_MEMORY;
        node->mem.placed |= node->mem.moves && advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    }
    return result;
}

CUresult weir_mem_advised(uint64_t address, uint64_t bytes, CUmem_range_attribute attribute,
                          void *data, size_t data_bytes)
{
    struct weir_advice_span span;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    WEIR_GUEST_LOCKED(&tree.lock);
    struct node *node = span_locked(address, bytes, &span);
    if (node) {
        result = weir_advice_attribute(&node->mem.advice, &span, attribute, data, data_bytes);
    }
    return result;
}

bool weir_mem_count_opens(uint64_t base, int by)
{
    WEIR_GUEST_LOCKED(&tree.lock);
    struct node *node = floor_locked(base);
    bool counted = node && node->mem.base == base && node->mem.kind == WEIR_MEM_IMPORTED &&
                   !weir_mem_is_pool_import(&node->mem) && (by > 0 || node->mem.opens);
    if (counted) {
        node->mem.opens += (uint32_t)by;
    }
    return counted;
}

void weir_mem_set_flags(uint64_t base, unsigned int flags, bool here)
{
    WEIR_GUEST_LOCKED(&tree.lock);
    struct node *node = floor_locked(base);
    if (node && node->mem.base == base) {
        *(here ? &node->mem.flags_here : &node->mem.flags) = flags;
    }
}

void weir_mem_set_device(uint64_t base, uint64_t device_base)
{
    WEIR_GUEST_LOCKED(&tree.lock);
    struct node *node = floor_locked(base);
    if (node && node->mem.base == base) {
        node->mem.device_base = device_base;
    }
}

bool weir_mem_overlapping(uint64_t base, uint64_t bytes, struct weir_mem *ret_mem)
{
    const struct weir_mem probe = {.base = base, .bytes = bytes};
    WEIR_GUEST_LOCKED(&tree.lock);
    const struct node *node = overlapped_locked(&probe);
    if (node) {
        *ret_mem = node->mem;
    }
    return node != NULL;
}

bool weir_mem_reaches(const struct weir_mem *mem, uint64_t address, uint64_t bytes)
{
    struct weir_mem next = *mem;
    for (;;) {
        uint64_t here = next.bytes - (address - next.base);
        if (next.kind == WEIR_MEM_MAPPED && next.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            return false;
        }
        if (bytes <= here) {
            return true;
        }
        address += here;
        bytes -= here;
        if ((next.kind != WEIR_MEM_MAPPED && next.kind != WEIR_MEM_REGISTERED) ||
            !weir_mem_find(address, &next) || next.kind != mem->kind) {
            return false;
        }
    }
}

CUdevice weir_mem_device(const struct weir_mem *mem)
{
    return mem->device;
}

static struct node *first_match(struct node *node, bool (*match)(const struct weir_mem *, void *),
                                void *user)
{
    if (!node) {
        return NULL;
    }
    struct node *found = first_match(node->left, match, user);
    if (found) {
        return found;
    }
    return match(&node->mem, user) ? node : first_match(node->right, match, user);
}

void weir_mem_remove_if(bool (*match)(const struct weir_mem *mem, void *user),
                        void (*drop)(const struct weir_mem *mem), void *user)
{
    for (;;) {
        weir_lock_acquire(&tree.lock);
        struct node *node = first_match(tree.root, match, user);
        if (node) {
            node = unlink_locked(node->mem.base);
        }
        weir_lock_release(&tree.lock);
        if (!node) {
            return;
        }
        struct weir_mem mem;
        node_free(node, &mem);
        drop(&mem);
    }
}

CUresult weir_mem_check(uint64_t address, uint64_t bytes, struct weir_mem *ret_mem)
{
    WEIR_TRY(weir_register_reach(address));
    if (!weir_mem_find(address, ret_mem) || !weir_mem_gpu_visible(ret_mem) ||
        !weir_mem_reaches(ret_mem, address, bytes) ||
        (ret_mem->kind == WEIR_MEM_REGISTERED &&
         bytes > ret_mem->bytes - (address - ret_mem->base))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult weir_mem_note_global(struct weir_guest_ctx *ctx, uint64_t base, uint64_t bytes,
                              bool managed, void *owner)
{
    struct weir_mem known;
    if (weir_mem_find(base, &known)) {
        return known.base == base ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    struct weir_mem mem = {.base = base,
                           .bytes = bytes,
                           .kind = WEIR_MEM_MODULE,
                           .flags = managed ? CU_MEM_ATTACH_GLOBAL : 0,
                           .device_base = base,
                           .ctx = ctx,
                           .device = ctx ? ctx->device : weir_device_current(),
                           .buffer_id = weir_guest_objects_next_id(),
                           .owner = owner};
    return weir_mem_insert(&mem) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

struct globals_of {
    const void *owner;
    CUdevice device;
};

static bool is_global_of(const struct weir_mem *mem, void *user)
{
    const struct globals_of *of = user;
    return mem->kind == WEIR_MEM_MODULE && mem->owner == of->owner &&
           (of->device == WEIR_EVERY_DEVICE || of->device == mem->device);
}

static void drop_nothing(const struct weir_mem *mem)
{
    (void)mem;
}

void weir_mem_forget_globals(const void *owner, CUdevice device)
{
    struct globals_of of = {owner, device};
    weir_mem_remove_if(is_global_of, drop_nothing, &of);
}

/*
 * Translates kernels' addresses to host pointers, with every check that a GPU makes.
 *
 * Global addresses are host addresses inside ranges of softgpu/memory.h; a core caches the last few
 * ranges that it used until the map's generation changes. Addresses in shared, local and parameter
 * space are offsets; their generic addresses lie in three windows, address ranges that this process
 * reserves and never maps.
 */
#include "softgpu/exec/internal.h"

uint64_t weir_x_window_shared;
uint64_t weir_x_window_local;
uint64_t weir_x_window_param;

static bool range_holds(const struct weir_soft_range *range, uint64_t base, uint64_t bytes,
                        uint32_t access)
{
    return base >= range->base && base - range->base < range->bytes &&
           bytes <= range->bytes - (base - range->base) && (range->access & access) == access;
}

/* Is [base, base + bytes) accessible, according to the core's cached ranges or the map? */
static bool global_ok(struct weir_x_core *core, uint64_t base, uint64_t bytes, uint32_t access)
{
    uint64_t generation = weir_soft_memory_generation();
    if (generation != core->range_generation) {
        core->n_ranges = 0;
        core->range_generation = generation;
    }
    if (WEIR_ANY(k, core->n_ranges, range_holds(&core->ranges[k], base, bytes, access))) {
        return true;
    }
    struct weir_soft_range range;
    WEIR_FAIL_IF(!weir_soft_memory_find(base, &range), false);
    if (!range_holds(&range, base, bytes, access)) {
        return weir_soft_memory_covers(base, bytes, access);
    }
    if (core->n_ranges < WEIR_X_RANGES) {
        core->n_ranges++;
    }
    for (uint32_t k = core->n_ranges - 1; k > 0; k--) {
        core->ranges[k] = core->ranges[k - 1];
    }
    core->ranges[0] = range;
    return true;
}

static bool in_window(uint64_t address, uint64_t window)
{
    return address >> WEIR_X_WINDOW_SHIFT == window >> WEIR_X_WINDOW_SHIFT;
}

static char *offset_pointer(char *base, uint64_t limit, uint64_t offset, uint64_t bytes)
{
    return offset <= limit && bytes <= limit - offset ? base + offset : NULL;
}

/* Parameters are only read. The cast drops const, but no store reaches this memory. */
static char *param_pointer(struct weir_x_warp *w, uint64_t offset, uint64_t bytes, uint32_t access)
{
    WEIR_FAIL_IF((access & WEIR_SOFT_WRITE) != 0, NULL);
    return offset_pointer((char *)(uintptr_t)w->block->params, w->block->param_bytes, offset,
                          bytes);
}

/* Split an address of shared::cluster into a block and an offset in its shared memory. */
static char *cluster_pointer(const struct weir_x_warp *w, uint64_t address, uint64_t bytes)
{
    const struct weir_x_cluster *cluster = w->block->cluster;
    uint64_t window = address >> WEIR_X_WINDOW_SHIFT;
    const struct weir_x_block *block = w->block;
    WEIR_FAIL_IF(window > cluster->n_blocks, NULL);
    if (window != 0) {
        block = cluster->blocks[window - 1];
    }
    return offset_pointer(block->shared, block->shared_bytes, address & (WEIR_X_WINDOW_BYTES - 1),
                          bytes);
}

static char *local_pointer(const struct weir_x_warp *w, uint32_t lane, uint64_t offset,
                           uint64_t bytes)
{
    return offset_pointer(w->local + lane * w->local_bytes, w->local_bytes, offset, bytes);
}

void *weir_x_generic(struct weir_x_warp *w, uint32_t lane, uint64_t address, uint64_t bytes,
                     uint32_t access)
{
    uint64_t offset = address & (WEIR_X_WINDOW_BYTES - 1);
    if (in_window(address, weir_x_window_shared)) {
        return offset_pointer(w->block->shared, w->block->shared_bytes, offset, bytes);
    }
    if (in_window(address, weir_x_window_local)) {
        return local_pointer(w, lane, offset, bytes);
    }
    if (address - weir_x_window_shared < WEIR_X_WINDOW_BYTES * (WEIR_X_MAX_CLUSTER + 1)) {
        return cluster_pointer(w, address - weir_x_window_shared, bytes);
    }
    if (in_window(address, weir_x_window_param)) {
        return param_pointer(w, offset, bytes, access);
    }
    return global_ok(w->core, address, bytes, access) ? (void *)(uintptr_t)address : NULL;
}

static const char *const space_names[] = {
    [WEIR_X_GENERIC] = "generic", [WEIR_X_GLOBAL] = "global", [WEIR_X_SHARED] = "shared",
    [WEIR_X_CLUSTER] = "shared",  [WEIR_X_CONST] = "const",   [WEIR_X_LOCAL] = "local",
    [WEIR_X_FRAME] = "local",     [WEIR_X_PARAM] = "param",
};

static bool bad_address(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane,
                        enum weir_x_space space, uint64_t address, uint32_t bytes, uint32_t access)
{
    weir_x_fault(w, i, 700, lane, address, "illegal address: %s %s of %u bytes at 0x%llx",
                 space_names[space], (access & WEIR_SOFT_WRITE) != 0 ? "write" : "read", bytes,
                 (unsigned long long)address);
    return false;
}

static bool check_alignment(struct weir_x_warp *w, const struct weir_x_inst *i,
                            const uint64_t addr[WEIR_X_LANES], uint32_t align)
{
    uint64_t bits = 0;
    WEIR_X_EACH(w, l, bits |= addr[l]);
    if ((bits & (align - 1)) == 0) {
        return true;
    }
    WEIR_X_EACH_ACTIVE(w, l, {
        if ((addr[l] & (align - 1)) != 0) {
            weir_x_fault(w, i, 716, l, addr[l], "misaligned address: 0x%llx for %u bytes",
                         (unsigned long long)addr[l], align);
            return false;
        }
    });
    return true;
}

static void extent(const struct weir_x_warp *w, const uint64_t addr[WEIR_X_LANES],
                   uint64_t *ret_low, uint64_t *ret_high)
{
    uint64_t low = UINT64_MAX;
    uint64_t high = 0;
    WEIR_X_EACH(w, l, {
        low = WEIR_MIN(addr[l], low);
        high = WEIR_MAX(addr[l], high);
    });
    *ret_low = low;
    *ret_high = high;
}

static bool translate_flat(struct weir_x_warp *w, const struct weir_x_inst *i, char *base,
                           uint64_t limit, enum weir_x_space space, uint64_t addr[WEIR_X_LANES],
                           uint32_t bytes, uint32_t access)
{
    uint64_t low, high;
    extent(w, addr, &low, &high);
    if (high > limit || bytes > limit - high) {
        WEIR_X_EACH_ACTIVE(w, l, {
            WEIR_FAIL_IF(addr[l] > limit || bytes > limit - addr[l],
                         bad_address(w, i, l, space, addr[l], bytes, access));
        });
    }
    WEIR_X_EACH(w, l, addr[l] += (uintptr_t)base);
    return true;
}

static bool translate_local(struct weir_x_warp *w, const struct weir_x_inst *i,
                            enum weir_x_space space, uint64_t addr[WEIR_X_LANES], uint32_t bytes,
                            uint32_t access)
{
    uint64_t base = space == WEIR_X_FRAME ? w->frame->local_base : 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        char *p = local_pointer(w, l, addr[l] + base, bytes);
        WEIR_FAIL_IF(!p, bad_address(w, i, l, space, addr[l], bytes, access));
        addr[l] = (uintptr_t)p;
    });
    return true;
}

static bool translate_cluster(struct weir_x_warp *w, const struct weir_x_inst *i,
                              uint64_t addr[WEIR_X_LANES], uint32_t bytes, uint32_t access)
{
    WEIR_X_EACH_ACTIVE(w, l, {
        char *p = cluster_pointer(w, addr[l], bytes);
        WEIR_FAIL_IF(!p, bad_address(w, i, l, WEIR_X_CLUSTER, addr[l], bytes, access));
        addr[l] = (uintptr_t)p;
    });
    return true;
}

static bool translate_global(struct weir_x_warp *w, const struct weir_x_inst *i,
                             enum weir_x_space space, uint64_t addr[WEIR_X_LANES], uint32_t bytes,
                             uint32_t access)
{
    uint64_t low, high;
    extent(w, addr, &low, &high);
    if (space == WEIR_X_GENERIC && in_window(low, weir_x_window_shared) &&
        in_window(high, weir_x_window_shared)) {
        WEIR_X_EACH(w, l, addr[l] &= WEIR_X_WINDOW_BYTES - 1);
        return translate_flat(w, i, w->block->shared, w->block->shared_bytes, WEIR_X_SHARED, addr,
                              bytes, access);
    }
    /* In the usual case one range contains all addresses. */
    if (high - low < WEIR_X_WINDOW_BYTES * 64 &&
        global_ok(w->core, low, high - low + bytes, access)) {
        return true;
    }
    WEIR_X_EACH_ACTIVE(w, l, {
        void *p = space == WEIR_X_GENERIC ? weir_x_generic(w, l, addr[l], bytes, access)
                  : global_ok(w->core, addr[l], bytes, access) ? (void *)(uintptr_t)addr[l]
                                                               : NULL;
        WEIR_FAIL_IF(!p, bad_address(w, i, l, space, addr[l], bytes, access));
        addr[l] = (uintptr_t)p;
    });
    return true;
}

bool weir_x_translate(struct weir_x_warp *w, const struct weir_x_inst *i, enum weir_x_space space,
                      uint64_t addr[WEIR_X_LANES], uint32_t bytes, uint32_t align, uint32_t access)
{
    WEIR_FAIL_IF(!check_alignment(w, i, addr, align), false);
    switch (space) {
    case WEIR_X_SHARED:
        return translate_flat(w, i, w->block->shared, w->block->shared_bytes, space, addr, bytes,
                              access);
    case WEIR_X_CLUSTER:
        return translate_cluster(w, i, addr, bytes, access);
    case WEIR_X_LOCAL:
    case WEIR_X_FRAME:
        return translate_local(w, i, space, addr, bytes, access);
    case WEIR_X_PARAM:
        WEIR_FAIL_IF((access & WEIR_SOFT_WRITE) != 0,
                     bad_address(w, i, (uint32_t)__builtin_ctz(w->mask), space, 0, bytes, access));
        return translate_flat(w, i, (char *)(uintptr_t)w->block->params, w->block->param_bytes,
                              space, addr, bytes, access);
    case WEIR_X_GLOBAL:
    case WEIR_X_CONST:
    case WEIR_X_GENERIC:
        break;
    }
    return translate_global(w, i, space, addr, bytes, access);
}

/*
 * Runs one block: its memory, the turns of its warps, its barriers, and its end.
 *
 * Struct, warps, shared memory and local memory of a block are one allocation, which is kept for
 * later blocks that fit into it. A block in which every warp waits at a barrier that nobody can
 * complete is a deadlock: fault 719.
 */
#include "softgpu/exec/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instructions that a warp runs before the next warp of the block gets its turn. */
#define WARP_QUANTUM 4096u
#define SPARE_BLOCKS 16u

static char *carve(char **at, uint64_t bytes)
{
    char *p = *at;
    *at += (bytes + 63u) & ~63ull;
    return p;
}

static struct weir_x_block *block_get(struct weir_exec_device *device, uint64_t bytes)
{
    pthread_mutex_lock(&device->lock);
    struct weir_x_block **best = NULL;
    for (struct weir_x_block **p = &device->spare_blocks; *p; p = &(*p)->next) {
        if ((*p)->arena_bytes >= bytes && (!best || (*p)->arena_bytes < (*best)->arena_bytes)) {
            best = p;
        }
    }
    struct weir_x_block *block = NULL;
    if (best) {
        block = *best;
        *best = block->next;
        device->n_spare--;
    }
    pthread_mutex_unlock(&device->lock);
    if (!block) {
        block = aligned_alloc(64, bytes);
        if (block) {
            block->arena_bytes = bytes;
        }
    }
    return block;
}

static void block_put(struct weir_exec_device *device, struct weir_x_block *block)
{
    pthread_mutex_lock(&device->lock);
    bool keep = device->n_spare < SPARE_BLOCKS;
    if (keep) {
        WEIR_PUSH(device->spare_blocks, block);
        device->n_spare++;
    }
    pthread_mutex_unlock(&device->lock);
    if (!keep) {
        free(block);
    }
}

static void fill(uint32_t row[WEIR_X_LANES], uint32_t value)
{
    for (uint32_t l = 0; l < WEIR_X_LANES; l++) {
        row[l] = value;
    }
}

static void set_cluster_specials(struct weir_x_warp *w, const struct weir_x_grid *grid)
{
    const uint32_t *index = w->block->index;
    for (uint32_t d = 0; d < 3; d++) {
        fill(w->specials[WEIR_X_CLUSTERID_X + d], index[d] / grid->cluster[d]);
        fill(w->specials[WEIR_X_NCLUSTERID_X + d], grid->launch->grid[d] / grid->cluster[d]);
        fill(w->specials[WEIR_X_CLUSTER_CTAID_X + d], index[d] % grid->cluster[d]);
        fill(w->specials[WEIR_X_CLUSTER_NCTAID_X + d], grid->cluster[d]);
    }
    fill(w->specials[WEIR_X_CLUSTER_RANK], w->block->cluster_rank);
    fill(w->specials[WEIR_X_CLUSTER_SIZE], grid->cluster_blocks);
    fill(w->specials[WEIR_X_CLUSTER_EXPLICIT], grid->explicit_cluster ? WEIR_X_FULL : 0);
}

static void set_specials(struct weir_x_warp *w, const struct weir_x_grid *grid)
{
    const struct weir_exec_launch *launch = grid->launch;
    const uint32_t *index = w->block->index;
    for (uint32_t l = 0; l < WEIR_X_LANES; l++) {
        uint32_t t = w->index * WEIR_X_LANES + l;
        w->specials[WEIR_X_TID_X][l] = t % launch->block[0];
        w->specials[WEIR_X_TID_Y][l] = t / launch->block[0] % launch->block[1];
        w->specials[WEIR_X_TID_Z][l] = t / launch->block[0] / launch->block[1];
        w->specials[WEIR_X_LANEID][l] = l;
        w->specials[WEIR_X_MASK_EQ][l] = 1u << l;
        w->specials[WEIR_X_MASK_LT][l] = (1u << l) - 1;
        w->specials[WEIR_X_MASK_LE][l] = (2u << l) - 1;
        w->specials[WEIR_X_MASK_GT][l] = ~((2u << l) - 1);
        w->specials[WEIR_X_MASK_GE][l] = ~((1u << l) - 1);
    }
    for (uint32_t d = 0; d < 3; d++) {
        fill(w->specials[WEIR_X_NTID_X + d], launch->block[d]);
        fill(w->specials[WEIR_X_CTAID_X + d], index[d]);
        fill(w->specials[WEIR_X_NCTAID_X + d], launch->grid[d]);
    }
    fill(w->specials[WEIR_X_WARPID], w->index);
    fill(w->specials[WEIR_X_NWARPID], grid->device->params.max_threads_per_sm / WEIR_X_LANES);
    fill(w->specials[WEIR_X_SMID], w->core->sm);
    fill(w->specials[WEIR_X_NSMID], grid->device->params.sm_count);
    fill(w->specials[WEIR_X_ENVREG1], (uint32_t)((uintptr_t)grid->workspace >> 32));
    fill(w->specials[WEIR_X_ENVREG2], (uint32_t)(uintptr_t)grid->workspace);
    fill(w->specials[WEIR_X_DYNAMIC_SMEM], launch->dynamic_shared_bytes);
    fill(w->specials[WEIR_X_TOTAL_SMEM], (uint32_t)grid->shared_bytes);
    fill(w->specials[WEIR_X_ZERO], 0);
    fill(w->specials[WEIR_X_ONE], 1);
    set_cluster_specials(w, grid);
    weir_x_u64 *id = (weir_x_u64 *)w->specials[WEIR_X_GRIDID];
    for (uint32_t l = 0; l < WEIR_X_LANES; l++) {
        id[l] = grid->id;
    }
}

static bool start_warp(struct weir_x_block *block, struct weir_x_warp *w, uint32_t index)
{
    const struct weir_x_grid *grid = block->grid;
    memset(w, 0, offsetof(struct weir_x_warp, groups));
    w->block = block;
    w->core = block->core;
    w->index = index;
    uint32_t left = grid->threads - index * WEIR_X_LANES;
    w->live = left >= WEIR_X_LANES ? WEIR_X_FULL : (1u << left) - 1;
    w->base[WEIR_X_BASE_SPECIALS] = (char *)w->specials;
    w->local_bytes = grid->local_bytes;
    w->lowest_top = (uint32_t)grid->local_bytes;
    fill(w->stack_top, w->lowest_top);
    set_specials(w, grid);
    struct weir_x_frame *frame = weir_x_frame_get(block->core, grid->kernel->entry);
    WEIR_FAIL_IF(!frame, false);
    frame->mask = w->live;
    w->n_groups = 1;
    w->groups[0] =
        (struct weir_x_group){.ip = grid->kernel->entry->code, .frame = frame, .mask = w->live};
    return true;
}

static struct weir_x_block *block_layout(struct weir_x_grid *grid)
{
    struct weir_x_block *block = block_get(grid->device, grid->arena_bytes);
    WEIR_FAIL_IF(!block, NULL);
    uint64_t arena_bytes = block->arena_bytes;
    memset(block, 0, sizeof *block);
    block->arena_bytes = arena_bytes;
    char *at = (char *)block;
    carve(&at, sizeof *block);
    block->warps = (struct weir_x_warp **)carve(&at, grid->n_warps * sizeof(struct weir_x_warp *));
    for (uint32_t k = 0; k < grid->n_warps; k++) {
        block->warps[k] = (struct weir_x_warp *)carve(&at, sizeof(struct weir_x_warp));
    }
    block->shared = carve(&at, grid->shared_bytes);
    memset(block->shared, 0, grid->shared_bytes);
    for (uint32_t k = 0; k < grid->n_warps; k++) {
        block->warps[k]->local = NULL;
    }
    block->grid = grid;
    return block;
}

/* Set %ctaid. Blocks are numbered cluster by cluster, and by rank in each. */
static void set_index(struct weir_x_block *block, const struct weir_x_grid *grid, uint64_t linear)
{
    uint64_t cluster = linear / grid->cluster_blocks;
    uint32_t rank = (uint32_t)(linear % grid->cluster_blocks);
    block->cluster_rank = rank;
    for (uint32_t d = 0; d < 3; d++) {
        uint32_t n_clusters = grid->launch->grid[d] / grid->cluster[d];
        block->index[d] =
            (uint32_t)(cluster % n_clusters) * grid->cluster[d] + rank % grid->cluster[d];
        cluster /= n_clusters;
        rank /= grid->cluster[d];
    }
}

struct weir_x_block *weir_x_block_start(struct weir_x_core *core, struct weir_x_grid *grid,
                                        uint64_t linear)
{
    struct weir_x_block *block = block_layout(grid);
    WEIR_FAIL_IF(!block, NULL);
    block->core = core;
    set_index(block, grid, linear);
    block->cluster = &block->own_cluster;
    block->own_cluster.n_blocks = 1;
    block->own_cluster.live_threads = grid->threads;
    block->own_cluster.blocks[0] = block;
    block->live_threads = grid->threads;
    block->shared_bytes = grid->shared_bytes;
    block->params = grid->launch->params;
    block->param_bytes = grid->kernel->info.param_bytes;
    char *local = block->shared + ((grid->shared_bytes + 63u) & ~63ull);
    for (uint32_t k = 0; k < grid->n_warps; k++) {
        if (!start_warp(block, block->warps[k], k)) {
            weir_x_block_finish(block);
            return NULL;
        }
        block->n_warps++;
        block->live_warps++;
        block->warps[k]->local = local + k * WEIR_X_LANES * grid->local_bytes;
    }
    return block;
}

static void drop_frames(struct weir_x_warp *w)
{
    for (uint32_t g = 0; g < w->n_groups; g++) {
        struct weir_x_frame *frame = w->groups[g].frame;
        while (frame) {
            struct weir_x_frame *parent = frame->parent;
            frame->mask &= ~w->groups[g].mask;
            if (frame->mask == 0) {
                weir_x_frame_put(w->core, frame);
            }
            frame = parent;
        }
    }
    w->n_groups = 0;
}

void weir_x_block_finish(struct weir_x_block *block)
{
    for (uint32_t k = 0; k < block->n_warps; k++) {
        drop_frames(block->warps[k]);
    }
    block_put(block->grid->device, block);
}

/* Complete a barrier: all waiting lanes go on and get the result of .red. */
static void release(struct weir_x_block *block, uint32_t id)
{
    struct weir_x_barrier *bar = &block->barriers[id];
    for (uint32_t k = 0; k < block->n_warps; k++) {
        struct weir_x_warp *w = block->warps[k];
        for (uint32_t g = 0; g < w->n_groups; g++) {
            struct weir_x_group *group = &w->groups[g];
            if (group->state != WEIR_X_WAIT_BARRIER || group->barrier != id) {
                continue;
            }
            const struct weir_x_inst *i = group->ip;
            char *d = group->frame->regs + (i->d & ~3u);
            if (i->sub == 2) {
                for (uint32_t m = group->mask; m != 0; m &= m - 1) {
                    ((weir_x_u32 *)d)[__builtin_ctz(m)] = bar->red_popc;
                }
            } else if (i->sub == 3 || i->sub == 4) {
                bool value = i->sub == 3 ? bar->red_and != 0 : bar->red_or != 0;
                weir_x_u32 *p = (weir_x_u32 *)d;
                *p = (*p & ~group->mask) | (value ? group->mask : 0);
            }
            group->state = WEIR_X_RUNNABLE;
            group->ip = i + 1;
        }
    }
    *bar = (struct weir_x_barrier){0};
}

static bool complete(const struct weir_x_block *block, const struct weir_x_barrier *bar)
{
    return bar->in_use &&
           bar->arrived >= (bar->expected != 0 ? bar->expected : block->live_threads);
}

/* If all live threads of the cluster have arrived, let the waiting ones check again. */
static void check_cluster(struct weir_x_cluster *cluster)
{
    if (cluster->arrived == 0 || cluster->arrived < cluster->live_threads) {
        return;
    }
    cluster->arrived = 0;
    cluster->phase++;
    for (uint32_t b = 0; b < cluster->n_blocks; b++) {
        const struct weir_x_block *block = cluster->blocks[b];
        for (uint32_t k = 0; k < block->n_warps; k++) {
            struct weir_x_warp *w = block->warps[k];
            for (uint32_t g = 0; g < w->n_groups; g++) {
                if (w->groups[g].state == WEIR_X_WAIT_BARRIER &&
                    w->groups[g].barrier == WEIR_X_CLUSTER_BARRIER) {
                    w->groups[g].state = WEIR_X_RUNNABLE;
                }
            }
        }
    }
}

void weir_x_cluster_arrive(struct weir_x_warp *w, uint32_t mask)
{
    struct weir_x_cluster *cluster = w->block->cluster;
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        w->cluster_arrivals[__builtin_ctz(rest)]++;
    }
    cluster->arrived += (uint32_t)__builtin_popcount(mask);
    check_cluster(cluster);
}

void weir_x_block_threads_left(struct weir_x_warp *w, uint32_t mask)
{
    struct weir_x_block *block = w->block;
    struct weir_x_cluster *cluster = block->cluster;
    uint32_t n = (uint32_t)__builtin_popcount(mask);
    block->live_threads -= n;
    for (uint32_t id = 0; id < WEIR_X_BARRIERS; id++) {
        if (complete(block, &block->barriers[id])) {
            release(block, id);
        }
    }
    cluster->live_threads -= n;
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        /* A thread that has already arrived in this phase must not count twice. */
        cluster->arrived -= w->cluster_arrivals[__builtin_ctz(rest)] > cluster->phase;
    }
    check_cluster(cluster);
}

const struct weir_x_inst *weir_x_block_arrive(struct weir_x_warp *w, const struct weir_x_inst *i,
                                              uint32_t id, uint32_t count, bool wait)
{
    struct weir_x_block *block = w->block;
    struct weir_x_barrier *bar = &block->barriers[id];
    if (!bar->in_use) {
        *bar = (struct weir_x_barrier){.in_use = true, .red_and = 1, .expected = count};
    }
    if (i->sub >= 2) {
        uint32_t p = (weir_x_pred(w, i->c) ^ ((i->sub2 & 1u) != 0 ? WEIR_X_FULL : 0)) & w->mask;
        bar->red_popc += (uint32_t)__builtin_popcount(p);
        bar->red_and &= p == w->mask;
        bar->red_or |= p != 0;
    }
    /* Where the barrier names a number of threads, a warp counts as 32 of them, although some of
     * its lanes may have exited. */
    bool whole = count != 0 && w->mask == w->live;
    bar->arrived += whole ? WEIR_X_LANES : (uint32_t)__builtin_popcount(w->mask);
    struct weir_x_group *g = &w->groups[w->current];
    if (wait) {
        g->state = WEIR_X_WAIT_BARRIER;
        g->barrier = (uint8_t)id;
        g->ip = i;
        g->mask = w->group_mask;
        g->frame = w->frame;
    }
    if (complete(block, bar)) {
        release(block, id);
    }
    if (!wait) {
        return i + 1;
    }
    return weir_x_leave(w, g->ip, WEIR_X_EVENT_SWITCH);
}

static bool runnable(const struct weir_x_block *block)
{
    for (uint32_t k = 0; k < block->n_warps; k++) {
        const struct weir_x_warp *w = block->warps[k];
        for (uint32_t g = 0; g < w->n_groups; g++) {
            if (w->groups[g].state == WEIR_X_RUNNABLE) {
                return true;
            }
        }
    }
    return false;
}

/* Can a block of the cluster go on? It may release the others. */
static bool cluster_runnable(const struct weir_x_cluster *cluster)
{
    for (uint32_t b = 0; b < cluster->n_blocks; b++) {
        if (runnable(cluster->blocks[b])) {
            return true;
        }
    }
    return false;
}

static void deadlock(struct weir_x_block *block)
{
    for (uint32_t k = 0; k < block->n_warps; k++) {
        struct weir_x_warp *w = block->warps[k];
        if (w->n_groups != 0) {
            const struct weir_x_group *g = &w->groups[0];
            w->mask = g->mask;
            weir_x_fault(w, g->ip, 719, (uint32_t)__builtin_ctz(g->mask), 0,
                         "deadlock: %s that can never complete",
                         g->state == WEIR_X_WAIT_SYNC ? "a warp waits for lanes"
                                                      : "all threads wait at a barrier");
            return;
        }
    }
}

enum weir_x_block_state weir_x_block_run(struct weir_x_block *block, uint32_t rounds)
{
    for (uint32_t r = 0; r < rounds; r++) {
        bool ran = false;
        for (uint32_t k = 0; k < block->n_warps; k++) {
            struct weir_x_warp *w = block->warps[k];
            if (w->n_groups == 0) {
                continue;
            }
            enum weir_x_warp_state state = weir_x_warp_run(w, WARP_QUANTUM);
            if (state == WEIR_X_WARP_FAULT ||
                __atomic_load_n(&block->grid->stop, __ATOMIC_RELAXED) != 0) {
                return WEIR_X_BLOCK_STOPPED;
            }
            ran = ran || state != WEIR_X_WARP_BLOCKED;
        }
        if (block->live_warps == 0) {
            return WEIR_X_BLOCK_DONE;
        }
        /* A later warp may have released a blocked one in this round, so check again. */
        if (!ran && !runnable(block)) {
            if (cluster_runnable(block->cluster)) {
                return WEIR_X_BLOCK_RUNNING;
            }
            deadlock(block);
            return WEIR_X_BLOCK_STOPPED;
        }
    }
    return WEIR_X_BLOCK_RUNNING;
}

const struct weir_x_inst *weir_x_fault(struct weir_x_warp *w, const struct weir_x_inst *i,
                                       uint32_t code, uint32_t lane, uint64_t address,
                                       const char *fmt, ...)
{
    struct weir_x_grid *grid = w->block->grid;
    w->event = WEIR_X_EVENT_FAULT;
    w->resume = i;
    if (__atomic_exchange_n(&grid->faulted, 1, __ATOMIC_ACQ_REL) != 0) {
        return NULL;
    }
    struct weir_exec_fault *fault = &grid->fault;
    fault->code = code;
    fault->address = address;
    fault->line = i->line;
    for (uint32_t d = 0; d < 3; d++) {
        fault->block[d] = w->block->index[d];
        fault->thread[d] = w->specials[WEIR_X_TID_X + d][lane];
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(fault->message, sizeof fault->message, fmt, args);
    va_end(args);
    __atomic_store_n(&grid->stop, 1, __ATOMIC_RELEASE);
    return NULL;
}

/*
 * One warp: lane groups, activations, and who runs next.
 *
 * Lanes that are at the same instruction of the same activation form a group; a branch on which
 * lanes disagree splits a group, and groups that meet are merged. Normally the group that is
 * furthest behind runs: the one in the deepest activation, and there at the lowest address. So
 * lanes meet at the end of an if or a loop, because compilers lay code out forwards. The group runs
 * until the place where the next group of its activation waits (the `stop` address of the run
 * loop).
 *
 * With that rule alone, spinning lanes would starve the lane for which they wait. So after each
 * quantum the group that has waited longest gets one: coarse independent thread scheduling.
 *
 * Everything here belongs to the core that runs the block.
 */
#include "softgpu/exec/internal.h"

#include <stdlib.h>
#include <string.h>

/* Instructions that a group runs before a divergent warp switches to another group. */
#define GROUP_QUANTUM 512u

/* Most frame memory of one core: deeper recursion is a stack overflow. */
#define MAX_FRAME_BYTES (1ull << 30)

static uint32_t size_class(uint32_t bytes)
{
    return 32u - (uint32_t)__builtin_clz((bytes - 1) | 1023u);
}

struct weir_x_frame *weir_x_frame_get(struct weir_x_core *core, const struct weir_x_func *func)
{
    uint32_t bytes = (uint32_t)sizeof(struct weir_x_frame) + func->frame_bytes;
    uint32_t class = size_class(bytes) - 10;
    struct weir_x_frame *frame;
    if (class < 24 && core->spare_frames[class]) {
        frame = core->spare_frames[class];
        core->spare_frames[class] = frame->parent;
    } else {
        size_t alloc = (size_t)1 << (class + 10);
        frame = class < 24 && alloc <= MAX_FRAME_BYTES - core->frame_bytes
                    ? aligned_alloc(64, alloc)
                    : NULL;
        WEIR_FAIL_IF(!frame, NULL);
        core->frame_bytes += alloc;
        memset(frame, 0, alloc);
        frame->alloc_bytes = class;
    }
    frame->func = func;
    frame->parent = NULL;
    frame->return_to = NULL;
    frame->depth = 0;
    frame->local_base = 0;
    return frame;
}

void weir_x_frame_put(struct weir_x_core *core, struct weir_x_frame *frame)
{
    frame->parent = core->spare_frames[frame->alloc_bytes];
    core->spare_frames[frame->alloc_bytes] = frame;
}

void weir_x_core_finish(struct weir_x_core *core)
{
    for (uint32_t c = 0; c < 24; c++) {
        while (core->spare_frames[c]) {
            struct weir_x_frame *frame = core->spare_frames[c];
            core->spare_frames[c] = frame->parent;
            free(frame);
        }
    }
}

void weir_x_warp_enter(struct weir_x_warp *w, struct weir_x_frame *frame)
{
    w->frame = frame;
    w->base[WEIR_X_BASE_REGS] = frame->regs;
    w->base[WEIR_X_BASE_CONSTS] = frame->func->consts;
}

void weir_x_warp_fork(struct weir_x_warp *w, uint32_t mask, const struct weir_x_inst *ip)
{
    struct weir_x_group *g = &w->groups[w->n_groups++];
    g->ip = ip;
    g->frame = w->frame;
    g->mask = mask;
    g->state = WEIR_X_RUNNABLE;
    g->stamp = w->stamp;
    w->group_mask &= ~mask;
    w->mask = w->group_mask;
}

void weir_x_warp_exit_lanes(struct weir_x_warp *w, uint32_t mask)
{
    struct weir_x_frame *frame = w->frame;
    while (frame) {
        struct weir_x_frame *parent = frame->parent;
        frame->mask &= ~mask;
        if (frame->mask == 0) {
            weir_x_frame_put(w->core, frame);
        }
        frame = parent;
    }
    w->live &= ~mask;
    /* Groups that wait for these lanes must check again. */
    for (uint32_t g = 0; g < w->n_groups; g++) {
        if (w->groups[g].state == WEIR_X_WAIT_SYNC) {
            w->groups[g].state = WEIR_X_RUNNABLE;
        }
    }
    if (w->live == 0) {
        w->block->live_warps--;
    }
    weir_x_block_threads_left(w, mask);
}

/* Merge groups at the same place. A merged group that had waited for lanes checks again. */
static void merge_groups(struct weir_x_warp *w)
{
    for (uint32_t a = 0; a < w->n_groups; a++) {
        struct weir_x_group *ga = &w->groups[a];
        if (ga->state == WEIR_X_WAIT_BARRIER) {
            continue;
        }
        for (uint32_t b = a + 1; b < w->n_groups;) {
            struct weir_x_group *gb = &w->groups[b];
            if (gb->ip != ga->ip || gb->frame != ga->frame || gb->state == WEIR_X_WAIT_BARRIER) {
                b++;
                continue;
            }
            ga->mask |= gb->mask;
            ga->state = WEIR_X_RUNNABLE;
            if (gb->stamp < ga->stamp) {
                ga->stamp = gb->stamp;
            }
            *gb = w->groups[--w->n_groups];
        }
    }
}

static bool runs_before(const struct weir_x_group *a, const struct weir_x_group *b, bool fair)
{
    if (fair) {
        return a->stamp < b->stamp;
    }
    if (a->frame->depth != b->frame->depth) {
        return a->frame->depth > b->frame->depth;
    }
    return a->ip < b->ip;
}

static struct weir_x_group *pick_group(struct weir_x_warp *w)
{
    struct weir_x_group *best = NULL;
    for (uint32_t g = 0; g < w->n_groups; g++) {
        struct weir_x_group *group = &w->groups[g];
        if (group->state == WEIR_X_RUNNABLE && (!best || runs_before(group, best, w->fair))) {
            best = group;
        }
    }
    return best;
}

/* Find the nearest place ahead where another group of the same activation waits. */
static uintptr_t stop_address(const struct weir_x_warp *w, const struct weir_x_group *running)
{
    uintptr_t stop = UINTPTR_MAX;
    for (uint32_t g = 0; g < w->n_groups; g++) {
        const struct weir_x_group *group = &w->groups[g];
        uintptr_t ip = (uintptr_t)group->ip;
        if (group != running && group->frame == running->frame &&
            group->state != WEIR_X_WAIT_BARRIER && ip > (uintptr_t)running->ip && ip < stop) {
            stop = ip;
        }
    }
    return stop;
}

/* Run one group for up to a quantum. Returns how many instructions it ran. */
static uint32_t run_group(struct weir_x_warp *w, struct weir_x_group *g, uint32_t quantum)
{
    w->current = (uint32_t)(g - w->groups);
    w->group_mask = g->mask;
    w->mask = g->mask;
    w->event = WEIR_X_EVENT_NONE;
    weir_x_warp_enter(w, g->frame);
    uintptr_t stop = stop_address(w, g);
    const struct weir_x_inst *ip = g->ip;
    uint32_t n = 0;
    while (n < quantum) {
        ip = ip->fn(w, ip);
        n++;
        /* NULL wraps round and is above any stop. */
        if ((uintptr_t)ip - 1 >= stop - 1) {
            break;
        }
    }
    g = &w->groups[w->current];
    g->stamp = ++w->stamp;
    if (w->event == WEIR_X_EVENT_GONE) {
        *g = w->groups[--w->n_groups];
        return n;
    }
    g->ip = ip ? ip : w->resume;
    g->mask = w->group_mask;
    g->frame = w->frame;
    return n;
}

enum weir_x_warp_state weir_x_warp_run(struct weir_x_warp *w, uint32_t budget)
{
    uint32_t used = 0;
    while (used < budget) {
        if (w->n_groups > 1) {
            merge_groups(w);
        }
        if (w->n_groups == 0) {
            return WEIR_X_WARP_DONE;
        }
        struct weir_x_group *g = pick_group(w);
        if (!g) {
            return WEIR_X_WARP_BLOCKED;
        }
        uint32_t quantum = budget - used;
        if (w->n_groups > 1 && quantum > GROUP_QUANTUM) {
            quantum = GROUP_QUANTUM;
        }
        uint32_t n = run_group(w, g, quantum);
        used += n;
        if (w->event == WEIR_X_EVENT_FAULT) {
            return WEIR_X_WARP_FAULT;
        }
        if (w->event == WEIR_X_EVENT_YIELD && w->n_groups == 1) {
            return WEIR_X_WARP_READY;
        }
        /* After a quantum, switch between the normal rule and the longest-waiting group. */
        w->fair = !w->fair && (n >= quantum || w->event == WEIR_X_EVENT_YIELD);
    }
    return WEIR_X_WARP_READY;
}

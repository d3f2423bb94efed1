/* Handlers of control flow: guards, branches, calls, returns, exits, block barriers. */
#include "softgpu/exec/internal.h"

#include <string.h>

static uint32_t guard_mask(const struct weir_x_warp *w, const struct weir_x_inst *i)
{
    return (weir_x_pred(w, i->guard) ^ i->guard_flip) & w->mask;
}

/* A guard (@p) on an instruction that only computes: run it for fewer lanes. */
WEIR_X_HANDLER(guarded)
{
    uint32_t all = w->mask;
    uint32_t mask = guard_mask(w, i);
    if (mask == 0) {
        return i + 1;
    }
    w->mask = mask;
    const struct weir_x_inst *next = i->inner(w, i);
    w->mask = all;
    return next;
}

/* A guard on an instruction that moves lanes: the other lanes become a group of their own. */
WEIR_X_HANDLER(guarded_split)
{
    uint32_t mask = guard_mask(w, i);
    if (mask == 0) {
        return i + 1;
    }
    if (mask == w->mask) {
        return i->inner(w, i);
    }
    weir_x_warp_fork(w, w->mask & ~mask, i + 1);
    const struct weir_x_inst *next = i->inner(w, i);
    return !next ? NULL : weir_x_leave(w, next, WEIR_X_EVENT_SWITCH);
}

WEIR_X_HANDLER(bra)
{
    (void)w;
    return i->target;
}

WEIR_X_HANDLER(bra_guarded)
{
    uint32_t mask = guard_mask(w, i);
    if (mask == 0) {
        return i + 1;
    }
    if (mask == w->mask) {
        return i->target;
    }
    weir_x_warp_fork(w, w->mask & ~mask, i + 1);
    return weir_x_leave(w, i->target, WEIR_X_EVENT_SWITCH);
}

/* Fields: imm: struct weir_x_table; a: the index */
WEIR_X_HANDLER(brx)
{
    const struct weir_x_table *table = i->ext;
    const weir_x_u32 *index = weir_x_w32(w, i->a);
    const struct weir_x_inst *mine = NULL;
    uint32_t mine_mask = 0;
    uint32_t left = w->mask;
    while (left != 0) {
        uint32_t first = (uint32_t)__builtin_ctz(left);
        WEIR_FAIL_IF(index[first] >= table->n,
                     weir_x_fault(w, i, 718, first, index[first], "brx.idx beyond its table"));
        const struct weir_x_inst *target = table->targets[index[first]];
        uint32_t same = 0;
        for (uint32_t rest = left; rest != 0; rest &= rest - 1) {
            uint32_t l = (uint32_t)__builtin_ctz(rest);
            if (index[l] == index[first]) {
                same |= 1u << l;
            }
        }
        left &= ~same;
        if (!mine) {
            mine = target;
            mine_mask = same;
        } else {
            weir_x_warp_fork(w, same, target);
        }
    }
    return mine_mask == w->mask && w->event == WEIR_X_EVENT_NONE && w->n_groups == 1
               ? mine
               : weir_x_leave(w, mine, WEIR_X_EVENT_SWITCH);
}

static void copy_args(struct weir_x_warp *w, const struct weir_x_arg *args, uint32_t n,
                      const struct weir_x_frame *from, struct weir_x_frame *to)
{
    for (uint32_t k = 0; k < n; k++) {
        const struct weir_x_arg *arg = &args[k];
        WEIR_X_EACH_ACTIVE(w, l, {
            char *lane = w->local + l * w->local_bytes;
            const char *src = lane + from->local_base + arg->from;
            char *dst = lane + to->local_base + arg->to;
            if (arg->from_reg) {
                const char *base = (arg->from & 3u) == WEIR_X_BASE_REGS ? from->regs
                                   : (arg->from & 3u) == WEIR_X_BASE_CONSTS
                                       ? from->func->consts
                                       : w->base[WEIR_X_BASE_SPECIALS];
                src = base + (arg->from & ~3u) + (arg->wide ? l * 8 : l * 4);
            }
            if (arg->to_reg) {
                dst = to->regs + (arg->to & ~3u) + (arg->wide ? l * 8 : l * 4);
            }
            memcpy(dst, src, arg->bytes);
        });
    }
}

static const struct weir_x_inst *call_function(struct weir_x_warp *w, const struct weir_x_inst *i,
                                               const struct weir_x_func *callee)
{
    const struct weir_x_call *call = i->ext;
    uint32_t lane = (uint32_t)__builtin_ctz(w->mask);
    WEIR_FAIL_IF(callee->unsupported,
                 weir_x_fault(w, i, 715, lane, 0, "%s: %s", callee->name, callee->unsupported));
    struct weir_x_frame *from = w->frame;
    uint32_t base = (from->local_base + from->func->local_bytes + 15u) & ~15u;
    WEIR_FAIL_IF((uint64_t)base + callee->local_bytes > w->lowest_top || from->depth >= 20000,
                 weir_x_fault(w, i, 714, lane, 0, "stack overflow calling %s", callee->name));
    struct weir_x_frame *frame = weir_x_frame_get(w->core, callee);
    WEIR_FAIL_IF(!frame,
                 weir_x_fault(w, i, 714, lane, 0, "no memory for the frame of %s", callee->name));
    frame->parent = from;
    frame->return_to = i + 1;
    frame->mask = w->mask;
    frame->depth = from->depth + 1;
    frame->local_base = base;
    if (callee->uses_alloca) {
        memcpy(frame->saved_tops, w->stack_top, sizeof w->stack_top);
    }
    copy_args(w, call->args, call->n_args, from, frame);
    weir_x_warp_enter(w, frame);
    /* No other group is in the new activation, and those left behind must not stop it. */
    return w->n_groups == 1 ? callee->code : weir_x_leave(w, callee->code, WEIR_X_EVENT_SWITCH);
}

/* Indirect call: lanes with the same target go together; the others run the call again later. */
static const struct weir_x_inst *call_indirect(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    const struct weir_x_call *call = i->ext;
    const weir_x_u64 *targets = weir_x_w64(w, i->a);
    uint32_t first = (uint32_t)__builtin_ctz(w->mask);
    uint64_t target = targets[first];
    uint32_t same = 0;
    WEIR_X_EACH_ACTIVE(w, l, same |= targets[l] == target ? 1u << l : 0);
    struct weir_exec_kernel *kernel = w->block->grid->kernel;
    uint64_t id = (target & ~WEIR_X_FUNC_TAG) / 16;
    if ((target & WEIR_X_FUNC_TAG) != WEIR_X_FUNC_TAG || target % 16 != 0 || id == 0 ||
        id > kernel->module->n_functions || !kernel->by_id[id - 1]) {
        return weir_x_fault(w, i, 718, first, target, "call through a bad function pointer");
    }
    const struct weir_x_func *callee = kernel->by_id[id - 1];
    WEIR_FAIL_IF(
        callee->param_bytes != call->param_bytes,
        weir_x_fault(w, i, 718, first, target, "call of %s with another prototype", callee->name));
    if (same != w->mask) {
        weir_x_warp_fork(w, w->mask & ~same, i);
    }
    return call_function(w, i, callee);
}

static void find_lowest_top(struct weir_x_warp *w)
{
    w->lowest_top = (uint32_t)w->local_bytes;
    for (uint32_t l = 0; l < WEIR_X_LANES; l++) {
        w->lowest_top = WEIR_MIN(w->stack_top[l], w->lowest_top);
    }
}

/* Allocate memory from the end of local memory until the function returns. Fields: a: bytes (sub:
 * 64-bit row); imm: alignment; d: the address (WIDE) */
WEIR_X_HANDLER(alloca)
{
    uint64_t floor = w->frame->local_base + w->frame->func->local_bytes;
    uint64_t align = i->imm;
    WEIR_X_EACH_ACTIVE(w, l, {
        uint64_t bytes = i->sub != 0 ? weir_x_w64(w, i->a)[l] : weir_x_w32(w, i->a)[l];
        uint64_t top = w->stack_top[l];
        WEIR_FAIL_IF(bytes > top || ((top - bytes) & ~(align - 1)) < floor,
                     weir_x_fault(w, i, 714, l, 0, "stack overflow: alloca of %llu bytes",
                                  (unsigned long long)bytes));
        w->stack_top[l] = (uint32_t)((top - bytes) & ~(align - 1));
        if ((i->flags & WEIR_X_F_WIDE) != 0) {
            weir_x_w64(w, i->d)[l] = w->stack_top[l];
        } else {
            weir_x_w32(w, i->d)[l] = w->stack_top[l];
        }
    });
    find_lowest_top(w);
    return i + 1;
}

WEIR_X_HANDLER(stacksave)
{
    WEIR_X_EACH_ACTIVE(w, l, {
        if ((i->flags & WEIR_X_F_WIDE) != 0) {
            weir_x_w64(w, i->d)[l] = w->stack_top[l];
        } else {
            weir_x_w32(w, i->d)[l] = w->stack_top[l];
        }
    });
    return i + 1;
}

/* Valid values come from stacksave; any other is limited to the lane's local memory. */
WEIR_X_HANDLER(stackrestore)
{
    WEIR_X_EACH_ACTIVE(w, l, {
        uint64_t top =
            (i->flags & WEIR_X_F_WIDE) != 0 ? weir_x_w64(w, i->a)[l] : weir_x_w32(w, i->a)[l];
        WEIR_FAIL_IF(top < w->stack_top[l] || top > w->local_bytes,
                     weir_x_fault(w, i, 714, l, top, "stackrestore to what no stacksave gave"));
        w->stack_top[l] = (uint32_t)top;
    });
    find_lowest_top(w);
    return i + 1;
}

WEIR_X_HANDLER(cluster_arrive)
{
    weir_x_cluster_arrive(w, w->mask);
    return w->n_groups == 1 ? i + 1 : weir_x_leave(w, i + 1, WEIR_X_EVENT_SWITCH);
}

/* Wait for the end of the phase in which the lanes arrived. The handler runs again after each
 * phase. */
WEIR_X_HANDLER(cluster_wait)
{
    uint32_t waiting = 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        if (w->cluster_arrivals[l] > w->block->cluster->phase) {
            waiting |= 1u << l;
        }
    });
    if (waiting == 0) {
        return i + 1;
    }
    struct weir_x_group *g = &w->groups[w->current];
    g->state = WEIR_X_WAIT_BARRIER;
    g->barrier = WEIR_X_CLUSTER_BARRIER;
    return weir_x_leave(w, i, WEIR_X_EVENT_SWITCH);
}

WEIR_X_HANDLER(call)
{
    const struct weir_x_call *call = i->ext;
    return call->callee ? call_function(w, i, call->callee) : call_indirect(w, i);
}

WEIR_X_HANDLER(exit)
{
    (void)i;
    weir_x_warp_exit_lanes(w, w->mask);
    w->event = WEIR_X_EVENT_GONE;
    return NULL;
}

WEIR_X_HANDLER(ret)
{
    struct weir_x_frame *frame = w->frame;
    if (!frame->parent) {
        return weir_x_exec_exit(w, i);
    }
    const struct weir_x_inst *next = frame->return_to;
    const struct weir_x_call *call = next[-1].ext;
    copy_args(w, call->results, call->n_results, frame, frame->parent);
    if (frame->func->uses_alloca) {
        WEIR_X_EACH_ACTIVE(w, l, w->stack_top[l] = frame->saved_tops[l]);
        find_lowest_top(w);
    }
    weir_x_warp_enter(w, frame->parent);
    frame->mask &= ~w->mask;
    if (frame->mask == 0) {
        weir_x_frame_put(w->core, frame);
    }
    return w->n_groups == 1 ? next : weir_x_leave(w, next, WEIR_X_EVENT_SWITCH);
}

WEIR_X_HANDLER(trap)
{
    return weir_x_fault(w, i, i->sub != 0 ? 715 : 719, (uint32_t)__builtin_ctz(w->mask), 0, "%s",
                        i->sub != 0 ? "breakpoint without a debugger" : "trap");
}

WEIR_X_HANDLER(nop)
{
    (void)w;
    return i + 1;
}

WEIR_X_HANDLER(nanosleep)
{
    return weir_x_leave(w, i + 1, WEIR_X_EVENT_YIELD);
}

/* Fields: a: id; b: count or NO_REF; sub: 0 sync, 1 arrive, 2 red.popc, 3 red.and, 4 red.or; c:
 * predicate */
WEIR_X_HANDLER(barrier)
{
    uint32_t lane = (uint32_t)__builtin_ctz(w->mask);
    uint32_t id = weir_x_w32(w, i->a)[lane];
    uint32_t count = i->b == WEIR_X_NO_REF ? 0 : weir_x_w32(w, i->b)[lane];
    WEIR_FAIL_IF(id >= WEIR_X_BARRIERS && (i->sub2 & 2u) == 0,
                 weir_x_fault(w, i, 715, lane, id, "barrier id %u", id));
    WEIR_FAIL_IF(i->b != WEIR_X_NO_REF && count == 0,
                 weir_x_fault(w, i, 715, lane, 0, "barrier count 0"));
    return weir_x_block_arrive(w, i, id, count, i->sub != 1);
}

WEIR_X_HANDLER(unsupported)
{
    return weir_x_fault(w, i, 715, (uint32_t)__builtin_ctz(w->mask), 0, "%s", (const char *)i->ext);
}

/* Fields: d: receives the frame's local base + imm; sub: 0 as a local offset, 1 generic */
WEIR_X_HANDLER(frame_address)
{
    weir_x_u64 *d = weir_x_w64(w, i->d);
    uint64_t address = i->imm + w->frame->local_base;
    WEIR_X_EACH(w, l, d[l] = address);
    return i + 1;
}

/*
 * Instructions that several lanes of a warp execute together.
 *
 * Each begins with weir_x_take_part(): a lane may go on if all its partners (its member mask,
 * without exited lanes) are at the instruction. The other lanes wait in a separate group until the
 * partners arrive and are merged, or exit. Lanes may meet at different bar.warp.sync instructions.
 */
#include "softgpu/exec/internal.h"

/*
 * The member mask of one lane, without exited lanes. A mask that omits its own lane is undefined in
 * PTX; here a lane is always its own member, so the mask is never empty.
 */
static uint32_t members_of(const struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane)
{
    return (weir_x_w32(w, i->e)[lane] & w->live) | 1u << lane;
}

/* Find the lanes whose partners are all in `here`. */
static uint32_t ready_lanes(const struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t here)
{
    uint32_t ready = 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        if ((members_of(w, i, l) & ~here) == 0) {
            ready |= 1u << l;
        }
    });
    return ready;
}

/* Wait, all of the running group. */
static bool wait_here(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    w->groups[w->current].state = WEIR_X_WAIT_SYNC;
    weir_x_leave(w, i, WEIR_X_EVENT_SWITCH);
    return false;
}

/* Returns true if the warp's mask now holds only lanes that may go on. false: the handler returns
 * NULL. */
bool weir_x_take_part(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    uint32_t ready = ready_lanes(w, i, w->mask);
    if (ready == w->mask) {
        return true;
    }
    if (ready == 0) {
        return wait_here(w, i);
    }
    weir_x_warp_fork(w, w->mask & ~ready, i);
    w->groups[w->n_groups - 1].state = WEIR_X_WAIT_SYNC;
    return true;
}

static const struct weir_x_inst *done(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    return w->n_groups == 1 ? i + 1 : weir_x_leave(w, i + 1, WEIR_X_EVENT_SWITCH);
}

static bool same_kind(const struct weir_x_group *group, const struct weir_x_inst *i)
{
    return group->state == WEIR_X_WAIT_SYNC && group->ip->fn == i->fn &&
           group->ip->inner == i->inner;
}

/* Lanes may meet at different bar.warp.sync, in different activations. */
WEIR_X_HANDLER(warp_sync)
{
    uint32_t here = w->mask;
    for (uint32_t g = 0; g < w->n_groups; g++) {
        if (g != w->current && same_kind(&w->groups[g], i)) {
            here |= w->groups[g].mask;
        }
    }
    uint32_t ready = ready_lanes(w, i, here);
    if (ready == 0) {
        wait_here(w, i);
        return NULL;
    }
    if (ready != w->mask) {
        weir_x_warp_fork(w, w->mask & ~ready, i);
        w->groups[w->n_groups - 1].state = WEIR_X_WAIT_SYNC;
    }
    /* Release the lanes of other groups that have met these lanes. */
    uint32_t met = 0;
    WEIR_X_EACH_ACTIVE(w, l, met |= members_of(w, i, l));
    uint32_t n_groups = w->n_groups;
    for (uint32_t g = 0; g < n_groups; g++) {
        struct weir_x_group *group = &w->groups[g];
        uint32_t part = group->mask & met;
        if (g == w->current || !same_kind(group, i) || part == 0) {
            continue;
        }
        if (part != group->mask) {
            w->groups[w->n_groups] = *group;
            w->groups[w->n_groups++].mask &= ~part;
            group->mask = part;
        }
        group->state = WEIR_X_RUNNABLE;
        group->ip = group->ip + 1;
    }
    return done(w, i);
}

/* Fields: sub: 0 up 1 down 2 bfly 3 idx; a: value; b: lane; c: clamp and segment mask; sub2:
 * refs[0] is a predicate */
WEIR_X_HANDLER(shfl)
{
    WEIR_FAIL_IF(!weir_x_take_part(w, i), NULL);
    const weir_x_u32 *a = weir_x_w32(w, i->a);
    const weir_x_u32 *b = weir_x_w32(w, i->b);
    const weir_x_u32 *c = weir_x_w32(w, i->c);
    uint32_t value[WEIR_X_LANES];
    uint32_t inside = 0;
    for (uint32_t l = 0; l < WEIR_X_LANES; l++) {
        uint32_t by = b[l] & 31u;
        uint32_t clamp = c[l] & 31u;
        uint32_t segment = c[l] >> 8 & 31u;
        uint32_t max_lane = (l & segment) | (clamp & ~segment);
        uint32_t min_lane = l & segment;
        uint32_t from;
        bool ok;
        switch (i->sub) {
        case 0:
            from = l - by;
            ok = (int32_t)from >= (int32_t)max_lane;
            break;
        case 1:
            from = l + by;
            ok = from <= max_lane;
            break;
        case 2:
            from = l ^ by;
            ok = from <= max_lane;
            break;
        default:
            from = min_lane | (by & ~segment);
            ok = from <= max_lane;
            break;
        }
        value[l] = a[ok ? from & 31u : l];
        inside |= ok ? 1u << l : 0;
    }
    if (i->d != WEIR_X_NO_REF) {
        weir_x_u32 *d = weir_x_w32(w, i->d);
        WEIR_X_EACH(w, l, d[l] = value[l]);
    }
    if (i->sub2 != 0) {
        weir_x_set_pred(w, i->refs[0], inside);
    }
    return done(w, i);
}

static uint32_t yes_lanes(const struct weir_x_warp *w, const struct weir_x_inst *i)
{
    return (weir_x_pred(w, i->a) ^ (i->sub2 != 0 ? WEIR_X_FULL : 0)) & w->mask;
}

/* Give the running group its result. */
static void tell_vote(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t p)
{
    uint32_t out = 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        uint32_t members = members_of(w, i, l);
        uint32_t yes = p & members;
        if (i->sub == 0) {
            weir_x_w32(w, i->d)[l] = yes;
        } else {
            bool value = i->sub == 1   ? yes == members
                         : i->sub == 2 ? yes != 0
                                       : yes == 0 || yes == members;
            out |= value ? 1u << l : 0;
        }
    });
    if (i->sub != 0) {
        weir_x_set_pred(w, i->d, out);
    }
}

/* Does this group wait at another vote for the same lanes as the running group? */
static bool votes_elsewhere(const struct weir_x_warp *w, const struct weir_x_group *group,
                            const struct weir_x_inst *i, uint32_t members)
{
    return group != &w->groups[w->current] && group->state == WEIR_X_WAIT_SYNC &&
           group->ip->fn == weir_x_exec_vote && i->fn == weir_x_exec_vote &&
           group->ip->sub == i->sub && (group->mask & ~members) == 0;
}

/*
 * Lanes may meet at different votes of one kind and the same member mask, in different activations
 * (CUDA Programming Guide, independent thread scheduling). Each group votes with its own registers,
 * and then all go on. false: lanes are still missing.
 */
static bool vote_at_places(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    uint32_t members = members_of(w, i, (uint32_t)__builtin_ctz(w->mask));
    uint32_t own = w->mask, here = own, yes = yes_lanes(w, i);
    struct weir_x_frame *frame = w->frame;

    for (uint32_t g = 0; g < w->n_groups; g++) {
        here |= votes_elsewhere(w, &w->groups[g], i, members) ? w->groups[g].mask : 0;
    }
    WEIR_FAIL_IF(here != members || here == own, false);
    for (int round = 0; round < 2; round++) {
        for (uint32_t g = 0; g < w->n_groups; g++) {
            struct weir_x_group *group = &w->groups[g];
            if (!votes_elsewhere(w, group, i, members)) {
                continue;
            }
            w->mask = group->mask;
            weir_x_warp_enter(w, group->frame);
            if (round == 0) {
                yes |= yes_lanes(w, group->ip);
            } else {
                tell_vote(w, group->ip, yes);
                group->state = WEIR_X_RUNNABLE;
                group->ip++;
            }
        }
    }
    w->mask = own;
    weir_x_warp_enter(w, frame);
    tell_vote(w, i, yes);
    return true;
}

/* Fields: sub: 0 ballot 1 all 2 any 3 uni; a: predicate (sub2: negated) */
WEIR_X_HANDLER(vote)
{
    if (vote_at_places(w, i)) {
        return done(w, i);
    }
    WEIR_FAIL_IF(!weir_x_take_part(w, i), NULL);
    tell_vote(w, i, yes_lanes(w, i));
    return done(w, i);
}

static uint64_t match_value(const struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane)
{
    return (i->flags & WEIR_X_F_WIDE) != 0 ? weir_x_w64(w, i->a)[lane] : weir_x_w32(w, i->a)[lane];
}

/* Fields: sub: 0 any 1 all; refs[0]: predicate of .all, or NO_REF */
WEIR_X_HANDLER(match)
{
    WEIR_FAIL_IF(!weir_x_take_part(w, i), NULL);
    uint32_t result[WEIR_X_LANES];
    uint32_t agreed = 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        uint32_t members = members_of(w, i, l);
        uint32_t same = 0;
        for (uint32_t m = members & w->mask; m != 0; m &= m - 1) {
            uint32_t other = (uint32_t)__builtin_ctz(m);
            same |= match_value(w, i, other) == match_value(w, i, l) ? 1u << other : 0;
        }
        result[l] = i->sub == 0 || same == members ? same : 0;
        agreed |= same == members ? 1u << l : 0;
    });
    if (i->d != WEIR_X_NO_REF) {
        WEIR_X_EACH_ACTIVE(w, l, weir_x_w32(w, i->d)[l] = result[l]);
    }
    if (i->refs && i->refs[0] != WEIR_X_NO_REF) {
        weir_x_set_pred(w, i->refs[0], agreed);
    }
    return done(w, i);
}

/* Reduce two values. op: 0 add 1 min 2 max 3 and 4 or 5 xor */
static uint32_t fold(uint8_t op, bool is_signed, uint32_t x, uint32_t y)
{
    switch (op) {
    case 0:
        return x + y;
    case 1:
        return (is_signed ? (int32_t)x < (int32_t)y : x < y) ? x : y;
    case 2:
        return (is_signed ? (int32_t)x > (int32_t)y : x > y) ? x : y;
    case 3:
        return x & y;
    case 4:
        return x | y;
    default:
        return x ^ y;
    }
}

WEIR_X_HANDLER(redux)
{
    WEIR_FAIL_IF(!weir_x_take_part(w, i), NULL);
    const weir_x_u32 *a = weir_x_w32(w, i->a);
    uint32_t result[WEIR_X_LANES];
    WEIR_X_EACH_ACTIVE(w, l, {
        uint32_t rest = members_of(w, i, l) & w->mask;
        uint32_t value = a[__builtin_ctz(rest)];
        for (rest &= rest - 1; rest != 0; rest &= rest - 1) {
            value = fold(i->sub, i->sub2 != 0, value, a[__builtin_ctz(rest)]);
        }
        result[l] = value;
    });
    weir_x_u32 *d = weir_x_w32(w, i->d);
    WEIR_X_EACH_ACTIVE(w, l, d[l] = result[l]);
    return done(w, i);
}

/* Fields: d: receives the leader's lane (or NO_REF); refs[0]: receives whether it is this lane */
WEIR_X_HANDLER(elect)
{
    WEIR_FAIL_IF(!weir_x_take_part(w, i), NULL);
    uint32_t leaders = 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        uint32_t leader = (uint32_t)__builtin_ctz(members_of(w, i, l));
        leaders |= leader == l ? 1u << l : 0;
        if (i->d != WEIR_X_NO_REF) {
            weir_x_w32(w, i->d)[l] = leader;
        }
    });
    if (i->refs[0] != WEIR_X_NO_REF) {
        weir_x_set_pred(w, i->refs[0], leaders);
    }
    return done(w, i);
}

WEIR_X_HANDLER(activemask)
{
    weir_x_u32 *d = weir_x_w32(w, i->d);
    uint32_t mask = w->mask;
    WEIR_X_EACH(w, l, d[l] = mask);
    return i + 1;
}

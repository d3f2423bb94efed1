/*
 * Which kernels hold which SMs, and how fast they are.
 *
 * Shares. Kernels are served in the order of rank, then of their launches, as the hardware does:
 * the blocks of the first are placed before those of the next, evenly over all SMs. A resumed
 * kernel counts as launched again, so it comes after those that arrived meanwhile. A kernel takes
 * what is free within its range and block limit until its blocks are placed. Running blocks do not
 * make room, so a newcomer of higher rank is served last until half the time of a block that it
 * displaces has passed (the mean, as blocks end at any time).
 *
 * Speeds. A kernel that holds A SMs runs at the part A / (need * full) of its full speed, at most
 * 1: a kernel that is limited by memory needs few of its blocks. If all kernels together use more
 * than the memory's bandwidth, the greediest are cut down first (max-min), as Slate (IPDPS 2019,
 * section III) describes from measurements.
 */
#include "sched/sim/gpu_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Smaller parts of an SM come from rounding: no block fits. */
#define NOTHING 1e-6

double weir_sim_block_ns(const struct weir_sim_work *work)
{
    return (double)work->sm_ns / work->blocks * work->blocks_per_sm;
}

static bool goes_before(const struct weir_sim_unit *a, const struct weir_sim_unit *b)
{
    bool a_is_settled = a->settled_ns == UINT64_MAX;
    bool b_is_settled = b->settled_ns == UINT64_MAX;
    if (a_is_settled != b_is_settled) {
        return a_is_settled;
    }
    return a->work.rank != b->work.rank ? a->work.rank > b->work.rank : a->launched < b->launched;
}

/* Sort the kernels that hold SMs in the order in which they are served. */
static size_t sort_units(struct weir_sim_gpu *gpu)
{
    size_t n = 0;
    for (size_t i = 0; i < gpu->n_units; i++) {
        struct weir_sim_unit *unit = gpu->units[i];
        if (!weir_sim_unit_holds(unit)) {
            continue;
        }
        size_t at = n++;
        for (; at && goes_before(unit, gpu->sorted[at - 1]); at--) {
            gpu->sorted[at] = gpu->sorted[at - 1];
        }
        gpu->sorted[at] = unit;
    }
    return n;
}

static double block_limit_of(const struct weir_sim_unit *unit)
{
    uint32_t block_limit = unit->place.block_limit;
    return block_limit && block_limit < unit->work.blocks_per_sm
               ? (double)block_limit / unit->work.blocks_per_sm
               : 1.0;
}

/* Give a kernel its part of the free SMs; true: it holds other SMs than before. */
static bool place_unit(struct weir_sim_gpu *gpu, struct weir_sim_unit *unit, float *new_held)
{
    uint32_t sms = gpu->params.sms;
    uint32_t first = unit->place.sm_count ? unit->place.sm_first : 0;
    uint32_t end = unit->place.sm_count ? first + unit->place.sm_count : sms;
    double block_limit = block_limit_of(unit);
    double room = 0;
    memset(new_held, 0, sms * sizeof *new_held);
    for (uint32_t sm = first; sm < end; sm++) {
        room += fmin(gpu->free[sm], block_limit);
    }
    room = room < NOTHING ? 0 : room;
    unit->share = fmin(room, unit->parallel);
    if (unit->share > 0 && !unit->has_begun) {
        unit->has_begun = true;
        unit->begun_ns = gpu->now_ns;
    }
    double part = room > 0 ? unit->share / room : 0;
    for (uint32_t sm = first; sm < end && part > 0; sm++) {
        double take = fmin(gpu->free[sm], block_limit) * part;
        gpu->free[sm] -= take;
        new_held[sm] = (float)take;
    }
    return memcmp(new_held, unit->shares, sms * sizeof *new_held) != 0;
}

static double full_speed(const struct weir_sim_gpu *gpu, const struct weir_sim_unit *unit)
{
    return fmin((double)unit->work.blocks / unit->work.blocks_per_sm, gpu->params.sms);
}

/* Graphs share the bandwidth if they need more than there is. A graph of a higher rank gets this
 * many times the part of a graph of a lower rank. */
#define GRAPH_RANK_GAIN 6.0
/* The speed of a graph whose every kernel waits for SMs that kernels of its rank hold. */
#define GRAPH_BESIDE 0.48

/* The weight of a unit where bandwidth is short: more for a graph above other graphs. */
static double claim_of(struct weir_sim_unit **units, size_t n, const struct weir_sim_unit *unit)
{
    uint32_t rank = unit->work.rank;
    bool has_lower =
        unit->work.graph &&
        WEIR_ANY(i, n, units[i]->work.graph && units[i]->work.rank < rank && units[i]->speed > 0);
    return has_lower ? GRAPH_RANK_GAIN : 1;
}

/* Cut the kernels' use of the memory's bandwidth down to what the memory has. */
static void limit_memory(struct weir_sim_unit **units, size_t n)
{
    double wanted = 0;
    for (size_t i = 0; i < n; i++) {
        wanted += units[i]->speed * units[i]->work.memory;
        units[i]->claim = claim_of(units, n, units[i]);
    }
    double level = 1;
    for (size_t round = 0; wanted > 1 && round <= n; round++) {
        /* Kernels below the level keep their use; the others share the rest, which sets
         * the level. */
        double kept = 0;
        double greedy = 0;
        for (size_t i = 0; i < n; i++) {
            double used = units[i]->speed * units[i]->work.memory;
            if (round && used <= level * units[i]->claim) {
                kept += used;
            } else if (used > 0) {
                greedy += units[i]->claim;
            }
        }
        double next = greedy > 0 ? (1 - kept) / greedy : level;
        if (round && next <= level) {
            break;
        }
        level = next;
    }
    for (size_t i = 0; wanted > 1 && i < n; i++) {
        double part = units[i]->work.memory;
        if (part > 0) {
            units[i]->speed = fmin(units[i]->speed, level * units[i]->claim / part);
        }
    }
}

/* Does a kernel of the same or a higher rank take all SMs that become free, before a graph? */
static bool waits_for_sms(const struct weir_sim_gpu *gpu, size_t n,
                          const struct weir_sim_unit *unit)
{
    for (size_t i = 0; unit->work.graph && i < n; i++) {
        const struct weir_sim_unit *other = gpu->sorted[i];
        if (!other->work.graph && other->work.rank >= unit->work.rank &&
            other->parallel > other->share) {
            return true;
        }
    }
    return false;
}

void weir_sim_gpu_tell_held(struct weir_sim_gpu *gpu, struct weir_sim_unit *unit)
{
    uint32_t sms = gpu->params.sms;
    uint64_t from_ns = unit->held_from_ns;
    unit->held_from_ns = gpu->now_ns;
    if (!gpu->hold || !unit->shares || from_ns >= gpu->now_ns) {
        return;
    }
    for (uint32_t sm = 0; sm < sms;) {
        uint32_t end = sm + 1;
        while (end < sms && unit->shares[end] == unit->shares[sm]) {
            end++;
        }
        if (unit->shares[sm] > 0) {
            const struct weir_sim_hold hold = {.id = unit->id,
                                               .owner = unit->work.owner,
                                               .from_ns = from_ns,
                                               .to_ns = gpu->now_ns,
                                               .sm_first = sm,
                                               .sm_count = end - sm,
                                               .share = unit->shares[sm]};
            gpu->hold(gpu->hold_user, &hold);
        }
        sm = end;
    }
}

static uint64_t finish_of(const struct weir_sim_unit *unit, uint64_t now_ns)
{
    if (unit->rate <= 0) {
        return UINT64_MAX;
    }
    double rest_ns = ceil(unit->left / unit->rate);
    return rest_ns >= 1e18 ? UINT64_MAX : now_ns + (rest_ns > 0 ? (uint64_t)rest_ns : 0);
}

void weir_sim_gpu_share(struct weir_sim_gpu *gpu)
{
    float new_held[WEIR_SIM_SMS_MAX];
    size_t n = sort_units(gpu);
    for (uint32_t sm = 0; sm < gpu->params.sms; sm++) {
        gpu->free[sm] = 1;
    }
    for (size_t i = 0; i < n; i++) {
        struct weir_sim_unit *unit = gpu->sorted[i];
        if (place_unit(gpu, unit, new_held)) {
            weir_sim_gpu_tell_held(gpu, unit);
            memcpy(unit->shares, new_held, gpu->params.sms * sizeof *new_held);
        }
        double need = unit->work.need > 0 ? unit->work.need : 1;
        unit->speed = unit->state == WEIR_SIM_UNIT_DRAINING || unit->waits
                          ? 0
                          : fmin(1, unit->share / (need * full_speed(gpu, unit)));
    }
    for (size_t i = 0; i < n; i++) {
        gpu->sorted[i]->speed *= waits_for_sms(gpu, n, gpu->sorted[i]) ? GRAPH_BESIDE : 1;
    }
    limit_memory(gpu->sorted, n);
    for (size_t i = 0; i < n; i++) {
        struct weir_sim_unit *unit = gpu->sorted[i];
        unit->rate = unit->speed * full_speed(gpu, unit);
        unit->finish_ns = finish_of(unit, gpu->now_ns);
    }
    gpu->is_stale = false;
}

/*
 * Measured speeds of kernels at places, in a table of fixed size. All measures of a key lie in its
 * window of slots. If all of these are taken, the one unused longest is replaced, so that many
 * kernels need no more memory.
 */
#include "sched/measure.h"
#include "base/hash.h"
#include "sched/private.h"
#include <stdlib.h>

#define MEASURES_WINDOW 32u /* slots for the measures of keys with one hash */
#define MEASURES_SLOTS  (256u * MEASURES_WINDOW)
#define MEAN_WINDOW     16u

void measures_finish(struct measures *measures)
{
    free(measures->slot);
    free(measures->used);
    *measures = (struct measures){0};
}

static uint32_t window_of(uint64_t key)
{
    return (uint32_t)(weir_hash64_of(&key, sizeof(key)) % (MEASURES_SLOTS / MEASURES_WINDOW)) *
           MEASURES_WINDOW;
}

static bool is_it(const struct weir_policy_measure *m, uint64_t key,
                  const struct weir_sched_place *place, const struct company *partner)
{
    return m->key == key && m->sm_count == place->sm_count &&
           m->block_limit == place->block_limit && m->partner_key == partner->key &&
           m->partner_sm_count == partner->sm_count &&
           m->partner_block_limit == partner->block_limit;
}

/* The slot of a measure, or else the slot to replace for it. */
static uint32_t slot_for(const struct measures *measures, uint64_t key,
                         const struct weir_sched_place *place, const struct company *partner)
{
    uint32_t first = window_of(key);
    uint32_t oldest = first;

    for (uint32_t i = first; i < first + MEASURES_WINDOW; i++) {
        if (measures->used[i] != 0 && is_it(&measures->slot[i], key, place, partner)) {
            return i;
        }
        if (measures->used[i] < measures->used[oldest]) {
            oldest = i;
        }
    }
    return oldest;
}

static void observe(struct weir_policy_measure *m, uint32_t blocks, uint64_t took_ns)
{
    uint32_t n = m->samples < MEAN_WINDOW ? m->samples + 1 : MEAN_WINDOW;
    double block_ns = (double)took_ns / (blocks != 0 ? blocks : 1);

    m->block_ns += (block_ns - m->block_ns) / n;
    m->latest_block_ns = block_ns;
    m->samples += m->samples < UINT32_MAX;
}

const struct weir_policy_measure *measures_add(struct measures *measures, uint64_t key,
                                               const struct weir_sched_place *place,
                                               const struct company *partner, uint32_t blocks,
                                               uint64_t took_ns)
{
    uint32_t at;
    struct weir_policy_measure *m;

    if (!measures->slot) {
        measures->slot = calloc(MEASURES_SLOTS, sizeof(*measures->slot));
        measures->used = calloc(MEASURES_SLOTS, sizeof(*measures->used));
        if (!measures->slot || !measures->used) {
            measures_finish(measures);
            return NULL;
        }
    }
    at = slot_for(measures, key, place, partner);
    m = &measures->slot[at];
    if (measures->used[at] == 0 || !is_it(m, key, place, partner)) {
        *m = (struct weir_policy_measure){.key = key,
                                          .sm_count = place->sm_count,
                                          .block_limit = place->block_limit,
                                          .partner_key = partner->key,
                                          .partner_sm_count = partner->sm_count,
                                          .partner_block_limit = partner->block_limit};
    }
    measures->used[at] = ++measures->uses;
    observe(m, blocks, took_ns);
    return m;
}

#include "sched/sim/idmap.h"
#include "base/status.h"

#include <stdlib.h>

#define CAP_MIN 64u

void weir_sim_idmap_finish(struct weir_sim_idmap *map)
{
    free(map->slots);
    *map = (struct weir_sim_idmap){0};
}

static size_t mixed(uint64_t id)
{
    id ^= id >> 33;
    id *= UINT64_C(0xff51afd7ed558ccd); /* an odd number with many bits: spreads low ones upwards */
    id ^= id >> 33;
    return (size_t)id;
}

/* Where an id is, or the empty slot where it belongs. There always is one. */
static struct weir_sim_idmap_slot *slot_of(const struct weir_sim_idmap *map, uint64_t id)
{
    size_t at = mixed(id) & (map->cap - 1);
    while (map->slots[at].id && map->slots[at].id != id) {
        at = (at + 1) & (map->cap - 1);
    }
    return &map->slots[at];
}

/* A table with room: twice as long as what is in it, without what is gone. */
static bool rebuild(struct weir_sim_idmap *map)
{
    struct weir_sim_idmap bigger = {.cap = CAP_MIN};
    size_t live = 0;
    for (size_t i = 0; i < map->cap; i++) {
        live += map->slots[i].id && !map->slots[i].is_gone;
    }
    while (bigger.cap < 4 * (live + 1)) {
        bigger.cap *= 2;
    }
    bigger.slots = calloc(bigger.cap, sizeof *bigger.slots);
    WEIR_FAIL_IF(!bigger.slots, false);
    for (size_t i = 0; i < map->cap; i++) {
        if (map->slots[i].id && !map->slots[i].is_gone) {
            *slot_of(&bigger, map->slots[i].id) = map->slots[i];
        }
    }
    bigger.used = live;
    free(map->slots);
    *map = bigger;
    return true;
}

bool weir_sim_idmap_set(struct weir_sim_idmap *map, uint64_t id, uint64_t value)
{
    WEIR_FAIL_IF(!id || (2 * (map->used + 1) > map->cap && !rebuild(map)), false);
    struct weir_sim_idmap_slot *slot = slot_of(map, id);
    map->used += !slot->id;
    *slot = (struct weir_sim_idmap_slot){.id = id, .value = value};
    return true;
}

bool weir_sim_idmap_get(const struct weir_sim_idmap *map, uint64_t id, uint64_t *ret_value)
{
    const struct weir_sim_idmap_slot *slot = map->cap && id ? slot_of(map, id) : NULL;
    WEIR_FAIL_IF(!slot || !slot->id || slot->is_gone, false);
    *ret_value = slot->value;
    return true;
}

void weir_sim_idmap_remove(struct weir_sim_idmap *map, uint64_t id)
{
    struct weir_sim_idmap_slot *slot = map->cap && id ? slot_of(map, id) : NULL;
    if (slot && slot->id) {
        slot->is_gone = true;
    }
}

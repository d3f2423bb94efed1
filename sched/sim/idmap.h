/* A map from the ids of a trace, any 64-bit numbers but 0, to indices. Owner thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir_sim_idmap_slot {
    uint64_t id; /* 0: empty */
    uint64_t value;
    bool is_gone;
};

/* A zeroed map is valid and empty. Fields are private. */
struct weir_sim_idmap {
    struct weir_sim_idmap_slot *slots;
    size_t cap;  /* a power of two, or 0 */
    size_t used; /* slots with an id, removed ones included */
};

/** Free the map's memory; leaves a zeroed map. */
void weir_sim_idmap_finish(struct weir_sim_idmap *map);

/** Set or replace an id's value. false: out of memory, or the id is 0. */
bool weir_sim_idmap_set(struct weir_sim_idmap *map, uint64_t id, uint64_t value);

/** Get an id's value. false: the id is unknown. */
bool weir_sim_idmap_get(const struct weir_sim_idmap *map, uint64_t id, uint64_t *ret_value);

/** Remove an id. An unknown id is ignored. */
void weir_sim_idmap_remove(struct weir_sim_idmap *map, uint64_t id);

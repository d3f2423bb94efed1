/* From the ids of a trace, any 64-bit numbers but 0, to indices. Owner thread only. */
#ifndef WEIR_SCHED_SIM_IDMAP_H
#define WEIR_SCHED_SIM_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir_sim_idmap_slot {
    uint64_t id; /* 0: empty */
    uint64_t value;
    bool is_gone;
};

/* A zeroed one is valid and empty. Fields are private. */
struct weir_sim_idmap {
    struct weir_sim_idmap_slot *slots;
    size_t cap;  /* a power of two, or 0 */
    size_t used; /* slots with an id, gone or not */
};

/** Frees; a zeroed map is left. */
void weir_sim_idmap_finish(struct weir_sim_idmap *map);

/** false: out of memory, or the id is 0. What it meant before is replaced. */
bool weir_sim_idmap_set(struct weir_sim_idmap *map, uint64_t id, uint64_t value);

/** false: unknown. */
bool weir_sim_idmap_get(const struct weir_sim_idmap *map, uint64_t id, uint64_t *ret_value);

/** Of an unknown one nothing happens. */
void weir_sim_idmap_remove(struct weir_sim_idmap *map, uint64_t id);

#endif

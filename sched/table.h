/* A table from ids (index and generation) to objects, which never move. Private to sched/. */
#pragma once

#include "sched/sched.h"

struct table {
    size_t object_bytes;
    uint32_t limit; /* largest number of objects */
    uint32_t made;  /* number of slots that exist */
    uint32_t live;
    uint32_t free_first; /* index + 1 of the first free slot; 0: none */
    uint32_t chunks;
    void **chunk; /* each has TABLE_CHUNK slots */
};

void table_init(struct table *table, size_t object_bytes, uint32_t limit);
void table_finish(struct table *table);

/* Add a zeroed object. @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_TOO_BIG */
enum weir_status table_add(struct table *table, weir_sched_id *ret_id,
                           void **ret_object) WEIR_MUST_CHECK;

/* The object with an id; NULL: it does not exist, or not any more. */
void *table_get(const struct table *table, weir_sched_id id);

void table_remove(struct table *table, weir_sched_id id);

/* The live object with the lowest index >= *index, which moves behind it; NULL: no more. */
void *table_next(const struct table *table, uint32_t *index);

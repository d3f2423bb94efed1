#include "sched/table.h"
#include <stdlib.h>
#include <string.h>

#define TABLE_CHUNK 64u
#define GENERATIONS 0x7fffffffu /* ids stay below 2^63: their owner may use the highest bit */

/* Before each object. */
struct slot {
    uint32_t generation; /* odd: live */
    uint32_t next_free;  /* index + 1 */
};

static size_t stride_of(const struct table *table)
{
    return (sizeof(struct slot) + table->object_bytes + 15) & ~(size_t)15;
}

static struct slot *slot_at(const struct table *table, uint32_t index)
{
    char *chunk = table->chunk[index / TABLE_CHUNK];

    return (struct slot *)(void *)(chunk + stride_of(table) * (index % TABLE_CHUNK));
}

void table_init(struct table *table, size_t object_bytes, uint32_t limit)
{
    *table = (struct table){.object_bytes = object_bytes, .limit = limit};
}

void table_finish(struct table *table)
{
    for (uint32_t i = 0; i < table->chunks; i++) {
        free(table->chunk[i]);
    }
    free(table->chunk);
    *table = (struct table){0};
}

static enum weir_status grow(struct table *table)
{
    void **grown = realloc(table->chunk, (table->chunks + 1) * sizeof(*grown));

    WEIR_FAIL_IF(!grown, WEIR_ERR_NO_MEMORY);
    table->chunk = grown;
    void *chunk = calloc(TABLE_CHUNK, stride_of(table));
    WEIR_FAIL_IF(!chunk, WEIR_ERR_NO_MEMORY);
    table->chunk[table->chunks++] = chunk;
    return WEIR_OK;
}

enum weir_status table_add(struct table *table, weir_sched_id *ret_id, void **ret_object)
{
    uint32_t index;

    if (table->free_first != 0) {
        index = table->free_first - 1;
        table->free_first = slot_at(table, index)->next_free;
    } else {
        WEIR_FAIL_IF(table->made == table->limit, WEIR_ERR_TOO_BIG);
        if (table->made == table->chunks * TABLE_CHUNK) {
            WEIR_TRY(grow(table));
        }
        index = table->made++;
    }
    struct slot *slot = slot_at(table, index);
    slot->generation = (slot->generation + 1) & GENERATIONS;
    memset(slot + 1, 0, table->object_bytes);
    table->live++;
    *ret_id = (uint64_t)slot->generation << 32 | index;
    *ret_object = slot + 1;
    return WEIR_OK;
}

void *table_get(const struct table *table, weir_sched_id id)
{
    uint32_t index = (uint32_t)id;

    if (index >= table->made) {
        return NULL;
    }
    struct slot *slot = slot_at(table, index);
    return (slot->generation & 1) != 0 && slot->generation == id >> 32 ? slot + 1 : NULL;
}

void table_remove(struct table *table, weir_sched_id id)
{
    uint32_t index = (uint32_t)id;
    struct slot *slot = slot_at(table, index);

    slot->generation = (slot->generation + 1) & GENERATIONS;
    slot->next_free = table->free_first;
    table->free_first = index + 1;
    table->live--;
}

void *table_next(const struct table *table, uint32_t *index)
{
    while (*index < table->made) {
        struct slot *slot = slot_at(table, (*index)++);

        if ((slot->generation & 1) != 0) {
            return slot + 1;
        }
    }
    return NULL;
}

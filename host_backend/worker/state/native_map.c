/* Map from the driver's handles to a session's objects: linear probing; removal moves later entries
 * back. */
#include "host_backend/worker/state/native_map.h"

#include "host_backend/worker/state/object.h"
#include <stdlib.h>

static size_t place(const struct weir_native_map *map, int kind, const void *native)
{
    uint64_t key = (uint64_t)(uintptr_t)native * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)kind;

    return (size_t)((key >> 20 ^ key) & (map->room - 1));
}

static enum weir_status grow(struct weir_native_map *map)
{
    struct weir_native_map bigger = {.room = map->room != 0 ? map->room * 2 : 64, .n = map->n};

    bigger.slots = calloc(bigger.room, sizeof(struct weir_object *));
    WEIR_FAIL_IF(!bigger.slots, WEIR_ERR_NO_MEMORY);
    for (size_t i = 0; i < map->room; i++) {
        struct weir_object *o = map->slots[i];

        if (!o) {
            continue;
        }
        size_t at = place(&bigger, o->kind, o->native);
        while (bigger.slots[at]) {
            at = (at + 1) & (bigger.room - 1);
        }
        bigger.slots[at] = o;
    }
    free(map->slots);
    *map = bigger;
    return WEIR_OK;
}

struct weir_object *weir_native_find(const struct weir_native_map *map, int kind,
                                     const void *native)
{
    if (map->room == 0) {
        return NULL;
    }
    for (size_t at = place(map, kind, native); map->slots[at]; at = (at + 1) & (map->room - 1)) {
        if (map->slots[at]->native == native && map->slots[at]->kind == kind) {
            return map->slots[at];
        }
    }
    return NULL;
}

enum weir_status weir_native_add(struct weir_native_map *map, struct weir_object *object)
{
    WEIR_FAIL_IF(weir_native_find(map, object->kind, object->native), WEIR_ERR_EXISTS);
    WEIR_FAIL_IF(map->n * 2 >= map->room && grow(map) != WEIR_OK, WEIR_ERR_NO_MEMORY);
    size_t at = place(map, object->kind, object->native);
    while (map->slots[at]) {
        at = (at + 1) & (map->room - 1);
    }
    map->slots[at] = object;
    map->n++;
    return WEIR_OK;
}

void weir_native_remove(struct weir_native_map *map, const struct weir_object *object)
{
    size_t mask = map->room - 1, hole, at;

    if (map->room == 0) {
        return;
    }
    hole = place(map, object->kind, object->native);
    while (map->slots[hole] && map->slots[hole] != object) {
        hole = (hole + 1) & mask;
    }
    if (!map->slots[hole]) {
        return;
    }
    map->n--;
    for (at = (hole + 1) & mask; map->slots[at]; at = (at + 1) & mask) {
        size_t home = place(map, map->slots[at]->kind, map->slots[at]->native);

        /* An entry may move back if its home does not lie between the hole and itself. */
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole] = NULL;
}

void weir_native_finish(struct weir_native_map *map)
{
    free(map->slots);
    *map = (struct weir_native_map){0};
}

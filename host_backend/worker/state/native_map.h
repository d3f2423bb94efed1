/* Map from the driver's handles to a session's objects. Owner thread only; zeroed: empty. */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_NATIVE_MAP_H
#define WEIR_HOST_BACKEND_WORKER_STATE_NATIVE_MAP_H

#include "base/status.h"
#include <stddef.h>

struct weir_object;

struct weir_native_map {
    struct weir_object **slots; /* open addressing; owned */
    size_t n, room;             /* room is a power of two */
};

/** Enter an object under its kind and native; WEIR_ERR_EXISTS, WEIR_ERR_NO_MEMORY. */
enum weir_status weir_native_add(struct weir_native_map *map,
                                 struct weir_object *object) WEIR_MUST_CHECK;

/** The object of a driver's handle, or NULL. */
struct weir_object *weir_native_find(const struct weir_native_map *map, int kind,
                                     const void *native);

/** Take an object out; nothing happens if it is not in. */
void weir_native_remove(struct weir_native_map *map, const struct weir_object *object);

void weir_native_finish(struct weir_native_map *map);

#endif

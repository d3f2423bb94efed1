/* Map from the driver's handles to a session's objects. Owner thread only; zeroed: empty. */
#pragma once

#include "base/status.h"
#include <stddef.h>

struct weir_object;

struct weir_native_map {
    struct weir_object **slots; /* open addressing; owned */
    size_t n, room;             /* room is a power of two */
};

/** Add an object under its kind and native handle; WEIR_ERR_EXISTS, WEIR_ERR_NO_MEMORY. */
enum weir_status weir_native_add(struct weir_native_map *map,
                                 struct weir_object *object) WEIR_MUST_CHECK;

/** Find the object of a driver's handle; NULL: none. */
struct weir_object *weir_native_find(const struct weir_native_map *map, int kind,
                                     const void *native);

/** Remove an object; does nothing if it is not in the map. */
void weir_native_remove(struct weir_native_map *map, const struct weir_object *object);

void weir_native_finish(struct weir_native_map *map);

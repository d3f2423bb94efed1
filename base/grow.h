/* Arrays that get longer by one element at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* How many elements an array has room for once it has been made longer. */
static inline size_t weir_grown_room(size_t room)
{
    return room != 0 ? 2 * room : 16;
}

/* @param array  address of the pointer to the elements. @return false: no memory */
static inline bool weir_grow_to(void *array, size_t room, size_t element_bytes)
{
    void *at;
    memcpy(&at, array, sizeof at);
    at = realloc(at, room * element_bytes);
    if (at) {
        memcpy(array, &at, sizeof at);
    }
    return at != NULL;
}

/**
 * Make sure that an array has room for one more element.
 *
 * @param array    variable that points to the elements. It must be NULL if room is 0.
 * @param n, room  number of elements, and variable with the number for which there is room.
 * @return false: no memory; nothing has changed
 */
#define WEIR_GROW(array, n, room)                                                                  \
    ((n) < (room) || (weir_grow_to(&(array), weir_grown_room(room), sizeof *(array)) &&            \
                      ((room) = (__typeof__(room))weir_grown_room(room), true)))

/**
 * The same for an array without a variable for its room: it always has room for a power of two.
 *
 * @param array  variable that points to the elements. It must be NULL if n is 0.
 * @param n      number of elements.
 * @return false: no memory; nothing has changed
 */
#define WEIR_GROW_POWER(array, n)                                                                  \
    (((n) & ((n)-1)) != 0 ||                                                                       \
     weir_grow_to(&(array), (n) != 0 ? 2 * (size_t)(n) : 1, sizeof *(array)))

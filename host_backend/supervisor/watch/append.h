/* Arrays that grow by one element. Private to host_backend/supervisor. */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/** Append a copy of an element to an array; without memory it is dropped. */
static inline void weir_sup_append(void **array, size_t *n, const void *element, size_t size)
{
    void *bigger = realloc(*array, (*n + 1) * size);

    if (bigger) {
        *array = bigger;
        memcpy((char *)bigger + (*n)++ * size, element, size);
    }
}

#include "guest_lib/objects.h"
#include "guest_lib/state.h"
#include <string.h>

/* Most live objects of each kind; the tables commit memory as it is used. */
#define TABLE_CAPACITY (1u << 20)

enum weir_status weir_objects_init(struct weir_objects *objects)
{
    for (unsigned int kind = 1; kind < WEIR_KIND_COUNT; kind++) {
        enum weir_status status = weir_id_table_create((uint8_t)kind, false, TABLE_CAPACITY,
                                                       &objects->tables[kind]);
        if (status != WEIR_OK) {
            weir_objects_finish(objects);
            return status;
        }
    }
    return WEIR_OK;
}

void weir_objects_finish(struct weir_objects *objects)
{
    for (unsigned int kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        weir_id_table_destroy(objects->tables[kind]);
        objects->tables[kind] = NULL;
    }
}

uint64_t weir_objects_next_id(void)
{
    return __atomic_add_fetch(&weir_guest.objects.next_id, 1, __ATOMIC_RELAXED);
}

void *weir_object_get(unsigned int kind, const void *handle)
{
    return weir_id_table_get(weir_guest.objects.tables[kind], (uint64_t)(uintptr_t)handle);
}

CUresult weir_object_add(unsigned int kind, void *object, uint64_t *ret_handle)
{
    enum weir_status status =
        weir_id_table_add(weir_guest.objects.tables[kind], object, ret_handle);
    return status == WEIR_OK ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void *weir_object_remove(unsigned int kind, uint64_t handle)
{
    return weir_id_table_remove(weir_guest.objects.tables[kind], handle);
}

/* What stands in the table for kinds that have no struct. */
static char placeholder;

CUresult weir_guest_handle_reserve(unsigned int kind, uint64_t *ret_handle)
{
    return weir_object_add(kind, &placeholder, ret_handle);
}

void weir_guest_handle_drop(unsigned int kind, uint64_t handle)
{
    weir_object_remove(kind, handle);
}

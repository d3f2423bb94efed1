#include "guest_lib/objects.h"
#include "guest_lib/calls.h"
#include "guest_lib/stream.h"
#include <string.h>

/* Most live objects of each kind; the tables commit memory as it is used. */
#define TABLE_CAPACITY (1u << 20)

enum weir_status weir_guest_objects_init(struct weir_objects *objects)
{
    for (unsigned int kind = 1; kind < WEIR_KIND_COUNT; kind++) {
        enum weir_status status =
            weir_id_table_create((uint8_t)kind, false, TABLE_CAPACITY, &objects->tables[kind]);
        if (status != WEIR_OK) {
            weir_guest_objects_finish(objects);
            return status;
        }
    }
    return WEIR_OK;
}

void weir_guest_objects_finish(struct weir_objects *objects)
{
    for (unsigned int kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        weir_id_table_destroy(objects->tables[kind]);
        objects->tables[kind] = NULL;
    }
}

uint64_t weir_guest_objects_next_id(void)
{
    return __atomic_add_fetch(&weir_guest.objects.next_id, 1, __ATOMIC_RELAXED);
}

void *weir_guest_object_get(unsigned int kind, const void *handle)
{
    /* Keep the context of the object from being destroyed until this call ends. */
    weir_calls_enter(WEIR_INSIDE_ANY);
    return weir_id_table_get(weir_guest.objects.tables[kind], (uint64_t)(uintptr_t)handle);
}

CUresult weir_guest_object_add(unsigned int kind, void *object, uint64_t *ret_handle)
{
    enum weir_status status =
        weir_id_table_add(weir_guest.objects.tables[kind], object, ret_handle);
    return status == WEIR_OK ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void *weir_guest_object_remove(unsigned int kind, uint64_t handle)
{
    return weir_id_table_remove(weir_guest.objects.tables[kind], handle);
}

struct arrays {
    unsigned int kind;
    const struct weir_guest_ctx *ctx;
};

static void forget_array_of(weir_handle handle, void *object, void *user)
{
    const struct arrays *arrays = user;
    if (object == arrays->ctx) {
        weir_guest_object_remove(arrays->kind, handle);
    }
}

void weir_arrays_context_gone(const struct weir_guest_ctx *ctx)
{
    static const unsigned int kinds[] = {WEIR_KIND_ARRAY, WEIR_KIND_MIPMAP};
    for (int i = 0; i < 2; i++) {
        struct arrays arrays = {kinds[i], ctx};
        weir_id_table_visit(weir_guest.objects.tables[kinds[i]], forget_array_of, &arrays);
    }
}

/* Placeholder in the table for kinds that have no struct. */
static char placeholder;

CUresult weir_guest_reserve(enum weir_kind kind, uint64_t *ret_handle)
{
    return weir_guest_object_add(kind, &placeholder, ret_handle);
}

void weir_guest_drop(enum weir_kind kind, uint64_t handle)
{
    weir_guest_object_remove(kind, handle);
}

CUresult weir_guest_adopt(enum weir_kind kind, uint64_t *handles, uint32_t n)
{
    struct weir_id_table *table = weir_guest.objects.tables[kind];
    for (uint32_t i = 0; i < n; i++) {
        if (!handles[i] || weir_id_table_get(table, handles[i])) {
            continue;
        }
        WEIR_FAIL_IF(kind == WEIR_KIND_EVENT, CUDA_ERROR_INVALID_HANDLE); /* destroyed meanwhile */
        enum weir_status status = weir_id_table_put(table, handles[i], &placeholder);
        WEIR_FAIL_IF(status == WEIR_ERR_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
        if (status != WEIR_OK && status != WEIR_ERR_EXISTS) { /* imported by two threads */
            return CUDA_ERROR_UNKNOWN;
        }
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_device(CUdevice device, int32_t *ret_ordinal)
{
    const struct weir_guest_device *found = weir_guest_device_get(device);
    WEIR_FAIL_IF(!found, CUDA_ERROR_INVALID_DEVICE);
    *ret_ordinal = found->host_ordinal;
    return CUDA_SUCCESS;
}

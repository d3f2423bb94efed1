/* JIT options: numbers go to the host, log buffers stay in the guest. */
#include "guest_lib/module.h"

#include <string.h>

#define MAX_OPTIONS (sizeof(((struct weir_jit_wire *)0)->ids) / sizeof(uint32_t))

/* Options whose value is a pointer into the program; they are handled here or dropped. */
static bool keep_here(CUjit_option id, void **value, struct weir_jit_wire *wire)
{
    if (id == CU_JIT_INFO_LOG_BUFFER) {
        wire->info_log = *value;
    } else if (id == CU_JIT_ERROR_LOG_BUFFER) {
        wire->error_log = *value;
    } else if (id == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
        wire->info_bytes = (uint32_t)(uintptr_t)*value;
        wire->ret_info_bytes = value;
    } else if (id == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
        wire->error_bytes = (uint32_t)(uintptr_t)*value;
        wire->ret_error_bytes = value;
    } else if (id == CU_JIT_WALL_TIME) {
        wire->ret_wall_time = value;
    } else {
        return id == CU_JIT_GLOBAL_SYMBOL_NAMES || id == CU_JIT_GLOBAL_SYMBOL_ADDRESSES ||
               id == CU_JIT_GLOBAL_SYMBOL_COUNT;
    }
    return true;
}

CUresult weir_jit_read(const struct weir_guest_jit_options *options, struct weir_jit_wire *ret_wire)
{
    struct weir_jit_wire wire = {.count = 0};
    if (options->count > MAX_OPTIONS || (options->count && (!options->ids || !options->values))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned int i = 0; i < options->count; i++) {
        if (!keep_here(options->ids[i], &options->values[i], &wire)) {
            wire.ids[wire.count] = (uint32_t)options->ids[i];
            wire.values[wire.count] = (uintptr_t)options->values[i];
            wire.count++;
        }
    }
    *ret_wire = wire;
    return CUDA_SUCCESS;
}

/* Copy as much of a text as fits. @return the number of bytes, without the NUL */
static void write_log(char *buffer, uint64_t bytes, void **ret_bytes, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    if (buffer && bytes) {
        n = n < bytes - 1 ? n : bytes - 1;
        memcpy(buffer, text ? text : "", n);
        buffer[n] = '\0';
    } else {
        n = 0;
    }
    WEIR_GIVE(ret_bytes, (void *)(uintptr_t)n);
}

void weir_jit_write_logs(const struct weir_jit_wire *wire, const char *info, const char *error)
{
    write_log(wire->info_log, wire->info_bytes, wire->ret_info_bytes, info);
    write_log(wire->error_log, wire->error_bytes, wire->ret_error_bytes, error);
    if (wire->ret_wall_time) {
        *wire->ret_wall_time =
            NULL; /* report 0 (a float), because the host's time is not the program's */
    }
}

/* What stands in for the engine's texture units in a build that has none: objects are refused. */
#include "softgpu/exec/exec.h"

__attribute__((weak)) enum weir_status
weir_exec_texture_register(const struct weir_exec_texture *texture, uint64_t *ret_object)
{
    (void)texture;
    (void)ret_object;
    return WEIR_ERR_UNSUPPORTED;
}

__attribute__((weak)) enum weir_status weir_exec_texture_unregister(uint64_t object)
{
    (void)object;
    return WEIR_ERR_NOT_FOUND;
}

/* cuFunc* and cuKernel* queries, answered from the properties that came with the function. */
#include "guest_lib/ops/forward.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

CUresult weir_function_attribute(struct weir_guest_function *function, CUdevice device,
                                 CUfunction_attribute attribute, int *ret_value)
{
    uint32_t index = (uint32_t)attribute;
    struct weir_function_view view = {0};
    bool kept = index < WEIR_FUNCTION_ATTRIBUTES && weir_function_on(function, device, &view);
    if (kept && (__atomic_load_n(view.mask, __ATOMIC_ACQUIRE) & (1u << index))) {
        *ret_value = __atomic_load_n(&view.attributes[index], __ATOMIC_RELAXED);
        return CUDA_SUCCESS;
    }
    struct weir_op_function_attribute_get_out out;
    const struct weir_op_function_attribute_get_in in = {
        .f = function->handle,
        .attribute = index,
        .device = weir_guest.devices[device].host_ordinal};
    WEIR_TRY(weir_call_function_attribute_get(weir_guest_channel(), &in, &out));
    *ret_value = out.value;
    if (kept && device != function->device) {
        __atomic_store_n(&view.attributes[index], out.value, __ATOMIC_RELAXED);
        __atomic_fetch_or(view.mask, 1u << index, __ATOMIC_RELEASE);
    }
    return CUDA_SUCCESS;
}

/* Limits that the driver certainly accepts; for other values the driver is asked. */
static bool surely_taken(const struct weir_guest_function *function, CUdevice device,
                         uint32_t index, int value)
{
    const int *limits = weir_guest.devices[device].attributes;
    switch (index) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        return device == function->device &&
               (function->attribute_mask >> CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES & 1) &&
               value >= 0 &&
               value <= limits[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] -
                            function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return value >= -1 && value <= 100;
    default:
        return false;
    }
}

CUresult weir_guest_function_attribute_set(struct weir_guest_function *function, CUdevice device,
                                           CUfunction_attribute attribute, int value)
{
    uint32_t index = (uint32_t)attribute;
    struct weir_function_view view = {0};
    bool cached = index < WEIR_FUNCTION_ATTRIBUTES && weir_function_on(function, device, &view) &&
                  (__atomic_load_n(view.mask, __ATOMIC_ACQUIRE) & (1u << index));
    if (cached && __atomic_load_n(&view.attributes[index], __ATOMIC_RELAXED) == value) {
        return CUDA_SUCCESS;
    }
    const struct weir_op_function_attribute_set_in in = {
        .f = function->handle,
        .attribute = index,
        .value = value,
        .device = weir_guest.devices[device].host_ordinal};
    WEIR_TRY(cached && surely_taken(function, device, index, value)
                 ? weir_post_function_attribute_set(weir_guest_channel(), &in)
                 : weir_call_function_attribute_set(weir_guest_channel(), &in, NULL));
    if (cached) {
        __atomic_store_n(&view.attributes[index], value, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&function->epoch, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult weir_guest_function_cache_config(struct weir_guest_function *function, CUfunc_cache config)
{
    __atomic_fetch_add(&function->epoch, 1, __ATOMIC_RELAXED);
    const struct weir_op_function_cache_config_in in = {.f = function->handle,
                                                        .config = (uint32_t)config};
    return weir_post_function_cache_config(weir_guest_channel(), &in);
}

/* Past the last parameter the driver returns INVALID_VALUE; callers use that to count. */
CUresult weir_guest_function_parameter(const struct weir_guest_function *function, size_t index,
                                       size_t *ret_offset, size_t *ret_bytes)
{
    WEIR_FAIL_IF(!ret_offset || index >= function->n_params, CUDA_ERROR_INVALID_VALUE);
    *ret_offset = function->params[index].offset;
    WEIR_GIVE(ret_bytes, function->params[index].bytes);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct weir_guest_function *function = weir_function_get(hfunc);
    WEIR_FAIL_IF(!function, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!hmod, CUDA_ERROR_INVALID_VALUE);
    if (function->library) {
        return weir_guest_cuLibraryGetModule(hmod, (CUlibrary)(uintptr_t)function->library->handle);
    }
    *hmod = (CUmodule)(uintptr_t)function->module->handle;
    return CUDA_SUCCESS;
}

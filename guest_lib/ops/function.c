/* cuFunc* and cuKernel* queries: answered from what came with the function. */
#include "guest_lib/entry.h"
#include "guest_lib/module.h"
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
    CUresult result = weir_call_function_attribute_get(weir_guest_channel(), &in, &out);
    if (result == CUDA_SUCCESS) {
        *ret_value = out.value;
        if (kept && device != function->device) {
            __atomic_store_n(&view.attributes[index], out.value, __ATOMIC_RELAXED);
            __atomic_fetch_or(view.mask, 1u << index, __ATOMIC_RELEASE);
        }
    }
    return result;
}

/* What the driver surely takes; it is asked about the rest. */
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

static CUresult get_attribute(int *ret_value, CUfunction_attribute attribute,
                              struct weir_guest_function *function, CUdevice device)
{
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!ret_value || (uint32_t)attribute >= CU_FUNC_ATTRIBUTE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return weir_function_attribute(function, device, attribute, ret_value);
}

static CUresult set_attribute(struct weir_guest_function *function, CUfunction_attribute attribute,
                              int value, CUdevice device)
{
    uint32_t index = (uint32_t)attribute;
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
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
    CUresult result = cached && surely_taken(function, device, index, value)
                          ? weir_post_function_attribute_set(weir_guest_channel(), &in)
                          : weir_call_function_attribute_set(weir_guest_channel(), &in, NULL);
    if (result == CUDA_SUCCESS) {
        if (cached) {
            __atomic_store_n(&view.attributes[index], value, __ATOMIC_RELAXED);
        }
        __atomic_fetch_add(&function->epoch, 1, __ATOMIC_RELAXED);
    }
    return result;
}

static CUresult set_cache_config(struct weir_guest_function *function, CUfunc_cache config)
{
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if ((uint32_t)config > CU_FUNC_CACHE_PREFER_EQUAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    __atomic_fetch_add(&function->epoch, 1, __ATOMIC_RELAXED);
    const struct weir_op_function_cache_config_in in = {.f = function->handle,
                                                        .config = (uint32_t)config};
    return weir_post_function_cache_config(weir_guest_channel(), &in);
}

/* Past the last parameter the driver says INVALID_VALUE; callers count by that. */
static CUresult get_param(struct weir_guest_function *function, size_t index, size_t *ret_offset,
                          size_t *ret_bytes)
{
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!ret_offset || index >= function->n_params) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_offset = function->params[index].offset;
    if (ret_bytes) {
        *ret_bytes = function->params[index].bytes;
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    return get_attribute(pi, attrib, weir_function_get(hfunc), weir_device_current());
}

CUresult weir_guest_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel,
                                         CUdevice dev)
{
    if (!weir_guest_device_get(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return get_attribute(pi, attrib, weir_function_get(kernel), dev);
}

CUresult weir_guest_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    return set_attribute(weir_function_get(hfunc), attrib, value, weir_device_current());
}

CUresult weir_guest_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
                                         CUdevice dev)
{
    if (!weir_guest_device_get(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return set_attribute(weir_function_get(kernel), attrib, val, dev);
}

CUresult weir_guest_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    return set_cache_config(weir_function_get(hfunc), config);
}

CUresult weir_guest_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    if (!weir_guest_device_get(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return set_cache_config(weir_function_get(kernel), config);
}

/* Bank sizes are fixed since compute capability 5.0: accepted and without effect, as natively. */
CUresult weir_guest_cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
    (void)config;
    return weir_function_get(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult weir_guest_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
                                       size_t *paramSize)
{
    return get_param(weir_function_get(func), paramIndex, paramOffset, paramSize);
}

CUresult weir_guest_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
                                         size_t *paramSize)
{
    return get_param(weir_function_get(kernel), paramIndex, paramOffset, paramSize);
}

CUresult weir_guest_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct weir_guest_function *function = weir_function_get(hfunc);
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!hmod) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (function->library) {
        return weir_guest_cuLibraryGetModule(hmod, (CUlibrary)(uintptr_t)function->library->handle);
    }
    *hmod = (CUmodule)(uintptr_t)function->module->handle;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuFuncLoad(CUfunction function)
{
    struct weir_guest_function *f = weir_function_get(function);

    if (f == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const struct weir_op_function_load_in in = {
        .f = f->handle, .device = weir_guest.devices[weir_device_current()].host_ordinal};
    return weir_call_function_load(weir_guest_channel(), &in, NULL);
}

#include "guest_lib/export_tables.h"
#include "guest_lib/calls.h"
#include "guest_lib/entry.h"
#include "guest_lib/module.h"
#include "guest_lib/stream.h"
#include "proto/common/common.h"
#include "proto/common/ctx_stack.h"
#include <string.h>

static bool front_initialized(void)
{
    return weir_guest_phase_now() == WEIR_PHASE_READY;
}

static int front_driver_version(void)
{
    return weir_guest.driver_version;
}

static int front_device_count(void)
{
    return weir_guest.n_devices;
}

static void front_device(int ordinal, struct weir_common_device *ret_device)
{
    const struct weir_guest_device *device = &weir_guest.devices[ordinal];
    ret_device->uuid = device->uuid;
    ret_device->pci_domain = device->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
    ret_device->pci_bus = device->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID];
    ret_device->pci_device = device->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
}

static CUresult front_primary(CUdevice device, CUcontext *ret_context)
{
    const struct weir_guest_device *found = weir_guest_device_get(device);
    WEIR_FAIL_IF(!found, CUDA_ERROR_INVALID_DEVICE);
    *ret_context = (CUcontext)(uintptr_t)found->primary->handle;
    return CUDA_SUCCESS;
}

static CUcontext front_current(void)
{
    return weir_ctx_stack_current();
}

static struct weir_ctx_storage *front_storage(CUcontext context)
{
    struct weir_guest_ctx *ctx = weir_ctx_get(context);
    if (!ctx || __atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) == WEIR_CTX_DESTROYED) {
        return NULL;
    }
    return &ctx->storage;
}

static CUresult front_context_id(CUcontext context, unsigned long long *ret_id)
{
    struct weir_guest_ctx *ctx = weir_ctx_get(context);
    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    *ret_id = ctx->id;
    return CUDA_SUCCESS;
}

static CUresult front_stream_id(CUcontext context, CUstream stream, unsigned long long *ret_id)
{
    struct weir_guest_stream *found;
    CUresult result;
    if (!stream || stream == CU_STREAM_LEGACY) {
        struct weir_guest_ctx *ctx;
        result = weir_ctx_resolve(context, &ctx);
        found = result == CUDA_SUCCESS ? ctx->legacy : NULL;
    } else {
        result = weir_guest_stream_get(stream, &found);
    }
    if (result == CUDA_SUCCESS) {
        *ret_id = found->id;
    }
    weir_calls_leave(&weir_calls_thread); /* this is no export, which would leave by itself */
    return result;
}

static CUresult front_module_function(CUmodule module, unsigned int index, CUfunction *ret_function)
{
    CUresult result = weir_guest_module_function_at(module, index, ret_function);
    weir_calls_leave(&weir_calls_thread);
    return result;
}

static const struct weir_common_ops ops = {
    .initialized = front_initialized,
    .driver_version = front_driver_version,
    .device_count = front_device_count,
    .device = front_device,
    .primary_context = front_primary,
    .current_context = front_current,
    .context_storage = front_storage,
    .context_id = front_context_id,
    .stream_id = front_stream_id,
    .module_function = front_module_function,
};

void weir_guest_export_tables_start(void)
{
    weir_common_init(&ops);
}

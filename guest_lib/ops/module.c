/* cuModule*: images are stored with the host first, then loaded by hash. */
#include "guest_lib/ops/forward.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#include <stdlib.h>
#include <string.h>

CUresult weir_guest_image_loaded(const struct weir_jit_wire *jit, CUresult asked, const char *info,
                                 const char *error, uint32_t uses_printf, int32_t result)
{
    weir_jit_write_logs(jit, asked == CUDA_SUCCESS ? info : NULL,
                        asked == CUDA_SUCCESS ? error : NULL);
    if (asked == CUDA_SUCCESS && uses_printf) {
        __atomic_store_n(&weir_guest.uses_printf, 1, __ATOMIC_RELEASE);
    }
    return asked == CUDA_SUCCESS ? (CUresult)result : asked;
}

CUresult weir_guest_image_function(struct weir_image_object *image, const char *name,
                                   void *ret_handle)
{
    struct weir_guest_function *function;
    WEIR_TRY(weir_image_function(image, name, &function));
    memcpy(ret_handle, &function->handle, sizeof(function->handle));
    return CUDA_SUCCESS;
}

CUresult weir_guest_image_functions(struct weir_image_object *image, void *ret_handles,
                                    unsigned int room)
{
    WEIR_FAIL_IF(!ret_handles && room, CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < room; i++) {
        struct weir_guest_function *function;
        CUresult result = weir_image_function_at(image, i, &function);
        if (result != CUDA_SUCCESS || !function) {
            return result;
        }
        memcpy((char *)ret_handles + i * sizeof(function->handle), &function->handle,
               sizeof(function->handle));
    }
    return CUDA_SUCCESS;
}

static CUresult load_stored(struct weir_guest_module *module, const struct weir_guest_image *image,
                            const struct weir_jit_wire *jit)
{
    struct weir_op_module_load_in in = {
        .m = module->handle,
        .c = module->ctx->handle,
        .bytes = image->bytes,
        .kind = image->kind,
        .option_ids = jit->ids,
        .n_option_ids = jit->count,
        .option_values = jit->values,
        .n_option_values = jit->count,
        .want_logs = jit->info_log || jit->error_log,
    };
    memcpy(in.hash, image->hash.bytes, sizeof(in.hash));
    struct weir_op_module_load_out out = {0};
    CUresult result = weir_call_module_load(weir_guest_channel(), &in, &out);
    return weir_guest_image_loaded(jit, result, out.info_log, out.error_log, out.uses_printf,
                                   out.result);
}

/* Load an image that the host has. */
static CUresult module_new(const struct weir_guest_image *image, const struct weir_jit_wire *jit,
                           CUmodule *ret_module)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    struct weir_guest_module *module = calloc(1, sizeof(*module));
    WEIR_FAIL_IF(!module, CUDA_ERROR_OUT_OF_MEMORY);
    module->ctx = ctx;
    module->image.module = module;
    CUresult result = weir_guest_object_add(WEIR_KIND_MODULE, module, &module->handle);
    if (result != CUDA_SUCCESS) {
        free(module);
        return result;
    }
    result = load_stored(module, image, jit);
    if (result != CUDA_SUCCESS) {
        weir_module_forget(module);
        return result;
    }
    *ret_module = (CUmodule)(uintptr_t)module->handle;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                                       CUjit_option *options, void **optionValues)
{
    struct weir_jit_wire jit;
    struct weir_guest_image stored;
    WEIR_FAIL_IF(!image || !module, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(
        weir_jit_read(&(struct weir_guest_jit_options){numOptions, options, optionValues}, &jit));
    WEIR_TRY(weir_guest_image_store(image, &stored));
    return module_new(&stored, &jit, module);
}

CUresult weir_guest_cuModuleLoad(CUmodule *module, const char *fname)
{
    const struct weir_jit_wire jit = {.count = 0};
    struct weir_guest_image stored;
    WEIR_FAIL_IF(!module || !fname, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_guest_image_store_file(fname, &stored));
    return module_new(&stored, &jit, module);
}

CUresult weir_guest_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    WEIR_FAIL_IF(!mode, CUDA_ERROR_INVALID_VALUE);
    const char *wanted = getenv("CUDA_MODULE_LOADING");
    /* With EAGER the runtime loads every image of every library at its first call. */
    *mode =
        wanted && strcmp(wanted, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult weir_guest_module_function_at(CUmodule mod, unsigned int index, CUfunction *ret_function)
{
    struct weir_guest_module *module = weir_module_get(mod);
    struct weir_guest_function *function;
    WEIR_FAIL_IF(!module, CUDA_ERROR_INVALID_HANDLE);
    CUresult result = weir_image_function_at(&module->image, index, &function);
    if (result != CUDA_SUCCESS || !function) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_FOUND;
    }
    *ret_function = (CUfunction)(uintptr_t)function->handle;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod,
                                         const char *name)
{
    struct weir_guest_module *module = weir_module_get(hmod);
    WEIR_FAIL_IF(!module, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!name || (!dptr && !bytes), CUDA_ERROR_INVALID_VALUE);
    struct weir_op_module_global_out out;
    const struct weir_op_module_global_in in = {.m = module->handle, .name = name};
    WEIR_TRY(weir_call_module_global(weir_guest_channel(), &in, &out));
    WEIR_TRY(weir_module_note_global(module->ctx, out.address, out.bytes, out.managed, module));
    WEIR_GIVE(dptr, out.address);
    WEIR_GIVE(bytes, out.bytes);
    return CUDA_SUCCESS;
}

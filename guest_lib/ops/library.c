/* cuLibrary* and cuKernel*: libcudart 12 and later load their kernels with these. */
#include "guest_lib/ops/forward.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LIBRARY_OPTIONS 16

struct library_options {
    unsigned int count;
    const CUlibraryOption *ids;
    void **values;
};

static CUresult load_stored(struct weir_library *library, const struct weir_guest_image *image,
                            const struct weir_jit_wire *jit, const struct library_options *options)
{
    uint32_t ids[MAX_LIBRARY_OPTIONS];
    uint64_t values[MAX_LIBRARY_OPTIONS];
    uint32_t count = 0;
    for (unsigned int i = 0; i < options->count; i++) {
        /* The image was copied already, so ignore that the program preserves it. */
        if (options->ids[i] != CU_LIBRARY_BINARY_IS_PRESERVED &&
            options->ids[i] != CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE) {
            ids[count] = (uint32_t)options->ids[i];
            values[count] = options->values ? (uintptr_t)options->values[i] : 0;
            count++;
        }
    }
    struct weir_op_library_load_in in = {
        .l = library->handle,
        .bytes = image->bytes,
        .kind = image->kind,
        .option_ids = jit->ids,
        .n_option_ids = jit->count,
        .option_values = jit->values,
        .n_option_values = jit->count,
        .library_option_ids = ids,
        .n_library_option_ids = count,
        .library_option_values = values,
        .n_library_option_values = count,
        .want_logs = jit->info_log || jit->error_log,
    };
    memcpy(in.hash, image->hash.bytes, sizeof(in.hash));
    struct weir_op_library_load_out out = {0};
    CUresult result = weir_call_library_load(weir_guest_channel(), &in, &out);
    return weir_guest_image_loaded(jit, result, out.info_log, out.error_log, out.uses_printf,
                                   out.result);
}

static CUresult library_new(const struct weir_guest_image *image, const struct weir_jit_wire *jit,
                            const struct library_options *options, CUlibrary *ret_library)
{
    struct weir_library *library = calloc(1, sizeof(*library));
    WEIR_FAIL_IF(!library, CUDA_ERROR_OUT_OF_MEMORY);
    library->image.library = library;
    CUresult result = weir_guest_object_add(WEIR_KIND_LIBRARY, library, &library->handle);
    if (result != CUDA_SUCCESS) {
        free(library);
        return result;
    }
    result = load_stored(library, image, jit, options);
    if (result != CUDA_SUCCESS) {
        weir_library_forget(library);
        return result;
    }
    *ret_library = (CUlibrary)(uintptr_t)library->handle;
    return CUDA_SUCCESS;
}

CUresult weir_guest_library_load(CUlibrary *ret_library, const void *source, bool is_file,
                                 CUjit_option *jit_ids, void **jit_values, unsigned int n_jit,
                                 CUlibraryOption *ids, void **values, unsigned int n)
{
    struct weir_jit_wire wire;
    struct weir_guest_image image;
    WEIR_FAIL_IF(!ret_library || !source || n > MAX_LIBRARY_OPTIONS || (n && !ids),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_jit_read(&(struct weir_guest_jit_options){n_jit, jit_ids, jit_values}, &wire));
    WEIR_TRY(is_file ? weir_guest_image_store_file(source, &image)
                     : weir_guest_image_store(source, &image));
    return library_new(&image, &wire, &(struct library_options){n, ids, values}, ret_library);
}

/* The library's module, looked up once; its functions are found like those of any module. */
CUresult weir_guest_cuLibraryGetModule(CUmodule *pMod, CUlibrary handle)
{
    struct weir_library *library = weir_library_get(handle);
    struct weir_guest_ctx *ctx;
    WEIR_FAIL_IF(!library, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!pMod, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_current(&ctx));
    weir_lock_acquire(&library->image.lock);
    struct weir_guest_module *module = library->modules[ctx->device];
    weir_lock_release(&library->image.lock);
    if (module) {
        *pMod = (CUmodule)(uintptr_t)module->handle;
        return CUDA_SUCCESS;
    }
    module = calloc(1, sizeof(*module));
    WEIR_FAIL_IF(!module, CUDA_ERROR_OUT_OF_MEMORY);
    module->ctx = ctx;
    module->library = library;
    module->image.module = module;
    CUresult result = weir_guest_object_add(WEIR_KIND_MODULE, module, &module->handle);
    if (result != CUDA_SUCCESS) {
        free(module);
        return result;
    }
    const struct weir_op_library_module_in in = {
        .l = library->handle, .m = module->handle, .c = ctx->handle};
    result = weir_call_library_module(weir_guest_channel(), &in, NULL);
    if (result != CUDA_SUCCESS) {
        weir_module_forget(module);
        return result;
    }
    weir_lock_acquire(&library->image.lock);
    library->modules[ctx->device] = module;
    weir_lock_release(&library->image.lock);
    *pMod = (CUmodule)(uintptr_t)module->handle;
    return CUDA_SUCCESS;
}

/* cudart asks twice for each copy to or from a symbol. The answer stays the same until a context is
 * destroyed. */
static bool find_variable(struct weir_library *library, const char *name, CUdevice device,
                          struct weir_op_library_global_out *out)
{
    WEIR_GUEST_LOCKED(&library->image.lock);
    const struct weir_library_variable *v = WEIR_LINKED(
        each, library->variables, each->device == device && strcmp(each->name, name) == 0);
    if (v) {
        *out = (struct weir_op_library_global_out){.address = v->address, .bytes = v->bytes};
    }
    return v;
}

static void keep_variable(struct weir_library *library, const char *name, CUdevice device,
                          const struct weir_op_library_global_out *out)
{
    size_t name_bytes = strlen(name) + 1;
    struct weir_library_variable *v = malloc(sizeof(*v) + name_bytes);
    if (!v) {
        return; /* the next query asks again */
    }
    *v = (struct weir_library_variable){
        .device = device, .address = out->address, .bytes = out->bytes};
    memcpy(v->name, name, name_bytes);
    WEIR_GUEST_LOCKED(&library->image.lock);
    WEIR_PUSH(library->variables, v);
}

static CUresult ask_variable(struct weir_library *library, const char *name, bool managed,
                             struct weir_op_library_global_out *out)
{
    const struct weir_op_library_global_in in = {
        .l = library->handle, .name = name, .managed = managed};
    struct weir_guest_ctx *ctx;
    bool kept = !managed && weir_ctx_current(&ctx) == CUDA_SUCCESS;
    if (kept && find_variable(library, name, ctx->device, out)) {
        return CUDA_SUCCESS;
    }
    CUresult result = weir_call_library_global(weir_guest_channel(), &in, out);
    if (result == CUDA_SUCCESS && kept) {
        keep_variable(library, name, ctx->device, out);
    }
    return result;
}

CUresult weir_guest_library_global(CUlibrary handle, const char *name, bool managed,
                                   CUdeviceptr *ret_address, size_t *ret_bytes)
{
    struct weir_library *library = weir_library_get(handle);
    WEIR_FAIL_IF(!library, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!name || (!ret_address && !ret_bytes), CUDA_ERROR_INVALID_VALUE);
    struct weir_op_library_global_out out;
    WEIR_TRY(ask_variable(library, name, managed, &out));
    WEIR_TRY(weir_module_note_global(NULL, out.address, out.bytes, out.managed, library));
    WEIR_GIVE(ret_address, out.address);
    WEIR_GIVE(ret_bytes, out.bytes);
    return CUDA_SUCCESS;
}

/*
 * Libraries: images without a context. A library is loaded into each context that uses it, and each
 * of its kernels has one function in each context.
 */
#include "base/grow.h"
#include "softgpu/driver/forward.h"

#include <stdlib.h>
#include <string.h>

static void library_release(void *object)
{
    struct weir_soft_library *library = object;
    weir_soft_image_finish(&library->image);
    free(library->instances);
    free(library->kernels);
}

static void kernel_release(void *object)
{
    struct weir_soft_kernel *kernel = object;
    free(kernel->name);
}

static void function_adopt(struct weir_soft_function *function,
                           const struct weir_soft_kernel *kernel, int ordinal)
{
    if (kernel->max_dynamic_shared[ordinal] >= 0) {
        function->max_dynamic_shared = kernel->max_dynamic_shared[ordinal];
    }
    function->carveout = kernel->carveout;
    function->cluster_policy = kernel->cluster_policy;
    function->non_portable_cluster = kernel->non_portable_cluster;
    function->of_kernel = (struct weir_soft_kernel *)(uintptr_t)kernel;
}

static void instance_adopt(const struct weir_soft_library *library,
                           const struct weir_soft_module *module)
{
    for (uint32_t i = 0; i < library->n_kernels; i++) {
        struct weir_soft_function *f = weir_soft_module_function(module, library->kernels[i]->name);
        if (f) {
            function_adopt(f, library->kernels[i], module->object.ctx->device->ordinal);
        }
    }
}

static CUresult instance_load(struct weir_soft_library *library, struct weir_soft_ctx *ctx,
                              struct weir_soft_log *log, struct weir_soft_module **ret_module)
{
    WEIR_FAIL_IF(!WEIR_GROW_POWER(library->instances, library->n_instances),
                 CUDA_ERROR_OUT_OF_MEMORY);
    struct weir_soft_module *module;
    WEIR_TRY(weir_soft_module_load(ctx, &library->image, log, &module));
    module->library = library;
    library->instances[library->n_instances++] = module;
    instance_adopt(library, module);
    *ret_module = module;
    return CUDA_SUCCESS;
}

static CUresult instance_of(struct weir_soft_library *library, struct weir_soft_ctx *ctx,
                            struct weir_soft_module **ret_module)
{
    for (uint32_t i = 0; i < library->n_instances; i++) {
        if (library->instances[i]->object.ctx == ctx) {
            *ret_module = library->instances[i];
            return CUDA_SUCCESS;
        }
    }
    struct weir_soft_log log = {{0}};
    return instance_load(library, ctx, &log, ret_module);
}

static void forget_in(void *object, void *user)
{
    struct weir_soft_library *library = object;
    for (uint32_t i = 0; i < library->n_instances; i++) {
        struct weir_soft_module *module = library->instances[i];
        if (module->object.ctx == user) {
            library->instances[i] = library->instances[--library->n_instances];
            weir_soft_module_drop(module);
            return;
        }
    }
}

void weir_soft_library_forget_ctx(struct weir_soft_ctx *ctx)
{
    weir_soft_object_visit(WEIR_SOFT_LIBRARY, forget_in, ctx);
}

/* Find any instance, for queries without a context. If there is none, load one on device 0. */
static CUresult any_instance(struct weir_soft_library *library,
                             struct weir_soft_module **ret_module)
{
    struct weir_soft_ctx *ctx;
    if (library->n_instances > 0) {
        *ret_module = library->instances[0];
        return CUDA_SUCCESS;
    }
    if (weir_soft_ctx_current(&ctx) != CUDA_SUCCESS) {
        ctx = weir_soft_device_at(0)->primary;
    }
    return instance_of(library, ctx, ret_module);
}

CUresult weir_soft_library_find(CUlibrary handle, struct weir_soft_library **ret_library)
{
    struct weir_soft_library *library = weir_soft_object_find(WEIR_SOFT_LIBRARY, handle);
    WEIR_FAIL_IF(!library, CUDA_ERROR_INVALID_HANDLE);
    *ret_library = library;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ load and unload */

static CUresult library_make(CUlibrary *ret, struct weir_soft_image *image, bool now,
                             struct weir_soft_log *log)
{
    WEIR_TRY(weir_soft_image_verdict(image));
    struct weir_soft_library *library =
        weir_soft_object_new(WEIR_SOFT_LIBRARY, sizeof(*library), NULL, library_release);
    WEIR_FAIL_IF(!library, CUDA_ERROR_OUT_OF_MEMORY);
    library->image = *image;
    memset(image, 0, sizeof(*image));
    if (now) { /* plain PTX: its errors belong to this call */
        struct weir_soft_ctx *ctx;
        struct weir_soft_module *module;
        if (weir_soft_ctx_current(&ctx) != CUDA_SUCCESS) {
            ctx = weir_soft_device_at(0)->primary;
        }
        CUresult result = instance_load(library, ctx, log, &module);
        if (result != CUDA_SUCCESS) {
            weir_soft_object_retire(library);
            return result;
        }
    }
    *ret = (CUlibrary)library;
    return CUDA_SUCCESS;
}

/* Loading and unloading wait for the current context's work if the environment says so. */
static void wait_here(void)
{
    struct weir_soft_ctx *ctx;
    if (weir_soft_ctx_current(&ctx) == CUDA_SUCCESS) {
        weir_soft_ctx_wait_for_code(ctx);
    }
}

static uint32_t capability_here(void)
{
    struct weir_soft_ctx *ctx;
    return weir_soft_ctx_current(&ctx) == CUDA_SUCCESS ? ctx->device->compute_capability
                                                       : weir_soft_device_at(0)->compute_capability;
}

/* @param bytes  0: not known, the image tells. */
static CUresult load(CUlibrary *ret, const char *data, size_t bytes, bool now,
                     const struct weir_soft_jit *jit, void **values)
{
    struct weir_soft_log log = {{0}};
    struct weir_soft_image image = {0};
    uint32_t capability = capability_here();
    CUresult result = bytes != 0 ? weir_soft_image_read_sized(data, bytes, capability, &image, &log)
                                 : weir_soft_image_read(data, capability, &image, &log);
    if (result == CUDA_SUCCESS) {
        wait_here();
        result = library_make(ret, &image, now, &log);
    }
    weir_soft_image_finish(&image);
    weir_soft_jit_report(jit, values, &log);
    return result;
}

CUresult weir_soft_cuLibraryLoadData(CUlibrary *ret, const void *data, CUjit_option *options,
                                     void **values, unsigned int n_options,
                                     CUlibraryOption *library_options, void **library_values,
                                     unsigned int n_library_options)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_jit jit;
    WEIR_FAIL_IF(!ret || !data || (n_library_options > 0 && (!library_options || !library_values)),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_jit_parse(n_options, options, values, &jit));
    char first = *(const char *)data;
    bool text = first == '/' || first == '.' || first == '\n';
    return load(ret, data, 0, text || n_options > 0, &jit, values);
}

CUresult weir_soft_cuLibraryLoadFromFile(CUlibrary *ret, const char *path, CUjit_option *options,
                                         void **values, unsigned int n_options,
                                         CUlibraryOption *library_options, void **library_values,
                                         unsigned int n_library_options)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_jit jit;
    char *data;
    size_t bytes;
    WEIR_FAIL_IF(!ret || !path || (n_library_options > 0 && (!library_options || !library_values)),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_jit_parse(n_options, options, values, &jit));
    WEIR_TRY(weir_soft_file_read(path, &data, &bytes));
    CUresult result = load(ret, data, bytes, true, &jit, values);
    free(data);
    return result;
}

CUresult weir_soft_cuLibraryUnload(CUlibrary handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_library *library;
    wait_here();
    WEIR_TRY(weir_soft_library_find(handle, &library));
    uint32_t n = library->n_instances;
    library->n_instances = 0;
    for (uint32_t i = 0; i < n; i++) {
        weir_soft_module_drop(library->instances[i]);
    }
    for (uint32_t i = 0; i < library->n_kernels; i++) {
        weir_soft_object_retire(library->kernels[i]);
    }
    weir_soft_object_retire(library);
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ kernels */

static struct weir_soft_kernel *kernel_of(struct weir_soft_library *library, const char *name)
{
    for (uint32_t i = 0; i < library->n_kernels; i++) {
        if (strcmp(library->kernels[i]->name, name) == 0) {
            return library->kernels[i];
        }
    }
    WEIR_FAIL_IF(!WEIR_GROW_POWER(library->kernels, library->n_kernels), NULL);
    struct weir_soft_kernel *kernel =
        weir_soft_object_new(WEIR_SOFT_KERNEL, sizeof(*kernel), NULL, kernel_release);
    char *copy = strdup(name);
    if (!kernel || !copy) {
        free(copy);
        weir_soft_object_retire(kernel);
        return NULL;
    }
    kernel->name = copy;
    kernel->library = library;
    kernel->carveout = -1;
    for (int i = 0; i < WEIR_SOFT_MAX_DEVICES; i++) {
        kernel->max_dynamic_shared[i] = -1;
    }
    library->kernels[library->n_kernels++] = kernel;
    for (uint32_t i = 0; i < library->n_instances; i++) {
        struct weir_soft_function *f = weir_soft_module_function(library->instances[i], name);
        if (f) {
            f->of_kernel = kernel;
        }
    }
    return kernel;
}

CUresult weir_soft_cuLibraryGetKernel(CUkernel *ret, CUlibrary handle, const char *name)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_library *library;
    struct weir_soft_module *module;
    WEIR_FAIL_IF(!ret || !name || name[0] == '\0', CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_library_find(handle, &library));
    WEIR_TRY(any_instance(library, &module));
    WEIR_FAIL_IF(!weir_soft_module_function(module, name), CUDA_ERROR_NOT_FOUND);
    struct weir_soft_kernel *kernel = kernel_of(library, name);
    WEIR_FAIL_IF(!kernel, CUDA_ERROR_OUT_OF_MEMORY);
    *ret = (CUkernel)kernel;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_library *library;
    struct weir_soft_module *module;
    WEIR_FAIL_IF(!count, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_library_find(handle, &library));
    WEIR_TRY(any_instance(library, &module));
    *count = module->n_functions;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int n, CUlibrary handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_library *library;
    struct weir_soft_module *module;
    WEIR_FAIL_IF(!kernels || n == 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_library_find(handle, &library));
    WEIR_TRY(any_instance(library, &module));
    for (unsigned i = 0; i < n && i < module->n_functions; i++) {
        struct weir_soft_kernel *kernel = kernel_of(library, module->functions[i]->info->name);
        WEIR_FAIL_IF(!kernel, CUDA_ERROR_OUT_OF_MEMORY);
        kernels[i] = (CUkernel)kernel;
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuLibraryGetModule(CUmodule *ret, CUlibrary handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_library *library;
    struct weir_soft_module *module;
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!ret, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(weir_soft_library_find(handle, &library));
    WEIR_TRY(instance_of(library, ctx, &module));
    *ret = (CUmodule)module;
    return CUDA_SUCCESS;
}

CUresult weir_soft_library_global(CUlibrary handle, const char *name, bool managed,
                                  CUdeviceptr *address, size_t *bytes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_library *library;
    struct weir_soft_module *module;
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!name || name[0] == '\0' || (!address && !bytes), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_library_find(handle, &library));
    CUresult result = weir_soft_ctx_current(&ctx);
    if (result != CUDA_SUCCESS && !managed) {
        return result;
    }
    WEIR_TRY(managed ? any_instance(library, &module) : instance_of(library, ctx, &module));
    return weir_soft_module_global(module, name, managed, address, bytes);
}

/* ------------------------------------------------------------------ functions of kernels */

CUresult weir_soft_function_find(void *handle, struct weir_soft_ctx *ctx,
                                 struct weir_soft_function **ret_function)
{
    struct weir_soft_function *function = weir_soft_object_find(WEIR_SOFT_FUNCTION, handle);
    if (!function) {
        struct weir_soft_kernel *kernel = weir_soft_object_find(WEIR_SOFT_KERNEL, handle);
        struct weir_soft_module *module;
        WEIR_FAIL_IF(!kernel, CUDA_ERROR_INVALID_HANDLE);
        WEIR_TRY(instance_of(kernel->library, ctx, &module));
        function = weir_soft_module_function(module, kernel->name);
        WEIR_FAIL_IF(!function, CUDA_ERROR_NOT_FOUND);
    } else if (function->object.ctx != ctx) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *ret_function = function;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuKernelGetFunction(CUfunction *ret, CUkernel handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_function *function;
    WEIR_FAIL_IF(!ret, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!weir_soft_object_find(WEIR_SOFT_KERNEL, handle), CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(weir_soft_function_find(handle, ctx, &function));
    *ret = (CUfunction)function;
    return CUDA_SUCCESS;
}

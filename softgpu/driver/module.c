/*
 * Modules: PTX texts loaded into a context by the kernel engine, their functions and variables.
 *
 * A function holds a reference to its module, so that queued launches outlive cuModuleUnload; the
 * module only borrows its functions.
 */
#include "softgpu/driver/forward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct weir_soft_forms *weir_soft_forms;

/* ------------------------------------------------------------------ JIT options */

CUresult weir_soft_jit_parse(unsigned n, const CUjit_option *options, void **values,
                             struct weir_soft_jit *jit)
{
    memset(jit, 0, sizeof(*jit));
    jit->error_size_at = jit->info_size_at = -1;
    WEIR_FAIL_IF(n > 0 && (!options || !values), CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < n; i++) {
        switch ((int)options[i]) {
        case CU_JIT_ERROR_LOG_BUFFER:
            jit->error_log = values[i];
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            jit->error_bytes = (size_t)(uint32_t)(uintptr_t)values[i];
            jit->error_size_at = (int)i;
            break;
        case CU_JIT_INFO_LOG_BUFFER:
            jit->info_log = values[i];
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            jit->info_bytes = (size_t)(uint32_t)(uintptr_t)values[i];
            jit->info_size_at = (int)i;
            break;
        default:
            WEIR_FAIL_IF((unsigned)options[i] >= CU_JIT_NUM_OPTIONS, CUDA_ERROR_INVALID_VALUE);
            break;
        }
    }
    return CUDA_SUCCESS;
}

static void fill_log(char *buffer, size_t room, void **size_slot, const char *text)
{
    size_t used = 0;
    if (buffer && room > 0) {
        used = strlen(text);
        used = used >= room ? room - 1 : used;
        memcpy(buffer, text, used);
        buffer[used] = '\0';
    }
    if (size_slot) {
        *size_slot = (void *)(uintptr_t)used;
    }
}

void weir_soft_jit_report(const struct weir_soft_jit *jit, void **values,
                          const struct weir_soft_log *log)
{
    fill_log(jit->error_log, jit->error_bytes,
             jit->error_size_at >= 0 ? &values[jit->error_size_at] : NULL, log->text);
    fill_log(jit->info_log, jit->info_bytes,
             jit->info_size_at >= 0 ? &values[jit->info_size_at] : NULL, "");
}

/* ------------------------------------------------------------------ loading */

static enum weir_status variable_allocate(void *user, uint64_t bytes, uint64_t alignment,
                                          bool managed, uint64_t *ret_address)
{
    struct weir_soft_alloc *alloc;
    CUresult result =
        weir_soft_space_alloc(user, bytes == 0 ? 1 : bytes, alignment,
                              managed ? WEIR_SOFT_ALLOC_MANAGED : WEIR_SOFT_ALLOC_MODULE, &alloc);
    WEIR_FAIL_IF(result != CUDA_SUCCESS, WEIR_ERR_NO_MEMORY);
    memset((void *)(uintptr_t)alloc->base, 0, alloc->bytes);
    *ret_address = alloc->base;
    return WEIR_OK;
}

static void variable_release(void *user, uint64_t address)
{
    (void)user;
    struct weir_soft_alloc *alloc = weir_soft_space_at(address);
    if (alloc) { /* NULL: the context has freed it */
        weir_soft_space_free(alloc);
    }
}

static CUresult load_result(enum weir_status status)
{
    switch ((int)status) {
    case WEIR_OK:
        return CUDA_SUCCESS;
    case WEIR_ERR_NO_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case WEIR_ERR_VERSION:
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    default:
        return CUDA_ERROR_INVALID_PTX;
    }
}

static void module_release(void *object)
{
    struct weir_soft_module *module = object;
    if (module->twins) {
        weir_soft_forms->unload(module->twins);
    }
    weir_exec_module_destroy(module->exec);
    free(module->functions);
}

static void function_release(void *object)
{
    struct weir_soft_function *function = object;
    weir_soft_object_put(function->module);
}

static bool module_add_function(struct weir_soft_module *module,
                                const struct weir_exec_kernel *kernel)
{
    struct weir_soft_function *function = weir_soft_object_new(
        WEIR_SOFT_FUNCTION, sizeof(*function), module->object.ctx, function_release);
    WEIR_FAIL_IF(!function, false);
    function->module = weir_soft_object_ref(module);
    function->kernel = kernel;
    function->info = weir_exec_kernel_info(kernel);
    function->carveout = -1;
    function->max_dynamic_shared = function->info->static_shared_bytes < 49152
                                       ? (int)(49152 - function->info->static_shared_bytes)
                                       : 0;
    module->functions[module->n_functions++] = function;
    return true;
}

/* The newest PTX that a 13.0 driver reads. */
#define MAX_PTX_VERSION 90u

/* Does a text require a newer PTX version? The parser reports all other errors. */
static bool is_too_new(const struct weir_exec_source *source)
{
    unsigned major, minor;
    const char *at = memmem(source->text, source->bytes, ".version", 8);
    return at && sscanf(at, ".version %u.%u", &major, &minor) == 2 && major < 1000 &&
           major * 10 + minor > MAX_PTX_VERSION;
}

CUresult weir_soft_module_load(struct weir_soft_ctx *ctx, const struct weir_soft_image *image,
                               struct weir_soft_log *log, struct weir_soft_module **ret_module)
{
    struct weir_exec_device *engine;
    struct weir_diag diag = {0};
    for (uint32_t i = 0; i < image->n_sources; i++) {
        if (is_too_new(&image->sources[i])) {
            snprintf(log->text, sizeof(log->text), "the PTX version is newer than %u.%u",
                     MAX_PTX_VERSION / 10, MAX_PTX_VERSION % 10);
            return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
        }
    }
    WEIR_TRY(weir_soft_device_engine(ctx->device, &engine));
    struct weir_soft_module *module =
        weir_soft_object_new(WEIR_SOFT_MODULE, sizeof(*module), ctx, module_release);
    WEIR_FAIL_IF(!module, CUDA_ERROR_OUT_OF_MEMORY);
    const struct weir_exec_memory memory = {variable_allocate, variable_release, ctx};
    enum weir_status status =
        weir_soft_forms ? weir_soft_forms->load(engine, image->sources, image->n_sources, &memory,
                                                &diag, &module->exec, &module->twins)
                        : weir_exec_module_load(engine, image->sources, image->n_sources, &memory,
                                                &diag, &module->exec);
    CUresult result = load_result(status);
    if (result != CUDA_SUCCESS) {
        snprintf(log->text, sizeof(log->text), "ptxas application ptx input, line %u; error   : %s",
                 diag.line, diag.message[0] != '\0' ? diag.message : weir_status_text(status));
        weir_soft_object_retire(module);
        return result;
    }
    uint32_t n = 0;
    while (weir_exec_module_kernel_at(module->exec, n)) {
        n++;
    }
    module->functions = calloc(n + 1, sizeof(struct weir_soft_function *));
    bool good = module->functions != NULL;
    for (uint32_t i = 0; good && i < n; i++) {
        const struct weir_exec_kernel *kernel = weir_exec_module_kernel_at(module->exec, i);
        good = (weir_soft_forms && weir_soft_forms->hides(kernel)) ||
               module_add_function(module, kernel);
    }
    if (!good) {
        weir_soft_module_drop(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_module = module;
    return CUDA_SUCCESS;
}

void weir_soft_module_drop(struct weir_soft_module *module)
{
    weir_soft_object_ref(module);
    uint32_t n = module->n_functions;
    module->n_functions = 0;
    for (uint32_t i = 0; i < n; i++) {
        weir_soft_object_retire(module->functions[i]);
    }
    weir_soft_object_retire(module);
    weir_soft_object_put(module);
}

void weir_soft_ctx_wait_for_code(struct weir_soft_ctx *ctx)
{
    if (weir_soft_device_waits()) {
        weir_soft_ctx_wait_keeping_out(ctx);
    }
}

static CUresult load_image(CUmodule *ret, const struct weir_soft_image *image,
                           struct weir_soft_log *log)
{
    struct weir_soft_ctx *ctx;
    struct weir_soft_module *module;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(weir_soft_image_verdict(image));
    weir_soft_ctx_wait_for_code(ctx);
    WEIR_TRY(weir_soft_module_load(ctx, image, log, &module));
    *ret = (CUmodule)module;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuModuleLoadDataEx(CUmodule *ret, const void *data, unsigned int n_options,
                                      CUjit_option *options, void **values)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_jit jit;
    struct weir_soft_ctx *ctx;
    struct weir_soft_log log = {{0}};
    struct weir_soft_image image = {0};
    WEIR_FAIL_IF(!ret || !data, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_jit_parse(n_options, options, values, &jit));
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    CUresult result = weir_soft_image_read(data, ctx->device->compute_capability, &image, &log);
    WEIR_THEN(result, load_image(ret, &image, &log));
    weir_soft_image_finish(&image);
    weir_soft_jit_report(&jit, values, &log);
    return result;
}

CUresult weir_soft_file_read(const char *path, char **ret_data, size_t *ret_bytes)
{
    FILE *file = fopen(path, "rb");
    WEIR_FAIL_IF(!file, CUDA_ERROR_FILE_NOT_FOUND);
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
    char *data = NULL;
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (end > 0 && fseek(file, 0, SEEK_SET) == 0) {
        data = malloc((size_t)end + 1);
        result = !data ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        if (data && fread(data, 1, (size_t)end, file) != (size_t)end) {
            result = CUDA_ERROR_FILE_NOT_FOUND;
        }
    }
    fclose(file);
    if (result != CUDA_SUCCESS) {
        free(data);
        return result;
    }
    data[end] = '\0';
    *ret_data = data;
    *ret_bytes = (size_t)end;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuModuleLoad(CUmodule *ret, const char *path)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_log log = {{0}};
    struct weir_soft_image image = {0};
    char *data;
    size_t bytes;
    WEIR_FAIL_IF(!ret || !path, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(weir_soft_file_read(path, &data, &bytes));
    CUresult result =
        weir_soft_image_read_sized(data, bytes, ctx->device->compute_capability, &image, &log);
    WEIR_THEN(result, load_image(ret, &image, &log));
    weir_soft_image_finish(&image);
    free(data);
    return result;
}

CUresult weir_soft_cuModuleUnload(CUmodule handle)
{
    weir_soft_device_free_slowly();
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_module *module = weir_soft_object_find(WEIR_SOFT_MODULE, handle);
    WEIR_FAIL_IF(!module || module->library, CUDA_ERROR_INVALID_HANDLE);
    weir_soft_ctx_wait_for_code(ctx);
    /* The module may have been unloaded meanwhile. */
    module = weir_soft_object_find(WEIR_SOFT_MODULE, handle);
    WEIR_FAIL_IF(!module, CUDA_ERROR_INVALID_HANDLE);
    weir_soft_module_drop(module);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    WEIR_FAIL_IF(!mode, CUDA_ERROR_INVALID_VALUE);
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ what is in a module */

CUresult weir_soft_module_find(CUmodule handle, struct weir_soft_module **ret_module)
{
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_module *module = weir_soft_object_find(WEIR_SOFT_MODULE, handle);
    WEIR_FAIL_IF(!module, CUDA_ERROR_INVALID_HANDLE);
    *ret_module = module;
    return CUDA_SUCCESS;
}

struct weir_soft_function *weir_soft_module_function(const struct weir_soft_module *module,
                                                     const char *name)
{
    const struct weir_exec_kernel *kernel = weir_exec_module_kernel(module->exec, name);
    for (uint32_t i = 0; kernel && i < module->n_functions; i++) {
        if (module->functions[i]->kernel == kernel) {
            return module->functions[i];
        }
    }
    return NULL;
}

CUresult weir_soft_cuModuleGetFunction(CUfunction *ret, CUmodule handle, const char *name)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_module *module;
    WEIR_FAIL_IF(!ret || !name || name[0] == '\0', CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_module_find(handle, &module));
    struct weir_soft_function *function = weir_soft_module_function(module, name);
    WEIR_FAIL_IF(!function, CUDA_ERROR_NOT_FOUND);
    *ret = (CUfunction)function;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int n,
                                              CUmodule handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_module *module;
    WEIR_FAIL_IF(!functions || n == 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_module_find(handle, &module));
    for (unsigned i = 0; i < n && i < module->n_functions; i++) {
        functions[i] = (CUfunction)module->functions[i];
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_module_global(const struct weir_soft_module *module, const char *name,
                                 bool managed, CUdeviceptr *address, size_t *bytes)
{
    struct weir_exec_global global;
    if (weir_exec_module_global(module->exec, name, &global) != WEIR_OK ||
        (managed && !global.managed)) {
        return CUDA_ERROR_NOT_FOUND;
    }
    WEIR_GIVE(address, global.address);
    WEIR_GIVE(bytes, global.bytes);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule handle,
                                        const char *name)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_module *module;
    WEIR_FAIL_IF(!name || name[0] == '\0' || (!address && !bytes), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_module_find(handle, &module));
    return weir_soft_module_global(module, name, false, address, bytes);
}

CUresult weir_soft_cuModuleGetTexRef(CUtexref *ret, CUmodule handle, const char *name)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_module *module;
    WEIR_FAIL_IF(!ret || !name, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_module_find(handle, &module));
    return CUDA_ERROR_NOT_FOUND; /* the toolkits that Weir supports have no texture references */
}

CUresult weir_soft_cuModuleGetSurfRef(CUsurfref *ret, CUmodule handle, const char *name)
{
    return weir_soft_cuModuleGetTexRef((CUtexref *)ret, handle, name);
}

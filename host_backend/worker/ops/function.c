/* Functions and kernels: finds them by name, and reads all their constant properties. */
#include "host_backend/worker/code/image_closed.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/twins/forms.h"

#include <stdlib.h>
#include <string.h>

#define ATTRIBUTES_MAX 32
#define PARAMS_MAX     4096
#define NAMES_BYTES    1048576u

/* Read the parameters' layout from the driver: it differs between architectures. */
static CUresult read_layout(struct weir_session *s, struct weir_host_function *f, uint32_t *offsets,
                            uint32_t *sizes)
{
    const struct weir_driver *d = s->driver;
    size_t offset, size;

    for (uint32_t i = 0; i < PARAMS_MAX; i++) {
        CUresult result = f->kernel ? d->cuKernelGetParamInfo(f->kernel, i, &offset, &size)
                                    : d->cuFuncGetParamInfo(f->o.native, i, &offset, &size);

        if (result == CUDA_ERROR_INVALID_VALUE) {
            f->layout_known = true; /* index i is one past the last parameter */
            return CUDA_SUCCESS;
        }
        if (result == CUDA_ERROR_NOT_SUPPORTED) {
            return CUDA_SUCCESS; /* a driver before 12.4: the guest reads the image itself */
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
        offsets[i] = (uint32_t)offset;
        sizes[i] = (uint32_t)size;
        f->n_params = i + 1;
        if (offset + size > f->param_bytes) {
            f->param_bytes = (uint32_t)(offset + size);
        }
    }
    f->layout_known = true;
    return CUDA_SUCCESS;
}

static void read_attributes(struct weir_session *s, const struct weir_host_function *f,
                            int32_t values[ATTRIBUTES_MAX], uint32_t *ret_mask)
{
    const struct weir_driver *d = s->driver;

    *ret_mask = 0;
    for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX && i < ATTRIBUTES_MAX; i++) {
        CUfunction_attribute id = (CUfunction_attribute)i;
        int value = 0;
        CUresult result = f->kernel ? d->cuKernelGetAttribute(&value, id, f->kernel,
                                                              s->platform->devices[s->device].cu)
                                    : d->cuFuncGetAttribute(&value, id, f->o.native);

        if (result == CUDA_SUCCESS) {
            values[i] = value;
            *ret_mask |= 1u << i;
        }
    }
}

/* Add a function and describe it in the common fields of both operations' outputs. */
static CUresult enter(struct weir_session *s, struct weir_host_module *owner, uint64_t handle,
                      CUfunction native, CUkernel kernel, struct weir_op_module_function_out *out)
{
    uint32_t *offsets = weir_session_alloc(s, PARAMS_MAX * sizeof *offsets);
    uint32_t *sizes = weir_session_alloc(s, PARAMS_MAX * sizeof *sizes);
    struct weir_host_function *f;
    struct weir_object *o;

    WEIR_FAIL_IF(!offsets || !sizes, CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_TRY(weir_host_object_create(s, WEIR_KIND_FUNCTION, sizeof *f, handle, native, NULL, &o));
    f = (struct weir_host_function *)o;
    f->o.owner = &owner->o;
    f->kernel = kernel;
    f->uses_printf = owner->uses_printf;
    f->may_assert = owner->may_assert;
    f->forms = owner->forms;
    CUresult result = read_layout(s, f, offsets, sizes);
    if (result != CUDA_SUCCESS) {
        weir_host_object_forget(s, o);
        return result;
    }
    read_attributes(s, f, out->attributes, &out->attribute_mask);
    out->param_offsets = offsets;
    out->param_sizes = sizes;
    out->n_param_offsets = out->n_param_sizes = f->n_params;
    return CUDA_SUCCESS;
}

/* Store the function's name, and what depends on it. */
static CUresult keep_name(struct weir_session *s, uint64_t handle, const char *name)
{
    struct weir_host_function *f = weir_host_object_get(s, WEIR_KIND_FUNCTION, handle);
    const struct weir_host_module *owner = (const struct weir_host_module *)f->o.owner;

    f->name = strdup(name);
    if (!f->name) {
        weir_host_object_forget(s, &f->o);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (weir_closed_kernels_has(owner->closed, name)) {
        f->uses_printf = f->may_assert = false;
    }
    return CUDA_SUCCESS;
}

CUresult weir_host_module_function(struct weir_session *s,
                                   const struct weir_op_module_function_in *in,
                                   struct weir_op_module_function_out *out)
{
    struct weir_host_module *m = weir_host_object_get(s, WEIR_KIND_MODULE, in->m);
    CUfunction native;

    WEIR_FAIL_IF(!m, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(s->driver->cuModuleGetFunction(&native, m->o.native, in->name));
    WEIR_TRY(enter(s, m, in->f, native, NULL, out));
    return keep_name(s, in->f, in->name);
}

CUresult weir_host_library_kernel(struct weir_session *s,
                                  const struct weir_op_library_kernel_in *in,
                                  struct weir_op_library_kernel_out *out)
{
    struct weir_op_module_function_out common = {0};
    struct weir_host_module *m;
    CUfunction native;
    CUkernel kernel;

    WEIR_TRY(weir_ops_library(s, in->l, &m));
    WEIR_TRY(s->driver->cuLibraryGetKernel(&kernel, m->o.native, in->name));
    WEIR_TRY(s->driver->cuKernelGetFunction(&native, kernel));
    WEIR_TRY(enter(s, m, in->f, native, kernel, &common));
    m->used = true;
    WEIR_TRY(keep_name(s, in->f, in->name));
    memcpy(out->attributes, common.attributes, sizeof out->attributes);
    out->attribute_mask = common.attribute_mask;
    out->param_offsets = common.param_offsets;
    out->param_sizes = common.param_sizes;
    out->n_param_offsets = common.n_param_offsets;
    out->n_param_sizes = common.n_param_sizes;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- lists of names */

struct names {
    char *text;
    uint32_t bytes;
};

static CUresult add_name(struct names *names, const char *name)
{
    size_t n = strlen(name) + 1;

    WEIR_FAIL_IF(n > NAMES_BYTES - names->bytes, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(names->text + names->bytes, name, n);
    names->bytes += (uint32_t)n;
    return CUDA_SUCCESS;
}

CUresult weir_host_module_functions(struct weir_session *s,
                                    const struct weir_op_module_functions_in *in,
                                    struct weir_op_module_functions_out *out)
{
    struct weir_host_module *m = weir_host_object_get(s, WEIR_KIND_MODULE, in->m);
    struct names names = {weir_session_alloc(s, NAMES_BYTES), 0};

    WEIR_FAIL_IF(!m, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(s->driver->cuModuleGetFunctionCount(&out->count, m->o.native));
    CUfunction *functions = weir_session_alloc(s, (out->count + 1) * sizeof *functions);
    WEIR_FAIL_IF(!functions || !names.text, CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_TRY(s->driver->cuModuleEnumerateFunctions(functions, out->count, m->o.native));
    for (uint32_t i = 0; i < out->count; i++) {
        const char *name;

        WEIR_TRY(s->driver->cuFuncGetName(&name, functions[i]));
        WEIR_TRY(add_name(&names, name));
    }
    out->names = names.text;
    out->n_names = names.bytes;
    return CUDA_SUCCESS;
}

CUresult weir_host_library_kernels(struct weir_session *s,
                                   const struct weir_op_library_kernels_in *in,
                                   struct weir_op_library_kernels_out *out)
{
    struct names names = {weir_session_alloc(s, NAMES_BYTES), 0};
    struct weir_host_module *m;

    WEIR_TRY(weir_ops_library(s, in->l, &m));
    WEIR_TRY(s->driver->cuLibraryGetKernelCount(&out->count, m->o.native));
    CUkernel *kernels = weir_session_alloc(s, (out->count + 1) * sizeof *kernels);
    WEIR_FAIL_IF(!kernels || !names.text, CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_TRY(s->driver->cuLibraryEnumerateKernels(kernels, out->count, m->o.native));
    for (uint32_t i = 0; i < out->count; i++) {
        const char *name;

        WEIR_TRY(s->driver->cuKernelGetName(&name, kernels[i]));
        WEIR_TRY(add_name(&names, name));
    }
    out->names = names.text;
    out->n_names = names.bytes;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- attributes that change */

/* Make the device of an attribute current; a module's function has only one. */
static CUresult enter_device(struct weir_session *s, const struct weir_host_function *f,
                             int32_t device)
{
    WEIR_FAIL_IF(device < 0 || (uint32_t)device >= s->platform->n_devices,
                 CUDA_ERROR_INVALID_DEVICE);
    return weir_session_enter(s, f->kernel ? (uint32_t)device : f->o.device);
}

CUresult weir_host_function_attribute_get(struct weir_session *s,
                                          const struct weir_op_function_attribute_get_in *in,
                                          struct weir_op_function_attribute_get_out *out)
{
    struct weir_host_function *f = weir_ops_function(s, in->f);
    CUfunction_attribute id = (CUfunction_attribute)in->attribute;

    WEIR_FAIL_IF(!f, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(enter_device(s, f, in->device));
    return f->kernel ? s->driver->cuKernelGetAttribute(&out->value, id, f->kernel,
                                                       s->platform->devices[s->device].cu)
                     : s->driver->cuFuncGetAttribute(&out->value, id, f->o.native);
}

CUresult weir_ops_set_attribute(struct weir_session *s, struct weir_host_function *f,
                                CUfunction_attribute id, int value)
{
    CUfunction native;

    WEIR_TRY(weir_function_here(s, f, &native));
    if (f->kernel) {
        WEIR_TRY(s->driver->cuKernelSetAttribute(id, value, f->kernel,
                                                 s->platform->devices[s->device].cu));
    }
    /* The kernel's function already exists, and launches use it. */
    return s->driver->cuFuncSetAttribute(native, id, value);
}

CUresult weir_host_function_load(struct weir_session *s, const struct weir_op_function_load_in *in)
{
    struct weir_host_function *f = weir_ops_function(s, in->f);
    CUfunction native;

    WEIR_FAIL_IF(!f, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(enter_device(s, f, in->device));
    WEIR_TRY(weir_function_here(s, f, &native));
    return weir_function_load(s, f, native);
}

CUresult weir_host_function_attribute_set(struct weir_session *s,
                                          const struct weir_op_function_attribute_set_in *in)
{
    struct weir_host_function *f = weir_ops_function(s, in->f);
    CUfunction_attribute id = (CUfunction_attribute)in->attribute;

    WEIR_FAIL_IF(!f, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(enter_device(s, f, in->device));
    WEIR_TRY(weir_ops_set_attribute(s, f, id, in->value));
    weir_forms_attribute_set(s, f);
    if (in->attribute < WEIR_FUNCTION_SETTABLE) {
        f->set_mask |= 1u << in->attribute;
        f->set_values[in->attribute] = in->value;
    }
    return CUDA_SUCCESS;
}

CUresult weir_host_function_cache_config(struct weir_session *s,
                                         const struct weir_op_function_cache_config_in *in)
{
    struct weir_host_function *f = weir_ops_function(s, in->f);
    CUfunction native;

    WEIR_FAIL_IF(!f, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_function_here(s, f, &native));
    return s->driver->cuFuncSetCacheConfig(native, (CUfunc_cache)in->config);
}

/*
 * Modules, libraries, functions: the objects behind ops/module.c and ops/library.c.
 *
 * A function is looked up at the host once and kept in its image's list. The list is searched
 * linearly, since callers keep the handle. Names are compared exactly.
 */
#include "guest_lib/module.h"

#include "guest_lib/calls.h"
#include "guest_lib/entry.h"
#include "guest_lib/memory.h"
#include "proto/guest_calls.h"
#include <stdlib.h>
#include <string.h>

struct weir_guest_module *weir_module_get(CUmodule module)
{
    return weir_guest_object_get(WEIR_KIND_MODULE, module);
}

struct weir_library *weir_library_get(CUlibrary library)
{
    return weir_guest_object_get(WEIR_KIND_LIBRARY, library);
}

struct weir_guest_function *weir_function_get(const void *function)
{
    return weir_guest_object_get(WEIR_KIND_FUNCTION, function);
}

static struct weir_lock kept; /* held to free a function, or to prevent that */

void weir_functions_keep(bool keep)
{
    if (keep) {
        weir_lock_acquire(&kept);
    } else {
        weir_lock_release(&kept);
    }
}

/* Free a function to which no handle leads any more. */
static void function_free(struct weir_guest_function *function)
{
    weir_functions_keep(true);
    weir_functions_keep(false);
    free(function->name);
    free(function->params);
    for (int i = 0; i < WEIR_GUEST_MAX_DEVICES; i++) {
        free(function->elsewhere[i]);
    }
    free(function);
}

static struct weir_guest_function *find_locked(struct weir_image_object *image, const char *name)
{
    return WEIR_LINKED(f, image->functions, strcmp(f->name, name) == 0);
}

/* A function's properties, as the replies of two operations contain them. */
struct description {
    const int32_t *attributes;
    uint32_t attribute_mask;
    const uint32_t *offsets;
    const uint32_t *sizes;
    uint32_t n_offsets;
    uint32_t n_sizes;
};

static CUresult fill(struct weir_guest_function *function, const struct description *d)
{
    WEIR_FAIL_IF(d->n_offsets != d->n_sizes, CUDA_ERROR_UNKNOWN);
    memcpy(function->attributes, d->attributes, sizeof(function->attributes));
    function->attribute_mask = d->attribute_mask;
    function->n_params = d->n_offsets;
    if (!d->n_offsets) {
        return CUDA_SUCCESS;
    }
    function->params = calloc(d->n_offsets, sizeof(function->params[0]));
    WEIR_FAIL_IF(!function->params, CUDA_ERROR_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < d->n_offsets; i++) {
        function->params[i] =
            (struct weir_function_param){.offset = d->offsets[i], .bytes = d->sizes[i]};
        uint64_t end = (uint64_t)d->offsets[i] + d->sizes[i];
        WEIR_FAIL_IF(end > UINT16_MAX, CUDA_ERROR_UNKNOWN);
        if (end > function->param_bytes) {
            function->param_bytes = (uint32_t)end;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult describe_module(struct weir_guest_function *function)
{
    const struct weir_op_module_function_in in = {
        .m = function->module->handle, .f = function->handle, .name = function->name};
    struct weir_op_module_function_out out;
    WEIR_TRY(weir_call_module_function(weir_guest_channel(), &in, &out));
    return fill(function,
                &(struct description){out.attributes, out.attribute_mask, out.param_offsets,
                                      out.param_sizes, out.n_param_offsets, out.n_param_sizes});
}

static CUresult describe_library(struct weir_guest_function *function)
{
    const struct weir_op_library_kernel_in in = {
        .l = function->library->handle, .f = function->handle, .name = function->name};
    struct weir_op_library_kernel_out out;
    WEIR_TRY(weir_call_library_kernel(weir_guest_channel(), &in, &out));
    return fill(function,
                &(struct description){out.attributes, out.attribute_mask, out.param_offsets,
                                      out.param_sizes, out.n_param_offsets, out.n_param_sizes});
}

/* Look up a function at the host. Two threads may ask at once: the first one's struct is kept. */
static CUresult discover(struct weir_image_object *image, const char *name,
                         struct weir_guest_function **ret_function)
{
    struct weir_guest_function *function = calloc(1, sizeof(*function));
    if (!function || !(function->name = strdup(name))) {
        free(function);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    function->module = image->module;
    function->library = image->library;
    function->device = weir_device_current();
    CUresult result = weir_guest_object_add(WEIR_KIND_FUNCTION, function, &function->handle);
    if (result != CUDA_SUCCESS) {
        function_free(function);
        return result;
    }
    result = image->module ? describe_module(function) : describe_library(function);
    struct weir_guest_function *other = NULL;
    if (result == CUDA_SUCCESS) {
        weir_lock_acquire(&image->lock);
        other = find_locked(image, name);
        result = other || !image->gone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
        if (!other && result == CUDA_SUCCESS) {
            WEIR_PUSH(image->functions, function);
        }
        weir_lock_release(&image->lock);
    }
    if (result != CUDA_SUCCESS || other) {
        weir_guest_object_remove(WEIR_KIND_FUNCTION, function->handle);
        function_free(function);
    }
    if (result == CUDA_SUCCESS) {
        *ret_function = other ? other : function;
    }
    return result;
}

bool weir_function_on(struct weir_guest_function *function, CUdevice device,
                      struct weir_function_view *ret_view)
{
    if (__builtin_expect(device == function->device || !function->library, 1)) {
        *ret_view = (struct weir_function_view){function->attributes, &function->attribute_mask};
        return true;
    }
    struct weir_function_elsewhere **place = &function->elsewhere[device];
    struct weir_function_elsewhere *there = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (!there) {
        struct weir_function_elsewhere *fresh = calloc(1, sizeof *fresh);
        WEIR_FAIL_IF(!fresh, false);
        if (__atomic_compare_exchange_n(place, &there, fresh, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            there = fresh;
        } else {
            free(fresh); /* another thread was first */
        }
    }
    *ret_view = (struct weir_function_view){there->attributes, &there->attribute_mask};
    return true;
}

CUresult weir_image_function(struct weir_image_object *image, const char *name,
                             struct weir_guest_function **ret_function)
{
    weir_lock_acquire(&image->lock);
    struct weir_guest_function *function = find_locked(image, name);
    weir_lock_release(&image->lock);
    if (function) {
        *ret_function = function;
        return CUDA_SUCCESS;
    }
    return discover(image, name, ret_function);
}

/* Store the names of an enumeration, after a check that the bytes hold exactly count strings. */
static CUresult keep_names(struct weir_image_object *image, const void *names, uint32_t bytes,
                           uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < bytes; i++) {
        found += ((const char *)names)[i] == '\0';
    }
    WEIR_FAIL_IF(found != count || (bytes && ((const char *)names)[bytes - 1] != '\0'),
                 CUDA_ERROR_UNKNOWN);
    char *copy = malloc(bytes ? bytes : 1);
    WEIR_FAIL_IF(!copy, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(copy, names, bytes);
    WEIR_GUEST_LOCKED(&image->lock);
    if (image->names_known) {
        free(copy);
    } else {
        image->names = copy;
        image->n_names = count;
        image->names_known = true;
    }
    return CUDA_SUCCESS;
}

static CUresult fetch_names(struct weir_image_object *image)
{
    weir_lock_acquire(&image->lock);
    bool known = image->names_known;
    weir_lock_release(&image->lock);
    if (known) {
        return CUDA_SUCCESS;
    }
    if (image->module) {
        struct weir_op_module_functions_out out;
        WEIR_TRY(weir_call_module_functions(
            weir_guest_channel(), &(struct weir_op_module_functions_in){.m = image->module->handle},
            &out));
        return keep_names(image, out.names, out.n_names, out.count);
    }
    struct weir_op_library_kernels_out out;
    WEIR_TRY(weir_call_library_kernels(
        weir_guest_channel(), &(struct weir_op_library_kernels_in){.l = image->library->handle},
        &out));
    return keep_names(image, out.names, out.n_names, out.count);
}

static const char *name_at(const struct weir_image_object *image, uint32_t index)
{
    if (index >= image->n_names) {
        return NULL;
    }
    const char *name = image->names;
    for (uint32_t i = 0; i < index; i++) {
        name += strlen(name) + 1;
    }
    return name;
}

CUresult weir_image_count(struct weir_image_object *image, uint32_t *ret_count)
{
    WEIR_TRY(fetch_names(image));
    *ret_count = image->n_names;
    return CUDA_SUCCESS;
}

CUresult weir_image_function_at(struct weir_image_object *image, uint32_t index,
                                struct weir_guest_function **ret_function)
{
    WEIR_TRY(fetch_names(image));
    const char *name = name_at(image, index);
    if (!name) {
        *ret_function = NULL;
        return CUDA_SUCCESS;
    }
    return weir_image_function(image, name, ret_function);
}

static void image_finish(struct weir_image_object *image)
{
    for (struct weir_guest_function *function; (function = WEIR_POP(image->functions));) {
        weir_guest_object_remove(WEIR_KIND_FUNCTION, function->handle);
        function_free(function);
    }
    free(image->names);
}

void weir_module_forget(struct weir_guest_module *module)
{
    weir_guest_object_remove(WEIR_KIND_MODULE, module->handle);
    weir_mem_forget_globals(module, WEIR_EVERY_DEVICE);
    weir_managed_forget(module);
    image_finish(&module->image);
    free(module);
}

struct going_modules {
    const struct weir_guest_ctx *ctx;
    struct weir_guest_module *first;
};

/* Remove the image, so that no look-up finds it or its functions any more. */
static void hide_module_of(weir_handle handle, void *object, void *user)
{
    struct weir_guest_module *module = object;
    struct going_modules *going = user;
    if (module->ctx != going->ctx) {
        return;
    }
    if (module->library) {
        weir_lock_acquire(&module->library->image.lock);
        module->library->modules[module->ctx->device] = NULL;
        weir_lock_release(&module->library->image.lock);
    }
    weir_guest_object_remove(WEIR_KIND_MODULE, handle);
    weir_lock_acquire(&module->image.lock);
    module->image.gone = true;
    for (const struct weir_guest_function *f = module->image.functions; f; f = f->next) {
        weir_guest_object_remove(WEIR_KIND_FUNCTION, f->handle);
    }
    weir_lock_release(&module->image.lock);
    module->next_gone = going->first;
    going->first = module;
}

/* @param device  or WEIR_EVERY_DEVICE */
static void drop_variables(struct weir_library *library, CUdevice device)
{
    WEIR_GUEST_LOCKED(&library->image.lock);
    struct weir_library_variable **at = &library->variables;
    while (*at) {
        struct weir_library_variable *variable = *at;
        if (device == WEIR_EVERY_DEVICE || variable->device == device) {
            *at = variable->next;
            free(variable);
        } else {
            at = &variable->next;
        }
    }
}

/* The host reloads libraries after their last context is destroyed: then variables have new
 * addresses. */
static void forget_variables(weir_handle handle, void *object, void *user)
{
    const struct weir_guest_ctx *ctx = user;
    (void)handle;
    drop_variables(object, ctx->device);
    if (ctx->primary) {
        weir_mem_forget_globals(object, ctx->device);
        weir_managed_forget(object);
    }
}

void weir_modules_context_gone(struct weir_guest_ctx *ctx)
{
    struct going_modules going = {ctx, NULL};
    weir_id_table_visit(weir_guest.objects.tables[WEIR_KIND_MODULE], hide_module_of, &going);
    weir_inside_wait(ctx, weir_calls_thread.inside);
    while (going.first) {
        struct weir_guest_module *module = going.first;
        going.first = module->next_gone;
        weir_module_forget(module);
    }
    weir_id_table_visit(weir_guest.objects.tables[WEIR_KIND_LIBRARY], forget_variables, ctx);
    if (ctx->primary) {
        weir_managed_context_gone();
    }
}

void weir_library_forget(struct weir_library *library)
{
    weir_guest_object_remove(WEIR_KIND_LIBRARY, library->handle);
    drop_variables(library, WEIR_EVERY_DEVICE);
    weir_mem_forget_globals(library, WEIR_EVERY_DEVICE);
    weir_managed_forget(library);
    for (int i = 0; i < WEIR_GUEST_MAX_DEVICES; i++) {
        if (library->modules[i]) {
            weir_module_forget(library->modules[i]);
        }
    }
    image_finish(&library->image);
    free(library);
}

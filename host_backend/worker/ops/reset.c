/* Libraries when the contexts of a session go and come back. */
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/twins/forms.h"

#include "base/log.h"
#include <stdlib.h>

struct visit {
    struct weir_session *session;
    struct weir_host_module *library;
};

static void unbind(struct weir_session *s, struct weir_object *o)
{
    weir_host_object_hide(s, o);
    o->native = NULL;
}

/* ---------------------------------------------------------------- going */

static void unbind_kernel(weir_handle handle, void *object, void *user)
{
    struct visit *visit = user;
    struct weir_host_function *f = object;

    (void)handle;
    if (f->o.owner == &visit->library->o) {
        unbind(visit->session, &f->o);
        f->kernel = NULL;
        f->forms = NULL;
        f->form = NULL;
        free(f->elsewhere);
        f->elsewhere = NULL;
        f->loaded_on = 0;
    }
}

static void forget_module(weir_handle handle, void *object, void *user)
{
    struct visit *visit = user;
    struct weir_object *o = object;

    (void)handle;
    if (o->owner == &visit->library->o) {
        weir_host_object_forget(visit->session, o);
    }
}

static void unload_used(weir_handle handle, void *object, void *user)
{
    struct weir_session *s = user;
    struct weir_host_module *m = object;
    struct visit visit = {s, m};
    CUlibrary native = m->o.native;

    (void)handle;
    if (!m->used || native == NULL) {
        return;
    }
    weir_host_objects_visit(s, WEIR_KIND_MODULE, forget_module, &visit);
    weir_host_objects_visit(s, WEIR_KIND_FUNCTION, unbind_kernel, &visit);
    weir_session_unadmit(s, m);
    unbind(s, &m->o);
    if (!weir_forms_unloading(s, m)) {
        (void)s->driver->cuLibraryUnload(native);
    }
    m->used = false;
}

void weir_ops_libraries_unload(struct weir_session *s)
{
    weir_host_objects_visit(s, WEIR_KIND_LIBRARY, unload_used, s);
}

/* ---------------------------------------------------------------- coming back */

static void bind_kernel(weir_handle handle, void *object, void *user)
{
    struct visit *visit = user;
    struct weir_session *s = visit->session;
    struct weir_host_function *f = object;
    CUfunction native;
    CUkernel kernel;

    (void)handle;
    if (f->o.owner != &visit->library->o || f->name == NULL) {
        return;
    }
    if (s->driver->cuLibraryGetKernel(&kernel, visit->library->o.native, f->name) == CUDA_SUCCESS &&
        s->driver->cuKernelGetFunction(&native, kernel) == CUDA_SUCCESS &&
        weir_host_object_bind(s, &f->o, native) == CUDA_SUCCESS) {
        f->kernel = kernel;
        f->forms = visit->library->forms;
        visit->library->used = true;
        for (int i = 0; i < WEIR_FUNCTION_SETTABLE; i++) {
            if ((f->set_mask >> i & 1) != 0) {
                (void)weir_ops_set_attribute(s, f, (CUfunction_attribute)i, f->set_values[i]);
            }
        }
    }
}

static void load_again(weir_handle handle, void *object, void *user)
{
    CUlibraryOption library_ids[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
    void *library_values[] = {(void *)1};
    struct weir_session *s = user;
    struct weir_host_module *m = object;
    struct visit visit = {s, m};
    struct weir_host_jit_options none = {.n = 0};
    struct weir_host_jit_options *options = m->options != NULL ? m->options : &none;
    CUlibrary native;
    CUresult result;

    (void)handle;
    if (m->o.native != NULL) {
        return;
    }
    result = s->driver->cuLibraryLoadData(&native, m->code, options->ids, options->values,
                                          options->n, library_ids, library_values, 1);
    if (result == CUDA_SUCCESS && weir_host_object_bind(s, &m->o, native) != CUDA_SUCCESS) {
        unbind(s, &m->o);
        (void)s->driver->cuLibraryUnload(native);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        /* Everything of it is an invalid handle from now on. */
        weir_log_warn("session: a library cannot be loaded again session=%llu result=%d",
                      (unsigned long long)s->id, (int)result);
        return;
    }
    weir_forms_loaded(s, m, &(struct weir_jit_options){options->ids, options->values, options->n});
    weir_host_objects_visit(s, WEIR_KIND_FUNCTION, bind_kernel, &visit);
}

void weir_ops_libraries_reload(struct weir_session *s)
{
    weir_host_objects_visit(s, WEIR_KIND_LIBRARY, load_again, s);
}

struct weir_host_module *weir_ops_library(struct weir_session *s, uint64_t handle)
{
    struct weir_host_module *m = weir_host_object_get(s, WEIR_KIND_LIBRARY, handle);

    if (m != NULL && m->o.native == NULL) {
        load_again(handle, m, s);
    }
    return m != NULL && m->o.native != NULL ? m : NULL;
}

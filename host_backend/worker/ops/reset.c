/*
 * Resets libraries when a session's contexts are destroyed and made again.
 *
 * The driver waits for the device to unload code and to load it. So libraries are unloaded with the
 * last context only if the device becomes idle soon; else they are unloaded and loaded again when
 * the session makes its next context, a call that may wait and fail. The guest cannot tell the
 * difference: without a context no kernel runs and no variable is read. A library whose kernels a
 * graph names is not reset.
 */
#include "host_backend/worker/code/variables.h"
#include "host_backend/worker/device/admission.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/graph_holds.h"
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

/* Unload a library if that is due. The device is idle. */
static void unload_if_due(weir_handle handle, void *object, void *user)
{
    struct weir_session *s = user;
    struct weir_host_module *m = object;
    struct visit visit = {s, m};
    CUlibrary native = m->o.native;

    (void)handle;
    if (!m->reset_due || weir_graph_holds(s, &m->o)) {
        return;
    }
    weir_host_objects_visit(s, WEIR_KIND_MODULE, forget_module, &visit);
    weir_host_objects_visit(s, WEIR_KIND_FUNCTION, unbind_kernel, &visit);
    weir_managed_remove_variables(s, m);
    weir_session_unadmit(s, m);
    unbind(s, &m->o);
    if (!weir_forms_unloading(s, m)) {
        (void)s->driver->cuLibraryUnload(native);
    }
    weir_variables_forget(m);
    m->used = m->reset_due = m->in_graph = false;
    m->ran = 0;
}

static void note_if_due(weir_handle handle, void *object, void *user)
{
    struct weir_host_module *m = object;

    (void)handle;
    m->reset_due |= m->used && m->o.native;
    *(bool *)user |= m->reset_due;
}

void weir_ops_libraries_unload(struct weir_session *s)
{
    bool any = false;
    uint32_t idle;

    weir_host_objects_visit(s, WEIR_KIND_LIBRARY, note_if_due, &any);
    if (any && weir_put_off_begin(s, &idle) == CUDA_SUCCESS) {
        weir_host_objects_visit(s, WEIR_KIND_LIBRARY, unload_if_due, s);
        weir_device_idle_end(s->worker, idle);
    }
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
    if (f->o.owner != &visit->library->o || !f->name) {
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

/* Load a library again. The device is idle. */
static CUresult load_again(struct weir_session *s, struct weir_host_module *m)
{
    CUlibraryOption library_ids[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
    void *library_values[] = {(void *)1};
    struct visit visit = {s, m};
    struct weir_host_jit_options none = {.n = 0};
    struct weir_host_jit_options *options = m->options ? m->options : &none;
    CUlibrary native;

    CUresult result = s->driver->cuLibraryLoadData(&native, m->code, options->ids, options->values,
                                                   options->n, library_ids, library_values, 1);
    if (result == CUDA_SUCCESS && weir_host_object_bind(s, &m->o, native) != CUDA_SUCCESS) {
        unbind(s, &m->o);
        (void)s->driver->cuLibraryUnload(native);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        weir_log_warn("session: a library cannot be loaded again session=%llu result=%d",
                      (unsigned long long)s->id, (int)result);
        return result;
    }
    weir_forms_loaded(s, m, &(struct weir_jit_options){options->ids, options->values, options->n});
    weir_host_objects_visit(s, WEIR_KIND_FUNCTION, bind_kernel, &visit);
    return CUDA_SUCCESS;
}

static void look_if_stale(weir_handle handle, void *object, void *user)
{
    const struct weir_host_module *m = object;

    (void)handle;
    *(bool *)user |= m->reset_due || !m->o.native;
}

static void load_if_gone(weir_handle handle, void *object, void *user)
{
    struct weir_host_module *m = object;

    (void)handle;
    if (!m->o.native) {
        (void)load_again(user, m); /* if this fails, all handles of the library are invalid */
    }
}

CUresult weir_ops_libraries_reload(struct weir_session *s)
{
    bool any = false;
    uint32_t idle;

    weir_host_objects_visit(s, WEIR_KIND_LIBRARY, look_if_stale, &any);
    if (!any) {
        return CUDA_SUCCESS;
    }
    weir_admission_idle(s);
    WEIR_TRY(weir_device_idle_begin_or_fail(s, &idle));
    weir_host_objects_visit(s, WEIR_KIND_LIBRARY, unload_if_due, s);
    weir_host_objects_visit(s, WEIR_KIND_LIBRARY, load_if_gone, s);
    weir_device_idle_end(s->worker, idle);
    return CUDA_SUCCESS;
}

CUresult weir_ops_library(struct weir_session *s, uint64_t handle,
                          struct weir_host_module **ret_library)
{
    struct weir_host_module *m = weir_host_object_get(s, WEIR_KIND_LIBRARY, handle);
    CUresult result = CUDA_SUCCESS;
    uint32_t idle;

    WEIR_FAIL_IF(!m, CUDA_ERROR_INVALID_HANDLE);
    if (!m->o.native) {
        WEIR_TRY(weir_device_idle_begin_or_fail(s, &idle));
        result = load_again(s, m);
        weir_device_idle_end(s->worker, idle);
    }
    *ret_library = m;
    return result;
}

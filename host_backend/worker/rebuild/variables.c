/*
 * What is in a session's variables of modules. While the driver can still be asked, at rest, the
 * bytes of each module whose kernels have run since are copied to memory of the host. Another
 * worker writes them to the variables of the module that it has loaded.
 *
 * The copies are made on a stream of the worker's own, as those of a suspended session are: no gate
 * and no account of work sees them.
 */
#include "host_backend/worker/rebuild/private.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/log.h"
#include "host_backend/worker/code/variables.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/session/objects.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct variables { /* as the box has them; where the n variables were, and the bytes, follow */
    uint64_t module, bytes;
    uint32_t kind, n;
};

struct visit {
    struct weir_session *session;
    const char *why;
    struct weir_box *box;
    uint32_t n; /* modules */
    uint64_t bytes;
    struct saved *saved; /* n of them */
    uint32_t room;
};

/* A module whose variables are in the box. */
struct saved {
    const struct weir_host_module *module;
    weir_handle handle;
    CUdeviceptr first; /* its variables' lowest address */
};

static void visit_code(struct weir_session *s,
                       void (*visit)(weir_handle handle, void *object, void *user), void *user)
{
    weir_host_objects_visit(s, WEIR_KIND_MODULE, visit, user);
    weir_host_objects_visit(s, WEIR_KIND_LIBRARY, visit, user);
}

/* ---------------------------------------------------------------- the driver's side */

/* Ask for the variables' addresses, once. */
static CUresult locate(struct weir_session *s, const struct weir_host_module *m)
{
    struct weir_variables *v = m->variables;
    const struct weir_driver *d = s->driver;
    CUresult result = CUDA_SUCCESS;
    uint32_t idle;

    if (v->n == 0 || v->of[v->n - 1].at != 0) {
        return CUDA_SUCCESS;
    }
    WEIR_TRY(weir_device_idle_begin_or_fail(s, &idle)); /* it may load code */
    for (uint32_t i = 0; i < v->n && result == CUDA_SUCCESS; i++) {
        size_t bytes = 0;

        result = m->library
                     ? d->cuLibraryGetGlobal(&v->of[i].at, &bytes, m->o.native, v->of[i].name)
                     : d->cuModuleGetGlobal_v2(&v->of[i].at, &bytes, m->o.native, v->of[i].name);
        if (result == CUDA_SUCCESS && bytes != v->of[i].bytes) {
            result = CUDA_ERROR_INVALID_VALUE;
        }
        v->of[i].at = result == CUDA_SUCCESS ? v->of[i].at : 0;
    }
    weir_device_idle_end(s->worker, idle);
    return result;
}

/* Copy the variables of a module, there or back. Its device is current. */
static CUresult copy(struct weir_session *s, const struct weir_host_module *m, bool back)
{
    const struct weir_variables *v = m->variables;
    CUresult result = CUDA_SUCCESS, waited;
    uint8_t *data = v->data;
    CUstream stream;

    WEIR_TRY(locate(s, m));
    WEIR_TRY(weir_session_work_stream(s, &stream));
    for (uint32_t i = 0; i < v->n && result == CUDA_SUCCESS; data += v->of[i++].bytes) {
        result = back ? s->driver->cuMemcpyHtoDAsync_v2(v->of[i].at, data, v->of[i].bytes, stream)
                      : s->driver->cuMemcpyDtoHAsync_v2(data, v->of[i].at, v->of[i].bytes, stream);
    }
    waited = s->driver->cuStreamSynchronize(stream); /* the copies use the bytes until then */
    return result == CUDA_SUCCESS ? waited : result;
}

/* ---------------------------------------------------------------- at rest */

static const char *why_not(struct weir_session *s, struct weir_host_module *m)
{
    uint32_t sm = weir_device_capability(&s->platform->devices[m->o.device].about);

    if (!m->variables && weir_variables_find(m, sm, s->platform->real, &m->variables) != WEIR_OK) {
        return "variables of modules";
    }
    assert(m->variables);
    return m->variables->why ? m->variables->why
           : m->library && m->variables->n != 0 && (s->devices.used & (s->devices.used - 1)) != 0
               ? "variables on several devices"
               : NULL;
}

static void save(weir_handle handle, void *object, void *user)
{
    struct weir_host_module *m = object;
    struct visit *visit = user;
    struct weir_session *s = visit->session;

    (void)handle;
    if (visit->why || ((m->ran & WEIR_CODE_UNSAVED) == 0 && !m->in_graph && m->n_asked == 0)) {
        return;
    }
    visit->why = why_not(s, m);
    if (visit->why || m->variables->n == 0) {
        m->ran = visit->why ? m->ran : WEIR_CODE_RAN;
        return;
    }
    if (weir_variables_take_room(m->variables, &s->tenant->account) != WEIR_OK) {
        visit->why = "no host memory for variables";
    } else if (weir_session_enter(s, m->o.device) != CUDA_SUCCESS ||
               copy(s, m, false) != CUDA_SUCCESS) {
        visit->why = "variables of modules";
    } else {
        m->ran = WEIR_CODE_RAN;
        visit->n++;
        visit->bytes += m->variables->bytes;
    }
}

const char *weir_rebuild_variables_save(struct weir_session *session)
{
    struct visit visit = {.session = session};
    uint64_t begin_ns = weir_clock_now_ns(), took_ns;
    uint32_t device = session->device;

    visit_code(session, save, &visit);
    (void)weir_session_enter(session, device);
    took_ns = weir_clock_now_ns() - begin_ns;
    if (visit.n != 0) {
        session->devices.book->copy_ns = took_ns;
        weir_log_debug("session: variables copied session=%llu tenant=%s modules=%u bytes=%llu "
                       "us=%llu",
                       (unsigned long long)session->id, session->tenant->name, visit.n,
                       (unsigned long long)visit.bytes,
                       (unsigned long long)(took_ns / WEIR_NS_PER_US));
    }
    return visit.why;
}

static bool is_saved(const struct weir_host_module *m)
{
    return m->variables && m->variables->data;
}

static void look_if_fixed(weir_handle handle, void *object, void *user)
{
    const struct weir_host_module *m = object;

    (void)handle;
    *(bool *)user |= is_saved(m) && m->variables->fixed;
}

bool weir_rebuild_variables_fixed(struct weir_session *session)
{
    bool fixed = false;

    visit_code(session, look_if_fixed, &fixed);
    return fixed;
}

static void look(weir_handle handle, void *object, void *user)
{
    struct visit *visit = user;

    (void)handle;
    if ((((const struct weir_host_module *)object)->ran & WEIR_CODE_UNSAVED) != 0) {
        visit->why = "variables of modules";
    }
}

const char *weir_rebuild_variables_why(struct weir_session *session)
{
    struct visit visit = {.session = session};

    visit_code(session, look, &visit);
    return visit.why;
}

/* ---------------------------------------------------------------- boxes */

static void collect(weir_handle handle, void *object, void *user)
{
    const struct weir_host_module *m = object;
    struct visit *visit = user;
    CUdeviceptr first = UINT64_MAX;

    if (!is_saved(m)) {
        return;
    }
    for (uint32_t i = 0; i < m->variables->n; i++) {
        first = m->variables->of[i].at < first ? m->variables->of[i].at : first;
    }
    if (WEIR_GROW(visit->saved, visit->n, visit->room)) {
        visit->saved[visit->n++] = (struct saved){m, handle, first};
    } else {
        visit->box->failed = true;
    }
}

static int lower_first(const void *a, const void *b)
{
    const struct saved *x = a, *y = b;

    return (x->first > y->first) - (x->first < y->first);
}

static void put(const struct saved *saved, struct weir_box *box)
{
    const struct weir_variables *v = saved->module->variables;
    const struct variables head = {saved->handle, v->bytes, saved->module->o.kind, v->n};

    (void)weir_box_put(box, &head, sizeof head);
    for (uint32_t i = 0; i < v->n; i++) {
        (void)weir_box_put(box, &v->of[i].at, sizeof v->of[i].at);
    }
    (void)weir_box_put(box, v->data, v->bytes);
}

/* Put the modules into the box in the order of their variables' addresses, in which they were
 * loaded: the other driver is to place them alike. */
void weir_rebuild_variables_put(struct weir_session *session, struct weir_box *box, uint32_t *ret_n)
{
    struct visit visit = {.session = session, .box = box};

    visit_code(session, collect, &visit);
    if (visit.n > 1) {
        qsort(visit.saved, visit.n, sizeof *visit.saved, lower_first);
    }
    for (uint32_t i = 0; i < visit.n; i++) {
        put(&visit.saved[i], box);
    }
    free(visit.saved);
    *ret_n = visit.n;
}

/* Are the variables where they were? Their addresses may be in memory. */
static CUresult compare(struct weir_session *s, struct weir_host_module *m, const CUdeviceptr *was)
{
    WEIR_TRY(locate(s, m));
    for (uint32_t i = 0; i < m->variables->n && m->variables->fixed; i++) {
        const struct weir_variable *v = &m->variables->of[i];

        WEIR_TRY(weir_session_book_number(s, was[i], v->at, "variable", v->name));
    }
    return CUDA_SUCCESS;
}

CUresult weir_rebuild_variables_get(struct weir_session *session, struct weir_box *box)
{
    const struct variables *v = weir_box_get(box, sizeof *v);
    const CUdeviceptr *was = v ? weir_box_get(box, v->n * sizeof *was) : NULL;
    const void *data = was ? weir_box_get(box, v->bytes) : NULL;
    struct weir_session *s = session;
    struct weir_host_module *m =
        data && (v->kind == WEIR_KIND_MODULE || v->kind == WEIR_KIND_LIBRARY)
            ? weir_host_object_get(s, (enum weir_kind)v->kind, v->module)
            : NULL;

    if (!m || !m->image || why_not(s, m) || m->variables->bytes != v->bytes ||
        m->variables->n != v->n || v->bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (weir_variables_take_room(m->variables, &s->tenant->account) != WEIR_OK) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(m->variables->data, data, v->bytes);
    m->ran = WEIR_CODE_RAN;
    WEIR_TRY(weir_session_enter(s, m->o.device));
    WEIR_TRY(compare(s, m, was));
    return copy(s, m, true);
}

/* The twins of a guest's module, from its loading to its unloading or the session's end. */
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/twins/private.h"

#include "base/clock.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/runs/run_streams.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPLORE_WAIT_NS (10 * WEIR_NS_PER_S)
#define PATIENCE_NS     WEIR_NS_PER_S

static bool copy_options(struct weir_forms_module *m, const struct weir_jit_options *options)
{
    m->option_ids = calloc(options->n + 1u, sizeof *m->option_ids);
    m->option_values = calloc(options->n + 1u, sizeof(void *));
    WEIR_FAIL_IF(!m->option_ids || !m->option_values, false);
    for (uint32_t i = 0; i < options->n; i++) {
        m->option_ids[i] = options->ids[i];
        m->option_values[i] = options->values[i];
    }
    m->n_options = options->n;
    return true;
}

void weir_forms_loaded(struct weir_session *session, struct weir_host_module *module,
                       const struct weir_jit_options *options)
{
    struct weir_forms *forms = weir_worker_forms(session->worker);
    struct weir_tenant *tenant = session->tenant;

    if (!forms || !module->image || module->is_bundle) {
        return;
    }
    if (!forms->devices[session->device].gpu->write_value_ok) {
        return; /* runs need stream writes */
    }
    enum weir_forms_mode mode =
        weir_forms_mode_of(forms->config.mode, weir_tenant_setting(tenant, forms));
    bool asked = mode != WEIR_FORMS_DEFAULT;
    mode = asked ? mode : WEIR_FORMS_AUTO;
    if (mode == WEIR_FORMS_OFF) {
        return;
    }
    struct weir_forms_module *m = calloc(1, sizeof *m);
    if (!m) {
        return;
    }
    atomic_init(&m->refs, 1);
    atomic_init(&m->state, WEIR_FORMS_PENDING);
    m->device = &forms->devices[session->device];
    m->mode = mode;
    m->waits = !asked && !weir_admission_may_want_runs(session);
    /* Most short-lived programs would end before their twins are used. */
    m->from_ns = asked || !session->platform->by_program ? 0 : weir_clock_now_ns() + PATIENCE_NS;
    m->original = module->o.native;
    m->library = module->library;
    m->store = &tenant->images;
    snprintf(m->tenant, sizeof m->tenant, "%s", tenant->name);
    m->image_hash = module->image->hash;
    m->image_bytes = module->image->bytes;
    m->image = weir_image_get(m->store, &m->image_hash, m->image_bytes);
    if (!m->image || !copy_options(m, options) ||
        (!m->waits && !weir_forms_enqueue(m, NULL, WEIR_FORMS_PLAIN))) {
        weir_forms_module_put(m);
        return;
    }
    WEIR_PUSH(module->forms, m);
}

/* Wait for the builder, for tests that want twins from the first launch on. The builder needs an
 * idle device: it waits until we have left our handler, and until no stream is captured any
 * more. */
static void wait_for_builder(struct weir_session *session, const struct weir_forms_module *m)
{
    uint64_t end_ns = weir_clock_now_ns() + EXPLORE_WAIT_NS;
    struct timespec pause = {0, 200 * 1000};

    if (atomic_load(&m->state) != WEIR_FORMS_PENDING || session->n_captures != 0) {
        return;
    }
    weir_device_barrier_leave(session);
    while (atomic_load(&m->state) == WEIR_FORMS_PENDING && weir_clock_now_ns() < end_ns) {
        nanosleep(&pause, NULL);
    }
    weir_device_barrier_enter(session);
}

struct weir_forms_module *weir_forms_here(struct weir_session *session,
                                          struct weir_forms_module *first)
{
    struct weir_forms_module *m = first;

    while (m && m->device->index != session->device) {
        m = m->next;
    }
    if (m && m->waits && weir_admission_may_want_runs(session)) {
        m->waits = !weir_forms_enqueue(m, NULL, WEIR_FORMS_PLAIN);
    }
    if (m && m->mode == WEIR_FORMS_EXPLORE) {
        wait_for_builder(session, m);
    }
    /* A1: acquires the builder's fields; meets R1 in do_job(). */
    return m && atomic_load_explicit(&m->state, memory_order_acquire) == WEIR_FORMS_READY ? m
                                                                                          : NULL;
}

/* ---------------------------------------------------------------- the end of a module */

bool weir_forms_unloading(struct weir_session *session, struct weir_host_module *module)
{
    struct weir_forms_module *m = module->forms, *next;
    bool taken = false;

    weir_forms_exposures_drop(session, module);
    module->forms = NULL;
    for (; m; m = next) {
        /* If there are more references than ours and the builder's, a run has one. Only this thread
         * adds runs. */
        bool pending = atomic_load_explicit(&m->state, memory_order_acquire) == WEIR_FORMS_PENDING;

        next = m->next;
        if (!taken && !pending && atomic_load(&m->refs) > 1) {
            m->kept = weir_image_get(m->store, &module->image->hash, module->image->bytes);
            m->orphan = taken = true;
        }
        if (m->waits) { /* there may be no builder, and nothing to unload */
            weir_forms_module_put(m);
        } else {
            weir_forms_module_put_later(m); /* the session must not wait for an idle device */
        }
    }
    return taken;
}

void weir_forms_attribute_set(struct weir_session *session, struct weir_host_function *function)
{
    (void)session;
    for (struct weir_forms_module *m = function->forms; m; m = m->next) {
        m->attributes_set++;
    }
}

/* ---------------------------------------------------------------- the end of a session */

/* Call a function for the session's runs on all devices. */
static void with_runs(struct weir_session *session,
                      void (*act)(struct weir_runs *runs, const void *owner))
{
    struct weir_forms *forms = weir_worker_forms(session->worker);

    for (uint32_t i = 0; forms && i < forms->n_devices; i++) {
        struct weir_runs *runs = atomic_load(&forms->devices[i].runs);

        if (runs && weir_session_enter(session, i) == CUDA_SUCCESS) {
            act(runs, session);
        }
    }
}

void weir_forms_session_ends(struct weir_session *session)
{
    with_runs(session, weir_runs_release);
}

void weir_forms_session_withdraw(struct weir_session *session)
{
    with_runs(session, weir_runs_withdraw);
}

void weir_forms_session_gone(struct weir_session *session)
{
    weir_forms_exposures_drop(session, NULL);
}

/* ---------------------------------------------------------------- callbacks of sessions */

static struct weir_forms_device *device_of(struct weir_session *session,
                                           const struct weir_host_stream *stream)
{
    struct weir_forms *forms = weir_worker_forms(session->worker);

    return stream->o.device < forms->n_devices ? &forms->devices[stream->o.device] : NULL;
}

static void stream_given(struct weir_session *session, struct weir_host_stream *stream, bool forks)
{
    struct weir_forms_device *device = device_of(session, stream);

    if (device) {
        weir_run_streams_given(device->streams, atomic_load(&device->runs), &stream->told,
                               weir_host_stream_at(stream), forks);
    }
}

static bool has_runs(struct weir_session *session, const struct weir_host_stream *stream)
{
    struct weir_forms_device *device = device_of(session, stream);

    return device && weir_runs_are_under_way(atomic_load(&device->runs));
}

static void stream_gone(struct weir_session *session, struct weir_host_stream *stream)
{
    struct weir_forms_device *device = device_of(session, stream);

    if (device) {
        weir_run_streams_gone(device->streams, &stream->told);
    }
}

const struct weir_session_hooks weir_forms_hooks = {
    .device_idle_begin = weir_forms_device_idle_begin,
    .device_idle_end = weir_forms_device_idle_end,
    .module_unloading = weir_forms_unloading,
    .streams_end = weir_forms_session_ends,
    .stream_given = stream_given,
    .has_runs = has_runs,
    .stream_gone = stream_gone,
    .will_write = weir_forms_touch,
};

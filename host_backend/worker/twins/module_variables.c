/*
 * A module's variables: the twins get the addresses of the original's variables, and their copies
 * of constants follow the original's.
 *
 * A guest writes a constant through an address that it has asked for. The session lists each such
 * address as an *exposure*. Before the module's twins are bound, a write leaves an event, and
 * nothing is bound while one is pending. Once they are bound, the exposures of constants know their
 * copies, and a write by a stream is followed by a copy; the other exposures are dropped.
 */
#include "host_backend/worker/twins/exposures.h"
#include "host_backend/worker/twins/private.h"

#include "base/log.h"
#include "host_backend/worker/device/order.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- binding */

static CUresult find_original(const struct weir_driver *d, const struct weir_forms_module *m,
                              const char *name, CUdeviceptr *ret_address, size_t *ret_bytes)
{
    if (!m->library) {
        return d->cuModuleGetGlobal_v2(ret_address, ret_bytes, m->original, name);
    }
    CUresult result = d->cuLibraryGetGlobal(ret_address, ret_bytes, (CUlibrary)m->original, name);
    return result == CUDA_SUCCESS
               ? result
               : d->cuLibraryGetManaged(ret_address, ret_bytes, (CUlibrary)m->original, name);
}

/* Write the table of addresses to its place in the twins' module. */
bool weir_forms_bind_globals(struct weir_session *session, struct weir_forms_module *module,
                             CUmodule twins, const struct weir_forms_set *set)
{
    const struct weir_driver *d = session->driver;
    uint32_t n = set->n_binds;
    CUdeviceptr table;
    CUstream work;
    size_t bytes;
    bool good = true;

    if (n == 0) {
        return true;
    }
    uint64_t *addresses = calloc(n, sizeof *addresses);
    if (!addresses || weir_session_work_stream(session, &work) != CUDA_SUCCESS ||
        d->cuModuleGetGlobal_v2(&table, &bytes, twins, WEIR_PTX_BINDS_NAME) != CUDA_SUCCESS ||
        bytes < n * sizeof *addresses) {
        free(addresses);
        return false;
    }
    for (uint32_t i = 0; i < n && good; i++) {
        CUdeviceptr address;

        good = find_original(d, module, set->binds[i], &address, &bytes) == CUDA_SUCCESS;
        addresses[i] = address;
        if (!good) {
            weir_log_debug("forms: a variable cannot be found tenant=%s name=%.100s",
                           module->tenant, set->binds[i]);
        }
    }
    good = good &&
           d->cuMemcpyHtoDAsync_v2(table, addresses, n * sizeof *addresses, work) == CUDA_SUCCESS &&
           d->cuStreamSynchronize(work) == CUDA_SUCCESS;
    free(addresses);
    return good;
}

static bool bind_consts(struct weir_session *s, struct weir_forms_module *m, CUstream work)
{
    const struct weir_driver *d = s->driver;
    uint32_t n = m->set->n_consts;

    if (n == 0) {
        return true;
    }
    m->consts = calloc(n, sizeof *m->consts);
    WEIR_FAIL_IF(!m->consts, false);
    for (uint32_t i = 0; i < n; i++) {
        struct weir_forms_const *c = &m->consts[i];
        const char *name = m->set->consts[i];
        size_t bytes;

        if (find_original(d, m, name, &c->original, &c->bytes) != CUDA_SUCCESS ||
            d->cuModuleGetGlobal_v2(&c->twin, &bytes, m->twins, name) != CUDA_SUCCESS ||
            bytes != c->bytes ||
            d->cuMemcpyDtoDAsync_v2(c->twin, c->original, bytes, work) != CUDA_SUCCESS) {
            weir_log_debug("forms: a constant cannot be copied tenant=%s name=%.100s", m->tenant,
                           name);
            return false;
        }
    }
    m->n_consts = n;
    return d->cuStreamSynchronize(work) == CUDA_SUCCESS;
}

/* Find the copy of an exposed variable; 0: none. */
static CUdeviceptr twin_of(const struct weir_forms_module *m, CUdeviceptr address)
{
    uint32_t at = WEIR_FIRST(i, m->n_consts, m->consts[i].original == address);
    return at < m->n_consts ? m->consts[at].twin : 0;
}

static struct weir_forms_exposure *exposures_of(const struct weir_session *s)
{
    return s->exposures ? s->exposures->first : NULL;
}

/* Exposures were removed: if none is left, session->exposures becomes NULL. */
static void free_if_empty(struct weir_session *session)
{
    if (session->exposures && !session->exposures->first) {
        free(session->exposures);
        session->exposures = NULL;
    }
}

/* Is an earlier write still pending? */
static bool writes_open(struct weir_session *s, const struct weir_forms_module *m)
{
    return WEIR_LINKED(e, exposures_of(s),
                       e->forms == m && e->written &&
                           s->driver->cuEventQuery(e->written) != CUDA_SUCCESS) != NULL;
}

/* After binding: drop exposures of variables that are no constants. */
static void settle_exposures(struct weir_session *s, struct weir_forms_module *m)
{
    if (!s->exposures) {
        return;
    }
    for (struct weir_forms_exposure **at = &s->exposures->first; *at;) {
        struct weir_forms_exposure *e = *at;

        if (e->forms != m) {
            at = &e->next;
            continue;
        }
        e->twin = twin_of(m, e->address);
        if (e->written) {
            (void)s->driver->cuEventDestroy_v2(e->written);
            e->written = NULL;
        }
        if (e->twin != 0) {
            if (e->in_arguments) {
                weir_forms_refuse(m, "a kernel was given the address of a constant");
            }
            at = &e->next;
            continue;
        }
        *at = e->next;
        free(e);
    }
    free_if_empty(s);
}

bool weir_forms_bind(struct weir_session *session, struct weir_forms_module *module)
{
    CUstream work;
    uint32_t idle;

    if (module->bound || module->refused) {
        return !module->refused;
    }
    WEIR_FAIL_IF(writes_open(session, module), false);
    /* The look-up may load code. */
    (void)weir_forms_device_idle_begin(module->device->forms, WEIR_FORMS_LOOK_UP_NS, &idle);
    bool ok = weir_session_work_stream(session, &work) == CUDA_SUCCESS &&
              weir_forms_bind_globals(session, module, module->twins, module->set) &&
              bind_consts(session, module, work);
    weir_forms_device_idle_end(module->device->forms, idle);
    if (!ok) {
        weir_forms_refuse(module, "its variables cannot be bound");
        return false;
    }
    module->bound = true;
    settle_exposures(session, module);
    return !module->refused;
}

/* ---------------------------------------------------------------- exposures */

/* List an exposure. false: out of memory. */
static bool expose(struct weir_session *s, const struct weir_forms_exposure *exposure)
{
    struct weir_forms_exposure *e = malloc(sizeof *e);

    if (e && !s->exposures) {
        s->exposures = calloc(1, sizeof *s->exposures);
    }
    if (!e || !s->exposures) {
        free(e);
        return false;
    }
    *e = *exposure;
    WEIR_PUSH(s->exposures->first, e);
    return true;
}

void weir_forms_exposures_drop(struct weir_session *session, const struct weir_host_module *module)
{
    if (!session->exposures) {
        return;
    }
    for (struct weir_forms_exposure **at = &session->exposures->first; *at;) {
        struct weir_forms_exposure *e = *at;

        if (module && e->module != module) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        if (e->written) {
            (void)session->driver->cuEventDestroy_v2(e->written);
        }
        free(e);
    }
    free_if_empty(session);
}

void weir_forms_exposed(struct weir_session *session, struct weir_host_module *module,
                        CUdeviceptr address, size_t bytes)
{
    for (struct weir_forms_module *m = module->forms; m; m = m->next) {
        const struct weir_forms_exposure *e = exposures_of(session);

        if (m->refused || atomic_load(&m->state) == WEIR_FORMS_NONE ||
            m->device->index != session->device || (m->bound && twin_of(m, address) == 0)) {
            continue;
        }
        while (e && (e->forms != m || e->address != address)) {
            e = e->next;
        }
        if (e) {
            continue;
        }
        if (!expose(session,
                    &(struct weir_forms_exposure){.module = module,
                                                  .forms = m,
                                                  .address = address,
                                                  .bytes = bytes,
                                                  .twin = m->bound ? twin_of(m, address) : 0})) {
            weir_forms_refuse(m, "no memory to watch a constant");
        }
    }
}

static bool overlaps(const struct weir_forms_exposure *e, uint64_t address, uint64_t bytes)
{
    return e->address < address + bytes && address < e->address + e->bytes;
}

void weir_forms_touch(struct weir_session *session, uint64_t address, uint64_t bytes)
{
    struct weir_forms_exposures *x = session->exposures;

    for (const struct weir_forms_exposure *e = exposures_of(session); e; e = e->next) {
        if (!overlaps(e, address, bytes)) {
            continue;
        }
        if (x->touched_bytes != 0) {
            weir_forms_wrote_unseen(session); /* the operation touched two ranges */
        }
        x->touched_address = address;
        x->touched_bytes = bytes;
        return;
    }
}

/* Before binding: record an event behind the last write. */
static void note_write(struct weir_session *s, struct weir_forms_exposure *e,
                       const struct weir_host_stream *stream)
{
    const struct weir_driver *d = s->driver;

    if (e->forms->refused || atomic_load(&e->forms->state) == WEIR_FORMS_NONE) {
        return;
    }
    if (e->written && e->stream != stream->o.handle &&
        d->cuEventQuery(e->written) != CUDA_SUCCESS) {
        weir_forms_refuse(e->forms, "several streams write a variable at once");
        return;
    }
    if ((!e->written && d->cuEventCreate(&e->written, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) ||
        d->cuEventRecord(e->written, weir_host_stream_at(stream)) != CUDA_SUCCESS) {
        weir_forms_refuse(e->forms, "a write cannot be followed");
        return;
    }
    e->stream = stream->o.handle;
}

static void follow(struct weir_session *s, const struct weir_forms_exposure *e,
                   const struct weir_host_stream *stream)
{
    const struct weir_forms_exposures *x = s->exposures;
    uint64_t first = WEIR_MAX(e->address, x->touched_address);
    uint64_t touched_end = x->touched_address + x->touched_bytes;
    uint64_t end = e->address + e->bytes < touched_end ? e->address + e->bytes : touched_end;

    if (s->driver->cuMemcpyDtoDAsync_v2(e->twin + (first - e->address), first, end - first,
                                        weir_host_stream_at(stream)) != CUDA_SUCCESS) {
        weir_forms_refuse(e->forms, "a constant cannot be copied");
    }
}

void weir_forms_wrote(struct weir_session *session, struct weir_host_stream *stream)
{
    struct weir_forms_exposures *x = session->exposures;

    if (x->touched_bytes == 0) {
        return;
    }
    if (weir_host_stream_capturing(session, stream)) {
        weir_forms_wrote_unseen(session);
        return;
    }
    for (struct weir_forms_exposure *e = x->first; e; e = e->next) {
        if (!overlaps(e, x->touched_address, x->touched_bytes)) {
            continue;
        }
        if (e->forms->bound) {
            follow(session, e, stream);
        } else {
            note_write(session, e, stream);
        }
    }
    x->touched_bytes = 0;
}

/*
 * A write at an unknown time is legal for a global, but not for a constant. Before binding it is
 * unknown which it is: only then it is treated as a constant.
 */
void weir_forms_wrote_unseen(struct weir_session *session)
{
    struct weir_forms_exposures *x = session->exposures;

    if (x->touched_bytes == 0) {
        return;
    }
    for (struct weir_forms_exposure *e = x->first; e; e = e->next) {
        if (!overlaps(e, x->touched_address, x->touched_bytes)) {
            continue;
        }
        if (e->twin != 0) {
            weir_forms_refuse(e->forms, "a constant is written by something that is not followed");
        }
        e->in_arguments = true;
    }
    x->touched_bytes = 0;
}

void weir_forms_arguments(struct weir_session *session, const uint8_t *arguments, uint32_t bytes)
{
    for (uint32_t at = 0; at + 8 <= bytes; at += 8) {
        uint64_t value;

        memcpy(&value, arguments + at, sizeof value);
        for (struct weir_forms_exposure *e = exposures_of(session); e; e = e->next) {
            if (value - e->address < e->bytes) {
                if (e->twin != 0) {
                    weir_forms_refuse(e->forms, "a kernel is given the address of a constant");
                }
                e->in_arguments = true;
            }
        }
    }
}

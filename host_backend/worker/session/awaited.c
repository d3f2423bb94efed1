#include "host_backend/worker/session/awaited.h"

#include "base/clock.h"
#include "host_backend/worker/session/device_idle.h"
#include "host_backend/worker/session/memory.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/session/order.h"
#include "host_backend/worker/session/session.h"
#include "host_backend/worker/session/sticky.h"
#include "host_backend/worker/session/vmm.h"
#include "proto/wire/session_api.h"
#include <stdlib.h>

#define SLICE_NS (20 * WEIR_NS_PER_MS) /* how late it may be noticed that the program is gone */

struct value {
    uint64_t address, value;
    bool wide;
};

struct weir_awaited {
    uint32_t n; /* ever noted */
    struct value ring[WEIR_AWAITED_MAX];
};

struct weir_awaited *weir_awaited_create(void)
{
    return calloc(1, sizeof(struct weir_awaited));
}

void weir_awaited_destroy(struct weir_awaited *awaited)
{
    free(awaited);
}

bool weir_awaited_can_come(uint64_t value, uint32_t flags, bool wide)
{
    uint64_t mask = wide ? UINT64_MAX : UINT32_MAX;

    switch (flags & CU_STREAM_WAIT_VALUE_NOR) { /* two bits */
    case CU_STREAM_WAIT_VALUE_AND:              /* (*address & value) != 0 */
        return (value & mask) != 0;
    case CU_STREAM_WAIT_VALUE_NOR: /* ~(*address | value) != 0 */
        return (~value & mask) != 0;
    default:
        return true;
    }
}

void weir_awaited_note(struct weir_session *session, uint64_t address, uint64_t value, bool wide)
{
    struct weir_awaited *a = session->awaited;

    a->ring[a->n++ % WEIR_AWAITED_MAX] = (struct value){address, value, wide};
}

static uint32_t n_kept(const struct weir_awaited *awaited)
{
    return awaited->n < WEIR_AWAITED_MAX ? awaited->n : WEIR_AWAITED_MAX;
}

/* The guest's own memory may be the GPU's to read only, but it is mapped here, too. */
static void write_here(const struct value *v)
{
    void *at = (void *)(uintptr_t)v->address; /* checked; registered memory has one address */

    if (v->wide) {
        __atomic_store_n((uint64_t *)at, v->value, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n((uint32_t *)at, (uint32_t)v->value, __ATOMIC_RELEASE);
    }
}

void weir_awaited_write(struct weir_session *session)
{
    const struct weir_awaited *awaited = session->awaited;
    uint32_t n = n_kept(awaited);
    const struct weir_driver *d = session->driver;
    CUstream work;

    if (n == 0 || weir_session_work_stream(session, &work) != CUDA_SUCCESS) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct value *v = &awaited->ring[i];

        if (weir_session_check_dptr(session, v->address, v->wide ? 8 : 4) != CUDA_SUCCESS ||
            !weir_session_vmm_make_writable(session, v->address, v->wide ? 8 : 4)) {
            continue; /* a write there would end the context of all tenants */
        }
        if (weir_session_registered(session, v->address)) {
            write_here(v);
            continue;
        }
        if (v->wide) {
            (void)d->cuStreamWriteValue64_v2(work, v->address, v->value, 0);
        } else {
            (void)d->cuStreamWriteValue32_v2(work, v->address, (uint32_t)v->value, 0);
        }
        (void)d->cuStreamSynchronize(work);
    }
}

bool weir_awaited_any(const struct weir_session *session)
{
    return session->awaited->n != 0;
}

bool weir_awaited_within(const struct weir_session *session, uint64_t base, uint64_t bytes)
{
    const struct weir_awaited *awaited = session->awaited;
    uint32_t n = n_kept(awaited), i = 0;

    while (i < n && awaited->ring[i].address - base >= bytes) { /* below base it wraps */
        i++;
    }
    return i < n;
}

static bool is_hopeless(const struct weir_session *session)
{
    return atomic_load(&session->ending) || weir_session_peer_gone(session) ||
           weir_worker_sticky_error(session->worker) != CUDA_SUCCESS;
}

static bool settle_stream(struct weir_session *session, const struct weir_host_stream *stream)
{
    (void)weir_session_enter(session, stream->o.device);
    while (weir_host_stream_wait(session->driver, weir_host_stream_at(stream), SLICE_NS) ==
           CUDA_ERROR_TIMEOUT) {
        if (is_hopeless(session)) {
            return false;
        }
    }
    return true;
}

bool weir_awaited_settle(struct weir_session *session)
{
    return !weir_awaited_any(session) || weir_awaited_settle_all(session);
}

bool weir_awaited_settle_all(struct weir_session *session)
{
    struct weir_session *inside = weir_device_barrier_pause();
    uint32_t device = session->device;
    bool settled = true;

    /* Of a stream under capture nobody may ask. */
    for (const struct weir_host_ctx *ctx = session->n_captures == 0 ? weir_session_contexts(session)
                                                                    : NULL;
         ctx != NULL; ctx = ctx->next) {
        for (const struct weir_host_stream *s = ctx->streams; s != NULL && settled; s = s->next) {
            settled = settle_stream(session, s);
        }
    }
    (void)weir_session_enter(session, device);
    weir_device_barrier_resume(inside);
    return settled;
}

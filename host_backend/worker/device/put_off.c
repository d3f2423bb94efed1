#include "host_backend/worker/device/put_off.h"

#include "base/log.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include <stdlib.h>

#define RETRY_NS (100 * WEIR_NS_PER_MS)

struct item {
    struct item *next;
    weir_put_off_fn make;
    void *what;
    uint64_t address, bytes;
};

struct weir_put_off {
    struct item *first, **last; /* sorted by the order in which the guest made the calls */
    uint64_t retry_ns;          /* do not try again before this time */
};

struct weir_put_off *weir_put_off_create(void)
{
    struct weir_put_off *p = calloc(1, sizeof *p);

    if (p) {
        p->last = &p->first;
    }
    return p;
}

void weir_put_off_destroy(struct weir_put_off *put_off)
{
    free(put_off);
}

bool weir_put_off_any(const struct weir_session *session)
{
    return weir_session_put_off(session)->first != NULL;
}

bool weir_put_off_holds(const struct weir_session *session, uint64_t address, uint64_t bytes)
{
    return WEIR_LINKED(i, weir_session_put_off(session)->first,
                       i->address < address + bytes && address < i->address + i->bytes) != NULL;
}

CUresult weir_put_off_begin(struct weir_session *session, uint32_t *ret_idle)
{
    if (weir_session_is_unloading(session)) {
        *ret_idle = weir_device_idle_begin(session->worker, session);
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(weir_put_off_any(session) && !weir_device_may_be_idle(session->worker),
                 CUDA_ERROR_TIMEOUT);
    return weir_device_idle_begin_within(session->worker, session, WEIR_PUT_OFF_NS, ret_idle);
}

void weir_put_off(struct weir_session *session, weir_put_off_fn make, void *what, uint64_t address,
                  uint64_t bytes)
{
    struct weir_put_off *p = weir_session_put_off(session);
    struct item *item = malloc(sizeof *item);

    if (!item) {
        uint32_t idle = weir_device_idle_begin(session->worker, session);

        make(session, what);
        weir_device_idle_end(session->worker, idle);
        return;
    }
    if (!p->first) {
        weir_log_info("session: the GPU does not become idle, so what its program frees is freed "
                      "later session=%llu tenant=%s",
                      (unsigned long long)session->id, session->tenant->name);
    }
    *item = (struct item){.make = make, .what = what, .address = address, .bytes = bytes};
    *p->last = item;
    p->last = &item->next;
}

/* Make all deferred calls. The device is idle. */
static void make_all(struct weir_session *session)
{
    struct weir_put_off *p = weir_session_put_off(session);
    struct item *item;

    while ((item = p->first)) {
        p->first = item->next;
        p->last = !p->first ? &p->first : p->last;
        item->make(session, item->what);
        free(item);
    }
}

void weir_put_off_try(struct weir_session *session)
{
    struct weir_put_off *p = weir_session_put_off(session);
    uint64_t now_ns = weir_clock_now_ns();
    uint32_t idle;

    if (!p->first || now_ns < p->retry_ns) {
        return;
    }
    p->retry_ns = now_ns + RETRY_NS;
    if (weir_device_may_be_idle(session->worker) &&
        weir_device_idle_begin_within(session->worker, session, 0, &idle) == CUDA_SUCCESS) {
        make_all(session);
        weir_device_idle_end(session->worker, idle);
    }
}

CUresult weir_put_off_settle(struct weir_session *session)
{
    uint32_t idle;

    if (!weir_put_off_any(session)) {
        return CUDA_SUCCESS;
    }
    WEIR_TRY(weir_device_idle_begin_or_fail(session, &idle));
    make_all(session);
    weir_device_idle_end(session->worker, idle);
    return CUDA_SUCCESS;
}

void weir_put_off_finish(struct weir_session *session)
{
    if (weir_put_off_any(session)) {
        uint32_t idle = weir_device_idle_begin(session->worker, session);

        make_all(session);
        weir_device_idle_end(session->worker, idle);
    }
}

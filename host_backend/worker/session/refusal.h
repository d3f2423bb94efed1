/*
 * What a tenant's programs are not given is counted, logged and told the supervisor, which makes an
 * event of it. Private to host_backend/worker.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_REFUSAL_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_REFUSAL_H

#include "base/account.h"
#include "host_backend/config/link.h"
#include <stdatomic.h>

struct weir_session;
struct weir_tenant;
struct weir_worker;

/* Of a tenant. Zeroed: there were none. Internally locked (lock-free). */
struct weir_refusals {
    atomic_uint_fast64_t pending[2]; /* not told yet: device memory, pinned memory */
    atomic_uint_fast64_t told_ns;    /* when one was last told */
};

/**
 * The operation in hand does not get its memory.
 *
 * Ten are told in a second, the others are counted for the next one or for the tenant's row.
 *
 * @param item  WEIR_ACCOUNT_DEVICE_MEMORY or WEIR_ACCOUNT_PINNED_MEMORY.
 * @param why   what it would be over.
 * @thread owner
 */
void weir_session_refused(struct weir_session *session, enum weir_account_item item, uint64_t bytes,
                          const char *why);

/** Take those that were not told: whoever takes them tells them. @thread any */
uint64_t weir_refusals_take(struct weir_tenant *tenant, enum weir_account_item item);

/** Tell the supervisor what happened; the tenant's part of the message is filled in. @thread any */
void weir_event_tell(struct weir_worker *worker, const struct weir_tenant *tenant,
                     struct weir_link_event event);

/** Tell it about a session that is no monitor's. @thread any */
void weir_session_event(const struct weir_session *session, enum weir_event_kind kind,
                        const char *why);

#endif

/* Operations wait for ended programs that still hold memory: see ending.h. */
#include "host_backend/worker/state/ending.h"

#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <stdio.h>
#include <time.h>

#define TRY_NS (4 * WEIR_NS_PER_MS) /* time between tries while the device has no memory */

/* ---------------------------------------------------------------- ended programs of a tenant */

static struct weir_spin_page *page_of(const struct weir_session *session)
{
    return session->platform->spin.page;
}

void weir_session_ended(struct weir_session *session)
{
    if (!session->about->monitor && !atomic_exchange(&session->about->ended, true)) {
        weir_programs_end(session->tenant->programs, session->about->number);
        atomic_fetch_add(&page_of(session)->ending, 1);
    }
}

bool weir_session_has_ended(const struct weir_session *session)
{
    return atomic_load(&session->about->ended);
}

void weir_session_lasts(struct weir_session *session)
{
    if (!session->about->lasts && weir_session_has_ended(session)) {
        atomic_fetch_sub(&page_of(session)->ending, 1);
    }
    session->about->lasts = true;
}

void weir_session_gone(struct weir_session *session)
{
    if (!session->about->gone) {
        weir_programs_remove(session->tenant->programs, session->about->number);
        weir_session_lasts(session);
    }
    session->about->gone = true;
}

void weir_worker_ask_sockets(struct weir_worker *worker, const struct weir_tenant *tenant)
{
    for (struct weir_session *s = weir_sessions_lock(worker); s; s = s->next) {
        if ((!tenant || s->tenant == tenant) &&
            (atomic_load(&s->ending) || weir_session_peer_gone(s))) {
            weir_session_ended(s);
        }
    }
    weir_sessions_unlock(worker);
}

/* Count ended programs that still hold something, in this worker and in others. */
static uint32_t n_ended(struct weir_tenant *tenant, uint64_t max_age_ns)
{
    weir_worker_ask_sockets(tenant->worker, tenant);
    return weir_programs_look(tenant->programs, WEIR_ANY_PLACE, max_age_ns).n_ended;
}

uint32_t weir_tenant_endings(struct weir_tenant *tenant)
{
    return n_ended(tenant, WEIR_ENDING_NS);
}

uint64_t weir_tenant_held_by_ended(struct weir_tenant *tenant, uint64_t max_age_ns)
{
    return n_ended(tenant, max_age_ns) != 0
               ? weir_account_of_ended(&tenant->account, tenant->programs,
                                       atomic_load(&tenant->limits.charged), max_age_ns)
               : 0;
}

/* -------------------------------------------------------------- ended programs of other tenants */

/* Count the programs of all tenants that have ended in this worker and still hold something. */
static uint32_t n_ending_here(struct weir_worker *worker)
{
    weir_worker_ask_sockets(worker, NULL);
    return atomic_load(&weir_worker_platform(worker)->spin.page->ending);
}

bool weir_memory_may_come(struct weir_worker *worker, uint64_t bytes)
{
    atomic_store(&weir_worker_platform(worker)->spin.page->lacks_bytes, bytes);
    return n_ending_here(worker) != 0 ||
           (weir_worker_sync(worker, WEIR_LINK_NO_MEMORY) &&
            atomic_load(&weir_worker_platform(worker)->spin.page->giving) != 0);
}

void weir_memory_pause(void)
{
    const struct timespec pause = {0, TRY_NS};

    (void)nanosleep(&pause, NULL);
}

bool weir_memory_came(struct weir_worker *worker)
{
    uint64_t end_ns = weir_clock_now_ns() + WEIR_ENDING_NS;
    bool waited = false;

    while (weir_clock_now_ns() < end_ns && weir_memory_may_come(worker, 0)) {
        waited = true;
        weir_memory_pause();
    }
    return waited;
}

/* ---------------------------------------------------------------- resources that an operation
 * lacks */

void weir_session_lacks_nothing(struct weir_session *session)
{
    session->op.lack = WEIR_LACK_NONE;
    session->op.ends = weir_programs_ends(session->tenant->programs);
}

CUresult weir_session_note_lack(struct weir_session *session, CUresult result)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        session->op.lack = WEIR_LACK_DEVICE;
    }
    return result;
}

/* The time since the operation first lacked memory. The first call starts it. */
static uint64_t waited_ns(struct weir_session *session)
{
    uint64_t now_ns = weir_clock_now_ns();

    if (session->op.lacks_since_ns == 0) {
        session->op.lacks_since_ns = now_ns;
    }
    return now_ns - session->op.lacks_since_ns;
}

bool weir_session_lacks_long(struct weir_session *session)
{
    return waited_ns(session) >= WEIR_ENDING_NS;
}

bool weir_session_may_hope(struct weir_session *session)
{
    return !weir_session_lacks_long(session) && weir_tenant_endings(session->tenant) != 0;
}

bool weir_session_lacks_quota(struct weir_session *session)
{
    session->op.lack = weir_session_may_hope(session) ? WEIR_LACK_SOON : WEIR_LACK_REFUSED;
    return session->op.lack == WEIR_LACK_SOON;
}

void weir_session_lack_text(struct weir_session *session, const char *why, char *text,
                            size_t text_bytes)
{
    uint32_t n = n_ended(session->tenant, UINT64_MAX);

    if (n == 0) {
        snprintf(text, text_bytes, "%s", why);
        return;
    }
    snprintf(text, text_bytes,
             "%s; waited %.1f s for %u ended programs, which hold %llu bytes of the GPU's", why,
             (double)waited_ns(session) / (double)WEIR_NS_PER_S, n,
             (unsigned long long)weir_tenant_held_by_ended(session->tenant, UINT64_MAX));
}

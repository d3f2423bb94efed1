/*
 * Suspended sessions: see suspend.h.
 *
 * The session's own thread moves its memory, between two records, so nothing else of the session
 * goes on meanwhile. Other threads only say what they want, and wake it.
 */
#include "host_backend/worker/suspend.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/device/admission.h"
#include "host_backend/worker/device/fault.h"
#include "host_backend/worker/memory/away.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <time.h>

/* How long work of a session may go on after the session was asked to be held. */
#define REST_LIMIT_NS (10 * WEIR_NS_PER_S)

void weir_suspend_ask(struct weir_worker *worker, const struct weir_link_suspend *what)
{
    for (struct weir_session *s = weir_sessions_lock(worker); s; s = s->next) {
        unsigned wish = atomic_load(&s->devices.suspension->wish);

        if (weir_session_is_monitor(s) || (what->session != 0 && what->session != s->id) ||
            (what->tenant_index >= 0 && (uint32_t)what->tenant_index != s->tenant->index) ||
            (what->wish == WEIR_SUSPEND_ROOM && wish == WEIR_SUSPEND_HOLD)) {
            continue;
        }
        atomic_store(&s->devices.suspension->room_bytes, what->bytes);
        atomic_store(&s->devices.suspension->wish, what->wish);
        weir_session_call(s);
    }
    weir_sessions_unlock(worker);
}

/* ---------------------------------------------------------------- rest */

/* Show the supervisor whether the worker's program rests, and what it could give. A worker of
 * several programs shows nothing: one of them may work. */
static void show(const struct weir_session *s, uint64_t since_ns, uint64_t movable_bytes)
{
    if (s->platform->by_program) {
        atomic_store(&s->platform->spin.page->movable_bytes, movable_bytes);
        atomic_store(&s->platform->spin.page->rests_since_ns, since_ns);
    }
}

static void show_managed(const struct weir_session *s, uint64_t bytes)
{
    if (s->platform->by_program) {
        atomic_store(&s->platform->spin.page->managed_bytes, bytes);
    }
}

/* What the tenant keeps on its device in any case. */
static uint64_t kept_bytes(const struct weir_session *s)
{
    struct weir_amount least = {.bytes = weir_tenant_setting(s->tenant, memory_min.bytes),
                                .pct = weir_tenant_setting(s->tenant, memory_min.pct)};

    return least.bytes == 0 && least.pct == 0
               ? 0
               : weir_amount_of(least, s->platform->devices[s->device].about.total_memory_bytes);
}

static void tell_why(struct weir_session *s, CUresult result)
{
    const char *why = result == CUDA_ERROR_NOT_FOUND ? "no memory that can be moved"
                      : result == CUDA_ERROR_OUT_OF_MEMORY
                          ? "its tenant may pin no more host memory"
                      : result == CUDA_ERROR_NOT_READY ? "its work goes on"
                                                       : "the driver refused";

    weir_log_warn("session: not suspended session=%llu tenant=%s why=\"%s\" result=%d",
                  (unsigned long long)s->id, s->tenant->name, why, (int)result);
}

/* Move managed memory off the device for others. @return is nothing else asked for? */
static bool give_managed(struct weir_session *s)
{
    uint64_t used = weir_account_used(&s->tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY);
    uint64_t kept = kept_bytes(s), most = used > kept ? used - kept : 0;
    uint64_t asked = atomic_load(&s->devices.suspension->room_bytes), gone;

    gone = weir_managed_give_way(s, asked != 0 ? asked : UINT64_MAX, most);
    if (gone != 0) {
        weir_log_info("managed: memory has left the device for others session=%llu tenant=%s "
                      "bytes=%llu",
                      (unsigned long long)s->id, s->tenant->name, (unsigned long long)gone);
    }
    /* If less moved than was asked for, the session has no more until it has worked again. */
    show_managed(s, asked != 0 && gone >= asked ? weir_managed_on_device(s) : 0);
    return asked != 0 || weir_away_movable(s) == 0;
}

void weir_session_rests(struct weir_session *session)
{
    struct weir_session *s = session;
    uint64_t now_ns = weir_clock_now_ns();
    uint64_t idle_ns = weir_tenant_setting(s->tenant, idle_s) * WEIR_NS_PER_S;
    unsigned wish = atomic_load(&s->devices.suspension->wish);
    bool away = atomic_load(&s->devices.suspension->away_bytes) != 0;

    if (weir_session_is_monitor(s)) {
        return;
    }
    if (s->devices.suspension->rests_since_ns == 0) {
        s->devices.suspension->rests_since_ns = now_ns;
        show_managed(s, weir_managed_on_device(s));
        show(s, now_ns, away ? 0 : weir_away_movable(s));
    }
    if (wish == WEIR_SUSPEND_ROOM && s->platform->by_program && give_managed(s)) {
        atomic_compare_exchange_strong(&s->devices.suspension->wish, &wish, WEIR_SUSPEND_NO);
        return;
    }
    if (away || s->devices.suspension->held ||
        (wish != WEIR_SUSPEND_HOLD && !s->platform->by_program) ||
        ((wish == WEIR_SUSPEND_NO || wish == WEIR_SUSPEND_TEST) &&
         (idle_ns == 0 || s->devices.suspension->stays ||
          now_ns - s->devices.suspension->rests_since_ns < idle_ns))) {
        return;
    }
    CUresult result = weir_away_begin(s, wish == WEIR_SUSPEND_HOLD ? 0 : kept_bytes(s));
    if (result == CUDA_SUCCESS) {
        show(s, s->devices.suspension->rests_since_ns, 0);
    } else if (result != CUDA_ERROR_NOT_READY) {
        tell_why(s, result);
        s->devices.suspension->stays = true; /* until the program has done something */
        show(s, s->devices.suspension->rests_since_ns, 0);
    }
    if (wish == WEIR_SUSPEND_ROOM) {
        atomic_compare_exchange_strong(&s->devices.suspension->wish, &wish, WEIR_SUSPEND_NO);
    } else if (wish == WEIR_SUSPEND_HOLD && result != CUDA_ERROR_NOT_READY) {
        atomic_store(&s->devices.suspension->held, true);
    }
}

/* ---------------------------------------------------------------- records */

static void nap(uint64_t ns)
{
    const struct timespec time = {0, (long)ns};

    (void)nanosleep(&time, NULL);
}

static bool is_held(const struct weir_session *s)
{
    return atomic_load(&s->devices.suspension->wish) == WEIR_SUSPEND_HOLD &&
           !weir_session_is_over(s);
}

/* Suspend a session that has sent a record, and keep it so until it is resumed. */
static void hold(struct weir_session *s)
{
    uint64_t until_ns = weir_clock_now_ns() + REST_LIMIT_NS;
    CUresult result = CUDA_SUCCESS;

    weir_admission_idle(s);
    while (!atomic_load(&s->devices.suspension->held) && is_held(s)) {
        unsigned hold = WEIR_SUSPEND_HOLD;

        result = weir_away_begin(s, 0);
        if (result != CUDA_ERROR_NOT_READY) {
            atomic_store(&s->devices.suspension->held, true);
        } else if (weir_clock_now_ns() >= until_ns) {
            atomic_compare_exchange_strong(&s->devices.suspension->wish, &hold, WEIR_SUSPEND_NO);
        } else {
            nap(WEIR_NS_PER_MS);
        }
    }
    if (result != CUDA_SUCCESS) {
        tell_why(s, result);
    }
    while (is_held(s)) {
        nap(20 * WEIR_NS_PER_MS);
    }
    atomic_store(&s->devices.suspension->held, false);
}

void weir_session_wakes(struct weir_session *session)
{
    struct weir_session *s = session;
    unsigned room = WEIR_SUSPEND_ROOM;

    atomic_compare_exchange_strong(&s->devices.suspension->wish, &room,
                                   WEIR_SUSPEND_NO); /* it works */
    if (s->devices.suspension->rests_since_ns != 0) {
        s->devices.suspension->rests_since_ns = 0;
        s->devices.suspension->stays = false;
        show(s, 0, 0);
    }
    if (is_held(s)) {
        hold(s);
    } else if (atomic_load(&s->devices.suspension->wish) == WEIR_SUSPEND_TEST &&
               !weir_session_is_monitor(s)) {
        weir_admission_idle(s);
        (void)weir_away_begin(s, 0);
    }
    if (atomic_load(&s->devices.suspension->away_bytes) == 0) {
        return;
    }
    CUresult result = weir_session_is_over(s) ? CUDA_ERROR_OUT_OF_MEMORY : weir_away_end(s);
    if (result == CUDA_SUCCESS) {
        return;
    }
    if (weir_error_is_sticky(result)) {
        weir_session_fault(s, result);
    } else if (!weir_session_is_over(s)) {
        weir_log_error("session: not resumed, ended session=%llu tenant=%s result=%d",
                       (unsigned long long)s->id, s->tenant->name, (int)result);
    }
    weir_session_end(s); /* no record may be handled without the memory */
}

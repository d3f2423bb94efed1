/* Guests on their way to a session, and from one worker to another. */
#include "host_backend/worker/guests_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/rebuild/rebuild.h"
#include "host_backend/worker/sessions.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum weir_status weir_arrival_open(struct weir_arrival *a)
{
    enum weir_status status = weir_moved_open(a->box_fd, &a->moved);
    const struct weir_session_carried *about;

    a->box_fd = -1;
    if (status == WEIR_OK) {
        about = weir_moved_about(a->moved);
        a->pid = about->pid;
        a->pid_here = (uint32_t)about->pid;
        a->guest_pid = about->guest_pid;
        a->wish = about->wish;
        a->unknown = about->unknown;
        snprintf(a->program, sizeof a->program, "%s", about->program);
    }
    return status;
}

CUresult weir_arrival_reserve(struct weir_arrival *a)
{
    if (a->moved) {
        weir_rebuild_clear_window(a->tenant);
    }
    return weir_tenant_reserve(a->tenant);
}

/* Tell the supervisor once what became of a session that came in a box. */
static void say(struct weir_arrival *a, enum weir_move what)
{
    if (a->in_box) {
        weir_rebuild_say(a->worker, a->number, a->tenant->index, what);
    }
    a->in_box = false;
}

bool weir_arrival_rebuild(struct weir_arrival *a, struct weir_session *session)
{
    uint64_t begin_ns = weir_clock_now_ns();
    const char *why;
    CUresult result = weir_moved_rebuild(a->moved, session, weir_session_replay, &why);

    if (result == CUDA_SUCCESS) {
        weir_log_info("session: rebuilt session=%llu tenant=%s pid=%lld program=\"%s\" ms=%.1f",
                      (unsigned long long)session->id, a->tenant->name, (long long)a->pid,
                      a->program,
                      (double)(weir_clock_now_ns() - begin_ns) / (double)WEIR_NS_PER_MS);
        weir_session_event(session, WEIR_EVENT_SESSION_MOVED, "");
        return true;
    }
    weir_log_error("session: not rebuilt%s session=%llu tenant=%s what=\"%s\" result=%d",
                   weir_moved_waits(a->moved) ? "" : ", ended", (unsigned long long)session->id,
                   a->tenant->name, why, (int)result);
    if (!weir_moved_waits(a->moved)) {
        weir_session_show_sticky(session, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    return false;
}

void weir_arrival_is_here(struct weir_arrival *a)
{
    say(a, WEIR_MOVE_ARRIVED);
}

void weir_arrival_is_over(struct weir_arrival *a)
{
    say(a, WEIR_MOVE_FAILED);
}

/* Count the arrival's session among its tenant's, or not. */
static void count(struct weir_arrival *a, bool counts)
{
    struct weir_amounts one = {0};

    one.of[a->item] = 1;
    if (counts) {
        weir_account_charge_again(&a->tenant->account, &one);
    } else {
        weir_account_release_all(&a->tenant->account, &one);
    }
    a->counted = counts;
}

bool weir_arrival_leaves(struct weir_arrival *a, struct weir_session *session)
{
    count(a, false);
    bool gone = weir_rebuild_is_gone(session);
    if (!gone) {
        count(a, true);
    }
    return gone;
}

void weir_arrival_begin(struct weir_arrival *a, struct weir_session *session, const char *transport)
{
    weir_log_info("session: begun session=%llu tenant=%s pid=%lld program=\"%s\" transport=%s",
                  (unsigned long long)session->id, a->tenant->name, (long long)a->pid, a->program,
                  transport);
    weir_stages_log(&a->stages, a->tenant->name, session->id);
    weir_session_event(session, WEIR_EVENT_SESSION_BEGAN, transport);
}

void weir_arrival_note_hello(struct weir_arrival *a, const struct weir_hello *hello)
{
    a->guest_pid = hello->pid;
    a->monitor = hello->monitor;
    a->wish = hello->wish;
    if (hello->program[0] != 0) {
        snprintf(a->program, sizeof a->program, "%.*s", (int)sizeof a->program - 1, hello->program);
    }
    weir_unknown_ops_find(hello->ops, &a->unknown);
}

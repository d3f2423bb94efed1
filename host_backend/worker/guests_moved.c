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

void weir_arrival_rebuild(struct weir_arrival *a, struct weir_session *session)
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
        return;
    }
    weir_log_error("session: not rebuilt, ended session=%llu tenant=%s what=\"%s\" result=%d",
                   (unsigned long long)session->id, a->tenant->name, why, (int)result);
    weir_session_show_sticky(session, CUDA_ERROR_ILLEGAL_ADDRESS);
    weir_session_end(session);
}

void weir_arrival_pass_on(struct weir_arrival *a, uint64_t id, int box)
{
    struct weir_link_message message = {
        .type = WEIR_LINK_MOVED,
        .moved = {.connections = a->wish.connections,
                  .sm_pct = a->wish.sm_pct,
                  .native = a->wish.launches_on_device,
                  .guest = {.tenant_index = a->tenant->index,
                            .generation = __atomic_load_n(&a->tenant->generation, __ATOMIC_RELAXED),
                            .channel = WEIR_CHANNEL_BOX,
                            .pid = a->pid,
                            .session = id}}};

    memcpy(message.moved.guest.program, a->program, sizeof message.moved.guest.program);
    if (weir_worker_pass(a->worker, &message, box)) {
        weir_log_info("session: left session=%llu tenant=%s", (unsigned long long)id,
                      a->tenant->name);
    }
    close(box);
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

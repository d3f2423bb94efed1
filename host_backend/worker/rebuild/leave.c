/*
 * Sessions that leave: everything of a session goes into a box, without a call of the driver, since
 * its context may be dead.
 */
#include "base/clock.h"
#include "base/log.h"
#include "host_backend/config/link.h"
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/rebuild/private.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long sessions may take to leave. The supervisor kills the workers of a domain 0.5 s after it
 * has told them to go (LEAVE_WAIT_NS in domains/mps.c). */
#define LEAVE_NS (400 * WEIR_NS_PER_MS)

/* ---------------------------------------------------------------- the parts of a box */

struct images {
    struct weir_box *box;
    const struct weir_host_image **of;
    uint32_t n;
};

static void put_image(const struct weir_host_image *image, void *user)
{
    struct images *images = user;
    uint32_t i = 0;

    while (i < images->n && images->of[i] != image) {
        i++;
    }
    if (i < images->n) {
        return;
    }
    images->of[images->n++] = image;
    (void)weir_box_put(images->box, &image->hash, sizeof image->hash);
    (void)weir_box_put(images->box, &image->bytes, sizeof image->bytes);
    (void)weir_box_put(images->box, image->data, image->bytes);
}

static void count(const struct weir_host_image *image, void *user)
{
    (void)image;
    ++*(uint32_t *)user;
}

static void put_images(struct weir_session *s, struct weir_box *box, uint32_t *ret_n)
{
    struct images images = {.box = box};
    uint32_t most = 1;

    weir_session_book_images(s, count, &most);
    images.of = calloc(most, sizeof *images.of);
    if (!images.of) {
        box->failed = true;
        return;
    }
    weir_session_book_images(s, put_image, &images);
    free(images.of);
    *ret_n = images.n;
}

static void put_records(struct weir_session *s, struct weir_box *box, uint32_t *ret_n)
{
    const struct weir_kept_record **records;

    if (weir_session_book_list(s, &records, ret_n) != WEIR_OK) {
        box->failed = true;
        return;
    }
    for (uint32_t i = 0; i < *ret_n; i++) {
        uint64_t n_names = records[i]->n_names;

        (void)weir_box_put(box, &records[i]->record, records[i]->record.len_bytes);
        (void)weir_box_put(box, &n_names, sizeof n_names);
        if (n_names != 0) {
            (void)weir_box_put(box, records[i]->names, n_names * sizeof *records[i]->names);
        }
    }
    free(records);
}

struct times {
    struct weir_box *box;
    uint32_t n;
};

static void put_time(weir_handle handle, void *object, void *user)
{
    const struct weir_host_event *event = object;
    struct times *times = user;

    if (event->at_ms != 0 || (event->was_captured && !event->captured)) {
        (void)weir_box_put(times->box, &handle, sizeof handle);
        (void)weir_box_put(times->box, &event->at_ms, sizeof event->at_ms);
        times->n++;
    }
}

static void fill_head(const struct weir_session *s, const struct weir_transport_state *state,
                      struct weir_box_head *head)
{
    head->version = WEIR_LINK_VERSION;
    head->sent = state->sent;
    head->received = state->received;
    head->devices_used = s->devices.used;
    head->captures = s->devices.book->capture_last;
    head->segment_bytes = state->segment_bytes;
    head->window_base = weir_tenant_window_base(s->tenant);
    weir_session_carry(s, &head->about);
}

/* Put the session into a box. false: it stays, and nothing has changed. */
static bool pack(struct weir_session *s)
{
    struct weir_transport_state state;
    struct weir_box_head head = {0};
    struct weir_box box = {0};
    struct times times = {&box, 0};
    enum weir_status status;

    if (weir_rebuild_why(s) || !weir_session_transport_state(s, &state)) {
        return false;
    }
    fill_head(s, &state, &head);
    (void)weir_box_put(&box, NULL, sizeof head);
    weir_box_put_file(&box, WEIR_BOX_SEGMENT, 0, state.segment_fd);
    weir_box_put_file(&box, WEIR_BOX_SOCKET, 0, state.socket_fd);
    if (state.pid_fd >= 0) {
        weir_box_put_file(&box, WEIR_BOX_PROCESS, 0, state.pid_fd);
    }
    put_images(s, &box, &head.n_images);
    weir_rebuild_memory_put(s, &box, &head.memory);
    put_records(s, &box, &head.n_records);
    weir_rebuild_variables_put(s, &box, &head.n_variables);
    weir_host_objects_visit(s, WEIR_KIND_EVENT, put_time, &times);
    head.n_times = times.n;
    if (!box.failed) {
        memcpy(box.bytes, &head, sizeof head);
    }
    status = weir_box_send(&box, &s->devices.book->box);
    if (status != WEIR_OK) {
        s->devices.book->box = -1;
        weir_log_warn("session: cannot leave session=%llu tenant=%s bytes=%zu files=%u why=\"%s\"",
                      (unsigned long long)s->id, s->tenant->name, box.n, box.n_files,
                      weir_status_text(status));
    }
    weir_box_finish(&box, false);
    return status == WEIR_OK;
}

/* ---------------------------------------------------------------- when */

/* Log why a session does not leave. */
static void tell_why(const struct weir_session *s)
{
    const char *why =
        s->devices.book ? atomic_load(&s->devices.book->why) : "its worker is not for one program";

    weir_log_warn("session: ends with its context session=%llu tenant=%s program=\"%s\" why=\"%s\"",
                  (unsigned long long)s->id, s->tenant->name, weir_session_program(s),
                  !why || *why == 0 || why == weir_book_if_same ? "it has work under way" : why);
}

/* Ask those that may leave. @return how many have not left */
static uint32_t ask_all(struct weir_worker *worker, bool first)
{
    uint32_t n = 0;

    for (struct weir_session *s = weir_sessions_lock(worker); s; s = s->next) {
        if (s->devices.book && atomic_load(&s->devices.book->may_leave)) {
            atomic_store(&s->devices.book->asked, true);
            weir_session_call(s);
            n++;
        } else if (first && !weir_session_is_monitor(s)) {
            tell_why(s);
        }
    }
    weir_sessions_unlock(worker);
    return n;
}

void weir_rebuild_leave_all(struct weir_worker *worker)
{
    const struct timespec pause = {0, WEIR_NS_PER_MS};
    uint64_t until_ns = weir_clock_now_ns() + LEAVE_NS;
    uint32_t left = ask_all(worker, true);

    while (left != 0 && weir_clock_now_ns() < until_ns) {
        (void)nanosleep(&pause, NULL);
        left = ask_all(worker, false);
    }
}

bool weir_rebuild_leaves(struct weir_session *session)
{
    struct weir_session_book *book = session->devices.book;

    if (!book || !atomic_load(&book->asked) || !book->rests) {
        return false;
    }
    if (!atomic_load(&book->may_leave) || !pack(session)) {
        atomic_store(&book->may_leave, false);
        return false;
    }
    return true;
}

bool weir_rebuild_leaves_for_test(struct weir_session *session)
{
    return session->devices.book &&
           weir_session_calls(session) % session->platform->moves_every == 0 &&
           weir_rebuild_is_quiet(session) && !weir_rebuild_prepare(session) && pack(session);
}

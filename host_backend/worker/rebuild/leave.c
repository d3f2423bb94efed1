/*
 * Sessions that leave: everything of a session goes into a box, without a call of the driver, since
 * its context may be dead. If it lives, the session waits here until another worker has it.
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
#include <unistd.h>

/* How long sessions may take to leave. The supervisor kills the workers of a domain 0.5 s after it
 * has told them to go (LEAVE_WAIT_NS in domains/mps.c). */
#define LEAVE_NS (400 * WEIR_NS_PER_MS)
#define MOVE_NS  (10 * WEIR_NS_PER_S)  /* how long work of a session may go on that is to move */
#define WAIT_NS  (10 * WEIR_NS_PER_MS) /* between looks whether a session that waits has ended */

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
static bool pack(struct weir_session *s, bool waits)
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
    head.waits = waits;
    (void)weir_box_put(&box, NULL, sizeof head);
    weir_box_put_file(&box, WEIR_BOX_SEGMENT, 0, state.segment_fd);
    weir_box_put_file(&box, WEIR_BOX_SOCKET, 0, state.socket_fd);
    if (state.pid_fd >= 0) {
        weir_box_put_file(&box, WEIR_BOX_PROCESS, 0, state.pid_fd);
    }
    put_images(s, &box, &head.n_images);
    weir_rebuild_memory_put(s, &box, &head.memory, &s->devices.book->leaving.lent);
    put_records(s, &box, &head.n_records);
    weir_rebuild_variables_put(s, &box, &head.n_variables);
    weir_rebuild_arrays_put(s, &box, &head.n_arrays, &s->devices.book->leaving.lent);
    weir_host_objects_visit(s, WEIR_KIND_EVENT, put_time, &times);
    head.n_times = times.n;
    if (!box.failed) {
        memcpy(box.bytes, &head, sizeof head);
    }
    status = weir_box_send(&box, &s->devices.book->leaving.box);
    if (status != WEIR_OK) {
        s->devices.book->leaving.box = -1;
        weir_log_warn("session: cannot leave session=%llu tenant=%s bytes=%zu files=%u why=\"%s\"",
                      (unsigned long long)s->id, s->tenant->name, box.n, box.n_files,
                      weir_status_text(status));
    }
    weir_box_finish(&box, false);
    return status == WEIR_OK;
}

bool weir_rebuild_pass_on(struct weir_session *session, bool waits)
{
    struct weir_session *s = session;
    struct weir_session_carried about;
    struct weir_link_message message = {.type = WEIR_LINK_MOVED};
    struct weir_link_moved *moved = &message.moved;
    int box = s->devices.book->leaving.box;

    weir_session_carry(s, &about);
    moved->connections = about.wish.connections;
    moved->sm_pct = about.wish.sm_pct;
    moved->native = about.wish.launches_on_device;
    moved->waits = waits;
    moved->guest = (struct weir_link_guest){
        .tenant_index = s->tenant->index,
        .generation = __atomic_load_n(&s->tenant->generation, __ATOMIC_RELAXED),
        .channel = WEIR_CHANNEL_BOX,
        .pid = about.pid,
        .session = about.id};
    memcpy(moved->guest.program, about.program, sizeof moved->guest.program);
    s->devices.book->leaving.box = -1;
    bool passed = weir_worker_pass(s->worker, &message, box);
    close(box);
    if (passed) {
        weir_log_info("session: left session=%llu tenant=%s", (unsigned long long)s->id,
                      s->tenant->name);
    }
    return passed;
}

/* ---------------------------------------------------------------- a dying context */

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
        if (s->devices.book && atomic_load(&s->devices.book->leaving.may)) {
            atomic_store(&s->devices.book->leaving.dying, true);
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

    if (!book || !atomic_load(&book->leaving.dying) || !book->rests) {
        return false;
    }
    if (!atomic_load(&book->leaving.may) || !pack(session, false)) {
        atomic_store(&book->leaving.may, false);
        return false;
    }
    return true;
}

/* ---------------------------------------------------------------- a context that lives */

void weir_rebuild_say(const struct weir_worker *worker, uint64_t session, uint32_t tenant_index,
                      enum weir_move what)
{
    const struct weir_link_message message = {.type = WEIR_LINK_MOVE,
                                              .move = {session, tenant_index, (uint32_t)what}};

    weir_worker_tell(worker, &message);
}

static void say_of(const struct weir_session *s, enum weir_move what)
{
    weir_rebuild_say(s->worker, s->id, s->tenant->index, what);
}

static void cannot(struct weir_session *s, const char *why)
{
    weir_log_info("session: asked to move, but stays session=%llu tenant=%s why=\"%s\"",
                  (unsigned long long)s->id, s->tenant->name, why);
    say_of(s, WEIR_MOVE_CANNOT);
    s->devices.book->leaving.by_ns = 0;
    atomic_store(&s->devices.book->leaving.move, WEIR_MOVE_NO);
}

static void tell_one(struct weir_session *s, const struct weir_link_move *move)
{
    struct weir_session_book *book = s->devices.book;
    unsigned no = WEIR_MOVE_NO, waits = WEIR_MOVE_WAITS;

    if (!book && move->what == WEIR_MOVE_ASK) {
        say_of(s, WEIR_MOVE_CANNOT);
    } else if (book && move->what == WEIR_MOVE_ASK) {
        if (atomic_compare_exchange_strong(&book->leaving.move, &no, WEIR_MOVE_ASK)) {
            weir_session_call(s);
        }
    } else if (book && (move->what == WEIR_MOVE_GONE || move->what == WEIR_MOVE_STAY) &&
               atomic_compare_exchange_strong(&book->leaving.move, &waits, move->what)) {
        weir_futex_wake((uint32_t *)&book->leaving.move, 1);
    }
}

void weir_rebuild_told(struct weir_worker *worker, const struct weir_link_move *move)
{
    bool any = false;

    for (struct weir_session *s = weir_sessions_lock(worker); s; s = s->next) {
        if (!weir_session_is_monitor(s) &&
            (s->id == move->session || (move->session == 0 && move->what == WEIR_MOVE_ASK))) {
            tell_one(s, move);
            any = true;
        }
    }
    weir_sessions_unlock(worker);
    if (!any && move->what == WEIR_MOVE_ASK) {
        weir_rebuild_say(worker, move->session, move->tenant_index, WEIR_MOVE_CANNOT);
    }
}

void weir_rebuild_say_again(struct weir_worker *worker)
{
    for (const struct weir_session *s = weir_sessions_lock(worker); s; s = s->next) {
        if (s->devices.book && s->devices.book->leaving.came) {
            say_of(s, WEIR_MOVE_ARRIVED);
        }
    }
    weir_sessions_unlock(worker);
}

/* Has the worker no other session, such as a monitor of the same program? */
static bool is_only(struct weir_session *s)
{
    const struct weir_session *first = weir_sessions_lock(s->worker);
    bool only = first == s && !s->next;

    weir_sessions_unlock(s->worker);
    return only;
}

bool weir_rebuild_moves_now(struct weir_session *session)
{
    struct weir_session_book *book = session->devices.book;
    bool asked = atomic_load(&book->leaving.move) == WEIR_MOVE_ASK;
    uint64_t now_ns = weir_clock_now_ns();
    const char *why;

    if (!asked && weir_session_calls(session) % session->platform->moves_every != 0) {
        return false;
    }
    book->leaving.by_ns = book->leaving.by_ns == 0 ? now_ns + MOVE_NS : book->leaving.by_ns;
    if (!weir_rebuild_is_quiet(session)) {
        if (asked && now_ns >= book->leaving.by_ns) {
            cannot(session, "its work goes on");
        }
        return false;
    }
    why = is_only(session) ? weir_rebuild_prepare(session) : "its worker has other connections";
    if (!why && pack(session, true)) {
        return true;
    }
    if (asked) {
        cannot(session, why ? why : "its box was not made");
    }
    return false;
}

bool weir_rebuild_is_gone(struct weir_session *session)
{
    struct weir_session_book *book = session->devices.book;
    struct weir_account *account = &session->tenant->account;
    bool test = session->platform->moves_every != 0;
    unsigned told;

    weir_account_release_all(account, &book->leaving.lent); /* the other worker charges it */
    atomic_store(&book->leaving.move, WEIR_MOVE_WAITS);
    if (!weir_rebuild_pass_on(session, true)) {
        atomic_store(&book->leaving.move, WEIR_MOVE_STAY);
    }
    while ((told = atomic_load(&book->leaving.move)) == WEIR_MOVE_WAITS &&
           !atomic_load(&session->ending)) {
        (void)weir_futex_wait((const uint32_t *)&book->leaving.move, told, WAIT_NS);
    }
    if (told != WEIR_MOVE_STAY) {
        weir_rebuild_memory_is_lent(session);
        weir_rebuild_arrays_are_lent(session);
        return true;
    }
    weir_account_charge_again(account, &book->leaving.lent);
    weir_log_info("session: goes on where it was session=%llu tenant=%s",
                  (unsigned long long)session->id, session->tenant->name);
    book->leaving.by_ns = 0;
    atomic_store(&book->leaving.move, test ? WEIR_MOVE_TEST : WEIR_MOVE_NO);
    return false;
}

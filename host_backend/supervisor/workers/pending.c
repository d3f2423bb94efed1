/*
 * Connections of programs that have no worker yet: from their arrival until a worker gets them
 * (programs.c) or they are refused. The supervisor peeks at the hello; the worker reads it.
 *
 * When all places are taken, a connection without a hello is dropped: one of the holder (users.h)
 * with most of them. If all have sent a hello, one of the holder with most places is dropped for a
 * holder with fewer. So each of n holders has an n-th of the places, whatever the others do. A
 * dropped program gets the answer to try again.
 *
 * A session that has left its worker waits here, too. It has no connection to try again with, so
 * the keeper has its box for the next supervisor.
 */
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/programs.h"

#include "base/clock.h"
#include "base/log.h"
#include "proto/cuda_abi.h"
#include "proto/wire/accept.h"
#include "proto/wire/control.h"
#include "proto/wire/control_codec.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define AGAIN_NS (10 * WEIR_NS_PER_S) /* pause after a session could not move by itself */

/* Of the session's row in the keeper's book: the same if its message comes again, and no worker can
 * make it that of another worker's session. */
static uint64_t key_of(const struct weir_sup_pending *moved)
{
    return (uint64_t)moved->from_pid << 32 | (uint32_t)moved->guest.session;
}

void weir_sup_move_stays(struct weir_sup_worker *worker)
{
    worker->program.move = (struct weir_sup_move){.again_ns = weir_host_clock_ns() + AGAIN_NS};
}

void weir_sup_move_ends(struct weir_supervisor *sup, int tenant, uint64_t session,
                        enum weir_move what, int except)
{
    const struct weir_link_message message = {.type = WEIR_LINK_MOVE,
                                              .move = {session, (uint32_t)tenant, (uint32_t)what}};

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (i == except || !w->used || w->kind != WEIR_WORKER_PROGRAM || w->tenant != tenant) {
            continue;
        }
        (void)weir_sup_worker_send(sup, i, &message, -1);
        if (what == WEIR_MOVE_STAY && w->program.move.asked) {
            weir_sup_move_stays(w);
        }
    }
}

uint64_t weir_sup_pending_given(struct weir_supervisor *sup, struct weir_sup_pending *p)
{
    uint64_t key = key_of(p);

    if (!p->waits) {
        weir_sup_pending_forget(sup, p);
        return 0;
    }
    close(p->fd);
    *p = (struct weir_sup_pending){.fd = -1};
    return key;
}

void weir_sup_pending_forget(struct weir_supervisor *sup, struct weir_sup_pending *p)
{
    if (p->moved) {
        weir_book_drop(sup, WEIR_BOOK_MOVED, key_of(p));
    }
    if (p->waits) {
        weir_sup_move_ends(sup, (int)p->guest.tenant_index, p->guest.session, WEIR_MOVE_STAY, -1);
    }
    close(p->fd);
    *p = (struct weir_sup_pending){.fd = -1};
}

/* Refuse a guest, and log it. Unless the guest is to try again, also count the refusal and add an
 * event. */
static void refuse(struct weir_supervisor *sup, const struct weir_link_guest *guest, int fd,
                   enum weir_status reason, int32_t result, const char *why)
{
    struct weir_sup_tenant *tenant = &sup->tenants[guest->tenant_index];

    weir_log_limit_thread(weir_sup_log_rate(sup, tenant), tenant->config.name);
    weir_log_warn("supervisor: guest refused tenant=%s pid=%lld why=\"%s\"", tenant->config.name,
                  (long long)guest->pid, why);
    weir_log_limit_thread(NULL, NULL);
    weir_refuse(fd, reason, result, why);
    if (reason == WEIR_ERR_AGAIN) {
        return;
    }
    tenant->refused.sessions++;
    weir_sup_event(sup,
                   &(struct weir_sup_event){.kind = WEIR_EVENT_SESSION_REFUSED,
                                            .tenant = tenant,
                                            .program = guest->program,
                                            .pid = (uint64_t)guest->pid},
                   "%s", why);
}

void weir_sup_turn_away(struct weir_supervisor *sup, struct weir_sup_pending *p,
                        enum weir_status reason, int32_t result, const char *why)
{
    if (p->waits) {
        weir_log_info("supervisor: a session stays in its worker tenant=%s pid=%lld why=\"%s\"",
                      sup->tenants[p->guest.tenant_index].config.name, (long long)p->guest.pid,
                      why);
    } else {
        refuse(sup, &p->guest, p->fd, reason, result, why);
    }
    weir_sup_pending_forget(sup, p);
}

void weir_sup_pending_close(struct weir_supervisor *sup)
{
    for (size_t i = 0; i < WEIR_PENDING_MAX; i++) {
        if (sup->programs.pending[i].used) { /* the host stops, so a retry is of no use */
            weir_sup_turn_away(sup, &sup->programs.pending[i], WEIR_ERR_NOT_FOUND,
                               CUDA_ERROR_UNKNOWN, "the host is shutting down");
        }
    }
}

/* Peek at the hello: the worker will read it. */
static void peek_hello(struct weir_supervisor *sup, struct weir_sup_pending *p)
{
    struct weir_hello *hello = NULL;
    uint8_t *bytes = malloc(WEIR_CONTROL_MAX_BYTES);
    ssize_t n = !bytes ? -1 : recv(p->fd, bytes, WEIR_CONTROL_MAX_BYTES, MSG_PEEK | MSG_DONTWAIT);
    bool later = n < 0 && (!bytes || errno == EAGAIN || errno == EINTR);

    bool decoded = n > 0 && weir_hello_decode(bytes, (size_t)n, &hello) == WEIR_OK;

    if (decoded && hello->why) {
        sup->listener->asks_why(sup, p->guest.tenant_index, p->fd);
        *p = (struct weir_sup_pending){.fd = -1};
        weir_hello_destroy(hello);
    } else if (decoded) {
        p->said_hello = true;
        p->guest.start.hello_ns = weir_clock_now_ns();
        p->monitor = hello->monitor;
        p->connections = hello->monitor ? 0 : hello->wish.connections;
        p->sm_pct = hello->monitor ? 0 : hello->wish.sm_pct;
        p->native = !hello->monitor && hello->wish.launches_on_device;
        weir_hello_destroy(hello);
    } else if (n > 0) {
        weir_sup_turn_away(sup, p, WEIR_ERR_PEER, CUDA_ERROR_UNKNOWN,
                           "not a hello of this protocol");
    } else if (!later) {
        weir_sup_pending_forget(sup, p);
    }
    free(bytes);
}

/* ---------------------------------------------------------------- places */

/* How many pending connections each holder has. */
struct counts {
    uint32_t silent[WEIR_HOLDERS_MAX]; /* those that have not sent a hello */
    uint32_t all[WEIR_HOLDERS_MAX];
};

static uint32_t holder_of(const struct weir_supervisor *sup, const struct weir_sup_pending *p)
{
    return weir_sup_holder(&sup->tenants[p->guest.tenant_index]);
}

static void count(const struct weir_supervisor *sup, struct counts *counts)
{
    memset(counts, 0, sizeof *counts);
    for (size_t i = 0; i < WEIR_PENDING_MAX; i++) {
        const struct weir_sup_pending *p = &sup->programs.pending[i];

        if (p->used) {
            counts->all[holder_of(sup, p)]++;
            counts->silent[holder_of(sup, p)] += !p->said_hello;
        }
    }
}

static uint32_t largest(const uint32_t n[WEIR_HOLDERS_MAX])
{
    uint32_t most = 0;

    for (uint32_t i = 1; i < WEIR_HOLDERS_MAX; i++) {
        most = n[i] > n[most] ? i : most;
    }
    return most;
}

/* A holder's oldest connection without a hello, or else its youngest one. */
static struct weir_sup_pending *one_of(struct weir_supervisor *sup, uint32_t holder, bool silent)
{
    struct weir_sup_pending *found = NULL;

    for (size_t i = 0; i < WEIR_PENDING_MAX; i++) {
        struct weir_sup_pending *p = &sup->programs.pending[i];

        if (p->used && holder_of(sup, p) == holder && p->said_hello != silent &&
            (!found || (p->since_ns < found->since_ns) == silent)) {
            found = p;
        }
    }
    return found;
}

/*
 * Find a free place, or take one from another connection; NULL: the newcomer gets none.
 * @param spoke the newcomer has sent something.
 */
static struct weir_sup_pending *find_place(struct weir_supervisor *sup, uint32_t holder, bool spoke)
{
    struct weir_sup_pending *place = NULL;
    struct counts counts;

    for (size_t i = 0; i < WEIR_PENDING_MAX; i++) {
        if (!sup->programs.pending[i].used) {
            return &sup->programs.pending[i];
        }
    }
    count(sup, &counts);
    uint32_t most = largest(counts.silent);
    if (counts.silent[most] != 0) {
        place = spoke || most == holder || counts.silent[most] > counts.silent[holder] + 1
                    ? one_of(sup, most, true)
                    : NULL;
    } else if (spoke) {
        most = largest(counts.all);
        place = counts.all[most] > counts.all[holder] + 1 ? one_of(sup, most, false) : NULL;
    }
    if (place) {
        weir_sup_turn_away(
            sup, place, WEIR_ERR_AGAIN, CUDA_ERROR_UNKNOWN,
            place->said_hello
                ? "too many programs of the tenant wait for a worker: others come first"
                : "it said no hello, and its place was wanted");
    }
    return place;
}

void weir_sup_program_arrived(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                              int fd, const struct weir_link_guest *guest)
{
    uint8_t byte;
    bool spoke = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    struct weir_sup_pending *place = find_place(sup, weir_sup_holder(tenant), spoke);

    if (!place) {
        refuse(
            sup, guest, fd, spoke ? WEIR_ERR_FULL : WEIR_ERR_AGAIN,
            spoke ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN,
            "as many programs wait for a worker as the host has places for, and the tenant's have "
            "their part of these");
        close(fd);
        return;
    }
    *place = (struct weir_sup_pending){
        .used = true, .fd = fd, .since_ns = weir_host_clock_ns(), .guest = *guest};
    place->guest.start.arrived_ns = place->since_ns;
    peek_hello(sup, place); /* the hello may have arrived already */
}

/* ---------------------------------------------------------------- sessions that move */

/* In the keeper's book. */
struct moved_row {
    int32_t from; /* as in struct weir_sup_pending */
    pid_t from_pid;
    uint32_t from_domain;
    struct weir_link_moved moved; /* last, since it may grow */
};

/* Let the session wait. @param box_fd  taken. @return its place; NULL: there is none */
static struct weir_sup_pending *let_wait(struct weir_supervisor *sup, const struct moved_row *row,
                                         int box_fd)
{
    const struct weir_link_moved *moved = &row->moved;
    struct weir_sup_tenant *tenant = &sup->tenants[moved->guest.tenant_index];
    struct weir_sup_pending *place = find_place(sup, weir_sup_holder(tenant), true);

    if (!place) {
        if (moved->waits) {
            weir_sup_move_ends(sup, (int)tenant->index, moved->guest.session, WEIR_MOVE_STAY, -1);
        } else {
            weir_log_warn(
                "supervisor: a session is lost tenant=%s pid=%lld why=\"no place for it\"",
                tenant->config.name, (long long)moved->guest.pid);
        }
        close(box_fd);
        return NULL;
    }
    *place = (struct weir_sup_pending){.used = true,
                                       .fd = box_fd,
                                       .said_hello = true,
                                       .connections = moved->connections,
                                       .sm_pct = moved->sm_pct,
                                       .native = moved->native,
                                       .moved = true,
                                       .waits = moved->waits,
                                       .from = row->from,
                                       .from_pid = row->from_pid,
                                       .from_domain = row->from_domain,
                                       .since_ns = weir_host_clock_ns(),
                                       .guest = moved->guest};
    place->guest.channel = WEIR_CHANNEL_BOX;
    place->guest.program[sizeof place->guest.program - 1] = 0;
    return place;
}

void weir_sup_program_moved(struct weir_supervisor *sup, int worker,
                            const struct weir_link_moved *moved, int box_fd)
{
    const struct weir_sup_worker *w = &sup->workers[worker];
    const struct moved_row row = {worker, w->pid, w->program.domain, *moved};
    struct weir_sup_pending *place;

    if (w->kind != WEIR_WORKER_PROGRAM) {
        close(box_fd);
    } else if ((place = let_wait(sup, &row, box_fd))) {
        sup->tenants[moved->guest.tenant_index].moved += !moved->waits;
        weir_book_put(sup, WEIR_BOOK_MOVED, key_of(place), &row, sizeof row, &box_fd, 1);
    }
}

/* Does the session wait here, since its message has come again? */
static bool waits(const struct weir_supervisor *sup, uint64_t key)
{
    for (size_t i = 0; i < WEIR_PENDING_MAX; i++) {
        const struct weir_sup_pending *p = &sup->programs.pending[i];

        if (p->used && p->moved && key_of(p) == key) {
            return true;
        }
    }
    return false;
}

/* Did the last supervisor give it to another worker, and die before it removed the row? */
static bool is_served(const struct weir_supervisor *sup, const struct moved_row *row)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && w->program.busy && w->tenant == (int)row->moved.guest.tenant_index &&
            w->program.pid == (pid_t)row->moved.guest.pid && w->pid != row->from_pid) {
            return true;
        }
    }
    return false;
}

static bool adopt(struct weir_supervisor *sup, const struct weir_book_row *row, int box_fd)
{
    struct moved_row old;

    weir_book_read(row, &old, sizeof old);
    if (box_fd < 0 || old.moved.guest.tenant_index >= WEIR_CONFIG_TENANTS_MAX || old.from < 0 ||
        old.from >= WEIR_WORKERS_MAX || is_served(sup, &old)) {
        close(box_fd);
        return false;
    }
    if (old.moved.guest.session > sup->programs.n_guests) {
        sup->programs.n_guests = old.moved.guest.session;
    }
    return let_wait(sup, &old, box_fd) != NULL;
}

void weir_sup_pending_adopt(struct weir_supervisor *sup)
{
    struct weir_book_row *row;
    uint32_t n = 0;

    while ((row = weir_book_adopt(sup, WEIR_BOOK_MOVED))) {
        if (waits(sup, row->key)) { /* the row is that of the later message already */
            continue;
        }
        if (adopt(sup, row, weir_book_take_fd(row, 0))) {
            n++;
        } else {
            weir_book_drop(sup, WEIR_BOOK_MOVED, row->key);
        }
    }
    if (n != 0) {
        weir_log_info("supervisor: sessions of the last host wait for workers sessions=%u", n);
    }
}

bool weir_sup_pending_is_left(const struct weir_supervisor *sup,
                              const struct weir_sup_pending *pending, int worker)
{
    const struct weir_sup_worker *w = &sup->workers[worker];

    return pending->moved && (w->program.is_older ||
                              (worker == pending->from && w->used && w->pid == pending->from_pid));
}

bool weir_sup_pending_is_held(const struct weir_supervisor *sup,
                              const struct weir_sup_pending *pending)
{
    return pending->moved &&
           ((!pending->waits && weir_sup_pending_is_left(sup, pending, pending->from) &&
             sup->workers[pending->from].program.busy) ||
            (pending->from_domain != 0 && sup->mps.of[pending->from_domain - 1].blame.open));
}

static void on_pending(void *user, int index)
{
    struct weir_supervisor *sup = user;
    struct weir_sup_pending *pending = &sup->programs.pending[index];

    if (pending->used && !pending->said_hello) {
        peek_hello(sup, pending);
    } else if (pending->used) {
        weir_sup_pending_forget(sup, pending); /* no events are watched, so this is a hang-up */
    }
}

void weir_sup_pending_watch(struct weir_supervisor *sup, int i, struct weir_host_loop *loop)
{
    const struct weir_sup_pending *pending = &sup->programs.pending[i];

    if (!pending->moved) { /* nobody has the other end of a box */
        weir_host_loop_watch(loop, pending->fd, pending->said_hello ? 0 : POLLIN, on_pending, sup,
                             i);
    }
}

/* ---------------------------------------------------------------- the order of service */

struct turn {
    uint16_t slot;
    uint16_t before; /* how many older connections its holder has */
    uint64_t since_ns;
};

static int older_first(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;

    if (a->since_ns != b->since_ns) {
        return a->since_ns < b->since_ns ? -1 : 1;
    }
    return a->slot < b->slot ? -1 : a->slot > b->slot;
}

static int holders_in_turn(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;

    return a->before != b->before ? (a->before < b->before ? -1 : 1) : older_first(left, right);
}

uint32_t weir_sup_pending_in_turn(const struct weir_supervisor *sup,
                                  uint16_t ret_slots[WEIR_PENDING_MAX])
{
    uint16_t n_of[WEIR_HOLDERS_MAX] = {0};
    struct turn turns[WEIR_PENDING_MAX];
    uint32_t n = 0;

    for (uint32_t i = 0; i < WEIR_PENDING_MAX; i++) {
        if (sup->programs.pending[i].used) {
            turns[n++] =
                (struct turn){.slot = (uint16_t)i, .since_ns = sup->programs.pending[i].since_ns};
        }
    }
    qsort(turns, n, sizeof turns[0], older_first);
    for (uint32_t i = 0; i < n; i++) {
        turns[i].before = n_of[holder_of(sup, &sup->programs.pending[turns[i].slot])]++;
    }
    qsort(turns, n, sizeof turns[0], holders_in_turn);
    for (uint32_t i = 0; i < n; i++) {
        ret_slots[i] = turns[i].slot;
    }
    return n;
}

/*
 * Sessions that go to another worker while their own lives (docs/design/rebuild.md): on request,
 * and because a program is alone on its GPUs, or is not any more.
 *
 * First there must be a worker for the session, so that it waits for no start. Then its own is
 * asked; it answers with the box (pending.c), and waits. The other worker says whether the session
 * has arrived, and the first one is told.
 */
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/workers/program_kinds.h"
#include "host_backend/supervisor/workers/programs.h"

#include "base/clock.h"
#include "base/log.h"

#define WANT_NS (60 * WEIR_NS_PER_S) /* how long a move waits for a worker */
#define LOOK_NS (100 * WEIR_NS_PER_MS)
/* How long another program must work before one that was alone goes under MPS; it may rest for
 * LATELY_NS meanwhile. */
#define BESIDE_NS (2 * WEIR_NS_PER_S)
#define LATELY_NS WEIR_NS_PER_S

void weir_sup_move_want(struct weir_supervisor *sup, int worker, uint64_t session)
{
    struct weir_sup_move *move = &sup->workers[worker].program.move;

    if (!move->wanted) {
        *move = (struct weir_sup_move){
            .wanted = true, .session = session, .until_ns = weir_host_clock_ns() + WANT_NS};
    }
}

/* ---------------------------------------------------------------- what workers say */

/* The worker makes a session again no longer. */
static void arrived(struct weir_supervisor *sup, struct weir_sup_worker *w)
{
    weir_book_drop(sup, WEIR_BOOK_MOVED, w->program.moved_row);
    w->program.arriving = w->program.moved_row = 0;
}

void weir_sup_move_heard(struct weir_supervisor *sup, int worker, const struct weir_link_move *move)
{
    struct weir_sup_worker *w = &sup->workers[worker];

    if (w->kind != WEIR_WORKER_PROGRAM) {
        return;
    }
    if (move->what == WEIR_MOVE_CANNOT) {
        weir_sup_move_stays(w);
    } else if (move->what == WEIR_MOVE_ARRIVED || move->what == WEIR_MOVE_FAILED) {
        bool is_here = move->what == WEIR_MOVE_ARRIVED;

        if (w->program.arriving == move->session) {
            sup->tenants[move->tenant_index].moved += is_here;
            arrived(sup, w);
        }
        weir_sup_move_ends(sup, (int)move->tenant_index, move->session,
                           is_here ? WEIR_MOVE_GONE : WEIR_MOVE_STAY, worker);
    }
}

void weir_sup_move_worker_gone(struct weir_supervisor *sup, int worker)
{
    struct weir_sup_worker *w = &sup->workers[worker];

    if (w->program.arriving != 0) {
        weir_sup_move_ends(sup, w->tenant, w->program.arriving, WEIR_MOVE_STAY, worker);
        arrived(sup, w);
    }
}

/* ---------------------------------------------------------------- when */

/* A program that is alone wants to be outside MPS, and under it as soon as another one works. */
static void look_alone(struct weir_supervisor *sup, int worker, uint64_t now_ns)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    struct weir_program_kind own = weir_program_kind_of(w),
                             now = weir_program_kind_now(sup, worker);
    uint64_t *since_ns = &w->program.misplaced_since_ns;

    if (now.native == own.native ||
        (!now.native && weir_program_is_only(sup, w->devices, worker, LATELY_NS))) {
        *since_ns = 0;
        return;
    }
    *since_ns = *since_ns == 0 ? now_ns : *since_ns;
    if (now_ns >= *since_ns + (now.native ? WEIR_ALONE_NS : BESIDE_NS) &&
        now_ns >= w->program.move.again_ns && weir_program_works(w, LATELY_NS)) {
        weir_sup_move_want(sup, worker, 0);
    }
}

/* Ask the worker for its session if another one can take it, else start one. */
static void ask(struct weir_supervisor *sup, int worker, uint64_t now_ns)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    struct weir_program_kind kind = weir_program_kind_now(sup, worker);
    const struct weir_sup_pending p = {.moved = true,
                                       .from = worker,
                                       .from_pid = w->pid,
                                       .guest.tenant_index = (uint32_t)w->tenant};
    const struct weir_link_message message = {
        .type = WEIR_LINK_MOVE,
        .move = {w->program.move.session, (uint32_t)w->tenant, WEIR_MOVE_ASK}};

    if (weir_sup_program_free_worker(sup, &p, &kind) >= 0) {
        w->program.move.asked = weir_sup_worker_send(sup, worker, &message, -1);
    } else if (now_ns < w->program.move.until_ns) {
        weir_sup_program_start(sup, &kind, now_ns);
    } else {
        weir_log_info(
            "supervisor: a session stays in its worker tenant=%s pid=%d why=\"there is no "
            "other one for it\"",
            sup->tenants[w->tenant].config.name, (int)w->program.pid);
        weir_sup_move_stays(w);
    }
}

static bool looks_alone(const struct weir_supervisor *sup)
{
    return sup->mps.wanted && !sup->config.workers.mps_alone;
}

void weir_sup_moves_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (!weir_program_is_served(w) || w->program.is_older || w->program.arriving != 0) {
            continue;
        }
        if (looks_alone(sup)) {
            look_alone(sup, i, now_ns);
        }
        if (w->program.move.wanted && !w->program.move.asked) {
            ask(sup, i, now_ns);
        }
    }
}

void weir_sup_moves_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (weir_program_is_served(w) &&
            (looks_alone(sup) || (w->program.move.wanted && !w->program.move.asked))) {
            weir_host_loop_wake(loop, weir_host_loop_now_ns(loop) + LOOK_NS);
            return;
        }
    }
}

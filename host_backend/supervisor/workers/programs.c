/*
 * The workers of programs: spares that wait, workers with a program, workers kept for a tenant's
 * next one. docs/design/workers.md has the states and the rules.
 *
 * A guest's connection is pending until the guest has said hello and there is a worker for it.
 * weir_sup_programs_tick() decides who gets which worker: it goes through all pending connections,
 * the tenants in turn, each tenant's in the order of their arrival. First it assigns the free
 * workers, then it starts workers for the other connections, and stops workers to make room.
 *
 * The driver makes contexts one after the other (docs/measurements/contexts.md), so several starts
 * at once take as long as the same starts in a row, but all are ready only at the end. So few are
 * started at once.
 */
#include "host_backend/supervisor/workers/programs.h"

#include "host_backend/config/notify.h"
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/workers/contexts.h"
#include "host_backend/supervisor/workers/program_kinds.h"
#include "host_backend/supervisor/workers/worker_for.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/programs.h"
#include "proto/cuda_abi.h"
#include "proto/wire/accept.h"
#include "proto/wire/control.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_WAIT_NS   (5 * WEIR_NS_PER_S)
#define PLACE_WAIT_NS   WEIR_NS_PER_S          /* time to wait for a session that is about to end */
#define PENDING_WAIT_NS (60 * WEIR_NS_PER_S)   /* programs wait no longer than this */
#define START_WAIT_NS   (60 * WEIR_NS_PER_S)   /* a worker that takes longer to start is killed */
#define SPARE_PAUSE_NS  (100 * WEIR_NS_PER_MS) /* pause of spares after one went to a program */
#define CALM_NS         (2 * WEIR_NS_PER_S)    /* pause before spares move to another domain */
#define SLOW_START_NS   WEIR_NS_PER_S          /* a start that takes longer does not delay others */
#define STARTS_AT_ONCE  3 /* starts with the same devices that suffice to keep the driver busy */

static const struct weir_sup_tenant *tenant_of(const struct weir_supervisor *sup,
                                               const struct weir_sup_pending *p)
{
    return &sup->tenants[p->guest.tenant_index];
}

/* ---------------------------------------------------------------- which worker */

static bool is_of_programs(const struct weir_sup_worker *w)
{
    return w->used && w->kind == WEIR_WORKER_PROGRAM;
}

/* Is the worker opening its driver? */
static bool is_starting(const struct weir_sup_worker *w)
{
    return weir_program_worker_is_there(w) && !w->ready && w->pid > 0 && !w->program.terminated &&
           !w->resuming;
}

/* Does the worker serve nobody, so that it can end? */
static bool is_idle(const struct weir_sup_worker *w)
{
    return weir_program_worker_is_there(w) && !w->program.busy;
}

static bool is_free(const struct weir_sup_worker *w)
{
    return is_idle(w) && w->ready;
}

static bool is_kept(const struct weir_sup_worker *w)
{
    return is_free(w) && w->tenant >= 0;
}

static bool is_of_kind(const struct weir_sup_worker *w, const struct weir_program_kind *kind)
{
    struct weir_program_kind own = weir_program_kind_of(w);

    return weir_program_kind_is_same(&own, kind);
}

void weir_sup_program_stop(struct weir_supervisor *sup, int worker)
{
    sup->workers[worker].program.stopping = true;
    weir_sup_worker_stop(sup, worker);
}

/* The worker that serves another connection of this process; -1: none. */
static int worker_of_process(const struct weir_supervisor *sup, const struct weir_sup_pending *p)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (weir_program_worker_is_there(w) && w->ready && w->program.busy &&
            w->tenant == (int)p->guest.tenant_index && p->guest.pid > 0 &&
            w->program.pid == (pid_t)p->guest.pid && !weir_sup_pending_is_left(sup, p, i)) {
            return i;
        }
    }
    return -1;
}

/* Prefers the domain with most programs, because the GPU takes turns between domains; then more
 * connections. */
int weir_sup_program_free_worker(const struct weir_supervisor *sup,
                                 const struct weir_sup_pending *p,
                                 const struct weir_program_kind *wanted)
{
    uint32_t best_worth = 0;
    int best = -1;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];
        bool kept = w->tenant == (int)p->guest.tenant_index;

        if (!is_free(w) || (!kept && w->tenant >= 0) || !is_of_kind(w, wanted) ||
            weir_sup_pending_is_left(sup, p, i)) {
            continue;
        }
        uint32_t worth =
            (2 * weir_mps_busy(sup, w) + kept + 1) * (WEIR_CONTROL_MAX_CONNECTIONS + 1) +
            w->program.connections;
        if (worth > best_worth) {
            best_worth = worth;
            best = i;
        }
    }
    return best;
}

static bool is_better_to_share(const struct weir_sup_worker *a, const struct weir_sup_worker *b)
{
    return a->program.busy != b->program.busy ? a->program.busy
                                              : a->program.n_guests < b->program.n_guests;
}

/* Find a worker of the tenant to share for a connection that gets none of its own: a busy one if
 * possible. The tenant's limit still holds there, whatever the share of its context. */
static int shared_with(const struct weir_supervisor *sup, const struct weir_sup_pending *p,
                       const struct weir_program_kind *wanted)
{
    int best = -1;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];
        struct weir_program_kind kind = weir_program_kind_of(w);

        if (weir_program_worker_is_there(w) && w->ready &&
            w->tenant == (int)p->guest.tenant_index &&
            weir_program_kind_is_same_but_share(&kind, wanted) &&
            !weir_sup_pending_is_left(sup, p, i) &&
            (best < 0 || is_better_to_share(w, &sup->workers[best]))) {
            best = i;
        }
    }
    return best;
}

static uint32_t n_busy(const struct weir_supervisor *sup, uint32_t tenant)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        n += is_of_programs(w) && w->tenant == (int)tenant && w->program.busy;
    }
    return n;
}

/* ---------------------------------------------------------------- assigning workers */

/* Delay spares: the start of a worker takes the driver's locks and a core for a while, which a
 * newly connected program needs itself. A stream of programs does not delay spares for ever. */
static void put_off_spares(struct weir_supervisor *sup, uint64_t now_ns)
{
    if (sup->programs.spares_paused_ns <= now_ns) {
        sup->programs.spares_paused_ns = now_ns + SPARE_PAUSE_NS;
    }
}

static void send_to(struct weir_supervisor *sup, struct weir_sup_pending *p, int worker)
{
    struct weir_sup_tenant *tenant = &sup->tenants[p->guest.tenant_index];
    struct weir_sup_worker *w = &sup->workers[worker];
    struct weir_link_message message = {.type = WEIR_LINK_GUEST, .guest = p->guest};

    message.guest.start.handed_ns = weir_clock_now_ns();
    weir_log_debug("supervisor: a program gets a worker tenant=%s pid=%lld worker=%d state=%s",
                   tenant->config.name, (long long)p->guest.pid, worker, weir_sup_program_state(w));
    if (w->tenant < 0) {
        put_off_spares(sup, message.guest.start.handed_ns);
        w->tenant = (int)tenant->index;
        weir_sup_worker_note(sup, worker);
        weir_sup_tenant_join(sup, tenant, worker);
    }
    if (!w->program.busy) {
        w->program.is_alone = weir_program_kind_wanted(sup, p).is_alone;
        w->program.busy = true;
        w->program.pid = (pid_t)p->guest.pid;
    }
    w->program.n_guests++;
    if (weir_sup_worker_send(sup, worker, &message, p->fd)) {
        w->program.arriving = p->waits ? p->guest.session : 0;
        w->program.moved_row = weir_sup_pending_given(sup, p);
        return;
    }
    if (!p->moved) {
        weir_refuse(p->fd, WEIR_ERR_AGAIN, CUDA_ERROR_UNKNOWN, "the worker is not ready");
    }
    weir_sup_pending_forget(sup, p);
}

/*
 * All domains are full: for each waiting program, end the worker that has been idle for longest, to
 * free its place. false: there are too few idle workers.
 */
static bool clear_place(struct weir_supervisor *sup, const struct weir_program_kind *wanted)
{
    uint32_t needed = weir_program_n_waiting(sup, wanted) - weir_program_n_unassigned(sup, wanted),
             leaving = 0;
    int idle = -1;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (!is_of_programs(w) || w->program.domain == 0 ||
            strcmp(w->devices, wanted->devices) != 0) {
            continue;
        }
        leaving += w->program.stopping;
        if (is_free(w) &&
            (idle < 0 || w->program.idle_since_ns < sup->workers[idle].program.idle_since_ns)) {
            idle = i;
        }
    }
    if (leaving < needed && idle >= 0) {
        weir_sup_program_stop(sup, idle);
        leaving++;
    }
    return leaving >= needed;
}

enum started {
    STARTED,
    STARTS_LATER,
    NOT_STARTED,
};

/* The reason why no worker is started for a program. */
struct lack {
    enum weir_status reason; /* error for its library */
    const char *why;         /* text for people; static */
    bool stays;              /* waiting for the end of another worker does not help */
};

/* Do starts of other workers with these devices keep the driver busy? */
static bool is_driver_busy(const struct weir_supervisor *sup, const char *devices, uint64_t now_ns)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        n += is_starting(w) && now_ns < w->started_ns + SLOW_START_NS &&
             strcmp(w->devices, devices) == 0;
    }
    return n >= STARTS_AT_ONCE;
}

/* No process can be started. @param status the reason */
static enum started lacks_process(enum weir_status status, struct lack *ret_lack)
{
    *ret_lack = (struct lack){.reason = status, .why = weir_sup_no_worker_text(status)};
    return NOT_STARTED;
}

static enum started lacks_domain(enum weir_mps_room room, struct lack *ret_lack)
{
    *ret_lack = (struct lack){.reason = WEIR_ERR_FULL,
                              .why = room == WEIR_MPS_FULL
                                         ? "the MPS servers of the host take no more programs"
                                         : "programs with other devices use all MPS servers of "
                                           "the host",
                              .stays = room == WEIR_MPS_NO_ROOM};
    return NOT_STARTED;
}

/* Stop an idle worker on these devices. If one already ends or starts, wait for that instead.
 * false: all are in use. */
static bool make_room(struct weir_supervisor *sup, const char *devices)
{
    int unused = -1;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (!is_of_programs(w) || !weir_devices_meet(w->devices, devices)) {
            continue;
        }
        if (w->program.stopping || is_starting(w)) {
            return true;
        }
        unused = unused < 0 && is_free(w) ? i : unused;
    }
    if (unused >= 0) {
        weir_sup_program_stop(sup, unused);
    }
    return unused >= 0;
}

/* May a worker of this kind, which needs a context and a place, be started, now or after an idle
 * one has ended?
 * @param ret_lack  written with NOT_STARTED. */
static enum started find_room(struct weir_supervisor *sup, const struct weir_program_kind *wanted,
                              bool for_program, uint64_t now_ns, struct lack *ret_lack)
{
    bool full = weir_sup_contexts_are_full(sup, wanted->devices);
    bool no_place = weir_sup_places_are_full(sup);

    *ret_lack = (struct lack){0};
    if (!weir_sup_has_room(sup, wanted->devices, now_ns)) {
        ret_lack->reason = weir_sup_shortage_cause(sup, wanted->devices, &ret_lack->why);
        return NOT_STARTED;
    }
    if (!full && !no_place) {
        return STARTED;
    }
    if (for_program && make_room(sup, no_place ? "" : wanted->devices)) {
        return STARTS_LATER;
    }
    *ret_lack = (struct lack){.reason = WEIR_ERR_FULL,
                              .why = full ? "the GPU has no room for another context"
                                          : weir_sup_no_worker_text(WEIR_ERR_FULL)};
    return NOT_STARTED;
}

/* Start a worker like this, in an MPS domain if its kind needs one. No domain is opened for spares.
 * @param ret_lack  written with NOT_STARTED. */
static enum started start_one(struct weir_supervisor *sup, const struct weir_program_kind *wanted,
                              bool for_program, uint64_t now_ns, struct lack *ret_lack)
{
    struct weir_sup_worker worker = {
        .kind = WEIR_WORKER_PROGRAM,
        .tenant = -1,
        .connections.wanted = wanted->connections,
        .program = {.native = wanted->native, .sm_share_pct = wanted->sm_share_pct}};
    enum started found = find_room(sup, wanted, for_program, now_ns, ret_lack);
    enum weir_mps_room room = WEIR_MPS_ROOM;
    enum weir_status status;
    int started;

    if (found != STARTED) {
        return found;
    }
    snprintf(worker.devices, sizeof worker.devices, "%s", wanted->devices);
    if (!wanted->native) {
        room = weir_mps_room(sup, wanted->devices, &worker.program.domain);
    }
    if (room == WEIR_MPS_FULL && for_program &&
        (clear_place(sup, wanted) || weir_mps_open(sup, wanted->devices))) {
        return STARTS_LATER;
    }
    if (room == WEIR_MPS_NO_ROOM && for_program) {
        return weir_mps_make_place(sup) ? STARTS_LATER : lacks_domain(room, ret_lack);
    }
    if (room == WEIR_MPS_ROOM) {
        worker.program.connections = weir_mps_connections(sup, &worker);
        status = weir_sup_worker_new(sup, &worker, &started);
        return status == WEIR_OK ? STARTED : lacks_process(status, ret_lack);
    }
    return room == WEIR_MPS_ROOM_SOON ? STARTS_LATER : lacks_domain(room, ret_lack);
}

/* May programs of the tenant share a worker if they get none of their own? */
static bool may_share(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    return sup->config.workers.on_shortage == WEIR_SHORTAGE_SHARE && !weir_sup_is_strict(tenant);
}

/* Do recently ended programs still hold the resource that this one lacks? */
static bool may_come(const struct weir_supervisor *sup, const struct weir_sup_pending *p,
                     const struct weir_program_kind *wanted, enum weir_status reason,
                     uint64_t now_ns)
{
    bool of_holder = reason == WEIR_ERR_QUOTA;
    const char *devices = weir_sup_places_are_full(sup) ? NULL : wanted->devices;

    return now_ns < p->since_ns + WEIR_ENDING_NS &&
           (of_holder || reason == WEIR_ERR_FULL || reason == WEIR_ERR_NO_MEMORY) &&
           weir_sup_any_has_ended(sup, of_holder ? tenant_of(sup, p) : NULL, devices);
}

/* The program gets no worker of its own now, for lack of room, of a domain, or of its tenant's
 * part: let it share one, let it wait, or refuse it. */
static void do_without(struct weir_supervisor *sup, struct weir_sup_pending *p,
                       const struct weir_program_kind *wanted, const struct lack *lack,
                       uint64_t now_ns)
{
    struct weir_sup_tenant *tenant = &sup->tenants[p->guest.tenant_index];
    int worker = may_share(sup, tenant) ? shared_with(sup, p, wanted) : -1;

    if (worker >= 0) {
        weir_log_limit_thread(weir_sup_log_rate(sup, tenant), tenant->config.name);
        weir_log_warn("supervisor: a program shares a worker, since it gets no other tenant=%s "
                      "pid=%lld worker=%d why=\"%s\"",
                      tenant->config.name, (long long)p->guest.pid, worker, lack->why);
        weir_log_limit_thread(NULL, NULL);
        send_to(sup, p, worker);
    } else if (may_come(sup, p, wanted, lack->reason, now_ns)) {
        return; /* wait for resources of ended programs */
    } else if (lack->stays || !make_room(sup, wanted->devices)) {
        weir_sup_turn_away(sup, p, lack->reason, CUDA_ERROR_OUT_OF_MEMORY, lack->why);
    }
}

/* Refuse a program whose tenant has as many workers as it may. */
static void refuse_session(struct weir_supervisor *sup, struct weir_sup_pending *p)
{
    const struct weir_sup_tenant *tenant = tenant_of(sup, p);
    char why[WEIR_TENANT_NAME_BYTES + 64];

    weir_sessions_refusal(tenant->config.name, tenant->config.sessions_max, why, sizeof why);
    weir_sup_turn_away(sup, p, WEIR_ERR_QUOTA, CUDA_ERROR_OUT_OF_MEMORY, why);
}

static void refuse_drained(struct weir_supervisor *sup, struct weir_sup_pending *p)
{
    char why[WEIR_TENANT_NAME_BYTES + 96];

    weir_drain_refusal(tenant_of(sup, p)->config.name, why, sizeof why);
    weir_sup_turn_away(sup, p, WEIR_ERR_DENIED, CUDA_ERROR_NO_DEVICE, why);
}

/* Until when a program waits for one of its tenant's places. */
static uint64_t place_until_ns(const struct weir_supervisor *sup, const struct weir_sup_pending *p)
{
    bool soon = weir_sup_any_has_ended(sup, tenant_of(sup, p), NULL);

    return p->since_ns + (soon ? WEIR_ENDING_NS : PLACE_WAIT_NS);
}

/* Give the program a running worker, or refuse it. @param ahead earlier programs of its tenant that
 * need new workers. @return whether this one needs a new worker, too */
static bool place(struct weir_supervisor *sup, struct weir_sup_pending *p, uint32_t ahead,
                  struct weir_sup_contexts *contexts, uint64_t now_ns)
{
    const struct weir_sup_tenant *tenant = tenant_of(sup, p);
    struct weir_program_kind wanted = weir_program_kind_wanted(sup, p);
    struct lack lack = {.stays = true};
    int worker = worker_of_process(sup, p);

    if (worker < 0 && p->monitor) {
        worker = shared_with(sup, p, &wanted); /* a status client needs no context of its own */
    }
    if (worker >= 0) {
        send_to(sup, p, worker);
        return false;
    }
    uint32_t busy = n_busy(sup, tenant->index) - p->waits; /* its other worker counts for it */
    if (busy >= tenant->config.sessions_max) {
        if (now_ns >= place_until_ns(sup, p)) {
            refuse_session(sup, p);
        }
        return false;
    }
    lack.reason = weir_sup_contexts_ask(sup, contexts, tenant, &lack.why);
    if (lack.reason != WEIR_OK) {
        if (ahead == 0 || !may_share(sup, tenant)) { /* else it waits to share one of those */
            do_without(sup, p, &wanted, &lack, now_ns);
        }
        return false;
    }
    worker = weir_sup_program_free_worker(sup, p, &wanted);
    if (worker >= 0 || busy + ahead < tenant->config.sessions_max) {
        weir_sup_contexts_take(sup, contexts, tenant);
    }
    if (worker >= 0) {
        send_to(sup, p, worker);
        return false;
    }
    return busy + ahead < tenant->config.sessions_max;
}

void weir_sup_program_start(struct weir_supervisor *sup, const struct weir_program_kind *kind,
                            uint64_t now_ns)
{
    struct lack lack;

    if (!is_driver_busy(sup, kind->devices, now_ns) &&
        weir_program_n_unassigned(sup, kind) < weir_program_n_waiting(sup, kind)) {
        (void)start_one(sup, kind, true, now_ns, &lack);
    }
}

/* Start a worker for the program, or refuse it. Does nothing if enough workers are starting. */
static void start_for(struct weir_supervisor *sup, struct weir_sup_pending *p, uint64_t now_ns)
{
    struct weir_program_kind wanted = weir_program_kind_wanted(sup, p);

    if (!is_driver_busy(sup, wanted.devices, now_ns) &&
        weir_program_n_unassigned(sup, &wanted) < weir_program_n_waiting(sup, &wanted)) {
        struct lack lack;

        if (start_one(sup, &wanted, true, now_ns, &lack) == NOT_STARTED) {
            do_without(sup, p, &wanted, &lack, now_ns);
        }
    }
}

/* @return as of place() */
static bool look_at(struct weir_supervisor *sup, struct weir_sup_pending *p, uint32_t ahead,
                    struct weir_sup_contexts *contexts, uint64_t now_ns)
{
    if (tenant_of(sup, p)->gone || tenant_of(sup, p)->generation != p->guest.generation) {
        weir_sup_turn_away(sup, p, WEIR_ERR_DENIED, CUDA_ERROR_UNKNOWN, "the tenant was removed");
    } else if (!p->said_hello && now_ns - p->since_ns >= HELLO_WAIT_NS) {
        weir_sup_turn_away(sup, p, WEIR_ERR_TIMED_OUT, CUDA_ERROR_UNKNOWN, "it said no hello");
    } else if (now_ns - p->since_ns >= PENDING_WAIT_NS) {
        weir_sup_turn_away(sup, p, WEIR_ERR_TIMED_OUT, CUDA_ERROR_UNKNOWN,
                           "no worker was ready in time");
    } else if (p->said_hello && !p->monitor && !p->moved &&
               weir_sup_drain_of(sup, tenant_of(sup, p)) == WEIR_DRAIN_ON) {
        refuse_drained(sup, p);
    } else if (p->said_hello && !weir_sup_pending_is_held(sup, p)) {
        return place(sup, p, ahead, contexts, now_ns);
    }
    return false;
}

static void look_at_pending(struct weir_supervisor *sup, uint64_t now_ns)
{
    uint32_t ahead[WEIR_CONFIG_TENANTS_MAX] = {0}, n;
    struct weir_sup_contexts contexts;
    uint16_t turns[WEIR_PENDING_MAX];

    n = weir_sup_pending_in_turn(sup, turns);
    sup->programs.waiting.n = 0;
    contexts.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct weir_sup_pending *p = &sup->programs.pending[turns[i]];
        uint32_t tenant = p->guest.tenant_index;

        if (look_at(sup, p, ahead[tenant], &contexts, now_ns)) {
            ahead[tenant]++;
            sup->programs.waiting.of[sup->programs.waiting.n++] = turns[i];
        }
    }
    for (uint32_t i = 0; i < sup->programs.waiting.n; i++) {
        start_for(sup, &sup->programs.pending[sup->programs.waiting.of[i]], now_ns);
    }
}

/* ---------------------------------------------------------------- keeping them */

static uint64_t spares_from_ns(const struct weir_supervisor *sup)
{
    return sup->programs.spares_from_ns > sup->programs.spares_paused_ns
               ? sup->programs.spares_from_ns
               : sup->programs.spares_paused_ns;
}

/* Keep spares in addition to those that are about to be assigned. Until the first is ready, only
 * one is started: then a failing driver is reported once. */
static void keep_spares(struct weir_supervisor *sup, const struct weir_spare_kinds *kinds,
                        uint64_t now_ns)
{
    uint32_t most = sup->life.announced ? WEIR_SPARE_WORKERS_MAX : 1,
             spares = sup->config.workers.spares;

    spares = spares < most ? spares : most;
    if (now_ns < spares_from_ns(sup)) {
        return;
    }
    for (uint32_t i = 0; i < kinds->n; i++) {
        const struct weir_program_kind *kind = &kinds->of[i];
        struct lack lack;

        while (weir_sup_has_room_for_spares(sup, kind->devices, now_ns) &&
               !is_driver_busy(sup, kind->devices, now_ns) &&
               weir_program_n_unassigned(sup, kind) < spares + weir_program_n_waiting(sup, kind) &&
               start_one(sup, kind, false, now_ns, &lack) == STARTED) {
        }
    }
}

static bool start_soon(struct weir_supervisor *sup)
{
    struct weir_spare_kinds kinds;

    weir_spare_kinds_find(sup, &kinds);
    for (uint32_t i = 0; i < kinds.n && sup->config.workers.spares != 0; i++) {
        uint32_t domain;

        if (!kinds.of[i].native &&
            weir_mps_room(sup, kinds.of[i].devices, &domain) == WEIR_MPS_ROOM_SOON) {
            return true;
        }
    }
    return false;
}

static uint64_t idle_until_ns(const struct weir_supervisor *sup, const struct weir_sup_worker *w)
{
    return w->program.idle_since_ns + sup->config.workers.idle_s * WEIR_NS_PER_S;
}

/* Could a tenant or a waiting program use a worker of this kind? */
static bool has_use(const struct weir_supervisor *sup, const struct weir_spare_kinds *kinds,
                    const struct weir_sup_worker *w)
{
    for (uint32_t i = 0; i < kinds->n; i++) {
        if (is_of_kind(w, &kinds->of[i])) {
            return true;
        }
    }
    return weir_program_is_waited_for(sup, w);
}

/* When a start disturbs no program, since no spare has been assigned for a while. */
static uint64_t calm_from_ns(const struct weir_supervisor *sup)
{
    return sup->programs.spares_paused_ns != 0 ? sup->programs.spares_paused_ns + CALM_NS : 0;
}

/* Would a spare started instead of this one have more connections? Spares are replaced one at a
 * time: not while another worker of the domain starts or ends. */
static bool lacks_connections(const struct weir_supervisor *sup, const struct weir_sup_worker *w)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *other = &sup->workers[i];

        if (is_of_programs(other) && other->program.domain == w->program.domain &&
            (!other->ready || other->program.stopping)) {
            return false;
        }
    }
    return w->program.connections < weir_mps_connections(sup, w);
}

/* Has the time passed for which a kept worker waits for its tenant's next program? */
static bool is_kept_for_nobody(const struct weir_supervisor *sup, const struct weir_sup_worker *w,
                               uint64_t now_ns)
{
    return is_kept(w) && (idle_until_ns(sup, w) <= now_ns ||
                          weir_sup_drain_of(sup, &sup->tenants[w->tenant]) == WEIR_DRAIN_ON);
}

/* Stop kept workers whose time has passed, spares in a domain that later programs need not use,
 * spares that others with more connections can replace, and spares that nobody can use. */
static void stop_idle(struct weir_supervisor *sup, const struct weir_spare_kinds *kinds,
                      uint64_t now_ns)
{
    bool calm = calm_from_ns(sup) <= now_ns;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];
        bool spare = is_free(w) && w->tenant < 0;

        if (is_kept_for_nobody(sup, w, now_ns) ||
            (spare && ((calm && (weir_mps_is_surplus(sup, w) || lacks_connections(sup, w))) ||
                       !has_use(sup, kinds, w)))) {
            weir_sup_program_stop(sup, i);
        }
    }
}

/* End a worker that takes too long to open its driver, because it counts as a spare or as the
 * worker that a program waits for. */
static void end_stuck(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (is_starting(w) && now_ns - w->started_ns >= START_WAIT_NS) {
            weir_log_error("supervisor: worker does not get ready, killed worker=%d pid=%d", i,
                           (int)w->pid);
            weir_mps_kill(sup, w);
        }
    }
}

void weir_sup_announce(struct weir_supervisor *sup)
{
    bool all = sup->life.listening && !sup->life.stopping;

    if (sup->life.announced) {
        return;
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        /* A worker that fails delays no other, nor does one of the last host that is silent. */
        all &= !w->used || w->ready || w->restarts != 0 || w->resuming;
    }
    if (all && !start_soon(sup)) {
        sup->life.announced = true;
        weir_notify("READY=1\nSTATUS=serving");
        weir_log_info("supervisor: ready run_dir=%s", sup->config.run_dir);
    }
}

void weir_sup_programs_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    struct weir_spare_kinds kinds;

    end_stuck(sup, now_ns);
    look_at_pending(sup, now_ns);
    weir_spare_kinds_find(sup, &kinds);
    weir_sup_giving_tick(sup, now_ns);
    keep_spares(sup, &kinds, now_ns);
    stop_idle(sup, &kinds, now_ns);
    weir_sup_announce(sup);
}

static uint64_t pending_next_ns(const struct weir_supervisor *sup, const struct weir_sup_pending *p,
                                uint64_t now_ns)
{
    uint64_t next_ns = p->since_ns + (p->said_hello ? PENDING_WAIT_NS : HELLO_WAIT_NS);
    uint64_t ending_ns = p->since_ns + WEIR_ENDING_NS;

    if (p->said_hello &&
        n_busy(sup, p->guest.tenant_index) >= tenant_of(sup, p)->config.sessions_max) {
        uint64_t place_ns = place_until_ns(sup, p);

        next_ns = place_ns < next_ns ? place_ns : next_ns;
    }
    return now_ns < ending_ns && ending_ns < next_ns ? ending_ns : next_ns; /* for do_without() */
}

/* When to check a starting worker again. */
static uint64_t start_next_ns(const struct weir_sup_worker *w, uint64_t now_ns)
{
    uint64_t slow_ns = w->started_ns + SLOW_START_NS;

    return now_ns < slow_ns ? slow_ns : w->started_ns + START_WAIT_NS;
}

void weir_sup_programs_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    uint64_t now_ns = weir_host_loop_now_ns(loop);

    weir_host_loop_wake(loop, weir_sup_shortage_next_ns(sup, now_ns));
    weir_host_loop_wake(loop, weir_sup_giving_next_ns(sup));
    if (now_ns < spares_from_ns(sup)) {
        weir_host_loop_wake(loop, spares_from_ns(sup));
    }
    if (now_ns < calm_from_ns(sup)) {
        weir_host_loop_wake(loop, calm_from_ns(sup));
    }
    for (int i = 0; i < WEIR_PENDING_MAX; i++) {
        const struct weir_sup_pending *p = &sup->programs.pending[i];

        if (p->used) {
            weir_sup_pending_watch(sup, i, loop);
            weir_host_loop_wake(loop, pending_next_ns(sup, p, now_ns));
        }
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (is_kept(w)) {
            weir_host_loop_wake(loop, idle_until_ns(sup, w));
        }
        if (is_starting(w)) {
            weir_host_loop_wake(loop, start_next_ns(w, now_ns));
        }
    }
}

/*
 * Device memory that workers may give back soon: idle workers end for others that lack memory,
 * ended programs release their memory, and workers release unused memory.
 *
 * A worker that lacks memory reports that (WEIR_LINK_NO_MEMORY) and then asks to have its messages
 * counted (WEIR_LINK_SYNC). When they are counted, its page contains how many workers may give back
 * memory.
 */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/workers/program_kinds.h"
#include "host_backend/supervisor/workers/programs.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/programs.h"

#define MOVES_NS     (2 * WEIR_NS_PER_S)  /* wait for a program that puts its memory away */
#define NO_SPARES_NS (30 * WEIR_NS_PER_S) /* no spares for this long after a lack of memory */
#define GIVE_WAY_NS  WEIR_NS_PER_S        /* between two reports of a worker's lack of memory */
/* A worker that lacks memory reports that every few milliseconds. One that has been silent for this
 * long has got some, or has given up. */
#define LACKS_NS (200 * WEIR_NS_PER_MS)

/* ---------------------------------------------------------------- ended programs */

/* Has the worker's program ended? The worker, which watches the program's socket, or the kernel
 * reports that. */
static bool has_ended(const struct weir_sup_worker *w)
{
    return w->used && ((w->spin_page && atomic_load(&w->spin_page->ending) != 0) ||
                       (w->program.busy && weir_process_is_gone((uint32_t)w->program.pid)));
}

/* Does another program need the worker's memory? @param tenant, devices as of
 * weir_sup_any_has_ended(). */
static bool is_asked_for(const struct weir_supervisor *sup, const struct weir_sup_worker *w,
                         const struct weir_sup_tenant *tenant, const char *devices)
{
    return (!tenant || (w->tenant >= 0 &&
                        weir_sup_holder(&sup->tenants[w->tenant]) == weir_sup_holder(tenant))) &&
           (!devices || weir_devices_meet(w->devices, devices));
}

bool weir_sup_any_has_ended(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                            const char *devices)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (is_asked_for(sup, w, tenant, devices) && has_ended(w)) {
            return true;
        }
    }
    return false;
}

static bool has_spares(const struct weir_sup_worker *w)
{
    return w->used && w->spin_page && atomic_load(&w->spin_page->spares) != 0;
}

/* Will the worker give memory back? A guest may control the worker, so its claim counts for a while
 * only. */
static bool is_giving(struct weir_sup_worker *w, uint64_t now_ns)
{
    if (!has_ended(w) && !has_spares(w)) {
        w->giving.since_ns = 0;
    } else if (w->giving.since_ns == 0) {
        w->giving.since_ns = now_ns;
    }
    return w->giving.since_ns != 0 && now_ns < w->giving.since_ns + WEIR_ENDING_NS;
}

bool weir_sup_take_spares(struct weir_supervisor *sup)
{
    const struct weir_link_message message = {.type = WEIR_LINK_GIVE_BACK};
    bool any = false;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (has_spares(&sup->workers[i])) {
            any |= weir_sup_worker_send(sup, i, &message, -1);
        }
    }
    return any;
}

/* ---------------------------------------------------------------- idle workers */

/* Can the worker end for a program that lacks memory? Not if a program waits for such a worker. */
static bool may_give_way(const struct weir_supervisor *sup, const struct weir_sup_worker *w)
{
    bool idle = weir_program_worker_is_there(w) && !w->program.busy;

    return idle && ((w->ready && w->tenant >= 0) || !weir_program_is_waited_for(sup, w));
}

static bool is_on_its_way_out(const struct weir_sup_worker *w)
{
    return w->used && (w->program.stopping || w->stop_by_ns != 0);
}

static void give_way(struct weir_supervisor *sup, uint64_t now_ns)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (may_give_way(sup, &sup->workers[i])) {
            weir_sup_program_stop(sup, i);
            n++;
        }
    }
    sup->programs.spares_from_ns = now_ns + NO_SPARES_NS;
    if (n != 0) {
        weir_log_info("supervisor: idle workers give way to a program that lacks memory workers=%u",
                      n);
    }
}

/* ---------------------------------------------------------------- programs that rest */

/* How much memory the worker's program could give while it rests: managed memory and, with `all`,
 * what a suspension moves. */
static uint64_t movable_bytes(const struct weir_sup_worker *w, bool all)
{
    if (!w->used || !w->spin_page || atomic_load(&w->spin_page->rests_since_ns) == 0) {
        return 0;
    }
    return atomic_load(&w->spin_page->managed_bytes) +
           (all ? atomic_load(&w->spin_page->movable_bytes) : 0);
}

/* Is its program putting its memory away? */
static bool is_moving(const struct weir_sup_worker *w, uint64_t now_ns)
{
    return w->giving.moves_ns != 0 && now_ns < w->giving.moves_ns + MOVES_NS &&
           movable_bytes(w, true) > w->giving.moves_to;
}

/* How much the worker can be asked for, besides what it is moving already. */
static uint64_t askable_bytes(const struct weir_sup_worker *w, bool all, uint64_t now_ns)
{
    return !is_moving(w, now_ns) ? movable_bytes(w, all) : all ? w->giving.moves_to : 0;
}

/* The worker whose program has rested longest, of those that have what `lacking` needs. */
static struct weir_sup_worker *longest_rest(struct weir_supervisor *sup,
                                            const struct weir_sup_worker *lacking, bool all,
                                            uint64_t now_ns)
{
    struct weir_sup_worker *best = NULL;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (w != lacking && askable_bytes(w, all, now_ns) != 0 &&
            weir_devices_meet(w->devices, lacking->devices) &&
            (!best || atomic_load(&w->spin_page->rests_since_ns) <
                          atomic_load(&best->spin_page->rests_since_ns))) {
            best = w;
        }
    }
    return best;
}

/* Ask programs that rest until `need` is met; need 0: ask one. @return what is still needed */
static uint64_t ask_for_room(struct weir_supervisor *sup, const struct weir_sup_worker *lacking,
                             bool all, uint64_t need, uint64_t now_ns)
{
    struct weir_link_message message = {.type = WEIR_LINK_SUSPEND,
                                        .suspend = {.tenant_index = -1, .wish = WEIR_SUSPEND_ROOM}};
    struct weir_sup_worker *w = longest_rest(sup, lacking, all, now_ns);

    for (; w; w = need != 0 ? longest_rest(sup, lacking, all, now_ns) : NULL) {
        uint64_t bytes = askable_bytes(w, all, now_ns);

        bytes = all || bytes < need ? bytes : need;
        message.suspend.bytes = all ? 0 : bytes;
        w->giving.moves_to = all ? 0 : movable_bytes(w, true) - bytes;
        w->giving.moves_ns = now_ns;
        (void)weir_sup_worker_send(sup, (int)(w - sup->workers), &message, -1);
        need -= bytes < need ? bytes : need;
    }
    return need;
}

/* How much of what `lacking` needs is being put away by other programs now. */
static uint64_t coming_bytes(const struct weir_supervisor *sup,
                             const struct weir_sup_worker *lacking, uint64_t now_ns)
{
    uint64_t bytes = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (is_moving(w, now_ns) && weir_devices_meet(w->devices, lacking->devices)) {
            bytes += movable_bytes(w, true) - w->giving.moves_to;
        }
    }
    return bytes;
}

/*
 * Have programs that rest give memory to a worker that lacks it, the one that has rested longest
 * first. All give their managed memory before anything else, since kernels can run without it.
 * @param all  whole programs may be put away, too.
 */
static void make_room(struct weir_supervisor *sup, const struct weir_sup_worker *lacking, bool all,
                      uint64_t now_ns)
{
    uint64_t need = lacking->spin_page ? atomic_load(&lacking->spin_page->lacks_bytes) : 0;
    uint64_t coming = coming_bytes(sup, lacking, now_ns);

    if (need == 0) { /* the need is not known */
        (void)(all ? ask_for_room(sup, lacking, true, 0, now_ns) : 0);
    } else if (need > coming) {
        need = ask_for_room(sup, lacking, false, need - coming, now_ns);
        (void)(all && need != 0 ? ask_for_room(sup, lacking, true, need, now_ns) : 0);
    }
}

void weir_sup_program_lacks_memory(struct weir_supervisor *sup, int worker)
{
    sup->workers[worker].giving.lacks_ns = weir_clock_now_ns();
    sup->workers[worker].giving.asks = true;
}

void weir_sup_program_syncs(struct weir_supervisor *sup, int worker)
{
    sup->workers[worker].giving.n_syncs++;
}

/* When whole programs may be put away for the worker again: asking in a loop costs little. */
static uint64_t heard_ns(const struct weir_sup_worker *w)
{
    return w->giving.heard_ns != 0 ? w->giving.heard_ns + GIVE_WAY_NS : 0;
}

static bool any_lacks_memory(struct weir_supervisor *sup, uint64_t now_ns)
{
    bool any = false;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && w->giving.lacks_ns != 0) {
            bool lacks = now_ns < w->giving.lacks_ns + LACKS_NS, all = heard_ns(w) <= now_ns;

            w->giving.lacks_ns = all ? 0 : w->giving.lacks_ns;
            w->giving.heard_ns = all ? now_ns : w->giving.heard_ns;
            if (lacks && (all || w->giving.asks)) {
                make_room(sup, w, all, now_ns);
            }
            any |= all;
        }
    }
    return any;
}

static uint32_t n_giving(struct weir_supervisor *sup, const struct weir_sup_worker *lacking,
                         uint64_t now_ns)
{
    uint32_t n = longest_rest(sup, lacking, true, now_ns) ? 1 : 0; /* asked when it is time */

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        n += is_on_its_way_out(w) || may_give_way(sup, w) || is_giving(w, now_ns) ||
             is_moving(w, now_ns);
    }
    return n;
}

void weir_sup_giving_answer(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (!w->spin_page || w->resuming) {
            continue;
        }
        if (w->giving.asks) {
            (void)weir_sup_take_spares(sup);
            atomic_store(&w->spin_page->giving, n_giving(sup, w, now_ns));
            w->giving.asks = false;
        }
        if (atomic_load_explicit(&w->spin_page->synced, memory_order_relaxed) !=
            w->giving.n_syncs) {
            /* G1: publishes the handled messages; meets the load in weir_worker_sync(). */
            atomic_store(&w->spin_page->synced, w->giving.n_syncs);
        }
    }
}

void weir_sup_giving_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    if (any_lacks_memory(sup, now_ns)) {
        give_way(sup, now_ns);
    }
    weir_sup_giving_answer(sup, now_ns);
}

uint64_t weir_sup_giving_next_ns(const struct weir_supervisor *sup)
{
    uint64_t next_ns = WEIR_FOREVER;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && w->giving.lacks_ns != 0 && heard_ns(w) < next_ns) {
            next_ns = heard_ns(w);
        }
    }
    return next_ns;
}

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

#define MOVES_NS     (2 * WEIR_NS_PER_S) /* a program that is asked to rest is waited for so long */
#define NO_SPARES_NS (30 * WEIR_NS_PER_S) /* no spares for this long after a lack of memory */
#define GIVE_WAY_NS  WEIR_NS_PER_S        /* between two reports of a worker's lack of memory */

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

static uint64_t movable_bytes(const struct weir_sup_worker *w)
{
    return w->used && w->spin_page && atomic_load(&w->spin_page->rests_since_ns) != 0
               ? atomic_load(&w->spin_page->movable_bytes)
               : 0;
}

/* Is its program putting its memory away? */
static bool is_moving(const struct weir_sup_worker *w, uint64_t now_ns)
{
    return w->giving.moves_ns != 0 && now_ns < w->giving.moves_ns + MOVES_NS &&
           movable_bytes(w) != 0;
}

/* The worker whose program has rested longest, of those that have what `lacking` needs. */
static struct weir_sup_worker *longest_rest(struct weir_supervisor *sup,
                                            const struct weir_sup_worker *lacking, uint64_t now_ns)
{
    struct weir_sup_worker *best = NULL;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (w != lacking && movable_bytes(w) != 0 && !is_moving(w, now_ns) &&
            weir_devices_meet(w->devices, lacking->devices) &&
            (!best || atomic_load(&w->spin_page->rests_since_ns) <
                          atomic_load(&best->spin_page->rests_since_ns))) {
            best = w;
        }
    }
    return best;
}

/* Programs that rest put their memory away for one that needs it: who has rested longest first. */
static void make_room(struct weir_supervisor *sup, const struct weir_sup_worker *lacking,
                      uint64_t now_ns)
{
    const struct weir_link_message message = {
        .type = WEIR_LINK_SUSPEND, .suspend = {.tenant_index = -1, .wish = WEIR_SUSPEND_ROOM}};
    uint64_t need = lacking->spin_page ? atomic_load(&lacking->spin_page->lacks_bytes) : 0;
    struct weir_sup_worker *w = longest_rest(sup, lacking, now_ns);

    for (uint64_t bytes = 0; w; w = bytes < need ? longest_rest(sup, lacking, now_ns) : NULL) {
        bytes += movable_bytes(w);
        w->giving.moves_ns = now_ns;
        (void)weir_sup_worker_send(sup, (int)(w - sup->workers), &message, -1);
    }
}

/* When to handle the worker's next report of a lack of memory. The pause bounds the cost of a
 * worker that asks in a loop. */

void weir_sup_program_lacks_memory(struct weir_supervisor *sup, int worker)
{
    sup->workers[worker].giving.lacks_memory = sup->workers[worker].giving.asks = true;
}

void weir_sup_program_syncs(struct weir_supervisor *sup, int worker)
{
    sup->workers[worker].giving.n_syncs++;
}

/* When the worker's next lack of memory is handled: one that asks in a loop costs little. */
static uint64_t heard_ns(const struct weir_sup_worker *w)
{
    return w->giving.heard_ns != 0 ? w->giving.heard_ns + GIVE_WAY_NS : 0;
}

static bool any_lacks_memory(struct weir_supervisor *sup, uint64_t now_ns)
{
    bool any = false;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && w->giving.lacks_memory && heard_ns(w) <= now_ns) {
            w->giving.lacks_memory = false;
            w->giving.heard_ns = now_ns;
            make_room(sup, w, now_ns);
            any = true;
        }
    }
    return any;
}

static uint32_t n_giving(struct weir_supervisor *sup, uint64_t now_ns)
{
    uint32_t n = 0;

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
            atomic_store(&w->spin_page->giving, n_giving(sup, now_ns));
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

        if (w->used && w->giving.lacks_memory && heard_ns(w) < next_ns) {
            next_ns = heard_ns(w);
        }
    }
    return next_ns;
}

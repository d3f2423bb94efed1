/*
 * Remembers for which devices no further program's worker can start for now. This is kept for each
 * list of devices, since a GPU that is full or broken does not affect others.
 */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/clock.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define NO_ROOM_NS   (2 * WEIR_NS_PER_S)  /* pause before another context is tried */
#define NO_SPARES_NS (30 * WEIR_NS_PER_S) /* pause before another spare is tried */

static const struct weir_sup_shortage *find(const struct weir_supervisor *sup, const char *devices)
{
    for (int i = 0; i < WEIR_SHORTAGES_MAX; i++) {
        if (sup->programs.shortages[i].spares_ns != 0 &&
            strcmp(sup->programs.shortages[i].devices, devices) == 0) {
            return &sup->programs.shortages[i];
        }
    }
    return NULL;
}

/* The list's entry, or a new one. A full table reuses the entry that ends first: with so many
 * lists, some are tried again too early. */
static struct weir_sup_shortage *make(struct weir_supervisor *sup, const char *devices)
{
    const struct weir_sup_shortage *known = find(sup, devices);
    struct weir_sup_shortage *s = &sup->programs.shortages[0];

    if (known) {
        return &sup->programs.shortages[known - sup->programs.shortages];
    }
    for (int i = 1; i < WEIR_SHORTAGES_MAX; i++) {
        s = sup->programs.shortages[i].spares_ns < s->spares_ns ? &sup->programs.shortages[i] : s;
    }
    *s = (struct weir_sup_shortage){0};
    snprintf(s->devices, sizeof s->devices, "%s", devices);
    return s;
}

void weir_sup_shortage_begin(struct weir_supervisor *sup, const char *devices, int wait_status,
                             uint64_t now_ns)
{
    struct weir_sup_shortage *s = make(sup, devices);

    s->wait_status = wait_status;
    s->room_ns = now_ns + NO_ROOM_NS;
    s->spares_ns = now_ns + NO_SPARES_NS;
}

void weir_sup_shortage_less(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_SHORTAGES_MAX; i++) {
        sup->programs.shortages[i].room_ns = 0;
    }
}

enum weir_status weir_sup_shortage_cause(const struct weir_supervisor *sup, const char *devices,
                                         const char **ret_why)
{
    const struct weir_sup_shortage *s = find(sup, devices);
    int exit_status = s && WIFEXITED(s->wait_status) ? WEXITSTATUS(s->wait_status) : -1;

    if (exit_status == WEIR_WORKER_EXIT_FULL) {
        *ret_why = "the GPU has no room for another context";
        return WEIR_ERR_NO_MEMORY;
    }
    if (exit_status == WEIR_WORKER_EXIT_NO_FD) {
        *ret_why = weir_sup_no_worker_text(WEIR_ERR_NO_DESCRIPTOR);
        return WEIR_ERR_NO_DESCRIPTOR;
    }
    if (exit_status == WEIR_WORKER_EXIT_DRIVER) {
        *ret_why = "the last worker could not open the GPU: the host's log says why";
        return WEIR_ERR_DRIVER;
    }
    *ret_why = "the last worker ended before it was ready: the host's log says why";
    return WEIR_ERR_INTERNAL;
}

bool weir_sup_has_room(const struct weir_supervisor *sup, const char *devices, uint64_t now_ns)
{
    const struct weir_sup_shortage *s = find(sup, devices);

    return !s || s->room_ns <= now_ns;
}

bool weir_sup_has_room_for_spares(const struct weir_supervisor *sup, const char *devices,
                                  uint64_t now_ns)
{
    const struct weir_sup_shortage *s = find(sup, devices);

    return !s || s->spares_ns <= now_ns;
}

static uint64_t next_of(uint64_t at_ns, uint64_t now_ns, uint64_t next_ns)
{
    return at_ns > now_ns && at_ns < next_ns ? at_ns : next_ns;
}

uint64_t weir_sup_shortage_next_ns(const struct weir_supervisor *sup, uint64_t now_ns)
{
    uint64_t next_ns = WEIR_FOREVER;

    for (int i = 0; i < WEIR_SHORTAGES_MAX; i++) {
        const struct weir_sup_shortage *s = &sup->programs.shortages[i];

        next_ns = next_of(s->room_ns, now_ns, next_ns);
        next_ns = next_of(s->spares_ns, now_ns, next_ns);
    }
    return next_ns;
}

bool weir_sup_others_may_serve(const struct weir_supervisor *sup, int worker, bool under_mps)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && w->pid > 0 && strcmp(w->devices, sup->workers[worker].devices) != 0 &&
            (w->ready || w->restarts == 0) && (!under_mps || w->program.domain != 0)) {
            return true;
        }
    }
    return false;
}

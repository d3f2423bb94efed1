/*
 * `weir drain`, `weir undrain` and `weir restart` in the supervisor.
 *
 * A restart, which an upgrade requests, waits until no program runs. New programs are still
 * accepted, since the last one may run for days. When the workers have none, the host stops
 * accepting for a moment and asks the workers once more; programs that come wait in the sockets'
 * backlogs, or get the answer to come again. If there is still none, the host ends with a status at
 * which its service manager starts it again. The files of its sockets stay, so that programs wait
 * for the next host (proto/wire/connect.c).
 */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/clock.h"
#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS WEIR_NS_PER_S
/* A program that a worker has accepted is in the worker's list long before this time is over. */
#define SETTLE_NS (300 * WEIR_NS_PER_MS)

static bool may_change(struct weir_admin_client *client)
{
    if (!weir_sup_may_change(client)) {
        weir_sup_note(client->report, "error",
                      "permission denied: root and the user of weir serve may do that");
        return false;
    }
    return true;
}

bool weir_sup_drain_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                            char **words, size_t n_words)
{
    struct weir_sup_tenant *tenant = n_words == 2 ? weir_sup_tenant_find(sup, words[1]) : NULL;
    bool drained = strcmp(words[0], "drain") == 0;
    char text[160];

    if (n_words > 2) {
        return false;
    }
    if (!may_change(client)) {
        return true;
    }
    if (n_words == 2 && (!tenant || tenant->gone)) {
        snprintf(text, sizeof text, "there is no tenant '%.64s'", words[1]);
        weir_sup_note(client->report, "error", text);
    } else if (n_words == 2 && sup->drain.all) {
        weir_sup_note(client->report, drained ? "warning" : "error",
                      "all tenants are drained: weir undrain, without a name, ends that");
    }
    if (client->report->n_notes == 0 && !weir_sup_drain_set(sup, tenant, drained)) {
        weir_sup_note(client->report, "warning",
                      "it holds until the host ends: the file that keeps it cannot be written in "
                      "the run directory");
    }
    return true;
}

bool weir_sup_restart_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                              char **words, size_t n_words)
{
    (void)words;
    if (n_words != 1) {
        return false;
    }
    if (!may_change(client)) {
        return true;
    }
    if (!getenv("NOTIFY_SOCKET")) { /* systemd sets it, as other service managers do */
        weir_sup_note(client->report, "error",
                      "nobody would start the host again: it is no service of systemd");
        return true;
    }
    if (!sup->drain.restart) {
        weir_log_info("supervisor: restarts when no program runs");
    }
    sup->drain.restart = true;
    sup->drain.next_ns = 0;
    return true;
}

/* ---------------------------------------------------------------- when no program runs */

/* How many programs of a tenant run, as its workers have reported. Orphans do not count. */
static uint32_t n_programs(const struct weir_supervisor *sup, const char *tenant)
{
    uint32_t n = 0;

    for (size_t i = 0; i < sup->admin.gathered.n_tenants; i++) {
        const struct weir_status_tenant *row = &sup->admin.gathered.tenants[i];

        n += strcmp(row->name, tenant) == 0 && row->sessions > row->orphans
                 ? row->sessions - row->orphans
                 : 0;
    }
    return n;
}

/* Do programs run, or wait for a worker? */
static bool has_programs(const struct weir_supervisor *sup, char *text, size_t bytes)
{
    char names[WEIR_HOST_TEXT_BYTES - 24] = "";
    uint32_t n = 0;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const char *name = sup->tenants[i].config.name;
        uint32_t more = sup->tenants[i].used ? n_programs(sup, name) : 0;
        size_t at = strlen(names);

        n += more;
        if (more != 0) {
            snprintf(names + at, sizeof names - at, "%s%s", at == 0 ? "" : ", ", name);
        }
    }
    for (size_t i = 0; i < WEIR_PENDING_MAX; i++) {
        n += sup->programs.pending[i].used;
    }
    if (n != 0) {
        snprintf(text, bytes, "%u program%s%s%s", n, n == 1 ? "" : "s", names[0] != 0 ? " of " : "",
                 names);
    }
    return n != 0;
}

/* Would a restart destroy something although no program runs now? */
static bool has_what_ends_with_it(const struct weir_supervisor *sup, char *text, size_t bytes)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];

        if (t->used && !t->gone && t->source == WEIR_ORIGIN_DEMAND) {
            snprintf(text, bytes, "the share on demand %s", t->config.name);
            return true;
        }
        if (t->used && !t->gone && t->source == WEIR_ORIGIN_COMMAND) {
            snprintf(text, bytes, "the tenant %s, which is in no weir.toml", t->config.name);
            return true;
        }
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].answering) {
            snprintf(text, bytes, "an answer of worker %d", (int)sup->workers[i].pid);
            return true;
        }
    }
    if (sup->directory.n_memory != 0) {
        snprintf(text, bytes, "device memory that programs share");
        return true;
    }
    return false;
}

static bool is_in_use(struct weir_supervisor *sup)
{
    char text[WEIR_HOST_TEXT_BYTES] = "";
    bool used =
        has_programs(sup, text, sizeof text) || has_what_ends_with_it(sup, text, sizeof text);

    if (used && strcmp(text, sup->drain.waits_for) != 0) {
        weir_log_info("supervisor: the restart waits for=\"%s\"", text);
        memcpy(sup->drain.waits_for, text, sizeof text);
    }
    return used;
}

/* Stop accepting new programs, or accept them again. */
static void set_closing(struct weir_supervisor *sup, bool closing)
{
    if (sup->drain.closing == closing) {
        return;
    }
    sup->drain.closing = closing;
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used && !sup->tenants[i].gone) {
            weir_sup_tenant_tell(sup, &sup->tenants[i], WEIR_LINK_TENANT);
        }
    }
}

void weir_sup_restart_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    struct weir_sup_drain *drain = &sup->drain;

    if (!drain->restart || sup->admin.gathering || now_ns < drain->next_ns) {
        return;
    }
    if (!drain->asked) {
        drain->asked = true;
        (void)weir_sup_admin_gather(sup);
        return;
    }
    drain->asked = false;
    if (is_in_use(sup)) {
        set_closing(sup, false);
        drain->next_ns = now_ns + LOOK_NS;
    } else if (!drain->closing) {
        set_closing(sup, true);
        drain->next_ns = now_ns + SETTLE_NS;
    } else {
        weir_log_info("supervisor: no program runs, ends for a restart");
        sup->life.exit_status = WEIR_SERVE_EXIT_RESTART;
        sup->life.stopping = sup->life.restarts = true;
    }
}

void weir_sup_restart_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    if (sup->drain.restart && !sup->admin.gathering) {
        weir_host_loop_wake(loop, sup->drain.next_ns);
    }
}

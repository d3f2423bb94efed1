/*
 * `weir drain`, `weir undrain` and `weir restart` in the supervisor.
 *
 * A restart ends this supervisor with a status at which its service manager starts the next. The
 * workers, and programs that come meanwhile, wait for it (docs/design/keeper.md).
 */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/tenants.h"

#include "base/clock.h"
#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_NS (2 * WEIR_NS_PER_S)

bool weir_sup_drain_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                            char **words, size_t n_words)
{
    struct weir_sup_tenant *tenant = NULL;
    bool drained = strcmp(words[0], "drain") == 0;

    WEIR_FAIL_IF(n_words > 2, false);
    if (!weir_sup_may_change(client, "do that")) {
        return true;
    }
    if (n_words == 2) {
        tenant = weir_sup_tenant_named(sup, client, words[1]);
    }
    if (tenant && sup->drain.all) {
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
    WEIR_FAIL_IF(n_words != 1, false);
    if (!weir_sup_may_change(client, "do that")) {
        return true;
    }
    if (!getenv("NOTIFY_SOCKET")) { /* systemd sets it, as other service managers do */
        weir_sup_note(client->report, "error",
                      "nobody would start the host again: it is no service of systemd");
        return true;
    }
    if (sup->config.linger_s == 0) {
        weir_sup_note(client->report, "error",
                      "it would end all programs, since linger_s is 0: systemctl restart weir");
        return true;
    }
    sup->drain.restart = true;
    sup->drain.restart_by_ns = weir_host_clock_ns() + ANSWER_NS;
    return true;
}

static bool has_waiting_client(const struct weir_supervisor *sup)
{
    return WEIR_ANY(i, WEIR_ADMIN_CLIENTS_MAX,
                    sup->admin.clients[i].fd >= 0 && sup->admin.clients[i].asked);
}

/* Clients get their answers first, but others may come all the time. */
void weir_sup_restart_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    if (sup->drain.restart && (!has_waiting_client(sup) || now_ns >= sup->drain.restart_by_ns)) {
        weir_log_info("supervisor: ends for a restart, programs go on");
        sup->life.exit_status = WEIR_SERVE_EXIT_RESTART;
        sup->life.stopping = sup->life.leaves = true;
    }
}

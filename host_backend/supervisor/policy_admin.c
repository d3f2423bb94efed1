/*
 * `weir policy` in the supervisor: sets other policies for the schedulers of a running host.
 *
 * They stay in force until the host ends, or until weir.toml is read again with a changed policy. A
 * restart of the supervisor alone keeps them.
 */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A row (WEIR_BOOK_POLICY): the policy that was set, and that of weir.toml then. */
struct row {
    char base[WEIR_SCHED_POLICY_BYTES], policy[WEIR_SCHED_POLICY_BYTES];
};

static void note(struct weir_supervisor *sup)
{
    struct row row;

    memcpy(row.base, sup->start.policy_base, sizeof row.base);
    memcpy(row.policy, sup->config.scheduler.policy, sizeof row.policy);
    weir_book_put(sup, WEIR_BOOK_POLICY, 0, &row, sizeof row, NULL, 0);
}

bool weir_sup_policy_set(struct weir_supervisor *sup, const char *policy, struct weir_diag *diag)
{
    char *now = sup->config.scheduler.policy;

    if (strlen(policy) >= sizeof sup->config.scheduler.policy) {
        weir_diag_set(diag, 1, 1, "the list is too long");
        return false;
    }
    if (!weir_config_policy_ok(policy, diag)) {
        return false;
    }
    if ((strcmp(policy, "off") == 0) != (strcmp(now, "off") == 0)) {
        weir_diag_set(diag, 1, 1, "a scheduler begins and ends with its host");
        return false;
    }
    if (strcmp(policy, now) != 0) {
        weir_log_info("supervisor: policy changed from=\"%s\" to=\"%s\"", now, policy);
        weir_sup_event(sup, &(struct weir_sup_event){.kind = WEIR_EVENT_POLICY_CHANGED},
                       "from %s to %s", now, policy);
    }
    snprintf(now, sizeof sup->config.scheduler.policy, "%s", policy);
    note(sup);
    weir_sup_gate_configure(sup);
    return true;
}

void weir_sup_policy_adopt(struct weir_supervisor *sup)
{
    struct weir_book_row *row = weir_book_adopt(sup, WEIR_BOOK_POLICY);
    struct weir_diag diag = {0};
    struct row old;

    if (!row) {
        return;
    }
    weir_book_read(row, &old, sizeof old);
    old.base[sizeof old.base - 1] = old.policy[sizeof old.policy - 1] = 0;
    if (strcmp(old.base, sup->start.policy_base) == 0 &&
        !weir_sup_policy_set(sup, old.policy, &diag)) {
        weir_log_warn("supervisor: policy not kept why=\"%s\"", diag.message);
    }
}

bool weir_sup_policy_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                             char **words, size_t n_words)
{
    struct weir_diag diag = {0};

    if (n_words > 2) {
        return false;
    }
    if (weir_sup_may_change(client, "change policies") &&
        !weir_sup_policy_set(sup, n_words == 2 ? words[1] : "", &diag)) {
        weir_sup_note(client->report, "error", diag.message);
    }
    return true;
}

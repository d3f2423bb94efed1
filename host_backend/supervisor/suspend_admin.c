/* `weir suspend`, `weir resume` and `weir move` in the supervisor: the workers do it
 * (worker/suspend.c, workers/moves.c). */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/workers/programs.h"

#include "base/log.h"
#include <stdlib.h>
#include <string.h>

bool weir_sup_suspend_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                              char **words, size_t n_words)
{
    bool suspend = strcmp(words[0], "suspend") == 0;
    struct weir_link_message message = {
        .type = WEIR_LINK_SUSPEND,
        .suspend = {.wish = suspend ? WEIR_SUSPEND_HOLD : WEIR_SUSPEND_NO}};
    char *end = NULL;

    if (n_words == 3) {
        message.suspend.session = strtoull(words[2], &end, 10);
    }
    if (n_words < 2 || n_words > 3 || (end && *end) ||
        (n_words == 3 && message.suspend.session == 0)) {
        return false;
    }
    if (!weir_sup_may_change(client, "do that")) {
        return true;
    }
    const struct weir_sup_tenant *tenant = weir_sup_tenant_named(sup, client, words[1]);
    if (!tenant) {
        return true;
    }
    message.suspend.tenant_index = (int32_t)(tenant - sup->tenants);
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (weir_sup_worker_is_told(sup, i)) {
            (void)weir_sup_worker_send(sup, i, &message, -1);
        }
    }
    weir_log_info("supervisor: tenant=%s session=%llu is to be %s", words[1],
                  (unsigned long long)message.suspend.session, suspend ? "suspended" : "resumed");
    return true;
}

bool weir_sup_move_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                           char **words, size_t n_words)
{
    char *end[2] = {NULL, NULL};

    if (n_words != 4) {
        return false;
    }
    uint64_t session = strtoull(words[2], &end[0], 10), pid = strtoull(words[3], &end[1], 10);
    if (*end[0] || *end[1] || session == 0 || pid == 0) {
        return false;
    }
    if (!weir_sup_may_change(client, "do that")) {
        return true;
    }
    const struct weir_sup_tenant *tenant = weir_sup_tenant_named(sup, client, words[1]);
    for (int i = 0; tenant && i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && w->kind == WEIR_WORKER_PROGRAM && w->tenant == (int)tenant->index &&
            (uint64_t)w->pid == pid) {
            weir_log_info("supervisor: tenant=%s session=%s is to go to another worker", words[1],
                          words[2]);
            weir_sup_move_want(sup, i, session);
        }
    }
    return true;
}

#include "tools/ask.h"

#include "base/text.h"
#include "proto/wire/control.h"
#include "tools/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool weir_ask_tenant_good(const char *command, const char *tenant)
{
    bool good = strcmp(tenant, "admin") != 0 && strcmp(tenant, "new") != 0 && !strchr(tenant, '/');
    if (!good) {
        fprintf(stderr, "weir %s: --tenant '%s': no tenant is called so%s\n", command, tenant,
                strcmp(tenant, "new") == 0 ? "; weir run --new asks for a share" : "");
    }
    return good;
}

int weir_ask_failed(const char *command, const char *run_dir, enum weir_status status)
{
    if (status == WEIR_ERR_INVALID || status == WEIR_ERR_TOO_BIG) {
        fprintf(stderr, "weir %s: a word has control characters, or all are too long\n", command);
        return WEIR_EXIT_USAGE;
    }
    fprintf(stderr, "weir %s: %s/admin.sock: %s%s\n", command,
            run_dir ? run_dir : weir_control_default_run_dir(), weir_status_text(status),
            status == WEIR_ERR_NOT_FOUND ? " (is weir serve running?)"
            : status == WEIR_ERR_DENIED  ? " (root and the group of this socket may ask the host)"
                                         : "");
    return WEIR_EXIT_FAILED;
}

struct weir_status_report *weir_ask(const char *command, const char *run_dir,
                                    const char *const *words, size_t n_words, int fd, int *ret_exit)
{
    struct weir_status_report *report;
    enum weir_status status = weir_control_ask(run_dir, words, n_words, fd, &report);
    if (status != WEIR_OK) {
        *ret_exit = weir_ask_failed(command, run_dir, status);
        return NULL;
    }
    return report;
}

bool weir_speaks_same(const struct weir_status_report *report)
{
    return report->protocol == 0 || report->protocol == WEIR_PROTOCOL;
}

bool weir_ask_notes(const char *command, const struct weir_status_report *report)
{
    bool good = true;
    for (size_t i = 0; i < report->n_notes; i++) {
        const struct weir_status_note *n = &report->notes[i];
        bool error = strcmp(n->kind, "error") == 0;
        fprintf(stderr, "weir %s: %s%s\n", command, error ? "" : "warning: ", n->text);
        good &= !error;
    }
    return good;
}

int weir_ask_to(const char *command, const char *run_dir, const char *const *words, size_t n_words)
{
    int exit_status = WEIR_EXIT_FAILED;
    struct weir_status_report *report =
        weir_ask(command, run_dir, words, n_words, -1, &exit_status);
    if (report) {
        exit_status = weir_ask_notes(command, report) ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
        weir_status_report_destroy(report);
    }
    return exit_status;
}

unsigned weir_ask_programs(const struct weir_status_report *report, const char *tenant,
                           char names[256])
{
    char list[200] = "";
    unsigned n = 0;
    for (size_t i = 0; i < report->n_tenants; i++) {
        const struct weir_status_tenant *t = &report->tenants[i];
        size_t at = strlen(list);
        if (t->sessions && (!tenant || strcmp(t->name, tenant) == 0)) {
            snprintf(list + at, sizeof list - at, "%s%s %u", at ? ", " : " (", t->name,
                     t->sessions);
            n += t->sessions;
        }
    }
    if (names) {
        snprintf(names, 256, n ? "%u program%s%s)" : "no program", n, n == 1 ? "" : "s", list);
    }
    return n;
}

bool weir_session_is_meant(const struct weir_status_session *s, const char *tenant,
                           const char *session)
{
    return strcmp(s->tenant, tenant) == 0 && strcmp(s->state, "monitor") != 0 &&
           (!session || s->id == strtoull(session, NULL, 10));
}

const char *weir_worker_programs(const struct weir_status_report *report,
                                 const struct weir_status_worker *worker, char *room, size_t bytes)
{
    size_t used = 0;
    snprintf(room, bytes, "no program");
    for (size_t i = 0; i < report->n_sessions && used < bytes; i++) {
        const struct weir_status_session *s = &report->sessions[i];
        char program[4 * sizeof s->program];
        if (s->worker == worker->pid) {
            used += (size_t)snprintf(
                room + used, bytes - used, "%s%s: %s (%llu)", used ? ", " : "", s->tenant,
                weir_text_visible(s->program, program, sizeof program), (unsigned long long)s->pid);
        }
    }
    return room;
}

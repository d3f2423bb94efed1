/* weir move: have programs go on in another worker. */
#include "tools/ask.h"
#include "tools/command.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS  50
#define LIMIT_MS 90000 /* a worker may take a minute to start, and a program works for 10 s */

static const struct weir_status_session *find(const struct weir_status_report *report, uint64_t id)
{
    for (size_t i = 0; i < report->n_sessions; i++) {
        if (report->sessions[i].id == id) {
            return &report->sessions[i];
        }
    }
    return NULL;
}

static bool is_moving(const struct weir_status_report *report, uint64_t worker_pid)
{
    for (size_t i = 0; i < report->n_workers; i++) {
        if (report->workers[i].pid == worker_pid) {
            return strcmp(report->workers[i].state, "moving") == 0;
        }
    }
    return false;
}

/* Wait until the session has gone to another worker or its own has given up, and print that. */
static int follow(const char *run_dir, const struct weir_status_session *before)
{
    for (int ms = 0;; ms += LOOK_MS) {
        struct weir_status_report *report;
        enum weir_status status = weir_control_status(run_dir, &report);
        if (status != WEIR_OK) {
            return weir_ask_failed("move", run_dir, status);
        }
        const struct weir_status_session *now = find(report, before->id);
        bool moved = now && now->worker != before->worker;
        bool over = moved || ms > LIMIT_MS || (ms > 0 && !is_moving(report, before->worker));
        if (over) {
            printf("session %llu (%s, pid %llu): %s\n", (unsigned long long)before->id,
                   before->program, (unsigned long long)before->pid,
                   moved                                    ? "moved"
                   : !now                                   ? "ended"
                   : strncmp(now->rebuild, "stays", 5) == 0 ? now->rebuild
                                                            : "not moved, the host's log says why");
        }
        weir_status_report_destroy(report);
        if (over) {
            return moved ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
        }
        (void)poll(NULL, 0, LOOK_MS);
    }
}

static int move(const char *run_dir, const struct weir_status_session *s)
{
    char session[24], worker[24];
    const char *const words[] = {"move", s->tenant, session, worker};

    snprintf(session, sizeof session, "%llu", (unsigned long long)s->id);
    snprintf(worker, sizeof worker, "%llu", (unsigned long long)s->worker);
    int exit_status = weir_ask_to("move", run_dir, words, 4);
    return exit_status == WEIR_EXIT_OK ? follow(run_dir, s) : exit_status;
}

int weir_cmd_move(int argc, char **argv)
{
    const char *run_dir = NULL, *session = NULL;
    const struct weir_option options[] = {
        {"session", "ID", "only this one, as weir status lists it", &session, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    struct weir_status_report *report;
    int first, exit_status, worst = WEIR_EXIT_OK;
    if (!weir_options_parse(argc, argv, "[OPTIONS] TENANT",
                            "Have the programs of a tenant go on in other workers, with their "
                            "memory where\nit is.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    enum weir_status status = weir_control_status(run_dir, &report);
    if (status != WEIR_OK) {
        return weir_ask_failed("move", run_dir, status);
    }
    size_t n = 0;
    for (size_t i = 0; i < report->n_sessions; i++) {
        const struct weir_status_session *s = &report->sessions[i];
        if (weir_session_is_meant(s, argv[first], session)) {
            exit_status = move(run_dir, s);
            worst = exit_status > worst ? exit_status : worst;
            n++;
        }
    }
    weir_status_report_destroy(report);
    if (n == 0) {
        fprintf(stderr, "weir move: tenant '%s' has no such program\n", argv[first]);
    }
    return n == 0 ? WEIR_EXIT_FAILED : worst;
}

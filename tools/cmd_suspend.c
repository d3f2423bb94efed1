/* weir suspend: move programs' device memory to host memory, and make the programs wait. */
#include "tools/ask.h"
#include "tools/command.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS  50
#define LIMIT_MS 60000 /* a program may work for 10 s, and 80 GiB take some seconds */

/* Wait until all requested programs are suspended, and print which are. */
static int follow(const char *run_dir, const char *tenant, const char *session)
{
    for (int ms = 0;; ms += LOOK_MS) {
        struct weir_status_report *report;
        enum weir_status status = weir_control_status(run_dir, &report);
        WEIR_FAIL_IF(status != WEIR_OK, weir_ask_failed("suspend", run_dir, status));
        size_t n = 0, n_done = 0, n_refused = 0;
        for (size_t i = 0; i < report->n_sessions; i++) {
            const struct weir_status_session *s = &report->sessions[i];
            n += weir_session_is_meant(s, tenant, session);
            n_done +=
                weir_session_is_meant(s, tenant, session) && strcmp(s->state, "suspended") == 0;
            n_refused += weir_session_is_meant(s, tenant, session) &&
                         strcmp(s->state, "suspending") != 0 && strcmp(s->state, "suspended") != 0;
        }
        bool over = n_done + n_refused == n && ms > 0;
        for (size_t i = 0; over && i < report->n_sessions; i++) {
            const struct weir_status_session *s = &report->sessions[i];
            if (weir_session_is_meant(s, tenant, session)) {
                printf("session %llu (%s, pid %llu): %s, %llu of %llu MiB are in host memory\n",
                       (unsigned long long)s->id, s->program, (unsigned long long)s->pid,
                       strcmp(s->state, "suspended") == 0
                           ? "suspended"
                           : "not suspended, the host's log says why",
                       (unsigned long long)(s->away_bytes >> 20),
                       (unsigned long long)(s->used_bytes >> 20));
            }
        }
        weir_status_report_destroy(report);
        if (over && n == 0) {
            fprintf(stderr, "weir suspend: tenant '%s' has no such program\n", tenant);
        }
        if (over || ms > LIMIT_MS) {
            return over && n != 0 && n_refused == 0 ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
        }
        (void)poll(NULL, 0, LOOK_MS);
    }
}

int weir_cmd_suspend(int argc, char **argv)
{
    const char *run_dir = NULL, *session = NULL;
    const struct weir_option options[] = {
        {"session", "ID", "only this one, as weir status lists it", &session, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] TENANT",
                            "Put the device memory of a tenant's programs into host memory. Their "
                            "next calls\nwait until weir resume.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    const char *const words[] = {"suspend", argv[first], session};
    exit_status = weir_ask_to("suspend", run_dir, words, session ? 3 : 2);
    return exit_status == WEIR_EXIT_OK ? follow(run_dir, argv[first], session) : exit_status;
}

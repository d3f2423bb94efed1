/*
 * weir restart: have the service restarted once no program runs. The packages ask for it after an
 * upgrade, so the host may be of an older version: one that knows no such request is left as it is
 * where programs run.
 */
#include "base/clock.h"
#include "tools/ask.h"
#include "tools/command.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define LOOK_MS 100
/* How long the host may take to find out whether programs run: it asks its workers twice, and gives
 * each time a second to those that do not answer. */
#define KNOWS_NS   (10 * WEIR_NS_PER_S)
#define RESTART_NS (90 * WEIR_NS_PER_S) /* as TimeoutStartSec of systemd */

/* Settings of `weir tenant set` end with the host: name whose before it is too late. */
static void tell_of_settings(const struct weir_status_report *report)
{
    const char *before = "Settings that weir tenant set has changed end with this host: ";
    for (size_t i = 0; i < report->n_tenants; i++) {
        const struct weir_status_tenant *t = &report->tenants[i];
        if (t->changed && strcmp(t->source, WEIR_CONTROL_ON_DEMAND) != 0 &&
            strcmp(t->source, WEIR_CONTROL_OF_USER) != 0) {
            printf("%s%s (%u)", before, t->name, t->changed);
            before = ", ";
        }
    }
    if (*before == ',') {
        printf(". weir tenant show shows them, and weir tenant set --save keeps them.\n");
    }
    fflush(stdout);
}

/* Follow a host that has taken the request. */
static int follow(const char *run_dir, unsigned long long old_pid)
{
    uint64_t since_ns = weir_clock_now_ns();
    bool gone = false;
    for (;; (void)poll(NULL, 0, LOOK_MS)) {
        struct weir_status_report *report = NULL;
        enum weir_status status = weir_control_status(run_dir, &report);
        uint64_t waited_ns = weir_clock_now_ns() - since_ns;
        bool same = status == WEIR_OK && report->pid == old_pid;
        int exit_status = -1;
        gone |= !same;
        if (status == WEIR_OK && !same) {
            printf("restarted: weir %s, pid %llu\n", report->version,
                   (unsigned long long)report->pid);
            exit_status = WEIR_EXIT_OK;
        } else if (same && (report->restart[0] || waited_ns >= KNOWS_NS)) {
            printf("weir %s goes on, and is restarted when nothing needs it any more: it waits for "
                   "%s.\nSooner: weir drain. At once, which ends them: systemctl restart weir\n",
                   report->version, report->restart[0] ? report->restart : "its workers");
            exit_status = WEIR_EXIT_OK;
        } else if (gone && waited_ns >= RESTART_NS) {
            fprintf(stderr,
                    "weir restart: the host has ended, and none came: journalctl -u weir\n");
            exit_status = WEIR_EXIT_FAILED;
        }
        weir_status_report_destroy(report);
        if (exit_status >= 0) {
            return exit_status;
        }
    }
}

/* The host is of a version before weir restart. */
static int leave(const struct weir_status_report *report)
{
    char names[256];
    unsigned n = weir_ask_programs(report, NULL, names);
    if (n == 0) {
        fprintf(stderr,
                "weir restart: weir %s cannot wait for its programs, and none runs: systemctl "
                "restart weir\n",
                report->version);
        return WEIR_EXIT_UNUSED;
    }
    fprintf(stderr,
            "weir restart: weir %s goes on, since %s run%s. It cannot wait for their ends: once "
            "they have ended, systemctl restart weir\n",
            report->version, names, n > 1 ? "" : "s");
    return WEIR_EXIT_FAILED;
}

int weir_cmd_restart(int argc, char **argv)
{
    const char *run_dir = NULL;
    const struct weir_option options[] = {
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS]",
                            "Have the service restarted once no program runs: at once, or later.\n"
                            "New programs are let in meanwhile (see weir drain).",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    if (!weir_options_no_more(argc, argv, first)) {
        return WEIR_EXIT_USAGE;
    }
    static const char *const words[] = {"restart"};
    struct weir_status_report *before, *report;
    enum weir_status status = weir_control_status(run_dir, &before);
    if (status != WEIR_OK) {
        return weir_ask_failed("restart", run_dir, status);
    }
    tell_of_settings(before);
    status = weir_control_ask(run_dir, words, 1, -1, &report);
    if (status == WEIR_ERR_PEER) {
        exit_status = leave(before);
    } else if (status != WEIR_OK) {
        exit_status = weir_ask_failed("restart", run_dir, status);
    } else {
        exit_status =
            weir_ask_notes("restart", report) ? follow(run_dir, before->pid) : WEIR_EXIT_FAILED;
        weir_status_report_destroy(report);
    }
    weir_status_report_destroy(before);
    return exit_status;
}

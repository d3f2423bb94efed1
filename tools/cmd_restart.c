/*
 * weir restart: restart the service while its programs go on. The packages run it after an upgrade,
 * so the host may be older: one without a keeper restarts once no program runs, and one that does
 * not know the request is left alone while programs run.
 */
#include "base/clock.h"
#include "tools/ask.h"
#include "tools/command.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define LOOK_MS 100
/* How long a host may take to answer its clients and end. A host without a keeper takes longer if
 * it waits for programs. */
#define KNOWS_NS   (10 * WEIR_NS_PER_S)
#define RESTART_NS (90 * WEIR_NS_PER_S) /* as TimeoutStartSec of systemd */

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
        } else if (same && waited_ns >= KNOWS_NS) {
            printf(
                "weir %s goes on, and is restarted when no program runs.\nSooner: weir drain. At "
                "once, which ends them: systemctl restart weir\n",
                report->version);
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

/* The host is too old to know weir restart. */
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
                            "Have the service restarted. Programs go on, and new ones wait.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    static const char *const words[] = {"restart"};
    struct weir_status_report *before, *report;
    enum weir_status status = weir_control_status(run_dir, &before);
    WEIR_FAIL_IF(status != WEIR_OK, weir_ask_failed("restart", run_dir, status));
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

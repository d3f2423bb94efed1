/* Checks of weir doctor on a host that runs, and on one that does not start. */
#include "host_backend/config/config.h"
#include "tools/command.h"
#include "tools/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERVICE_CONFIG "/etc/weir/weir.toml"
#define SERVICE_UNIT   "/lib/systemd/system/weir.service" /* where the packages put it */
#define CHECK_S        60 /* a driver that wakes a GPU takes seconds */
#define JOURNAL_S      5
#define SHOWN_MAX      4 /* lines of what the host said */

bool weir_doctor_has_process(const char *name, pid_t parent)
{
    DIR *dir = opendir("/proc");
    const struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir))) {
        char path[300], comm[32], state;
        int ppid;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (file) {
            found = fscanf(file, "%*d (%31[^)]) %c %d", comm, &state, &ppid) == 3 && state != 'Z' &&
                    strncmp(comm, name, 15) == 0 && (parent == 0 || ppid == parent);
            fclose(file);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

void weir_doctor_host(const struct weir_status_report *report)
{
    struct weir_host_config *config = malloc(sizeof *config);
    struct weir_diag diag = {0};
    struct stat host;
    char proc[40];
    snprintf(proc, sizeof proc, "/proc/%llu", (unsigned long long)report->pid);
    bool sees = geteuid() == 0 || (stat(proc, &host) == 0 && host.st_uid == geteuid());
    if (!config || !sees) {
        free(config);
        return;
    }
    weir_config_default(config);
    if (report->config[0]) {
        enum weir_status status = weir_config_load(report->config, config, &diag);
        if (status == WEIR_ERR_SYNTAX) {
            weir_doctor_mend_at("problem", "correct it, or the host will not start again: edit",
                                report->config, "%s:%u:%u: %s", report->config, diag.line,
                                diag.column, diag.message);
        } else if (status != WEIR_OK) {
            weir_doctor_mend_at(
                "problem", "put it back, or the host will not start again:", report->config,
                "the host's configuration cannot be read: %s", weir_status_text(status));
        }
    }
    weir_doctor_places(report, config);
    weir_doctor_containers(report, config);
    weir_doctor_services(report, config);
    free(config);
}

static void show_lines(const char *text, const char *only, const char *remedy, const char *said_by)
{
    const char *lines[SHOWN_MAX];
    size_t lengths[SHOWN_MAX], n = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t length = strcspn(line, "\n");
        const char *found = only ? strstr(line, only) : line;
        if (length == 0 || !found || found >= line + length) {
            continue;
        }
        if (n == SHOWN_MAX) {
            memmove(lines, lines + 1, sizeof lines - sizeof lines[0]);
            memmove(lengths, lengths + 1, sizeof lengths - sizeof lengths[0]);
            n--;
        }
        lines[n] = line;
        lengths[n++] = length;
    }
    for (size_t i = 0; i < n; i++) {
        weir_doctor_mend("problem", i + 1 == n ? remedy : "", "%s: %.*s", said_by, (int)lengths[i],
                         lines[i]);
    }
}

/* Would the host start? */
static void check_start(const char *run_dir)
{
    /* The service does not start without its configuration file. */
    bool service = access(SERVICE_CONFIG, F_OK) == 0 || access(SERVICE_UNIT, F_OK) == 0;
    const char *config = !run_dir && service ? SERVICE_CONFIG : NULL;
    const char *argv[10] = {"/proc/self/exe", "serve", "--check"};
    char text[4096];
    size_t n = 3;
    if (config) {
        argv[n++] = "--config";
        argv[n++] = config;
        argv[n++] = "--no-softgpu"; /* as the package's service */
    }
    if (run_dir) {
        argv[n++] = "--run-dir";
        argv[n++] = run_dir;
    }
    int status = weir_doctor_run(NULL, argv, CHECK_S, text, sizeof text);
    if (status == 0) {
        weir_doctor_ok("weir serve --check%s%s: finds nothing that keeps it from starting",
                       config ? " --config " : "", config ? config : "");
    } else if (text[0]) {
        show_lines(text, NULL, "correct that, then systemctl start weir", "weir serve --check");
    } else {
        weir_doctor_mend("problem", "run weir serve --check", "weir serve --check: %s",
                         status < 0 ? "does not end" : "fails");
    }
}

/* What the service said last, if systemd runs it. */
static void show_journal(void)
{
    const char *const is_active[] = {"systemctl", "is-active", "weir", NULL};
    const char *const journal[] = {"journalctl", "--unit", "weir",    "--no-pager", "--quiet",
                                   "--output",   "cat",    "--lines", "60",         NULL};
    char state[64], text[16384];
    if (weir_doctor_run(NULL, is_active, JOURNAL_S, state, sizeof state) == 0) {
        weir_doctor_mend("problem", "systemctl reload weir makes its sockets again",
                         "the service weir is active, and nobody listens at its admin.sock");
        return;
    }
    if (weir_doctor_run(NULL, journal, JOURNAL_S, text, sizeof text) == 0) {
        show_lines(text, " error ", "journalctl --unit weir has all of it", "the journal");
    }
}

void weir_doctor_no_host(const char *run_dir)
{
    if (geteuid() != 0) {
        return; /* the service is root's, and so is its configuration */
    }
    if (!run_dir || strcmp(run_dir, "/run/weir") == 0) {
        show_journal();
    }
    check_start(run_dir);
}

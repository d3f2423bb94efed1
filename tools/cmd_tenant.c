/* weir tenant: show and change the tenants of a running host, and its weir.toml with --save. */
#include "host_backend/config/config.h"
#include "host_backend/config/status_text.h"
#include "tools/ask.h"
#include "tools/command.h"
#include "tools/toml_edit.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS_MAX 32

struct request {
    const char *run_dir;
    bool save;
    bool keep; /* add: also for later hosts */
    bool json;
    const char *words[WORDS_MAX]; /* the action, the tenant's name, settings */
    size_t n_words;
};

static int list(const struct request *r)
{
    static const char *const words[] = {"status"};
    int exit_status;
    struct weir_status_report *report = weir_ask("tenant", r->run_dir, words, 1, -1, &exit_status);
    if (!report) {
        return exit_status;
    }
    for (size_t i = 0; r->json && i < report->n_tenants; i++) {
        weir_status_text_tenant(stdout, &report->tenants[i]);
    }
    if (r->json) {
        weir_status_report_destroy(report);
        return WEIR_EXIT_OK;
    }
    int width = 20;
    for (size_t i = 0; i < report->n_tenants; i++) {
        int length = (int)strlen(report->tenants[i].name);
        width = WEIR_MAX(length, width);
    }
    printf("%-*s %6s %-8s %8s %12s %12s %8s  %s\n", width, "TENANT", "WEIGHT", "PRIORITY",
           "SM-LIMIT", "MEMORY", "QUOTA", "SESSIONS", "SOURCE");
    for (size_t i = 0; i < report->n_tenants; i++) {
        const struct weir_status_tenant *t = &report->tenants[i];
        char used[16];
        char quota[16];
        printf("%-*s %6u %-8s %7u%% %12s %12s %8u  %s", width, t->name, t->weight, t->priority,
               t->sm_limit_pct, weir_human_bytes(t->used_bytes, used),
               weir_human_quota(t->quota_bytes, quota), t->sessions, t->source);
        if (t->changed) {
            printf(", %u changed since", t->changed);
        }
        printf("%s%s\n", t->labels[0] ? "  " : "", t->labels);
    }
    weir_status_report_destroy(report);
    return WEIR_EXIT_OK;
}

static const char *shown(const char *value)
{
    return *value ? value : "(none)";
}

static void print_settings(const struct weir_status_report *report)
{
    const struct weir_status_tenant *t = report->n_tenants ? report->tenants : NULL;
    if (t) {
        char used[16];
        char quota[16];
        printf("%s: from %s, %u sessions, %s of %s in use\n", t->name, t->source, t->sessions,
               weir_human_bytes(t->used_bytes, used), weir_human_quota(t->quota_bytes, quota));
    }
    printf("%-12s %-24s %s\n", "SETTING", "VALUE", "");
    for (size_t i = 0; i < report->n_settings; i++) {
        const struct weir_status_setting *s = &report->settings[i];
        printf("%-12s %-24s ", s->key, shown(s->value));
        if (strcmp(s->value, s->base) != 0 && t && strcmp(s->origin, t->source) == 0) {
            /* This share on demand got less than it asked for. */
            printf("of the %s that were asked for", s->base);
        } else if (strcmp(s->value, s->base) != 0) {
            printf("by %s, until the host ends; %s: %s", s->origin, t ? t->source : "before",
                   shown(s->base));
        } else if (!s->live) {
            printf("changes with a restart of the host");
        }
        printf("\n");
    }
}

static void print_changes(const struct request *r, const struct weir_status_report *report)
{
    const struct weir_status_tenant *t = report->n_tenants ? report->tenants : NULL;
    bool memory = false;
    for (size_t i = 0; i < report->n_settings; i++) {
        const struct weir_status_setting *s = &report->settings[i];
        printf("%s: %s %s -> %s", s->tenant, s->key, shown(s->before), shown(s->value));
        if (!r->save && strcmp(s->value, s->base) != 0) {
            printf(" (until the host ends; %s: %s)", t ? t->source : "before", shown(s->base));
        }
        printf("\n");
        memory |= strcmp(s->key, "memory") == 0;
    }
    if (memory && t && t->quota_bytes != 0 && t->used_bytes > t->quota_bytes) {
        char used[16];
        char quota[16];
        fprintf(stderr,
                "weir tenant: warning: %s uses %s, more than %s: it keeps what it has, and gets no "
                "more until it uses less\n",
                t->name, weir_human_bytes(t->used_bytes, used),
                weir_human_quota(t->quota_bytes, quota));
    }
}

/* Read a file's text, to be freed; NULL after a complaint. */
static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    if (!file || (getdelim(&text, &room, '\0', file) < 0 && ferror(file))) {
        fprintf(stderr, "weir tenant: %s: %s\n", path, strerror(errno));
        free(text);
        text = NULL;
    } else if (!text) {
        text = strdup("");
    }
    if (file) {
        fclose(file);
    }
    return text;
}

/* Write the text to a file beside it, check it as a host would, and rename it into place. */
static bool replace_file(const char *path, const char *text)
{
    char beside[PATH_MAX];
    struct stat info;
    bool good = false;
    WEIR_FAIL_IF(snprintf(beside, sizeof(beside), "%s.XXXXXX", path) >= (int)sizeof(beside), false);
    int fd = mkstemp(beside);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file) {
        good = stat(path, &info) == 0 && fchmod(fd, info.st_mode & 07777) == 0 &&
               (fchown(fd, info.st_uid, info.st_gid) == 0 || errno == EPERM);
        good &= fputs(text, file) >= 0 && fflush(file) == 0 && fsync(fd) == 0;
        good &= fclose(file) == 0;
    }
    if (!good) {
        fprintf(stderr, "weir tenant: %s: not saved: %s\n", path, strerror(errno));
    } else {
        const struct weir_serve_params check = {.config_path = beside, .check_only = true};
        good = weir_serve_main(&check) == 0 && rename(beside, path) == 0;
        if (!good) {
            fprintf(stderr, "weir tenant: %s: not saved: the result would be wrong\n", path);
        }
    }
    if (fd >= 0 && !good) {
        unlink(beside);
    }
    return good;
}

/* The file's text with the requested changes, to be freed. */
static char *edited(const struct request *r, char *text)
{
    const char *name = r->words[1];
    char *next = strcmp(r->words[0], "remove") == 0 ? weir_toml_remove(text, name)
                                                    : weir_toml_set(text, name, NULL, NULL);
    for (size_t i = 2; next && i < r->n_words; i++) {
        char key[64];
        const char *equals = strchr(r->words[i], '=');
        if (!equals[1]) {
            continue; /* the setting returns to the value in the file */
        }
        snprintf(key, sizeof(key), "%.*s", (int)(equals - r->words[i]), r->words[i]);
        for (char *c = key; *c; c++) {
            *c = *c == '-' ? '_' : *c;
        }
        text = next;
        next = weir_toml_set(text, name, key, equals + 1);
        free(text);
    }
    return next;
}

/* Save what the host has accepted in its file. The host reads that again, so that both agree. */
static bool save(const struct request *r, const struct weir_status_report *report)
{
    if (!report->config[0]) {
        fprintf(stderr, "weir tenant: not saved: the host was started without --config\n");
        return false;
    }
    char *text = read_file(report->config);
    bool editable = text && weir_toml_editable(text);
    if (text && !editable) {
        fprintf(
            stderr,
            "weir tenant: %s: not saved: only tenants that are tables, [[tenant]], can be edited\n",
            report->config);
    }
    char *next = editable ? edited(r, text) : NULL;
    bool good = next && replace_file(report->config, next);
    if (good && !weir_toml_has_tenants(next)) {
        fprintf(stderr, "weir tenant: warning: %s has no tenant left, which means one, 'default'\n",
                report->config);
    }
    free(text);
    free(next);
    WEIR_FAIL_IF(!good, false);
    fprintf(r->json ? stderr : stdout, "saved in %s\n", report->config);
    if (kill((pid_t)report->pid, SIGHUP) != 0) {
        fprintf(stderr, "weir tenant: warning: pid %llu cannot be told to read it again: %s\n",
                (unsigned long long)report->pid, strerror(errno));
    }
    return true;
}

static void print_json(const struct weir_status_report *report)
{
    for (size_t i = 0; i < report->n_tenants; i++) {
        weir_status_text_tenant(stdout, &report->tenants[i]);
    }
    for (size_t i = 0; i < report->n_settings; i++) {
        weir_status_text_setting(stdout, &report->settings[i]);
    }
}

static int act(const struct request *r)
{
    const char *action = r->words[0];
    const char *words[1 + WORDS_MAX] = {"tenant"};
    int exit_status;
    memcpy(words + 1, r->words, r->n_words * sizeof words[0]);
    if (r->keep) {
        words[1] = "keep";
    }
    struct weir_status_report *report =
        weir_ask("tenant", r->run_dir, words, 1 + r->n_words, -1, &exit_status);
    if (!report) {
        return exit_status;
    }
    bool good = weir_ask_notes("tenant", report);
    if (good && r->json) {
        print_json(report);
    } else if (good && strcmp(action, "show") == 0) {
        print_settings(report);
    } else if (good && strcmp(action, "set") == 0) {
        print_changes(r, report);
    } else if (good) {
        bool added = strcmp(action, "add") == 0;

        printf("%s: %s%s\n", r->words[1], added ? "added" : "removed",
               r->keep   ? ", until it is removed"
               : r->save ? ""
               : added   ? ", until the host ends"
                         : " (where it is in weir.toml, until the host ends)");
    }
    if (good && r->save && strcmp(action, "show") != 0) {
        good = save(r, report);
    }
    weir_status_report_destroy(report);
    return good ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}

static bool take_words(int argc, char **argv, const char *usage, const char *about,
                       size_t words_min, size_t words_max, struct request *r, int *ret_exit)
{
    const struct weir_option options[] = {
        {"run-dir", "DIR", "where the host's sockets are", &r->run_dir, NULL},
        {"json", NULL, "one JSON object a line", NULL, &r->json},
        {"save", NULL, "also write it into the host's weir.toml", NULL, &r->save},
        {"keep", NULL, "add: the tenant outlives the host, until it is removed", NULL, &r->keep},
        {.name = NULL},
    };
    int first;
    WEIR_FAIL_IF(!weir_options_parse(argc, argv, usage, about, options, &first, ret_exit), false);
    r->words[r->n_words++] = strchr(argv[0], ' ') + 1; /* the action's name, behind "tenant" */
    for (; first < argc && r->n_words < WORDS_MAX; first++) {
        r->words[r->n_words++] = argv[first];
    }
    *ret_exit = WEIR_EXIT_USAGE;
    if (r->keep && (r->save || strcmp(r->words[0], "add") != 0)) {
        fprintf(stderr, "weir %s: --keep is for add, without --save\n", argv[0]);
        return false;
    }
    if (first < argc) {
        fprintf(stderr, "weir %s: too many words\n", argv[0]);
        return false;
    }
    if (r->n_words < words_min || r->n_words > words_max) {
        fprintf(stderr, "Usage: weir %s %s\n", argv[0], usage);
        return false;
    }
    return true;
}

static int list_main(int argc, char **argv)
{
    struct request r = {0};
    int exit_status;
    return take_words(argc, argv, "[OPTIONS]", "Show all tenants.", 1, 1, &r, &exit_status)
               ? list(&r)
               : exit_status;
}

static int show_main(int argc, char **argv)
{
    struct request r = {0};
    int exit_status;
    return take_words(argc, argv, "[OPTIONS] NAME",
                      "Show a tenant's settings, and which are not weir.toml's.", 2, 2, &r,
                      &exit_status)
               ? act(&r)
               : exit_status;
}

/* The help of an action: what it does, its keys and their meanings. Bash's completion reads it. */
static const char *with_keys(const char *about, bool live_only, char room[1024])
{
    FILE *out = fmemopen(room, 1024, "w");
    if (!out) {
        return about;
    }
    fprintf(out, "%s\nKeys:", about);
    for (int choices = 0; choices < 2; choices++) {
        fputs(choices ? "\nWords:" : "", out);
        for (size_t i = 0; i < weir_setting_count(); i++) {
            const char *const *word = choices ? weir_setting_choices(i) : NULL;
            if ((choices && !word) || strcmp(weir_setting_key(i), "name") == 0 ||
                (live_only && !weir_setting_is_live(i))) {
                continue;
            }
            fprintf(out, " %s", weir_setting_key(i));
            for (char between = '='; word && *word; word++, between = '|') {
                fprintf(out, "%c%s", between, *word);
            }
        }
    }
    fclose(out);
    return room;
}

static int set_main(int argc, char **argv)
{
    struct request r = {0};
    char about[1024];
    int exit_status;
    return take_words(argc, argv, "[OPTIONS] NAME KEY=VALUE ...",
                      with_keys("Change a running tenant at once. Keys are those of weir.toml(5); "
                                "KEY= goes back to its value.",
                                true, about),
                      3, WORDS_MAX, &r, &exit_status)
               ? act(&r)
               : exit_status;
}

static int add_main(int argc, char **argv)
{
    struct request r = {0};
    char about[1024];
    int exit_status;
    return take_words(argc, argv, "[OPTIONS] NAME [KEY=VALUE ...]",
                      with_keys("Make a tenant.", false, about), 2, WORDS_MAX, &r, &exit_status)
               ? act(&r)
               : exit_status;
}

static int remove_main(int argc, char **argv)
{
    struct request r = {0};
    int exit_status;
    return take_words(argc, argv, "[OPTIONS] NAME", "Remove a tenant; its sessions end.", 2, 2, &r,
                      &exit_status)
               ? act(&r)
               : exit_status;
}

int weir_cmd_tenant(int argc, char **argv)
{
    static const struct weir_action actions[] = {
        {"list", list_main, "show all tenants"},
        {"show", show_main, "show a tenant's settings"},
        {"set", set_main, "change a running tenant at once"},
        {"add", add_main, "make a tenant"},
        {"remove", remove_main, "remove a tenant; its sessions end"},
        {.name = NULL}};
    static const char *const valued[] = {"run-dir", NULL};
    static const struct weir_actions all = {
        "tenant", "Show and change the tenants of a running host.", actions, valued};
    return weir_actions_run(argc, argv, &all);
}

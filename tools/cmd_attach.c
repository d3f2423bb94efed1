/*
 * weir attach: give a virtual machine of libvirt a tenant's device.
 *
 * Three things, in the order in which they need each other: the tenant exists in the host, with its
 * socket; the domain's metadata says what it is to get, so that the next host knows it, too; the
 * domain has the device. Each may have been done before: then it stays as it is.
 */
#include "host_backend/control.h"
#include "tools/command.h"
#include "tools/virt.h"
#include "tools/virt_element.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS_MAX 3

struct request {
    const char *machine;
    const char *tenant; /* default: the machine's name */
    const char *run_dir;
    const char *connect;
    const char *weight, *memory, *priority;
};

/* "weight=300" and so on: what of the tenant is asked for. */
static size_t list_settings(const struct request *r, char words[SETTINGS_MAX][80])
{
    const struct {
        const char *key, *value;
    } all[SETTINGS_MAX] = {{"weight", r->weight}, {"memory", r->memory}, {"priority", r->priority}};
    size_t n = 0;
    for (size_t i = 0; i < SETTINGS_MAX; i++) {
        if (all[i].value) {
            snprintf(words[n++], 80, "%s=%.64s", all[i].key, all[i].value);
        }
    }
    return n;
}

/* Ask the host; prints its complaints. WEIR_ERR_NOT_FOUND also when it knows no such tenant. */
static enum weir_status ask(const struct request *r, const char *action, bool quiet,
                            const char words[][80], size_t n_words)
{
    const char *all[2 + SETTINGS_MAX] = {action, r->tenant};
    struct weir_status_report *report;
    for (size_t i = 0; i < n_words; i++) {
        all[2 + i] = words[i];
    }
    enum weir_status status = weir_control_tenant(r->run_dir, all, 2 + n_words, &report);
    if (status != WEIR_OK) {
        return status == WEIR_ERR_NOT_FOUND ? WEIR_ERR_CLOSED : status;
    }
    for (size_t i = 0; i < report->n_notes; i++) {
        bool error = strcmp(report->notes[i].kind, "error") == 0;
        status = error ? WEIR_ERR_NOT_FOUND : status;
        if (!quiet || !error) {
            fprintf(stderr, "weir attach: %s%s\n", error ? "" : "warning: ", report->notes[i].text);
        }
    }
    weir_status_report_destroy(report);
    return status;
}

/* The tenant is there, with these settings. */
static bool provide_tenant(const struct request *r)
{
    char words[SETTINGS_MAX][80];
    size_t n = list_settings(r, words);
    enum weir_status status = ask(r, "show", true, words, 0);
    if (status == WEIR_ERR_NOT_FOUND) {
        status = ask(r, "add", false, (const char(*)[80])words, n);
        if (status == WEIR_OK) {
            printf("%s: added to the host, until it ends\n", r->tenant);
        }
    } else if (status == WEIR_OK && n != 0) {
        status = ask(r, "set", false, (const char(*)[80])words, n);
    }
    if (status != WEIR_OK && status != WEIR_ERR_NOT_FOUND) {
        fprintf(stderr, "weir attach: %s/admin.sock: %s%s\n",
                r->run_dir ? r->run_dir : weir_control_default_run_dir(), weir_status_text(status),
                status == WEIR_ERR_CLOSED ? " (is weir serve running?)" : "");
    }
    return status == WEIR_OK;
}

/* The settings as libvirt keeps them: those that are asked for are new, others stay. */
static bool write_metadata(const struct request *r, struct weir_virt_domain *domain)
{
    static const unsigned int places[] = {WEIR_VIRT_LIVE, WEIR_VIRT_CONFIG};
    char words[SETTINGS_MAX][80];
    size_t n = list_settings(r, words);
    bool good = true;
    for (size_t i = 0; i < 2 && good; i++) {
        if (!(weir_virt_flags(domain) & places[i])) {
            continue;
        }
        char *old = weir_virt_metadata_get(domain, places[i]);
        char *element = weir_virt_element(old, r->machine, r->tenant, (const char(*)[80])words, n);
        good = element && weir_virt_metadata(domain, element, places[i]);
        free(element);
        free(old);
    }
    return good;
}

/* Add it where it is not: in the machine that runs, in the definition. */
static bool add_device(const struct request *r, struct weir_virt_domain *domain, const char *path)
{
    char *device = weir_virt_device(r->tenant, path);
    bool good = device != NULL;
    for (int live = 0; live < 2 && good; live++) {
        if (live ? !domain->active : !domain->persistent) {
            continue;
        }
        const char *where = live ? "the running machine" : "the machine's definition";
        char *xml = weir_virt_xml(domain, live);
        if (!xml) {
            good = false;
        } else if (weir_virt_has_server(xml, path)) {
            printf("%s: %s has the device already\n", r->machine, where);
        } else if (live && weir_virt_is_q35(xml)) {
            printf("%s: a running q35 machine has no room for the device: it comes with the next "
                   "start\n",
                   r->machine);
        } else {
            good = weir_virt_attach(domain, device, live ? WEIR_VIRT_LIVE : WEIR_VIRT_CONFIG);
            if (good) {
                printf("%s: %s has the device of tenant %s\n", r->machine, where, r->tenant);
            }
        }
        free(xml);
    }
    free(device);
    return good;
}

static bool is_plain(const char *text)
{
    return !text || !strpbrk(text, "<>&'\"");
}

static int attach(const struct request *r)
{
    char path[PATH_MAX];
    struct weir_virt_domain domain;
    snprintf(path, sizeof(path), "%s/vm/%s.sock",
             r->run_dir ? r->run_dir : weir_control_default_run_dir(), r->tenant);
    if (!is_plain(path) || !is_plain(r->weight) || !is_plain(r->memory) || !is_plain(r->priority)) {
        fprintf(stderr, "weir attach: quotes, & and < cannot stand in a name or a value\n");
        return WEIR_EXIT_USAGE;
    }
    if (!weir_virt_open(&domain, "attach", r->connect, r->machine)) {
        return WEIR_EXIT_FAILED;
    }
    bool good = provide_tenant(r) && write_metadata(r, &domain) && add_device(r, &domain, path);
    weir_virt_close(&domain);
    return good ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}

int weir_cmd_attach(int argc, char **argv)
{
    struct request r = {0};
    const struct weir_option options[] = {
        {"weight", "N", "its share of the GPU against others (1 to 10000)", &r.weight, NULL},
        {"memory", "SIZE", "its GPU memory: 8GiB, 25%", &r.memory, NULL},
        {"priority", "LEVEL", "low, normal or high", &r.priority, NULL},
        {"tenant", "NAME", "the tenant; default: the machine's name", &r.tenant, NULL},
        {"connect", "URI", "of libvirt, as virsh --connect", &r.connect, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &r.run_dir, NULL},
        {.name = NULL},
    };
    /* Options may stand before the machine's name and behind it. */
    for (int at = 0; at < argc;) {
        static char name[] = "attach";
        int first, exit_status;
        argv[at] = name;
        if (!weir_options_parse(argc - at, argv + at, "[OPTIONS] VM",
                                "Give a virtual machine of libvirt a share of the GPU.", options,
                                &first, &exit_status)) {
            return exit_status;
        }
        at += first;
        if (at < argc) {
            if (r.machine) {
                fprintf(stderr, "weir attach: one VM, please (see weir attach --help)\n");
                return WEIR_EXIT_USAGE;
            }
            r.machine = argv[at];
        }
    }
    if (!r.machine) {
        fprintf(stderr, "weir attach: which VM? (see weir attach --help)\n");
        return WEIR_EXIT_USAGE;
    }
    r.tenant = r.tenant ? r.tenant : r.machine;
    return attach(&r);
}

/*
 * weir attach: give a virtual machine of libvirt the devices of a tenant's channel.
 *
 * Three things, in the order in which they need each other: the tenant exists in the host, with its
 * socket; the domain's metadata has the tenant's settings, so that the next host knows them, too;
 * the domain has the device. A step that was done before is left as it is.
 */
#include "host_backend/config/config.h"
#include "host_backend/config/control.h"
#include "tools/command.h"
#include "tools/virt.h"
#include "tools/virt_channel.h"
#include "tools/virt_element.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTINGS_MAX 4

struct request {
    const char *machine;
    const char *tenant; /* default: the machine's name */
    const char *run_dir;
    const char *connect;
    const char *weight, *memory, *priority;
    const char *channel, *ports;
    char vsock_cid[16];    /* "": vsock is not used */
    char memory_path[256]; /* file of an NVDIMM */
    struct weir_channel_plan plan;
};

/* List the tenant's requested settings: "weight=300" and so on. */
static size_t list_settings(const struct request *r, char words[SETTINGS_MAX][80])
{
    const struct {
        const char *key, *value;
    } all[SETTINGS_MAX] = {{"weight", r->weight},
                           {"memory", r->memory},
                           {"priority", r->priority},
                           {"vsock_cid", r->vsock_cid[0] ? r->vsock_cid : NULL}};
    size_t n = 0;
    for (size_t i = 0; i < SETTINGS_MAX; i++) {
        if (all[i].value) {
            snprintf(words[n++], 80, "%s=%.64s", all[i].key, all[i].value);
        }
    }
    return n;
}

/* Ask the host, and print its complaints. WEIR_ERR_NOT_FOUND: for example, the host has no such
 * tenant. */
static enum weir_status ask(const struct request *r, const char *action, bool quiet,
                            const char words[][80], size_t n_words)
{
    const char *all[3 + SETTINGS_MAX] = {"tenant", action, r->tenant};
    struct weir_status_report *report;
    for (size_t i = 0; i < n_words; i++) {
        all[3 + i] = words[i];
    }
    enum weir_status status = weir_control_ask(r->run_dir, all, 3 + n_words, -1, &report);
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

/* Write the settings into the domain's metadata. Settings that were not requested stay. */
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

/* Add the channel's device to the running machine, or to its definition. */
static bool add_device(const struct request *r, struct weir_virt_domain *domain, bool live)
{
    char *device = weir_channel_device(&r->plan);
    bool good =
        device && weir_virt_attach(domain, device, live ? WEIR_VIRT_LIVE : WEIR_VIRT_CONFIG);
    free(device);
    if (!good && live && r->plan.channel == WEIR_BY_VSOCK &&
        access("/dev/vhost-vsock", F_OK) != 0) {
        fprintf(stderr,
                "weir attach: this machine has no /dev/vhost-vsock: modprobe vhost_vsock, or "
                "take --channel ivshmem\n");
    }
    return good;
}

static bool add_everywhere(const struct request *r, struct weir_virt_domain *domain)
{
    char what[64];
    bool good = true;
    weir_channel_text(&r->plan, what, sizeof(what));
    for (int live = 0; live < 2 && good; live++) {
        if (live ? !domain->active : !domain->persistent) {
            continue;
        }
        const char *where = live ? "the running machine" : "the machine's definition";
        char *xml = weir_virt_xml(domain, live);
        if (!xml) {
            good = false;
        } else if (weir_channel_has(&r->plan, xml)) {
            printf("%s: %s has %s already\n", r->machine, where, what);
        } else if (live && weir_channel_waits(&r->plan, xml)) {
            printf("%s: %s: it has %s with the next start\n", r->machine,
                   weir_channel_waits(&r->plan, xml), what);
        } else {
            good = add_device(r, domain, live);
            if (good) {
                printf("%s: %s has %s of tenant %s\n", r->machine, where, what, r->tenant);
            }
        }
        free(xml);
    }
    return good;
}

/* Find the machine's CID, or choose one: the tenant must know it before the machine connects. */
static bool choose_cid(struct request *r, struct weir_virt_domain *domain)
{
    char *xml = weir_virt_xml(domain, !domain->persistent);
    WEIR_FAIL_IF(!xml, false);
    uint32_t cid = weir_channel_cid_of(xml);
    r->plan.cid = cid ? cid : weir_channel_cid_for(xml);
    snprintf(r->vsock_cid, sizeof(r->vsock_cid), "%u", r->plan.cid);
    free(xml);
    if (cid == UINT32_MAX) {
        fprintf(stderr,
                "weir attach: %s: its vsock device gets another CID at each start, so it cannot "
                "say who it is: give it a fixed one (<cid auto='no' address='...'/>)\n",
                r->machine);
        return false;
    }
    return true;
}

/* Does the machine's definition, or the machine if it has none, have a place for an NVDIMM? */
static bool has_memory_room(const struct request *r, struct weir_virt_domain *domain)
{
    char *xml = weir_virt_xml(domain, !domain->persistent);
    bool room = xml && weir_channel_has_memory_room(xml);
    if (xml && !room) {
        char *lines = weir_channel_memory_room(xml);
        fprintf(stderr,
                "weir attach: %s: its definition has no place for an NVDIMM. It needs (virsh edit; "
                "then stop it and start it):\n%s",
                r->machine, lines ? lines : "");
        free(lines);
    }
    free(xml);
    return room;
}

/* Get the size of the shared memory's file, which the host makes with the tenant. */
static bool measure_memory(struct request *r)
{
    struct stat info;
    if (!weir_control_vm_memory(r->run_dir, r->tenant, r->memory_path, sizeof(r->memory_path)) ||
        stat(r->memory_path, &info) != 0) {
        fprintf(stderr, "weir attach: %s: %s (the host's log says why it made no such file)\n",
                r->memory_path, strerror(errno));
        return false;
    }
    r->plan.memory_path = r->memory_path;
    r->plan.memory_bytes = (uint64_t)info.st_size;
    return true;
}

static bool is_plain(const char *text)
{
    return !text || !strpbrk(text, "<>&'\"");
}

/* Refuse a setting that no tenant can have before asking libvirt anything. */
static bool settings_good(const struct request *r)
{
    const struct {
        const char *key, *value;
    } rows[] = {{"weight", r->weight}, {"memory", r->memory}, {"priority", r->priority}};
    struct weir_tenant_config config;
    weir_tenant_config_default(&config, "");
    for (size_t i = 0; i < WEIR_COUNT(rows); i++) {
        struct weir_diag diag;
        if (rows[i].value && weir_setting_store((size_t)weir_setting_find(rows[i].key),
                                                rows[i].value, &config, &diag) != WEIR_OK) {
            fprintf(stderr, "weir attach: --%s '%s': %s\n", rows[i].key, rows[i].value,
                    diag.message);
            return false;
        }
    }
    if (!weir_tenant_name_ok(r->tenant)) {
        fprintf(stderr, "weir attach: '%s' cannot be a tenant's name: name one with --tenant\n",
                r->tenant);
        return false;
    }
    return true;
}

/* Make the plan, and check the requests that do not depend on the machine. */
static bool make_plan(struct request *r)
{
    r->plan = (struct weir_channel_plan){
        .channel = weir_channel_find(r->channel ? r->channel : "ivshmem"),
        .tenant = r->tenant,
        .run_dir = r->run_dir ? r->run_dir : weir_control_default_run_dir()};
    if (r->ports || (r->channel && strcmp(r->channel, "virtio-serial") == 0)) {
        fprintf(stderr, "weir attach: virtio-serial and its --ports are gone: take --channel "
                        "ivshmem (the default), or vsock\n");
        return false;
    }
    if (!is_plain(r->plan.run_dir) || !is_plain(r->tenant) || !is_plain(r->weight) ||
        !is_plain(r->memory) || !is_plain(r->priority)) {
        fprintf(stderr, "weir attach: quotes, & and < cannot stand in a name or a value\n");
        return false;
    }
    WEIR_FAIL_IF(!settings_good(r), false);
    if (r->plan.channel == WEIR_BY_COUNT) {
        fprintf(stderr, "weir attach: no channel '%s': ivshmem, devdax or vsock\n", r->channel);
        return false;
    }
    return true;
}

static int attach(struct request *r)
{
    struct weir_virt_domain domain;
    if (!make_plan(r)) {
        return WEIR_EXIT_USAGE;
    }
    if (!weir_virt_open(&domain, "attach", r->connect, r->machine)) {
        return WEIR_EXIT_FAILED;
    }
    bool devdax = r->plan.channel == WEIR_BY_DEVDAX;
    bool good = (!devdax || has_memory_room(r, &domain)) &&
                (r->plan.channel != WEIR_BY_VSOCK || choose_cid(r, &domain)) && provide_tenant(r) &&
                (!devdax || measure_memory(r)) && write_metadata(r, &domain) &&
                add_everywhere(r, &domain);
    weir_virt_close(&domain);
    return good ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}

int weir_cmd_attach(int argc, char **argv)
{
    struct request r = {0};
    const struct weir_option options[] = {
        {"weight", "N", "its share of the GPU against others (1 to 10000)", &r.weight, NULL},
        {"memory", "SIZE", "its GPU memory: 8GiB, 25%", &r.memory, NULL},
        {"priority", "low|normal|high", "its class: a higher one goes first", &r.priority, NULL},
        {"channel", "ivshmem|devdax|vsock", "how its programs reach the host (default ivshmem)",
         &r.channel, NULL},
        {"ports", "N", NULL, &r.ports, NULL},
        {"tenant", "NAME", "the tenant; default: the machine's name", &r.tenant, NULL},
        {"connect", "URI", "of libvirt, as virsh --connect", &r.connect, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &r.run_dir, NULL},
        {.name = NULL},
    };
    int first, exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] VM",
                            "Give a virtual machine of libvirt a share of the GPU.", options,
                            &first, &exit_status)) {
        return exit_status;
    }
    r.machine = argv[first];
    r.tenant = r.tenant ? r.tenant : r.machine;
    return attach(&r);
}

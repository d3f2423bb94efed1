/*
 * weir detach: take a tenant's device away from a virtual machine of libvirt, and its metadata with
 * it. The tenant itself stays: other guests may be of it.
 */
#include "host_backend/control.h"
#include "tools/command.h"
#include "tools/virt.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* Where it is: in the machine that runs, in the definition. Counts into *ret_found. */
static bool remove_device(struct weir_virt_domain *domain, const char *tenant, const char *path,
                          bool live, int *ret_found)
{
    if (live ? !domain->active : !domain->persistent) {
        return true;
    }
    char *xml = weir_virt_xml(domain, live);
    char *device = weir_virt_device(tenant, path);
    bool good = xml && device;
    if (good && weir_virt_has_server(xml, path)) {
        ++*ret_found;
        good = weir_virt_detach(domain, device, live ? WEIR_VIRT_LIVE : WEIR_VIRT_CONFIG);
        if (good) {
            printf("%s: %s\n", domain->name,
                   live ? "the running machine was asked to let go of the device"
                        : "the machine's definition is without the device");
        }
    }
    free(xml);
    free(device);
    return good;
}

static int detach(const char *machine, const char *tenant, const char *connect, const char *run_dir)
{
    char path[PATH_MAX];
    struct weir_virt_domain domain;
    int found = 0;
    snprintf(path, sizeof(path), "%s/vm/%s.sock",
             run_dir ? run_dir : weir_control_default_run_dir(), tenant);
    if (!weir_virt_open(&domain, "detach", connect, machine)) {
        return WEIR_EXIT_FAILED;
    }
    bool good = remove_device(&domain, tenant, path, false, &found) &&
                remove_device(&domain, tenant, path, true, &found);
    if (good && found == 0) {
        fprintf(stderr, "weir detach: %s: it has no device of tenant %s (%s)\n", machine, tenant,
                path);
        good = false;
    } else if (good) {
        good = weir_virt_metadata(&domain, NULL, weir_virt_flags(&domain));
    }
    weir_virt_close(&domain);
    return good ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}

int weir_cmd_detach(int argc, char **argv)
{
    const char *machine = NULL, *tenant = NULL, *connect = NULL, *run_dir = NULL;
    const struct weir_option options[] = {
        {"tenant", "NAME", "the tenant; default: the machine's name", &tenant, NULL},
        {"connect", "URI", "of libvirt, as virsh --connect", &connect, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    for (int at = 0; at < argc;) {
        static char name[] = "detach";
        int first, exit_status;
        argv[at] = name;
        if (!weir_options_parse(argc - at, argv + at, "[OPTIONS] VM",
                                "Take the GPU away from a virtual machine of libvirt.", options,
                                &first, &exit_status)) {
            return exit_status;
        }
        at += first;
        if (at < argc) {
            if (machine) {
                fprintf(stderr, "weir detach: one VM, please (see weir detach --help)\n");
                return WEIR_EXIT_USAGE;
            }
            machine = argv[at];
        }
    }
    if (!machine) {
        fprintf(stderr, "weir detach: which VM? (see weir detach --help)\n");
        return WEIR_EXIT_USAGE;
    }
    return detach(machine, tenant ? tenant : machine, connect, run_dir);
}

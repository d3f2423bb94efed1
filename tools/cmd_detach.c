/*
 * weir detach: remove a tenant's device and metadata from a virtual machine of libvirt. The tenant
 * itself stays: other guests may use it.
 */
#include "host_backend/config/control.h"
#include "tools/command.h"
#include "tools/virt.h"
#include "tools/virt_channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Remove a channel's device from the running machine, or from the definition. The count includes a
 * device that a running machine keeps. */
static bool remove_device(struct weir_virt_domain *domain, const struct weir_channel_plan *plan,
                          bool live, unsigned int *ret_found, unsigned int *ret_kept)
{
    if (live ? !domain->active : !domain->persistent) {
        return true;
    }
    char *xml = weir_virt_xml(domain, live);
    bool good = xml != NULL;
    if (good && weir_channel_has(plan, xml) && live && !weir_channel_unplugs(plan)) {
        printf("%s: the running machine keeps the NVDIMM until it ends\n", domain->name);
        *ret_kept += 1;
    } else if (good && weir_channel_has(plan, xml)) {
        char *device = weir_channel_device(plan);
        good = device && weir_virt_detach(domain, device, live ? WEIR_VIRT_LIVE : WEIR_VIRT_CONFIG);
        *ret_found += good;
        free(device);
    }
    free(xml);
    return good;
}

/* Remove everything that weir attach may have added. A vsock device with another CID stays: weir
 * attach did not add it. */
static bool remove_all(struct weir_virt_domain *domain, const char *tenant, const char *run_dir,
                       bool live, unsigned int *ret_found)
{
    char *xml = weir_virt_xml(domain, false);
    char memory_path[256];
    struct stat memory = {0};
    bool has_memory = weir_control_vm_memory(run_dir, tenant, memory_path, sizeof(memory_path)) &&
                      stat(memory_path, &memory) == 0;
    struct weir_channel_plan plans[] = {
        {.channel = WEIR_BY_IVSHMEM},
        {.channel = WEIR_BY_VSOCK, .cid = xml ? weir_channel_cid_for(xml) : 0},
        {.channel = has_memory ? WEIR_BY_DEVDAX : WEIR_BY_COUNT,
         .memory_path = memory_path,
         .memory_bytes = (uint64_t)memory.st_size}};
    unsigned int found = 0, kept = 0;
    bool good = xml != NULL;
    bool by_own_vsock =
        xml && strstr(xml, "vsock_cid=") && weir_channel_cid_of(xml) != plans[1].cid;
    free(xml);
    for (size_t i = 0; i < WEIR_COUNT(plans) && good; i++) {
        plans[i].tenant = tenant;
        plans[i].run_dir = run_dir;
        good = remove_device(domain, &plans[i], live, &found, &kept);
    }
    if (good && found != 0) {
        printf("%s: %s\n", domain->name,
               live ? "the running machine was asked to let go of the device"
                    : "the machine's definition is without the device");
    }
    /* A vsock device that weir attach did not add stays, without its tenant. */
    *ret_found += found + kept + (by_own_vsock ? 1 : 0);
    return good;
}

static int detach(const char *machine, const char *tenant, const char *connect, const char *run_dir)
{
    struct weir_virt_domain domain;
    unsigned int found = 0;
    if (!weir_virt_open(&domain, "detach", connect, machine)) {
        return WEIR_EXIT_FAILED;
    }
    bool good = remove_all(&domain, tenant, run_dir, false, &found) &&
                remove_all(&domain, tenant, run_dir, true, &found);
    if (good && found == 0) {
        fprintf(stderr, "weir detach: %s: it has no device of tenant %s (%s/vm)\n", machine, tenant,
                run_dir);
        good = false;
    } else if (good) {
        good = weir_virt_metadata(&domain, NULL, weir_virt_flags(&domain));
    }
    weir_virt_close(&domain);
    return good ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}

int weir_cmd_detach(int argc, char **argv)
{
    const char *tenant = NULL, *connect = NULL, *run_dir = NULL;
    const struct weir_option options[] = {
        {"tenant", "NAME", "the tenant; default: the machine's name", &tenant, NULL},
        {"connect", "URI", "of libvirt, as virsh --connect", &connect, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    int first, exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] VM",
                            "Take the GPU away from a virtual machine of libvirt.", options, &first,
                            &exit_status)) {
        return exit_status;
    }
    return detach(argv[first], tenant ? tenant : argv[first], connect,
                  run_dir ? run_dir : weir_control_default_run_dir());
}

#include "tools/virt.h"
#include "base/status.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA_ELEMENT 2  /* VIR_DOMAIN_METADATA_ELEMENT */
#define XML_INACTIVE     2u /* VIR_DOMAIN_XML_INACTIVE */
#define METADATA_KEY     "weir"
#define METADATA_URI     "https://weir.dev/libvirt/1.0"

static struct {
#define WEIR_VIRT(type, name, arguments) type(*name) arguments;
#include "tools/virt_functions.def"
#undef WEIR_VIRT
} virt;

static bool load(const char *command)
{
    void *library = dlopen("libvirt.so.0", RTLD_NOW | RTLD_LOCAL);
    bool complete = library != NULL;
    if (!library) {
        fprintf(stderr, "weir %s: libvirt is needed: %s\n", command, dlerror());
        return false;
    }
#define WEIR_VIRT(type, name, arguments)                                                           \
    *(void **)(void *)&virt.name = dlsym(library, #name);                                          \
    complete = complete && virt.name;
#include "tools/virt_functions.def"
#undef WEIR_VIRT
    if (!complete) {
        fprintf(stderr, "weir %s: this libvirt is too old\n", command);
    }
    return complete;
}

/* libvirt must not print errors: the caller prints each once, with the name of the command. */
static void be_silent(void *user, void *error)
{
    (void)user;
    (void)error;
}

static bool complain(const struct weir_virt_domain *domain, const char *what)
{
    fprintf(stderr, "weir %s: %s: %s: %s\n", domain->command, domain->name, what,
            virt.virGetLastErrorMessage());
    return false;
}

bool weir_virt_open(struct weir_virt_domain *domain, const char *command, const char *uri,
                    const char *name)
{
    *domain = (struct weir_virt_domain){.command = command, .name = name};
    WEIR_FAIL_IF(!load(command), false);
    virt.virSetErrorFunc(NULL, be_silent);
    domain->connection = virt.virConnectOpen(uri);
    WEIR_FAIL_IF(!domain->connection, complain(domain, "no connection to libvirt"));
    domain->handle = virt.virDomainLookupByName(domain->connection, name);
    if (!domain->handle) {
        complain(domain, "no such virtual machine");
        weir_virt_close(domain);
        return false;
    }
    domain->active = virt.virDomainIsActive(domain->handle) == 1;
    domain->persistent = virt.virDomainIsPersistent(domain->handle) == 1;
    return true;
}

void weir_virt_close(struct weir_virt_domain *domain)
{
    if (domain->handle) {
        virt.virDomainFree(domain->handle);
    }
    if (domain->connection) {
        virt.virConnectClose(domain->connection);
    }
    domain->handle = domain->connection = NULL;
}

char *weir_virt_xml(struct weir_virt_domain *domain, bool live)
{
    char *xml = virt.virDomainGetXMLDesc(domain->handle, live ? 0 : XML_INACTIVE);
    if (!xml) {
        complain(domain, "its XML cannot be read");
    }
    return xml;
}

bool weir_virt_is_q35(const char *xml)
{
    return strstr(xml, "machine='pc-q35") || strstr(xml, "machine='q35'");
}

bool weir_virt_attach(struct weir_virt_domain *domain, const char *xml, unsigned int flags)
{
    return virt.virDomainAttachDeviceFlags(domain->handle, xml, flags) == 0 ||
           complain(domain, "the device cannot be added");
}

bool weir_virt_detach(struct weir_virt_domain *domain, const char *xml, unsigned int flags)
{
    return virt.virDomainDetachDeviceFlags(domain->handle, xml, flags) == 0 ||
           complain(domain, "the device cannot be removed");
}

bool weir_virt_metadata(struct weir_virt_domain *domain, const char *element, unsigned int flags)
{
    return virt.virDomainSetMetadata(domain->handle, METADATA_ELEMENT, element, METADATA_KEY,
                                     METADATA_URI, flags) == 0 ||
           complain(domain, "its metadata cannot be changed");
}

char *weir_virt_metadata_get(struct weir_virt_domain *domain, unsigned int flag)
{
    return virt.virDomainGetMetadata(domain->handle, METADATA_ELEMENT, METADATA_URI, flag);
}

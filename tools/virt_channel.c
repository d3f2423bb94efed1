#include "tools/virt_channel.h"

#include "base/hash.h"
#include "tools/virt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CID 0x10000u      /* people choose CIDs below this by hand */
#define SPARE_KIB (64ull << 20) /* address space for memory devices, 64 GiB; it costs nothing */

enum weir_channel weir_channel_find(const char *name)
{
    static const char *const names[] = {"ivshmem", "vsock", "devdax"};
    int channel = 0;
    while (channel < WEIR_BY_COUNT && strcmp(names[channel], name) != 0) {
        channel++;
    }
    return (enum weir_channel)channel;
}

char *weir_channel_device(const struct weir_channel_plan *plan)
{
    char *xml = NULL;
    int len = -1;
    switch (plan->channel) {
    case WEIR_BY_IVSHMEM:
        len = asprintf(&xml,
                       "<shmem name='weir-%s'><model type='ivshmem-doorbell'/>"
                       "<server path='%s/vm/%s.sock'/><msi vectors='1' ioeventfd='on'/></shmem>",
                       plan->tenant, plan->run_dir, plan->tenant);
        break;
    case WEIR_BY_VSOCK:
        len = asprintf(&xml, "<vsock model='virtio'><cid auto='no' address='%u'/></vsock>",
                       plan->cid);
        break;
    case WEIR_BY_DEVDAX:
        len = asprintf(&xml,
                       "<memory model='nvdimm' access='shared'><source><path>%s</path></source>"
                       "<target><size unit='KiB'>%" PRIu64 "</size><node>0</node></target>"
                       "</memory>",
                       plan->memory_path, plan->memory_bytes / 1024);
        break;
    case WEIR_BY_COUNT:
        break;
    }
    return len > 0 ? xml : NULL;
}

bool weir_channel_has(const struct weir_channel_plan *plan, const char *xml)
{
    char text[512];
    switch (plan->channel) {
    case WEIR_BY_IVSHMEM:
        snprintf(text, sizeof(text), "<server path='%.200s/vm/%.64s.sock'/>", plan->run_dir,
                 plan->tenant);
        return strstr(xml, text) != NULL;
    case WEIR_BY_VSOCK:
        return weir_channel_cid_of(xml) == plan->cid;
    case WEIR_BY_DEVDAX:
        snprintf(text, sizeof(text), "<path>%.300s</path>", plan->memory_path);
        return strstr(xml, text) != NULL;
    case WEIR_BY_COUNT:
        break;
    }
    return false;
}

const char *weir_channel_waits(const struct weir_channel_plan *plan, const char *xml)
{
    if (plan->channel == WEIR_BY_DEVDAX) {
        return strstr(xml, "<memory model='nvdimm'")
                   ? NULL
                   : "a machine that was started without an NVDIMM gets none while it runs";
    }
    return weir_virt_is_q35(xml) ? "a running q35 machine has no room for it" : NULL;
}

void weir_channel_text(const struct weir_channel_plan *plan, char *text, unsigned int text_bytes)
{
    switch (plan->channel) {
    case WEIR_BY_VSOCK:
        snprintf(text, text_bytes, "vsock with CID %u", plan->cid);
        break;
    case WEIR_BY_DEVDAX:
        snprintf(text, text_bytes, "the NVDIMM");
        break;
    case WEIR_BY_IVSHMEM:
    case WEIR_BY_COUNT:
        snprintf(text, text_bytes, "the device");
        break;
    }
}

bool weir_channel_unplugs(const struct weir_channel_plan *plan)
{
    return plan->channel != WEIR_BY_DEVDAX;
}

bool weir_channel_has_memory_room(const char *xml)
{
    const char *numa = strstr(xml, "<numa>");
    return strstr(xml, "<maxMemory slots=") && numa && strstr(numa, "<cell ");
}

/* Read the number in an element's text; 0: there is no such element. */
static unsigned long long number_in(const char *xml, const char *element)
{
    const char *at = strstr(xml, element);
    const char *text = at ? strchr(at, '>') : NULL;
    return text ? strtoull(text + 1, NULL, 10) : 0;
}

char *weir_channel_memory_room(const char *xml)
{
    unsigned long long memory_kib = number_in(xml, "<memory unit='KiB'>");
    unsigned long long n_cpus = number_in(xml, "<vcpu");
    char *text = NULL;
    if (asprintf(&text,
                 "    <maxMemory slots='4' unit='KiB'>%llu</maxMemory>\n"
                 "    <cpu ...><numa><cell id='0' cpus='0-%llu' memory='%llu' unit='KiB'/></numa>"
                 "</cpu>\n",
                 memory_kib + SPARE_KIB, n_cpus ? n_cpus - 1 : 0, memory_kib) < 0) {
        return NULL;
    }
    return text;
}

uint32_t weir_channel_cid_of(const char *xml)
{
    const char *vsock = strstr(xml, "<vsock");
    const char *cid = vsock ? strstr(vsock, "<cid auto='no' address='") : NULL;
    if (!cid) {
        return vsock ? UINT32_MAX : 0;
    }
    return (uint32_t)strtoul(strchr(strchr(cid, '\'') + 1, '=') + 2, NULL, 10);
}

uint32_t weir_channel_cid_for(const char *xml)
{
    const char *uuid = strstr(xml, "<uuid>");
    struct weir_hash hash = weir_hash_of(uuid ? uuid : xml, uuid ? strcspn(uuid + 1, "<") : 0);
    uint32_t number;
    memcpy(&number, hash.bytes, sizeof(number));
    return FIRST_CID + number % (UINT32_MAX / 2);
}

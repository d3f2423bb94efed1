/* What each way from a virtual machine to its host is in a domain's XML. */
#ifndef WEIR_TOOLS_VIRT_CHANNEL_H
#define WEIR_TOOLS_VIRT_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

enum weir_channel {
    WEIR_BY_IVSHMEM, /* the default */
    WEIR_BY_VSOCK,
    WEIR_BY_DEVDAX, /* an NVDIMM */
    WEIR_BY_COUNT
};

/* The device of a tenant's channel. Strings are borrowed. */
struct weir_channel_plan {
    enum weir_channel channel;
    const char *tenant;
    const char *run_dir;
    uint32_t cid;            /* of vsock */
    const char *memory_path; /* of an NVDIMM: its file .. */
    uint64_t memory_bytes;   /* .. and how large that is */
};

/** "ivshmem", "vsock", "devdax"; WEIR_BY_COUNT: there is no such channel. */
enum weir_channel weir_channel_find(const char *name);

/** The device's XML; to be freed. NULL: out of memory. */
char *weir_channel_device(const struct weir_channel_plan *plan);

/** Does a domain's XML have the device? */
bool weir_channel_has(const struct weir_channel_plan *plan, const char *xml);

/** Why a machine with this XML gets it with its next start only; NULL: it can be added at once. */
const char *weir_channel_waits(const struct weir_channel_plan *plan, const char *xml);

/** Can a running machine be asked to let go of it? QEMU does not unplug an NVDIMM. */
bool weir_channel_unplugs(const struct weir_channel_plan *plan);

/** Has a domain with this XML a place for memory devices: maxMemory, and a NUMA cell? */
bool weir_channel_has_memory_room(const char *xml);

/** What such a domain needs, as lines of XML; to be freed. NULL: out of memory. */
char *weir_channel_memory_room(const char *xml);

/** "the device", "the NVDIMM": for people. */
void weir_channel_text(const struct weir_channel_plan *plan, char *text, unsigned int text_bytes);

/**
 * The CID of a domain's vsock device, which must be a fixed one.
 * @return 0: it has no such device; UINT32_MAX: it has one whose CID is another at each start.
 */
uint32_t weir_channel_cid_of(const char *xml);

/** A CID for a domain without one, from its UUID: the same each time. */
uint32_t weir_channel_cid_for(const char *xml);

#endif

/* How a domain's XML describes each channel from a virtual machine to its host. */
#pragma once

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
    uint32_t cid;            /* CID of a vsock device */
    const char *memory_path; /* file of an NVDIMM */
    uint64_t memory_bytes;   /* size of that file */
};

/** The channel of a name: "ivshmem", "vsock" or "devdax"; WEIR_BY_COUNT: there is no
 * such channel. */
enum weir_channel weir_channel_find(const char *name);

/** The device's XML; to be freed. NULL: out of memory. */
char *weir_channel_device(const struct weir_channel_plan *plan);

/** Does a domain's XML have the device? */
bool weir_channel_has(const struct weir_channel_plan *plan, const char *xml);

/** Why a machine with this XML gets the device only at its next start; NULL: it can be
 * added now. */
const char *weir_channel_waits(const struct weir_channel_plan *plan, const char *xml);

/** Can a running machine be asked to let go of it? QEMU does not unplug an NVDIMM. */
bool weir_channel_unplugs(const struct weir_channel_plan *plan);

/** Does this XML have what memory devices need: maxMemory and a NUMA cell? */
bool weir_channel_has_memory_room(const char *xml);

/** The XML lines that such a domain needs; to be freed. NULL: out of memory. */
char *weir_channel_memory_room(const char *xml);

/** The device's name for people: "the device", "the NVDIMM". */
void weir_channel_text(const struct weir_channel_plan *plan, char *text, unsigned int text_bytes);

/**
 * The CID of a domain's vsock device, which must be a fixed one.
 * @return 0: it has no such device; UINT32_MAX: it has one whose CID is another at each start.
 */
uint32_t weir_channel_cid_of(const char *xml);

/** Choose a CID for a domain without one, from its UUID: the same one each time. */
uint32_t weir_channel_cid_for(const char *xml);


#include "host_backend/supervisor/machines/dax_info.h"

#include "base/hash.h"
#include <endian.h>
#include <stddef.h>
#include <string.h>

#define UUID_BYTES        16
#define PAGE_BYTES        4096u
#define VERSION_MAJOR     1
#define VERSION_MINOR     4
#define MODE_PAGES_IN_RAM 1 /* the guest's kernel keeps its page structures in ordinary memory */
#define PAGE_STRUCT_BYTES 64

/* All numbers are little-endian. */
struct info_block {
    uint8_t signature[16];
    uint8_t uuid[UUID_BYTES];
    uint8_t parent_uuid[UUID_BYTES]; /* zero: an NVDIMM without labels */
    uint32_t flags;
    uint16_t version_major;
    uint16_t version_minor;
    uint64_t data_offset;
    uint64_t n_pages;
    uint32_t mode;
    uint32_t start_pad;
    uint32_t end_trunc;
    uint32_t align;
    uint32_t page_bytes;
    uint16_t page_struct_bytes;
    uint8_t pad[3994];
    uint64_t checksum;
};
_Static_assert(sizeof(struct info_block) == WEIR_DAX_INFO_BYTES, "the kernel's layout");
_Static_assert(offsetof(struct info_block, checksum) == WEIR_DAX_INFO_BYTES - 8,
               "the kernel's layout");

/* Fletcher's checksum of 64 bits, over words of 32. */
static uint64_t checksum_of(const struct info_block *block)
{
    const uint8_t *bytes = (const uint8_t *)block;
    uint32_t low = 0, word;
    uint64_t high = 0;

    for (size_t at = 0; at < sizeof *block; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        low += le32toh(word);
        high += low;
    }
    return high << 32 | low;
}

void weir_dax_info_make(uint64_t nvdimm_bytes, uint64_t data_offset, const char *name,
                        uint8_t *ret_block)
{
    struct weir_hash hash = weir_hash_of(name, strlen(name));
    struct info_block block = {
        .signature = "NVDIMM_DAX_INFO",
        .version_major = htole16(VERSION_MAJOR),
        .version_minor = htole16(VERSION_MINOR),
        .data_offset = htole64(data_offset),
        .n_pages = htole64((nvdimm_bytes - data_offset) / PAGE_BYTES),
        .mode = htole32(MODE_PAGES_IN_RAM),
        .align = htole32(PAGE_BYTES),
        .page_bytes = htole32(PAGE_BYTES),
        .page_struct_bytes = htole16(PAGE_STRUCT_BYTES),
    };

    _Static_assert(sizeof hash.bytes >= UUID_BYTES, "enough of it");
    memcpy(block.uuid, hash.bytes, UUID_BYTES);
    block.checksum = htole64(checksum_of(&block));
    memcpy(ret_block, &block, sizeof block);
}

/*
 * Images: forms, lengths, and a look for printf.
 *
 * Fatbin: header {u32 magic, u16 version, u16 header bytes, u64 payload bytes}, then entries {u16
 * kind, u16, u32 header bytes, u64 payload bytes, u32 compressed bytes at 0x10, u64 flags at 0x28,
 * u64 uncompressed bytes at 0x38}. ELF: 64-bit; everything that the tables name must lie in the
 * bytes.
 */
#include "host_backend/worker/image_check.h"

#include "proto/wire/bundle.h"
#include <elf.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define FATBIN_MAGIC       0xba55ed50u
#define SOFT_LINKED_MAGIC  0x4b4e4c57u /* "WLNK" */
#define FATBIN_HEADER      16u
#define ENTRY_HEADER       64u
#define ENTRY_LZ4          0x2000u
#define ENTRY_ZSTD         0x8000u
#define SCAN_MAX_BYTES     (64u << 20) /* of one entry, unpacked */
#define UNPACKED_MAX_BYTES (1ull << 30)
#define SCAN_TOTAL_BYTES   (256u << 20) /* of all: bounds the time that a load can take here */

static bool inside(uint64_t offset, uint64_t length, uint64_t bytes)
{
    return offset <= bytes && length <= bytes - offset;
}

static uint64_t read_u64(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof v);
    return v;
}

static uint32_t read_u32(const uint8_t *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof v);
    return v;
}

static uint16_t read_u16(const uint8_t *at)
{
    uint16_t v;

    memcpy(&v, at, sizeof v);
    return v;
}

static bool elf_ok(const uint8_t *data, uint64_t bytes)
{
    Elf64_Ehdr h;

    if (bytes < sizeof h) {
        return false;
    }
    memcpy(&h, data, sizeof h);
    if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_shnum == 0 ||
        h.e_shentsize != sizeof(Elf64_Shdr) ||
        (h.e_phnum != 0 && h.e_phentsize != sizeof(Elf64_Phdr)) ||
        (h.e_shnum != 0 && h.e_shstrndx >= h.e_shnum) ||
        !inside(h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr), bytes) ||
        !inside(h.e_phoff, (uint64_t)h.e_phnum * sizeof(Elf64_Phdr), bytes)) {
        return false;
    }
    for (unsigned i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;

        memcpy(&s, data + h.e_shoff + i * sizeof s, sizeof s);
        if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL &&
            !inside(s.sh_offset, s.sh_size, bytes)) {
            return false;
        }
        if (s.sh_type != SHT_NULL && s.sh_link >= h.e_shnum && s.sh_link != 0) {
            return false;
        }
    }
    for (unsigned i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;

        memcpy(&p, data + h.e_phoff + i * sizeof p, sizeof p);
        if (!inside(p.p_offset, p.p_filesz, bytes)) {
            return false;
        }
    }
    return true;
}

struct entry {
    const uint8_t *data;
    uint64_t stored, packed, unpacked, flags;
    uint16_t kind;
};

/*
 * The texts inside an entry's header: the compiler's options, named by a pair {offset, length}
 * whose offset stands at 0x14, and the source's name. A PTX entry without options, which no
 * compiler writes, makes driver 580 read far outside the header: so it never sees one.
 */
static bool texts_ok(const uint8_t *e, uint64_t header)
{
    uint64_t options = read_u32(e + 0x14);

    if (!inside(read_u32(e + 0x20), read_u32(e + 0x24), header)) {
        return false;
    }
    if (options == 0) {
        return read_u16(e) != 1;
    }
    return options >= ENTRY_HEADER && inside(options, 8, header) &&
           inside(read_u32(e + options), read_u32(e + options + 4), header);
}

/* The entry at *at of a fatbin's payload; moves on. */
static bool next_entry(const uint8_t *payload, uint64_t bytes, uint64_t *at, struct entry *ret)
{
    const uint8_t *e = payload + *at;
    uint64_t header;

    if (!inside(*at, ENTRY_HEADER, bytes)) {
        return false;
    }
    header = read_u32(e + 4);
    *ret = (struct entry){.kind = read_u16(e),
                          .stored = read_u64(e + 8),
                          .packed = read_u32(e + 0x10),
                          .flags = read_u64(e + 0x28),
                          .unpacked = read_u64(e + 0x38),
                          .data = e + header};
    if (header < ENTRY_HEADER || !inside(*at + header, ret->stored, bytes) ||
        ret->packed > ret->stored || !texts_ok(e, header)) {
        return false;
    }
    *at += header + ret->stored;
    return true;
}

/*
 * Unpack an entry into new memory. NULL: it is no packed data, or too large to be looked at here,
 * or the budget is used up.
 */
static uint8_t *unpack(const struct entry *entry, uint64_t *budget, uint64_t *ret_bytes)
{
    bool good = false;
    uint8_t *room;

    if (entry->unpacked > SCAN_MAX_BYTES || entry->unpacked > *budget || entry->unpacked == 0) {
        return NULL;
    }
    *budget -= entry->unpacked;
    room = malloc(entry->unpacked);
    if (room == NULL) {
        return NULL;
    }
    if (entry->flags & ENTRY_ZSTD) {
        size_t n = ZSTD_decompress(room, entry->unpacked, entry->data, entry->packed);

        good = !ZSTD_isError(n);
        *ret_bytes = n;
    } else if (entry->flags & ENTRY_LZ4) {
        int n = LZ4_decompress_safe((const char *)entry->data, (char *)room, (int)entry->packed,
                                    (int)entry->unpacked);

        good = n >= 0;
        *ret_bytes = (uint64_t)n;
    }
    if (!good) {
        free(room);
        room = NULL;
    }
    return room;
}

/*
 * A packed entry that the driver may be shown: driver 580 believes the sizes and does not survive a
 * lie. Entries larger than the limits above are believed too: they are vendors' libraries, and
 * unpacking them here would take as long as loading them.
 */
static bool packed_ok(const struct entry *entry, uint64_t *budget)
{
    uint64_t n = 0, before = *budget;
    uint8_t *room;
    bool looked_at;

    if ((entry->flags & (ENTRY_LZ4 | ENTRY_ZSTD)) == 0 || entry->unpacked == 0 ||
        entry->unpacked > UNPACKED_MAX_BYTES || entry->packed > INT32_MAX) {
        return false;
    }
    room = unpack(entry, budget, &n);
    looked_at = *budget != before;
    if (room == NULL) {
        return !looked_at;
    }
    if (entry->kind == 2) {
        looked_at = n >= SELFMAG && memcmp(room, ELFMAG, SELFMAG) == 0 && elf_ok(room, n);
    } else {
        looked_at = n == entry->unpacked;
    }
    free(room);
    return looked_at;
}

static bool fatbin_ok(const uint8_t *data, uint64_t bytes)
{
    uint64_t payload, at = 0, budget = SCAN_TOTAL_BYTES;
    struct entry entry;

    if (bytes < FATBIN_HEADER || read_u16(data + 4) != 1 || read_u16(data + 6) != FATBIN_HEADER) {
        return false;
    }
    payload = read_u64(data + 8);
    if (!inside(FATBIN_HEADER, payload, bytes)) {
        return false;
    }
    while (at < payload) {
        if (!next_entry(data + FATBIN_HEADER, payload, &at, &entry)) {
            return false;
        }
        if (entry.kind == 2 && entry.packed == 0 && (entry.flags & (ENTRY_LZ4 | ENTRY_ZSTD)) == 0 &&
            (entry.stored < SELFMAG || memcmp(entry.data, ELFMAG, SELFMAG) != 0 ||
             !elf_ok(entry.data, entry.stored))) {
            return false;
        }
        if (entry.packed != 0 && !packed_ok(&entry, &budget)) {
            return false;
        }
    }
    return true;
}

enum weir_status weir_image_check(const uint8_t *data, uint64_t bytes,
                                  enum weir_image_form *ret_form)
{
    size_t text;

    if (bytes >= 4 && read_u32(data) == FATBIN_MAGIC) {
        *ret_form = WEIR_IMAGE_FATBIN;
        return fatbin_ok(data, bytes) ? WEIR_OK : WEIR_ERR_INVALID;
    }
    if (bytes >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0) {
        *ret_form = WEIR_IMAGE_ELF;
        return elf_ok(data, bytes) ? WEIR_OK : WEIR_ERR_INVALID;
    }
    if (bytes >= FATBIN_HEADER && read_u32(data) == SOFT_LINKED_MAGIC) {
        *ret_form = WEIR_IMAGE_SOFT_LINKED; /* its length counts the header */
        return inside(0, read_u64(data + 8), bytes) ? WEIR_OK : WEIR_ERR_INVALID;
    }
    /* Text: the store's tail ends it. A NUL before the end would hide what follows. */
    text = strnlen((const char *)data, bytes);
    if (text == 0 || (text != bytes && text + 1 != bytes)) {
        return WEIR_ERR_INVALID;
    }
    for (size_t i = 0; i < text && i < 256; i++) {
        if (data[i] < 0x20 && data[i] != '\n' && data[i] != '\r' && data[i] != '\t' &&
            data[i] != '\f' && data[i] != '\v') {
            return WEIR_ERR_INVALID;
        }
    }
    *ret_form = WEIR_IMAGE_PTX;
    return WEIR_OK;
}

enum weir_status weir_bundle_check(const uint8_t *data, uint64_t bytes,
                                   struct weir_bundle_part **ret_parts, uint32_t *ret_n_parts)
{
    struct weir_bundle_part *parts;
    struct weir_bundle_header header;
    uint64_t at;

    if (bytes < sizeof header) {
        return WEIR_ERR_INVALID;
    }
    memcpy(&header, data, sizeof header);
    if (header.magic != WEIR_BUNDLE_MAGIC || header.zero != 0 || header.n_parts == 0 ||
        header.n_parts > WEIR_BUNDLE_PARTS_MAX ||
        weir_bundle_header_bytes(header.n_parts) > bytes) {
        return WEIR_ERR_INVALID;
    }
    parts = malloc(header.n_parts * sizeof *parts);
    if (parts == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    at = weir_bundle_header_bytes(header.n_parts);
    for (uint32_t i = 0; i < header.n_parts; i++) {
        enum weir_image_form form;

        parts[i].offset = at;
        parts[i].bytes = read_u64(data + sizeof header + 8ul * i);
        if (!inside(at, parts[i].bytes, bytes) ||
            weir_image_check(data + at, parts[i].bytes, &form) != WEIR_OK ||
            form != WEIR_IMAGE_FATBIN) {
            free(parts);
            return WEIR_ERR_INVALID;
        }
        at += weir_bundle_align(parts[i].bytes);
    }
    *ret_parts = parts;
    *ret_n_parts = header.n_parts;
    return WEIR_OK;
}

static bool mentions_printf(const uint8_t *data, uint64_t bytes)
{
    return memmem(data, bytes, "vprintf", 7) != NULL;
}

/* Unpack an entry and look; true also when there is no room to unpack it. */
static bool packed_mentions(const struct entry *entry, uint64_t *budget)
{
    uint64_t n;
    uint8_t *room = unpack(entry, budget, &n);
    bool found = room == NULL || mentions_printf(room, n);

    free(room);
    return found;
}

static bool fatbin_mentions(const uint8_t *data)
{
    uint64_t payload = read_u64(data + 8), at = 0, budget = SCAN_TOTAL_BYTES;
    struct entry entry;

    while (at < payload && next_entry(data + FATBIN_HEADER, payload, &at, &entry)) {
        if (entry.packed != 0 ? packed_mentions(&entry, &budget)
                              : entry.kind > 2 || mentions_printf(entry.data, entry.stored)) {
            return true;
        }
    }
    return false;
}

bool weir_image_uses_printf(const uint8_t *data, uint64_t bytes)
{
    struct weir_bundle_part *parts;
    uint32_t n;
    bool found = false;

    if (bytes >= 4 && read_u32(data) == FATBIN_MAGIC) {
        return fatbin_mentions(data);
    }
    if (weir_bundle_check(data, bytes, &parts, &n) == WEIR_OK) {
        for (uint32_t i = 0; i < n && !found; i++) {
            found = fatbin_mentions(data + parts[i].offset);
        }
        free(parts);
        return found;
    }
    return mentions_printf(data, bytes);
}

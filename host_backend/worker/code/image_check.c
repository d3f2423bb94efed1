/*
 * Checks images: forms, lengths, uses of printf, and the choice of code that a device can run.
 *
 * Fatbin: header {u32 magic, u16 version, u16 header bytes, u64 payload bytes}, then entries {u16
 * kind, u16, u32 header bytes, u64 payload bytes, u32 compressed bytes at 0x10, u64 flags at 0x28,
 * u64 uncompressed bytes at 0x38}. ELF: 64-bit; everything that the tables name must lie in the
 * bytes.
 */
#include "host_backend/worker/code/image_check.h"

#include "base/cubin.h"
#include "host_backend/worker/code/image_closed.h"
#include "host_backend/worker/code/image_globals.h"
#include "host_backend/worker/code/images.h"
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
#define UNPACKED_MAX_BYTES (512u << 20) /* the most that one entry may take when unpacked */
#define KIND_PTX           1
#define KIND_ELF           2

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
        if (weir_cubin_has_bits(s.sh_type) && !inside(s.sh_offset, s.sh_size, bytes)) {
            return false;
        }
        if (s.sh_type != SHT_NULL && s.sh_link >= h.e_shnum && s.sh_link != 0) {
            return false;
        }
        /* Sections without names: driver 580 returns "unknown error" (999) for such a file. */
        if (i != 0 && i == h.e_shstrndx && s.sh_type != SHT_STRTAB) {
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
    const uint8_t *start; /* the entry's header; data follows */
    const uint8_t *data;
    uint64_t stored, packed, unpacked, flags;
    uint32_t arch; /* the entry's compute capability times ten */
    uint16_t kind;
};

/*
 * Check the texts inside an entry's header: the compiler's options, named by a pair {offset,
 * length} whose offset stands at 0x14, and the source's name. A PTX entry without options makes
 * driver 580 read far outside the header. No compiler writes one, so it is refused.
 */
static bool texts_ok(const uint8_t *e, uint64_t header)
{
    uint64_t options = read_u32(e + 0x14);

    if (!inside(read_u32(e + 0x20), read_u32(e + 0x24), header)) {
        return false;
    }
    if (options == 0) {
        return read_u16(e) != KIND_PTX;
    }
    return options >= ENTRY_HEADER && inside(options, 8, header) &&
           inside(read_u32(e + options), read_u32(e + options + 4), header);
}

/* Read the entry at *at of a fatbin's payload, and move *at behind it. */
static bool next_entry(const uint8_t *payload, uint64_t bytes, uint64_t *at, struct entry *ret)
{
    const uint8_t *e = payload + *at;

    WEIR_FAIL_IF(!inside(*at, ENTRY_HEADER, bytes), false);
    uint64_t header = read_u32(e + 4);
    *ret = (struct entry){.start = e,
                          .kind = read_u16(e),
                          .stored = read_u64(e + 8),
                          .packed = read_u32(e + 0x10),
                          .arch = read_u32(e + 0x1c),
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

/* Unpack an entry into new memory. NULL: the entry is not packed, or the budget is used up. */
static uint8_t *unpack(const struct entry *entry, uint64_t *budget, uint64_t *ret_bytes)
{
    bool good = false;

    WEIR_FAIL_IF(entry->unpacked > *budget || entry->unpacked == 0, NULL);
    *budget -= entry->unpacked;
    uint8_t *room = malloc(entry->unpacked);
    WEIR_FAIL_IF(!room, NULL);
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

static bool mentions(const uint8_t *data, uint64_t bytes, const char *name)
{
    return memmem(data, bytes, name, strlen(name)) != NULL;
}

/* Counts of variables by kind and architecture: the driver takes all entries of one kind and
 * architecture. */
struct tally {
    struct {
        uint64_t global_bytes;
        uint32_t arch;
        uint16_t kind;
    } of[16]; /* further architectures are counted together */
    unsigned n;
    bool uses_printf, may_assert, has_unknown_globals, leaves_addresses;
    bool has_unknown_kernels;           /* any of these kernels may print or assert */
    struct weir_closed_kernels *closed; /* NULL: none is needed yet */
};

/* Addresses of the heap mean something in their own context alone. So may addresses of functions:
 * where PTX calls through one, it says so. */
static void note_addresses(struct tally *tally, const uint8_t *data, uint64_t bytes)
{
    tally->leaves_addresses |= mentions(data, bytes, "malloc") ||
                               mentions(data, bytes, ".callprototype") ||
                               mentions(data, bytes, ".calltargets");
}

static void note_calls(struct tally *tally, const uint8_t *data, uint64_t bytes, bool is_elf)
{
    bool prints = mentions(data, bytes, "vprintf");
    bool asserts = mentions(data, bytes, "__assertfail");

    if (!prints && !asserts) {
        return;
    }
    tally->uses_printf |= prints;
    tally->may_assert |= asserts;
    if (is_elf && !tally->has_unknown_kernels && !tally->closed) {
        tally->closed = weir_closed_kernels_create();
    }
    tally->has_unknown_kernels |=
        !is_elf || !tally->closed || !weir_closed_kernels_add(tally->closed, data, bytes);
}

static void add_globals(struct tally *tally, const struct entry *entry, uint64_t bytes)
{
    const unsigned most = sizeof tally->of / sizeof tally->of[0];
    unsigned i = 0;

    while (i < tally->n && (tally->of[i].arch != entry->arch || tally->of[i].kind != entry->kind)) {
        i++;
    }
    if (i == most) {
        i--;
    } else if (i == tally->n) {
        tally->of[tally->n].arch = entry->arch;
        tally->of[tally->n++].kind = entry->kind;
    }
    tally->of[i].global_bytes = weir_globals_sum(tally->of[i].global_bytes, bytes);
}

/* Give the list of closed kernels to the caller. */
static struct weir_closed_kernels *closed_of(struct tally *tally)
{
    struct weir_closed_kernels *closed = tally->closed;

    tally->closed = NULL;
    if (tally->has_unknown_kernels) {
        weir_closed_kernels_destroy(closed);
        closed = NULL;
    } else if (closed) {
        weir_closed_kernels_end(closed);
    }
    return closed;
}

static struct weir_image_facts facts_of(struct tally *tally)
{
    struct weir_image_facts facts = {.closed = closed_of(tally),
                                     .uses_printf = tally->uses_printf,
                                     .may_assert = tally->may_assert,
                                     .leaves_addresses = tally->leaves_addresses,
                                     .has_unknown_globals = tally->has_unknown_globals};

    for (unsigned i = 0; i < tally->n; i++) {
        if (tally->of[i].global_bytes > facts.global_bytes) {
            facts.global_bytes = tally->of[i].global_bytes;
        }
    }
    return facts;
}

/* Inspect an entry's unpacked text or code. */
static void look_at(struct tally *tally, const struct entry *entry, const uint8_t *data,
                    uint64_t bytes)
{
    uint64_t globals = 0;

    note_addresses(tally, data, bytes);
    note_calls(tally, data, bytes, entry->kind == KIND_ELF);
    tally->uses_printf |= entry->kind > KIND_ELF;
    tally->may_assert |= entry->kind > KIND_ELF;
    tally->has_unknown_kernels |= entry->kind > KIND_ELF;
    if (entry->kind == KIND_PTX) {
        tally->has_unknown_globals |= !weir_ptx_globals((const char *)data, bytes, &globals);
        add_globals(tally, entry, globals);
    } else if (entry->kind == KIND_ELF) {
        add_globals(tally, entry, weir_elf_globals(data, bytes));
    }
}

static bool is_good_elf(const uint8_t *data, uint64_t bytes)
{
    return bytes >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0 && elf_ok(data, bytes);
}

/*
 * Check a packed entry before the driver sees it: driver 580 trusts the sizes and crashes if they
 * are wrong. An entry is refused if it is too large to be unpacked here, or if too much was
 * unpacked already.
 */
static bool packed_ok(const struct entry *entry, uint64_t *budget, struct tally *tally)
{
    uint64_t n = 0;

    if ((entry->flags & (ENTRY_LZ4 | ENTRY_ZSTD)) == 0 || entry->unpacked == 0 ||
        entry->unpacked > UNPACKED_MAX_BYTES || entry->packed > INT32_MAX) {
        return false;
    }
    uint8_t *room = unpack(entry, budget, &n);
    WEIR_FAIL_IF(!room, false);
    bool good = entry->kind == KIND_ELF ? is_good_elf(room, n) : n == entry->unpacked;
    if (good) {
        look_at(tally, entry, room, n);
    }
    free(room);
    return good;
}

static bool entry_ok(const struct entry *entry, uint64_t *budget, struct tally *tally)
{
    if (entry->packed != 0) {
        return packed_ok(entry, budget, tally);
    }
    if (entry->kind == KIND_ELF && !is_good_elf(entry->data, entry->stored)) {
        note_calls(tally, entry->data, entry->stored, false);
        return (entry->flags & (ENTRY_LZ4 | ENTRY_ZSTD)) != 0;
    }
    look_at(tally, entry, entry->data, entry->stored);
    return true;
}

/* Does binary code run on the device? It runs on its own generation, from its own minor version
 * on. */
static bool runs_as_it_is(const struct entry *entry, uint32_t sm)
{
    return entry->kind == KIND_ELF && entry->arch / 10 == sm / 10 && entry->arch <= sm;
}

/* Which entries of a fatbin are kept: all, or code for the device, and PTX only if there is no
 * code. */
enum keep {
    KEEP_ALL,
    KEEP_PTX,  /* keep PTX and entries that are neither PTX nor for another device */
    KEEP_CODE, /* like KEEP_PTX, but without PTX */
};

static bool is_kept(const struct entry *entry, enum keep keep, uint32_t sm)
{
    switch (entry->kind) {
    case KIND_ELF:
        return keep == KEEP_ALL || runs_as_it_is(entry, sm);
    case KIND_PTX:
        return keep == KEEP_ALL || (keep == KEEP_PTX && entry->arch <= sm);
    default:
        return true;
    }
}

/* Choose by the headers alone. False: a length is wrong. */
static bool choose(const uint8_t *payload, uint64_t bytes, uint32_t sm, enum keep *ret_keep)
{
    bool code = false, ptx = false;
    struct entry entry;
    uint64_t at = 0;

    while (at < bytes) {
        WEIR_FAIL_IF(!next_entry(payload, bytes, &at, &entry), false);
        code |= runs_as_it_is(&entry, sm);
        ptx |= entry.kind == KIND_PTX && entry.arch <= sm;
    }
    *ret_keep = sm == 0 ? KEEP_ALL : code ? KEEP_CODE : ptx ? KEEP_PTX : KEEP_ALL;
    return true;
}

enum weir_status weir_fatbin_select(const uint8_t *data, uint64_t bytes, uint32_t sm,
                                    uint64_t *budget, uint8_t **ret_copy,
                                    struct weir_image_facts *ret_facts)
{
    uint64_t payload, at = 0, kept = 0;
    struct tally tally = {0};
    struct entry entry;
    enum keep keep;

    if (bytes < FATBIN_HEADER || read_u32(data) != FATBIN_MAGIC || read_u16(data + 4) != 1 ||
        read_u16(data + 6) != FATBIN_HEADER) {
        return WEIR_ERR_INVALID;
    }
    payload = read_u64(data + 8);
    if (!inside(FATBIN_HEADER, payload, bytes) ||
        !choose(data + FATBIN_HEADER, payload, sm, &keep)) {
        return WEIR_ERR_INVALID;
    }
    uint8_t *copy = calloc(1, FATBIN_HEADER + payload + WEIR_IMAGE_TAIL_BYTES);
    WEIR_FAIL_IF(!copy, WEIR_ERR_NO_MEMORY);
    while (at < payload && next_entry(data + FATBIN_HEADER, payload, &at, &entry)) {
        uint64_t length = (uint64_t)(entry.data - entry.start) + entry.stored;

        if (!is_kept(&entry, keep, sm)) {
            continue;
        }
        if (!entry_ok(&entry, budget, &tally)) {
            weir_closed_kernels_destroy(tally.closed);
            free(copy);
            return WEIR_ERR_INVALID;
        }
        memcpy(copy + FATBIN_HEADER + kept, entry.start, length);
        kept += length;
    }
    if (kept == payload) {
        free(copy);
        copy = NULL;
    } else {
        uint8_t *fitting = realloc(copy, FATBIN_HEADER + kept + WEIR_IMAGE_TAIL_BYTES);

        copy = fitting ? fitting : copy;
        memcpy(copy, data, FATBIN_HEADER);
        memcpy(copy + 8, &kept, sizeof kept);
    }
    *ret_copy = copy;
    *ret_facts = facts_of(&tally);
    return WEIR_OK;
}

/* The architecture of the binary code that the driver would take from a fatbin; 0: none. False: a
 * length is wrong. */
static bool code_arch(const uint8_t *payload, uint64_t bytes, uint32_t sm, uint32_t *ret_arch)
{
    struct entry entry;
    uint64_t at = 0;

    *ret_arch = 0;
    while (at < bytes) {
        WEIR_FAIL_IF(!next_entry(payload, bytes, &at, &entry), false);
        if (runs_as_it_is(&entry, sm) && entry.arch > *ret_arch) {
            *ret_arch = entry.arch;
        }
    }
    return true;
}

static char *text_of(const struct entry *entry, uint64_t max_bytes, size_t *ret_bytes)
{
    uint64_t n = entry->stored, budget = max_bytes;
    char *text;

    if (entry->packed != 0) {
        text = (char *)unpack(entry, &budget, &n);
        if (text) {
            char *longer = realloc(text, n + 1);

            if (!longer) {
                free(text);
            }
            text = longer;
        }
    } else {
        text = n <= max_bytes ? malloc(n + 1) : NULL;
        if (text) {
            memcpy(text, entry->data, n);
        }
    }
    if (text) {
        text[n] = 0;
        *ret_bytes = strlen(text);
    }
    return text;
}

/* Count the texts of the newest architecture that the device takes.
 * @param code  0, or the architecture that they must be of. @param ret_best  the first */
static uint32_t best_texts(const uint8_t *data, uint64_t payload, uint32_t sm, uint32_t code,
                           struct entry *ret_best)
{
    struct entry entry;
    uint32_t n_best = 0;
    uint64_t at = 0;

    while (at < payload && next_entry(data + FATBIN_HEADER, payload, &at, &entry)) {
        if (entry.kind != KIND_PTX || entry.arch > sm || (code != 0 && entry.arch != code)) {
            continue;
        }
        if (n_best == 0 || entry.arch > ret_best->arch) {
            *ret_best = entry;
            n_best = 1;
        } else {
            n_best += entry.arch == ret_best->arch;
        }
    }
    return n_best;
}

static enum weir_status fatbin_ptx(const uint8_t *data, uint64_t bytes,
                                   const struct weir_image_ptx_want *want, char **ret_text,
                                   size_t *ret_bytes)
{
    struct entry best = {0};
    uint32_t code = 0;
    uint64_t payload;

    if (bytes < FATBIN_HEADER || read_u16(data + 4) != 1 || read_u16(data + 6) != FATBIN_HEADER) {
        return WEIR_ERR_INVALID;
    }
    payload = read_u64(data + 8);
    if (!inside(FATBIN_HEADER, payload, bytes) ||
        (want->code_runs && !code_arch(data + FATBIN_HEADER, payload, want->sm, &code))) {
        return WEIR_ERR_INVALID;
    }
    WEIR_FAIL_IF(want->no_code && code != 0, WEIR_ERR_NOT_FOUND);
    WEIR_FAIL_IF(best_texts(data, payload, want->sm, want->any_arch ? 0 : code, &best) != 1,
                 WEIR_ERR_NOT_FOUND); /* several entries of one architecture belong together */
    *ret_text = text_of(&best, want->max_bytes, ret_bytes);
    return *ret_text ? WEIR_OK : WEIR_ERR_TOO_BIG;
}

enum weir_status weir_image_ptx(const uint8_t *data, uint64_t bytes,
                                const struct weir_image_ptx_want *want, char **ret_text,
                                size_t *ret_bytes)
{
    enum weir_image_form form;

    if (weir_fatbin_begins(data, bytes)) {
        return fatbin_ptx(data, bytes, want, ret_text, ret_bytes);
    }
    WEIR_FAIL_IF(weir_image_check(data, bytes, &form) != WEIR_OK || form != WEIR_IMAGE_PTX,
                 WEIR_ERR_NOT_FOUND);
    size_t n = strnlen((const char *)data, bytes);
    WEIR_FAIL_IF(n > want->max_bytes, WEIR_ERR_TOO_BIG);
    *ret_text = strndup((const char *)data, n);
    *ret_bytes = n;
    return *ret_text ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

static bool is_of_entry(const struct entry *entry, weir_image_code_fn *is, void *user)
{
    uint64_t budget = UNPACKED_MAX_BYTES, n = entry->stored;
    uint8_t *room = entry->packed != 0 ? unpack(entry, &budget, &n) : NULL;
    const uint8_t *code = entry->packed != 0 ? room : entry->data;
    bool good = entry->kind == KIND_ELF && code && is_good_elf(code, n) && is(code, n, user);

    free(room);
    return good;
}

bool weir_image_all_codes(const uint8_t *data, uint64_t bytes, uint32_t sm, weir_image_code_fn *is,
                          void *user)
{
    uint64_t at = 0;
    bool good = true;

    if (!weir_fatbin_begins(data, bytes)) {
        return is_good_elf(data, bytes) && is(data, bytes, user);
    }
    while (good && at < read_u64(data + 8)) {
        struct entry entry;

        good = next_entry(data + FATBIN_HEADER, read_u64(data + 8), &at, &entry) &&
               (!is_kept(&entry, KEEP_CODE, sm) || is_of_entry(&entry, is, user));
    }
    return good;
}

bool weir_fatbin_all_texts(const uint8_t *data, uint32_t sm, weir_image_text_fn *is, void *user)
{
    struct entry entry, best = {0};
    uint64_t at = 0, payload = read_u64(data + 8);
    bool good = true;
    size_t n;

    (void)best_texts(data, payload, sm, 0, &best);
    while (good && at < payload) {
        good = next_entry(data + FATBIN_HEADER, payload, &at, &entry);
        if (good && entry.kind == KIND_PTX && entry.arch == best.arch) {
            char *text = text_of(&entry, UINT64_MAX, &n);

            good = text && is(text, n, user);
            free(text);
        }
    }
    return good;
}

bool weir_fatbin_begins(const uint8_t *data, uint64_t bytes)
{
    return bytes >= sizeof(uint32_t) && read_u32(data) == FATBIN_MAGIC;
}

uint64_t weir_fatbin_bytes(const uint8_t *data)
{
    return FATBIN_HEADER + read_u64(data + 8);
}

static bool fatbin_ok(const uint8_t *data, uint64_t bytes)
{
    uint64_t budget = WEIR_UNPACK_MAX_BYTES;
    struct weir_image_facts facts;
    uint8_t *copy;

    if (weir_fatbin_select(data, bytes, 0, &budget, &copy, &facts) != WEIR_OK) {
        return false;
    }
    weir_closed_kernels_destroy(facts.closed);
    free(copy);
    return true;
}

enum weir_status weir_image_check(const uint8_t *data, uint64_t bytes,
                                  enum weir_image_form *ret_form)
{
    if (weir_fatbin_begins(data, bytes)) {
        *ret_form = WEIR_IMAGE_FATBIN;
        return fatbin_ok(data, bytes) ? WEIR_OK : WEIR_ERR_INVALID;
    }
    if (bytes >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0) {
        *ret_form = WEIR_IMAGE_ELF;
        return elf_ok(data, bytes) ? WEIR_OK : WEIR_ERR_INVALID;
    }
    if (bytes >= FATBIN_HEADER && read_u32(data) == SOFT_LINKED_MAGIC) {
        *ret_form = WEIR_IMAGE_SOFT_LINKED; /* the length in the header counts the header */
        return inside(0, read_u64(data + 8), bytes) ? WEIR_OK : WEIR_ERR_INVALID;
    }
    /* The NUL bytes behind an image end its text. An earlier NUL would hide what follows. */
    size_t text = strnlen((const char *)data, bytes);
    WEIR_FAIL_IF(text == 0 || (text != bytes && text + 1 != bytes), WEIR_ERR_INVALID);
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
    struct weir_bundle_header header;

    WEIR_FAIL_IF(bytes < sizeof header, WEIR_ERR_INVALID);
    memcpy(&header, data, sizeof header);
    if (header.magic != WEIR_BUNDLE_MAGIC || header.zero != 0 || header.n_parts == 0 ||
        header.n_parts > WEIR_BUNDLE_PARTS_MAX ||
        weir_bundle_header_bytes(header.n_parts) > bytes) {
        return WEIR_ERR_INVALID;
    }
    struct weir_bundle_part *parts = malloc(header.n_parts * sizeof *parts);
    WEIR_FAIL_IF(!parts, WEIR_ERR_NO_MEMORY);
    uint64_t at = weir_bundle_header_bytes(header.n_parts);
    for (uint32_t i = 0; i < header.n_parts; i++) {
        parts[i].offset = at;
        parts[i].bytes = read_u64(data + sizeof header + 8ul * i);
        if (!inside(at, parts[i].bytes, bytes)) {
            free(parts);
            return WEIR_ERR_INVALID;
        }
        at += weir_bundle_align(parts[i].bytes);
    }
    *ret_parts = parts;
    *ret_n_parts = header.n_parts;
    return WEIR_OK;
}

struct weir_image_facts weir_image_facts(const uint8_t *data, uint64_t bytes,
                                         enum weir_image_form form)
{
    struct tally tally = {0};

    note_addresses(&tally, data, bytes);
    note_calls(&tally, data, bytes, form == WEIR_IMAGE_ELF);
    struct weir_image_facts facts = facts_of(&tally);
    if (form == WEIR_IMAGE_PTX) {
        facts.has_unknown_globals =
            !weir_ptx_globals((const char *)data, bytes, &facts.global_bytes);
    } else if (form == WEIR_IMAGE_ELF) {
        facts.global_bytes = weir_elf_globals(data, bytes);
    }
    return facts;
}

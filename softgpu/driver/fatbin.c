/*
 * Finds the PTX texts in an image given to cuModuleLoadData: PTX itself, a fatbin (raw or wrapped,
 * with zstd or LZ4), or softgpu's own linked image. Cubins have only machine code and are refused.
 *
 * All offsets and lengths in a fatbin are checked against its size (tests/fuzz/fuzz_fatbin.c).
 * Layout: a header of 16 bytes, then entries, each with a header of its own size and a payload.
 */
#include "base/grow.h"
#include "softgpu/driver/driver.h"

#include <ctype.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define WRAPPER_MAGIC 0x466243B1u
#define FATBIN_MAGIC  0xBA55ED50u
#define ELF_MAGIC     0x464C457Fu
#define LINKED_MAGIC  0x4B4E4C57u /* "WLNK": made by cuLinkComplete */

#define FATBIN_HEADER_BYTES 16u
#define ENTRY_HEADER_BYTES  64u
#define MAX_TEXT_BYTES      (256u << 20)

#define KIND_PTX 1u
#define KIND_ELF 2u

#define FLAG_LZ4      0x2000u
#define FLAG_ZSTD     0x8000u
#define FLAG_SPECIFIC 0x100000u /* sm_90a and the like */
#define FLAG_FAMILY   0x200000u

struct entry {
    uint32_t kind, arch;
    uint64_t flags;
    const uint8_t *payload;
    uint64_t payload_bytes;    /* compressed size in the file, padded */
    uint32_t compressed_bytes; /* exact compressed size; 0: not compressed */
    uint64_t text_bytes;       /* size after decompression */
};

static uint32_t read32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static uint64_t read64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static void say(struct weir_soft_log *log, const char *text)
{
    if (log) {
        snprintf(log->text, sizeof(log->text), "%s", text);
    }
}

static CUresult add_text(struct weir_soft_image *image, const char *text, size_t bytes)
{
    while (bytes > 0 && text[bytes - 1] == '\0') {
        bytes--;
    }
    WEIR_FAIL_IF(!WEIR_GROW_POWER(image->sources, image->n_sources), CUDA_ERROR_OUT_OF_MEMORY);
    char *copy = malloc(bytes + 1);
    WEIR_FAIL_IF(!copy, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    image->sources[image->n_sources++] = (struct weir_exec_source){.text = copy, .bytes = bytes};
    return CUDA_SUCCESS;
}

void weir_soft_image_finish(struct weir_soft_image *image)
{
    for (uint32_t i = 0; i < image->n_sources; i++) {
        free((void *)(uintptr_t)image->sources[i].text);
    }
    free(image->sources);
    memset(image, 0, sizeof(*image));
}

CUresult weir_soft_image_verdict(const struct weir_soft_image *image)
{
    if (image->n_sources > 0) {
        return CUDA_SUCCESS;
    }
    return image->saw_cubin ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
}

/* ------------------------------------------------------------------ sized fatbins */

/* Read the entry at the front of [at, at + left); false when it does not fit. */
static bool entry_read(const uint8_t *at, uint64_t left, struct entry *entry, uint64_t *ret_step)
{
    WEIR_FAIL_IF(left < ENTRY_HEADER_BYTES, false);
    uint16_t kind;
    memcpy(&kind, at, sizeof(kind));
    uint32_t header_bytes = read32(at + 0x04);
    uint64_t payload_bytes = read64(at + 0x08);
    if (header_bytes < ENTRY_HEADER_BYTES || header_bytes > left ||
        payload_bytes > left - header_bytes) {
        return false;
    }
    *entry = (struct entry){
        .kind = kind,
        .arch = read32(at + 0x1c),
        .flags = read64(at + 0x28),
        .payload = at + header_bytes,
        .payload_bytes = payload_bytes,
        .compressed_bytes = read32(at + 0x10),
        .text_bytes = read64(at + 0x38),
    };
    *ret_step = header_bytes + payload_bytes;
    return true;
}

static bool entry_runs(const struct entry *entry, uint32_t compute_capability)
{
    if (entry->kind != KIND_PTX || entry->arch > compute_capability) {
        return false;
    }
    if ((entry->flags & FLAG_SPECIFIC) != 0) {
        return entry->arch == compute_capability;
    }
    return (entry->flags & FLAG_FAMILY) == 0 || entry->arch / 10 == compute_capability / 10;
}

static CUresult entry_add(const struct entry *entry, struct weir_soft_image *image,
                          struct weir_soft_log *log)
{
    if ((entry->flags & (FLAG_LZ4 | FLAG_ZSTD)) == 0 || entry->compressed_bytes == 0) {
        return add_text(image, (const char *)entry->payload, entry->payload_bytes);
    }
    if (entry->compressed_bytes > entry->payload_bytes || entry->text_bytes == 0 ||
        entry->text_bytes > MAX_TEXT_BYTES) {
        say(log, "fatbin: sizes of a compressed entry do not fit");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    char *text = malloc(entry->text_bytes);
    WEIR_FAIL_IF(!text, CUDA_ERROR_OUT_OF_MEMORY);
    bool good;
    if ((entry->flags & FLAG_ZSTD) != 0) {
        size_t n =
            ZSTD_decompress(text, entry->text_bytes, entry->payload, entry->compressed_bytes);
        good = !ZSTD_isError(n) && n == entry->text_bytes;
    } else {
        int n = entry->compressed_bytes > INT32_MAX
                    ? -1
                    : LZ4_decompress_safe((const char *)entry->payload, text,
                                          (int)entry->compressed_bytes, (int)entry->text_bytes);
        good = n >= 0 && (uint64_t)n == entry->text_bytes;
    }
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
    if (good) {
        result = add_text(image, text, entry->text_bytes);
    } else {
        say(log, "fatbin: a compressed entry is damaged");
    }
    free(text);
    return result;
}

CUresult weir_soft_fatbin_read(const uint8_t *data, size_t bytes, uint32_t compute_capability,
                               struct weir_soft_image *image, struct weir_soft_log *log)
{
    if (bytes < FATBIN_HEADER_BYTES || read32(data) != FATBIN_MAGIC) {
        say(log, "fatbin: no header");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    uint16_t header_bytes;
    memcpy(&header_bytes, data + 6, sizeof(header_bytes));
    uint64_t left = read64(data + 8);
    if (header_bytes < FATBIN_HEADER_BYTES || header_bytes > bytes || left > bytes - header_bytes) {
        say(log, "fatbin: longer than its container");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    const uint8_t *at = data + header_bytes;
    struct entry best = {0};
    while (left > 0) {
        struct entry entry;
        uint64_t step;
        if (!entry_read(at, left, &entry, &step)) {
            say(log, "fatbin: an entry does not fit");
            return CUDA_ERROR_INVALID_IMAGE;
        }
        image->saw_cubin = image->saw_cubin || entry.kind == KIND_ELF || entry.kind == KIND_PTX;
        if (entry_runs(&entry, compute_capability) && entry.arch >= best.arch) {
            best = entry;
        }
        at += step;
        left -= step;
    }
    if (best.kind == 0) {
        say(log, "no PTX for this device in the fatbin: softgpu runs PTX only");
        return CUDA_SUCCESS;
    }
    return entry_add(&best, image, log);
}

/* ------------------------------------------------------------------ anything else */

static CUresult linked_read(const uint8_t *data, uint64_t bytes, struct weir_soft_image *image)
{
    WEIR_FAIL_IF(bytes < 16 || read64(data + 8) > bytes, CUDA_ERROR_INVALID_IMAGE);
    uint64_t left = read64(data + 8);
    uint32_t n = read32(data + 4);
    const uint8_t *at = data + 16;
    left = left < 16 ? 0 : left - 16;
    for (uint32_t i = 0; i < n; i++) {
        WEIR_FAIL_IF(left < 8 || read64(at) > left - 8, CUDA_ERROR_INVALID_IMAGE);
        uint64_t text_bytes = read64(at);
        WEIR_TRY(add_text(image, (const char *)at + 8, text_bytes));
        at += 8 + text_bytes;
        left -= 8 + text_bytes;
    }
    return CUDA_SUCCESS;
}

/* Behind blanks and comments. */
static const char *first_word(const char *at, const char *end)
{
    while (at < end) {
        const char *stop = NULL;
        if (isspace((unsigned char)*at)) {
            at++;
        } else if (end - at > 2 && at[0] == '/' && (at[1] == '/' || at[1] == '*')) {
            stop = at[1] == '/' ? memchr(at, '\n', (size_t)(end - at))
                                : memmem(at + 2, (size_t)(end - at) - 2, "*/", 2);
            at = !stop ? end : stop + (at[1] == '/' ? 1 : 2);
        } else {
            break;
        }
    }
    return at;
}

static CUresult text_read(const char *text, size_t bytes, struct weir_soft_image *image,
                          struct weir_soft_log *log)
{
    const char *end = text + bytes, *first = first_word(text, end);
    if (end - first < 8 || memcmp(first, ".version", 8) != 0) {
        say(log, "the image is neither PTX nor a container that is known");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    return add_text(image, text, bytes);
}

CUresult weir_soft_image_read_sized(const void *data, size_t bytes, uint32_t compute_capability,
                                    struct weir_soft_image *image, struct weir_soft_log *log)
{
    uint32_t magic = bytes >= 4 ? read32(data) : 0;
    switch (magic) {
    case FATBIN_MAGIC:
        return weir_soft_fatbin_read(data, bytes, compute_capability, image, log);
    case ELF_MAGIC:
        image->saw_cubin = true;
        say(log, "the image is machine code: softgpu runs PTX only");
        return CUDA_SUCCESS;
    case LINKED_MAGIC:
        return linked_read(data, bytes, image);
    default:
        return text_read(data, bytes, image, log);
    }
}

/* Read a fatbin whose size only its own header tells, as in every call of the API. */
static CUresult fatbin_read_unsized(const uint8_t *data, uint32_t compute_capability,
                                    struct weir_soft_image *image, struct weir_soft_log *log)
{
    if (!data || read32(data) != FATBIN_MAGIC) {
        say(log, "the fatbin wrapper points to something else");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    uint16_t header_bytes;
    memcpy(&header_bytes, data + 6, sizeof(header_bytes));
    uint64_t payload = read64(data + 8);
    WEIR_FAIL_IF(payload > UINT32_MAX * 16ull, CUDA_ERROR_INVALID_IMAGE);
    return weir_soft_fatbin_read(data, header_bytes + payload, compute_capability, image, log);
}

/* Read the linked fatbin if it holds PTX, or else all relocatable parts, for linking. */
static CUresult wrapper_read(const uint8_t *wrapper, uint32_t compute_capability,
                             struct weir_soft_image *image, struct weir_soft_log *log)
{
    const uint8_t *data = (const uint8_t *)(uintptr_t)read64(wrapper + 8);
    uint32_t version = read32(wrapper + 4);
    if (version != 1 && version != 2) {
        say(log, "fatbin wrapper: unknown version");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    WEIR_TRY(fatbin_read_unsized(data, compute_capability, image, log));
    const uint8_t *const *parts =
        (const uint8_t *const *)(uintptr_t)(version == 2 ? read64(wrapper + 16) : 0);
    if (image->n_sources > 0 || !parts) {
        return CUDA_SUCCESS;
    }
    for (; *parts; parts++) {
        WEIR_TRY(fatbin_read_unsized(*parts, compute_capability, image, log));
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_image_read(const void *data, uint32_t compute_capability,
                              struct weir_soft_image *image, struct weir_soft_log *log)
{
    /* Text may be shorter than a magic number. */
    const uint8_t *bytes = data;
    if (WEIR_ANY(i, 4, bytes[i] == '\0')) {
        return text_read(data, strlen(data), image, log);
    }
    switch (read32(data)) {
    case WRAPPER_MAGIC:
        return wrapper_read(data, compute_capability, image, log);
    case FATBIN_MAGIC:
        return fatbin_read_unsized(data, compute_capability, image, log);
    case ELF_MAGIC:
        return weir_soft_image_read_sized(data, 4, compute_capability, image, log);
    case LINKED_MAGIC:
        return linked_read(data, read64(bytes + 8), image);
    default:
        return text_read(data, strlen(data), image, log);
    }
}

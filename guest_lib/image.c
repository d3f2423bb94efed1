/*
 * Finds the sizes of images, and sends them to the host.
 *
 * - B1 43 62 46 is a fat binary's wrapper: follow its pointer; version 2 lists more fat binaries.
 * - 50 ED 55 BA is a fat binary: 16 bytes and the u64 at 8.
 * - 7F 'E' 'L' 'F' is a cubin: to the end of its last header or section.
 * - Anything else is PTX: to the NUL.
 *
 * The wrapper's layout and the ELF rule were found with cubins of sm_75 to sm_120.
 */
#include "guest_lib/image.h"

#include "base/cubin.h"

#include "guest_lib/cupti.h"
#include "guest_lib/memory.h"
#include "proto/guest_calls.h"
#include "proto/wire/bundle.h"
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WRAPPER_MAGIC   0x466243b1u
#define FATBIN_MAGIC    0xba55ed50u
#define LINKED_MAGIC    0x4b4e4c57u /* "WLNK": made by softgpu's linker */
#define FATBIN_HEADER   16u
#define WRAPPER_LINKED  2u     /* version of a wrapper with a list */
#define MAX_LINKED      65536u /* most parts of a wrapper's list */
#define PIECE_MAX_BYTES (8ull << 20)

struct wrapper {
    uint32_t magic;
    uint32_t version;
    const void *data;
    const void *const *list;
};

static uint32_t magic_of(const void *data)
{
    uint32_t magic;
    memcpy(&magic, data, sizeof(magic));
    return magic;
}

static CUresult elf_size(const void *data, uint64_t *ret_bytes)
{
    Elf64_Ehdr header;
    memcpy(&header, data, sizeof(header));
    WEIR_FAIL_IF(header.e_ident[EI_CLASS] != ELFCLASS64, CUDA_ERROR_INVALID_IMAGE);
    uint64_t end = sizeof(header);
    uint64_t program_end = header.e_phoff + (uint64_t)header.e_phnum * sizeof(Elf64_Phdr);
    uint64_t section_end = header.e_shoff + (uint64_t)header.e_shnum * sizeof(Elf64_Shdr);
    WEIR_FAIL_IF(header.e_phoff > WEIR_IMAGE_MAX_BYTES || header.e_shoff > WEIR_IMAGE_MAX_BYTES,
                 CUDA_ERROR_INVALID_IMAGE);
    end = WEIR_MAX(program_end, end);
    end = WEIR_MAX(section_end, end);
    for (uint32_t i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, (const char *)data + header.e_shoff + i * sizeof(section),
               sizeof(section));
        if (!weir_cubin_has_bits(section.sh_type)) {
            continue;
        }
        if (section.sh_offset > WEIR_IMAGE_MAX_BYTES || section.sh_size > WEIR_IMAGE_MAX_BYTES) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
        if (section.sh_offset + section.sh_size > end) {
            end = section.sh_offset + section.sh_size;
        }
    }
    *ret_bytes = end;
    return end <= WEIR_IMAGE_MAX_BYTES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult fatbin_size(const void *data, uint64_t *ret_bytes)
{
    uint64_t payload;
    memcpy(&payload, (const char *)data + 8, sizeof(payload));
    WEIR_FAIL_IF(payload > WEIR_IMAGE_MAX_BYTES, CUDA_ERROR_INVALID_IMAGE);
    *ret_bytes = FATBIN_HEADER + payload;
    return CUDA_SUCCESS;
}

/* Check the magic and the number of parts, then find the length of the whole bundle. */
static CUresult linked_size(const void *data, uint64_t *ret_bytes)
{
    memcpy(ret_bytes, (const char *)data + 8, sizeof(*ret_bytes));
    return *ret_bytes >= FATBIN_HEADER && *ret_bytes <= WEIR_IMAGE_MAX_BYTES
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_IMAGE;
}

/* Find the size of an image from its own headers; that of PTX is up to its NUL, without that. */
static CUresult size_of(const void *data, uint64_t *ret_bytes)
{
    const char *text = data;
    /* Compare byte by byte: a short PTX text may end before four bytes are readable. */
    size_t known = strnlen(text, sizeof(uint32_t));
    if (known == sizeof(uint32_t)) {
        if (magic_of(data) == FATBIN_MAGIC) {
            return fatbin_size(data, ret_bytes);
        }
        if (memcmp(data, ELFMAG, SELFMAG) == 0) {
            return elf_size(data, ret_bytes);
        }
        if (magic_of(data) == LINKED_MAGIC) {
            return linked_size(data, ret_bytes);
        }
    }
    *ret_bytes = known < sizeof(uint32_t) ? known : strlen(text);
    return *ret_bytes && *ret_bytes <= WEIR_IMAGE_MAX_BYTES ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_IMAGE;
}

/* Send an image that the host does not have, piece by piece through the staging arena. */
static CUresult upload(const struct weir_guest_image *image, const uint8_t *data)
{
    uint64_t piece_max = weir_staging_max_bytes();
    piece_max = WEIR_MIN(piece_max, PIECE_MAX_BYTES);
    for (uint64_t offset = 0; offset < image->bytes;) {
        uint64_t left = image->bytes - offset;
        uint64_t piece = WEIR_MIN(left, piece_max);
        uint64_t arena;
        WEIR_TRY(weir_staging_take(piece, &arena));
        CUresult result = weir_staging_write(arena, data + offset, piece);
        if (result == CUDA_SUCCESS) {
            struct weir_op_image_put_in in = {
                .bytes = image->bytes, .offset = offset, .arena = arena, .piece_bytes = piece};
            memcpy(in.hash, image->hash.bytes, sizeof(in.hash));
            result = weir_call_image_put(weir_guest_channel(), &in, NULL);
        }
        weir_staging_free(arena);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        offset += piece;
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_image_store_bytes(const void *data, uint64_t bytes,
                                      struct weir_guest_image *ret_image)
{
    WEIR_FAIL_IF(!bytes || bytes > WEIR_IMAGE_MAX_BYTES, CUDA_ERROR_INVALID_IMAGE);
    struct weir_guest_image image = {.hash = weir_hash_of(data, bytes), .bytes = bytes};
    struct weir_op_image_query_in in = {.bytes = bytes};
    struct weir_op_image_query_out out;
    memcpy(in.hash, image.hash.bytes, sizeof(in.hash));
    WEIR_TRY(weir_call_image_query(weir_guest_channel(), &in, &out));
    if (!out.present) {
        WEIR_TRY(upload(&image, data));
    }
    *ret_image = image;
    return CUDA_SUCCESS;
}

/* Store a wrapper of version 2: data is one fat binary (often empty), list has the relocatable ones
 * to be linked with it. */
static CUresult store_bundle(const struct wrapper *wrapper, struct weir_guest_image *ret_image)
{
    uint32_t count = 1;
    while (wrapper->list && wrapper->list[count - 1]) {
        WEIR_FAIL_IF(++count > MAX_LINKED, CUDA_ERROR_INVALID_IMAGE);
    }
    uint64_t total = weir_bundle_header_bytes(count);
    for (uint32_t i = 0; i < count; i++) {
        const void *part = i ? wrapper->list[i - 1] : wrapper->data;
        uint64_t bytes;
        WEIR_FAIL_IF(magic_of(part) != FATBIN_MAGIC || fatbin_size(part, &bytes) != CUDA_SUCCESS,
                     CUDA_ERROR_INVALID_IMAGE);
        total += weir_bundle_align(bytes);
    }
    uint8_t *bundle = calloc(1, total);
    WEIR_FAIL_IF(!bundle, CUDA_ERROR_OUT_OF_MEMORY);
    struct weir_bundle_header *header = (struct weir_bundle_header *)bundle;
    header->magic = WEIR_BUNDLE_MAGIC;
    header->n_parts = count;
    uint64_t at = weir_bundle_header_bytes(count);
    for (uint32_t i = 0; i < count; i++) {
        const void *part = i ? wrapper->list[i - 1] : wrapper->data;
        uint64_t bytes = 0;
        (void)fatbin_size(part, &bytes);
        header->part_bytes[i] = bytes;
        memcpy(bundle + at, part, bytes);
        at += weir_bundle_align(bytes);
    }
    CUresult result = weir_guest_image_store_bytes(bundle, total, ret_image);
    free(bundle);
    if (result == CUDA_SUCCESS) {
        ret_image->kind = WEIR_IMAGE_BUNDLE;
    }
    return result;
}

CUresult weir_guest_image_store(const void *data, struct weir_guest_image *ret_image)
{
    const char *text = data;
    struct wrapper wrapper;
    weir_guest_cupti_replace(); /* a library that brings code may have come with a libcupti */
    if (strnlen(text, sizeof(uint32_t)) == sizeof(uint32_t) && magic_of(data) == WRAPPER_MAGIC) {
        memcpy(&wrapper, data, sizeof(wrapper));
        WEIR_FAIL_IF(!wrapper.data, CUDA_ERROR_INVALID_IMAGE);
        if (wrapper.version == WRAPPER_LINKED) {
            return store_bundle(&wrapper, ret_image);
        }
        data = wrapper.data;
    }
    uint64_t bytes;
    WEIR_TRY(size_of(data, &bytes));
    return weir_guest_image_store_bytes(data, bytes, ret_image);
}

CUresult weir_guest_image_store_file(const char *path, struct weir_guest_image *ret_image)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    WEIR_FAIL_IF(fd < 0, CUDA_ERROR_FILE_NOT_FOUND);
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
    off_t bytes = lseek(fd, 0, SEEK_END); /* not fstat(), a symbol of glibc 2.33 */
    char first;
    if (pread(fd, &first, sizeof first, 0) < 0) {
        result = CUDA_ERROR_OUT_OF_MEMORY; /* a directory: NVIDIA's driver gives this error */
    } else if (bytes > 0) {
        void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED) {
            result = weir_guest_image_store_bytes(data, (uint64_t)bytes, ret_image);
            munmap(data, (size_t)bytes);
        }
    }
    close(fd);
    return result;
}

CUresult weir_guest_image_fetch(const struct weir_hash *hash, uint64_t bytes, void **ret_data)
{
    WEIR_FAIL_IF(!bytes || bytes > WEIR_IMAGE_MAX_BYTES, CUDA_ERROR_INVALID_IMAGE);
    uint8_t *data = malloc(bytes);
    CUresult result = data ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t piece_max = weir_staging_max_bytes();
    for (uint64_t offset = 0; result == CUDA_SUCCESS && offset < bytes;) {
        uint64_t left = bytes - offset;
        uint64_t piece = WEIR_MIN(left, piece_max);
        uint64_t arena;
        result = weir_staging_take(piece, &arena);
        if (result != CUDA_SUCCESS) {
            break;
        }
        struct weir_op_image_get_in in = {.offset = offset, .arena = arena, .piece_bytes = piece};
        memcpy(in.hash, hash->bytes, sizeof(in.hash));
        result = weir_call_image_get(weir_guest_channel(), &in, NULL);
        WEIR_THEN(result, weir_staging_read(arena, data + offset, piece));
        weir_staging_free(arena);
        offset += piece;
    }
    if (result != CUDA_SUCCESS) {
        free(data);
        return result;
    }
    *ret_data = data;
    return CUDA_SUCCESS;
}

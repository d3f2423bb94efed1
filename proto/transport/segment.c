/*
 * The segment's layout, made by the worker and checked by the guest.
 *
 * The file is sealed before anybody else has it: it can neither shrink under a reader (SIGBUS) nor
 * grow. Each end works from its own struct weir_segment_view; the geometry in the shared header is
 * read once, by the guest, when it maps.
 */
#include "base/fd.h"
#include "base/memfd.h"
#include "proto/transport/segment_map.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_WORDS       65536u
#define DEFAULT_RING_BYTES  (4u << 20)
#define DEFAULT_ARENA_BYTES (64ull << 20)

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static uint64_t round_to_page(uint64_t bytes)
{
    return (bytes + WEIR_SEGMENT_PAGE_BYTES - 1) & ~(uint64_t)(WEIR_SEGMENT_PAGE_BYTES - 1);
}

static bool is_power_of_two(uint32_t value)
{
    return value && !(value & (value - 1));
}

/* Compute the layout of a segment; ring_bytes 0 means no rings. */
static enum weir_status plan(const struct weir_segment_params *params, bool with_rings,
                             struct weir_segment_header *ret_header)
{
    uint32_t n_words = params->n_words ? params->n_words : DEFAULT_WORDS;
    uint32_t ring_bytes = params->ring_bytes ? params->ring_bytes : DEFAULT_RING_BYTES;
    uint64_t arena_bytes = params->arena_bytes ? params->arena_bytes : DEFAULT_ARENA_BYTES;
    if (n_words > WEIR_SEGMENT_MAX_WORDS || arena_bytes > WEIR_SEGMENT_MAX_ARENA ||
        ring_bytes < WEIR_RING_MIN_BYTES || ring_bytes > WEIR_RING_MAX_BYTES ||
        !is_power_of_two(ring_bytes)) {
        return WEIR_ERR_INVALID;
    }
    struct weir_segment_header header = {
        .magic = WEIR_SEGMENT_MAGIC,
        .version = WEIR_SEGMENT_VERSION,
        .n_words = n_words,
        .ring_bytes = with_rings ? ring_bytes : 0,
        .words_offset = WEIR_SEGMENT_PAGE_BYTES,
        .arena_bytes = round_to_page(arena_bytes),
    };
    header.to_host_offset = header.words_offset + round_to_page((uint64_t)n_words * 4);
    header.to_guest_offset = header.to_host_offset + header.ring_bytes;
    header.arena_offset = header.to_guest_offset + header.ring_bytes;
    header.segment_bytes = header.arena_offset + header.arena_bytes;
    if (with_rings) {
        header.stats_offset = header.segment_bytes;
        header.segment_bytes += round_to_page(sizeof(struct weir_stats_page));
    }
    *ret_header = header;
    return WEIR_OK;
}

static struct weir_segment_view view_of(void *base, const struct weir_segment_header *header)
{
    uint8_t *bytes = base;
    return (struct weir_segment_view){
        .base = base,
        .bytes = header->segment_bytes,
        .header = base,
        .words = (uint32_t *)(void *)(bytes + header->words_offset),
        .n_words = header->n_words,
        .ring_bytes = header->ring_bytes,
        .to_host = bytes + header->to_host_offset,
        .to_guest = bytes + header->to_guest_offset,
        .arena = bytes + header->arena_offset,
        .arena_bytes = header->arena_bytes,
        .stats = header->stats_offset
                     ? (struct weir_stats_page *)(void *)(bytes + header->stats_offset)
                     : NULL,
    };
}

static enum weir_status map_memory(int fd, uint64_t offset, uint64_t bytes, void **ret_base)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED | MAP_NORESERVE;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);
    WEIR_FAIL_IF(base == MAP_FAILED, WEIR_ERR_NO_MEMORY);
    *ret_base = base;
    return WEIR_OK;
}

enum weir_status weir_segment_create_private(const struct weir_segment_params *params,
                                             struct weir_segment_view *ret_view)
{
    struct weir_segment_header header;
    void *base;
    WEIR_TRY(plan(params, false, &header));
    WEIR_TRY(map_memory(-1, 0, header.segment_bytes, &base));
    memcpy(base, &header, sizeof header);
    *ret_view = view_of(base, &header);
    return WEIR_OK;
}

enum weir_status weir_segment_create(const struct weir_segment_params *params, int *ret_fd,
                                     struct weir_segment_view *ret_view)
{
    struct weir_segment_header header;
    WEIR_TRY(plan(params, true, &header));
    int saved_errno = errno;
    enum weir_status status;
    void *base;
    int fd = weir_memfd_sealed("weir-segment", header.segment_bytes);
    if (fd < 0) {
        status = errno == ENOMEM ? WEIR_ERR_NO_MEMORY : WEIR_ERR_IO;
        goto out;
    }
    status = map_memory(fd, 0, header.segment_bytes, &base);
    if (status != WEIR_OK) {
        goto out;
    }
    memcpy(base, &header, sizeof header);
    *ret_view = view_of(base, &header);
    *ret_fd = fd;
    fd = -1;
out:
    weir_fd_close(fd);
    errno = saved_errno;
    return status;
}

/* Does a part lie completely behind the header page and inside the segment, at a page boundary? */
static bool part_fits(const struct weir_segment_header *header, uint64_t offset, uint64_t bytes)
{
    return offset >= WEIR_SEGMENT_PAGE_BYTES && offset % WEIR_SEGMENT_PAGE_BYTES == 0 &&
           offset <= header->segment_bytes && bytes <= header->segment_bytes - offset;
}

static bool geometry_is_sound(const struct weir_segment_header *header, uint64_t bytes)
{
    return header->magic == WEIR_SEGMENT_MAGIC && header->version == WEIR_SEGMENT_VERSION &&
           header->segment_bytes == bytes && header->n_words > 0 &&
           header->n_words <= WEIR_SEGMENT_MAX_WORDS && header->ring_bytes >= WEIR_RING_MIN_BYTES &&
           header->ring_bytes <= WEIR_RING_MAX_BYTES && is_power_of_two(header->ring_bytes) &&
           header->arena_bytes <= WEIR_SEGMENT_MAX_ARENA &&
           part_fits(header, header->words_offset, (uint64_t)header->n_words * 4) &&
           part_fits(header, header->to_host_offset, header->ring_bytes) &&
           part_fits(header, header->to_guest_offset, header->ring_bytes) &&
           part_fits(header, header->arena_offset, header->arena_bytes) &&
           (header->stats_offset == 0 ||
            part_fits(header, header->stats_offset, sizeof(struct weir_stats_page)));
}

static enum weir_status map_checked(int fd, uint64_t offset, uint64_t bytes,
                                    struct weir_segment_view *ret_view)
{
    int saved_errno = errno;
    void *base;
    errno = saved_errno;
    WEIR_TRY(map_memory(fd, offset, bytes, &base));
    struct weir_segment_header header; /* copied once, then checked */
    memcpy(&header, base, sizeof header);
    if (!geometry_is_sound(&header, bytes)) {
        munmap(base, bytes);
        return WEIR_ERR_PEER;
    }
    *ret_view = view_of(base, &header);
    return WEIR_OK;
}

enum weir_status weir_segment_map(int fd, uint64_t expected_bytes,
                                  struct weir_segment_view *ret_view)
{
    int saved_errno = errno;
    int seals = fcntl(fd, F_GET_SEALS);
    off_t size = lseek(fd, 0, SEEK_END);
    errno = saved_errno;
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || size < 0 || (uint64_t)size < expected_bytes ||
        expected_bytes < WEIR_SEGMENT_PAGE_BYTES) {
        return WEIR_ERR_PEER;
    }
    return map_checked(fd, 0, expected_bytes, ret_view);
}

enum weir_status weir_segment_map_at(int fd, uint64_t offset, uint64_t expected_bytes,
                                     struct weir_segment_view *ret_view)
{
    WEIR_FAIL_IF(expected_bytes < WEIR_SEGMENT_PAGE_BYTES, WEIR_ERR_PEER);
    return map_checked(fd, offset, expected_bytes, ret_view);
}

/* ---------------------------------------------------------------- inside another file */

static enum weir_status plan_in_units(const struct weir_segment_params *params, uint64_t unit,
                                      struct weir_segment_header *ret_header)
{
    WEIR_TRY(plan(params, true, ret_header));
    ret_header->segment_bytes = (ret_header->segment_bytes + unit - 1) / unit * unit;
    return WEIR_OK;
}

uint64_t weir_segment_bytes(const struct weir_segment_params *params, uint64_t unit)
{
    struct weir_segment_header header;
    return plan_in_units(params, unit, &header) == WEIR_OK ? header.segment_bytes : 0;
}

enum weir_status weir_segment_create_at(const struct weir_segment_params *params, int fd,
                                        uint64_t offset, uint64_t unit,
                                        struct weir_segment_view *ret_view)
{
    struct weir_segment_header header;
    void *base;
    WEIR_TRY(plan_in_units(params, unit, &header));
    WEIR_TRY(map_memory(fd, offset, header.segment_bytes, &base));
    memcpy(base, &header, sizeof header);
    *ret_view = view_of(base, &header);
    return WEIR_OK;
}

void weir_segment_unmap(struct weir_segment_view *view)
{
    if (view->base) {
        munmap(view->base, view->bytes);
    }
    *view = (struct weir_segment_view){0};
}

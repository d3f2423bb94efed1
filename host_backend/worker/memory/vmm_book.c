#include "host_backend/worker/memory/vmm_book.h"

#include <stdlib.h>
#include <string.h>

#define READ_ONLY 1u /* CU_MEM_ACCESS_FLAGS_PROT_READ */

/* Both kinds of entry begin with base and bytes. */
struct entry {
    uint64_t base, bytes;
};
_Static_assert(offsetof(struct weir_vmm_space, bytes) == offsetof(struct entry, bytes), "alike");
_Static_assert(offsetof(struct weir_session_vmm_map, bytes) == offsetof(struct entry, bytes),
               "alike");

static const struct entry *entry_at(const void *array, size_t stride, size_t i)
{
    return (const struct entry *)(const void *)((const char *)array + i * stride);
}

/* The number of entries whose base is at most address. */
static size_t upper(const void *array, size_t stride, size_t n, uint64_t address)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (entry_at(array, stride, middle)->base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool overlaps(const void *array, size_t stride, size_t n, uint64_t base, uint64_t bytes)
{
    size_t at = upper(array, stride, n, base + bytes - 1);
    const struct entry *before = at > 0 ? entry_at(array, stride, at - 1) : NULL;

    return before && before->base + before->bytes > base;
}

/*
 * Insert a copy of an entry in the order of bases.
 * @return the array; NULL: no memory, the array is unchanged
 */
static void *insert(void *array, size_t stride, size_t *n, size_t *room, const void *entry)
{
    size_t more = *room != 0 ? *room * 2 : 16;

    if (*n == *room) {
        void *bigger = realloc(array, more * stride);

        WEIR_FAIL_IF(!bigger, NULL);
        array = bigger;
        *room = more;
    }
    char *at =
        (char *)array + upper(array, stride, *n, ((const struct entry *)entry)->base) * stride;
    memmove(at + stride, at, (size_t)((char *)array + *n * stride - at));
    memcpy(at, entry, stride);
    ++*n;
    return array;
}

enum weir_status weir_vmm_space_add(struct weir_vmm_book *book, struct weir_vmm_space space)
{
    WEIR_FAIL_IF(space.bytes == 0 || space.base + space.bytes < space.base, WEIR_ERR_INVALID);
    WEIR_FAIL_IF(overlaps(book->spaces, sizeof space, book->n_spaces, space.base, space.bytes),
                 WEIR_ERR_EXISTS);
    WEIR_FAIL_IF(book->n_spaces >= WEIR_VMM_SPACES_MAX, WEIR_ERR_QUOTA);
    void *array = insert(book->spaces, sizeof space, &book->n_spaces, &book->spaces_room, &space);
    book->spaces = array ? array : book->spaces;
    return array ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

enum weir_status weir_vmm_space_remove(struct weir_vmm_book *book, uint64_t base,
                                       struct weir_vmm_space *ret_space)
{
    size_t at = upper(book->spaces, sizeof *book->spaces, book->n_spaces, base);

    WEIR_FAIL_IF(at == 0 || book->spaces[at - 1].base != base, WEIR_ERR_NOT_FOUND);
    at--;
    WEIR_FAIL_IF(!weir_vmm_space_is_empty(book, &book->spaces[at]), WEIR_ERR_EXISTS);
    *ret_space = book->spaces[at];
    book->n_spaces--;
    memmove(book->spaces + at, book->spaces + at + 1, (book->n_spaces - at) * sizeof *book->spaces);
    return WEIR_OK;
}

struct weir_vmm_space *weir_vmm_space_of(const struct weir_vmm_book *book, uint64_t base,
                                         uint64_t bytes)
{
    size_t at = upper(book->spaces, sizeof *book->spaces, book->n_spaces, base);
    struct weir_vmm_space *space = at > 0 ? &book->spaces[at - 1] : NULL;
    bool in =
        space && base - space->base < space->bytes && bytes <= space->bytes - (base - space->base);

    return in ? space : NULL;
}

bool weir_vmm_space_is_empty(const struct weir_vmm_book *book, const struct weir_vmm_space *space)
{
    return !overlaps(book->maps, sizeof *book->maps, book->n_maps, space->base, space->bytes);
}

enum weir_status weir_vmm_map_add(struct weir_vmm_book *book, struct weir_session_vmm_map map)
{
    if (map.bytes == 0 || map.base + map.bytes < map.base ||
        !weir_vmm_space_of(book, map.base, map.bytes) ||
        overlaps(book->maps, sizeof map, book->n_maps, map.base, map.bytes)) {
        return WEIR_ERR_INVALID;
    }
    WEIR_FAIL_IF(book->n_maps >= WEIR_VMM_MAPS_MAX, WEIR_ERR_QUOTA);
    void *array = insert(book->maps, sizeof map, &book->n_maps, &book->maps_room, &map);
    WEIR_FAIL_IF(!array, WEIR_ERR_NO_MEMORY);
    book->maps = array;
    book->n_read_only += map.access == READ_ONLY;
    return WEIR_OK;
}

size_t weir_vmm_maps_of(const struct weir_vmm_book *book, uint64_t base, uint64_t bytes,
                        size_t *ret_first)
{
    size_t first = upper(book->maps, sizeof *book->maps, book->n_maps, base);
    size_t n = 0;
    uint64_t at = base, end = base + bytes;

    if (first == 0 || bytes == 0 || end < base) {
        return 0;
    }
    first--;
    while (at < end) {
        if (first + n >= book->n_maps || book->maps[first + n].base != at) {
            return 0;
        }
        at += book->maps[first + n].bytes;
        n++;
    }
    *ret_first = first;
    return at == end ? n : 0;
}

void weir_vmm_maps_remove(struct weir_vmm_book *book, size_t first, size_t n)
{
    if (n == 0) {
        return; /* the array may not exist */
    }
    for (size_t i = first; i < first + n; i++) {
        book->n_read_only -= book->maps[i].access == READ_ONLY;
    }
    book->n_maps -= n;
    memmove(book->maps + first, book->maps + first + n,
            (book->n_maps - first) * sizeof *book->maps);
}

void weir_vmm_map_set_access(struct weir_vmm_book *book, size_t at, uint32_t access)
{
    book->n_read_only -= book->maps[at].access == READ_ONLY;
    book->n_read_only += access == READ_ONLY;
    book->maps[at].access = access;
}

bool weir_vmm_touches_read_only(const struct weir_vmm_book *book, uint64_t base, uint64_t bytes)
{
    if (book->n_read_only == 0 || bytes == 0) {
        return false;
    }
    size_t at = upper(book->maps, sizeof *book->maps, book->n_maps, base + bytes - 1);
    for (; at > 0 && book->maps[at - 1].base + book->maps[at - 1].bytes > base; at--) {
        if (book->maps[at - 1].access == READ_ONLY) {
            return true;
        }
    }
    return false;
}

void weir_vmm_book_finish(struct weir_vmm_book *book)
{
    free(book->spaces);
    free(book->maps);
    *book = (struct weir_vmm_book){0};
}

/* Address ranges inside a tenant's window. There are few ranges, since chunks are large, so a
 * sorted array is enough. */
#include "host_backend/worker/state/window.h"

#include "base/grow.h"
#include <stdlib.h>
#include <string.h>

static enum weir_status insert(struct weir_window *w, size_t at, struct weir_extent extent)
{
    WEIR_FAIL_IF(!WEIR_GROW(w->free_extents, w->n, w->room), WEIR_ERR_NO_MEMORY);
    memmove(w->free_extents + at + 1, w->free_extents + at, (w->n - at) * sizeof extent);
    w->free_extents[at] = extent;
    w->n++;
    return WEIR_OK;
}

static void erase(struct weir_window *w, size_t at)
{
    w->n--;
    memmove(w->free_extents + at, w->free_extents + at + 1, (w->n - at) * sizeof *w->free_extents);
}

enum weir_status weir_window_init(struct weir_window *window, uint64_t base, uint64_t bytes)
{
    WEIR_FAIL_IF(bytes == 0 || base + bytes < base, WEIR_ERR_INVALID);
    *window = (struct weir_window){.base = base, .bytes = bytes};
    return insert(window, 0, (struct weir_extent){base, bytes});
}

void weir_window_finish(struct weir_window *window)
{
    free(window->free_extents);
    *window = (struct weir_window){0};
}

/* Remove [base, base + bytes) from the free extent at index `at`. */
static enum weir_status cut(struct weir_window *w, size_t at, uint64_t base, uint64_t bytes)
{
    struct weir_extent e = w->free_extents[at];
    struct weir_extent before = {e.base, base - e.base};
    struct weir_extent after = {base + bytes, e.base + e.bytes - (base + bytes)};

    if (before.bytes != 0 && after.bytes != 0) {
        WEIR_TRY(insert(w, at + 1, after));
        w->free_extents[at] = before;
    } else if (before.bytes != 0 || after.bytes != 0) {
        w->free_extents[at] = before.bytes != 0 ? before : after;
    } else {
        erase(w, at);
    }
    return WEIR_OK;
}

enum weir_status weir_window_take(struct weir_window *window, uint64_t bytes, uint64_t alignment,
                                  uint64_t *ret_base)
{
    if (bytes == 0 || alignment == 0 || (alignment & (alignment - 1)) != 0 ||
        (bytes & (alignment - 1)) != 0) {
        return WEIR_ERR_INVALID;
    }
    for (size_t i = 0; i < window->n; i++) {
        struct weir_extent e = window->free_extents[i];
        uint64_t base = (e.base + alignment - 1) & ~(alignment - 1);

        if (base >= e.base && base - e.base <= e.bytes && e.bytes - (base - e.base) >= bytes) {
            enum weir_status status = cut(window, i, base, bytes);

            if (status == WEIR_OK) {
                *ret_base = base;
            }
            return status;
        }
    }
    return WEIR_ERR_QUOTA;
}

enum weir_status weir_window_take_at(struct weir_window *window, uint64_t base, uint64_t bytes)
{
    WEIR_FAIL_IF(bytes == 0 || base + bytes < base, WEIR_ERR_INVALID);
    for (size_t i = 0; i < window->n; i++) {
        struct weir_extent e = window->free_extents[i];

        if (base >= e.base && base + bytes <= e.base + e.bytes) {
            return cut(window, i, base, bytes);
        }
    }
    return WEIR_ERR_EXISTS;
}

enum weir_status weir_window_give(struct weir_window *window, uint64_t base, uint64_t bytes)
{
    uint64_t end = base + bytes;
    size_t at = 0;
    bool joins_before, joins_after;

    if (bytes == 0 || end < base || base < window->base || end > window->base + window->bytes) {
        return WEIR_ERR_INVALID;
    }
    while (at < window->n && window->free_extents[at].base < base) {
        at++;
    }
    if ((at > 0 && window->free_extents[at - 1].base + window->free_extents[at - 1].bytes > base) ||
        (at < window->n && window->free_extents[at].base < end)) {
        return WEIR_ERR_INVALID;
    }
    joins_before =
        at > 0 && window->free_extents[at - 1].base + window->free_extents[at - 1].bytes == base;
    joins_after = at < window->n && window->free_extents[at].base == end;
    if (joins_before && joins_after) {
        window->free_extents[at - 1].bytes += bytes + window->free_extents[at].bytes;
        erase(window, at);
    } else if (joins_before) {
        window->free_extents[at - 1].bytes += bytes;
    } else if (joins_after) {
        window->free_extents[at].base = base;
        window->free_extents[at].bytes += bytes;
    } else {
        return insert(window, at, (struct weir_extent){base, bytes});
    }
    return WEIR_OK;
}

uint64_t weir_window_free_bytes(const struct weir_window *window)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < window->n; i++) {
        sum += window->free_extents[i].bytes;
    }
    return sum;
}

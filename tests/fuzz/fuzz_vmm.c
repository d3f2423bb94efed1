/*
 * Any sequence of reservations and mappings, in a space of 64 units: the book must agree with a
 * model that has one entry a unit.
 */
#include "host_backend/worker/memory/vmm_book.h"

#include <stdlib.h>
#include <string.h>

#define UNITS     64
#define UNIT      (UINT64_C(2) << 20)
#define BASE      (UINT64_C(1) << 40)
#define READ_ONLY 1u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Which reservation and which mapping a unit belongs to, by the unit it begins at + 1. */
static uint8_t space_of[UNITS], map_of[UNITS], access_of[UNITS];
static struct weir_vmm_book book;

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static bool all(const uint8_t *units, unsigned first, unsigned n, uint8_t want)
{
    for (unsigned i = first; i < first + n; i++) {
        if (units[i] != want) {
            return false;
        }
    }
    return true;
}

static void reserve(unsigned first, unsigned n)
{
    struct weir_vmm_space space = {.base = BASE + first * UNIT, .bytes = n * UNIT};
    bool good = n != 0 && all(space_of, first, n, 0);

    require((weir_vmm_space_add(&book, space) == WEIR_OK) == good);
    if (good) {
        memset(space_of + first, (int)first + 1, n);
    }
}

static void unreserve(unsigned first)
{
    struct weir_vmm_space space;
    bool good = space_of[first] == first + 1;
    unsigned n = 0;

    while (good && first + n < UNITS && space_of[first + n] == first + 1) {
        n++;
    }
    good = good && all(map_of, first, n, 0);
    require((weir_vmm_space_remove(&book, BASE + first * UNIT, &space) == WEIR_OK) == good);
    if (good) {
        require(space.bytes == n * UNIT);
        memset(space_of + first, 0, n);
    }
}

static void map(unsigned first, unsigned n)
{
    struct weir_session_vmm_map entry = {.base = BASE + first * UNIT, .bytes = n * UNIT};
    bool good = n != 0 && space_of[first] != 0 && all(space_of, first, n, space_of[first]) &&
                all(map_of, first, n, 0);

    require((weir_vmm_map_add(&book, entry) == WEIR_OK) == good);
    if (good) {
        memset(map_of + first, (int)first + 1, n);
        memset(access_of + first, 0, n);
    }
}

/* Do whole mappings make up the range? */
static bool whole(unsigned first, unsigned n)
{
    if (n == 0 || map_of[first] != first + 1) {
        return false;
    }
    for (unsigned i = first; i < first + n; i++) {
        if (map_of[i] == 0) {
            return false;
        }
    }
    return first + n == UNITS || map_of[first + n] == 0 || map_of[first + n] == first + n + 1;
}

static void change(unsigned first, unsigned n, uint8_t access, bool unmap)
{
    size_t at = 0, count = weir_vmm_maps_of(&book, BASE + first * UNIT, n * UNIT, &at);

    require((count != 0) == whole(first, n));
    if (count == 0) {
        return;
    }
    if (unmap) {
        weir_vmm_maps_remove(&book, at, count);
        memset(map_of + first, 0, n);
        access = 0;
    }
    for (size_t i = at; !unmap && i < at + count; i++) {
        weir_vmm_map_set_access(&book, i, access);
    }
    memset(access_of + first, access, n);
}

static void look(unsigned first, unsigned n)
{
    bool touches = false;

    for (unsigned i = first; i < first + n; i++) {
        touches |= map_of[i] != 0 && access_of[i] == READ_ONLY;
    }
    require(weir_vmm_touches_read_only(&book, BASE + first * UNIT, n * UNIT) == touches);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    memset(space_of, 0, sizeof space_of);
    memset(map_of, 0, sizeof map_of);
    memset(access_of, 0, sizeof access_of);
    for (size_t i = 0; i + 3 <= bytes; i += 3) {
        unsigned first = data[i + 1] % UNITS, n = data[i + 2] % (UNITS - first + 1);

        switch (data[i] % 6) {
        case 0:
            reserve(first, n);
            break;
        case 1:
            unreserve(first);
            break;
        case 2:
            map(first, n);
            break;
        case 3:
            change(first, n, data[i] / 6 % 3, false);
            break;
        case 4:
            change(first, n, 0, true);
            break;
        default:
            look(first, n);
        }
    }
    weir_vmm_book_finish(&book);
    return 0;
}

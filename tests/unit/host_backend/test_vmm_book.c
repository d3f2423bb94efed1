/* A session's reservations and mappings: the checks, and random work against a flat array. */
#include "host_backend/worker/memory/ranges.h"
#include "host_backend/worker/memory/vmm_book.h"

#include "../../lib/tl_cmocka.h"
#include <string.h>

#define BASE  UINT64_C(0x120000000000)
#define UNIT  UINT64_C(0x200000)
#define UNITS 64

static struct weir_vmm_space space(unsigned at, unsigned n)
{
    return (struct weir_vmm_space){.base = BASE + at * UNIT, .bytes = n * UNIT, .room = n * UNIT};
}

static struct weir_session_vmm_map map(unsigned at, unsigned n)
{
    return (struct weir_session_vmm_map){.base = BASE + at * UNIT, .bytes = n * UNIT};
}

static void map_lies_in_one_reservation(void **state)
{
    struct weir_vmm_book b = {0};

    (void)state;
    assert_int_equal(weir_vmm_map_add(&b, map(0, 1)), WEIR_ERR_INVALID);
    assert_int_equal(weir_vmm_space_add(&b, space(0, 4)), WEIR_OK);
    assert_int_equal(weir_vmm_space_add(&b, space(4, 4)), WEIR_OK);
    assert_int_equal(weir_vmm_space_add(&b, space(3, 2)), WEIR_ERR_EXISTS);
    assert_int_equal(weir_vmm_map_add(&b, map(3, 2)), WEIR_ERR_INVALID); /* over a border */
    assert_int_equal(weir_vmm_map_add(&b, map(7, 2)), WEIR_ERR_INVALID);
    assert_int_equal(weir_vmm_map_add(&b, map(2, 2)), WEIR_OK);
    assert_int_equal(weir_vmm_map_add(&b, map(1, 2)), WEIR_ERR_INVALID); /* overlaps */
    assert_int_equal(weir_vmm_map_add(&b, (struct weir_session_vmm_map){BASE, 0, NULL, 0}),
                     WEIR_ERR_INVALID);
    assert_int_equal(
        weir_vmm_map_add(&b, (struct weir_session_vmm_map){BASE, ~UINT64_C(0), NULL, 0}),
        WEIR_ERR_INVALID);
    weir_vmm_book_finish(&b);
}

static void reservation_stays_while_something_is_mapped(void **state)
{
    struct weir_vmm_book b = {0};
    struct weir_vmm_space gone;
    size_t first = 9;

    (void)state;
    assert_int_equal(weir_vmm_space_add(&b, space(8, 4)), WEIR_OK);
    assert_int_equal(weir_vmm_map_add(&b, map(11, 1)), WEIR_OK);
    assert_int_equal(weir_vmm_space_remove(&b, BASE + 8 * UNIT, &gone), WEIR_ERR_EXISTS);
    assert_int_equal(weir_vmm_space_remove(&b, BASE + 9 * UNIT, &gone), WEIR_ERR_NOT_FOUND);
    assert_int_equal(weir_vmm_maps_of(&b, BASE + 11 * UNIT, UNIT, &first), 1);
    weir_vmm_maps_remove(&b, first, 1);
    assert_int_equal(weir_vmm_space_remove(&b, BASE + 8 * UNIT, &gone), WEIR_OK);
    assert_true(gone.base == BASE + 8 * UNIT && gone.bytes == 4 * UNIT);
    assert_int_equal(b.n_spaces, 0);
    weir_vmm_book_finish(&b);
}

static void ranges_of_whole_mappings_only(void **state)
{
    struct weir_vmm_book b = {0};
    size_t first = 9;

    (void)state;
    assert_int_equal(weir_vmm_space_add(&b, space(0, UNITS)), WEIR_OK);
    assert_int_equal(weir_vmm_map_add(&b, map(2, 2)), WEIR_OK);
    assert_int_equal(weir_vmm_map_add(&b, map(4, 1)), WEIR_OK);
    assert_int_equal(weir_vmm_map_add(&b, map(6, 1)), WEIR_OK);
    assert_int_equal(weir_vmm_maps_of(&b, BASE + 2 * UNIT, 3 * UNIT, &first), 2);
    assert_int_equal(first, 0);
    assert_int_equal(weir_vmm_maps_of(&b, BASE + 2 * UNIT, UNIT, &first), 0);
    assert_int_equal(weir_vmm_maps_of(&b, BASE + 3 * UNIT, UNIT, &first), 0);
    assert_int_equal(weir_vmm_maps_of(&b, BASE + 2 * UNIT, 4 * UNIT, &first), 0);
    assert_int_equal(weir_vmm_maps_of(&b, BASE + 4 * UNIT, 3 * UNIT, &first), 0); /* a gap */
    assert_int_equal(weir_vmm_maps_of(&b, BASE + 4 * UNIT, 0, &first), 0);
    assert_int_equal(weir_vmm_maps_of(&b, BASE + 4 * UNIT, ~UINT64_C(0), &first), 0);
    weir_vmm_book_finish(&b);
}

static void read_only_is_seen_where_it_is(void **state)
{
    struct weir_vmm_book b = {0};

    (void)state;
    assert_int_equal(weir_vmm_space_add(&b, space(0, UNITS)), WEIR_OK);
    assert_int_equal(weir_vmm_map_add(&b, map(1, 1)), WEIR_OK);
    assert_int_equal(weir_vmm_map_add(&b, map(2, 1)), WEIR_OK);
    assert_false(weir_vmm_touches_read_only(&b, BASE, UNITS * UNIT));
    weir_vmm_map_set_access(&b, 1, 1);
    assert_true(weir_vmm_touches_read_only(&b, BASE, UNITS * UNIT));
    assert_true(weir_vmm_touches_read_only(&b, BASE + 2 * UNIT - 1, 2));
    assert_false(weir_vmm_touches_read_only(&b, BASE + UNIT, UNIT));
    assert_false(weir_vmm_touches_read_only(&b, BASE + 3 * UNIT, UNIT));
    weir_vmm_map_set_access(&b, 1, 3);
    assert_int_equal(b.n_read_only, 0);
    weir_vmm_book_finish(&b);
}

static void random_mappings_as_a_flat_array_has_them(void **state)
{
    struct weir_vmm_book b = {0};
    unsigned owner[UNITS] = {0}; /* number of the mapping at each unit; 0: none */
    uint32_t seed = 7;

    (void)state;
    assert_int_equal(weir_vmm_space_add(&b, space(0, UNITS)), WEIR_OK);
    for (unsigned turn = 1; turn < 5000; turn++) {
        seed = seed * 1664525u + 1013904223u;
        unsigned at = (seed >> 8) % UNITS, n = 1 + (seed >> 20) % 4;
        bool free_there = at + n <= UNITS, whole = at + n <= UNITS;
        size_t first;

        for (unsigned i = at; i < at + n && i < UNITS; i++) {
            free_there = free_there && owner[i] == 0;
            whole = whole && owner[i] != 0;
        }
        if ((seed >> 28) % 2 == 0) {
            assert_int_equal(weir_vmm_map_add(&b, map(at, n)) == WEIR_OK, free_there);
            for (unsigned i = at; free_there && i < at + n; i++) {
                owner[i] = turn;
            }
            continue;
        }
        whole = whole && (at == 0 || owner[at - 1] != owner[at]) &&
                (at + n == UNITS || owner[at + n] != owner[at + n - 1]);
        size_t found = weir_vmm_maps_of(&b, BASE + at * UNIT, n * UNIT, &first);
        assert_int_equal(found != 0, whole);
        if (found != 0) {
            weir_vmm_maps_remove(&b, first, found);
            memset(owner + at, 0, n * sizeof owner[0]);
        }
    }
    weir_vmm_book_finish(&b);
}

static void range_is_removed_where_it_begins(void **state)
{
    struct weir_range_set set = {0};
    int mine, other;

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(weir_host_range_add(&set, BASE + i * UNIT, UNIT, &mine), WEIR_OK);
    }
    assert_int_equal(weir_host_range_add(&set, BASE + 3 * UNIT, UNIT, &other), WEIR_OK);
    weir_host_range_remove_at(&set, BASE + 3 * UNIT, &mine);
    assert_true(weir_host_range_covers(&set, BASE, 8 * UNIT)); /* the other's is there */
    weir_host_range_remove_at(&set, BASE + 3 * UNIT, &other);
    assert_false(weir_host_range_covers(&set, BASE, 8 * UNIT));
    weir_host_range_remove_at(&set, BASE + 3 * UNIT, &mine); /* nothing left to remove */
    assert_int_equal(set.n, 7);
    weir_host_range_finish(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_lies_in_one_reservation),
        cmocka_unit_test(reservation_stays_while_something_is_mapped),
        cmocka_unit_test(ranges_of_whole_mappings_only),
        cmocka_unit_test(read_only_is_seen_where_it_is),
        cmocka_unit_test(random_mappings_as_a_flat_array_has_them),
        cmocka_unit_test(range_is_removed_where_it_begins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

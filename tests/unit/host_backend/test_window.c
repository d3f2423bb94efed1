/* Windows, ranges and the map of the driver's handles against simple models. */
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/memory/ranges.h"
#include "host_backend/worker/state/native_map.h"
#include "host_backend/worker/state/window.h"

#include "../../lib/tl_cmocka.h"
#include <string.h>

#define BASE  UINT64_C(0x200000000000)
#define UNIT  UINT64_C(0x200000)
#define UNITS 64

static void take_and_give_back_leaves_one_extent(void **state)
{
    struct weir_window w;
    uint64_t a, b, c;

    (void)state;
    assert_int_equal(weir_window_init(&w, BASE, UNITS * UNIT), WEIR_OK);
    assert_int_equal(weir_window_take(&w, UNIT, UNIT, &a), WEIR_OK);
    assert_int_equal(weir_window_take(&w, 4 * UNIT, 4 * UNIT, &b), WEIR_OK);
    assert_int_equal(weir_window_take(&w, UNIT, UNIT, &c), WEIR_OK);
    assert_true(a == BASE && b == BASE + 4 * UNIT && c == BASE + UNIT);
    assert_int_equal(weir_window_take_at(&w, BASE + 20 * UNIT, UNIT), WEIR_OK);
    assert_int_equal(weir_window_take_at(&w, BASE + 19 * UNIT, 2 * UNIT), WEIR_ERR_EXISTS);
    assert_int_equal(weir_window_give(&w, b, 4 * UNIT), WEIR_OK);
    assert_int_equal(weir_window_give(&w, b, UNIT), WEIR_ERR_INVALID);
    assert_int_equal(weir_window_give(&w, a, UNIT), WEIR_OK);
    assert_int_equal(weir_window_give(&w, c, UNIT), WEIR_OK);
    assert_int_equal(weir_window_give(&w, BASE + 20 * UNIT, UNIT), WEIR_OK);
    assert_int_equal(w.n, 1);
    assert_true(weir_window_free_bytes(&w) == UNITS * UNIT);
    assert_int_equal(weir_window_give(&w, BASE - UNIT, UNIT), WEIR_ERR_INVALID);
    weir_window_finish(&w);
}

static void take_in_any_order_never_overlaps(void **state)
{
    bool taken[UNITS] = {false};
    uint32_t seed = 1;
    struct weir_window w;

    (void)state;
    assert_int_equal(weir_window_init(&w, BASE, UNITS * UNIT), WEIR_OK);
    for (int i = 0; i < 20000; i++) {
        uint64_t n, at;

        seed = seed * 1664525 + 1013904223;
        n = 1 + (seed >> 8) % 5;
        if ((seed >> 28) % 2 == 0) {
            if (weir_window_take(&w, n * UNIT, UNIT, &at) == WEIR_OK) {
                for (uint64_t k = 0; k < n; k++) {
                    assert_false(taken[(at - BASE) / UNIT + k]);
                    taken[(at - BASE) / UNIT + k] = true;
                }
            }
        } else {
            uint64_t unit = (seed >> 12) % UNITS;
            enum weir_status status = weir_window_give(&w, BASE + unit * UNIT, UNIT);

            assert_int_equal(status == WEIR_OK, taken[unit]);
            taken[unit] = false;
        }
    }
    weir_window_finish(&w);
}

static void covers_joins_neighbours_and_refuses_gaps(void **state)
{
    struct weir_range_set set = {0};
    int a = 0, b = 0;

    (void)state;
    assert_int_equal(weir_host_range_add(&set, 1000, 100, &a), WEIR_OK);
    assert_int_equal(weir_host_range_add(&set, 1100, 100, &b), WEIR_OK);
    assert_int_equal(weir_host_range_add(&set, 1050, 20, &b), WEIR_OK);
    assert_int_equal(weir_host_range_add(&set, 2000, 0, &b), WEIR_ERR_INVALID);
    assert_int_equal(weir_host_range_add(&set, UINT64_MAX, 2, &b), WEIR_ERR_INVALID);
    assert_true(weir_host_range_covers(&set, 1000, 200));
    assert_true(weir_host_range_covers(&set, 1099, 2));
    assert_true(weir_host_range_covers(&set, 1080, 10));
    assert_false(weir_host_range_covers(&set, 999, 2));
    assert_false(weir_host_range_covers(&set, 1199, 2));
    assert_false(weir_host_range_covers(&set, 1000, 0));
    assert_false(weir_host_range_covers(&set, 1000, UINT64_MAX));
    weir_host_range_remove(&set, &b);
    assert_false(weir_host_range_covers(&set, 1000, 101));
    assert_true(weir_host_range_covers(&set, 1000, 100));
    weir_host_range_finish(&set);
}

static void native_map_finds_what_is_in_and_only_that(void **state)
{
    enum { N = 500 };
    static struct weir_object objects[N];
    struct weir_native_map map = {0};
    uint32_t seed = 7;
    bool in[N] = {false};

    (void)state;
    for (size_t i = 0; i < N; i++) {
        objects[i] =
            (struct weir_object){.kind = 1 + i % 3, .native = (void *)(0x1000 + i / 3 * 16)};
    }
    for (int step = 0; step < 20000; step++) {
        size_t i;

        seed = seed * 1664525 + 1013904223;
        i = (seed >> 8) % N;
        if (in[i]) {
            weir_native_remove(&map, &objects[i]);
        } else {
            assert_int_equal(weir_native_add(&map, &objects[i]), WEIR_OK);
        }
        in[i] = !in[i];
        i = (seed >> 16) % N;
        assert_ptr_equal(weir_native_find(&map, objects[i].kind, objects[i].native),
                         in[i] ? &objects[i] : NULL);
    }
    weir_native_finish(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(take_and_give_back_leaves_one_extent),
        cmocka_unit_test(take_in_any_order_never_overlaps),
        cmocka_unit_test(covers_joins_neighbours_and_refuses_gaps),
        cmocka_unit_test(native_map_finds_what_is_in_and_only_that),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

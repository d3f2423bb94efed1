/* The block allocator against a simple model, with its invariants checked at every step. */
#include "guest_lib/range.h"
#include "tests/lib/tl_cmocka.h"
#include <stdlib.h>

static void take_whole_region_then_nothing(void **state)
{
    (void)state;
    struct weir_range_heap heap = {.grain_bytes = 512};
    struct weir_range_region region = {0};
    assert_true(weir_guest_range_add(&heap, &region, 0x10000, 4096));
    struct weir_range_block *all = weir_guest_range_take(&heap, 4096);
    assert_non_null(all);
    assert_int_equal(all->base, 0x10000);
    assert_null(weir_guest_range_take(&heap, 1));
    weir_guest_range_give(&heap, all);
    assert_int_equal(heap.free_bytes, 4096);
    assert_int_equal(region.used_bytes, 0);
    weir_guest_range_remove(&heap, &region);
    assert_int_equal(heap.free_bytes, 0);
    weir_guest_range_finish(&heap);
}

static void take_small_rounds_to_grain(void **state)
{
    (void)state;
    struct weir_range_heap heap = {.grain_bytes = 512};
    struct weir_range_region region = {0};
    assert_true(weir_guest_range_add(&heap, &region, 0, 1 << 20));
    struct weir_range_block *a = weir_guest_range_take(&heap, 1);
    struct weir_range_block *b = weir_guest_range_take(&heap, 513);
    assert_int_equal(a->bytes, 512);
    assert_int_equal(b->bytes, 1024);
    assert_int_equal(b->base % 512, 0);
    assert_null(weir_guest_range_take(&heap, UINT64_MAX - 3));
    weir_guest_range_remove(&heap, &region);
    weir_guest_range_finish(&heap);
}

static void random_takes_and_gives_keep_invariants(void **state)
{
    (void)state;
    enum { SLOTS = 200, STEPS = 20000 };
    struct weir_range_heap heap = {.grain_bytes = 256};
    struct weir_range_region regions[2] = {{0}};
    assert_true(weir_guest_range_add(&heap, &regions[0], 0, 4 << 20));
    assert_true(weir_guest_range_add(&heap, &regions[1], 1ull << 40, 1 << 20));
    struct weir_range_block *slots[SLOTS] = {0};
    unsigned int seed = 1;
    for (int step = 0; step < STEPS; step++) {
        int i = rand_r(&seed) % SLOTS;
        if (slots[i]) {
            weir_guest_range_give(&heap, slots[i]);
            slots[i] = NULL;
        } else {
            slots[i] = weir_guest_range_take(&heap, 1 + (uint64_t)rand_r(&seed) % 60000);
        }
        if (step % 64 == 0) {
            assert_true(weir_guest_range_check(&heap, &regions[0]));
            assert_true(weir_guest_range_check(&heap, &regions[1]));
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i]) {
            weir_guest_range_give(&heap, slots[i]);
        }
    }
    assert_int_equal(heap.free_bytes, (4 << 20) + (1 << 20));
    assert_null(regions[0].first->next);
    weir_guest_range_remove(&heap, &regions[0]);
    weir_guest_range_remove(&heap, &regions[1]);
    weir_guest_range_finish(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(take_whole_region_then_nothing),
        cmocka_unit_test(take_small_rounds_to_grain),
        cmocka_unit_test(random_takes_and_gives_keep_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

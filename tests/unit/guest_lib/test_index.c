/* The index of address ranges against a flat array. */
#include "guest_lib/memory.h"
#include "tests/lib/tl_cmocka.h"
#include <stdlib.h>

static struct weir_mem range(uint64_t base, uint64_t bytes)
{
    return (struct weir_mem){
        .base = base, .bytes = bytes, .kind = WEIR_MEM_DEVICE, .device_base = base};
}

static bool any(const struct weir_mem *mem, void *user)
{
    (void)mem;
    (void)user;
    return true;
}

static void drop(const struct weir_mem *mem)
{
    (void)mem;
}

static int clear(void **state)
{
    (void)state;
    weir_mem_remove_if(any, drop, NULL);
    return 0;
}

static void find_interior_and_edges(void **state)
{
    (void)state;
    struct weir_mem found, mem = range(0x1000, 0x100);
    assert_true(weir_mem_insert(&mem));
    assert_true(weir_mem_find(0x1000, &found));
    assert_true(weir_mem_find(0x10ff, &found));
    assert_false(weir_mem_find(0x1100, &found));
    assert_false(weir_mem_find(0xfff, &found));
}

static void insert_overlapping_is_refused(void **state)
{
    (void)state;
    struct weir_mem mem = range(0x1000, 0x100);
    assert_true(weir_mem_insert(&mem));
    const struct {
        uint64_t base, bytes;
    } bad[] = {{0x1000, 1},    {0x10ff, 0x100},         {0xf00, 0x101},
               {0x0, 0x10000}, {UINT64_MAX - 4, 0x100}, {0x5000, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct weir_mem other = range(bad[i].base, bad[i].bytes);
        if (weir_mem_insert(&other)) {
            fail_msg("row %zu was accepted", i);
        }
    }
    struct weir_mem before = range(0xf00, 0x100), after = range(0x1100, 0x100);
    assert_true(weir_mem_insert(&before));
    assert_true(weir_mem_insert(&after));
}

static void remove_needs_base_and_kind(void **state)
{
    (void)state;
    struct weir_mem found, mem = range(0x1000, 0x100);
    assert_true(weir_mem_insert(&mem));
    assert_false(weir_mem_remove(0x1001, ~0u, &found));
    assert_false(weir_mem_remove(0x1000, 1u << WEIR_MEM_PINNED, &found));
    assert_true(weir_mem_remove(0x1000, 1u << WEIR_MEM_DEVICE, &found));
    assert_false(weir_mem_remove(0x1000, ~0u, &found));
}

static void check_refuses_what_leaves_the_range(void **state)
{
    (void)state;
    struct weir_mem found, mem = range(0x1000, 0x100);
    assert_true(weir_mem_insert(&mem));
    assert_int_equal(weir_mem_check(0x1080, 0x80, &found), CUDA_SUCCESS);
    assert_int_equal(weir_mem_check(0x1080, 0x81, &found), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_mem_check(0x1080, UINT64_MAX, &found), CUDA_ERROR_INVALID_VALUE);
}

static void random_operations_agree_with_model(void **state)
{
    (void)state;
    enum { PLACES = 512 };
    bool model[PLACES] = {false};
    unsigned int seed = 3;
    struct weir_mem found;
    for (int step = 0; step < 20000; step++) {
        unsigned int i = (unsigned int)rand_r(&seed) % PLACES;
        uint64_t base = 0x100000 + i * 0x1000ull;
        if (model[i]) {
            assert_true(weir_mem_remove(base, ~0u, &found));
        } else {
            struct weir_mem mem = range(base, 0x800);
            assert_true(weir_mem_insert(&mem));
        }
        model[i] = !model[i];
        unsigned int j = (unsigned int)rand_r(&seed) % PLACES;
        assert_int_equal(weir_mem_find(0x100000 + j * 0x1000ull + 0x7ff, &found), model[j]);
        assert_false(weir_mem_find(0x100000 + j * 0x1000ull + 0x800, &found));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(find_interior_and_edges, clear),
        cmocka_unit_test_teardown(insert_overlapping_is_refused, clear),
        cmocka_unit_test_teardown(remove_needs_base_and_kind, clear),
        cmocka_unit_test_teardown(check_refuses_what_leaves_the_range, clear),
        cmocka_unit_test_teardown(random_operations_agree_with_model, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

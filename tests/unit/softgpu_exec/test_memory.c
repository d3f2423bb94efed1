/* The memory map: ranges, neighbours, and readers against writers. */
#include "softgpu/memory.h"
#include "tests/lib/tl_cmocka.h"

#include <pthread.h>
#include <string.h>

#define RW (WEIR_SOFT_READ | WEIR_SOFT_WRITE)

static void add_refuses_overlap_and_nonsense(void **state)
{
    (void)state;
    uint64_t before = weir_soft_memory_generation();
    assert_int_equal(weir_soft_memory_add(0x10000, 0x1000, RW), WEIR_OK);
    assert_true(weir_soft_memory_generation() != before);
    assert_int_equal(weir_soft_memory_add(0x10fff, 1, RW), WEIR_ERR_EXISTS);
    assert_int_equal(weir_soft_memory_add(0xf000, 0x1001, RW), WEIR_ERR_EXISTS);
    assert_int_equal(weir_soft_memory_add(0xf000, 0x10000, RW), WEIR_ERR_EXISTS);
    assert_int_equal(weir_soft_memory_add(0x20000, 0, RW), WEIR_ERR_INVALID);
    assert_int_equal(weir_soft_memory_add(0x20000, 1, 0), WEIR_ERR_INVALID);
    assert_int_equal(weir_soft_memory_add(UINT64_MAX, 2, RW), WEIR_ERR_INVALID);
    assert_int_equal(weir_soft_memory_remove(0x10001), WEIR_ERR_NOT_FOUND);
    assert_int_equal(weir_soft_memory_remove(0x10000), WEIR_OK);
    assert_int_equal(weir_soft_memory_remove(0x10000), WEIR_ERR_NOT_FOUND);
}

static void find_knows_the_edges(void **state)
{
    (void)state;
    struct weir_soft_range range = {0};
    assert_false(weir_soft_memory_find(0x10000, &range));
    assert_int_equal(weir_soft_memory_add(0x10000, 0x1000, RW), WEIR_OK);
    assert_int_equal(weir_soft_memory_add(0x11000, 0x1000, WEIR_SOFT_READ), WEIR_OK);
    assert_int_equal(weir_soft_memory_add(0x8000, 0x10, RW), WEIR_OK);
    assert_false(weir_soft_memory_find(0xffff, &range));
    assert_true(weir_soft_memory_find(0x10fff, &range));
    assert_int_equal(range.base, 0x10000);
    assert_true(weir_soft_memory_find(0x11000, &range));
    assert_int_equal(range.access, WEIR_SOFT_READ);
    assert_false(weir_soft_memory_find(0x12000, &range));
    assert_true(weir_soft_memory_covers(0x10ff0, 0x20, WEIR_SOFT_READ));
    assert_false(weir_soft_memory_covers(0x10ff0, 0x20, RW));
    assert_false(weir_soft_memory_covers(0x11ff0, 0x11, WEIR_SOFT_READ));
    assert_false(weir_soft_memory_covers(0x8008, 9, RW));
    assert_false(weir_soft_memory_covers(0x11ff0, UINT64_MAX, WEIR_SOFT_READ));
    assert_int_equal(weir_soft_memory_remove(0x8000), WEIR_OK);
    assert_int_equal(weir_soft_memory_remove(0x11000), WEIR_OK);
    assert_int_equal(weir_soft_memory_remove(0x10000), WEIR_OK);
}

static uint32_t stop;

static void *write_ranges(void *arg)
{
    uint64_t base = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 2000; i++) {
        uint64_t at = base + (uint64_t)(i % 7) * 0x2000;
        if (weir_soft_memory_add(at, 0x1000, RW) != WEIR_OK ||
            weir_soft_memory_remove(at) != WEIR_OK) {
            return strdup("a range of this thread was in the way or gone");
        }
    }
    return NULL;
}

static void *read_ranges(void *arg)
{
    (void)arg;
    struct weir_soft_range range;
    while (__atomic_load_n(&stop, __ATOMIC_RELAXED) == 0) {
        if (!weir_soft_memory_find(0x500800, &range) || range.base != 0x500000 ||
            range.bytes != 0x1000) {
            return strdup("the range that stays was not found");
        }
        for (uint64_t at = 0x100000; at < 0x110000; at += 0x800) {
            if (weir_soft_memory_find(at, &range) &&
                (at < range.base || at - range.base >= range.bytes)) {
                return strdup("a range that does not hold the address");
            }
        }
    }
    return NULL;
}

static void readers_see_whole_maps(void **state)
{
    (void)state;
    pthread_t writers[2];
    pthread_t readers[2];
    assert_int_equal(weir_soft_memory_add(0x500000, 0x1000, RW), WEIR_OK);
    stop = 0;
    for (int t = 0; t < 2; t++) {
        uint64_t base = 0x100000 + (uint64_t)t * 0x1000;
        assert_int_equal(pthread_create(&writers[t], NULL, write_ranges, (void *)(uintptr_t)base),
                         0);
        assert_int_equal(pthread_create(&readers[t], NULL, read_ranges, NULL), 0);
    }
    for (int t = 0; t < 2; t++) {
        void *why;
        pthread_join(writers[t], &why);
        assert_null(why);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int t = 0; t < 2; t++) {
        void *why;
        pthread_join(readers[t], &why);
        assert_null(why);
    }
    assert_int_equal(weir_soft_memory_remove(0x500000), WEIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_refuses_overlap_and_nonsense),
        cmocka_unit_test(find_knows_the_edges),
        cmocka_unit_test(readers_see_whole_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

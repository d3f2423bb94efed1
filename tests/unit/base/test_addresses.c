/* base/addresses.c */
#include "base/addresses.h"

#include "../../lib/tl_cmocka.h"
#include <errno.h>
#include <sys/mman.h>

#define BYTES ((uint64_t)1 << 20)

/* Addresses that were free a moment ago. */
static uint64_t free_range(void)
{
    void *got = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(got != MAP_FAILED);
    munmap(got, BYTES);
    return (uintptr_t)got;
}

static void who_holds_a_range_keeps_it(void **state)
{
    uint64_t base = free_range();

    (void)state;
    assert_true(weir_addresses_hold(base, BYTES));
    assert_false(weir_addresses_hold(base, BYTES));
    assert_int_equal(errno, EEXIST);
    assert_int_equal(mprotect((void *)(uintptr_t)base, BYTES, PROT_READ), 0); /* still mapped */
    munmap((void *)(uintptr_t)base, BYTES);
    assert_true(weir_addresses_hold(base, BYTES));
    munmap((void *)(uintptr_t)base, BYTES);
}

static void what_was_mapped_is_gone_after_a_reclaim(void **state)
{
    uint64_t base = free_range();
    unsigned char *at = mmap((void *)(uintptr_t)base, BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    (void)state;
    assert_ptr_equal(at, (void *)(uintptr_t)base);
    at[0] = 7;
    assert_true(weir_addresses_reclaim(base, BYTES));
    assert_false(weir_addresses_hold(base, BYTES));
    assert_int_equal(mprotect(at, BYTES, PROT_READ), 0);
    assert_int_equal(at[0], 0);
    munmap(at, BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_holds_a_range_keeps_it),
        cmocka_unit_test(what_was_mapped_is_gone_after_a_reclaim),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

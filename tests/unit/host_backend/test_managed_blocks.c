/* Where the bytes of managed memory are, block by block (managed_blocks.h). */
#include "../../lib/tl_cmocka.h"
#include "host_backend/worker/memory/managed_blocks.h"

#define CPU      WEIR_BLOCK_ON_CPU
#define GPU      WEIR_BLOCK_ON_GPU
#define MAPPED   WEIR_BLOCK_MAPPED
#define WRITABLE WEIR_BLOCK_WRITABLE

static struct weir_blocks make(uint32_t n)
{
    struct weir_blocks b;

    assert_true(weir_blocks_init(&b, n));
    return b;
}

/* All that the program has goes to the device. @return how many runs it must unmap */
static uint32_t take_all(struct weir_blocks *b)
{
    uint32_t runs = 0, at = 0, first, n;
    uint8_t state;

    while (weir_blocks_take(b, &at, b->n, &first, &n)) {
        runs++;
    }
    at = 0;
    while (weir_blocks_moving(b, &at, &first, &n, &state)) {
        weir_blocks_moved(b, first, n);
    }
    return runs;
}

static void fresh_blocks_are_right_on_both_sides_and_cost_nothing(void **unused)
{
    (void)unused;
    struct weir_blocks b = make(8);

    assert_int_equal(b.n_cpu, 8);
    assert_int_equal(weir_blocks_fault(&b, 3, false), WEIR_BLOCK_FAULT_MAPS);
    assert_int_equal(take_all(&b), 0);
    assert_int_equal(b.n_cpu, 0);
    assert_int_equal(b.state[3], GPU);
    weir_blocks_finish(&b);
}

static void a_read_leaves_the_device_right_and_a_write_does_not(void **unused)
{
    (void)unused;
    struct weir_blocks b = make(4);

    (void)take_all(&b);
    assert_int_equal(weir_blocks_fault(&b, 1, false), WEIR_BLOCK_FAULT_BRINGS);
    weir_blocks_brought(&b, 1, 1);
    weir_blocks_mapped(&b, 1, 1, false);
    assert_int_equal(b.state[1], CPU | GPU | MAPPED);
    assert_int_equal(weir_blocks_fault(&b, 1, false), WEIR_BLOCK_FAULT_OVER);
    assert_int_equal(weir_blocks_fault(&b, 1, true), WEIR_BLOCK_FAULT_OPENS);
    weir_blocks_mapped(&b, 1, 1, true);
    assert_int_equal(b.state[1], CPU | MAPPED | WRITABLE);
    assert_int_equal(weir_blocks_fault(&b, 1, true), WEIR_BLOCK_FAULT_OVER);
    assert_int_equal(b.n_cpu, 1);
    assert_int_equal(take_all(&b), 1);
    assert_int_equal(b.state[1], GPU);
    weir_blocks_finish(&b);
}

static void faults_wait_while_a_block_moves(void **unused)
{
    (void)unused;
    struct weir_blocks b = make(4);
    uint32_t at = 0, first = 9, n = 9;
    uint8_t state;

    weir_blocks_mapped(&b, 1, 2, true);
    assert_true(weir_blocks_take(&b, &at, 4, &first, &n));
    assert_int_equal(first, 1);
    assert_int_equal(n, 2);
    assert_true(!weir_blocks_take(&b, &at, 4, &first, &n));
    assert_int_equal(weir_blocks_fault(&b, 2, true), WEIR_BLOCK_FAULT_WAITS);
    assert_int_equal(weir_blocks_fault(&b, 3, false), WEIR_BLOCK_FAULT_WAITS);
    at = 0;
    assert_true(weir_blocks_moving(&b, &at, &first, &n, &state));
    assert_int_equal(first, 0); /* was not mapped */
    assert_true(state & GPU);
    assert_true(weir_blocks_moving(&b, &at, &first, &n, &state));
    assert_int_equal(first, 1);
    assert_int_equal(n, 2);
    assert_true(!(state & GPU));
    weir_blocks_finish(&b);
}

static void only_the_part_that_work_reaches_is_taken(void **unused)
{
    (void)unused;
    struct weir_blocks b = make(6);
    uint32_t at = 2, first, n;

    weir_blocks_mapped(&b, 0, 6, true);
    assert_true(weir_blocks_take(&b, &at, 4, &first, &n));
    assert_int_equal(first, 2);
    assert_int_equal(n, 2);
    assert_int_equal(weir_blocks_fault(&b, 0, true), WEIR_BLOCK_FAULT_OVER);
    assert_int_equal(weir_blocks_fault(&b, 4, true), WEIR_BLOCK_FAULT_OVER);
    weir_blocks_finish(&b);
}

static void faults_in_a_row_bring_more_but_only_what_is_alike(void **unused)
{
    (void)unused;
    struct weir_blocks b = make(200);
    uint32_t at = 0, n, faults = 0;

    (void)take_all(&b);
    weir_blocks_brought(&b, 150, 1);
    while (at < 150) {
        n = weir_blocks_row(&b, at);
        assert_true(n >= 1 && n <= WEIR_BLOCKS_MOST);
        weir_blocks_brought(&b, at, n);
        weir_blocks_mapped(&b, at, n, false);
        at += n;
        faults++;
    }
    assert_int_equal(at, 150);
    assert_true(faults < 12);
    assert_int_equal(weir_blocks_row(&b, 190), 1); /* elsewhere */
    weir_blocks_finish(&b);
}

static void merged_blocks_are_right_on_both_sides_until_they_are_not_merged(void **unused)
{
    (void)unused;
    struct weir_blocks b = make(3);

    (void)take_all(&b);
    weir_blocks_brought(&b, 0, 2);
    weir_blocks_merge(&b, 0);
    weir_blocks_merge(&b, 1);
    weir_blocks_mapped(&b, 0, 1, true);
    weir_blocks_mapped(&b, 1, 1, false);
    assert_true(b.state[0] & GPU);
    assert_int_equal(b.n_merged, 2);
    weir_blocks_merged(&b, 0);
    weir_blocks_merged(&b, 1);
    assert_int_equal(b.state[0], CPU | MAPPED | WRITABLE);
    assert_int_equal(b.state[1], CPU | GPU | MAPPED);
    assert_int_equal(b.n_merged, 0);
    assert_int_equal(b.n_cpu, 2);
    weir_blocks_finish(&b);
}

/* Whatever happens in whatever order, the newest bytes are somewhere and the counts are right. */
static void no_order_of_events_loses_the_newest_bytes(void **unused)
{
    (void)unused;
    struct weir_blocks b = make(16);
    uint64_t seed = 88172645463325252u;

    for (int round = 0; round < 20000; round++) {
        uint32_t cpu = 0, block, n;

        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        block = (uint32_t)(seed >> 20) % 16;
        bool write = (seed >> 40 & 1) != 0;
        switch (weir_blocks_fault(&b, block, write)) {
        case WEIR_BLOCK_FAULT_BRINGS:
            n = weir_blocks_row(&b, block);
            assert_true(b.state[block] & GPU);
            weir_blocks_brought(&b, block, n);
            weir_blocks_mapped(&b, block, n, write);
            break;
        case WEIR_BLOCK_FAULT_MAPS:
        case WEIR_BLOCK_FAULT_OPENS:
            weir_blocks_mapped(&b, block, weir_blocks_row(&b, block), write);
            break;
        case WEIR_BLOCK_FAULT_WAITS:
        case WEIR_BLOCK_FAULT_OVER:
            break;
        }
        if ((seed >> 45) % 8 == 0) {
            (void)take_all(&b);
        }
        for (uint32_t i = 0; i < 16; i++) {
            assert_true(b.state[i] & (CPU | GPU));
            assert_true(!(b.state[i] & WRITABLE) || !(b.state[i] & GPU));
            assert_true(!(b.state[i] & MAPPED) || b.state[i] & CPU);
            cpu += (b.state[i] & CPU) != 0;
        }
        assert_int_equal(b.n_cpu, cpu);
    }
    weir_blocks_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_blocks_are_right_on_both_sides_and_cost_nothing),
        cmocka_unit_test(a_read_leaves_the_device_right_and_a_write_does_not),
        cmocka_unit_test(faults_wait_while_a_block_moves),
        cmocka_unit_test(only_the_part_that_work_reaches_is_taken),
        cmocka_unit_test(faults_in_a_row_bring_more_but_only_what_is_alike),
        cmocka_unit_test(merged_blocks_are_right_on_both_sides_until_they_are_not_merged),
        cmocka_unit_test(no_order_of_events_loses_the_newest_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

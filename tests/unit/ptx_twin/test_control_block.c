/* The words that host and kernel share, and the division by multiplication. */
#include "ptx/twin/control_block.h"

#include "tests/lib/tl_cmocka.h"

#include <string.h>

static uint32_t divide(uint64_t n, uint32_t magic, uint32_t shift)
{
    return (uint32_t)(n * magic >> shift);
}

static void args_init_divides_as_c_does(void **state)
{
    static const uint32_t grids[][3] = {
        {1, 1, 1},
        {3, 1, 1},
        {7, 5, 3},
        {1024, 1, 64},
        {65535, 3, 2},
        {2147483647, 1, 1},
        {1, 65535, 32767},
        {715827882, 3, 1},
        {1, 1, 65535},
        {46341, 46340, 1},
        {1u << 30, 1, 1},
        {(1u << 30) + 1, 1, 1},
        {641, 6700417 % 65536, 1},
    };

    (void)state;
    for (size_t g = 0; g < sizeof(grids) / sizeof(grids[0]); g++) {
        const uint32_t *grid = grids[g];
        struct weir_ptx_form_args args;
        uint32_t plane = grid[0] * grid[1];

        assert_true(weir_ptx_form_args_init(grid, &args));
        assert_int_equal(args.total, plane * grid[2]);
        for (uint32_t k = 0; k < 4096; k++) {
            uint32_t x = k * 2654435761u;
            /* Ends of rows and planes, where a quotient that is too small or large would show. */
            uint32_t cases[] = {x % args.total, args.total - 1, x % args.total / grid[0] * grid[0],
                                x % args.total / plane * plane};

            for (uint32_t c = 0; c < 4; c++) {
                uint32_t n = cases[c], before = n ? n - 1 : 0;

                assert_int_equal(divide(n, args.row_magic, args.row_shift), n / grid[0]);
                assert_int_equal(divide(before, args.row_magic, args.row_shift), before / grid[0]);
                assert_int_equal(divide(n, args.plane_magic, args.plane_shift), n / plane);
                assert_int_equal(divide(before, args.plane_magic, args.plane_shift),
                                 before / plane);
            }
        }
    }
}

static void args_init_refuses_too_many_blocks(void **state)
{
    static const uint32_t grids[][3] = {
        {0, 1, 1},
        {1, 0, 1},
        {1, 1, 0},
        {1u << 31, 1, 1},
        {65536, 32768, 1},
        {1u << 30, 1, 2},
        {UINT32_MAX, UINT32_MAX, UINT32_MAX},
    };
    struct weir_ptx_form_args args;

    (void)state;
    for (size_t g = 0; g < sizeof(grids) / sizeof(grids[0]); g++) {
        assert_false(weir_ptx_form_args_init(grids[g], &args));
    }
}

static void args_init_asks_for_everything(void **state)
{
    const uint32_t grid[3] = {4, 3, 2};
    struct weir_ptx_form_args args;

    (void)state;
    assert_true(weir_ptx_form_args_init(grid, &args));
    assert_int_equal(args.end, 24);
    assert_int_equal(args.task_blocks, 1);
    assert_int_equal(args.sm_range, 0);
    assert_int_equal(args.block_limit, 0);
    assert_int_equal(args.nearly_at, WEIR_PTX_NO_NEARLY);
}

static void done_never_passes_the_end(void **state)
{
    struct weir_ptx_control control = {.next = 7};

    (void)state;
    assert_int_equal(weir_ptx_control_done(&control, 10), 7);
    assert_int_equal(weir_ptx_control_done(&control, 5), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(args_init_divides_as_c_does),
        cmocka_unit_test(args_init_refuses_too_many_blocks),
        cmocka_unit_test(args_init_asks_for_everything),
        cmocka_unit_test(done_never_passes_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

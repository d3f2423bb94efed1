#include "ptx/twin/control_block.h"

#include "base/search.h"

/*
 * i / d = (i * m) >> (31 + s) for i < 2^31, with 2^(s-1) < d <= 2^s and m = ceil(2^(31+s) / d):
 * m * d exceeds 2^(31+s) by less than d <= 2^s, so that i times the excess stays below 2^(31+s).
 */
static void magic(uint64_t d, uint32_t *ret_magic, uint32_t *ret_shift)
{
    uint32_t s = 0;

    while (1ull << s < d) {
        s++;
    }
    *ret_magic = (uint32_t)(((1ull << (31 + s)) + d - 1) / d);
    *ret_shift = 31 + s;
}

bool weir_ptx_form_args_init(const uint32_t grid[3], struct weir_ptx_form_args *ret_args)
{
    uint64_t plane = (uint64_t)grid[0] * grid[1];

    if (plane == 0 || plane >= WEIR_PTX_FORM_MAX_BLOCKS || grid[2] == 0 ||
        plane * grid[2] >= WEIR_PTX_FORM_MAX_BLOCKS) {
        return false;
    }
    *ret_args = (struct weir_ptx_form_args){.grid = {grid[0], grid[1], grid[2]},
                                            .total = (uint32_t)(plane * grid[2]),
                                            .end = (uint32_t)(plane * grid[2]),
                                            .task_blocks = 1,
                                            .nearly_at = WEIR_PTX_NO_NEARLY};
    magic(grid[0], &ret_args->row_magic, &ret_args->row_shift);
    magic(plane, &ret_args->plane_magic, &ret_args->plane_shift);
    return true;
}

uint32_t weir_ptx_control_done(const struct weir_ptx_control *control, uint32_t end)
{
    return WEIR_MIN(control->next, end);
}

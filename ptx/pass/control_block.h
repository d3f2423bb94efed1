/*
 * What the host and a transformed kernel share: the appended parameter, and the control block in
 * device memory.
 *
 * Fixed-width and laid out the same on both sides: the passes write these offsets into PTX. A
 * control block belongs to one launch of one kernel (two launches under way at once have one each),
 * is zeroed and filled by weir_ptx_control_init() and copied to device memory before the first
 * start. Only the host writes stop, sm_first, sm_last, quota, task_blocks and end, at any time, by
 * writes of four or eight bytes that the device sees whole; only the kernel writes next, done and
 * running.
 *
 * Resume: clear stop and start again with the same block. Nothing else changes hands, because a
 * task that was taken is always finished: once no worker runs, blocks 0 .. min(next, end) - 1 are
 * done and no other was begun.
 */
#ifndef WEIR_PTX_PASS_CONTROL_BLOCK_H
#define WEIR_PTX_PASS_CONTROL_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SMs that have a counter; the largest GPUs of today have 148 (2026). */
#define WEIR_PTX_CONTROL_SMS 256u

/* Logical blocks of one launch must be fewer: the index is divided by a multiplication. */
#define WEIR_PTX_FORM_MAX_BLOCKS (1ull << 31)

/* The parameter every twin has behind the kernel's own: 40 bytes, aligned to 8. */
struct weir_ptx_form_args {
    uint64_t where;       /* slice: its first block; ticket, persistent: address of the control
                             block */
    uint32_t grid[3];     /* of the launch as the program made it */
    uint32_t total;       /* blocks of it */
    uint32_t row_magic;   /* i / grid[0] is (i * row_magic) >> row_shift for i < 2^31 */
    uint32_t plane_magic; /* the same for grid[0] * grid[1] */
    uint32_t row_shift;
    uint32_t plane_shift;
};
_Static_assert(sizeof(struct weir_ptx_form_args) == 40, "written into PTX");

struct weir_ptx_control {
    uint32_t stop;        /* not 0: workers end before their next task, blocks before they begin */
    uint32_t task_blocks; /* persistent: blocks a worker takes at once, 1 or more */
    uint32_t sm_first;    /* persistent: workers on other SMs retire before their next task */
    uint32_t sm_last;     /* inclusive */
    uint32_t quota;       /* persistent: workers an SM may hold, 0: no limit */
    uint32_t reserved;
    uint64_t end;   /* blocks from here on are not begun: the total, or less to stop there */
    uint64_t next;  /* the first block that nobody has taken; may pass end */
    uint64_t done;  /* persistent: blocks of finished tasks; behind while workers run, then exact */
    uint64_t retired; /* persistent: workers that ended for their SM or the quota */
    uint32_t running[WEIR_PTX_CONTROL_SMS]; /* persistent: workers per SM */
};
_Static_assert(offsetof(struct weir_ptx_control, end) == 24, "written into PTX");
_Static_assert(offsetof(struct weir_ptx_control, running) == 56, "written into PTX");

/**
 * Fill the parameter of a twin for a grid.
 *
 * @param grid      of the launch as the program made it.
 * @param where     see struct weir_ptx_form_args.
 * @param ret_args  written on success.
 * @return whether the grid has 1 .. WEIR_PTX_FORM_MAX_BLOCKS - 1 blocks: otherwise only the
 *         original can run it.
 * @thread any
 */
bool weir_ptx_form_args_init(const uint32_t grid[3], uint64_t where,
                             struct weir_ptx_form_args *ret_args);

/**
 * A control block before its first start: nothing done, all SMs, no quota, tasks of one block.
 *
 * @param total  blocks of the launch.
 * @thread any
 */
void weir_ptx_control_init(struct weir_ptx_control *control, uint64_t total);

/** Blocks done once no worker runs. @thread any */
uint64_t weir_ptx_control_done(const struct weir_ptx_control *control);

#endif

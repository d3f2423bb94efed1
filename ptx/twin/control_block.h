/*
 * The data that the host and a transformed kernel share: the appended parameter, and the control
 * block in device memory.
 *
 * Both sides use the same fixed-width layout: the passes write these offsets into PTX. The
 * parameter has the values that are known before a start; the control block has those that change
 * later. So a zeroed control block means a new launch, and the host can zero blocks long before. A
 * control block belongs to one launch of one kernel until that launch is finished, over all its
 * starts; another launch under way has another one.
 *
 * Only the host writes stop and ask, each as a whole word of four bytes. Only the kernel writes the
 * rest.
 *
 * A worker takes a task by one 64-bit atomic addition to the pair of next and ask, which returns
 * both. So all tasks and a stop have one order, and a worker that comes behind the stop subtracts
 * what it added.
 *
 * Resume: take the stop out of ask and start again with the same block. No other state is needed,
 * because a task that was taken is always finished: once no worker runs, blocks 0 .. min(next, end)
 * - 1 are done and no other was begun. A stop may only be removed once no worker runs (workers is
 * 0; ticket form: its grids have ended), because a running worker may still have to subtract what
 * it added.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SMs that have a counter, a power of two; the largest GPUs of today have 148 (2026). */
#define WEIR_PTX_CONTROL_SMS 256u

/* A launch must have fewer logical blocks: the index is divided by a multiplication. */
#define WEIR_PTX_FORM_MAX_BLOCKS (1ull << 31)

/* Most blocks of a task: all workers that ever start must not raise next beyond 2^32. */
#define WEIR_PTX_FORM_MAX_TASK 4096u

/* SMs first .. first + count - 1 as one word; count is 1 or more. The word 0 means all SMs. */
#define WEIR_PTX_SM_RANGE(first, count) ((uint32_t)(first) | (uint32_t)(count) << 16)

/*
 * The host's requests, as one word: whether to stop (workers before their next task, blocks of the
 * ticket form before they begin), and where workers may run: on `count` SMs from `first` on, with
 * at most block_limit of them on an SM. 0 in count or block_limit: as in the parameter. A worker
 * that finds any request reads the word before each further task; ASK_LOOK requests only that, for
 * a parameter without a range.
 */
#define WEIR_PTX_ASK_STOP           1u
#define WEIR_PTX_ASK_MAX_SMS        4095u /* value of count: all SMs, whatever the parameter says */
#define WEIR_PTX_ASK_NO_BLOCK_LIMIT 63u   /* no block limit, whatever the parameter says */
#define WEIR_PTX_ASK(first, count, block_limit)                                                    \
    ((uint32_t)(block_limit) << 1 | (uint32_t)(first) << 7 | (uint32_t)(count) << 19)
#define WEIR_PTX_ASK_LOOK WEIR_PTX_ASK(0, WEIR_PTX_ASK_MAX_SMS, 0)

#define WEIR_PTX_NO_NEARLY UINT32_MAX

/*
 * The parameter that every twin has behind the kernel's own: 64 bytes, aligned to 8. Starts of one
 * launch may differ in end, task_blocks, sm_range, block limit and nearly_at.
 */
struct weir_ptx_form_args {
    uint64_t control;     /* ticket, persistent: address of the control block */
    uint32_t grid[3];     /* grid of the launch that the program made */
    uint32_t total;       /* number of blocks in grid */
    uint32_t row_magic;   /* i / grid[0] is (i * row_magic) >> row_shift for i < 2^31 */
    uint32_t plane_magic; /* like row_magic, for grid[0] * grid[1] */
    uint32_t row_shift;
    uint32_t plane_shift;
    uint32_t end;         /* ticket, persistent: blocks from this one on are not begun */
    uint32_t task_blocks; /* persistent: blocks a worker takes at once, 1 .. MAX_TASK */
    uint32_t sm_range;    /* persistent: the SMs that workers may use; 0: all */
    uint32_t block_limit; /* persistent: workers an SM may hold, 0: no limit */
    /* Persistent: the worker that takes this block or a later one sets nearly. */
    uint32_t nearly_at;
};
_Static_assert(sizeof(struct weir_ptx_form_args) == 64, "written into PTX");

struct weir_ptx_control {
    uint32_t stop; /* ticket: not 0: blocks end before they begin. Written by the host */
    uint32_t host_reserved[31];

    uint32_t next;     /* the first block that nobody has taken; may pass end */
    uint32_t ask;      /* persistent: WEIR_PTX_ASK() or WEIR_PTX_ASK_STOP. Written by the host */
    uint32_t done;     /* persistent: blocks done by workers that have left */
    uint32_t workers;  /* persistent: workers that have begun and not left */
    uint32_t finished; /* persistent: 1 once done is total, and the whole system can see all writes
                          of the blocks */
    uint32_t nearly;   /* persistent: 1 once block nearly_at or a later one is taken */
    uint32_t retired;  /* persistent: workers that left because of their SM or the block limit */
    uint32_t kernel_reserved[25];

    uint32_t running[WEIR_PTX_CONTROL_SMS]; /* persistent: workers per SM */
};
_Static_assert(sizeof(struct weir_ptx_control) == 1280, "written into PTX");
_Static_assert(offsetof(struct weir_ptx_control, next) == 128, "what all blocks poll is elsewhere");
_Static_assert(offsetof(struct weir_ptx_control, ask) == 132, "one word of 64 bits with next");
_Static_assert(offsetof(struct weir_ptx_control, done) == 136, "aligned to 8");
_Static_assert(offsetof(struct weir_ptx_control, workers) == 140, "one word of 64 bits with done");
_Static_assert(offsetof(struct weir_ptx_control, running) == 256, "written into PTX");

/* Only these bytes must be zeroed before a control block is used again: `running` returns to zero
 * by itself. */
#define WEIR_PTX_CONTROL_CLEAR_BYTES offsetof(struct weir_ptx_control, running)

/**
 * Fill the parameter of a twin for a grid: all of it, tasks of one block, on all SMs.
 *
 * @param grid      of the launch as the program made it.
 * @param ret_args  written on success; control is 0.
 * @return whether the grid has 1 .. WEIR_PTX_FORM_MAX_BLOCKS - 1 blocks: otherwise only the
 *         original can run it.
 * @thread any
 */
bool weir_ptx_form_args_init(const uint32_t grid[3], struct weir_ptx_form_args *ret_args);

/**
 * The number of executed blocks, once no worker runs.
 * @param the largest end of all starts so far.
 * @thread any
 */
uint32_t weir_ptx_control_done(const struct weir_ptx_control *control, uint32_t end);

/* Instructions of a whole warp, and the threads in their masks. Private to ptx/. */
#pragma once

#include "ptx/ir.h"

/* The threads that a mask names. */
enum weir_ptx_mask {
    WEIR_PTX_MASK_NONE,  /* the instruction has no mask */
    WEIR_PTX_MASK_ALL,   /* the constant for the whole warp */
    WEIR_PTX_MASK_MET,   /* threads found earlier in the same basic block: none can have ended */
    WEIR_PTX_MASK_OTHER, /* threads that may have ended */
};

/**
 * Does an instruction wait for other threads of its warp, by a mask, which is its last operand?
 * @thread any
 */
bool weir_ptx_inst_is_warp_sync(const struct weir_ptx_inst *inst);

/**
 * Find the threads in the mask of an instruction that waits for threads of its warp. Matrix
 * instructions have no mask: they need all threads of the warp.
 *
 * @param func   the function.
 * @param first  first instruction of its basic block.
 * @param inst   the instruction.
 * @thread any
 */
enum weir_ptx_mask weir_ptx_mask_of(const struct weir_ptx_func *func, uint32_t first,
                                    uint32_t inst);

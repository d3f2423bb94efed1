/* Instructions of a whole warp, and whom their masks name. Private to ptx/. */
#ifndef WEIR_PTX_WARP_H
#define WEIR_PTX_WARP_H

#include "ptx/ir.h"

/* What a mask names. */
enum weir_ptx_mask {
    WEIR_PTX_MASK_NONE, /* the instruction has no mask */
    WEIR_PTX_MASK_ALL,  /* the constant for the whole warp */
    WEIR_PTX_MASK_MET,  /* threads found before the instruction in its basic block: none of them can
                           have ended */
    WEIR_PTX_MASK_OTHER, /* threads that may have ended */
};

/**
 * Whether an instruction waits for other threads of its warp, by a mask: its last operand.
 *
 * @thread any
 */
bool weir_ptx_inst_is_warp_sync(const struct weir_ptx_inst *inst);

/**
 * Which threads an instruction's mask names, for one that waits for threads of its warp. Matrix
 * instructions have no mask: all threads of the warp must be there.
 *
 * @param func   the function.
 * @param first  first instruction of its basic block.
 * @param inst   the instruction.
 * @thread any
 */
enum weir_ptx_mask weir_ptx_mask_of(const struct weir_ptx_func *func, uint32_t first,
                                    uint32_t inst);

#endif

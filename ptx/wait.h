/* Finds loops that a block may not leave by itself. Private to ptx/;
 * docs/design/kernel-forms.md. */
#pragma once

#include "ptx/flow.h"

#define WEIR_PTX_WAIT_STEPS_SPARE (256u << 20) /* steps to spare for each module */

/** Can a call in a loop reach an access that sees other blocks' writes? */
typedef bool (*weir_ptx_call_sees_fn)(void *context, const struct weir_ptx_inst *call);

/* A strongly connected part of the control flow. Borrows all it points to. */
struct weir_ptx_loop {
    const uint32_t *blocks;
    uint32_t n_blocks;
    const uint32_t *part_of; /* part of each block of the function, and of its end */
    uint32_t part;           /* the part that this loop's blocks form */
};

/** Take steps from a budget; false once it is used up. */
static inline bool weir_ptx_spend(uint64_t *steps, uint64_t n)
{
    *steps -= n < *steps ? n : *steps;
    return *steps != 0;
}

/**
 * Does an instruction read memory that another block may write at the same time? These are
 * volatile, relaxed, acquiring, .cg or .cv loads and atomics, outside shared and local memory.
 * @thread any
 */
bool weir_ptx_inst_sees(const struct weir_ptx_inst *inst);

/** Does an instruction load from memory that is written while the kernel runs? @thread any */
bool weir_ptx_is_plain_load(const struct weir_ptx_func *func, const struct weir_ptx_inst *inst);

/** Does only the block itself write to a state space while the kernel runs? @thread any */
bool weir_ptx_is_private_space(uint8_t space);

/**
 * Find the first loop of a function that may wait for another block.
 *
 * @param flow      of the function.
 * @param sees      called for calls in loops.
 * @param context   given to sees.
 * @param spare     steps for the searches of all functions, beyond those that each has for its
 *                  size; when they are used up, every loop counts as waiting. The steps taken are
 * subtracted.
 * @param ret_inst  the branch that decides whether the loop repeats, or WEIR_PTX_NONE.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_ptx_find_wait(const struct weir_ptx_flow *flow, weir_ptx_call_sees_fn sees,
                                    void *context, uint64_t *spare,
                                    uint32_t *ret_inst) WEIR_MUST_CHECK;

/**
 * Find out whether one loop may wait with plain loads.
 *
 * @param steps     budget; when it is used up, the loop counts as waiting.
 * @param ret_inst  the branch that decides whether the loop repeats, or WEIR_PTX_NONE.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_ptx_find_plain_wait(const struct weir_ptx_flow *flow,
                                          const struct weir_ptx_loop *loop, uint64_t *steps,
                                          uint32_t *ret_inst) WEIR_MUST_CHECK;

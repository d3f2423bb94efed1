/*
 * Control flow of one function: basic blocks, post-dominators, and where the threads of a block may
 * have parted. Private to ptx/.
 */
#pragma once

#include "base/status.h"
#include "ptx/ir.h"

struct weir_ptx_block {
    uint32_t first;   /* first instruction */
    uint32_t end;     /* one past the last instruction */
    uint32_t succ;    /* index of the block's successors in flow->succs */
    uint32_t n_succs; /* number of successors; flow->n_blocks among them stands for the end of the
                         function */
    uint32_t ipdom;   /* immediate post-dominator; n_blocks means the end of the function */
    bool parted;      /* threads may be here without the others of their thread block */
    bool ended;       /* as parted; the others may also have left the function, or will soon */
};

/* Immutable once made. Owned by its maker. */
struct weir_ptx_flow {
    const struct weir_ptx_func *func;
    struct weir_ptx_block *blocks;
    uint32_t n_blocks;
    uint32_t *succs;
    uint32_t n_succs;
    /* Per register (and one for the carry): may its value differ between threads? */
    uint8_t *varying;
    bool gave_up; /* the budget was exceeded: every block counts as parted, every register as
                     varying */
};

/**
 * Analyse one function.
 * @param func with a body; checked. Borrowed for the life of the flow.
 * @param ret_flow gives the flow; free it with weir_ptx_flow_finish().
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_ptx_flow_init(const struct weir_ptx_func *func,
                                    struct weir_ptx_flow *ret_flow) WEIR_MUST_CHECK;

/** Free what a flow holds. Accepts a zeroed one. @thread owner */
void weir_ptx_flow_finish(struct weir_ptx_flow *flow);

/** May only some threads of the block execute an instruction of the block? */
bool weir_ptx_flow_is_parted(const struct weir_ptx_flow *flow, uint32_t block, uint32_t inst);

/* Receives a register by its id; the carry has the number func->n_regs. */
typedef void (*weir_ptx_reg_fn)(void *context, uint32_t reg);

/** Call fn for each register that an instruction reads, guard and carry included. */
void weir_ptx_inst_each_read(const struct weir_ptx_func *func, const struct weir_ptx_inst *inst,
                             weir_ptx_reg_fn fn, void *context);

/** Call fn for each register that an instruction writes. */
void weir_ptx_inst_each_write(const struct weir_ptx_func *func, const struct weir_ptx_inst *inst,
                              weir_ptx_reg_fn fn, void *context);

/** Does an instruction read a register (guard and carry included) with one of these bits? */
bool weir_ptx_inst_reads(const struct weir_ptx_func *func, const struct weir_ptx_inst *inst,
                         const uint8_t *state, uint8_t bits);

/** Set bits for all registers that an instruction writes. @return whether any was not set before */
bool weir_ptx_inst_writes(const struct weir_ptx_func *func, const struct weir_ptx_inst *inst,
                          uint8_t *state, uint8_t bits);

#include "ptx/warp.h"

#include "ptx/flow.h"

bool weir_ptx_inst_is_warp_sync(const struct weir_ptx_inst *inst)
{
    switch (inst->op) {
    case WEIR_PTX_OP_SHFL:
    case WEIR_PTX_OP_VOTE:
    case WEIR_PTX_OP_MATCH:
    case WEIR_PTX_OP_REDUX:
    case WEIR_PTX_OP_ELECT:
        return true;
    case WEIR_PTX_OP_BAR:
    case WEIR_PTX_OP_BARRIER:
        return weir_ptx_inst_has(inst, WEIR_PTX_MOD_WARP);
    default:
        return false;
    }
}

static bool is_all(const struct weir_ptx_operand *op)
{
    return op->kind == WEIR_PTX_OPERAND_INT && (uint32_t)op->bits == UINT32_MAX;
}

struct search {
    uint32_t reg;
    bool found;
};

static void look(void *context, uint32_t reg)
{
    struct search *search = context;

    search->found |= reg == search->reg;
}

static bool writes(const struct weir_ptx_func *func, uint32_t inst, uint32_t reg)
{
    struct search search = {.reg = reg};

    weir_ptx_inst_each_write(func, &func->insts[inst], look, &search);
    return search.found;
}

static enum weir_ptx_mask mask_of_writer(const struct weir_ptx_inst *inst)
{
    if (inst->guard != WEIR_PTX_NONE) {
        return WEIR_PTX_MASK_OTHER;
    }
    switch (inst->op) {
    case WEIR_PTX_OP_ACTIVEMASK:
    case WEIR_PTX_OP_MATCH:
        return WEIR_PTX_MASK_MET;
    case WEIR_PTX_OP_VOTE:
        return inst->action == WEIR_PTX_MOD_BALLOT ? WEIR_PTX_MASK_MET : WEIR_PTX_MASK_OTHER;
    case WEIR_PTX_OP_MOV:
        return is_all(&inst->operands[1]) ? WEIR_PTX_MASK_ALL : WEIR_PTX_MASK_OTHER;
    default:
        return WEIR_PTX_MASK_OTHER;
    }
}

/* Search at most this many instructions backwards: masks are made where they are used. */
#define MAX_BACK 256u

enum weir_ptx_mask weir_ptx_mask_of(const struct weir_ptx_func *func, uint32_t first, uint32_t inst)
{
    const struct weir_ptx_inst *it = &func->insts[inst];

    if (!weir_ptx_inst_is_warp_sync(it)) {
        return WEIR_PTX_MASK_NONE;
    }
    const struct weir_ptx_operand *mask = &it->operands[it->n_operands - 1];

    if (mask->kind != WEIR_PTX_OPERAND_REG) {
        return is_all(mask) ? WEIR_PTX_MASK_ALL : WEIR_PTX_MASK_OTHER;
    }
    for (uint32_t i = inst; i > first && inst - i < MAX_BACK;) {
        i--;
        if (writes(func, i, mask->reg)) {
            enum weir_ptx_mask made = mask_of_writer(&func->insts[i]);

            /* A thread that does not execute the instruction itself may bypass it. */
            return made == WEIR_PTX_MASK_MET && it->guard != WEIR_PTX_NONE ? WEIR_PTX_MASK_OTHER
                                                                           : made;
        }
    }
    return WEIR_PTX_MASK_OTHER;
}

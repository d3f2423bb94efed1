#include "ptx/warp.h"

#include "ptx/flow.h"
#include <stdlib.h>

#define MAX_PASSES 8 /* of masks made from masks */

static bool takes_mask(const struct weir_ptx_inst *inst)
{
    switch (inst->op) {
    case WEIR_PTX_OP_SHFL:
    case WEIR_PTX_OP_VOTE:
    case WEIR_PTX_OP_MATCH:
    case WEIR_PTX_OP_REDUX:
    case WEIR_PTX_OP_ELECT:
        return inst->flags & WEIR_PTX_FLAG_SYNC;
    case WEIR_PTX_OP_BAR:
        return weir_ptx_inst_has(inst, WEIR_PTX_MOD_WARP);
    default:
        return false;
    }
}

/* The mask is always the last operand. */
static const struct weir_ptx_operand *mask_of(const struct weir_ptx_inst *inst)
{
    return &inst->operands[inst->n_operands - 1];
}

static bool is_small(const struct weir_ptx_masks *masks, const struct weir_ptx_operand *op)
{
    return op->kind == WEIR_PTX_OPERAND_REG && !masks->may_be_all[op->reg];
}

/* Whether a result names only threads that were there, as far as is known. */
static bool makes_small(const struct weir_ptx_masks *masks, const struct weir_ptx_inst *inst)
{
    switch (inst->op) {
    case WEIR_PTX_OP_ACTIVEMASK:
    case WEIR_PTX_OP_MATCH:
        return true;
    case WEIR_PTX_OP_VOTE:
        return inst->action == WEIR_PTX_MOD_BALLOT;
    case WEIR_PTX_OP_MOV:
        return is_small(masks, &inst->operands[1]);
    case WEIR_PTX_OP_AND:
        return is_small(masks, &inst->operands[1]) || is_small(masks, &inst->operands[2]);
    default:
        return false;
    }
}

static bool has_masks(const struct weir_ptx_func *func)
{
    for (uint32_t i = 0; i < func->n_insts; i++) {
        if (takes_mask(&func->insts[i]) && mask_of(&func->insts[i])->kind == WEIR_PTX_OPERAND_REG) {
            return true;
        }
    }
    return false;
}

enum weir_status weir_ptx_masks_init(const struct weir_ptx_func *func,
                                     struct weir_ptx_masks *ret_masks)
{
    size_t n_regs = (size_t)func->n_regs + 1;
    struct weir_ptx_masks masks = {0};
    bool changed = true;

    if (!has_masks(func)) {
        *ret_masks = masks;
        return WEIR_OK;
    }
    masks.may_be_all = calloc(n_regs, 1);
    if (!masks.may_be_all) {
        return WEIR_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < func->n_params; i++) {
        if (func->params[i]->reg != WEIR_PTX_NONE) {
            masks.may_be_all[func->params[i]->reg] = 1;
        }
    }
    for (int pass = 0; changed; pass++) {
        changed = false;
        for (uint32_t i = 0; i < func->n_insts; i++) {
            if (pass == MAX_PASSES || !makes_small(&masks, &func->insts[i])) {
                changed |= weir_ptx_inst_writes(func, &func->insts[i], masks.may_be_all, 1);
            }
        }
    }
    *ret_masks = masks;
    return WEIR_OK;
}

void weir_ptx_masks_finish(struct weir_ptx_masks *masks)
{
    free(masks->may_be_all);
    *masks = (struct weir_ptx_masks){0};
}

bool weir_ptx_may_name_all(const struct weir_ptx_masks *masks, const struct weir_ptx_inst *inst)
{
    return takes_mask(inst) && !is_small(masks, mask_of(inst));
}

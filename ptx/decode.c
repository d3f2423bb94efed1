/* Converts an instruction's list of suffixes to its decoded fields. */
#include "base/status.h"
#include "ptx/tables.h"

#include <string.h>

/* Opcodes in which .lo and .hi compare; elsewhere they are halves of a product. */
static bool compares(uint16_t op)
{
    return op == WEIR_PTX_OP_SET || op == WEIR_PTX_OP_SETP || op == WEIR_PTX_OP_VSET ||
           op == WEIR_PTX_OP_VSET2 || op == WEIR_PTX_OP_VSET4;
}

static uint8_t vec_width(enum weir_ptx_mod mod)
{
    return mod == WEIR_PTX_MOD_V8 ? 8 : mod == WEIR_PTX_MOD_V4 ? 4 : 2;
}

static const uint32_t flag_bits[WEIR_PTX_MOD_COUNT] = {
#define WEIR_PTX_MOD_ROW(name, text, slot)
#define WEIR_PTX_FLAG_ROW(name, text) [WEIR_PTX_MOD_##name] = WEIR_PTX_FLAG_##name,
#include "ptx/modifiers.def"
#undef WEIR_PTX_MOD_ROW
#undef WEIR_PTX_FLAG_ROW
};

static void set_first(uint16_t *field, enum weir_ptx_mod mod)
{
    if (!*field) {
        *field = (uint16_t)mod;
    }
}

static bool decode_one(struct weir_ptx_inst *inst, enum weir_ptx_mod mod)
{
    switch (weir_ptx_mod_slot(mod)) {
    case WEIR_PTX_SLOT_TYPE:
        WEIR_FAIL_IF(inst->n_types == WEIR_PTX_MAX_TYPES, false);
        inst->types[inst->n_types++] = (uint8_t)mod;
        break;
    case WEIR_PTX_SLOT_SPACE:
        *(inst->space ? &inst->space2 : &inst->space) = (uint8_t)(mod - WEIR_PTX_MOD_SPACE);
        break;
    case WEIR_PTX_SLOT_FLAG:
        inst->flags |= flag_bits[mod];
        break;
    case WEIR_PTX_SLOT_VEC:
        inst->vec = vec_width(mod);
        break;
    case WEIR_PTX_SLOT_ROUND:
        set_first(&inst->round, mod);
        break;
    case WEIR_PTX_SLOT_CMP:
        if ((mod == WEIR_PTX_MOD_LO || mod == WEIR_PTX_MOD_HI) && !compares(inst->op)) {
            set_first(&inst->half, mod);
        } else {
            set_first(&inst->cmp, mod);
        }
        break;
    case WEIR_PTX_SLOT_HALF:
        set_first(&inst->half, mod);
        break;
    case WEIR_PTX_SLOT_ACTION:
        set_first(&inst->action, mod);
        break;
    case WEIR_PTX_SLOT_SCOPE:
        set_first(&inst->scope, mod);
        break;
    case WEIR_PTX_SLOT_ORDER:
        set_first(&inst->order, mod);
        break;
    case WEIR_PTX_SLOT_CACHE:
        set_first(&inst->cache, mod);
        break;
    case WEIR_PTX_SLOT_EVICT:
        set_first(&inst->evict, mod);
        break;
    case WEIR_PTX_SLOT_GEOM:
        set_first(&inst->geom, mod);
        break;
    case WEIR_PTX_SLOT_NONE:
    case WEIR_PTX_SLOT_SHAPE:
        break;
    }
    return true;
}

bool weir_ptx_inst_decode(struct weir_ptx_inst *inst)
{
    inst->n_types = 0;
    memset(inst->types, 0, sizeof(inst->types));
    inst->space = inst->space2 = 0;
    inst->vec = 1;
    inst->flags = 0;
    inst->round = inst->cmp = inst->half = inst->action = 0;
    inst->scope = inst->order = inst->cache = inst->evict = inst->geom = 0;
    for (uint32_t i = 0; i < inst->n_mods; i++) {
        WEIR_FAIL_IF(!decode_one(inst, (enum weir_ptx_mod)inst->mods[i]), false);
    }
    return true;
}

bool weir_ptx_inst_has_dst(const struct weir_ptx_inst *inst)
{
    uint32_t flags = weir_ptx_op_info((enum weir_ptx_op)inst->op)->flags;

    if (!(flags & WEIR_PTX_OPF_DST_OPT)) {
        return flags & WEIR_PTX_OPF_DST;
    }
    switch (inst->op) {
    case WEIR_PTX_OP_BAR:
    case WEIR_PTX_OP_BARRIER:
        return weir_ptx_inst_has(inst, WEIR_PTX_MOD_RED);
    case WEIR_PTX_OP_MULTIMEM:
        return weir_ptx_inst_has(inst, WEIR_PTX_MOD_LD_REDUCE);
    case WEIR_PTX_OP_MBARRIER:
        /* mbarrier.arrive may return no state; then the address is the first operand. */
        return inst->n_operands && inst->operands[0].kind != WEIR_PTX_OPERAND_MEM;
    case WEIR_PTX_OP_CLUSTERLAUNCHCONTROL:
        return weir_ptx_inst_has(inst, WEIR_PTX_MOD_QUERY_CANCEL);
    case WEIR_PTX_OP_WMMA:
        return !weir_ptx_inst_has(inst, WEIR_PTX_MOD_STORE);
    case WEIR_PTX_OP_WGMMA:
        return weir_ptx_inst_has(inst, WEIR_PTX_MOD_MMA_ASYNC);
    case WEIR_PTX_OP_TCGEN05:
        return weir_ptx_inst_has(inst, WEIR_PTX_MOD_LD);
    default:
        return false;
    }
}

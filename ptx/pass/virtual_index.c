/*
 * Replaces the block index by a virtual one.
 *
 * In the twin's entry the index is in registers, which the form's pass fills by
 * weir_ptx_index_emit() before each logical block. A function cannot read those or the entry's
 * parameters, and a function called through a pointer cannot get more arguments. So functions read
 * the index from shared memory (WEIR_PTX_INDEX_NAME), where every thread of the block has stored
 * the same values before. A thread reads its own value or an equal one, so no barrier is needed.
 *
 * Twins and originals share functions that can be called through a pointer. If such a function
 * reads the index, every other entry of the module that makes calls stores its real index there
 * first.
 */
#include "ptx/pass/passes.h"
#include "ptx/twin/editor.h"

#include <string.h>

#define ARG(field) offsetof(struct weir_ptx_form_args, field)

void weir_ptx_grid_emit(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(edit,
                       "ld.param.b32 %%wgx, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "ld.param.b32 %%wgy, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "ld.param.b32 %%wgz, [" WEIR_PTX_ARGS_NAME "+%zu];\n",
                       ARG(grid), ARG(grid) + 4, ARG(grid) + 8);
}

/* All threads store the same values: each reads what it wrote itself, or an equal value. */
static void emit_store(struct weir_ptx_edit *edit)
{
    const char *index = weir_ptx_slot_index(edit);

    weir_ptx_edit_text(edit,
                       ".reg .b32 %%z;\nmov.b32 %%z, 0;\n"
                       "st.shared.v4.b32 [%s], {%%wx, %%wy, %%wz, %%z};\n"
                       "st.shared.v4.b32 [%s+16], {%%wgx, %%wgy, %%wgz, %%z};\n",
                       index, index);
}

void weir_ptx_index_emit(struct weir_ptx_edit *edit)
{
    /* Most grids have one or two dimensions, and all threads of a grid take the same
     * branch here. */
    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%m, %%s, %%t, %%r;\n.reg .b64 %%q;\n"
                       "ld.param.b32 %%t, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "mov.b32 %%wx, %%wn;\nmov.b32 %%wy, 0;\nmov.b32 %%wz, 0;\n"
                       "setp.eq.u32 %%p, %%t, %%wgx;\n@%%p bra LINE;\n"
                       "mov.b32 %%r, %%wn;\n"
                       "setp.eq.u32 %%p, %%wgz, 1;\n@%%p bra PLANE;\n"
                       "ld.param.b32 %%m, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "ld.param.b32 %%s, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "mul.wide.u32 %%q, %%wn, %%m;\n"
                       "shr.u64 %%q, %%q, %%s;\n"
                       "cvt.u32.u64 %%wz, %%q;\n"
                       "mul.lo.u32 %%t, %%wgx, %%wgy;\n"
                       "mul.lo.u32 %%t, %%t, %%wz;\n"
                       "sub.u32 %%r, %%wn, %%t;\n"
                       "PLANE:\n"
                       "ld.param.b32 %%m, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "ld.param.b32 %%s, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "mul.wide.u32 %%q, %%r, %%m;\n"
                       "shr.u64 %%q, %%q, %%s;\n"
                       "cvt.u32.u64 %%wy, %%q;\n"
                       "mul.lo.u32 %%t, %%wy, %%wgx;\n"
                       "sub.u32 %%wx, %%r, %%t;\n"
                       "LINE:\n",
                       ARG(total), ARG(plane_magic), ARG(plane_shift), ARG(row_magic),
                       ARG(row_shift));
    if (edit->twin->index) {
        emit_store(edit);
    }
}

static bool is_count(uint16_t sreg)
{
    return sreg == WEIR_PTX_SREG_NCTAID || sreg == WEIR_PTX_SREG_NCLUSTERID;
}

/* Get the register with one component, loaded first in a function. Component 3 is always 0. */
static uint32_t component(struct weir_ptx_edit *edit, uint16_t sreg, uint32_t c)
{
    const struct weir_ptx_twin *twin = edit->twin;

    if (edit->func == twin->entry && c < 3) {
        return twin->virtuals[(is_count(sreg) ? WEIR_PTX_VIRTUAL_GX : WEIR_PTX_VIRTUAL_X) + c];
    }
    edit->n_names = edit->func == twin->entry ? WEIR_PTX_VIRTUAL_COUNT : 0;
    uint32_t reg = weir_ptx_edit_reg(edit, "%v", WEIR_PTX_TYPE_B32);

    if (c == 3) {
        weir_ptx_edit_text(edit, "mov.b32 %%v, 0;\n");
    } else {
        const char *index = weir_ptx_slot_index(edit);

        weir_ptx_edit_text(edit, "ld.shared.b32 %%v, [%s+%u];\n", index,
                           (is_count(sreg) ? 16 : 0) + 4 * c);
    }
    return reg;
}

static struct weir_ptx_operand reg_operand(uint32_t reg)
{
    return (struct weir_ptx_operand){
        .kind = WEIR_PTX_OPERAND_REG, .reg = reg, .reg2 = WEIR_PTX_NONE};
}

/* Replace a mov that reads one or four components into registers of 16, 32 or 64 bits. */
static bool move_one(struct weir_ptx_edit *edit, const struct weir_ptx_inst *from,
                     const struct weir_ptx_operand *dst, uint32_t reg)
{
    static const uint16_t narrow[] = {WEIR_PTX_TYPE_U16, WEIR_PTX_TYPE_U32};
    static const uint16_t wide[] = {WEIR_PTX_TYPE_U64, WEIR_PTX_TYPE_U32};
    static const uint16_t same[] = {WEIR_PTX_TYPE_B32};
    uint32_t bits = edit->regs[dst->reg].bits;
    struct weir_ptx_inst inst = {.line = from->line,
                                 .guard = from->guard,
                                 .guard_negated = from->guard_negated,
                                 .n_operands = 2};

    inst.op = bits == 32 ? WEIR_PTX_OP_MOV : WEIR_PTX_OP_CVT;
    inst.mods = bits == 32 ? same : bits == 16 ? narrow : wide;
    inst.n_mods = bits == 32 ? 1 : 2;
    inst.operands = weir_ptx_alloc(edit->twin->module, 2 * sizeof(*inst.operands));
    WEIR_FAIL_IF(!inst.operands, false);
    inst.operands[0] = *dst;
    inst.operands[1] = reg_operand(reg);
    return weir_ptx_inst_decode(&inst) && weir_ptx_edit_add(edit, &inst);
}

static bool replace_mov(struct weir_ptx_edit *edit, const struct weir_ptx_inst *inst)
{
    const struct weir_ptx_operand *dst = &inst->operands[0];
    const struct weir_ptx_operand *src = &inst->operands[1];

    if (dst->kind == WEIR_PTX_OPERAND_REG && src->component != WEIR_PTX_COMPONENT_ALL) {
        return move_one(edit, inst, dst, component(edit, src->sreg, src->component));
    }
    WEIR_FAIL_IF(dst->kind != WEIR_PTX_OPERAND_VECTOR || dst->n_elems > 4, false);
    for (uint32_t i = 0; i < dst->n_elems; i++) {
        WEIR_FAIL_IF(dst->elems[i].kind == WEIR_PTX_OPERAND_REG &&
                         !move_one(edit, inst, &dst->elems[i], component(edit, src->sreg, i)),
                     false);
    }
    return true;
}

/* Replace the sources of any other instruction that reads a special register as 32 bits. */
static bool replace_sources(struct weir_ptx_edit *edit, const struct weir_ptx_inst *inst)
{
    struct weir_ptx_inst copy = *inst;

    copy.operands = weir_ptx_alloc(edit->twin->module, inst->n_operands * sizeof(*inst->operands));
    WEIR_FAIL_IF(!copy.operands, false);
    for (uint32_t i = 0; i < inst->n_operands; i++) {
        const struct weir_ptx_operand *op = &inst->operands[i];

        copy.operands[i] = *op;
        if (op->kind == WEIR_PTX_OPERAND_SREG && weir_ptx_sreg_is_index(op->sreg)) {
            WEIR_FAIL_IF(op->component == WEIR_PTX_COMPONENT_ALL, false);
            copy.operands[i] = reg_operand(component(edit, op->sreg, op->component));
        }
    }
    return weir_ptx_edit_add(edit, &copy) != NULL;
}

static enum weir_status virtualise(struct weir_ptx_twin *twin, struct weir_ptx_func *func)
{
    struct weir_ptx_edit edit;
    uint32_t n = func->n_insts;

    weir_ptx_edit_begin(&edit, twin, func);
    for (uint32_t i = 0; i < n && edit.status == WEIR_OK; i++) {
        const struct weir_ptx_inst *inst = &func->insts[i];
        bool ok;

        weir_ptx_edit_mark(&edit, i);
        if (!weir_ptx_inst_reads_index(inst)) {
            ok = weir_ptx_edit_add(&edit, inst) != NULL;
        } else {
            ok = inst->op == WEIR_PTX_OP_MOV ? replace_mov(&edit, inst)
                                             : replace_sources(&edit, inst);
        }
        if (!ok && edit.status == WEIR_OK) {
            edit.status = WEIR_ERR_UNSUPPORTED;
        }
    }
    weir_ptx_edit_mark(&edit, n);
    return weir_ptx_edit_finish(&edit);
}

/* In an entry that is not a twin, store the real index where functions read it. */
static enum weir_status store_real(struct weir_ptx_twin *twin, struct weir_ptx_func *entry)
{
    struct weir_ptx_edit edit;

    weir_ptx_edit_begin(&edit, twin, entry);
    weir_ptx_edit_text(&edit,
                       ".reg .b32 %%x, %%y, %%z, %%o;\nmov.b32 %%o, 0;\n"
                       "mov.b32 %%x, %%ctaid.x;\nmov.b32 %%y, %%ctaid.y;\n"
                       "mov.b32 %%z, %%ctaid.z;\n"
                       "st.shared.v4.b32 [" WEIR_PTX_INDEX_NAME "], {%%x, %%y, %%z, %%o};\n"
                       "mov.b32 %%x, %%nctaid.x;\nmov.b32 %%y, %%nctaid.y;\n"
                       "mov.b32 %%z, %%nctaid.z;\n"
                       "st.shared.v4.b32 [" WEIR_PTX_INDEX_NAME "+16], {%%x, %%y, %%z, %%o};\n");
    weir_ptx_edit_keep(&edit, 0, entry->n_insts);
    return weir_ptx_edit_finish(&edit);
}

static bool calls(const struct weir_ptx_inst *inst)
{
    return inst->op == WEIR_PTX_OP_CALL;
}

static bool stores_index(const struct weir_ptx_inst *inst)
{
    return inst->op == WEIR_PTX_OP_ST && inst->operands[0].kind == WEIR_PTX_OPERAND_MEM &&
           inst->operands[0].base == WEIR_PTX_BASE_VAR &&
           strcmp(inst->operands[0].var->name, WEIR_PTX_INDEX_NAME) == 0;
}

static enum weir_status store_real_everywhere(struct weir_ptx_twin *twin)
{
    enum weir_status status = WEIR_OK;

    for (uint32_t i = 0; i < twin->module->n_funcs && status == WEIR_OK; i++) {
        struct weir_ptx_func *func = twin->module->funcs[i];

        if (func->is_entry && func->has_body && !weir_ptx_is_twin(func) &&
            weir_ptx_func_has(func, calls) && !weir_ptx_func_has(func, stores_index)) {
            status = store_real(twin, func);
        }
    }
    return status;
}

bool weir_ptx_inst_loads_index(const struct weir_ptx_inst *inst)
{
    return weir_ptx_inst_reads_index(inst) ||
           (inst->op == WEIR_PTX_OP_LD && inst->operands[1].kind == WEIR_PTX_OPERAND_MEM &&
            inst->operands[1].base == WEIR_PTX_BASE_VAR &&
            strcmp(inst->operands[1].var->name, WEIR_PTX_INDEX_NAME) == 0);
}

enum weir_status weir_ptx_pass_virtual_index(struct weir_ptx_twin *twin)
{
    enum weir_status status = WEIR_OK;
    bool in_funcs =
        WEIR_ANY(i, twin->n_funcs, weir_ptx_func_has(twin->funcs[i], weir_ptx_inst_loads_index));

    if (in_funcs) {
        status = weir_ptx_slot_make(twin, WEIR_PTX_INDEX_NAME, WEIR_PTX_INDEX_BYTES, &twin->index);
    }
    if (status == WEIR_OK && in_funcs && twin->in_place) {
        status = store_real_everywhere(twin);
    }
    for (uint32_t i = 0; i < twin->n_funcs && status == WEIR_OK; i++) {
        status = virtualise(twin, twin->funcs[i]);
    }
    return status == WEIR_OK ? virtualise(twin, twin->entry) : status;
}

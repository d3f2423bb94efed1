/* Follows addresses of variables through registers: see addresses.h. */
#include "ptx/addresses.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    const struct weir_ptx_func *func;
    bool *regs; /* of the function: may hold an address */
    bool *args; /* variables of the function: may hold one on its way to a call */
    bool *reached;
    bool changed, leaves;
};

static bool is_device(const struct weir_ptx_var *var)
{
    return !var->is_param &&
           (var->space == WEIR_PTX_SPACE_GLOBAL || var->space == WEIR_PTX_SPACE_CONST);
}

/* Note what an operand names. */
static void reach(struct walk *w, const struct weir_ptx_operand *op)
{
    bool names = op->kind == WEIR_PTX_OPERAND_VAR ||
                 (op->kind == WEIR_PTX_OPERAND_MEM && op->base == WEIR_PTX_BASE_VAR);

    if (names && is_device(op->var)) {
        if (op->var->func) { /* nobody outside could name it */
            w->leaves = true;
        } else {
            w->reached[op->var->id] = true;
        }
    }
    for (uint32_t i = 0; i < op->n_elems; i++) {
        reach(w, &op->elems[i]);
    }
}

/* May the operand's value be an address? The place of an access is none: [address]. */
static bool holds(const struct walk *w, const struct weir_ptx_operand *op)
{
    bool any = op->kind == WEIR_PTX_OPERAND_REG    ? w->regs[op->reg]
               : op->kind == WEIR_PTX_OPERAND_FUNC ? true
               : op->kind == WEIR_PTX_OPERAND_VAR
                   ? is_device(op->var) ||
                         (op->var->func == w->func && !op->var->is_param && w->args[op->var->id])
                   : false;

    for (uint32_t i = 0; i < op->n_elems && !any; i++) {
        any = holds(w, &op->elems[i]);
    }
    return any;
}

static void taint_reg(struct walk *w, uint32_t reg)
{
    if (reg != WEIR_PTX_NONE && w->func->regs[reg].bits > 1 && !w->regs[reg]) {
        w->regs[reg] = w->changed = true;
    }
}

static void taint(struct walk *w, const struct weir_ptx_operand *op)
{
    if (op->kind == WEIR_PTX_OPERAND_REG) {
        taint_reg(w, op->reg);
    }
    for (uint32_t i = 0; i < op->n_elems; i++) {
        taint(w, &op->elems[i]);
    }
}

static void call(struct walk *w, const struct weir_ptx_inst *inst)
{
    const struct weir_ptx_operand *target = &inst->operands[1];
    const char *name =
        target->kind == WEIR_PTX_OPERAND_FUNC && !target->func->has_body ? target->func->name : "";

    w->leaves |= inst->n_operands > 2 && holds(w, &inst->operands[2]) &&
                 strcmp(name, "vprintf") != 0 && strcmp(name, "__assertfail") != 0;
}

/* Does the instruction put a value into a variable for a call's argument? */
static struct weir_ptx_var *argument_of(const struct walk *w, const struct weir_ptx_inst *inst)
{
    const struct weir_ptx_operand *to = &inst->operands[0];

    return inst->op == WEIR_PTX_OP_ST && inst->space == WEIR_PTX_SPACE_PARAM &&
                   to->kind == WEIR_PTX_OPERAND_MEM && to->base == WEIR_PTX_BASE_VAR &&
                   to->var->func == w->func && !to->var->is_param
               ? to->var
               : NULL;
}

static void step(struct walk *w, const struct weir_ptx_inst *inst)
{
    bool has_dst = weir_ptx_inst_has_dst(inst), any = false;
    struct weir_ptx_var *argument;

    if (inst->op == WEIR_PTX_OP_CALL) {
        call(w, inst);
        return;
    }
    for (uint32_t i = has_dst; i < inst->n_operands && !any; i++) {
        any = holds(w, &inst->operands[i]);
    }
    if (!any) {
        return;
    }
    argument = argument_of(w, inst);
    if (argument) {
        w->changed |= !w->args[argument->id];
        w->args[argument->id] = true;
    } else if (!has_dst ||
               (weir_ptx_op_info((enum weir_ptx_op)inst->op)->flags & WEIR_PTX_OPF_MEM) != 0) {
        w->leaves = true;
    } else {
        taint(w, &inst->operands[0]);
        if (inst->operands[0].kind == WEIR_PTX_OPERAND_REG) {
            taint_reg(w, inst->operands[0].reg2);
        }
    }
}

static bool returns_one(const struct walk *w)
{
    for (uint32_t i = 0; i < w->func->n_returns; i++) {
        uint32_t reg = w->func->returns[i]->reg;

        if (w->func->returns[i]->space == WEIR_PTX_SPACE_REG && reg != WEIR_PTX_NONE &&
            w->regs[reg]) {
            return true;
        }
    }
    return false;
}

static enum weir_status walk_func(const struct weir_ptx_func *func, bool *reached, bool *leaves)
{
    struct walk w = {.func = func, .reached = reached, .changed = true, .leaves = *leaves};

    w.regs = calloc(func->n_regs + (size_t)func->n_vars + 1, sizeof *w.regs);
    WEIR_FAIL_IF(!w.regs, WEIR_ERR_NO_MEMORY);
    w.args = w.regs + func->n_regs;
    for (uint32_t i = 0; i < func->n_insts; i++) {
        for (uint32_t k = 0; k < func->insts[i].n_operands; k++) {
            reach(&w, &func->insts[i].operands[k]);
        }
    }
    while (w.changed && !w.leaves) { /* loops carry addresses back */
        w.changed = false;
        for (uint32_t i = 0; i < func->n_insts; i++) {
            step(&w, &func->insts[i]);
        }
    }
    *leaves = w.leaves || returns_one(&w);
    free(w.regs);
    return WEIR_OK;
}

static bool begins_with_address(const struct weir_ptx_var *var)
{
    return WEIR_ANY(i, var->n_inits,
                    var->inits[i].kind == WEIR_PTX_INIT_VAR ||
                        var->inits[i].kind == WEIR_PTX_INIT_FUNC);
}

enum weir_status weir_ptx_addresses(const struct weir_ptx_module *module, bool *ret_reached,
                                    bool *ret_leaves)
{
    enum weir_status status = WEIR_OK;

    *ret_leaves = false;
    memset(ret_reached, 0, module->n_vars * sizeof *ret_reached);
    for (uint32_t i = 0; i < module->n_funcs && status == WEIR_OK; i++) {
        status = walk_func(module->funcs[i], ret_reached, ret_leaves);
    }
    for (uint32_t i = 0; i < module->n_vars; i++) {
        *ret_leaves |= begins_with_address(module->vars[i]);
    }
    return status;
}

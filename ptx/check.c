/*
 * The semantic checker: rules that the grammar cannot express.
 *
 * It checks in every module, parsed or changed by a pass, what the printer, the passes and the
 * interpreter rely on: ids in range, operand counts, predicates where predicates belong, addresses
 * where addresses belong, and register widths for the opcodes that ops.def marks SAME. It is not
 * ptxas: the assembler and the interpreter themselves check which suffixes a target allows
 * together.
 */
#include "ptx/parse.h"

#include <stdarg.h>
#include <string.h>

struct check {
    const struct weir_ptx_func *func;
    const struct weir_ptx_inst *inst;
    struct weir_diag *diag;
};

/* Report an error with the instruction's line; the IR keeps no columns. */
static bool bad(const struct check *c, const char *fmt, ...) WEIR_PRINTF(2, 3);

static bool bad(const struct check *c, const char *fmt, ...)
{
    va_list args;

    if (c->diag) {
        c->diag->line = c->inst ? c->inst->line : c->func->line;
        c->diag->column = 1;
        va_start(args, fmt);
        vsnprintf(c->diag->message, sizeof(c->diag->message), fmt, args);
        va_end(args);
    }
    return false;
}

static const char *op_name(const struct check *c)
{
    return weir_ptx_op_info((enum weir_ptx_op)c->inst->op)->name;
}

static const struct weir_ptx_reg *reg_of(const struct check *c, uint32_t reg)
{
    return &c->func->regs[reg];
}

static bool check_reg(const struct check *c, uint32_t reg)
{
    return reg < c->func->n_regs || bad(c, "%s: register %u does not exist", op_name(c), reg);
}

static bool check_operand(const struct check *c, const struct weir_ptx_operand *op, int depth)
{
    bool ok = true;

    WEIR_FAIL_IF(depth > WEIR_PTX_MAX_NESTING + 1,
                 bad(c, "%s: operand is nested too deeply", op_name(c)));
    if (op->kind == WEIR_PTX_OPERAND_REG ||
        (op->kind == WEIR_PTX_OPERAND_MEM && op->base == WEIR_PTX_BASE_REG)) {
        ok = check_reg(c, op->reg);
    }
    if (ok && op->kind == WEIR_PTX_OPERAND_MEM && op->base == WEIR_PTX_BASE_REG &&
        reg_of(c, op->reg)->bits < 32) {
        return bad(c, "%s: address in a register of %u bits", op_name(c), reg_of(c, op->reg)->bits);
    }
    if (ok && op->reg2 != WEIR_PTX_NONE) {
        ok = check_reg(c, op->reg2);
    }
    WEIR_FAIL_IF(ok && op->negated && reg_of(c, op->reg)->type != WEIR_PTX_TYPE_PRED,
                 bad(c, "%s: '!' before something not a predicate", op_name(c)));
    WEIR_FAIL_IF(ok && op->kind == WEIR_PTX_OPERAND_LABEL && op->label >= c->func->n_labels,
                 bad(c, "%s: label %u does not exist", op_name(c), op->label));
    for (uint32_t i = 0; ok && i < op->n_elems; i++) {
        ok = check_operand(c, &op->elems[i], depth + 1);
    }
    return ok;
}

static bool is_writable(const struct weir_ptx_operand *op)
{
    if (op->kind == WEIR_PTX_OPERAND_VECTOR) {
        return !WEIR_ANY(i, op->n_elems, !is_writable(&op->elems[i]));
    }
    return op->kind == WEIR_PTX_OPERAND_SINK ||
           (op->kind == WEIR_PTX_OPERAND_REG && !op->negated && !op->minus);
}

static bool check_dst(const struct check *c)
{
    const struct weir_ptx_operand *dst = c->inst->operands;

    /* mbarrier.arrive on a remote object, and others, may begin with an address. */
    if (!weir_ptx_inst_has_dst(c->inst) || c->inst->n_operands == 0) {
        return true;
    }
    return is_writable(dst) || bad(c, "%s: destination cannot be written", op_name(c));
}

/* Find the operand that must be an address; -1: none. */
static int address_operand(const struct weir_ptx_inst *inst)
{
    switch (inst->op) {
    case WEIR_PTX_OP_LD:
    case WEIR_PTX_OP_LDU:
    case WEIR_PTX_OP_ATOM:
    case WEIR_PTX_OP_LDMATRIX:
    case WEIR_PTX_OP_TEX:
    case WEIR_PTX_OP_TLD4:
    case WEIR_PTX_OP_TXQ:
    case WEIR_PTX_OP_SULD:
    case WEIR_PTX_OP_SUQ:
        return 1;
    case WEIR_PTX_OP_ST:
    case WEIR_PTX_OP_RED:
    case WEIR_PTX_OP_STMATRIX:
    case WEIR_PTX_OP_SUST:
    case WEIR_PTX_OP_SURED:
    case WEIR_PTX_OP_PREFETCH:
    case WEIR_PTX_OP_PREFETCHU:
    case WEIR_PTX_OP_DISCARD:
    case WEIR_PTX_OP_APPLYPRIORITY:
        return 0;
    default:
        return -1;
    }
}

static bool check_address(const struct check *c)
{
    int i = address_operand(c->inst);

    return i < 0 || c->inst->operands[i].kind == WEIR_PTX_OPERAND_MEM ||
           bad(c, "%s: operand %d is not an address", op_name(c), i);
}

static bool is_pred(const struct check *c, const struct weir_ptx_operand *op)
{
    return op->kind == WEIR_PTX_OPERAND_REG && reg_of(c, op->reg)->type == WEIR_PTX_TYPE_PRED;
}

/* Check that predicates are used where required: setp's results, selp's condition. */
static bool check_preds(const struct check *c)
{
    const struct weir_ptx_inst *inst = c->inst;
    const struct weir_ptx_operand *ops = inst->operands;

    if (inst->op == WEIR_PTX_OP_SETP &&
        ((ops[0].kind == WEIR_PTX_OPERAND_REG && !is_pred(c, &ops[0])) ||
         (ops[0].reg2 != WEIR_PTX_NONE && reg_of(c, ops[0].reg2)->type != WEIR_PTX_TYPE_PRED))) {
        return bad(c, "setp: result is not a predicate");
    }
    if (inst->op == WEIR_PTX_OP_SELP && ops[3].kind == WEIR_PTX_OPERAND_REG &&
        !is_pred(c, &ops[3])) {
        return bad(c, "selp: condition is not a predicate");
    }
    return true;
}

static bool check_widths(const struct check *c)
{
    const struct weir_ptx_inst *inst = c->inst;
    uint32_t flags = weir_ptx_op_info((enum weir_ptx_op)inst->op)->flags;

    /* Mixed precision (add.f32.f16 and the like) names two types. */
    if (!(flags & WEIR_PTX_OPF_SAME) || inst->n_types != 1) {
        return true;
    }
    uint32_t want = weir_ptx_type_bits((enum weir_ptx_type)inst->types[0]);

    for (uint32_t i = 0; i < inst->n_operands; i++) {
        const struct weir_ptx_operand *op = &inst->operands[i];

        WEIR_FAIL_IF(op->kind == WEIR_PTX_OPERAND_REG && reg_of(c, op->reg)->bits != want,
                     bad(c, "%s.%s: operand %u is a register of %u bits", op_name(c),
                         weir_ptx_type_text((enum weir_ptx_type)inst->types[0]), i,
                         reg_of(c, op->reg)->bits));
    }
    return true;
}

static bool check_tables(const struct check *c)
{
    for (uint32_t i = 0; i < c->func->n_tables; i++) {
        const struct weir_ptx_table *table = c->func->tables[i];

        for (uint32_t j = 0; table->kind == WEIR_PTX_TABLE_BRANCH && j < table->n; j++) {
            WEIR_FAIL_IF(table->labels[j] >= c->func->n_labels,
                         bad(c, "branch target %u does not exist", table->labels[j]));
        }
    }
    return true;
}

static bool check_call(const struct check *c)
{
    const struct weir_ptx_operand *ops = c->inst->operands;

    if (c->inst->op == WEIR_PTX_OP_BRX) {
        return (ops[0].kind == WEIR_PTX_OPERAND_REG && ops[1].kind == WEIR_PTX_OPERAND_TABLE &&
                ops[1].table->kind == WEIR_PTX_TABLE_BRANCH) ||
               bad(c, "brx: not an index and a list of branch targets");
    }
    if (c->inst->op == WEIR_PTX_OP_BRA) {
        return ops[0].kind == WEIR_PTX_OPERAND_LABEL || bad(c, "bra: target is not a label");
    }
    if (c->inst->op != WEIR_PTX_OP_CALL) {
        return true;
    }
    WEIR_FAIL_IF(ops[0].kind != WEIR_PTX_OPERAND_LIST || ops[2].kind != WEIR_PTX_OPERAND_LIST,
                 bad(c, "call: operands are not in their places"));
    WEIR_FAIL_IF(ops[1].kind == WEIR_PTX_OPERAND_FUNC && ops[1].func->is_entry,
                 bad(c, "call: '%s' is an entry", ops[1].func->name));
    WEIR_FAIL_IF(c->inst->n_operands == 4 && ops[3].table->kind == WEIR_PTX_TABLE_BRANCH,
                 bad(c, "call: prototype is a list of branch targets"));
    return true;
}

static bool check_inst(const struct check *c)
{
    const struct weir_ptx_inst *inst = c->inst;
    const struct weir_ptx_op_info *info = weir_ptx_op_info((enum weir_ptx_op)inst->op);

    if (inst->op == WEIR_PTX_OP_NONE || inst->op >= WEIR_PTX_OP_COUNT ||
        inst->n_operands < info->min_operands || inst->n_operands > info->max_operands) {
        return bad(c, "%s with %u operands", info->name, inst->n_operands);
    }
    if (inst->guard != WEIR_PTX_NONE &&
        (!check_reg(c, inst->guard) || reg_of(c, inst->guard)->type != WEIR_PTX_TYPE_PRED)) {
        return bad(c, "%s: guard is not a predicate", op_name(c));
    }
    return !WEIR_ANY(i, inst->n_operands, !check_operand(c, &inst->operands[i], 0)) &&
           check_dst(c) && check_address(c) && check_preds(c) && check_widths(c) && check_call(c);
}

/* Check one function with a body. @return false with diag filled */
static bool check_func(const struct weir_ptx_func *func, struct weir_diag *diag)
{
    struct check c = {.func = func, .diag = diag};

    for (uint32_t i = 0; i < func->n_labels; i++) {
        WEIR_FAIL_IF(func->labels[i].inst > func->n_insts,
                     bad(&c, "label '%s' is past the end", func->labels[i].name));
    }
    WEIR_FAIL_IF(!check_tables(&c), false);
    for (uint32_t i = 0; i < func->n_insts; i++) {
        c.inst = &func->insts[i];
        WEIR_FAIL_IF(!check_inst(&c), false);
    }
    return true;
}

enum weir_status weir_ptx_check(const struct weir_ptx_module *module, struct weir_diag *diag)
{
    for (uint32_t i = 0; i < module->n_funcs; i++) {
        WEIR_FAIL_IF(module->funcs[i]->has_body && !check_func(module->funcs[i], diag),
                     WEIR_ERR_SYNTAX);
    }
    return WEIR_OK;
}

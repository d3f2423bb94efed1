/*
 * The printer: IR to PTX text.
 *
 * Registers get names by type and order, %r0 %r1 .. for .b32 and so on, and are declared in one
 * range per type; those that are parameters are %param<id>. Everything else keeps the unique name
 * that the parser gave it. Variables and tables of a body are declared at its top, because its
 * scopes are gone.
 */
#include "ptx/ir.h"
#include "ptx/ptx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define IS_PARAM (UINT32_MAX - 1) /* in reg_index: a register that is a parameter */

struct printer {
    FILE *out;
    const struct weir_ptx_func *func;
    uint32_t *reg_index;   /* number of each register among those of its type */
    uint32_t *first_label; /* first label of each instruction, and of the end; then next_label */
    uint32_t *next_label;
};

static const char *const linkage_text[] = {"", ".visible ", ".extern ", ".weak ", ".common "};

static const char *const reg_prefixes[WEIR_PTX_TYPE_COUNT] = {
    [WEIR_PTX_TYPE_PRED] = "p", [WEIR_PTX_TYPE_B16] = "rs", [WEIR_PTX_TYPE_B32] = "r",
    [WEIR_PTX_TYPE_B64] = "rd", [WEIR_PTX_TYPE_F32] = "f",  [WEIR_PTX_TYPE_F64] = "fd",
};

static void print_reg_prefix(FILE *out, enum weir_ptx_type type)
{
    const char *prefix = reg_prefixes[type];

    if (prefix) {
        fprintf(out, "%%%s", prefix);
    } else {
        fprintf(out, "%%%s_", weir_ptx_type_text(type));
    }
}

static void print_reg(const struct printer *pr, uint32_t reg)
{
    if (pr->reg_index[reg] == IS_PARAM) {
        fprintf(pr->out, "%%param%" PRIu32, reg);
        return;
    }
    print_reg_prefix(pr->out, (enum weir_ptx_type)pr->func->regs[reg].type);
    fprintf(pr->out, "%" PRIu32, pr->reg_index[reg]);
}

static void print_operand(const struct printer *pr, const struct weir_ptx_operand *op);

static void print_elems(const struct printer *pr, const struct weir_ptx_operand *op)
{
    for (uint32_t i = 0; i < op->n_elems; i++) {
        fputs(i ? ", " : "", pr->out);
        print_operand(pr, &op->elems[i]);
    }
}

static void print_offset(FILE *out, int64_t offset)
{
    if (offset) {
        fprintf(out, "+%" PRId64, offset);
    }
}

static void print_mem(const struct printer *pr, const struct weir_ptx_operand *op)
{
    fputc('[', pr->out);
    if (op->base == WEIR_PTX_BASE_REG) {
        print_reg(pr, op->reg);
        print_offset(pr->out, op->offset);
    } else if (op->base == WEIR_PTX_BASE_VAR) {
        fputs(op->var->name, pr->out);
        print_offset(pr->out, op->offset);
    } else {
        fprintf(pr->out, "%" PRIu64, op->bits);
    }
    if (op->n_elems) {
        fputs(", ", pr->out);
        print_elems(pr, op);
    }
    fputs(op->selector ? "].unified" : "]", pr->out);
}

static void print_second(const struct printer *pr, const struct weir_ptx_operand *op)
{
    if (op->reg2 != WEIR_PTX_NONE) {
        fputc('|', pr->out);
        print_reg(pr, op->reg2);
    }
}

static void print_reg_operand(const struct printer *pr, const struct weir_ptx_operand *op)
{
    fputs(op->negated ? "!" : op->minus ? "-" : "", pr->out);
    if (op->kind == WEIR_PTX_OPERAND_SINK) {
        fputc('_', pr->out);
    } else {
        print_reg(pr, op->reg);
    }
    if (op->selector) {
        fprintf(pr->out, ".%s", op->selector);
    }
    print_second(pr, op);
}

static void print_sreg(const struct printer *pr, const struct weir_ptx_operand *op)
{
    fputs(weir_ptx_sreg_text((enum weir_ptx_sreg)op->sreg), pr->out);
    if (op->component != WEIR_PTX_COMPONENT_ALL) {
        fprintf(pr->out, ".%c", "xyzw"[op->component & 3]);
    }
}

static void print_literal(FILE *out, const struct weir_ptx_operand *op)
{
    if (op->kind == WEIR_PTX_OPERAND_FLOAT) {
        fprintf(out, op->float_bits == 32 ? "0f%08" PRIX64 : "0d%016" PRIX64, op->bits);
    } else if (op->is_signed) {
        fprintf(out, "%" PRId64, (int64_t)op->bits);
    } else {
        fprintf(out, "%" PRIu64, op->bits);
    }
}

static void print_operand(const struct printer *pr, const struct weir_ptx_operand *op)
{
    switch ((enum weir_ptx_operand_kind)op->kind) {
    case WEIR_PTX_OPERAND_SINK:
    case WEIR_PTX_OPERAND_REG:
        print_reg_operand(pr, op);
        break;
    case WEIR_PTX_OPERAND_INT:
    case WEIR_PTX_OPERAND_FLOAT:
        print_literal(pr->out, op);
        break;
    case WEIR_PTX_OPERAND_SREG:
        print_sreg(pr, op);
        break;
    case WEIR_PTX_OPERAND_VAR:
        fputs(op->var->name, pr->out);
        print_offset(pr->out, op->offset);
        break;
    case WEIR_PTX_OPERAND_FUNC:
        fputs(op->func->name, pr->out);
        break;
    case WEIR_PTX_OPERAND_MEM:
        print_mem(pr, op);
        break;
    case WEIR_PTX_OPERAND_VECTOR:
    case WEIR_PTX_OPERAND_LIST:
        fputc(op->kind == WEIR_PTX_OPERAND_LIST ? '(' : '{', pr->out);
        print_elems(pr, op);
        fputc(op->kind == WEIR_PTX_OPERAND_LIST ? ')' : '}', pr->out);
        print_second(pr, op);
        break;
    case WEIR_PTX_OPERAND_LABEL:
        fputs(pr->func->labels[op->label].name, pr->out);
        break;
    case WEIR_PTX_OPERAND_TABLE:
        fputs(op->table->name, pr->out);
        break;
    }
}

static void print_mods(FILE *out, const struct weir_ptx_inst *inst)
{
    for (uint32_t i = 0; i < inst->n_mods; i++) {
        if (inst->mods[i] != WEIR_PTX_MOD_SHAPE) {
            fprintf(out, ".%s", weir_ptx_mod_text((enum weir_ptx_mod)inst->mods[i]));
            continue;
        }
        fprintf(out, ".m%un%u", inst->shape.m, inst->shape.n);
        if (inst->shape.k) {
            fprintf(out, "k%u", inst->shape.k);
        }
    }
}

/* Does a call leave out its empty lists of results and arguments? It does unless a table
 * follows. */
static bool is_left_out(const struct weir_ptx_inst *inst, uint32_t i)
{
    return inst->op == WEIR_PTX_OP_CALL && inst->operands[i].n_elems == 0 &&
           (i == 0 || (i == 2 && inst->n_operands == 3));
}

static void print_inst(const struct printer *pr, const struct weir_ptx_inst *inst)
{
    const char *separator = " ";

    fputc('\t', pr->out);
    if (inst->guard != WEIR_PTX_NONE) {
        fputs(inst->guard_negated ? "@!" : "@", pr->out);
        print_reg(pr, inst->guard);
        fputc(' ', pr->out);
    }
    fputs(weir_ptx_op_info((enum weir_ptx_op)inst->op)->name, pr->out);
    print_mods(pr->out, inst);
    for (uint32_t i = 0; i < inst->n_operands; i++) {
        if (!is_left_out(inst, i)) {
            fputs(separator, pr->out);
            print_operand(pr, &inst->operands[i]);
            separator = ", ";
        }
    }
    fputs(";\n", pr->out);
}

static void print_init_symbol(FILE *out, const struct weir_ptx_init *init)
{
    const char *name = init->kind == WEIR_PTX_INIT_VAR ? init->var->name : init->func->name;

    if (init->mask) {
        fprintf(out, "0x%" PRIX64 "(", init->mask);
    }
    fprintf(out, init->generic ? "generic(%s)" : "%s", name);
    print_offset(out, init->offset);
    fputs(init->mask ? ")" : "", out);
}

static void print_init_value(FILE *out, const struct weir_ptx_var *var,
                             const struct weir_ptx_init *init)
{
    uint32_t bits = weir_ptx_type_bits((enum weir_ptx_type)var->type);

    if (init->kind == WEIR_PTX_INIT_VAR || init->kind == WEIR_PTX_INIT_FUNC) {
        print_init_symbol(out, init);
    } else if (init->kind == WEIR_PTX_INIT_FLOAT) {
        fprintf(out, bits == 32 ? "0f%08" PRIX64 : "0d%016" PRIX64, init->bits);
    } else if (weir_ptx_type_class((enum weir_ptx_type)var->type) == 'S' && bits <= 64) {
        fprintf(out, "%" PRId64, (int64_t)(init->bits << (64 - bits)) >> (64 - bits));
    } else {
        fprintf(out, "%" PRIu64, init->bits);
    }
}

/* The number of elements in a brace of a level; a vector is the level after the dimensions. */
static uint64_t stride_of(const struct weir_ptx_var *var, uint32_t level)
{
    uint64_t stride = var->vec;

    if (level > var->n_dims) {
        return 1;
    }
    for (uint32_t i = level; i < var->n_dims; i++) {
        stride *= var->dims[i];
    }
    return stride;
}

/* Print in braces the initialisers of one level of an array: those from *at on whose indices are
 * below base plus the level's stride. */
static void print_init_level(FILE *out, const struct weir_ptx_var *var, uint32_t level,
                             uint64_t base, uint32_t *at)
{
    uint32_t n_levels = var->n_dims + (var->vec > 1);
    uint64_t end = base + stride_of(var, level);
    uint64_t step = stride_of(var, level + 1);
    struct weir_ptx_init zero = {.kind = weir_ptx_type_class((enum weir_ptx_type)var->type) == 'F'
                                             ? WEIR_PTX_INIT_FLOAT
                                             : WEIR_PTX_INIT_INT};

    if (level == n_levels) {
        if (*at < var->n_inits && var->inits[*at].index == base) {
            print_init_value(out, var, &var->inits[(*at)++]);
        } else {
            print_init_value(out, var, &zero);
        }
        return;
    }
    fputc('{', out);
    for (uint64_t pos = base; pos < end; pos += step) {
        fputs(pos == base ? "" : ", ", out);
        print_init_level(out, var, level + 1, pos, at);
        /* Trailing zeros are left out, but the assembler requires complete vectors. */
        if (level < var->n_dims && (*at == var->n_inits || var->inits[*at].index >= end)) {
            break;
        }
    }
    fputc('}', out);
}

static void print_var_name(const struct printer *pr, const struct weir_ptx_var *var)
{
    if (var->reg != WEIR_PTX_NONE && pr->func && pr->func->has_body) {
        print_reg(pr, var->reg);
    } else {
        fputs(var->name, pr->out);
    }
    for (uint32_t i = 0; i < var->n_dims; i++) {
        if (var->unsized && i == 0) {
            fputs("[]", pr->out);
        } else {
            fprintf(pr->out, "[%" PRIu64 "]", var->dims[i]);
        }
    }
}

static void print_attributes(FILE *out, const struct weir_ptx_var *var)
{
    if (!var->managed && !var->unified) {
        return;
    }
    fputs(".attribute(", out);
    fputs(var->managed ? ".managed" : "", out);
    if (var->unified) {
        fprintf(out, "%s.unified(%" PRIu64 ", %" PRIu64 ")", var->managed ? ", " : "",
                var->unified_ids[0], var->unified_ids[1]);
    }
    fputs(") ", out);
}

/* Print a declaration without linkage, initialiser and semicolon. */
static void print_var(const struct printer *pr, const struct weir_ptx_var *var)
{
    FILE *out = pr->out;

    fprintf(out, ".%s ", weir_ptx_space_text((enum weir_ptx_space)var->space));
    print_attributes(out, var);
    if (var->align_given) {
        fprintf(out, ".align %" PRIu32 " ", var->align);
    }
    if (var->vec > 1) {
        fprintf(out, ".v%u ", var->vec);
    }
    fprintf(out, ".%s ", weir_ptx_type_text((enum weir_ptx_type)var->type));
    if (var->ptr) {
        fputs(".ptr ", out);
        if (var->ptr_space) {
            fprintf(out, ".%s ", weir_ptx_space_text((enum weir_ptx_space)var->ptr_space));
        }
        if (var->ptr_align) {
            fprintf(out, ".align %" PRIu32 " ", var->ptr_align);
        }
    }
    print_var_name(pr, var);
}

static void print_var_statement(const struct printer *pr, const struct weir_ptx_var *var,
                                uint8_t linkage)
{
    fputs(linkage_text[linkage % 5], pr->out);
    print_var(pr, var);
    if (var->has_init && linkage != WEIR_PTX_LINKAGE_EXTERN) {
        uint32_t at = 0;

        fputs(" = ", pr->out);
        print_init_level(pr->out, var, 0, 0, &at);
    }
    fputs(";\n", pr->out);
}

static void print_params(const struct printer *pr, struct weir_ptx_var *const *params, uint32_t n)
{
    fputc('(', pr->out);
    for (uint32_t i = 0; i < n; i++) {
        fputs(i ? ",\n\t" : n > 1 ? "\n\t" : "", pr->out);
        print_var(pr, params[i]);
    }
    fputs(n > 1 ? "\n)" : ")", pr->out);
}

static void print_table(const struct printer *pr, const struct weir_ptx_table *table)
{
    fprintf(pr->out, "%s: ", table->name);
    if (table->kind == WEIR_PTX_TABLE_PROTOTYPE) {
        struct printer plain = {.out = pr->out};

        fputs(".callprototype ", pr->out);
        if (table->proto->n_returns) {
            print_params(&plain, table->proto->returns, table->proto->n_returns);
        }
        fputs(" _ ", pr->out);
        print_params(&plain, table->proto->params, table->proto->n_params);
        fputs(table->noreturn ? " .noreturn" : "", pr->out);
    } else {
        bool branch = table->kind == WEIR_PTX_TABLE_BRANCH;

        fputs(branch ? ".branchtargets" : ".calltargets", pr->out);
        for (uint32_t i = 0; i < table->n; i++) {
            fprintf(pr->out, "%s %s", i ? "," : "",
                    branch ? pr->func->labels[table->labels[i]].name : table->funcs[i]->name);
        }
    }
    fputs(";\n", pr->out);
}

static void print_dim3(FILE *out, const char *name, const uint32_t dims[3], uint8_t n)
{
    for (uint8_t i = 0; i < n; i++) {
        if (i == 0) {
            fprintf(out, ".%s %" PRIu32, name, dims[i]);
        } else {
            fprintf(out, ", %" PRIu32, dims[i]);
        }
    }
    fputs(n ? "\n" : "", out);
}

static void print_number(FILE *out, const char *name, uint32_t value, bool has)
{
    if (has) {
        fprintf(out, ".%s %" PRIu32 "\n", name, value);
    }
}

/* Print performance directives. A declaration only has those of its interface. */
static void print_perf(FILE *out, const struct weir_ptx_perf *perf, bool body)
{
    fputs(perf->noreturn ? ".noreturn\n" : "", out);
    print_number(out, "abi_preserve", perf->abi_preserve, perf->has_abi_preserve);
    print_number(out, "abi_preserve_control", perf->abi_preserve_control,
                 perf->has_abi_preserve_control);
    if (!body) {
        return;
    }
    print_dim3(out, "maxntid", perf->maxntid, perf->n_maxntid);
    print_dim3(out, "reqntid", perf->reqntid, perf->n_reqntid);
    print_number(out, "minnctapersm", perf->minnctapersm, perf->has_minnctapersm);
    print_number(out, "maxnctapersm", perf->maxnctapersm, perf->has_maxnctapersm);
    print_number(out, "maxnreg", perf->maxnreg, perf->has_maxnreg);
    fputs(perf->explicitcluster ? ".explicitcluster\n" : "", out);
    print_dim3(out, "reqnctapercluster", perf->reqnctapercluster, perf->n_reqnctapercluster);
    print_number(out, "maxclusterrank", perf->maxclusterrank, perf->has_maxclusterrank);
    fputs(perf->blocksareclusters ? ".blocksareclusters\n" : "", out);
    for (uint32_t i = 0; i < perf->n_pragmas; i++) {
        fprintf(out, ".pragma \"%s\";\n", perf->pragmas[i]);
    }
}

static void print_header(const struct printer *pr, const struct weir_ptx_func *func,
                         uint8_t linkage, bool body)
{
    fprintf(pr->out, "%s%s ", linkage_text[linkage % 5], func->is_entry ? ".entry" : ".func");
    if (func->n_returns) {
        print_params(pr, func->returns, func->n_returns);
        fputc(' ', pr->out);
    }
    fputs(func->name, pr->out);
    print_params(pr, func->params, func->n_params);
    fputs("\n", pr->out);
    print_perf(pr->out, &func->perf, body);
}

static void print_reg_decls(const struct printer *pr, const uint32_t counts[WEIR_PTX_TYPE_COUNT])
{
    for (uint32_t type = 0; type < WEIR_PTX_TYPE_COUNT; type++) {
        if (counts[type]) {
            fprintf(pr->out, "\t.reg .%s ", weir_ptx_type_text((enum weir_ptx_type)type));
            print_reg_prefix(pr->out, (enum weir_ptx_type)type);
            fprintf(pr->out, "<%" PRIu32 ">;\n", counts[type]);
        }
    }
}

static void print_body(const struct printer *pr, const uint32_t counts[WEIR_PTX_TYPE_COUNT])
{
    const struct weir_ptx_func *func = pr->func;
    uint32_t note = 0;

    fputs("{\n", pr->out);
    print_reg_decls(pr, counts);
    for (uint32_t i = 0; i < func->n_vars; i++) {
        fputc('\t', pr->out);
        print_var_statement(pr, func->vars[i], func->vars[i]->linkage);
    }
    for (uint32_t i = 0; i < func->n_tables; i++) {
        print_table(pr, func->tables[i]);
    }
    for (uint32_t i = 0; i <= func->n_insts; i++) {
        for (uint32_t l = pr->first_label[i]; l != WEIR_PTX_NONE; l = pr->next_label[l]) {
            fprintf(pr->out, "%s:\n", func->labels[l].name);
        }
        for (; note < func->n_notes && func->notes[note].before_inst <= i; note++) {
            fprintf(pr->out, "\t%s\n", func->notes[note].text);
        }
        if (i < func->n_insts) {
            print_inst(pr, &func->insts[i]);
        }
    }
    fputs("}\n", pr->out);
}

static void number_regs(const struct printer *pr, uint32_t counts[WEIR_PTX_TYPE_COUNT])
{
    const struct weir_ptx_func *func = pr->func;

    memset(counts, 0, WEIR_PTX_TYPE_COUNT * sizeof(*counts));
    memset(pr->reg_index, 0, func->n_regs * sizeof(*pr->reg_index));
    for (uint32_t i = 0; i < func->n_params; i++) {
        if (func->params[i]->reg < func->n_regs) {
            pr->reg_index[func->params[i]->reg] = IS_PARAM;
        }
    }
    for (uint32_t i = 0; i < func->n_returns; i++) {
        if (func->returns[i]->reg < func->n_regs) {
            pr->reg_index[func->returns[i]->reg] = IS_PARAM;
        }
    }
    for (uint32_t i = 0; i < func->n_regs; i++) {
        if (pr->reg_index[i] != IS_PARAM) {
            pr->reg_index[i] = counts[func->regs[i].type]++;
        }
    }
}

/* Link the labels of each instruction in a list, in the order of the label table. */
static void chain_labels(const struct printer *pr)
{
    const struct weir_ptx_func *func = pr->func;

    memset(pr->first_label, 0xff, (func->n_insts + 1) * sizeof(*pr->first_label));
    for (uint32_t l = func->n_labels; l-- > 0;) {
        pr->next_label[l] = pr->first_label[func->labels[l].inst];
        pr->first_label[func->labels[l].inst] = l;
    }
}

static enum weir_status print_func(FILE *out, const struct weir_ptx_func *func, uint8_t linkage)
{
    struct printer pr = {.out = out, .func = func};
    uint32_t counts[WEIR_PTX_TYPE_COUNT];
    enum weir_status status = WEIR_ERR_NO_MEMORY;

    pr.reg_index = calloc(func->n_regs + 1, sizeof(*pr.reg_index));
    pr.first_label = calloc(func->n_insts + 1, sizeof(*pr.first_label));
    pr.next_label = calloc(func->n_labels + 1, sizeof(*pr.next_label));
    if (pr.reg_index && pr.first_label && pr.next_label) {
        number_regs(&pr, counts);
        chain_labels(&pr);
        print_header(&pr, func, linkage, true);
        print_body(&pr, counts);
        status = WEIR_OK;
    }
    free(pr.reg_index);
    free(pr.first_label);
    free(pr.next_label);
    return status;
}

static void print_decl(FILE *out, const struct weir_ptx_func *func, uint8_t linkage)
{
    struct printer pr = {.out = out};

    print_header(&pr, func, linkage, false);
    fputs(";\n", out);
}

static void print_module_header(FILE *out, const struct weir_ptx_module *module)
{
    fprintf(out, ".version %u.%u\n.target sm_%u", module->version_major, module->version_minor,
            module->sm);
    if (module->sm_suffix) {
        fputc(module->sm_suffix, out);
    }
    fputs(module->texmode_unified ? ", texmode_unified" : "", out);
    fputs(module->texmode_independent ? ", texmode_independent" : "", out);
    fputs(module->map_f64_to_f32 ? ", map_f64_to_f32" : "", out);
    fputs(module->target_debug ? ", debug" : "", out);
    fprintf(out, "\n.address_size %u\n\n", module->address_size);
}

static enum weir_status print_item(FILE *out, const struct weir_ptx_item *item)
{
    struct printer pr = {.out = out};

    switch ((enum weir_ptx_item_kind)item->kind) {
    case WEIR_PTX_ITEM_VAR:
        print_var_statement(&pr, item->var, item->linkage);
        break;
    case WEIR_PTX_ITEM_FUNC_DECL:
        print_decl(out, item->func, item->linkage);
        break;
    case WEIR_PTX_ITEM_FUNC:
        return print_func(out, item->func, item->linkage);
    case WEIR_PTX_ITEM_ALIAS:
        fprintf(out, ".alias %s, %s;\n", item->func->name, item->func->alias_of->name);
        break;
    case WEIR_PTX_ITEM_TEXT:
        fprintf(out, "%s\n", item->text);
        break;
    }
    return WEIR_OK;
}

static enum weir_status print_module(const struct weir_ptx_module *module, FILE *out)
{
    enum weir_status status = WEIR_OK;

    print_module_header(out, module);
    for (uint32_t i = 0; i < module->n_items && status == WEIR_OK; i++) {
        status = print_item(out, &module->items[i]);
    }
    return status == WEIR_OK && ferror(out) ? WEIR_ERR_IO : status;
}

enum weir_status weir_ptx_print_buffer(const struct weir_ptx_module *module, char **ret_text,
                                       size_t *ret_len_bytes)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    WEIR_FAIL_IF(!out, WEIR_ERR_NO_MEMORY);
    enum weir_status status = print_module(module, out);
    /* Only growing the buffer can fail. */
    if (fclose(out) != 0 || status != WEIR_OK) {
        free(text);
        return WEIR_ERR_NO_MEMORY;
    }
    *ret_text = text;
    WEIR_GIVE(ret_len_bytes, len);
    return WEIR_OK;
}

/*
 * Binds variables: in a module of twins, a .global variable stands for the original's.
 *
 * A register replaces the variable's address. It is loaded from a .const table, which the module's
 * loader fills. The table is constant while kernels run, and a load from it costs as much as an
 * immediate, so each use loads the address again.
 */
#include "ptx/twin/editor.h"

#include <string.h>

struct binding {
    struct weir_ptx_module *module;
    uint32_t *place; /* each variable's index in the table plus one; 0: not bound */
    uint32_t n;
};

static bool is_bound(const struct weir_ptx_operand *op)
{
    return (op->kind == WEIR_PTX_OPERAND_VAR ||
            (op->kind == WEIR_PTX_OPERAND_MEM && op->base == WEIR_PTX_BASE_VAR)) &&
           op->var->space == WEIR_PTX_SPACE_GLOBAL;
}

static bool has_bound(const struct weir_ptx_operand *ops, uint32_t n)
{
    return WEIR_ANY(i, n, is_bound(&ops[i]) || has_bound(ops[i].elems, ops[i].n_elems));
}

static bool needs_add(const struct weir_ptx_operand *op)
{
    return op->kind == WEIR_PTX_OPERAND_VAR ? op->offset != 0
                                            : op->offset < INT32_MIN || op->offset > INT32_MAX;
}

static void replace(struct weir_ptx_edit *edit, const struct binding *b,
                    struct weir_ptx_operand *op)
{
    bool add = needs_add(op);
    uint32_t reg = weir_ptx_edit_reg(edit, "%bound", WEIR_PTX_TYPE_B64);

    weir_ptx_edit_text(edit, "ld.const.b64 %%bound, [" WEIR_PTX_BINDS_NAME "+%u];\n",
                       8 * (b->place[op->var->id] - 1));
    if (add) {
        weir_ptx_edit_text(edit, "add.s64 %%bound, %%bound, %lld;\n", (long long)op->offset);
        op->offset = 0;
    }
    if (op->kind == WEIR_PTX_OPERAND_VAR) {
        *op = (struct weir_ptx_operand){
            .kind = WEIR_PTX_OPERAND_REG, .reg = reg, .reg2 = WEIR_PTX_NONE};
    } else {
        op->base = WEIR_PTX_BASE_REG;
        op->reg = reg;
        op->var = NULL;
    }
}

/* A copy of operands with registers for variables; NULL: no memory. */
static struct weir_ptx_operand *bound_operands(struct weir_ptx_edit *edit, const struct binding *b,
                                               const struct weir_ptx_operand *from, uint32_t n)
{
    struct weir_ptx_operand *ops = weir_ptx_alloc(b->module, (n + !n) * sizeof(*ops));

    for (uint32_t i = 0; ops && i < n; i++) {
        ops[i] = from[i];
        if (from[i].n_elems) {
            ops[i].elems = bound_operands(edit, b, from[i].elems, from[i].n_elems);
            WEIR_FAIL_IF(!ops[i].elems, NULL);
        }
        if (is_bound(&ops[i])) {
            replace(edit, b, &ops[i]);
        }
    }
    return ops;
}

static enum weir_status bind_func(struct weir_ptx_twin *twin, const struct binding *b,
                                  struct weir_ptx_func *func)
{
    struct weir_ptx_edit edit;

    weir_ptx_edit_begin(&edit, twin, func);
    for (uint32_t i = 0; i < func->n_insts && edit.status == WEIR_OK; i++) {
        struct weir_ptx_inst inst = func->insts[i];

        weir_ptx_edit_mark(&edit, i);
        if (has_bound(inst.operands, inst.n_operands)) {
            inst.operands = bound_operands(&edit, b, inst.operands, inst.n_operands);
        }
        if (!inst.operands && inst.n_operands) {
            edit.status = WEIR_ERR_NO_MEMORY;
        } else {
            weir_ptx_edit_add(&edit, &inst);
        }
    }
    weir_ptx_edit_mark(&edit, func->n_insts);
    return weir_ptx_edit_finish(&edit);
}

static struct weir_ptx_var *make_table(struct weir_ptx_module *module, uint32_t n)
{
    struct weir_ptx_var var = {
        .name = WEIR_PTX_BINDS_NAME,
        .space = WEIR_PTX_SPACE_CONST,
        .type = WEIR_PTX_TYPE_B64,
        .linkage = WEIR_PTX_LINKAGE_VISIBLE,
        .vec = 1,
        .n_dims = 1,
        .align = 8,
        .align_given = true,
        .dims = {n},
        .size_bytes = 8ull * n,
        .reg = WEIR_PTX_NONE,
    };

    return weir_ptx_add_var(module, &var);
}

/* Names of the variables to bind, in the order of the table. */
static const char **name_bound(struct binding *b)
{
    struct weir_ptx_module *module = b->module;
    const char **names = weir_ptx_alloc(module, (module->n_vars + 1u) * sizeof(char *));

    b->place = weir_ptx_alloc(module, (module->n_vars + 1u) * sizeof(*b->place));
    for (uint32_t i = 0; names && b->place && i < module->n_vars; i++) {
        if (module->vars[i]->space == WEIR_PTX_SPACE_GLOBAL) {
            names[b->n++] = module->vars[i]->name;
            b->place[i] = b->n;
        }
    }
    return b->place ? names : NULL;
}

enum weir_status weir_ptx_bind(struct weir_ptx_module *module, const char *const **ret_names,
                               uint32_t *ret_n)
{
    struct binding b = {.module = module};
    struct weir_ptx_twin twin = {.module = module};
    enum weir_status status = WEIR_OK;
    const char **names = name_bound(&b);

    WEIR_FAIL_IF(!names, WEIR_ERR_NO_MEMORY);
    if (b.n) {
        twin.binds = make_table(module, b.n);
        status = twin.binds ? WEIR_OK : WEIR_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; b.n && i < module->n_funcs && status == WEIR_OK; i++) {
        status = bind_func(&twin, &b, module->funcs[i]);
    }
    *ret_names = names;
    *ret_n = b.n;
    return status;
}

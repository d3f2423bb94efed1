/* Removes what a module's twins do not need: originals, and functions and variables that they do
 * not reach. */
#include "ptx/twin/editor.h"

#include <stdlib.h>

struct strip {
    struct weir_ptx_module *module;
    bool *func_used; /* used functions, by id */
    bool *var_used;
    struct weir_ptx_func **work; /* used functions whose bodies have not been examined yet */
    uint32_t n_work;
};

static void use_func(struct strip *s, struct weir_ptx_func *func)
{
    if (!s->func_used[func->id]) {
        s->func_used[func->id] = true;
        s->work[s->n_work++] = func;
    }
    if (func->is_alias && func->alias_of) {
        use_func(s, func->alias_of); /* the target is no alias itself */
    }
}

/* Initialisers are not searched for names: a module of twins has none. */
static void use_var(struct strip *s, const struct weir_ptx_var *var)
{
    if (!var->func) {
        s->var_used[var->id] = true;
    }
}

static void use_operands(struct strip *s, const struct weir_ptx_operand *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ops[i].kind == WEIR_PTX_OPERAND_FUNC) {
            use_func(s, ops[i].func);
        } else if (ops[i].kind == WEIR_PTX_OPERAND_VAR ||
                   (ops[i].kind == WEIR_PTX_OPERAND_MEM && ops[i].base == WEIR_PTX_BASE_VAR)) {
            use_var(s, ops[i].var);
        } else if (ops[i].kind == WEIR_PTX_OPERAND_TABLE &&
                   ops[i].table->kind == WEIR_PTX_TABLE_CALL) {
            for (uint32_t j = 0; j < ops[i].table->n; j++) {
                use_func(s, ops[i].table->funcs[j]);
            }
        }
        use_operands(s, ops[i].elems, ops[i].n_elems);
    }
}

static void use_bodies(struct strip *s)
{
    while (s->n_work) {
        const struct weir_ptx_func *func = s->work[--s->n_work];

        for (uint32_t i = 0; i < func->n_insts; i++) {
            use_operands(s, func->insts[i].operands, func->insts[i].n_operands);
        }
    }
}

static bool keeps(const struct strip *s, const struct weir_ptx_item *item)
{
    switch ((enum weir_ptx_item_kind)item->kind) {
    case WEIR_PTX_ITEM_VAR:
        return s->var_used[item->var->id];
    case WEIR_PTX_ITEM_FUNC_DECL:
    case WEIR_PTX_ITEM_FUNC:
    case WEIR_PTX_ITEM_ALIAS:
        return s->func_used[item->func->id];
    case WEIR_PTX_ITEM_TEXT:
        break;
    }
    return true;
}

/* Remove unused elements from the module's arrays, and renumber the rest. */
static void shrink(struct strip *s)
{
    struct weir_ptx_module *module = s->module;
    uint32_t n_items = 0, n_funcs = 0, n_vars = 0;

    for (uint32_t i = 0; i < module->n_items; i++) {
        if (keeps(s, &module->items[i])) {
            module->items[n_items++] = module->items[i];
        }
    }
    for (uint32_t i = 0; i < module->n_funcs; i++) {
        if (s->func_used[i]) {
            module->funcs[n_funcs] = module->funcs[i];
            module->funcs[n_funcs]->id = n_funcs;
            n_funcs++;
        }
    }
    for (uint32_t i = 0; i < module->n_vars; i++) {
        if (s->var_used[i]) {
            module->vars[n_vars] = module->vars[i];
            module->vars[n_vars]->id = n_vars;
            n_vars++;
        }
    }
    module->n_items = n_items;
    module->n_funcs = n_funcs;
    module->n_vars = n_vars;
}

enum weir_status weir_ptx_strip(struct weir_ptx_module *module)
{
    struct strip s = {.module = module};
    enum weir_status status = WEIR_ERR_NO_MEMORY;

    s.func_used = calloc(module->n_funcs + 1u, sizeof(*s.func_used));
    s.var_used = calloc(module->n_vars + 1u, sizeof(*s.var_used));
    s.work = calloc(module->n_funcs + 1u, sizeof(struct weir_ptx_func *));
    if (s.func_used && s.var_used && s.work) {
        for (uint32_t i = 0; i < module->n_funcs; i++) {
            if (module->funcs[i]->is_entry && weir_ptx_is_twin(module->funcs[i])) {
                use_func(&s, module->funcs[i]);
            }
        }
        use_bodies(&s);
        shrink(&s);
        status = WEIR_OK;
    }
    free(s.func_used);
    free(s.var_used);
    free(s.work);
    return status;
}

void weir_ptx_drop_globals(struct weir_ptx_module *module)
{
    uint32_t n_items = 0, n_vars = 0;

    for (uint32_t i = 0; i < module->n_items; i++) {
        if (module->items[i].kind != WEIR_PTX_ITEM_VAR ||
            module->items[i].var->space != WEIR_PTX_SPACE_GLOBAL) {
            module->items[n_items++] = module->items[i];
        }
    }
    for (uint32_t i = 0; i < module->n_vars; i++) {
        if (module->vars[i]->space != WEIR_PTX_SPACE_GLOBAL) {
            module->vars[n_vars] = module->vars[i];
            module->vars[n_vars]->id = n_vars;
            n_vars++;
        }
    }
    module->n_items = n_items;
    module->n_vars = n_vars;
}

void weir_ptx_define_consts(struct weir_ptx_module *module)
{
    uint32_t n_items = 0;

    for (uint32_t i = 0; i < module->n_items; i++) {
        struct weir_ptx_item *item = &module->items[i];

        if (item->kind == WEIR_PTX_ITEM_VAR && item->var->space == WEIR_PTX_SPACE_CONST) {
            if (item->var->user) {
                continue; /* the function was declared before */
            }
            item->var->user = item->var;
            item->var->linkage = WEIR_PTX_LINKAGE_VISIBLE;
            item->var->has_init = false;
            item->var->n_inits = 0;
            item->linkage = WEIR_PTX_LINKAGE_VISIBLE;
            item->is_decl = false;
        }
        module->items[n_items++] = *item;
    }
    module->n_items = n_items;
    for (uint32_t i = 0; i < module->n_vars; i++) {
        module->vars[i]->user = NULL;
    }
}

/* Copies functions, and adds a twin's parameter and shared variables to its module. */
#include "ptx/twin/editor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

char *weir_ptx_pass_text(struct weir_ptx_module *module, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = len < 0 ? NULL : weir_ptx_alloc(module, (size_t)len + 1);

    if (text) {
        va_start(args, fmt);
        vsnprintf(text, (size_t)len + 1, fmt, args);
        va_end(args);
    }
    return text;
}

/* Insert into an arena array of n elements at a place; returns the new array or NULL. */
static void *insert(struct weir_ptx_module *module, const void *data, uint32_t n, uint32_t at,
                    const void *elem, size_t bytes)
{
    char *bigger = weir_ptx_alloc(module, (n + 1) * bytes);

    if (bigger) {
        if (at) {
            memcpy(bigger, data, at * bytes);
        }
        memcpy(bigger + at * bytes, elem, bytes);
        if (n > at) {
            memcpy(bigger + (at + 1) * bytes, (const char *)data + at * bytes, (n - at) * bytes);
        }
    }
    return bigger;
}

/* Insert an element and keep spare room in the array, so that many insertions take
 * linear memory. */
static bool insert_into(struct weir_ptx_module *module, void *array, uint32_t *n, uint32_t *cap,
                        uint32_t at, const void *elem, size_t bytes)
{
    char *data;

    memcpy(&data, array, sizeof(data));
    if (*n >= *cap) {
        uint32_t room = *n * 2 + 16;
        char *bigger = weir_ptx_alloc(module, room * bytes);

        WEIR_FAIL_IF(!bigger, false);
        if (*n) {
            memcpy(bigger, data, *n * bytes);
        }
        memcpy(array, &bigger, sizeof(bigger));
        data = bigger;
        *cap = room;
    }
    memmove(data + (at + 1) * bytes, data + at * bytes, (*n - at) * bytes);
    memcpy(data + at * bytes, elem, bytes);
    (*n)++;
    return true;
}

static bool add_item(struct weir_ptx_module *module, uint32_t at, const struct weir_ptx_item *item)
{
    return insert_into(module, &module->items, &module->n_items, &module->cap_items, at, item,
                       sizeof(*item));
}

/* Append a variable, which gets the next id. */
static bool list_var(struct weir_ptx_module *module, struct weir_ptx_var *var)
{
    var->id = module->n_vars;
    return insert_into(module, &module->vars, &module->n_vars, &module->cap_vars, module->n_vars,
                       &var, sizeof(var));
}

static bool list_func(struct weir_ptx_module *module, struct weir_ptx_func *func)
{
    func->id = module->n_funcs;
    return insert_into(module, &module->funcs, &module->n_funcs, &module->cap_funcs,
                       module->n_funcs, &func, sizeof(func));
}

static uint32_t item_of(const struct weir_ptx_module *module, const struct weir_ptx_func *func)
{
    uint32_t i = 0;

    while (i < module->n_items &&
           !(module->items[i].kind == WEIR_PTX_ITEM_FUNC && module->items[i].func == func)) {
        i++;
    }
    return i;
}

/* Does a body's variable outlive the thread block? Then original and copy must share it. */
static bool is_static(const struct weir_ptx_var *var)
{
    return var->space == WEIR_PTX_SPACE_GLOBAL || var->space == WEIR_PTX_SPACE_CONST;
}

bool weir_ptx_func_has_static(const struct weir_ptx_func *func)
{
    return WEIR_ANY(i, func->n_vars, is_static(func->vars[i]));
}

/* Move such variables of a function to module level, before the function. */
static enum weir_status hoist(struct weir_ptx_module *module, struct weir_ptx_func *func)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < func->n_vars; i++) {
        struct weir_ptx_var *var = func->vars[i];

        if (!is_static(var)) {
            var->id = kept;
            func->vars[kept++] = var;
            continue;
        }
        struct weir_ptx_item item = {.kind = WEIR_PTX_ITEM_VAR, .var = var};
        const char *name = weir_ptx_pass_text(module, "%s$%s", func->name, var->name);

        if (!name || !add_item(module, item_of(module, func), &item) || !list_var(module, var)) {
            return WEIR_ERR_NO_MEMORY;
        }
        var->name = name;
        var->func = NULL;
    }
    func->n_vars = kept;
    return WEIR_OK;
}

static bool copy_vars(struct weir_ptx_module *module, struct weir_ptx_func *to,
                      struct weir_ptx_var ***list, uint32_t n)
{
    struct weir_ptx_var **vars = weir_ptx_alloc(module, (n + !n) * sizeof(*vars));

    for (uint32_t i = 0; vars && i < n; i++) {
        vars[i] = weir_ptx_alloc(module, sizeof(**vars));
        WEIR_FAIL_IF(!vars[i], false);
        *vars[i] = *(*list)[i];
        vars[i]->func = to;
        (*list)[i]->user = vars[i];
    }
    *list = vars;
    return vars != NULL;
}

static void clear_users(const struct weir_ptx_func *func)
{
    for (uint32_t i = 0; i < func->n_vars; i++) {
        func->vars[i]->user = NULL;
    }
    for (uint32_t i = 0; i < func->n_params; i++) {
        func->params[i]->user = NULL;
    }
    for (uint32_t i = 0; i < func->n_returns; i++) {
        func->returns[i]->user = NULL;
    }
}

static struct weir_ptx_table *new_table(const struct weir_ptx_func *from, struct weir_ptx_func *to,
                                        const struct weir_ptx_table *table)
{
    uint32_t at = WEIR_FIRST(i, from->n_tables, from->tables[i] == table);
    return at < from->n_tables ? to->tables[at] : NULL;
}

static struct weir_ptx_operand *copy_operands(struct weir_ptx_module *module,
                                              const struct weir_ptx_func *old,
                                              struct weir_ptx_func *to,
                                              const struct weir_ptx_operand *from, uint32_t n)
{
    struct weir_ptx_operand *ops = weir_ptx_alloc(module, (n + !n) * sizeof(*ops));

    for (uint32_t i = 0; ops && i < n; i++) {
        ops[i] = from[i];
        if ((from[i].kind == WEIR_PTX_OPERAND_VAR ||
             (from[i].kind == WEIR_PTX_OPERAND_MEM && from[i].base == WEIR_PTX_BASE_VAR)) &&
            from[i].var->user) {
            ops[i].var = from[i].var->user;
        } else if (from[i].kind == WEIR_PTX_OPERAND_TABLE) {
            ops[i].table = new_table(old, to, from[i].table);
        }
        if (from[i].n_elems) {
            ops[i].elems = copy_operands(module, old, to, from[i].elems, from[i].n_elems);
            WEIR_FAIL_IF(!ops[i].elems, NULL);
        }
    }
    return ops;
}

static bool copy_tables(struct weir_ptx_module *module, const struct weir_ptx_func *from,
                        struct weir_ptx_func *to)
{
    to->tables = weir_ptx_alloc(module, (from->n_tables + 1u) * sizeof(struct weir_ptx_table *));
    for (uint32_t i = 0; to->tables && i < from->n_tables; i++) {
        to->tables[i] = weir_ptx_alloc(module, sizeof(*to->tables[i]));
        WEIR_FAIL_IF(!to->tables[i], false);
        *to->tables[i] = *from->tables[i];
    }
    return to->tables != NULL;
}

static bool copy_body(struct weir_ptx_module *module, const struct weir_ptx_func *from,
                      struct weir_ptx_func *to)
{
    to->insts = weir_ptx_alloc(module, (from->n_insts + 1u) * sizeof(*to->insts));
    to->notes = weir_ptx_alloc(module, (from->n_notes + 1u) * sizeof(*to->notes));
    WEIR_FAIL_IF(!to->insts || !to->notes || !copy_tables(module, from, to), false);
    if (from->n_notes) {
        memcpy(to->notes, from->notes, from->n_notes * sizeof(*to->notes));
    }
    for (uint32_t i = 0; i < from->n_insts; i++) {
        to->insts[i] = from->insts[i];
        to->insts[i].operands =
            copy_operands(module, from, to, from->insts[i].operands, from->insts[i].n_operands);
        WEIR_FAIL_IF(!to->insts[i].operands, false);
    }
    return true;
}

/* If a function is declared before its body, declare its copy, too. */
static enum weir_status declare_beside(struct weir_ptx_module *module,
                                       const struct weir_ptx_func *func,
                                       struct weir_ptx_func *clone)
{
    struct weir_ptx_item item = {.kind = WEIR_PTX_ITEM_FUNC_DECL, .func = clone};

    uint32_t at = WEIR_FIRST(i, module->n_items,
                             module->items[i].kind == WEIR_PTX_ITEM_FUNC_DECL &&
                                 module->items[i].func == func);
    return at < module->n_items ? add_item(module, at, &item) ? WEIR_OK : WEIR_ERR_NO_MEMORY
                                : WEIR_OK;
}

enum weir_status weir_ptx_clone(struct weir_ptx_module *module, struct weir_ptx_func *func,
                                const char *name, struct weir_ptx_func **ret_clone)
{
    struct weir_ptx_func *clone = weir_ptx_alloc(module, sizeof(*clone));

    WEIR_FAIL_IF(!clone || hoist(module, func) != WEIR_OK, WEIR_ERR_NO_MEMORY);
    *clone = *func;
    clone->name = name;
    clone->user = NULL;
    if (!func->is_entry) {
        clone->linkage = WEIR_PTX_LINKAGE_NONE;
    }
    bool ok = copy_vars(module, clone, &clone->params, clone->n_params) &&
              copy_vars(module, clone, &clone->returns, clone->n_returns) &&
              copy_vars(module, clone, &clone->vars, clone->n_vars) &&
              copy_body(module, func, clone);

    clear_users(func);
    struct weir_ptx_item item = {
        .kind = WEIR_PTX_ITEM_FUNC, .linkage = clone->linkage, .func = clone};

    if (!ok || !add_item(module, item_of(module, func) + 1, &item) || !list_func(module, clone)) {
        return WEIR_ERR_NO_MEMORY;
    }
    *ret_clone = clone;
    return func->is_entry ? WEIR_OK : declare_beside(module, func, clone);
}

enum weir_status weir_ptx_add_args(struct weir_ptx_module *module, struct weir_ptx_func *entry,
                                   struct weir_ptx_var **ret_args)
{
    struct weir_ptx_var *args = weir_ptx_alloc(module, sizeof(*args));

    WEIR_FAIL_IF(!args, WEIR_ERR_NO_MEMORY);
    *args = (struct weir_ptx_var){
        .name = WEIR_PTX_ARGS_NAME,
        .id = entry->n_params,
        .space = WEIR_PTX_SPACE_PARAM,
        .type = WEIR_PTX_TYPE_B8,
        .vec = 1,
        .n_dims = 1,
        .is_param = true,
        .align = 8,
        .align_given = true,
        .dims = {sizeof(struct weir_ptx_form_args)},
        .size_bytes = sizeof(struct weir_ptx_form_args),
        .offset_bytes = (entry->params_size_bytes + 7) & ~7ull,
        .reg = WEIR_PTX_NONE,
        .func = entry,
        .line = entry->line,
    };
    struct weir_ptx_var **params =
        insert(module, entry->params, entry->n_params, entry->n_params, &args, sizeof(args));

    WEIR_FAIL_IF(!params, WEIR_ERR_NO_MEMORY);
    entry->params = params;
    entry->n_params++;
    entry->params_size_bytes = args->offset_bytes + args->size_bytes;
    *ret_args = args;
    return WEIR_OK;
}

bool weir_ptx_is_twin(const struct weir_ptx_func *entry)
{
    return entry->n_params > 0 &&
           strcmp(entry->params[entry->n_params - 1]->name, WEIR_PTX_ARGS_NAME) == 0;
}

struct weir_ptx_var *weir_ptx_add_var(struct weir_ptx_module *module,
                                      const struct weir_ptx_var *from)
{
    struct weir_ptx_var *var = weir_ptx_alloc(module, sizeof(*var));
    struct weir_ptx_item item = {.kind = WEIR_PTX_ITEM_VAR,
                                 .var = var,
                                 .linkage = from->linkage,
                                 .is_decl = from->linkage == WEIR_PTX_LINKAGE_EXTERN};

    WEIR_FAIL_IF(!var, NULL);
    *var = *from;
    return add_item(module, 0, &item) && list_var(module, var) ? var : NULL;
}

enum weir_status weir_ptx_shared_var(struct weir_ptx_module *module, const char *name,
                                     uint32_t bytes, struct weir_ptx_var **ret_var)
{
    struct weir_ptx_var *found = weir_ptx_find_var(module, name);
    struct weir_ptx_var var = {
        .name = name,
        .space = WEIR_PTX_SPACE_SHARED,
        .type = WEIR_PTX_TYPE_B8,
        .linkage = bytes ? WEIR_PTX_LINKAGE_NONE : WEIR_PTX_LINKAGE_EXTERN,
        .vec = 1,
        .n_dims = 1,
        .unsized = bytes == 0,
        .align = WEIR_PTX_SLOT_ALIGN,
        .align_given = true,
        .dims = {bytes},
        .size_bytes = bytes,
        .reg = WEIR_PTX_NONE,
    };

    if (!found) {
        found = weir_ptx_add_var(module, &var);
    }
    *ret_var = found;
    return found ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

struct weir_ptx_func *weir_ptx_add_entry(struct weir_ptx_module *module, const char *name)
{
    struct weir_ptx_func *func = weir_ptx_alloc(module, sizeof(*func));
    struct weir_ptx_item item = {
        .kind = WEIR_PTX_ITEM_FUNC, .linkage = WEIR_PTX_LINKAGE_VISIBLE, .func = func};

    WEIR_FAIL_IF(!func, NULL);
    *func = (struct weir_ptx_func){
        .name = name, .is_entry = true, .has_body = true, .linkage = WEIR_PTX_LINKAGE_VISIBLE};
    return add_item(module, module->n_items, &item) && list_func(module, func) ? func : NULL;
}

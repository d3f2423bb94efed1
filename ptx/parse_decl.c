/*
 * Declarations: variables, parameters, registers.
 *
 * In real PTX a variable's qualifiers come in almost any order, so all are read into one struct
 * until another token comes. Registers get their ids at first use (parse_inst.c), except those that
 * are parameters.
 */
#include "ptx/parse.h"

#include <assert.h>
#include <string.h>

#define MAX_ALIGN (1u << 30)
#define MAX_RANGE (1u << 28) /* registers of one .reg name<count> */

struct qualifiers {
    uint8_t space;
    uint8_t type;
    uint8_t vec;
    bool managed;
    bool unified;
    bool ptr;
    uint8_t ptr_space;
    bool align_given;
    uint32_t align;
    uint32_t ptr_align;
    uint64_t unified_ids[2];
};

static enum weir_ptx_space space_of(const struct weir_ptx_token *tok)
{
    struct weir_ptx_shape shape;
    enum weir_ptx_mod mod = tok->kind == WEIR_PTX_TOKEN_DOT
                                ? weir_ptx_mod_from_text(tok->text, tok->len, &shape)
                                : WEIR_PTX_MOD_NONE;

    return weir_ptx_mod_is_space(mod) ? (enum weir_ptx_space)(mod - WEIR_PTX_MOD_SPACE)
                                      : WEIR_PTX_SPACE_NONE;
}

bool weir_ptx_at_space(const struct weir_ptx_parser *p)
{
    return space_of(&p->tok) != WEIR_PTX_SPACE_NONE;
}

bool weir_ptx_check_new_name(struct weir_ptx_parser *p, const struct weir_ptx_token *name)
{
    WEIR_FAIL_IF(name->kind != WEIR_PTX_TOKEN_IDENT,
                 weir_ptx_fail(p, name, WEIR_ERR_SYNTAX, "expected a name"));
    struct weir_ptx_name *found = weir_ptx_names_find(&p->names, name->text, name->len, false);
    WEIR_FAIL_IF(found && found->depth == p->names.depth,
                 weir_ptx_fail(p, name, WEIR_ERR_SYNTAX, "'%.*s' is declared twice",
                               name->len > 60 ? 60 : (int)name->len, name->text));
    return true;
}

const char *weir_ptx_unique_name(struct weir_ptx_parser *p, const char *text, size_t len)
{
    /* Only registers get names with a % from the printer. */
    while (len && (*text == '%' || (*text >= '0' && *text <= '9'))) {
        text++;
        len--;
    }
    if (len == 0) {
        text = "v";
        len = 1;
    }
    size_t room = len + 16;
    const char *name = weir_ptx_keep_text(p, text, len);
    while (name && (weir_ptx_names_find(&p->printed, name, strlen(name), false) ||
                    weir_ptx_names_find(&p->names, name, strlen(name), false))) {
        char *fresh = weir_ptx_new(p, room);

        if (fresh) {
            snprintf(fresh, room, "%.*s$%u", (int)len, text, p->next_suffix++);
        }
        name = fresh;
    }
    if (name && !weir_ptx_names_add(&p->printed, name, strlen(name), WEIR_PTX_NAME_MARK)) {
        weir_ptx_fail_memory(p);
        return NULL;
    }
    return name;
}

uint32_t weir_ptx_new_reg(struct weir_ptx_parser *p, const char *name, size_t len,
                          enum weir_ptx_type type, uint32_t line)
{
    const char *kept = weir_ptx_keep_text(p, name, len);
    struct weir_ptx_reg *reg = kept ? weir_ptx_push(p, &p->regs, sizeof(*reg), WEIR_PTX_MAX_REGS,
                                                    "registers in a function")
                                    : NULL;

    if (!reg) {
        return WEIR_PTX_NONE;
    }
    reg->name = kept;
    reg->type = (uint8_t)type;
    reg->bits = (uint8_t)weir_ptx_type_bits(type);
    reg->line = line;
    return p->regs.n - 1;
}

static bool parse_align(struct weir_ptx_parser *p, uint32_t *ret_align)
{
    struct weir_ptx_token at = p->tok;
    uint64_t align = 0;

    WEIR_FAIL_IF(!weir_ptx_parse_const_max(p, MAX_ALIGN, "alignment", &align), false);
    WEIR_FAIL_IF(align == 0 || (align & (align - 1)),
                 weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "alignment is not a power of two"));
    *ret_align = (uint32_t)align;
    return true;
}

/* .attribute(.managed, .unified(a, b)) after the word itself. */
static bool parse_attributes(struct weir_ptx_parser *p, struct qualifiers *q)
{
    WEIR_FAIL_IF(!weir_ptx_expect(p, '('), false);
    do {
        if (weir_ptx_accept_dot(p, "managed")) {
            q->managed = true;
        } else if (weir_ptx_accept_dot(p, "unified")) {
            q->unified = true;
            if (!weir_ptx_expect(p, '(') || !weir_ptx_parse_const(p, &q->unified_ids[0]) ||
                !weir_ptx_expect(p, ',') || !weir_ptx_parse_const(p, &q->unified_ids[1]) ||
                !weir_ptx_expect(p, ')')) {
                return false;
            }
        } else {
            return weir_ptx_fail(p, NULL, WEIR_ERR_UNSUPPORTED, "unknown attribute");
        }
    } while (weir_ptx_accept(p, ','));
    return weir_ptx_expect(p, ')');
}

/* .ptr {.space} {.align n} after the word itself. */
static bool parse_ptr(struct weir_ptx_parser *p, struct qualifiers *q)
{
    q->ptr = true;
    q->ptr_space = (uint8_t)space_of(&p->tok);
    WEIR_FAIL_IF(q->ptr_space && !weir_ptx_next(p), false);
    return !weir_ptx_accept_dot(p, "align") || parse_align(p, &q->ptr_align);
}

static bool parse_type_or_vec(struct weir_ptx_parser *p, struct qualifiers *q)
{
    struct weir_ptx_shape shape;
    enum weir_ptx_mod mod = weir_ptx_mod_from_text(p->tok.text, p->tok.len, &shape);

    if (weir_ptx_mod_is_type(mod) && !q->type) {
        q->type = (uint8_t)mod;
    } else if (weir_ptx_mod_slot(mod) == WEIR_PTX_SLOT_VEC && q->vec == 1) {
        q->vec = mod == WEIR_PTX_MOD_V8 ? 8 : mod == WEIR_PTX_MOD_V4 ? 4 : 2;
    } else {
        return weir_ptx_fail(p, NULL, WEIR_ERR_UNSUPPORTED, "'.%.*s' does not belong here",
                             p->tok.len > 60 ? 60 : (int)p->tok.len, p->tok.text);
    }
    return weir_ptx_next(p);
}

static bool parse_qualifiers(struct weir_ptx_parser *p, struct qualifiers *q)
{
    memset(q, 0, sizeof(*q));
    q->vec = 1;
    while (p->tok.kind == WEIR_PTX_TOKEN_DOT) {
        bool ok;

        if (weir_ptx_at_space(p) && !q->space) {
            q->space = (uint8_t)space_of(&p->tok);
            ok = weir_ptx_next(p);
        } else if (weir_ptx_accept_dot(p, "align")) {
            q->align_given = true;
            ok = parse_align(p, &q->align);
        } else if (weir_ptx_accept_dot(p, "attribute")) {
            ok = parse_attributes(p, q);
        } else if (weir_ptx_accept_dot(p, "ptr")) {
            ok = parse_ptr(p, q);
        } else {
            ok = parse_type_or_vec(p, q);
        }
        WEIR_FAIL_IF(!ok, false);
    }
    WEIR_FAIL_IF(weir_ptx_ok(p) && !q->type,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "declaration without a type"));
    return weir_ptx_ok(p);
}

static bool parse_dims(struct weir_ptx_parser *p, struct weir_ptx_var *var)
{
    while (weir_ptx_accept(p, '[')) {
        uint64_t dim = 0;

        WEIR_FAIL_IF(var->n_dims == WEIR_PTX_MAX_DIMS,
                     weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "array of too many dimensions"));
        if (weir_ptx_at_punct(p, ']') && var->n_dims == 0) {
            var->unsized = true;
        } else if (!weir_ptx_parse_const_max(p, WEIR_PTX_MAX_VAR_BYTES, "array size", &dim)) {
            return false;
        }
        var->dims[var->n_dims++] = dim;
        WEIR_FAIL_IF(!weir_ptx_expect(p, ']'), false);
    }
    return weir_ptx_ok(p);
}

static bool settle_size(struct weir_ptx_parser *p, struct weir_ptx_var *var,
                        const struct weir_ptx_token *at)
{
    uint64_t size = (uint64_t)weir_ptx_type_bytes((enum weir_ptx_type)var->type) * var->vec;

    if (!var->align) {
        var->align = size ? (uint32_t)size : 1;
    }
    for (uint32_t i = 0; i < var->n_dims; i++) {
        uint64_t dim = var->unsized && i == 0 ? 1 : var->dims[i];

        WEIR_FAIL_IF(__builtin_mul_overflow(size, dim, &size) || size > WEIR_PTX_MAX_VAR_BYTES,
                     weir_ptx_fail(p, at, WEIR_ERR_TOO_BIG, "variable is too large"));
    }
    var->size_bytes = var->unsized ? 0 : size;
    return true;
}

static struct weir_ptx_var *new_var(struct weir_ptx_parser *p, const struct qualifiers *q)
{
    struct weir_ptx_var *var = weir_ptx_new(p, sizeof(*var));

    if (var) {
        var->space = q->space;
        var->type = q->type;
        var->vec = q->vec;
        var->managed = q->managed;
        var->unified = q->unified;
        var->ptr = q->ptr;
        var->ptr_space = q->ptr_space;
        var->ptr_align = q->ptr_align;
        var->align = q->align;
        var->align_given = q->align_given;
        memcpy(var->unified_ids, q->unified_ids, sizeof(var->unified_ids));
        var->reg = WEIR_PTX_NONE;
        var->line = p->tok.line;
    }
    return var;
}

static bool declare_var(struct weir_ptx_parser *p, struct weir_ptx_var *var,
                        const struct weir_ptx_token *name)
{
    struct weir_ptx_name *entry =
        weir_ptx_names_add(&p->names, name->text, name->len, WEIR_PTX_NAME_VAR);

    WEIR_FAIL_IF(!entry, weir_ptx_fail_memory(p));
    entry->object = var;
    entry->line = name->line;
    return true;
}

/*
 * At module level an extern declaration may be followed by the definition: both are one variable
 * and two items.
 */
static bool add_module_var(struct weir_ptx_parser *p, struct weir_ptx_var *var,
                           const struct weir_ptx_token *name)
{
    struct weir_ptx_name *found = weir_ptx_names_find(&p->names, name->text, name->len, false);
    struct weir_ptx_var *before = found ? found->object : NULL;

    WEIR_FAIL_IF(
        name->kind == WEIR_PTX_TOKEN_IDENT && name->text[0] == '%',
        weir_ptx_fail(p, name, WEIR_ERR_UNSUPPORTED, "module-level name beginning with '%%'"));
    if (found && (found->kind != WEIR_PTX_NAME_VAR || (before->linkage != WEIR_PTX_LINKAGE_EXTERN &&
                                                       var->linkage != WEIR_PTX_LINKAGE_EXTERN))) {
        return weir_ptx_check_new_name(p, name);
    }
    struct weir_ptx_item *item =
        weir_ptx_push(p, &p->items, sizeof(*item), WEIR_PTX_MAX_SYMBOLS, "module items");
    WEIR_FAIL_IF(!item, false);
    item->kind = WEIR_PTX_ITEM_VAR;
    item->linkage = var->linkage;
    item->is_decl = var->linkage == WEIR_PTX_LINKAGE_EXTERN;
    item->var = found ? before : var;
    if (!found) {
        struct weir_ptx_var **slot = weir_ptx_push(p, &p->vars, sizeof(struct weir_ptx_var *),
                                                   WEIR_PTX_MAX_SYMBOLS, "variables");

        WEIR_FAIL_IF(!slot, false);
        *slot = var;
        var->id = p->vars.n - 1;
        return declare_var(p, var, name);
    }
    if (!item->is_decl) {
        var->id = before->id;
        *before = *var;
    }
    return true;
}

static bool add_body_var(struct weir_ptx_parser *p, struct weir_ptx_var *var,
                         const struct weir_ptx_token *name)
{
    WEIR_FAIL_IF(!weir_ptx_check_new_name(p, name), false);
    var->name = weir_ptx_unique_name(p, name->text, name->len);
    struct weir_ptx_var **slot =
        var->name ? weir_ptx_push(p, &p->body_vars, sizeof(struct weir_ptx_var *),
                                  WEIR_PTX_MAX_SYMBOLS, "variables in a function")
                  : NULL;
    WEIR_FAIL_IF(!slot, false);
    *slot = var;
    var->func = p->func;
    var->id = p->body_vars.n - 1;
    return declare_var(p, var, name);
}

static bool parse_one_var(struct weir_ptx_parser *p, const struct qualifiers *q,
                          enum weir_ptx_linkage linkage)
{
    struct weir_ptx_token name = p->tok;
    struct weir_ptx_var *var = new_var(p, q);

    WEIR_FAIL_IF(!var, false);
    WEIR_FAIL_IF(name.kind != WEIR_PTX_TOKEN_IDENT,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a variable's name"));
    var->linkage = (uint8_t)linkage;
    WEIR_FAIL_IF(
        ++p->n_symbols > WEIR_PTX_MAX_SYMBOLS,
        weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "more than %u symbols", WEIR_PTX_MAX_SYMBOLS));
    if (!p->func) {
        var->name = weir_ptx_keep_text(p, name.text, name.len);
    }
    return weir_ptx_next(p) && parse_dims(p, var) && settle_size(p, var, &name) &&
           (!weir_ptx_accept(p, '=') ||
            (weir_ptx_parse_init(p, var) && settle_size(p, var, &name))) &&
           (p->func ? add_body_var(p, var, &name) : add_module_var(p, var, &name));
}

bool weir_ptx_parse_vars(struct weir_ptx_parser *p, enum weir_ptx_linkage linkage)
{
    struct qualifiers q;
    struct weir_ptx_token at = p->tok;

    WEIR_FAIL_IF(!parse_qualifiers(p, &q), false);
    WEIR_FAIL_IF(!q.space || q.space == WEIR_PTX_SPACE_REG || q.type == WEIR_PTX_TYPE_PRED,
                 weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "not a variable's state space or type"));
    do {
        WEIR_FAIL_IF(!parse_one_var(p, &q, linkage), false);
    } while (weir_ptx_accept(p, ','));
    return weir_ptx_expect(p, ';');
}

/* Read name or name<count>, after ".reg .type". */
static bool parse_one_reg(struct weir_ptx_parser *p, const struct qualifiers *q)
{
    struct weir_ptx_token at = p->tok;
    struct weir_ptx_name *entry, *found;
    uint64_t count = 0;

    WEIR_FAIL_IF(at.kind != WEIR_PTX_TOKEN_IDENT || !weir_ptx_next(p),
                 weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "expected a register's name"));
    bool range = weir_ptx_at_punct(p, '<');
    found = weir_ptx_names_find(&p->names, at.text, at.len, range);
    WEIR_FAIL_IF(found && found->depth == p->names.depth,
                 weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "'%.*s' is declared twice",
                               at.len > 60 ? 60 : (int)at.len, at.text));
    if (range) {
        /* Read a number, not an expression, which would take the '>' for a comparison. */
        weir_ptx_next(p);
        count = p->tok.bits;
        WEIR_FAIL_IF(p->tok.kind != WEIR_PTX_TOKEN_INT || count > MAX_RANGE,
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "register count is out of range"));
        WEIR_FAIL_IF(!weir_ptx_next(p) || !weir_ptx_expect(p, '>'), false);
    }
    entry = weir_ptx_names_add(&p->names, at.text, at.len,
                               range ? WEIR_PTX_NAME_RANGE : WEIR_PTX_NAME_REG);
    WEIR_FAIL_IF(!entry, weir_ptx_fail_memory(p));
    entry->type = q->type;
    entry->vec = q->vec;
    entry->count = (uint32_t)count;
    entry->id = p->next_reg_decl++;
    entry->line = at.line;
    return true;
}

bool weir_ptx_parse_regs(struct weir_ptx_parser *p)
{
    struct weir_ptx_token at = p->tok;
    struct qualifiers q;

    WEIR_FAIL_IF(!parse_qualifiers(p, &q), false);
    uint32_t bits = weir_ptx_type_bits((enum weir_ptx_type)q.type);

    WEIR_FAIL_IF(bits > 128 || (bits < 8 && q.type != WEIR_PTX_TYPE_PRED),
                 weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "registers cannot have this type"));
    do {
        WEIR_FAIL_IF(!parse_one_reg(p, &q), false);
    } while (weir_ptx_accept(p, ','));
    return weir_ptx_expect(p, ';');
}

/* Declare a parameter that is in a register: its name is a register of the function. */
static bool declare_reg_param(struct weir_ptx_parser *p, struct weir_ptx_var *var,
                              const struct weir_ptx_token *name)
{
    struct weir_ptx_name *entry =
        weir_ptx_names_add(&p->names, name->text, name->len, WEIR_PTX_NAME_REG);

    WEIR_FAIL_IF(!entry, weir_ptx_fail_memory(p));
    entry->type = var->type;
    entry->vec = 1;
    entry->id = p->next_reg_decl++;
    uint32_t *id = weir_ptx_regmap_get(&p->regmap, (uint64_t)entry->id << 32);
    WEIR_FAIL_IF(!id, weir_ptx_fail_memory(p));
    *id = var->reg =
        weir_ptx_new_reg(p, name->text, name->len, (enum weir_ptx_type)var->type, name->line);
    return var->reg != WEIR_PTX_NONE;
}

static bool parse_one_param(struct weir_ptx_parser *p, struct weir_ptx_func *func, bool declare,
                            struct weir_ptx_var **ret_var)
{
    struct qualifiers q;

    WEIR_FAIL_IF(!parse_qualifiers(p, &q), false);
    struct weir_ptx_token name = p->tok;
    WEIR_FAIL_IF(q.space != WEIR_PTX_SPACE_PARAM && q.space != WEIR_PTX_SPACE_REG,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "parameter is neither .param nor .reg"));
    if (name.kind != WEIR_PTX_TOKEN_IDENT || (q.space == WEIR_PTX_SPACE_REG && q.vec != 1)) {
        return weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a parameter's name");
    }
    struct weir_ptx_var *var = new_var(p, &q);
    if (!var || !weir_ptx_next(p) || !parse_dims(p, var) || !settle_size(p, var, &name)) {
        return false;
    }
    var->is_param = true;
    var->func = func;
    *ret_var = var;
    if (!declare || (name.len == 1 && name.text[0] == '_')) {
        var->name = weir_ptx_keep_text(p, name.text, name.len);
        return var->name != NULL;
    }
    WEIR_FAIL_IF(!weir_ptx_check_new_name(p, &name), false);
    var->name = weir_ptx_unique_name(p, name.text, name.len);
    return var->name && (q.space == WEIR_PTX_SPACE_REG ? declare_reg_param(p, var, &name)
                                                       : declare_var(p, var, &name));
}

/* Compute offsets in the parameter block, each parameter at its alignment. */
static void place_params(struct weir_ptx_func *func)
{
    uint64_t offset = 0;

    for (uint32_t i = 0; i < func->n_params; i++) {
        struct weir_ptx_var *var = func->params[i];

        offset = (offset + var->align - 1) & ~(uint64_t)(var->align - 1);
        var->offset_bytes = offset;
        offset += var->size_bytes;
    }
    func->params_size_bytes = offset;
}

bool weir_ptx_parse_params(struct weir_ptx_parser *p, struct weir_ptx_func *func, bool returns,
                           bool declare)
{
    struct weir_ptx_vec vec = {0};
    bool ok = weir_ptx_expect(p, '(');

    while (ok && !weir_ptx_at_punct(p, ')')) {
        struct weir_ptx_var *var = NULL, **slot;

        ok = (vec.n == 0 || weir_ptx_expect(p, ',')) && parse_one_param(p, func, declare, &var);
        slot =
            ok ? weir_ptx_push(p, &vec, sizeof(*slot), WEIR_PTX_MAX_SYMBOLS, "parameters") : NULL;
        ok = slot != NULL;
        if (ok) {
            assert(var);
            var->id = vec.n - 1;
            *slot = var;
        }
    }
    if (ok && returns) {
        func->returns = weir_ptx_take(p, &vec, sizeof(struct weir_ptx_var *), &func->n_returns);
    } else if (ok) {
        func->params = weir_ptx_take(p, &vec, sizeof(struct weir_ptx_var *), &func->n_params);
        place_params(func);
    }
    weir_ptx_vec_free(&vec);
    return ok && weir_ptx_expect(p, ')');
}

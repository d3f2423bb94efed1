/*
 * Bodies: declarations, labels, tables, notes and nested scopes.
 *
 * A label may be used before it is defined, and an inner block may define a label with the name of
 * an outer one. So uses wait in p->pending until their block closes. Those whose label the block
 * has defined are resolved; the others stay for the block around it.
 */
#include "ptx/parse.h"

#include <assert.h>
#include <string.h>

static bool define_label(struct weir_ptx_parser *p, const struct weir_ptx_token *name)
{
    WEIR_FAIL_IF(!weir_ptx_check_new_name(p, name), false);
    const char *unique = weir_ptx_unique_name(p, name->text, name->len);
    struct weir_ptx_label *label = unique
                                       ? weir_ptx_push(p, &p->labels, sizeof(*label),
                                                       WEIR_PTX_MAX_LABELS, "labels in a function")
                                       : NULL;
    WEIR_FAIL_IF(!label, false);
    label->name = unique;
    label->inst = p->insts.n;
    struct weir_ptx_name *entry =
        weir_ptx_names_add(&p->names, name->text, name->len, WEIR_PTX_NAME_LABEL);
    WEIR_FAIL_IF(!entry, weir_ptx_fail_memory(p));
    entry->id = p->labels.n - 1;
    return true;
}

/* Resolve the uses of a block that is about to close, from `first` on; leave the others. */
static void settle_labels(struct weir_ptx_parser *p, uint32_t first)
{
    struct weir_ptx_pending *pending = p->pending.data;
    uint32_t kept = first;

    for (uint32_t i = first; i < p->pending.n; i++) {
        struct weir_ptx_name *name =
            weir_ptx_names_find(&p->names, pending[i].text, pending[i].len, false);

        if (name && name->kind == WEIR_PTX_NAME_LABEL && name->depth == p->names.depth) {
            *pending[i].dest = name->id;
        } else {
            pending[kept++] = pending[i];
        }
    }
    p->pending.n = kept;
}

static bool add_note(struct weir_ptx_parser *p, const char *text, bool is_debug)
{
    struct weir_ptx_note *note =
        weir_ptx_push(p, &p->notes, sizeof(*note), WEIR_PTX_MAX_INSTS, "notes");

    WEIR_FAIL_IF(!note, false);
    note->before_inst = p->insts.n;
    note->is_debug = is_debug;
    note->text = text;
    return true;
}

bool weir_ptx_parse_pragma(struct weir_ptx_parser *p, weir_ptx_pragma_fn add)
{
    weir_ptx_next(p);
    do {
        WEIR_FAIL_IF(p->tok.kind != WEIR_PTX_TOKEN_STRING,
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a string after .pragma"));
        const char *text = weir_ptx_keep_text(p, p->tok.text, p->tok.len);
        WEIR_FAIL_IF(!text || !weir_ptx_next(p) || !add(p, text), false);
    } while (weir_ptx_accept(p, ','));
    return weir_ptx_expect(p, ';');
}

static bool add_pragma_note(struct weir_ptx_parser *p, const char *text)
{
    size_t room = strlen(text) + sizeof(".pragma \"\";");
    char *line = weir_ptx_new(p, room);

    if (line) {
        snprintf(line, room, ".pragma \"%s\";", text);
    }
    return line && add_note(p, line, false);
}

/* Skip up to n integers. */
static bool skip_ints(struct weir_ptx_parser *p, int n)
{
    for (int i = 0; i < n; i++) {
        WEIR_FAIL_IF(p->tok.kind != WEIR_PTX_TOKEN_INT,
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a number in .loc"));
        WEIR_FAIL_IF(!weir_ptx_next(p), false);
    }
    return true;
}

/* .loc file line column {, function_name label {+ n}, inlined_at file line column} */
static bool parse_loc(struct weir_ptx_parser *p)
{
    const char *start = p->tok.start;
    const char *end, *text;
    char *flat;

    WEIR_FAIL_IF(!weir_ptx_next(p) || !skip_ints(p, 2), false);
    end = p->tok.start;
    if (p->tok.kind == WEIR_PTX_TOKEN_INT) {
        skip_ints(p, 1);
        end = p->tok.start;
    }
    while (weir_ptx_accept(p, ',')) {
        bool inlined = weir_ptx_at_ident(p, "inlined_at");
        int64_t ignored;

        WEIR_FAIL_IF(!inlined && !weir_ptx_at_ident(p, "function_name"),
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "unknown part of .loc"));
        if (!weir_ptx_next(p) || (inlined && !skip_ints(p, 3)) ||
            (!inlined && (!weir_ptx_next(p) || !weir_ptx_parse_offset(p, &ignored)))) {
            return false;
        }
        end = p->tok.start;
    }
    if (!weir_ptx_ok(p) || p->flags & WEIR_PTX_DROP_DEBUG) {
        return weir_ptx_ok(p);
    }
    while (end > start && strchr(" \t\r\n\v\f", end[-1])) {
        end--;
    }
    text = weir_ptx_keep_text(p, start, (size_t)(end - start));
    WEIR_FAIL_IF(!text, false);
    /* A comment in the middle would swallow what follows it on the line. */
    if (strstr(text, "//") || strstr(text, "/*")) {
        return true;
    }
    for (flat = (char *)(uintptr_t)text; *flat; flat++) {
        *flat = *flat == '\n' || *flat == '\r' ? ' ' : *flat;
    }
    return add_note(p, text, true);
}

static bool parse_branch_targets(struct weir_ptx_parser *p, struct weir_ptx_table *table)
{
    uint32_t first = p->pending.n, n;

    /* Targets are noted as uses without a place, which they get when their number is known. */
    do {
        uint32_t nowhere;

        WEIR_FAIL_IF(!weir_ptx_parse_label_use(p, &nowhere), false);
    } while (weir_ptx_accept(p, ','));
    n = p->pending.n - first;
    table->labels = weir_ptx_new(p, n * sizeof(*table->labels));
    if (!table->labels) {
        p->pending.n = first;
        return false;
    }
    table->n = n;
    for (uint32_t i = 0; i < n; i++) {
        table->labels[i] = WEIR_PTX_NONE;
        ((struct weir_ptx_pending *)p->pending.data)[first + i].dest = &table->labels[i];
    }
    return true;
}

static bool parse_call_targets(struct weir_ptx_parser *p, struct weir_ptx_table *table)
{
    struct weir_ptx_vec funcs = {0};
    bool ok = true;

    do {
        struct weir_ptx_name *name = weir_ptx_names_find(&p->names, p->tok.text, p->tok.len, false);
        struct weir_ptx_func **slot = NULL;

        if (p->tok.kind != WEIR_PTX_TOKEN_IDENT || !name || name->kind != WEIR_PTX_NAME_FUNC) {
            ok = weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a function");
        } else {
            slot = weir_ptx_push(p, &funcs, sizeof(*slot), WEIR_PTX_MAX_SYMBOLS, "call targets");
        }
        if (slot) {
            *slot = name->object;
        }
        ok = ok && slot && weir_ptx_next(p);
    } while (ok && weir_ptx_accept(p, ','));
    if (ok) {
        table->funcs = weir_ptx_take(p, &funcs, sizeof(struct weir_ptx_func *), &table->n);
    }
    weir_ptx_vec_free(&funcs);
    return ok && weir_ptx_ok(p);
}

/* Read .callprototype {(result)} _ {(parameters)} {.noreturn}; the names in it are ignored. */
static bool parse_prototype(struct weir_ptx_parser *p, struct weir_ptx_table *table)
{
    struct weir_ptx_func *proto = weir_ptx_new(p, sizeof(*proto));

    WEIR_FAIL_IF(!proto, false);
    proto->name = table->name;
    table->proto = proto;
    WEIR_FAIL_IF(weir_ptx_at_punct(p, '(') && !weir_ptx_parse_params(p, proto, true, false), false);
    WEIR_FAIL_IF(p->tok.kind != WEIR_PTX_TOKEN_IDENT,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected '_'"));
    if (!weir_ptx_next(p) ||
        (weir_ptx_at_punct(p, '(') && !weir_ptx_parse_params(p, proto, false, false))) {
        return false;
    }
    while (p->tok.kind == WEIR_PTX_TOKEN_DOT) {
        uint64_t value;

        if (weir_ptx_accept_dot(p, "noreturn")) {
            table->noreturn = true;
        } else if (weir_ptx_accept_dot(p, "abi_preserve") ||
                   weir_ptx_accept_dot(p, "abi_preserve_control")) {
            WEIR_FAIL_IF(!weir_ptx_parse_const(p, &value), false);
        } else {
            return weir_ptx_fail(p, NULL, WEIR_ERR_UNSUPPORTED, "unknown part of .callprototype");
        }
    }
    return weir_ptx_ok(p);
}

/* Read `name : .branchtargets ..`; the name was read, the current token is the directive. */
static bool parse_table(struct weir_ptx_parser *p, const struct weir_ptx_token *name)
{
    struct weir_ptx_table *table = weir_ptx_new(p, sizeof(*table));
    bool ok;

    WEIR_FAIL_IF(!table || !weir_ptx_check_new_name(p, name), false);
    table->name = weir_ptx_unique_name(p, name->text, name->len);
    table->line = name->line;
    table->before_inst = p->insts.n;
    struct weir_ptx_table **slot =
        table->name ? weir_ptx_push(p, &p->tables, sizeof(struct weir_ptx_table *),
                                    WEIR_PTX_MAX_LABELS, "tables in a function")
                    : NULL;
    WEIR_FAIL_IF(!slot, false);
    *slot = table;
    struct weir_ptx_name *entry =
        weir_ptx_names_add(&p->names, name->text, name->len, WEIR_PTX_NAME_TABLE);
    WEIR_FAIL_IF(!entry, weir_ptx_fail_memory(p));
    entry->object = table;
    if (weir_ptx_accept_dot(p, "branchtargets")) {
        table->kind = WEIR_PTX_TABLE_BRANCH;
        ok = parse_branch_targets(p, table);
    } else if (weir_ptx_accept_dot(p, "calltargets")) {
        table->kind = WEIR_PTX_TABLE_CALL;
        ok = parse_call_targets(p, table);
    } else {
        table->kind = WEIR_PTX_TABLE_PROTOTYPE;
        ok = weir_ptx_accept_dot(p, "callprototype") && parse_prototype(p, table);
    }
    return ok && weir_ptx_expect(p, ';');
}

static bool at_table(const struct weir_ptx_parser *p)
{
    return weir_ptx_at_dot(p, "branchtargets") || weir_ptx_at_dot(p, "calltargets") ||
           weir_ptx_at_dot(p, "callprototype");
}

static bool parse_directive(struct weir_ptx_parser *p)
{
    if (weir_ptx_at_dot(p, "reg")) {
        return weir_ptx_parse_regs(p);
    }
    if (weir_ptx_at_space(p)) {
        return weir_ptx_parse_vars(p, WEIR_PTX_LINKAGE_NONE);
    }
    if (weir_ptx_at_dot(p, "loc")) {
        return parse_loc(p);
    }
    if (weir_ptx_at_dot(p, "pragma")) {
        return weir_ptx_parse_pragma(p, add_pragma_note);
    }
    if (weir_ptx_accept_dot(p, "extern")) {
        return weir_ptx_parse_vars(p, WEIR_PTX_LINKAGE_EXTERN);
    }
    return weir_ptx_fail(p, NULL, WEIR_ERR_UNSUPPORTED, "unknown directive '.%.*s' in a body",
                         p->tok.len > 60 ? 60 : (int)p->tok.len, p->tok.text);
}

/* Read a statement that is not a block. */
static bool parse_statement(struct weir_ptx_parser *p)
{
    if (p->tok.kind == WEIR_PTX_TOKEN_DOT) {
        return parse_directive(p);
    }
    if (p->tok.kind == WEIR_PTX_TOKEN_IDENT) {
        struct weir_ptx_token next = weir_ptx_peek(p);

        if (next.kind == WEIR_PTX_TOKEN_PUNCT && next.punct == ':') {
            struct weir_ptx_token name = p->tok;

            weir_ptx_next(p);
            weir_ptx_next(p);
            return at_table(p) ? parse_table(p, &name) : define_label(p, &name);
        }
    }
    /* An empty statement: inline assembly ends in a semicolon of its own. */
    if (weir_ptx_accept(p, ';')) {
        return true;
    }
    return weir_ptx_parse_inst(p);
}

static bool open_block(struct weir_ptx_parser *p, uint32_t *first_pending, uint32_t depth)
{
    WEIR_FAIL_IF(depth == WEIR_PTX_MAX_NESTING,
                 weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "blocks nested deeper than %d",
                               WEIR_PTX_MAX_NESTING));
    first_pending[depth] = p->pending.n;
    weir_ptx_names_open(&p->names);
    return weir_ptx_next(p);
}

/* Read statements up to the brace that closes the first block. After a failure, close the blocks
 * that are still open. */
static bool parse_blocks(struct weir_ptx_parser *p)
{
    uint32_t first_pending[WEIR_PTX_MAX_NESTING];
    uint32_t depth = 0;

    do {
        bool ok;

        if (weir_ptx_at_punct(p, '{')) {
            ok = open_block(p, first_pending, depth);
            depth += ok;
        } else if (weir_ptx_at_punct(p, '}')) {
            assert(depth > 0); /* the first block was opened first */
            settle_labels(p, first_pending[--depth]);
            weir_ptx_names_close(&p->names);
            ok = weir_ptx_next(p);
        } else if (p->tok.kind == WEIR_PTX_TOKEN_END) {
            ok = weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "text ends inside a body");
        } else {
            ok = parse_statement(p);
        }
        WEIR_FAIL_IF(!ok, false);
    } while (depth > 0);
    return true;
}

bool weir_ptx_parse_body(struct weir_ptx_parser *p)
{
    struct weir_ptx_func *func = p->func;

    WEIR_FAIL_IF(!parse_blocks(p), false);
    if (p->pending.n > 0) {
        const struct weir_ptx_pending *use = p->pending.data;
        struct weir_ptx_token at = {.line = use->line, .column = use->column};

        return weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "label '%.*s' is not defined",
                             use->len > 60 ? 60 : (int)use->len, use->text);
    }
    func->insts = weir_ptx_take(p, &p->insts, sizeof(struct weir_ptx_inst), &func->n_insts);
    func->regs = weir_ptx_take(p, &p->regs, sizeof(struct weir_ptx_reg), &func->n_regs);
    func->labels = weir_ptx_take(p, &p->labels, sizeof(struct weir_ptx_label), &func->n_labels);
    func->tables = weir_ptx_take(p, &p->tables, sizeof(struct weir_ptx_table *), &func->n_tables);
    func->vars = weir_ptx_take(p, &p->body_vars, sizeof(struct weir_ptx_var *), &func->n_vars);
    func->notes = weir_ptx_take(p, &p->notes, sizeof(struct weir_ptx_note), &func->n_notes);
    func->has_body = true;
    return weir_ptx_ok(p);
}

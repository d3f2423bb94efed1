/*
 * Module level of the parser: the header, directives, functions.
 *
 * The other files of the parser are listed in parse.h.
 */
#include "ptx/parse.h"

#include <stdlib.h>
#include <string.h>

/* Limit on the IR's memory: a minimum, and for large modules a multiple of the text. */
#define ARENA_FLOOR_BYTES    ((size_t)16 << 20)
#define ARENA_BYTES_PER_BYTE 64u

static const struct {
    const char *text;
    enum weir_ptx_linkage linkage;
} linkages[] = {
    {"visible", WEIR_PTX_LINKAGE_VISIBLE},
    {"extern", WEIR_PTX_LINKAGE_EXTERN},
    {"weak", WEIR_PTX_LINKAGE_WEAK},
    {"common", WEIR_PTX_LINKAGE_COMMON},
};

static enum weir_ptx_linkage parse_linkage(struct weir_ptx_parser *p)
{
    size_t at = WEIR_FIRST(i, WEIR_COUNT(linkages), weir_ptx_accept_dot(p, linkages[i].text));
    return at < WEIR_COUNT(linkages) ? linkages[at].linkage : WEIR_PTX_LINKAGE_NONE;
}

static struct weir_ptx_item *add_item(struct weir_ptx_parser *p, enum weir_ptx_item_kind kind)
{
    struct weir_ptx_item *item =
        weir_ptx_push(p, &p->items, sizeof(*item), WEIR_PTX_MAX_SYMBOLS, "module items");

    if (item) {
        item->kind = (uint8_t)kind;
    }
    return item;
}

static bool parse_version(struct weir_ptx_parser *p)
{
    unsigned major = 0, minor = 0;
    char text[16];

    WEIR_FAIL_IF(!weir_ptx_accept_dot(p, "version"),
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected .version"));
    if (p->tok.kind == WEIR_PTX_TOKEN_FLOAT) {
        snprintf(text, sizeof(text), "%.*s", (int)(p->lexer.at - p->tok.start), p->tok.start);
    }
    if (p->tok.kind != WEIR_PTX_TOKEN_FLOAT || sscanf(text, "%3u.%3u", &major, &minor) != 2) {
        return weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a version such as 9.0");
    }
    p->module->version_major = (uint16_t)major;
    p->module->version_minor = (uint16_t)minor;
    return weir_ptx_next(p);
}

/* sm_90, sm_90a, sm_100f */
static bool parse_sm(struct weir_ptx_parser *p)
{
    const char *at = p->tok.text + 3;
    const char *end = p->tok.text + p->tok.len;
    unsigned sm = 0;

    WEIR_FAIL_IF(p->tok.len < 4 || p->tok.len > 8 || memcmp(p->tok.text, "sm_", 3) != 0, false);
    while (at < end && *at >= '0' && *at <= '9') {
        sm = sm * 10 + (unsigned)(*at++ - '0');
    }
    if (at < end && (*at == 'a' || *at == 'f')) {
        p->module->sm_suffix = *at++;
    }
    p->module->sm = (uint16_t)sm;
    return sm != 0 && at == end;
}

static bool parse_target(struct weir_ptx_parser *p)
{
    struct weir_ptx_module *module = p->module;

    WEIR_FAIL_IF(!weir_ptx_accept_dot(p, "target"),
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected .target"));
    do {
        if (weir_ptx_at_ident(p, "debug")) {
            module->target_debug = !(p->flags & WEIR_PTX_DROP_DEBUG);
        } else if (weir_ptx_at_ident(p, "texmode_independent")) {
            module->texmode_independent = true;
        } else if (weir_ptx_at_ident(p, "texmode_unified")) {
            module->texmode_unified = true;
        } else if (weir_ptx_at_ident(p, "map_f64_to_f32")) {
            module->map_f64_to_f32 = true;
        } else if (p->tok.kind != WEIR_PTX_TOKEN_IDENT || !parse_sm(p)) {
            return weir_ptx_fail(p, NULL, WEIR_ERR_UNSUPPORTED, "unknown target");
        }
        WEIR_FAIL_IF(!weir_ptx_next(p), false);
    } while (weir_ptx_accept(p, ','));
    WEIR_FAIL_IF(module->sm == 0,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, ".target names no sm_ architecture"));
    return true;
}

static bool parse_address_size(struct weir_ptx_parser *p)
{
    struct weir_ptx_token at = p->tok;
    uint64_t bits = 0;

    WEIR_FAIL_IF(!weir_ptx_parse_const(p, &bits), false);
    WEIR_FAIL_IF(bits != 32 && bits != 64,
                 weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "address size is neither 32 nor 64"));
    p->module->address_size = (uint8_t)bits;
    return true;
}

/* Keep the source from start up to the current token, without white space at its end. */
static bool keep_item_text(struct weir_ptx_parser *p, const char *start, const char *end)
{
    while (end > start && strchr(" \t\r\n\v\f", end[-1])) {
        end--;
    }
    const char *text = weir_ptx_keep_text(p, start, (size_t)(end - start));
    struct weir_ptx_item *item = text ? add_item(p, WEIR_PTX_ITEM_TEXT) : NULL;
    if (item) {
        item->text = text;
    }
    return item != NULL;
}

/* .file n "name" {, time, size} */
static bool parse_file(struct weir_ptx_parser *p)
{
    const char *start = p->tok.start;

    weir_ptx_next(p);
    if (p->tok.kind != WEIR_PTX_TOKEN_INT || !weir_ptx_next(p) ||
        p->tok.kind != WEIR_PTX_TOKEN_STRING) {
        return weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a number and a name after .file");
    }
    const char *end = p->lexer.at;
    weir_ptx_next(p);
    while (weir_ptx_accept(p, ',')) {
        end = p->lexer.at;
        WEIR_FAIL_IF(p->tok.kind != WEIR_PTX_TOKEN_INT,
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a number"));
        weir_ptx_next(p);
    }
    return p->flags & WEIR_PTX_DROP_DEBUG ? weir_ptx_ok(p) : keep_item_text(p, start, end);
}

/* .section name { anything } */
static bool parse_section(struct weir_ptx_parser *p)
{
    const char *start = p->tok.start;

    weir_ptx_next(p);
    WEIR_FAIL_IF(p->tok.kind != WEIR_PTX_TOKEN_DOT && p->tok.kind != WEIR_PTX_TOKEN_IDENT,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a name after .section"));
    WEIR_FAIL_IF(!weir_ptx_next(p) || !weir_ptx_expect(p, '{'), false);
    while (!weir_ptx_at_punct(p, '}')) {
        WEIR_FAIL_IF(p->tok.kind == WEIR_PTX_TOKEN_END,
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "text ends inside a section"));
        weir_ptx_next(p);
    }
    const char *end = p->lexer.at;
    weir_ptx_next(p);
    return p->flags & WEIR_PTX_DROP_DEBUG ? weir_ptx_ok(p) : keep_item_text(p, start, end);
}

static bool add_pragma_item(struct weir_ptx_parser *p, const char *text)
{
    size_t room = strlen(text) + sizeof(".pragma \"\";");
    char *line = weir_ptx_new(p, room);
    struct weir_ptx_item *item = line ? add_item(p, WEIR_PTX_ITEM_TEXT) : NULL;

    if (item) {
        snprintf(line, room, ".pragma \"%s\";", text);
        item->text = line;
    }
    return item != NULL;
}

static struct weir_ptx_func *find_func(struct weir_ptx_parser *p, const struct weir_ptx_token *tok)
{
    struct weir_ptx_name *name = tok->kind == WEIR_PTX_TOKEN_IDENT
                                     ? weir_ptx_names_find(&p->names, tok->text, tok->len, false)
                                     : NULL;

    return name && name->kind == WEIR_PTX_NAME_FUNC ? name->object : NULL;
}

/* .alias name, function; */
static bool parse_alias(struct weir_ptx_parser *p)
{
    struct weir_ptx_func *funcs[2];

    for (int i = 0; i < 2; i++) {
        funcs[i] = find_func(p, &p->tok);
        WEIR_FAIL_IF(!funcs[i],
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a declared function"));
        WEIR_FAIL_IF(!weir_ptx_next(p) || (i == 0 && !weir_ptx_expect(p, ',')), false);
    }
    funcs[0]->is_alias = true;
    funcs[0]->alias_of = funcs[1];
    struct weir_ptx_item *item = add_item(p, WEIR_PTX_ITEM_ALIAS);
    if (item) {
        item->func = funcs[0];
    }
    return item && weir_ptx_expect(p, ';');
}

/* Read one to three numbers; missing ones are 1. */
static bool parse_dim3(struct weir_ptx_parser *p, uint32_t dims[3], uint8_t *ret_n)
{
    uint64_t value = 0;
    uint8_t n = 0;

    dims[0] = dims[1] = dims[2] = 1;
    do {
        WEIR_FAIL_IF(n == 3, weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "more than three dimensions"));
        WEIR_FAIL_IF(!weir_ptx_parse_const_max(p, UINT32_MAX, "dimension", &value), false);
        dims[n++] = (uint32_t)value;
    } while (weir_ptx_accept(p, ','));
    *ret_n = n;
    return true;
}

static bool parse_number(struct weir_ptx_parser *p, uint32_t *ret_value, bool *ret_has)
{
    uint64_t value = 0;

    WEIR_FAIL_IF(!weir_ptx_parse_const_max(p, UINT32_MAX, "value", &value), false);
    *ret_value = (uint32_t)value;
    *ret_has = true;
    return true;
}

static bool add_func_pragma(struct weir_ptx_parser *p, const char *text)
{
    struct weir_ptx_perf *perf = &p->func->perf;
    const char **grown = weir_ptx_new(p, (perf->n_pragmas + 1) * sizeof(*grown));

    WEIR_FAIL_IF(!grown, false);
    WEIR_FAIL_IF(perf->n_pragmas >= WEIR_PTX_MAX_OPERANDS,
                 weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "too many pragmas of one function"));
    for (uint32_t i = 0; i < perf->n_pragmas; i++) {
        grown[i] = perf->pragmas[i];
    }
    grown[perf->n_pragmas++] = text;
    perf->pragmas = grown;
    return true;
}

static bool parse_perf_one(struct weir_ptx_parser *p, struct weir_ptx_perf *perf)
{
    if (weir_ptx_accept_dot(p, "maxntid")) {
        return parse_dim3(p, perf->maxntid, &perf->n_maxntid);
    }
    if (weir_ptx_accept_dot(p, "reqntid")) {
        return parse_dim3(p, perf->reqntid, &perf->n_reqntid);
    }
    if (weir_ptx_accept_dot(p, "reqnctapercluster")) {
        return parse_dim3(p, perf->reqnctapercluster, &perf->n_reqnctapercluster);
    }
    if (weir_ptx_accept_dot(p, "minnctapersm")) {
        return parse_number(p, &perf->minnctapersm, &perf->has_minnctapersm);
    }
    if (weir_ptx_accept_dot(p, "maxnctapersm")) {
        return parse_number(p, &perf->maxnctapersm, &perf->has_maxnctapersm);
    }
    if (weir_ptx_accept_dot(p, "maxnreg")) {
        return parse_number(p, &perf->maxnreg, &perf->has_maxnreg);
    }
    if (weir_ptx_accept_dot(p, "maxclusterrank")) {
        return parse_number(p, &perf->maxclusterrank, &perf->has_maxclusterrank);
    }
    if (weir_ptx_accept_dot(p, "abi_preserve")) {
        return parse_number(p, &perf->abi_preserve, &perf->has_abi_preserve);
    }
    if (weir_ptx_accept_dot(p, "abi_preserve_control")) {
        return parse_number(p, &perf->abi_preserve_control, &perf->has_abi_preserve_control);
    }
    if (weir_ptx_accept_dot(p, "explicitcluster")) {
        return perf->explicitcluster = true;
    }
    if (weir_ptx_accept_dot(p, "blocksareclusters")) {
        return perf->blocksareclusters = true;
    }
    if (weir_ptx_accept_dot(p, "noreturn")) {
        return perf->noreturn = true;
    }
    if (weir_ptx_at_dot(p, "pragma")) {
        return weir_ptx_parse_pragma(p, add_func_pragma);
    }
    return weir_ptx_fail(p, NULL, WEIR_ERR_UNSUPPORTED, "unknown directive '.%.*s' of a function",
                         p->tok.len > 60 ? 60 : (int)p->tok.len, p->tok.text);
}

static bool parse_perf(struct weir_ptx_parser *p, struct weir_ptx_perf *perf)
{
    while (p->tok.kind == WEIR_PTX_TOKEN_DOT) {
        WEIR_FAIL_IF(!parse_perf_one(p, perf), false);
    }
    return weir_ptx_ok(p);
}

static struct weir_ptx_func *new_func(struct weir_ptx_parser *p, const struct weir_ptx_token *name)
{
    struct weir_ptx_func *func = weir_ptx_new(p, sizeof(*func));
    struct weir_ptx_func **slot = NULL;

    if (func && ++p->n_symbols > WEIR_PTX_MAX_SYMBOLS) {
        weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "more than %u symbols", WEIR_PTX_MAX_SYMBOLS);
    } else if (func) {
        slot = weir_ptx_push(p, &p->funcs, sizeof(struct weir_ptx_func *), WEIR_PTX_MAX_SYMBOLS,
                             "functions");
    }
    WEIR_FAIL_IF(!slot, NULL);
    *slot = func;
    func->id = p->funcs.n - 1;
    func->name = weir_ptx_keep_text(p, name->text, name->len);
    func->line = name->line;
    struct weir_ptx_name *entry =
        func->name ? weir_ptx_names_add(&p->names, name->text, name->len, WEIR_PTX_NAME_FUNC)
                   : NULL;
    if (!entry) {
        weir_ptx_fail_memory(p);
        return NULL;
    }
    entry->object = func;
    return func;
}

/* Find the function of a name, or make it; an earlier declaration must agree. */
static struct weir_ptx_func *enter_func(struct weir_ptx_parser *p,
                                        const struct weir_ptx_token *name, bool is_entry)
{
    struct weir_ptx_func *func = find_func(p, name);

    if (name->kind == WEIR_PTX_TOKEN_IDENT && name->text[0] == '%') {
        weir_ptx_fail(p, name, WEIR_ERR_UNSUPPORTED, "module-level name beginning with '%%'");
        return NULL;
    }
    if (!func) {
        func = weir_ptx_check_new_name(p, name) ? new_func(p, name) : NULL;
        if (func) {
            func->is_entry = is_entry;
        }
        return func;
    }
    if (func->is_entry != is_entry) {
        weir_ptx_fail(p, name, WEIR_ERR_SYNTAX, "'%.*s' is both .entry and .func",
                      name->len > 60 ? 60 : (int)name->len, name->text);
        return NULL;
    }
    return func;
}

/* Empty the vectors, which may hold the last function's elements. */
static void reset_func(struct weir_ptx_parser *p, struct weir_ptx_func *func)
{
    p->func = func;
    p->regs.n = p->insts.n = p->labels.n = p->tables.n = 0;
    p->body_vars.n = p->notes.n = p->pending.n = p->elems.n = 0;
    p->next_suffix = 0;
}

/* Let a later declaration or definition replace the parts of an earlier one. */
static void merge_func(struct weir_ptx_func *func, const struct weir_ptx_func *parsed)
{
    func->returns = parsed->returns;
    func->n_returns = parsed->n_returns;
    func->params = parsed->params;
    func->n_params = parsed->n_params;
    func->params_size_bytes = parsed->params_size_bytes;
    for (uint32_t i = 0; i < func->n_params; i++) {
        func->params[i]->func = func;
    }
    for (uint32_t i = 0; i < func->n_returns; i++) {
        func->returns[i]->func = func;
    }
}

/*
 * Look ahead for the function's name. It follows the results, but must be declared outside the
 * scope of results and parameters.
 */
static struct weir_ptx_func *peek_func(struct weir_ptx_parser *p, bool is_entry)
{
    struct weir_ptx_lexer lexer = p->lexer;
    struct weir_ptx_token name = p->tok;
    uint32_t open = 0;

    while (open || (name.kind == WEIR_PTX_TOKEN_PUNCT && name.punct == '(')) {
        if (name.kind == WEIR_PTX_TOKEN_END || name.kind == WEIR_PTX_TOKEN_BAD) {
            weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "text ends inside a function's results");
            return NULL;
        }
        if (name.kind == WEIR_PTX_TOKEN_PUNCT) {
            open += (name.punct == '(') - (name.punct == ')');
        }
        weir_ptx_lexer_next(&lexer, &name);
    }
    return enter_func(p, &name, is_entry);
}

/* (results) name (parameters) directives, then ; or a body. Parameter names are in a scope. */
static bool parse_func_rest(struct weir_ptx_parser *p, struct weir_ptx_func *func,
                            enum weir_ptx_linkage linkage)
{
    struct weir_ptx_func parsed = {0};
    bool had_body = func->has_body;

    if (weir_ptx_at_punct(p, '(') && !func->is_entry &&
        !weir_ptx_parse_params(p, &parsed, true, true)) {
        return false;
    }
    struct weir_ptx_token name = p->tok;
    WEIR_FAIL_IF(name.kind != WEIR_PTX_TOKEN_IDENT,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a function's name"));
    p->func = func;
    if (!weir_ptx_next(p) ||
        (weir_ptx_at_punct(p, '(') && !weir_ptx_parse_params(p, &parsed, false, true)) ||
        !parse_perf(p, &func->perf)) {
        return false;
    }
    bool body = weir_ptx_at_punct(p, '{');
    WEIR_FAIL_IF(had_body && body,
                 weir_ptx_fail(p, &name, WEIR_ERR_SYNTAX, "'%s' is defined twice", func->name));
    if (!had_body) {
        merge_func(func, &parsed);
        func->linkage = (uint8_t)linkage;
    }
    struct weir_ptx_item *item = add_item(p, body ? WEIR_PTX_ITEM_FUNC : WEIR_PTX_ITEM_FUNC_DECL);
    WEIR_FAIL_IF(!item, false);
    item->linkage = (uint8_t)linkage;
    item->func = func;
    return body ? weir_ptx_parse_body(p) : weir_ptx_expect(p, ';');
}

static bool parse_func(struct weir_ptx_parser *p, bool is_entry, enum weir_ptx_linkage linkage)
{
    reset_func(p, NULL);
    struct weir_ptx_func *func = peek_func(p, is_entry);
    WEIR_FAIL_IF(!func, false);
    weir_ptx_names_open(&p->names);
    weir_ptx_names_open(&p->printed);
    bool ok = parse_func_rest(p, func, linkage);
    if (ok) {
        weir_ptx_names_close(&p->printed);
        weir_ptx_names_close(&p->names);
    }
    p->func = NULL;
    return ok;
}

static bool parse_item(struct weir_ptx_parser *p)
{
    if (weir_ptx_at_dot(p, "file")) {
        return parse_file(p);
    }
    if (weir_ptx_at_dot(p, "section")) {
        return parse_section(p);
    }
    if (weir_ptx_at_dot(p, "pragma")) {
        return weir_ptx_parse_pragma(p, add_pragma_item);
    }
    if (weir_ptx_accept_dot(p, "alias")) {
        return parse_alias(p);
    }
    enum weir_ptx_linkage linkage = parse_linkage(p);
    if (weir_ptx_accept_dot(p, "entry")) {
        return parse_func(p, true, linkage);
    }
    if (weir_ptx_accept_dot(p, "func")) {
        return parse_func(p, false, linkage);
    }
    if (weir_ptx_at_space(p)) {
        return weir_ptx_parse_vars(p, linkage);
    }
    WEIR_FAIL_IF(p->tok.kind == WEIR_PTX_TOKEN_DOT,
                 weir_ptx_fail(p, NULL, WEIR_ERR_UNSUPPORTED, "unknown directive '.%.*s'",
                               p->tok.len > 60 ? 60 : (int)p->tok.len, p->tok.text));
    return weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a directive before '%.*s'",
                         p->tok.len > 40 ? 40 : (int)p->tok.len, p->tok.text);
}

static bool parse_module(struct weir_ptx_parser *p)
{
    struct weir_ptx_module *module = p->module;

    WEIR_FAIL_IF(!weir_ptx_next(p) || !parse_version(p) || !parse_target(p), false);
    module->address_size = 64;
    WEIR_FAIL_IF(weir_ptx_accept_dot(p, "address_size") && !parse_address_size(p), false);
    while (weir_ptx_ok(p) && p->tok.kind != WEIR_PTX_TOKEN_END) {
        if (!weir_ptx_accept(p, ';') && weir_ptx_ok(p)) {
            parse_item(p);
        }
    }
    WEIR_FAIL_IF(!weir_ptx_ok(p), false);
    module->items = weir_ptx_take(p, &p->items, sizeof(struct weir_ptx_item), &module->n_items);
    module->vars = weir_ptx_take(p, &p->vars, sizeof(struct weir_ptx_var *), &module->n_vars);
    module->funcs = weir_ptx_take(p, &p->funcs, sizeof(struct weir_ptx_func *), &module->n_funcs);
    return weir_ptx_ok(p);
}

static void finish_parser(struct weir_ptx_parser *p)
{
    struct weir_ptx_vec *vecs[] = {&p->items, &p->vars,      &p->funcs,   &p->inits,
                                   &p->regs,  &p->insts,     &p->labels,  &p->tables,
                                   &p->notes, &p->body_vars, &p->pending, &p->elems};

    for (size_t i = 0; i < WEIR_COUNT(vecs); i++) {
        weir_ptx_vec_free(vecs[i]);
    }
    weir_ptx_names_finish(&p->names);
    weir_ptx_names_finish(&p->printed);
    weir_ptx_regmap_finish(&p->regmap);
}

static struct weir_ptx_module *create_module(size_t len_bytes)
{
    struct weir_arena arena;

    weir_arena_init(&arena, ARENA_FLOOR_BYTES + len_bytes * ARENA_BYTES_PER_BYTE);
    struct weir_ptx_module *module = weir_arena_alloc(&arena, sizeof(*module));
    if (!module) {
        weir_arena_finish(&arena);
        return NULL;
    }
    *module = (struct weir_ptx_module){.arena = arena};
    return module;
}

static void set_diag(struct weir_diag *diag, const char *text)
{
    if (diag) {
        memset(diag, 0, sizeof(*diag));
        snprintf(diag->message, sizeof(diag->message), "%s", text);
    }
}

enum weir_status weir_ptx_parse(const char *text, size_t len_bytes, uint32_t flags,
                                struct weir_diag *diag, struct weir_ptx_module **ret_module)
{
    struct weir_ptx_parser p = {.diag = diag, .flags = flags, .next_reg_decl = 1};
    struct weir_diag check_diag;

    if (len_bytes > WEIR_PTX_MAX_TEXT_BYTES) {
        set_diag(diag, "text is larger than 64 MiB");
        return WEIR_ERR_TOO_BIG;
    }
    p.module = create_module(len_bytes);
    if (!p.module || !weir_ptx_names_init(&p.names) || !weir_ptx_names_init(&p.printed)) {
        set_diag(diag, "out of memory");
        p.status = WEIR_ERR_NO_MEMORY;
    } else {
        weir_ptx_lexer_init(&p.lexer, text, len_bytes);
        parse_module(&p);
    }
    if (p.status == WEIR_OK) {
        p.status = weir_ptx_check(p.module, &check_diag);
        if (p.status != WEIR_OK && diag) {
            *diag = check_diag;
        }
    }
    finish_parser(&p);
    if (p.status != WEIR_OK) {
        weir_ptx_destroy(p.module);
        return p.status;
    }
    *ret_module = p.module;
    return WEIR_OK;
}

void weir_ptx_destroy(struct weir_ptx_module *module)
{
    if (module) {
        struct weir_arena arena = module->arena; /* the module itself is in this arena */

        weir_arena_finish(&arena);
    }
}

void *weir_ptx_alloc(struct weir_ptx_module *module, size_t size_bytes)
{
    void *ret = weir_arena_alloc(&module->arena, size_bytes);

    return ret ? memset(ret, 0, size_bytes) : NULL;
}

struct weir_ptx_func *weir_ptx_find_func(const struct weir_ptx_module *module, const char *name)
{
    uint32_t at = WEIR_FIRST(i, module->n_funcs, strcmp(module->funcs[i]->name, name) == 0);
    return at < module->n_funcs ? module->funcs[at] : NULL;
}

struct weir_ptx_var *weir_ptx_find_var(const struct weir_ptx_module *module, const char *name)
{
    uint32_t at = WEIR_FIRST(i, module->n_vars, strcmp(module->vars[i]->name, name) == 0);
    return at < module->n_vars ? module->vars[at] : NULL;
}

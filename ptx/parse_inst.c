/*
 * Instructions and operands.
 *
 * The tokens of an operand alone decide its meaning, apart from three opcodes: bra takes a label,
 * brx a table, call lists and a function.
 */
#include "ptx/parse.h"

#include <string.h>

static bool parse_operand(struct weir_ptx_parser *p, struct weir_ptx_operand *op, int depth);

static int shown(const struct weir_ptx_token *tok)
{
    return tok->len > 60 ? 60 : (int)tok->len;
}

/* Find the range that contains a name such as %r12. Try the shortest prefix first, that is, the
 * most digits. */
static struct weir_ptx_name *find_range(struct weir_ptx_parser *p, const struct weir_ptx_token *tok,
                                        uint32_t *ret_member)
{
    uint32_t digits = 0;

    while (digits < 9 && digits + 1 < tok->len && tok->text[tok->len - digits - 1] >= '0' &&
           tok->text[tok->len - digits - 1] <= '9') {
        digits++;
    }
    for (; digits > 0; digits--) {
        const char *number = tok->text + tok->len - digits;
        uint32_t member = 0;

        if (number[0] == '0' && digits > 1) {
            continue;
        }
        struct weir_ptx_name *range =
            weir_ptx_names_find(&p->names, tok->text, tok->len - digits, true);
        for (uint32_t i = 0; i < digits; i++) {
            member = member * 10 + (uint32_t)(number[i] - '0');
        }
        if (range && member < range->count) {
            *ret_member = member;
            return range;
        }
    }
    return NULL;
}

/* Find the id of one scalar of a declaration; its first use gives it an id. */
static bool reg_id(struct weir_ptx_parser *p, const struct weir_ptx_name *decl, uint32_t member,
                   const struct weir_ptx_token *tok, uint32_t *ret_id)
{
    uint32_t *id = weir_ptx_regmap_get(&p->regmap, (uint64_t)decl->id << 32 | member);

    WEIR_FAIL_IF(!id, weir_ptx_fail_memory(p));
    if (*id == WEIR_PTX_NONE) {
        *id = weir_ptx_new_reg(p, tok->text, tok->len, (enum weir_ptx_type)decl->type, decl->line);
    }
    *ret_id = *id;
    return weir_ptx_ok(p);
}

static bool push_elem(struct weir_ptx_parser *p, const struct weir_ptx_operand *op)
{
    struct weir_ptx_operand *slot =
        weir_ptx_push(p, &p->elems, sizeof(*slot), WEIR_PTX_MAX_LIST * 4, "elements in a list");

    if (slot) {
        *slot = *op;
    }
    return slot != NULL;
}

/* Move the elements above start from the stack into an operand. */
static bool keep_elems(struct weir_ptx_parser *p, struct weir_ptx_operand *op, uint32_t start)
{
    struct weir_ptx_operand *elems = p->elems.data;

    op->n_elems = p->elems.n - start;
    op->elems = NULL;
    if (op->n_elems) {
        op->elems = weir_ptx_keep(p, elems + start, op->n_elems * sizeof(*elems));
    }
    p->elems.n = start;
    return weir_ptx_ok(p);
}

static void init_operand(struct weir_ptx_operand *op, enum weir_ptx_operand_kind kind)
{
    memset(op, 0, sizeof(*op));
    op->kind = (uint8_t)kind;
    op->reg = op->reg2 = op->label = WEIR_PTX_NONE;
    op->component = WEIR_PTX_COMPONENT_ALL;
}

/* Use a vector register as a whole, that is, its scalars. */
static bool whole_vector(struct weir_ptx_parser *p, const struct weir_ptx_name *decl,
                         uint32_t member, const struct weir_ptx_token *tok,
                         struct weir_ptx_operand *op)
{
    uint32_t start = p->elems.n;

    init_operand(op, WEIR_PTX_OPERAND_VECTOR);
    for (uint32_t i = 0; i < decl->vec; i++) {
        struct weir_ptx_operand elem;

        init_operand(&elem, WEIR_PTX_OPERAND_REG);
        if (!reg_id(p, decl, member * decl->vec + i, tok, &elem.reg) || !push_elem(p, &elem)) {
            return false;
        }
    }
    return keep_elems(p, op, start);
}

/* Convert .x .y .z .w (or .r .g .b .a) to 0 .. 3, else 0xff. */
static uint8_t component_of(const struct weir_ptx_token *tok)
{
    static const char letters[] = "xyzwrgba";
    const char *found = tok->len == 1 ? strchr(letters, tok->text[0]) : NULL;

    return found && *found ? (uint8_t)((found - letters) % 4) : WEIR_PTX_COMPONENT_ALL;
}

/* Read what follows a register's name: a component, or the part that a video instruction uses. */
static bool parse_reg(struct weir_ptx_parser *p, const struct weir_ptx_name *decl, uint32_t member,
                      const struct weir_ptx_token *tok, struct weir_ptx_operand *op)
{
    init_operand(op, WEIR_PTX_OPERAND_REG);
    if (p->tok.kind != WEIR_PTX_TOKEN_DOT) {
        return decl->vec > 1 ? whole_vector(p, decl, member, tok, op)
                             : reg_id(p, decl, member, tok, &op->reg);
    }
    if (decl->vec > 1) {
        uint8_t component = component_of(&p->tok);

        WEIR_FAIL_IF(component >= decl->vec,
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "no such component"));
        return reg_id(p, decl, member * decl->vec + component, tok, &op->reg) && weir_ptx_next(p);
    }
    op->selector = weir_ptx_keep_text(p, p->tok.text, p->tok.len);
    return op->selector && reg_id(p, decl, member, tok, &op->reg) && weir_ptx_next(p);
}

static bool parse_sreg(struct weir_ptx_parser *p, enum weir_ptx_sreg sreg,
                       struct weir_ptx_operand *op)
{
    init_operand(op, WEIR_PTX_OPERAND_SREG);
    op->sreg = (uint16_t)sreg;
    if (p->tok.kind != WEIR_PTX_TOKEN_DOT) {
        return true;
    }
    op->component = component_of(&p->tok);
    WEIR_FAIL_IF(op->component >= weir_ptx_sreg_components(sreg),
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "%s has no .%.*s",
                               weir_ptx_sreg_text(sreg), shown(&p->tok), p->tok.text));
    return weir_ptx_next(p);
}

static bool parse_symbol(struct weir_ptx_parser *p, const struct weir_ptx_name *name,
                         const struct weir_ptx_token *tok, struct weir_ptx_operand *op)
{
    switch (name->kind) {
    case WEIR_PTX_NAME_VAR:
        init_operand(op, WEIR_PTX_OPERAND_VAR);
        op->var = name->object;
        return weir_ptx_parse_offset(p, &op->offset);
    case WEIR_PTX_NAME_FUNC:
        init_operand(op, WEIR_PTX_OPERAND_FUNC);
        op->func = name->object;
        return true;
    case WEIR_PTX_NAME_TABLE:
        init_operand(op, WEIR_PTX_OPERAND_TABLE);
        op->table = name->object;
        return true;
    default:
        return weir_ptx_fail(p, tok, WEIR_ERR_SYNTAX, "a label cannot stand here");
    }
}

/* Read any operand that begins with a name; steps over the name first. */
static bool parse_name(struct weir_ptx_parser *p, struct weir_ptx_operand *op)
{
    struct weir_ptx_token tok = p->tok;
    struct weir_ptx_name *name = weir_ptx_names_find(&p->names, tok.text, tok.len, false);
    uint32_t member = 0;

    init_operand(op, WEIR_PTX_OPERAND_SINK);
    WEIR_FAIL_IF(!weir_ptx_next(p), false);
    if (tok.len == 1 && tok.text[0] == '_') {
        return true;
    }
    struct weir_ptx_name *range = find_range(p, &tok, &member);
    if (range && (!name || name->depth < range->depth)) {
        return parse_reg(p, range, member, &tok, op);
    }
    if (name && name->kind == WEIR_PTX_NAME_REG) {
        return parse_reg(p, name, 0, &tok, op);
    }
    if (name) {
        return parse_symbol(p, name, &tok, op);
    }
    enum weir_ptx_sreg sreg = weir_ptx_sreg_from_text(tok.text, tok.len);
    if (sreg) {
        return parse_sreg(p, sreg, op);
    }
    return weir_ptx_fail(p, &tok, WEIR_ERR_SYNTAX, "'%.*s' is not declared", shown(&tok), tok.text);
}

/* Read elements up to `close`; the opening bracket was read. */
static bool parse_elems(struct weir_ptx_parser *p, struct weir_ptx_operand *op, uint16_t close,
                        int depth)
{
    uint32_t start = p->elems.n;

    while (!weir_ptx_at_punct(p, close)) {
        struct weir_ptx_operand elem;

        if ((p->elems.n > start && !weir_ptx_expect(p, ',')) ||
            !parse_operand(p, &elem, depth + 1) || !push_elem(p, &elem)) {
            return false;
        }
        WEIR_FAIL_IF(p->elems.n - start > WEIR_PTX_MAX_LIST,
                     weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "more than %d elements in a list",
                                   WEIR_PTX_MAX_LIST));
    }
    return weir_ptx_expect(p, close) && keep_elems(p, op, start);
}

/* Read [base {+ offset} {, item ..}] {.unified}; the opening bracket was read. */
static bool parse_mem(struct weir_ptx_parser *p, struct weir_ptx_operand *op, int depth)
{
    struct weir_ptx_token at = p->tok;
    struct weir_ptx_operand base;

    init_operand(op, WEIR_PTX_OPERAND_MEM);
    if (at.kind == WEIR_PTX_TOKEN_IDENT && !weir_ptx_at_ident(p, "WARP_SZ")) {
        WEIR_FAIL_IF(!parse_name(p, &base), false);
        if (base.kind == WEIR_PTX_OPERAND_REG && !base.selector) {
            op->base = WEIR_PTX_BASE_REG;
            op->reg = base.reg;
            WEIR_FAIL_IF(!weir_ptx_parse_offset(p, &op->offset), false);
        } else if (base.kind == WEIR_PTX_OPERAND_VAR) {
            op->base = WEIR_PTX_BASE_VAR;
            op->var = base.var;
            op->offset = base.offset;
        } else {
            return weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "'%.*s' is not an address", shown(&at),
                                 at.text);
        }
    } else {
        op->base = WEIR_PTX_BASE_INT;
        WEIR_FAIL_IF(!weir_ptx_parse_const(p, &op->bits), false);
    }
    if (weir_ptx_accept(p, ',') ? !parse_elems(p, op, ']', depth) : !weir_ptx_expect(p, ']')) {
        return false;
    }
    if (weir_ptx_accept_dot(p, "unified")) {
        op->selector = "unified";
    }
    return weir_ptx_ok(p);
}

static bool parse_float(struct weir_ptx_parser *p, bool minus, struct weir_ptx_operand *op)
{
    init_operand(op, WEIR_PTX_OPERAND_FLOAT);
    op->float_bits = p->tok.kind == WEIR_PTX_TOKEN_FLOAT32 ? 32 : 64;
    op->bits = p->tok.bits;
    if (minus) {
        op->bits ^= 1ull << (op->float_bits - 1);
    }
    return weir_ptx_next(p);
}

static bool is_float(uint8_t kind)
{
    return kind == WEIR_PTX_TOKEN_FLOAT || kind == WEIR_PTX_TOKEN_FLOAT32 ||
           kind == WEIR_PTX_TOKEN_FLOAT64;
}

/* Read a number, or the minus of a video instruction's operand. */
static bool parse_number(struct weir_ptx_parser *p, struct weir_ptx_operand *op)
{
    bool minus = weir_ptx_at_punct(p, '-');
    struct weir_ptx_token next = minus ? weir_ptx_peek(p) : p->tok;

    if (is_float(next.kind)) {
        return (!minus || weir_ptx_next(p)) && parse_float(p, minus, op);
    }
    if (minus && next.kind == WEIR_PTX_TOKEN_IDENT) {
        struct weir_ptx_token at = next;

        WEIR_FAIL_IF(!weir_ptx_next(p) || !parse_name(p, op), false);
        op->minus = true;
        return op->kind == WEIR_PTX_OPERAND_REG ||
               weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "minus before something not a register");
    }
    init_operand(op, WEIR_PTX_OPERAND_INT);
    WEIR_FAIL_IF(!weir_ptx_parse_const(p, &op->bits), false);
    op->is_signed = minus && (int64_t)op->bits < 0;
    return true;
}

/* Read |q after p, or after the vector of a texture fetch. */
static bool parse_pair(struct weir_ptx_parser *p, struct weir_ptx_operand *op)
{
    struct weir_ptx_operand second;

    if ((op->kind != WEIR_PTX_OPERAND_REG && op->kind != WEIR_PTX_OPERAND_SINK &&
         op->kind != WEIR_PTX_OPERAND_VECTOR) ||
        !weir_ptx_accept(p, '|')) {
        return weir_ptx_ok(p);
    }
    WEIR_FAIL_IF(p->tok.kind != WEIR_PTX_TOKEN_IDENT,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a register after '|'"));
    struct weir_ptx_token at = p->tok;

    WEIR_FAIL_IF(!parse_name(p, &second), false);
    WEIR_FAIL_IF(second.kind != WEIR_PTX_OPERAND_REG && second.kind != WEIR_PTX_OPERAND_SINK,
                 weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "expected a register after '|'"));
    op->reg2 = second.reg;
    return true;
}

static bool parse_operand(struct weir_ptx_parser *p, struct weir_ptx_operand *op, int depth)
{
    WEIR_FAIL_IF(depth > WEIR_PTX_MAX_NESTING,
                 weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "operand is nested too deeply"));
    if (weir_ptx_accept(p, '{')) {
        init_operand(op, WEIR_PTX_OPERAND_VECTOR);
        return parse_elems(p, op, '}', depth) && (depth > 0 || parse_pair(p, op));
    }
    if (weir_ptx_accept(p, '[')) {
        return parse_mem(p, op, depth);
    }
    if (weir_ptx_at_punct(p, '!') && weir_ptx_peek(p).kind == WEIR_PTX_TOKEN_IDENT) {
        struct weir_ptx_token at = p->tok;

        WEIR_FAIL_IF(!weir_ptx_next(p) || !parse_name(p, op), false);
        op->negated = true;
        return op->kind == WEIR_PTX_OPERAND_REG ||
               weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "'!' before something not a predicate");
    }
    if (p->tok.kind == WEIR_PTX_TOKEN_IDENT && !weir_ptx_at_ident(p, "WARP_SZ")) {
        return parse_name(p, op) && parse_pair(p, op);
    }
    return parse_number(p, op);
}

bool weir_ptx_parse_label_use(struct weir_ptx_parser *p, uint32_t *dest)
{
    WEIR_FAIL_IF(p->tok.kind != WEIR_PTX_TOKEN_IDENT,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a label"));
    struct weir_ptx_pending *use =
        weir_ptx_push(p, &p->pending, sizeof(*use), WEIR_PTX_MAX_INSTS, "uses of labels");
    WEIR_FAIL_IF(!use, false);
    use->text = p->tok.text;
    use->len = p->tok.len;
    use->line = p->tok.line;
    use->column = p->tok.column;
    use->dest = dest;
    *dest = WEIR_PTX_NONE;
    return weir_ptx_next(p);
}

static bool parse_bra(struct weir_ptx_parser *p, struct weir_ptx_inst *inst)
{
    struct weir_ptx_operand *op = weir_ptx_new(p, sizeof(*op));

    WEIR_FAIL_IF(!op, false);
    init_operand(op, WEIR_PTX_OPERAND_LABEL);
    inst->operands = op;
    inst->n_operands = 1;
    return weir_ptx_parse_label_use(p, &op->label);
}

static bool parse_call_list(struct weir_ptx_parser *p, struct weir_ptx_operand *op)
{
    return weir_ptx_expect(p, '(') && parse_elems(p, op, ')', 0);
}

/* call {(results),} target {, (arguments)} {, table}; */
static bool parse_call(struct weir_ptx_parser *p, struct weir_ptx_inst *inst)
{
    struct weir_ptx_operand ops[4];

    init_operand(&ops[0], WEIR_PTX_OPERAND_LIST);
    init_operand(&ops[2], WEIR_PTX_OPERAND_LIST);
    inst->n_operands = 3;
    if (weir_ptx_at_punct(p, '(') && (!parse_call_list(p, &ops[0]) || !weir_ptx_expect(p, ','))) {
        return false;
    }
    struct weir_ptx_token at = p->tok;

    if (p->tok.kind != WEIR_PTX_TOKEN_IDENT || !parse_name(p, &ops[1]) ||
        (ops[1].kind != WEIR_PTX_OPERAND_FUNC && ops[1].kind != WEIR_PTX_OPERAND_REG)) {
        return weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "expected a function or a register");
    }
    bool more = weir_ptx_accept(p, ',');

    if (more && weir_ptx_at_punct(p, '(')) {
        WEIR_FAIL_IF(!parse_call_list(p, &ops[2]), false);
        more = weir_ptx_accept(p, ',');
    }
    if (more) {
        at = p->tok;
        WEIR_FAIL_IF(
            !parse_operand(p, &ops[3], 0) || ops[3].kind != WEIR_PTX_OPERAND_TABLE,
            weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "expected a prototype or call targets"));
        inst->n_operands = 4;
    }
    inst->operands = weir_ptx_keep(p, ops, inst->n_operands * sizeof(*ops));
    return weir_ptx_ok(p);
}

static bool parse_operands(struct weir_ptx_parser *p, struct weir_ptx_inst *inst)
{
    struct weir_ptx_operand ops[WEIR_PTX_MAX_OPERANDS];
    uint32_t n = 0;

    while (!weir_ptx_at_punct(p, ';')) {
        WEIR_FAIL_IF(n == WEIR_PTX_MAX_OPERANDS,
                     weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "more than %d operands",
                                   WEIR_PTX_MAX_OPERANDS));
        WEIR_FAIL_IF(n > 0 && !weir_ptx_accept(p, ','),
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected ',' or ';' before '%.*s'",
                                   shown(&p->tok), p->tok.text));
        WEIR_FAIL_IF(!parse_operand(p, &ops[n++], 0), false);
    }
    inst->n_operands = (uint8_t)n;
    inst->operands = n ? weir_ptx_keep(p, ops, n * sizeof(*ops)) : NULL;
    return weir_ptx_ok(p);
}

static bool parse_mods(struct weir_ptx_parser *p, struct weir_ptx_inst *inst,
                       const struct weir_ptx_token *mnemonic)
{
    uint16_t mods[WEIR_PTX_MAX_MODS];
    bool has_shape = false;
    uint32_t n = 0;

    for (; p->tok.kind == WEIR_PTX_TOKEN_DOT; n++) {
        enum weir_ptx_mod mod = weir_ptx_mod_from_text(p->tok.text, p->tok.len, &inst->shape);

        WEIR_FAIL_IF(!mod || (mod == WEIR_PTX_MOD_SHAPE && has_shape),
                     weir_ptx_fail(p, NULL, WEIR_ERR_UNSUPPORTED,
                                   "unknown suffix '.%.*s' of '%.*s'", shown(&p->tok), p->tok.text,
                                   shown(mnemonic), mnemonic->text));
        WEIR_FAIL_IF(
            n == WEIR_PTX_MAX_MODS,
            weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "more than %d suffixes", WEIR_PTX_MAX_MODS));
        has_shape |= mod == WEIR_PTX_MOD_SHAPE;
        mods[n] = (uint16_t)mod;
        WEIR_FAIL_IF(!weir_ptx_next(p), false);
    }
    inst->n_mods = (uint8_t)n;
    inst->mods = n ? weir_ptx_keep(p, mods, n * sizeof(*mods)) : NULL;
    WEIR_FAIL_IF(
        weir_ptx_ok(p) && !weir_ptx_inst_decode(inst),
        weir_ptx_fail(p, mnemonic, WEIR_ERR_TOO_BIG, "more than %d types", WEIR_PTX_MAX_TYPES));
    return weir_ptx_ok(p);
}

static bool parse_guard(struct weir_ptx_parser *p, struct weir_ptx_inst *inst)
{
    struct weir_ptx_operand op;

    inst->guard = WEIR_PTX_NONE;
    if (!weir_ptx_accept(p, '@')) {
        return weir_ptx_ok(p);
    }
    inst->guard_negated = weir_ptx_accept(p, '!');
    struct weir_ptx_token at = p->tok;
    WEIR_FAIL_IF(p->tok.kind != WEIR_PTX_TOKEN_IDENT,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a predicate after '@'"));
    WEIR_FAIL_IF(!parse_name(p, &op), false);
    const struct weir_ptx_reg *regs = p->regs.data;

    WEIR_FAIL_IF(op.kind != WEIR_PTX_OPERAND_REG || regs[op.reg].type != WEIR_PTX_TYPE_PRED,
                 weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "guard is not a predicate"));
    inst->guard = op.reg;
    return true;
}

static bool check_count(struct weir_ptx_parser *p, const struct weir_ptx_inst *inst,
                        const struct weir_ptx_token *mnemonic)
{
    const struct weir_ptx_op_info *info = weir_ptx_op_info((enum weir_ptx_op)inst->op);

    WEIR_FAIL_IF(inst->n_operands < info->min_operands || inst->n_operands > info->max_operands,
                 weir_ptx_fail(p, mnemonic, WEIR_ERR_SYNTAX, "%s with %u operands", info->name,
                               inst->n_operands));
    return true;
}

bool weir_ptx_parse_inst(struct weir_ptx_parser *p)
{
    struct weir_ptx_inst inst = {.vec = 1};
    bool ok;

    WEIR_FAIL_IF(!parse_guard(p, &inst), false);
    struct weir_ptx_token mnemonic = p->tok;
    inst.line = mnemonic.line;
    WEIR_FAIL_IF(mnemonic.kind != WEIR_PTX_TOKEN_IDENT,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected an instruction"));
    inst.op = (uint16_t)weir_ptx_op_from_text(mnemonic.text, mnemonic.len);
    WEIR_FAIL_IF(!inst.op,
                 weir_ptx_fail(p, NULL, WEIR_ERR_UNSUPPORTED, "unknown instruction '%.*s'",
                               shown(&mnemonic), mnemonic.text));
    WEIR_FAIL_IF(
        ++p->n_insts > WEIR_PTX_MAX_INSTS,
        weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "more than %u instructions", WEIR_PTX_MAX_INSTS));
    WEIR_FAIL_IF(!weir_ptx_next(p) || !parse_mods(p, &inst, &mnemonic), false);
    if (inst.op == WEIR_PTX_OP_BRA) {
        ok = parse_bra(p, &inst);
    } else if (inst.op == WEIR_PTX_OP_CALL) {
        ok = parse_call(p, &inst);
    } else {
        ok = parse_operands(p, &inst);
    }
    WEIR_FAIL_IF(!ok || !check_count(p, &inst, &mnemonic) || !weir_ptx_expect(p, ';'), false);
    struct weir_ptx_inst *slot =
        weir_ptx_push(p, &p->insts, sizeof(*slot), WEIR_PTX_MAX_INSTS, "instructions");
    if (slot) {
        *slot = inst;
    }
    return slot != NULL;
}

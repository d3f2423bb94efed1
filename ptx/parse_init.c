/*
 * Initialisers of variables.
 *
 * Nested braces follow the dimensions (a vector counts as the innermost one), as in C: a brace
 * opens the next dimension at its next element, and a value without a brace fills the next place.
 * Zeros are not stored.
 */
#include "ptx/parse.h"

#include <string.h>

struct init_state {
    struct weir_ptx_var *var;
    /* For each level: how many elements one of its braces contains. */
    uint64_t strides[WEIR_PTX_MAX_DIMS + 2];
    uint32_t n_levels;
    uint64_t end; /* one past the last element given */
};

static bool add_init(struct weir_ptx_parser *p, const struct weir_ptx_init *init)
{
    if (init->kind <= WEIR_PTX_INIT_FLOAT && init->bits == 0) {
        return true;
    }
    WEIR_FAIL_IF(++p->n_inits > WEIR_PTX_MAX_INIT,
                 weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "too many initialisers"));
    struct weir_ptx_init *slot =
        weir_ptx_push(p, &p->inits, sizeof(*slot), WEIR_PTX_MAX_INIT, "initialisers");
    if (slot) {
        *slot = *init;
    }
    return slot != NULL;
}

static bool float_init(struct weir_ptx_parser *p, const struct weir_ptx_var *var, bool negative,
                       struct weir_ptx_init *init)
{
    uint32_t bits = weir_ptx_type_bits((enum weir_ptx_type)var->type);
    bool narrow = p->tok.kind == WEIR_PTX_TOKEN_FLOAT32;
    double wide;
    float single;

    init->kind = WEIR_PTX_INIT_FLOAT;
    init->bits = p->tok.bits;
    WEIR_FAIL_IF(bits != 32 && bits != 64,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "floating-point initialiser of a .%s",
                               weir_ptx_type_text((enum weir_ptx_type)var->type)));
    if (narrow && bits == 64) {
        uint32_t low = (uint32_t)init->bits;

        memcpy(&single, &low, sizeof(single));
        wide = single;
        memcpy(&init->bits, &wide, sizeof(wide));
    } else if (!narrow && bits == 32) {
        uint32_t low;

        memcpy(&wide, &init->bits, sizeof(wide));
        single = (float)wide;
        memcpy(&low, &single, sizeof(low));
        init->bits = low;
    }
    if (negative) {
        init->bits ^= 1ull << (bits - 1);
    }
    return weir_ptx_next(p);
}

static bool int_init(struct weir_ptx_parser *p, const struct weir_ptx_var *var,
                     struct weir_ptx_init *init)
{
    uint32_t bits = weir_ptx_type_bits((enum weir_ptx_type)var->type);

    init->kind = WEIR_PTX_INIT_INT;
    WEIR_FAIL_IF(!weir_ptx_parse_const(p, &init->bits), false);
    if (weir_ptx_type_class((enum weir_ptx_type)var->type) == 'F' && (bits == 32 || bits == 64)) {
        double wide = (double)(int64_t)init->bits;
        float single = (float)wide;
        uint32_t low;

        init->kind = WEIR_PTX_INIT_FLOAT;
        memcpy(&low, &single, sizeof(low));
        memcpy(&init->bits, &wide, sizeof(wide));
        init->bits = bits == 32 ? low : init->bits;
    } else if (bits < 64) {
        init->bits &= (1ull << bits) - 1;
    }
    return true;
}

/* name {+ offset}, or generic(name) {+ offset}. */
static bool symbol_init(struct weir_ptx_parser *p, struct weir_ptx_init *init)
{
    if (weir_ptx_at_ident(p, "generic") && weir_ptx_peek(p).punct == '(') {
        init->generic = true;
        weir_ptx_next(p);
        weir_ptx_next(p);
    }
    struct weir_ptx_token at = p->tok;
    struct weir_ptx_name *name = at.kind == WEIR_PTX_TOKEN_IDENT
                                     ? weir_ptx_names_find(&p->names, at.text, at.len, false)
                                     : NULL;
    if (name && name->kind == WEIR_PTX_NAME_FUNC) {
        init->kind = WEIR_PTX_INIT_FUNC;
        init->func = name->object;
    } else if (name && name->kind == WEIR_PTX_NAME_VAR) {
        init->kind = WEIR_PTX_INIT_VAR;
        init->var = name->object;
    } else {
        return weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "'%.*s' is not a variable or function",
                             at.len > 60 ? 60 : (int)at.len, at.text);
    }
    return weir_ptx_next(p) && weir_ptx_parse_offset(p, &init->offset) &&
           (!init->generic || weir_ptx_expect(p, ')')) &&
           (init->offset || weir_ptx_parse_offset(p, &init->offset));
}

static bool parse_value(struct weir_ptx_parser *p, const struct weir_ptx_var *var,
                        struct weir_ptx_init *init)
{
    bool minus = weir_ptx_at_punct(p, '-');
    uint8_t kind = minus ? weir_ptx_peek(p).kind : p->tok.kind;

    if (kind == WEIR_PTX_TOKEN_FLOAT || kind == WEIR_PTX_TOKEN_FLOAT32 ||
        kind == WEIR_PTX_TOKEN_FLOAT64) {
        return (!minus || weir_ptx_next(p)) && float_init(p, var, minus, init);
    }
    if (kind == WEIR_PTX_TOKEN_IDENT && !minus && !weir_ptx_at_ident(p, "WARP_SZ")) {
        return symbol_init(p, init);
    }
    if (kind == WEIR_PTX_TOKEN_INT && weir_ptx_peek(p).punct == '(') {
        init->mask = p->tok.bits;
        WEIR_FAIL_IF(init->mask == 0,
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "address mask of zero"));
        return weir_ptx_next(p) && weir_ptx_expect(p, '(') && symbol_init(p, init) &&
               weir_ptx_expect(p, ')');
    }
    return int_init(p, var, init);
}

static bool parse_list(struct weir_ptx_parser *p, struct init_state *state, uint32_t level,
                       uint64_t base)
{
    uint64_t stride = state->strides[level];
    uint64_t at = 0;

    WEIR_FAIL_IF(!weir_ptx_expect(p, '{'), false);
    while (!weir_ptx_at_punct(p, '}')) {
        struct weir_ptx_init init = {.index = base + at};
        bool nested = weir_ptx_at_punct(p, '{');
        uint64_t step = nested && level + 1 < state->n_levels ? state->strides[level + 1] : 1;

        WEIR_FAIL_IF(nested && level + 1 >= state->n_levels,
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "braces deeper than the array"));
        if (nested && step) {
            at = (at + step - 1) / step * step;
        }
        WEIR_FAIL_IF(at >= stride,
                     weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "more initialisers than elements"));
        if (nested ? !parse_list(p, state, level + 1, base + at)
                   : !(parse_value(p, state->var, &init) && add_init(p, &init))) {
            return false;
        }
        at += step;
        if (base + at > state->end) {
            state->end = base + at;
        }
        if (!weir_ptx_accept(p, ',')) {
            break;
        }
    }
    return weir_ptx_expect(p, '}');
}

/* Compute one level per dimension, outermost first, and one for a vector. */
static void fill_strides(struct init_state *state)
{
    const struct weir_ptx_var *var = state->var;
    uint64_t stride = var->vec;

    state->n_levels = var->n_dims + (var->vec > 1);
    state->strides[state->n_levels] = 1;
    if (var->vec > 1) {
        state->strides[var->n_dims] = stride;
    }
    for (uint32_t i = var->n_dims; i-- > 0;) {
        /* An open dimension takes any number of elements. */
        stride = var->unsized && i == 0 ? WEIR_PTX_MAX_VAR_BYTES : stride * var->dims[i];
        state->strides[i] = stride;
    }
    if (state->n_levels == 0) {
        state->n_levels = 1;
        state->strides[0] = 1;
    }
}

bool weir_ptx_parse_init(struct weir_ptx_parser *p, struct weir_ptx_var *var)
{
    struct init_state state = {.var = var};
    struct weir_ptx_init init = {0};

    fill_strides(&state);
    p->inits.n = 0;
    var->has_init = true;
    if (weir_ptx_at_punct(p, '{')) {
        WEIR_FAIL_IF(!parse_list(p, &state, 0, 0), false);
    } else if (!parse_value(p, var, &init) || !add_init(p, &init)) {
        return false;
    }
    if (var->unsized) {
        uint64_t step = state.n_levels > 1 ? state.strides[1] : 1;

        var->dims[0] = step ? (state.end + step - 1) / step : 0;
        var->unsized = false;
    }
    var->inits = weir_ptx_take(p, &p->inits, sizeof(struct weir_ptx_init), &var->n_inits);
    return weir_ptx_ok(p);
}

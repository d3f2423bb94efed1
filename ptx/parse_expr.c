/*
 * Constant integer expressions, by precedence climbing. 64-bit two's complement throughout;
 * division, shift right and comparison are signed, as the manual's default type .s64 is.
 */
#include "ptx/parse.h"

#include <assert.h>

#define LOWEST_PRECEDENCE 1

static bool parse_binary(struct weir_ptx_parser *p, int lowest, int depth, uint64_t *ret_value);

static bool parse_unary(struct weir_ptx_parser *p, int depth, uint64_t *ret_value)
{
    uint64_t value = 0;

    WEIR_FAIL_IF(depth > WEIR_PTX_MAX_NESTING,
                 weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "expression is nested too deeply"));
    if (p->tok.kind == WEIR_PTX_TOKEN_INT) {
        *ret_value = p->tok.bits;
        return weir_ptx_next(p);
    }
    if (weir_ptx_at_ident(p, "WARP_SZ")) {
        *ret_value = 32;
        return weir_ptx_next(p);
    }
    if (weir_ptx_accept(p, '(')) {
        /* A cast such as (.s64) has no effect on 64 bits. */
        if (p->tok.kind == WEIR_PTX_TOKEN_DOT) {
            return weir_ptx_next(p) && weir_ptx_expect(p, ')') &&
                   parse_unary(p, depth + 1, ret_value);
        }
        return parse_binary(p, LOWEST_PRECEDENCE, depth + 1, ret_value) && weir_ptx_expect(p, ')');
    }
    uint16_t sign = p->tok.kind == WEIR_PTX_TOKEN_PUNCT ? p->tok.punct : 0;

    WEIR_FAIL_IF(sign != '-' && sign != '+' && sign != '~' && sign != '!',
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected a constant"));
    WEIR_FAIL_IF(!weir_ptx_next(p) || !parse_unary(p, depth + 1, &value), false);
    *ret_value = sign == '-' ? -value : sign == '~' ? ~value : sign == '!' ? !value : value;
    return true;
}

static int precedence(const struct weir_ptx_parser *p)
{
    if (p->tok.kind != WEIR_PTX_TOKEN_PUNCT) {
        return 0;
    }
    switch (p->tok.punct) {
    case '*':
    case '/':
    case '%':
        return 10;
    case '+':
    case '-':
        return 9;
    case WEIR_PTX_PUNCT2('<', '<'):
    case WEIR_PTX_PUNCT2('>', '>'):
        return 8;
    case '<':
    case '>':
    case WEIR_PTX_PUNCT2('<', '='):
    case WEIR_PTX_PUNCT2('>', '='):
        return 7;
    case WEIR_PTX_PUNCT2('=', '='):
    case WEIR_PTX_PUNCT2('!', '='):
        return 6;
    case '&':
        return 5;
    case '^':
        return 4;
    case '|':
        return 3;
    case WEIR_PTX_PUNCT2('&', '&'):
        return 2;
    case WEIR_PTX_PUNCT2('|', '|'):
        return LOWEST_PRECEDENCE;
    default:
        return 0;
    }
}

static uint64_t divide(uint64_t a, uint64_t b, bool remainder)
{
    assert(b != 0);
    if (b == UINT64_MAX) { /* INT64_MIN / -1 would trap */
        return remainder ? 0 : -a;
    }
    return (uint64_t)(remainder ? (int64_t)a % (int64_t)b : (int64_t)a / (int64_t)b);
}

static uint64_t apply(uint16_t op, uint64_t a, uint64_t b)
{
    switch (op) {
    case '*':
        return a * b;
    case '/':
    case '%':
        return divide(a, b, op == '%');
    case '+':
        return a + b;
    case '-':
        return a - b;
    case WEIR_PTX_PUNCT2('<', '<'):
        return b < 64 ? a << b : 0;
    case WEIR_PTX_PUNCT2('>', '>'):
        return (uint64_t)((int64_t)a >> (b < 64 ? b : 63));
    case '<':
        return (int64_t)a < (int64_t)b;
    case '>':
        return (int64_t)a > (int64_t)b;
    case WEIR_PTX_PUNCT2('<', '='):
        return (int64_t)a <= (int64_t)b;
    case WEIR_PTX_PUNCT2('>', '='):
        return (int64_t)a >= (int64_t)b;
    case WEIR_PTX_PUNCT2('=', '='):
        return a == b;
    case WEIR_PTX_PUNCT2('!', '='):
        return a != b;
    case '&':
        return a & b;
    case '^':
        return a ^ b;
    case '|':
        return a | b;
    case WEIR_PTX_PUNCT2('&', '&'):
        return a && b;
    default:
        return a || b;
    }
}

static bool parse_binary(struct weir_ptx_parser *p, int lowest, int depth, uint64_t *ret_value)
{
    uint64_t value = 0, right = 0;

    WEIR_FAIL_IF(!parse_unary(p, depth, &value), false);
    for (int level = precedence(p); level >= lowest; level = precedence(p)) {
        struct weir_ptx_token op = p->tok;

        WEIR_FAIL_IF(!weir_ptx_next(p) || !parse_binary(p, level + 1, depth + 1, &right), false);
        WEIR_FAIL_IF((op.punct == '/' || op.punct == '%') && right == 0,
                     weir_ptx_fail(p, &op, WEIR_ERR_SYNTAX, "division by zero"));
        value = apply(op.punct, value, right);
    }
    *ret_value = value;
    return true;
}

bool weir_ptx_parse_const(struct weir_ptx_parser *p, uint64_t *ret_value)
{
    return parse_binary(p, LOWEST_PRECEDENCE, 0, ret_value);
}

bool weir_ptx_parse_const_max(struct weir_ptx_parser *p, uint64_t max, const char *what,
                              uint64_t *ret_value)
{
    struct weir_ptx_token at = p->tok;
    uint64_t value = 0;

    WEIR_FAIL_IF(!weir_ptx_parse_const(p, &value), false);
    WEIR_FAIL_IF(value > max, weir_ptx_fail(p, &at, WEIR_ERR_SYNTAX, "%s is out of range", what));
    *ret_value = value;
    return true;
}

bool weir_ptx_parse_offset(struct weir_ptx_parser *p, int64_t *ret_offset)
{
    uint64_t value = 0;

    /* The expression reads the sign: sym-4+2 is sym + (-4+2). */
    if ((weir_ptx_at_punct(p, '-') || weir_ptx_at_punct(p, '+')) &&
        !weir_ptx_parse_const(p, &value)) {
        return false;
    }
    *ret_offset = (int64_t)value;
    return weir_ptx_ok(p);
}

/* The lexer: every kind of token, and its position. */
#include "ptx/lex.h"
#include "tests/lib/tl_cmocka.h"

#include <string.h>

static struct weir_ptx_token first(const char *text)
{
    struct weir_ptx_lexer lexer;
    struct weir_ptx_token token;

    weir_ptx_lexer_init(&lexer, text, strlen(text));
    weir_ptx_lexer_next(&lexer, &token);
    return token;
}

static void next_single_token_has_kind_and_value(void **state)
{
    static const struct {
        const char *source;
        enum weir_ptx_token_kind kind;
        const char *text; /* NULL: not looked at */
        uint64_t bits;
    } rows[] = {
        {"%r12", WEIR_PTX_TOKEN_IDENT, "%r12", 0},
        {"$L__BB0_1:", WEIR_PTX_TOKEN_IDENT, "$L__BB0_1", 0},
        {"_", WEIR_PTX_TOKEN_IDENT, "_", 0},
        {".2d.v4", WEIR_PTX_TOKEN_DOT, "2d", 0},
        {".mbarrier::complete_tx::bytes ", WEIR_PTX_TOKEN_DOT, "mbarrier::complete_tx::bytes", 0},
        {"0", WEIR_PTX_TOKEN_INT, NULL, 0},
        {"4294967296", WEIR_PTX_TOKEN_INT, NULL, 4294967296},
        {"0xFFFFFFFFFFFFFFFF", WEIR_PTX_TOKEN_INT, NULL, UINT64_MAX},
        {"017", WEIR_PTX_TOKEN_INT, NULL, 15},
        {"0b101", WEIR_PTX_TOKEN_INT, NULL, 5},
        {"7U", WEIR_PTX_TOKEN_INT, NULL, 7},
        {"0f3F800000", WEIR_PTX_TOKEN_FLOAT32, NULL, 0x3f800000},
        {"0D3FF0000000000000", WEIR_PTX_TOKEN_FLOAT64, NULL, 0x3ff0000000000000},
        {"2.5", WEIR_PTX_TOKEN_FLOAT, NULL, 0x4004000000000000},
        {"1e-1", WEIR_PTX_TOKEN_FLOAT, NULL, 0x3fb999999999999a},
        {"\"a \\\" b\"", WEIR_PTX_TOKEN_STRING, "a \\\" b", 0},
        {"<<", WEIR_PTX_TOKEN_PUNCT, "<<", 0},
        {"// only a comment", WEIR_PTX_TOKEN_END, NULL, 0},
        {"/* a\n comment */ x", WEIR_PTX_TOKEN_IDENT, "x", 0},
        {"0f12", WEIR_PTX_TOKEN_BAD, NULL, 0x12},
        {"0x", WEIR_PTX_TOKEN_BAD, NULL, 0},
        {"12ab", WEIR_PTX_TOKEN_BAD, NULL, 12},
        {"\"open", WEIR_PTX_TOKEN_BAD, NULL, 0},
        {"/* open", WEIR_PTX_TOKEN_BAD, NULL, 0},
        {"\x80", WEIR_PTX_TOKEN_BAD, NULL, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct weir_ptx_token token = first(rows[i].source);

        if (token.kind != rows[i].kind || token.bits != rows[i].bits ||
            (rows[i].text && (strlen(rows[i].text) != token.len ||
                              memcmp(rows[i].text, token.text, token.len) != 0))) {
            fail_msg("row '%s': kind %d bits %#llx text '%.*s'", rows[i].source, token.kind,
                     (unsigned long long)token.bits, (int)token.len, token.text);
        }
    }
}

static void next_positions_count_lines_and_columns(void **state)
{
    struct weir_ptx_lexer lexer;
    struct weir_ptx_token token;
    static const char text[] = "a /* x\n\n */ bb\n\t.c";
    static const uint32_t want[][2] = {{1, 1}, {3, 5}, {4, 2}, {4, 4}};

    (void)state;
    weir_ptx_lexer_init(&lexer, text, sizeof(text) - 1);
    for (size_t i = 0; i < 4; i++) {
        weir_ptx_lexer_next(&lexer, &token);
        assert_int_equal(token.line, want[i][0]);
        assert_int_equal(token.column, want[i][1]);
    }
    assert_int_equal(token.kind, WEIR_PTX_TOKEN_END);
}

static void next_nul_in_text_ends_it(void **state)
{
    struct weir_ptx_lexer lexer;
    struct weir_ptx_token token;

    (void)state;
    weir_ptx_lexer_init(&lexer, "a\0b", 3);
    weir_ptx_lexer_next(&lexer, &token);
    assert_int_equal(token.kind, WEIR_PTX_TOKEN_IDENT);
    weir_ptx_lexer_next(&lexer, &token);
    assert_int_equal(token.kind, WEIR_PTX_TOKEN_END);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_single_token_has_kind_and_value),
        cmocka_unit_test(next_positions_count_lines_and_columns),
        cmocka_unit_test(next_nul_in_text_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

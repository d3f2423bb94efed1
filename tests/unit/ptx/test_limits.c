/* Hostile texts: small ones that would like to be large, deep or slow. */
#include "ptx/ir.h"
#include "ptx/ptx.h"
#include "tests/lib/tl_cmocka.h"

#include <stdlib.h>
#include <string.h>

#define HEAD ".version 8.7\n.target sm_90\n.address_size 64\n"

/* head, n times middle, tail. */
static char *repeat(const char *head, const char *middle, size_t n, const char *tail)
{
    size_t middle_len = strlen(middle);
    char *text = malloc(strlen(head) + n * middle_len + strlen(tail) + 1);
    char *at;

    assert_non_null(text);
    at = stpcpy(text, head);
    for (size_t i = 0; i < n; i++) {
        at = stpcpy(at, middle);
    }
    strcpy(at, tail);
    return text;
}

static enum weir_status status_of(char *text, struct weir_diag *diag)
{
    struct weir_ptx_module *module = NULL;
    enum weir_status status = weir_ptx_parse(text, strlen(text), 0, diag, &module);

    weir_ptx_destroy(module);
    free(text);
    return status;
}

static void parse_depth_is_limited(void **state)
{
    static const struct {
        const char *name, *head, *middle;
    } rows[] = {
        {"blocks", HEAD ".entry k() {", "{"},
        {"parentheses", HEAD ".global .b32 x = ", "("},
        {"unary", HEAD ".global .b32 x = ", "-"},
        {"vectors", HEAD ".entry k() { mov.b32 ", "{"},
        {"addresses", HEAD ".entry k() { .reg .b64 d; mov.b32 ", "[d, "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct weir_diag diag = {0};
        char *text = repeat(rows[i].head, rows[i].middle, 100000, "");

        if (status_of(text, &diag) != WEIR_ERR_TOO_BIG) {
            fail_msg("%s: %s", rows[i].name, diag.message);
        }
    }
}

static void parse_long_lists_are_limited(void **state)
{
    static const struct {
        const char *name, *head, *middle;
    } rows[] = {
        {"operands", HEAD ".entry k() { .reg .b32 r; add.s32 r", ", r"},
        {"elements", HEAD ".entry k() { .reg .b32 r; mov.b32 {r", ", r"},
        {"suffixes", HEAD ".entry k() { add", ".rn"},
        {"dimensions", HEAD ".global .b8 x", "[1]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct weir_diag diag = {0};
        char *text = repeat(rows[i].head, rows[i].middle, 100000, ";");

        if (status_of(text, &diag) != WEIR_ERR_TOO_BIG) {
            fail_msg("%s: %s", rows[i].name, diag.message);
        }
    }
}

static void parse_text_over_the_limit_is_refused(void **state)
{
    struct weir_ptx_module *module = NULL;
    struct weir_diag diag = {0};

    (void)state;
    assert_int_equal(weir_ptx_parse("", WEIR_PTX_MAX_TEXT_BYTES + 1u, 0, &diag, &module),
                     WEIR_ERR_TOO_BIG);
    assert_null(module);
}

/* Many huge ranges of which nothing is used cost nothing. */
static void parse_unused_registers_are_free(void **state)
{
    struct weir_diag diag = {0};
    char *text = repeat(HEAD ".entry k() {", "{ .reg .b32 r<268435456>; mov.b32 r268435455, 1; }",
                        1000, "ret; }");

    (void)state;
    assert_int_equal(status_of(text, &diag), WEIR_OK);
}

/* An initialiser far into a large array: printing must not write all the zeros before it. */
static void print_sparse_array_is_short(void **state)
{
    static const char text[] = HEAD ".global .b8 x[1000][1000000000] = {{1}, {}, {}, {}, {2}};\n";
    struct weir_ptx_module *module = NULL;
    char *printed = NULL;
    size_t len;

    (void)state;
    assert_int_equal(weir_ptx_parse(text, sizeof(text) - 1, 0, NULL, &module), WEIR_OK);
    assert_int_equal(weir_ptx_print_buffer(module, &printed, &len), WEIR_OK);
    assert_true(len < 200);
    free(printed);
    weir_ptx_destroy(module);
}

/* Every beginning of a text is refused or parsed, never worse. */
static void parse_every_prefix_returns(void **state)
{
    static const char text[] =
        HEAD ".global .b8 x[2][2] = {{1, -2}, {0xFF}};\n"
             ".func (.param .b32 r) f (.param .b32 a) { ret; }\n"
             ".entry k(.param .u64 p) .maxntid 3, 2 { .reg .pred p, q; .reg .b32 r<5>;\n"
             "L: @!p setp.eq.and.s32 p|q, r1, -7, !q; t: .branchtargets L, M; brx.idx r1, t;\n"
             "{ .param .b32 a; call (a), f, (a); } M: tex.2d.v4.f32.f32 {_, _, _, _}, [x, {r1}];\n"
             ".pragma \"nounroll\"; .loc 1 2 3, function_name L, inlined_at 1 2 3 }\n";

    (void)state;
    for (size_t len = 0; len < sizeof(text); len++) {
        struct weir_ptx_module *module = NULL;
        struct weir_diag diag = {0};
        char *copy = malloc(len + 1);

        assert_non_null(copy);
        memcpy(copy, text, len);
        if (weir_ptx_parse(copy, len, 0, &diag, &module) != WEIR_OK) {
            assert_true(diag.message[0] != 0);
            assert_null(module);
        }
        weir_ptx_destroy(module);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_depth_is_limited),
        cmocka_unit_test(parse_long_lists_are_limited),
        cmocka_unit_test(parse_text_over_the_limit_is_refused),
        cmocka_unit_test(parse_unused_registers_are_free),
        cmocka_unit_test(print_sparse_array_is_short),
        cmocka_unit_test(parse_every_prefix_returns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

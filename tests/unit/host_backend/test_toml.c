/* TOML 1.0: what values and tables a text has, where they stand, and what is refused where. */
#include "host_backend/config/toml.h"

#include "../../lib/tl_cmocka.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum weir_status parse(struct weir_arena *arena, const char *text,
                              const struct weir_toml_value **root, struct weir_diag *diag)
{
    size_t bytes = strlen(text);

    *diag = (struct weir_diag){0};
    weir_arena_init(arena, WEIR_TOML_ARENA_BASE + bytes * WEIR_TOML_ARENA_PER_BYTE);
    return weir_toml_parse(text, bytes, arena, root, diag);
}

/* A tree in one line: {a=1 b=[true "x"]} */
static void show(FILE *out, const struct weir_toml_value *value)
{
    bool table = value->kind == WEIR_TOML_TABLE;

    switch (value->kind) {
    case WEIR_TOML_STRING:
        fprintf(out, "\"%s\"", value->string);
        assert_int_equal(value->string[value->string_bytes], 0);
        break;
    case WEIR_TOML_INTEGER:
        fprintf(out, "%lld", (long long)value->integer);
        break;
    case WEIR_TOML_FLOAT:
        fprintf(out, "%gf", value->number);
        break;
    case WEIR_TOML_BOOLEAN:
        fputs(value->boolean ? "true" : "false", out);
        break;
    case WEIR_TOML_TIME:
        fprintf(out, "<time>");
        break;
    case WEIR_TOML_ARRAY:
    case WEIR_TOML_TABLE:
        putc(table ? '{' : '[', out);
        for (const struct weir_toml_value *item = value->items; item; item = item->next) {
            fprintf(out, "%s%s%s", item == value->items ? "" : " ", table ? item->key : "",
                    table ? "=" : "");
            show(out, item);
        }
        putc(table ? '}' : ']', out);
        break;
    }
}

static const struct good_row {
    const char *text, *tree;
} good_rows[] = {
    {"", "{}"},
    {"\xef\xbb\xbf# by an editor\r\na = 1\r\n", "{a=1}"},
    {"a = 1 # one\n\tb=2\n'c d' = 3\n\"\\u00e9\" = 4\n\"\" = 5", "{a=1 b=2 c d=3 \xc3\xa9=4 =5}"},
    {"a.b.c = 1\na . b.\"d.e\" = 2\n", "{a={b={c=1 d.e=2}}}"},
    {"i = [+1, -9223372036854775808, 1_000, 0xdead_BEEF, 0o17, 0b101]",
     "{i=[1 -9223372036854775808 1000 3735928559 15 5]}"},
    {"f = [1.5, -0.0, 1e3, 6.25e-2, 1_0.2_5, +inf, 1e+06]",
     "{f=[1.5f -0f 1000f 0.0625f 10.25f inff 1e+06f]}"},
    {"b = [true, false]", "{b=[true false]}"},
    {"t = [2026-02-28, 2024-02-29T23:59:60z, 2026-01-31T07:32:00.125, 07:32:00,\n"
     "2026-01-31T00:00:00-08:30]",
     "{t=[<time> <time> <time> <time> <time>]}"},
    {"s = [\"\", '', \"a\\tb\\\"\\\\\\U0001F600\", 'C:\\dir', \"#\"]",
     "{s=[\"\" \"\" \"a\tb\"\\\xf0\x9f\x98\x80\" \"C:\\dir\" \"#\"]}"},
    {"s = \"\"\"\n one \"two\" \\\n\n   three\r\n\"\"\"\"\n", "{s=\" one \"two\" three\n\"\"}"},
    {"s = '''\n'one' ''\\'''''\n", "{s=\"'one' ''\\''\"}"},
    {"a = [ # first\n\n 1 , # second\n [2, [ ] ],\n]\n", "{a=[1 [2 []]]}"},
    {"a = {}\nb = { x = 1, y.z = [ 2,\n3 ], 'y'.w = {v = 4} }\n",
     "{a={} b={x=1 y={z=[2 3] w={v=4}}}}"},
    {"[a.b]\nx=1\n[ a ]\ny=2\n[a.\"c\".d]\n", "{a={b={x=1} y=2 c={d={}}}}"},
    {"[[r]]\na=1\n[r.s]\nb=2\n[[r.t]]\n[[r.t]]\nc=3\n[[ r ]]\nr=4\n",
     "{r=[{a=1 s={b=2} t=[{} {c=3}]} {r=4}]}"},
    {"[a]\nb.c = 1\n[a.b.d]\ne = 2\n", "{a={b={c=1 d={e=2}}}}"},
    {"3.14 = 1\n1979-05-27 = 2\ntrue = 3\n", "{3={14=1} 1979-05-27=2 true=3}"},
};

static void parse_of_all_kinds_gives_a_tree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good_rows / sizeof good_rows[0]; i++) {
        const struct weir_toml_value *root;
        struct weir_arena arena;
        struct weir_diag diag;
        char *tree = NULL;
        size_t bytes;
        FILE *out = open_memstream(&tree, &bytes);

        if (parse(&arena, good_rows[i].text, &root, &diag) == WEIR_OK) {
            show(out, root);
        }
        assert_int_equal(fclose(out), 0);
        if (strcmp(tree, good_rows[i].tree) != 0) {
            print_error("row %zu gave %s (%u:%u: %s)\n", i, tree, diag.line, diag.column,
                        diag.message);
            fail();
        }
        free(tree);
        weir_arena_finish(&arena);
    }
}

static const struct bad_row {
    const char *text;
    uint32_t line, column;
    const char *message;
} bad_rows[] = {
    {"a = 1\nb\n", 2, 2, "'=' is missing after 'b'"},
    {"a = \n", 1, 5, "a value is missing"},
    {"= 1\n", 1, 1, "a name is expected"},
    {"a. = 1\n", 1, 4, "a name is expected"},
    {"a = 1 b = 2\n", 1, 7, "unexpected text"},
    {"a = 1\n\na = 2\n", 3, 1, "'a' is given twice"},
    {"a.b = 1\na = 2\n", 2, 1, "'a' is given twice"},
    {"a = 1\na.b = 2\n", 2, 1, "'a' is no table"},
    {"a = {b = 1}\na.c = 2\n", 2, 1, "'a' is whole"},
    {"a = {b = 1}\n[a.c]\n", 2, 2, "'a' is whole"},
    {"a = {b = 1, b = 2}\n", 1, 13, "'b' is given twice"},
    {"a = {b = 1,}\n", 1, 12, "a name is expected"},
    {"a = {b = 1\n}\n", 1, 11, "',' or '}' is missing"},
    {"a = [1 2]\n", 1, 8, "',' or ']' is missing"},
    {"a = [1,\n", 2, 1, "a value is missing"},
    {"a = [,]\n", 1, 6, "a value must be"},
    {"[a]\n[a]\n", 2, 2, "'a' has a table above already"},
    {"a.b = 1\n[a]\n", 2, 2, "'a' has a table above already"},
    {"[a.b]\nc = 1\n[a]\nb.d = 2\n", 4, 1, "'b' has a header of its own"},
    {"[[a]]\n[a]\n", 2, 2, "'a' is [[...]] above"},
    {"[a]\n[[a]]\n", 2, 3, "'a' is no [[...]] above"},
    {"a = []\n[[a]]\n", 2, 3, "'a' is no [[...]] above"},
    {"[a\n", 1, 3, "']' is missing"},
    {"[[a]\n", 1, 4, "']]' is missing"},
    {"[a] b = 1\n", 1, 5, "unexpected text"},
    {"a = 007\n", 1, 5, "does not begin with 0"},
    {"a = 1__0\n", 1, 5, "a value must be"},
    {"a = 0x\n", 1, 5, "a value must be"},
    {"a = 1.\n", 1, 5, "a value must be"},
    {"a = .5\n", 1, 5, "a value must be"},
    {"a = yes\n", 1, 5, "a value must be"},
    {"a = 9223372036854775808\n", 1, 5, "too large"},
    {"a = 2026-01-31 07:32:00\n", 1, 16, "unexpected text after the value"},
    {"a = \"x\n", 1, 7, "does not end on this line"},
    {"a = 'x", 1, 7, "does not end on this line"},
    {"a = \"\"\"x\ny\"\"\n", 3, 1, "the string does not end"},
    {"a = \"\\x\"\n", 1, 7, "unknown escape"},
    {"a = \"\\u12g4\"\n", 1, 10, "4 hexadecimal digits"},
    {"a = \"\\ud800\"\n", 1, 12, "no character has this number"},
    {"a = \"\001\"\n", 1, 6, "a control character in a string"},
    {"a = 1 # \177\n", 1, 9, "a control character in a comment"},
    {"a = 1\rb = 2\n", 1, 6, "unexpected text"},
    {"# \xc3\xa9\nb = \"\xff\"\n", 2, 6, "not UTF-8"},
};

static void parse_of_what_is_no_toml_says_where(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_rows / sizeof bad_rows[0]; i++) {
        const struct bad_row *row = &bad_rows[i];
        const struct weir_toml_value *root;
        struct weir_arena arena;
        struct weir_diag diag;
        enum weir_status status = parse(&arena, row->text, &root, &diag);

        if (status != WEIR_ERR_SYNTAX || diag.line != row->line || diag.column != row->column ||
            !strstr(diag.message, row->message)) {
            print_error("row %zu: %u:%u: %s\n", i, diag.line, diag.column, diag.message);
            fail();
        }
        weir_arena_finish(&arena);
    }
}

static void parse_says_where_keys_and_values_stand(void **state)
{
    static const char text[] = "# one\nab.cd =  [1,\n 2] # three\n[[t]]\nx = 5\n [u]\n";
    const struct weir_toml_value *root, *v;
    struct weir_arena arena;
    struct weir_diag diag;

    (void)state;
    assert_int_equal(parse(&arena, text, &root, &diag), WEIR_OK);
    v = weir_toml_find(weir_toml_find(root, "ab"), "cd");
    assert_int_equal(v->key_line, 2);
    assert_int_equal(v->key_column, 4);
    assert_int_equal(v->line, 2);
    assert_int_equal(v->column, 10);
    assert_memory_equal(text + v->key_at, "cd =", 4);
    assert_memory_equal(text + v->begin, "[1,\n 2]", v->end - v->begin);
    assert_int_equal(v->items->next->line, 3);
    assert_int_equal(v->items->next->column, 2);
    v = weir_toml_find(root, "t")->items;
    assert_int_equal(v->line, 4);
    assert_memory_equal(text + v->begin, "[[t]]\nx = 5\n", v->end - v->begin);
    v = weir_toml_find(root, "u");
    assert_int_equal(v->column, 2);
    assert_string_equal(text + v->begin, "[u]\n");
    assert_int_equal(v->end, sizeof text - 1);
    weir_arena_finish(&arena);
}

/* What is written [[[...]]] many times must not use up the stack. */
static void parse_too_deep_is_refused(void **state)
{
    char text[400];

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        const struct weir_toml_value *root;
        struct weir_arena arena;
        struct weir_diag diag;
        char *to = text + sprintf(text, kind == 2 ? "" : "a=");

        for (int i = 0; i < 100; i++) {
            to += sprintf(to, kind == 0 ? "[" : kind == 1 ? "{a=" : "a.");
        }
        assert_int_equal(parse(&arena, text, &root, &diag), WEIR_ERR_SYNTAX);
        assert_non_null(strstr(diag.message, "inside each other"));
        weir_arena_finish(&arena);
    }
}

/* All keys of a table are compared with each new one, so there is an end to them. */
static void parse_of_too_many_keys_is_refused(void **state)
{
    char *text = malloc(4097 * 8 + 1), *to = text;
    const struct weir_toml_value *root;
    struct weir_arena arena;
    struct weir_diag diag;

    (void)state;
    for (int i = 0; i < 4097; i++) {
        to += sprintf(to, "k%d=1\n", i);
    }
    assert_int_equal(parse(&arena, text, &root, &diag), WEIR_ERR_SYNTAX);
    assert_int_equal(diag.line, 4097);
    assert_string_equal(diag.message, "'k4096' is one key too many for its table");
    weir_arena_finish(&arena);
    *strstr(text, "k4096") = 0;
    assert_int_equal(parse(&arena, text, &root, &diag), WEIR_OK);
    weir_arena_finish(&arena);
    free(text);
}

static void parse_without_memory_says_so(void **state)
{
    static const char text[] = "[a]\nb = {c = [1, \"x\"], d = 2026-01-01}\n";
    const struct weir_toml_value *root;
    size_t failed = 0;

    (void)state;
    for (size_t cap = 0; cap < 4096; cap += 16) {
        struct weir_diag diag = {0};
        struct weir_arena arena;
        enum weir_status status;

        weir_arena_init(&arena, cap);
        status = weir_toml_parse(text, sizeof text - 1, &arena, &root, &diag);
        assert_true(status == WEIR_OK || status == WEIR_ERR_NO_MEMORY);
        failed += status != WEIR_OK;
        weir_arena_finish(&arena);
    }
    assert_in_range(failed, 10, 4096 / 16 - 1);
}

/* The cap that the header promises to be enough, with the texts that have most values. */
static void parse_of_many_values_fits_the_arena(void **state)
{
    static const char *const pieces[] = {"1,", "[],", "{},", "''.''.''.''.''=1,"};

    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        char *text = malloc(65536), *to = text;
        const struct weir_toml_value *root;
        struct weir_arena arena;
        struct weir_diag diag;

        to += sprintf(to, i == 3 ? "a=[" : "a=[");
        while (to < text + 65000) {
            to += sprintf(to, i == 3 ? "{%.*s}," : "%.*s", (int)strlen(pieces[i]) - (i == 3),
                          pieces[i]);
        }
        strcpy(to, "]\n");
        if (parse(&arena, text, &root, &diag) != WEIR_OK) {
            print_error("%s: %u:%u: %s\n", pieces[i], diag.line, diag.column, diag.message);
            fail();
        }
        weir_arena_finish(&arena);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_of_all_kinds_gives_a_tree),
        cmocka_unit_test(parse_of_what_is_no_toml_says_where),
        cmocka_unit_test(parse_says_where_keys_and_values_stand),
        cmocka_unit_test(parse_too_deep_is_refused),
        cmocka_unit_test(parse_of_too_many_keys_is_refused),
        cmocka_unit_test(parse_without_memory_says_so),
        cmocka_unit_test(parse_of_many_values_fits_the_arena),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

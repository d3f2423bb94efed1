/* Text that others chose: UTF-8, JSON strings, and what a terminal may get. */
#include "base/text.h"
#include "tests/lib/tl_cmocka.h"
#include <stdlib.h>
#include <string.h>

static void utf8_is_decoded_and_the_rest_is_refused_byte_by_byte(void **state)
{
    static const struct {
        const char *text;
        int32_t code;
        size_t bytes;
    } cases[] = {
        {"a", 'a', 1},
        {"\x7f", 0x7f, 1},
        {"\xc2\x80", 0x80, 2},
        {"\xc3\xa9", 0xe9, 2},
        {"\xdf\xbf", 0x7ff, 2},
        {"\xe0\xa0\x80", 0x800, 3},
        {"\xed\x9f\xbf", 0xd7ff, 3},
        {"\xef\xbf\xbf", 0xffff, 3},
        {"\xf0\x90\x80\x80", 0x10000, 4},
        {"\xf4\x8f\xbf\xbf", 0x10ffff, 4},
        {"\x80", -1, 1},             /* begins nothing */
        {"\xbf", -1, 1},             /* neither */
        {"\xc3", -1, 1},             /* cut */
        {"\xe2\x82", -1, 1},         /* cut */
        {"\xf0\x9f\x98", -1, 1},     /* cut */
        {"\xc3x", -1, 1},            /* broken off */
        {"\xc0\xaf", -1, 1},         /* '/' in two bytes */
        {"\xe0\x80\xaf", -1, 1},     /* in three */
        {"\xf0\x80\x80\xaf", -1, 1}, /* in four */
        {"\xed\xa0\x80", -1, 1},     /* a surrogate */
        {"\xf4\x90\x80\x80", -1, 1}, /* above Unicode */
        {"\xf5\x80\x80\x80", -1, 1}, /* above it, too */
        {"\xf8\x88\x80\x80\x80", -1, 1},
        {"\xff", -1, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *at = cases[i].text;

        assert_int_equal(weir_utf8_next(&at), cases[i].code);
        assert_int_equal(at - cases[i].text, cases[i].bytes);
    }
}

static void check_json(const char *text, const char *expected)
{
    char *written = NULL;
    size_t bytes;
    FILE *out = open_memstream(&written, &bytes);

    assert_non_null(out);
    weir_json_put(out, text);
    fclose(out);
    assert_string_equal(written, expected);
    free(written);
}

static void json_strings_are_escaped(void **state)
{
    char text[2] = "", expected[12];

    (void)state;
    check_json("", "\"\"");
    check_json("say \"a\\b\"/", "\"say \\\"a\\\\b\\\"/\"");
    for (int c = 1; c < 0x20; c++) {
        text[0] = (char)c;
        snprintf(expected, sizeof expected, "\"\\u%04x\"", (unsigned)c);
        check_json(text, expected);
    }
    check_json("\x7f", "\"\\u007f\"");
    check_json("\xc2\x9b"
               "2J",
               "\"\\u009b2J\"");               /* a terminal's ESC [ in one character */
    check_json("\xe2\x80\xae", "\"\\u202e\""); /* from right to left */
    check_json("caf\xc3\xa9 \xf0\x9f\x98\x80", "\"caf\xc3\xa9 \xf0\x9f\x98\x80\"");
    check_json("caf\xe9!", "\"caf\\ufffd!\"");
    check_json("cut \xe2\x82", "\"cut \\ufffd\\ufffd\"");
}

static void check_visible(const char *text, size_t room_bytes, const char *expected)
{
    char room[64];

    memset(room, 'x', sizeof room);
    assert_ptr_equal(weir_text_visible(text, room, room_bytes), room);
    assert_string_equal(room, expected);
    for (size_t i = room_bytes; i < sizeof room; i++) {
        assert_int_equal(room[i], 'x');
    }
}

static void terminal_gets_nothing_that_it_obeys(void **state)
{
    (void)state;
    check_visible("", 1, "");
    check_visible("python3", 64, "python3");
    check_visible("a\nb\033[2Jc\\d\x7f", 64, "a\\x0ab\\x1b[2Jc\\x5cd\\x7f");
    check_visible("caf\xc3\xa9 \"x\"", 64, "caf\xc3\xa9 \"x\"");
    check_visible("\xe9\xc2\x9b\xe2\x80\xae", 64, "\\xe9\\xc2\\x9b\\xe2\\x80\\xae");
    /* Whole characters or nothing. */
    check_visible("abc", 4, "abc");
    check_visible("abcd", 4, "abc");
    check_visible("ab\n", 6, "ab");
    check_visible("ab\n", 7, "ab\\x0a");
    check_visible("ab\xc3\xa9", 4, "ab");
    check_visible("ab\xc3\xa9", 5, "ab\xc3\xa9");
    check_visible("\nabc", 4, "");
}

static void blotted_text_is_one_line(void **state)
{
    char text[] = "a\nb\033\xc2\x9b\xe2\x80\xa8\xe9 caf\xc3\xa9";

    (void)state;
    assert_int_equal(weir_text_blot(text), strlen("a?b???? caf\xc3\xa9"));
    assert_string_equal(text, "a?b???? caf\xc3\xa9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_is_decoded_and_the_rest_is_refused_byte_by_byte),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(terminal_gets_nothing_that_it_obeys),
        cmocka_unit_test(blotted_text_is_one_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Messages as protobuf has them. */
#include "kubernetes/protobuf.h"
#include "tests/lib/tl_cmocka.h"
#include <stdlib.h>
#include <string.h>

static void written_is_what_protobuf_says(void **state)
{
    /* 1: "ab", 2: 300, 3: {1: "c"} with a length of three bytes; what is empty is left out */
    static const uint8_t expected[] = {0x0a, 2,    'a',  'b', 0x10, 0xac, 0x02,
                                       0x1a, 0x83, 0x80, 0,   0x0a, 1,    'c'};
    struct weir_pb m = {0};
    size_t opened;

    (void)state;
    weir_pb_text(&m, 1, "ab");
    weir_pb_text(&m, 7, "");
    weir_pb_text(&m, 8, NULL);
    weir_pb_number(&m, 2, 300);
    weir_pb_number(&m, 9, 0);
    opened = weir_pb_open(&m, 3);
    weir_pb_text(&m, 1, "c");
    weir_pb_close(&m, opened);
    assert_false(m.failed);
    assert_int_equal(m.bytes, sizeof expected);
    assert_memory_equal(m.data, expected, sizeof expected);
    free(m.data);
}

static void written_is_read_again(void **state)
{
    struct weir_pb m = {0};
    struct weir_pb_field field;
    char *wide = malloc(300), text[301];

    (void)state;
    memset(wide, 'w', 299);
    wide[299] = 0;
    size_t opened = weir_pb_open(&m, 1);
    weir_pb_text(&m, 16, wide);
    weir_pb_close(&m, opened);
    weir_pb_number(&m, 2, UINT64_MAX);
    struct weir_pb_reader reader = {m.data, m.data + m.bytes, false};
    assert_true(weir_pb_next(&reader, &field));
    assert_int_equal(field.number, 1);
    struct weir_pb_reader inner = {field.data, field.data + field.bytes, false};
    assert_true(weir_pb_next(&inner, &field));
    assert_int_equal(field.number, 16);
    assert_true(weir_pb_copy(&field, text, 300));
    assert_string_equal(text, wide);
    assert_false(weir_pb_copy(&field, text, 299)); /* no room for the NUL */
    assert_false(weir_pb_next(&inner, &field));
    assert_true(weir_pb_next(&reader, &field));
    assert_null(field.data);
    assert_true(field.value == UINT64_MAX);
    assert_false(weir_pb_next(&reader, &field));
    assert_false(reader.bad || inner.bad);
    free(m.data);
    free(wide);
}

static void whatever_is_no_message_is_bad(void **state)
{
    static const struct {
        uint8_t data[12];
        size_t bytes;
    } bad[] = {{{0x0a}, 1},         /* no length */
               {{0x0a, 2, 'a'}, 3}, /* too short */
               {{0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f, 0}, 7},
               {{0x08, 0x80}, 2}, /* a varint without its end */
               {{0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, 12},
               {{0x09, 1, 2, 3}, 4}, /* eight bytes of which there are three */
               {{0x0b}, 1},          /* a group */
               {{0x0f, 1}, 2}};      /* no kind */
    static const uint8_t fixed[] = {0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4, 0x1a, 1, 0};
    struct weir_pb_reader reader = {fixed, fixed + sizeof fixed, false};
    struct weir_pb_field field;
    char text[8];
    int n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct weir_pb_reader r = {bad[i].data, bad[i].data + bad[i].bytes, false};

        assert_false(weir_pb_next(&r, &field));
        assert_true(r.bad);
        assert_false(weir_pb_next(&r, &field)); /* still */
    }
    while (weir_pb_next(&reader, &field)) {
        n++;
    }
    assert_int_equal(n, 3);
    assert_false(reader.bad);
    assert_false(weir_pb_copy(&field, text, sizeof text)); /* a NUL */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_is_what_protobuf_says),
        cmocka_unit_test(written_is_read_again),
        cmocka_unit_test(whatever_is_no_message_is_bad),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

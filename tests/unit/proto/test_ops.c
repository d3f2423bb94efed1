/* The flat codec of every operation, both halves: round trips, limits, and hostile bodies. */
#include "proto/transport/transport.h"
#include "proto/wire/caller.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/wire_sample.h"

#include <stdlib.h>
#include <string.h>

/* A body of exactly `bytes` bytes on the heap, so that sanitizers see any step beyond it. */
static void *body_copy(const void *body, size_t bytes)
{
    void *copy = NULL;
    assert_int_equal(posix_memalign(&copy, 8, bytes ? bytes : 8), 0);
    if (bytes) {
        memcpy(copy, body, bytes);
    }
    return copy;
}

static void *encode(const struct wire_half *half, const void *message, size_t *ret_bytes)
{
    size_t bytes = half->bytes(message);
    assert_int_not_equal(bytes, WEIR_OP_BYTES_INVALID);
    assert_int_equal(bytes % 8, 0);
    assert_true(bytes + sizeof(struct weir_record) <= WEIR_RECORD_MAX_BYTES);
    void *body = NULL;
    assert_int_equal(posix_memalign(&body, 8, bytes ? bytes : 8), 0);
    memset(body, 0xa5, bytes);
    half->encode(message, body);
    *ret_bytes = bytes;
    return body;
}

static void check_round_trip(const struct wire_half *half, enum wire_sample_size size,
                             unsigned seed)
{
    void *message = wire_sample_make(half, size, seed);
    size_t bytes;
    void *body = encode(half, message, &bytes);
    union {
        union weir_op_any_in in;
        union weir_op_any_out out;
    } decoded;
    memset(&decoded, 0x5a, sizeof(decoded));
    if (!half->decode(body, bytes, &decoded)) {
        fail_msg("%s %s: its own encoding is refused", half->op, half->way);
    }
    const char *field = wire_sample_difference(half, message, &decoded);
    if (field) {
        fail_msg("%s %s: %s differs", half->op, half->way, field);
    }
    assert_true(wire_sample_inside(half, &decoded, body, bytes));
    /* Encoding again gives the same bytes, padding included: nothing of the stack leaks. */
    size_t again_bytes;
    void *again = encode(half, &decoded, &again_bytes);
    assert_int_equal(again_bytes, bytes);
    assert_memory_equal(again, body, bytes);
    free(again);
    free(body);
    wire_sample_free(half, message);
}

static void round_trip_every_op_keeps_every_field(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WIRE_HALVES; i++) {
        struct wire_half half = wire_half_get(i);
        check_round_trip(&half, WIRE_SAMPLE_EMPTY, i);
        check_round_trip(&half, WIRE_SAMPLE_SMALL, i * 7 + 1);
        check_round_trip(&half, WIRE_SAMPLE_FULL, i * 7 + 2);
    }
}

static void bytes_over_a_limit_or_null_array_is_invalid(void **state)
{
    (void)state;
    static const uint8_t zero[64];
    struct weir_op_launch_in launch = {.params = zero, .n_params = 32769};
    const struct weir_op_info *op = &weir_ops[WEIR_OP_launch];
    assert_int_equal(op->in_bytes(&launch), WEIR_OP_BYTES_INVALID);
    launch.params = NULL;
    launch.n_params = 1;
    assert_int_equal(op->in_bytes(&launch), WEIR_OP_BYTES_INVALID);
    char name[70000];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    struct weir_op_module_function_in function = {.name = name};
    assert_int_equal(weir_ops[WEIR_OP_module_function].in_bytes(&function), WEIR_OP_BYTES_INVALID);
}

static void null_string_travels_as_empty(void **state)
{
    (void)state;
    const struct weir_op_info *op = &weir_ops[WEIR_OP_module_function];
    struct weir_op_module_function_in in = {.m = 1}, out;
    uint64_t body[16];
    size_t bytes = op->in_bytes(&in);
    assert_true(bytes <= sizeof(body));
    op->in_encode(&in, body);
    assert_true(op->in_decode(body, bytes, &out));
    assert_string_equal(out.name, "");
}

static void decode_every_truncation_and_extension_is_refused(void **state)
{
    (void)state;
    union {
        union weir_op_any_in in;
        union weir_op_any_out out;
    } decoded;
    for (unsigned i = 0; i < WIRE_HALVES; i++) {
        struct wire_half half = wire_half_get(i);
        void *message = wire_sample_make(&half, WIRE_SAMPLE_SMALL, i + 3);
        size_t bytes;
        void *body = encode(&half, message, &bytes);
        for (size_t cut = 0; cut < bytes; cut++) {
            void *part = body_copy(body, cut);
            if (half.decode(part, cut, &decoded)) {
                fail_msg("%s %s: %zu of %zu bytes are accepted", half.op, half.way, cut, bytes);
            }
            free(part);
        }
        void *longer = calloc(1, bytes + 8);
        assert_non_null(longer);
        memcpy(longer, body, bytes);
        assert_false(half.decode(longer, bytes + 8, &decoded));
        free(longer);
        free(body);
        wire_sample_free(&half, message);
    }
}

/* Overwrite each word of the body with values that a liar would choose. */
static void decode_hostile_words_never_leave_the_record(void **state)
{
    (void)state;
    static const uint32_t lies[] = {0,          1,           7,          8,          0x7fffffff,
                                    0x80000000, 0xffffffff,  0xfffffff8, 0x20000000, 0x1fffffff,
                                    65537,      0x01010101u, 0x15555556u};
    union {
        union weir_op_any_in in;
        union weir_op_any_out out;
    } decoded;
    for (unsigned i = 0; i < WIRE_HALVES; i++) {
        struct wire_half half = wire_half_get(i);
        void *message = wire_sample_make(&half, WIRE_SAMPLE_SMALL, i + 11);
        size_t bytes;
        void *body = encode(&half, message, &bytes);
        for (size_t at = 0; at < bytes; at += 4) {
            for (size_t lie = 0; lie < sizeof(lies) / sizeof(lies[0]); lie++) {
                void *copy = body_copy(body, bytes);
                memcpy((char *)copy + at, &lies[lie], 4);
                if (half.decode(copy, bytes, &decoded) &&
                    !wire_sample_inside(&half, &decoded, copy, bytes)) {
                    fail_msg("%s %s: word %zu = %#x leaves the record", half.op, half.way, at,
                             lies[lie]);
                }
                free(copy);
            }
        }
        free(body);
        wire_sample_free(&half, message);
    }
}

static void decode_string_without_its_end_is_refused(void **state)
{
    (void)state;
    const struct weir_op_info *op = &weir_ops[WEIR_OP_module_function];
    struct weir_op_module_function_in in = {.name = "kernel7"}, out;
    union {
        uint64_t words[16];
        char bytes[128];
    } body;
    size_t bytes = op->in_bytes(&in);
    assert_true(bytes <= sizeof(body));
    op->in_encode(&in, body.words);
    assert_true(op->in_decode(body.words, bytes, &out));
    body.bytes[bytes - 1] = 'x'; /* 8 bytes with the NUL: the last byte is the string's end */
    assert_false(op->in_decode(body.words, bytes, &out));
    body.bytes[bytes - 1] = 0;
    body.bytes[bytes - 3] = 0; /* an end before its length says */
    assert_false(op->in_decode(body.words, bytes, &out));
}

/* What the other end says about itself is a number that may be anything. */
static void callers_that_are_no_function_of_this_build_are_not_believed(void **state)
{
    static const int32_t wrong[] = {0,
                                    1,
                                    -1,
                                    INT32_MIN,
                                    INT32_MAX,
                                    WEIR_SYMBOL_COUNT << 16,
                                    WEIR_SYMBOL_COUNT << 16 | (WEIR_SYMBOL_COUNT + 1),
                                    WEIR_SYMBOL_COUNT << 16 | 0xffff,
                                    (WEIR_SYMBOL_COUNT + 1) << 16 | 1};
    char name[WEIR_CALLER_NAME_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_string_equal(weir_caller_name(wrong[i], "mem_grant", name), "mem_grant");
    }
    for (int i = 0; i < WEIR_SYMBOL_COUNT; i++) {
        (void)weir_caller_name(weir_caller_of((enum weir_symbol)i), "", name);
        assert_true(strncmp(name, weir_symbol_name[i], strlen(name)) == 0 && name[0] == 'c');
    }
    (void)weir_caller_name(weir_caller_of(WEIR_SYMBOL_cuMemAlloc_v2), "", name);
    assert_string_equal(name, "cuMemAlloc");
    (void)weir_caller_name(weir_caller_of(WEIR_SYMBOL_cuMemAllocAsync_ptsz), "", name);
    assert_string_equal(name, "cuMemAllocAsync");
}

static void ops_table_is_dense_and_named(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WEIR_OP_COUNT; i++) {
        assert_non_null(weir_ops[i].name);
        assert_non_null(weir_ops[i].in_decode);
        assert_non_null(weir_ops[i].out_encode);
        assert_true(weir_ops[i].in_struct_bytes <= sizeof(union weir_op_any_in));
        assert_true(weir_ops[i].out_struct_bytes <= sizeof(union weir_op_any_out));
    }
    assert_string_equal(weir_ops[WEIR_OP_launch].name, "launch");
    assert_int_equal(weir_ops[WEIR_OP_launch].flags, WEIR_OP_POSTED);
    assert_int_equal(weir_ops[WEIR_OP_host_func_call].flags, WEIR_OP_NOTIFY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_table_is_dense_and_named),
        cmocka_unit_test(round_trip_every_op_keeps_every_field),
        cmocka_unit_test(bytes_over_a_limit_or_null_array_is_invalid),
        cmocka_unit_test(null_string_travels_as_empty),
        cmocka_unit_test(decode_every_truncation_and_extension_is_refused),
        cmocka_unit_test(decode_hostile_words_never_leave_the_record),
        cmocka_unit_test(decode_string_without_its_end_is_refused),
        cmocka_unit_test(callers_that_are_no_function_of_this_build_are_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * A message of protobuf by anybody: it is read to its end or found to be bad, its fields lie in it,
 * and a text that is copied is written as it was read.
 */
#include "kubernetes/protobuf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_at(bool condition, int line)
{
    if (!condition) {
        (void)fprintf(stderr, "fuzz_kube_message.c:%d: does not hold\n", line);
        abort();
    }
}
#define require(condition) require_at((condition), __LINE__)

static void check_text(const struct weir_pb_field *field)
{
    char text[64], again[64];
    struct weir_pb m = {0};
    struct weir_pb_field copy;

    if (!weir_pb_copy(field, text, sizeof text) || text[0] == 0) {
        return;
    }
    require(strlen(text) == field->bytes);
    weir_pb_text(&m, 5, text);
    struct weir_pb_reader reader = {m.data, m.data + m.bytes, false};
    require(weir_pb_next(&reader, &copy) && copy.number == 5);
    require(weir_pb_copy(&copy, again, sizeof again) && strcmp(text, again) == 0);
    require(!weir_pb_next(&reader, &copy) && !reader.bad);
    free(m.data);
}

static void check(const uint8_t *data, size_t size, int depth)
{
    struct weir_pb_reader reader = {data, data + size, false};
    struct weir_pb_field field;

    while (weir_pb_next(&reader, &field)) {
        require(!field.data || (field.data >= data && field.bytes <= size &&
                                field.data + field.bytes <= data + size));
        check_text(&field);
        if (field.data && depth < 4) {
            check(field.data, field.bytes, depth + 1);
        }
    }
    require(reader.bad || reader.at == reader.end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size, 0);
    return 0;
}

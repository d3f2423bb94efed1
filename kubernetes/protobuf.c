/*
 * A field is a varint of its number and its kind, and its value: a varint, or a length and bytes.
 * Varints have seven bits in a byte, the lowest first; the highest bit says that more follow. The
 * length of an inner message is not known when it begins, so it always takes LENGTH_BYTES, filled
 * up with zeros, which protobuf allows.
 */
#include "kubernetes/protobuf.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 3

enum { KIND_VARINT = 0, KIND_8_BYTES = 1, KIND_BYTES = 2, KIND_4_BYTES = 5 };

static void put(struct weir_pb *m, const void *data, size_t bytes)
{
    if (bytes > m->room - m->bytes) {
        size_t room = 2 * m->room + bytes;
        uint8_t *bigger = m->failed ? NULL : realloc(m->data, room);

        if (!bigger) {
            free(m->data);
            *m = (struct weir_pb){.failed = true};
            return;
        }
        m->data = bigger;
        m->room = room;
    }
    memcpy(m->data + m->bytes, data, bytes);
    m->bytes += bytes;
}

static void put_varint(struct weir_pb *m, uint64_t value)
{
    do {
        put(m, &(uint8_t){(uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0))}, 1);
        value >>= 7;
    } while (value != 0);
}

void weir_pb_text(struct weir_pb *message, uint32_t field, const char *text)
{
    size_t bytes = text ? strlen(text) : 0;

    if (bytes != 0) {
        put_varint(message, field << 3 | KIND_BYTES);
        put_varint(message, bytes);
        put(message, text, bytes);
    }
}

void weir_pb_number(struct weir_pb *message, uint32_t field, uint64_t value)
{
    if (value != 0) {
        put_varint(message, field << 3 | KIND_VARINT);
        put_varint(message, value);
    }
}

size_t weir_pb_open(struct weir_pb *message, uint32_t field)
{
    put_varint(message, field << 3 | KIND_BYTES);
    put(message, (uint8_t[LENGTH_BYTES]){0}, LENGTH_BYTES);
    return message->bytes;
}

void weir_pb_close(struct weir_pb *message, size_t opened)
{
    size_t bytes = message->bytes - opened;

    for (int i = 0; !message->failed && i < LENGTH_BYTES; i++) {
        bool more = i + 1 < LENGTH_BYTES;

        message->data[opened - LENGTH_BYTES + (size_t)i] =
            (uint8_t)((bytes >> (7 * i) & 0x7f) | (more ? 0x80 : 0));
    }
}

static uint64_t get_varint(struct weir_pb_reader *r)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
    r->bad = true;
    return 0;
}

bool weir_pb_next(struct weir_pb_reader *reader, struct weir_pb_field *ret_field)
{
    uint64_t key, kind, bytes;

    WEIR_FAIL_IF(reader->bad || reader->at == reader->end, false);
    key = get_varint(reader);
    *ret_field = (struct weir_pb_field){.number = (uint32_t)(key >> 3)};
    kind = key & 7;
    if (kind == KIND_VARINT) {
        ret_field->value = get_varint(reader);
        return !reader->bad;
    }
    bytes = kind == KIND_BYTES ? get_varint(reader) : kind == KIND_8_BYTES ? 8 : 4;
    reader->bad |= (kind != KIND_BYTES && kind != KIND_8_BYTES && kind != KIND_4_BYTES) ||
                   key >> 3 > UINT32_MAX || bytes > (uint64_t)(reader->end - reader->at);
    if (!reader->bad) {
        ret_field->data = reader->at;
        ret_field->bytes = (size_t)bytes;
        reader->at += bytes;
    }
    return !reader->bad;
}

bool weir_pb_copy(const struct weir_pb_field *field, char *text, size_t room)
{
    if (!field->data || field->bytes >= room || memchr(field->data, 0, field->bytes)) {
        return false;
    }
    memcpy(text, field->data, field->bytes);
    text[field->bytes] = 0;
    return true;
}

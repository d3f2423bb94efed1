/* Formats arguments as text, with the tables that the generator makes from the API's
 * description. */
#include "guest_lib/calls_log.h"
#include "proto/calls_log_table.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define STRING_SHOWN 96
#define STRUCT_DEPTH 3

void weir_calls_log_put(struct weir_calls_log_line *line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line->text + line->used, line->room - line->used, fmt, args);
    va_end(args);
    size_t left = line->room - line->used - 1;
    line->used += n < 0 ? 0 : (size_t)n < left ? (size_t)n : left;
}

/* Put a string in quotes, as in C. */
static void put_string(struct weir_calls_log_line *line, const char *text)
{
    if (!text) {
        weir_calls_log_put(line, "NULL");
        return;
    }
    weir_calls_log_put(line, "\"");
    const char *from = text;
    for (; *text && text - from < STRING_SHOWN; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        weir_calls_log_put(line, plain ? "%c" : "\\x%02x", c);
    }
    weir_calls_log_put(line, "\"%s", *text ? ".." : "");
}

static void put_enum(struct weir_calls_log_line *line, int64_t value, uint16_t table)
{
    struct weir_calls_log_range range = weir_calls_log_enums[table];
    for (uint16_t i = 0; i < range.count; i++) {
        const struct weir_calls_log_name *name = &weir_calls_log_names[range.first + i];
        if (name->value == value || (int32_t)name->value == value) {
            weir_calls_log_put(line, "%s", name->name);
            return;
        }
    }
    weir_calls_log_put(line, "%" PRId64, value);
}

static size_t form_bytes(enum weir_calls_log_form form)
{
    switch (form) {
    case WEIR_CALLS_LOG_I8:
    case WEIR_CALLS_LOG_U8:
        return 1;
    case WEIR_CALLS_LOG_U16:
        return 2;
    case WEIR_CALLS_LOG_I32:
    case WEIR_CALLS_LOG_U32:
    case WEIR_CALLS_LOG_F32:
    case WEIR_CALLS_LOG_HEX32:
    case WEIR_CALLS_LOG_ENUM:
        return 4;
    case WEIR_CALLS_LOG_I64:
    case WEIR_CALLS_LOG_U64:
    case WEIR_CALLS_LOG_F64:
    case WEIR_CALLS_LOG_HEX:
    case WEIR_CALLS_LOG_STRING:
    case WEIR_CALLS_LOG_STRUCT:
    case WEIR_CALLS_LOG_OPAQUE:
        break;
    }
    return 8;
}

size_t weir_calls_log_value_bytes(const struct weir_calls_log_item *item)
{
    return form_bytes(item->form);
}

static void put_struct(struct weir_calls_log_line *line, const void *at, uint16_t table, int depth);

/* Print the value at `at`. */
static void put_value(struct weir_calls_log_line *line, const void *at,
                      const struct weir_calls_log_item *item, int depth)
{
    enum weir_calls_log_form form = (enum weir_calls_log_form)item->form;
    if (form == WEIR_CALLS_LOG_STRUCT) {
        put_struct(line, at, item->table, depth);
        return;
    }
    uint64_t bits = 0;
    float f;
    double d;
    memcpy(&bits, at, form_bytes(form));
    switch (form) {
    case WEIR_CALLS_LOG_I8:
        weir_calls_log_put(line, "%d", (int8_t)bits);
        break;
    case WEIR_CALLS_LOG_I32:
        weir_calls_log_put(line, "%" PRId32, (int32_t)bits);
        break;
    case WEIR_CALLS_LOG_I64:
        weir_calls_log_put(line, "%" PRId64, (int64_t)bits);
        break;
    case WEIR_CALLS_LOG_U8:
    case WEIR_CALLS_LOG_U16:
    case WEIR_CALLS_LOG_U32:
    case WEIR_CALLS_LOG_U64:
        weir_calls_log_put(line, "%" PRIu64, bits);
        break;
    case WEIR_CALLS_LOG_F32:
        memcpy(&f, &bits, sizeof f);
        weir_calls_log_put(line, "%g", (double)f);
        break;
    case WEIR_CALLS_LOG_F64:
        memcpy(&d, &bits, sizeof d);
        weir_calls_log_put(line, "%g", d);
        break;
    case WEIR_CALLS_LOG_HEX:
    case WEIR_CALLS_LOG_HEX32:
        weir_calls_log_put(line, "%#" PRIx64, bits);
        break;
    case WEIR_CALLS_LOG_ENUM:
        put_enum(line, (int32_t)bits, item->table);
        break;
    case WEIR_CALLS_LOG_STRING:
        put_string(line, (const char *)(uintptr_t)bits);
        break;
    case WEIR_CALLS_LOG_STRUCT:
    case WEIR_CALLS_LOG_OPAQUE:
        weir_calls_log_put(line, "{..}");
        break;
    }
}

static void put_struct(struct weir_calls_log_line *line, const void *at, uint16_t table, int depth)
{
    struct weir_calls_log_range range = weir_calls_log_structs[table];
    if (depth == STRUCT_DEPTH || range.count == 0) {
        weir_calls_log_put(line, "{..}");
        return;
    }
    for (uint16_t i = 0; i < range.count; i++) {
        const struct weir_calls_log_item *field = &weir_calls_log_fields[range.first + i];
        weir_calls_log_put(line, "%s%s=", i ? ", " : "{", field->name);
        put_value(line, (const uint8_t *)at + field->offset, field, depth + 1);
    }
    weir_calls_log_put(line, "}");
}

/* Print a text that a call has written; the argument is the text's address. */
static void put_text_out(struct weir_calls_log_line *line, uint64_t word, bool wrote)
{
    if (wrote) {
        put_string(line, (const char *)(uintptr_t)word);
    } else {
        weir_calls_log_put(line, "%#" PRIx64, word);
    }
}

static void put_arg(struct weir_calls_log_line *line, const struct weir_calls_log_item *item,
                    const uint64_t *word, bool success)
{
    const void *behind = (const void *)(uintptr_t)*word;
    switch ((enum weir_calls_log_by)item->by) {
    case WEIR_CALLS_LOG_BY_VALUE:
        put_value(line, word, item, 0);
        return;
    case WEIR_CALLS_LOG_BY_STRUCT:
        put_value(line, behind, item, 0);
        return;
    case WEIR_CALLS_LOG_BY_TEXT_OUT:
        put_text_out(line, *word, success && behind);
        return;
    case WEIR_CALLS_LOG_BY_OUT:
    case WEIR_CALLS_LOG_BY_IN:
        if (!success || !behind) {
            weir_calls_log_put(line, behind ? "%p" : "NULL", behind);
            return;
        }
        weir_calls_log_put(line, "%s", item->by == WEIR_CALLS_LOG_BY_OUT ? "[" : "");
        put_value(line, behind, item, 0);
        weir_calls_log_put(line, "%s", item->by == WEIR_CALLS_LOG_BY_OUT ? "]" : "");
        return;
    }
}

void weir_calls_log_put_args(struct weir_calls_log_line *line, enum weir_symbol symbol,
                             CUresult result, const uint64_t *words)
{
    const struct weir_calls_log_symbol *called = &weir_calls_log_symbols[symbol];
    for (uint16_t i = 0; i < called->n_args; i++) {
        const struct weir_calls_log_item *item = &weir_calls_log_args[called->first + i];
        weir_calls_log_put(line, "%s%s=", i ? ", " : "", item->name);
        put_arg(line, item, &words[i], result == CUDA_SUCCESS);
    }
}

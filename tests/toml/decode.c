/*
 * TOML on stdin as the tagged JSON that the cases of toml-test want; exit status 1 with a complaint
 * for a text that is none. judge.py runs it.
 */
#include "base/text.h"
#include "host_backend/config/toml.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX (1u << 20)

static char text[TEXT_MAX];

/* Strings and keys may have NULs inside. */
static void put_text(const char *from, size_t bytes)
{
    putchar('"');
    for (const char *end = from + bytes;; from++) {
        weir_json_put_part(stdout, from);
        from += strlen(from);
        if (from >= end) {
            break;
        }
        fputs("\\u0000", stdout);
    }
    putchar('"');
}

/* By its form: 2026-01-31, 23:59:59, both, and that with an offset. */
static const char *time_type(const char *time)
{
    const char *clock = strchr(time, ':');

    if (time[2] == ':') {
        return "time-local";
    }
    if (!clock) {
        return "date-local";
    }
    return clock[strcspn(clock, "Zz+-")] != 0 ? "datetime" : "datetime-local";
}

static void put_scalar(const struct weir_toml_value *value)
{
    switch (value->kind) {
    case WEIR_TOML_STRING:
        fputs("{\"type\": \"string\", \"value\": ", stdout);
        put_text(value->string, value->string_bytes);
        putchar('}');
        break;
    case WEIR_TOML_INTEGER:
        printf("{\"type\": \"integer\", \"value\": \"%" PRId64 "\"}", value->integer);
        break;
    case WEIR_TOML_FLOAT:
        if (isnan(value->number)) {
            fputs("{\"type\": \"float\", \"value\": \"nan\"}", stdout);
        } else {
            printf("{\"type\": \"float\", \"value\": \"%.17g\"}", value->number);
        }
        break;
    case WEIR_TOML_BOOLEAN:
        printf("{\"type\": \"bool\", \"value\": \"%s\"}", value->boolean ? "true" : "false");
        break;
    case WEIR_TOML_TIME:
        printf("{\"type\": \"%s\", \"value\": \"%s\"}", time_type(value->string), value->string);
        break;
    case WEIR_TOML_ARRAY:
    case WEIR_TOML_TABLE:
        break;
    }
}

static void put(const struct weir_toml_value *value)
{
    bool table = value->kind == WEIR_TOML_TABLE;

    if (!table && value->kind != WEIR_TOML_ARRAY) {
        put_scalar(value);
        return;
    }
    putchar(table ? '{' : '[');
    for (const struct weir_toml_value *item = value->items; item; item = item->next) {
        if (table) {
            put_text(item->key, item->key_bytes);
            putchar(':');
        }
        put(item);
        putchar(item->next ? ',' : '\n');
    }
    putchar(table ? '}' : ']');
}

int main(void)
{
    size_t bytes = fread(text, 1, sizeof text, stdin);
    const struct weir_toml_value *root;
    struct weir_diag diag = {0};
    struct weir_arena arena;
    enum weir_status status;

    weir_arena_init(&arena, WEIR_TOML_ARENA_BASE + bytes * WEIR_TOML_ARENA_PER_BYTE);
    status = weir_toml_parse(text, bytes, &arena, &root, &diag);
    if (status == WEIR_OK) {
        put(root);
        putchar('\n');
    } else {
        fprintf(stderr, "%u:%u: %s\n", diag.line, diag.column,
                status == WEIR_ERR_SYNTAX ? diag.message : weir_status_text(status));
    }
    weir_arena_finish(&arena);
    return status != WEIR_OK;
}

/*
 * Edits weir.toml at the places where the parser found values. Everything else (comments, blanks,
 * the order of keys) is copied byte for byte.
 */
#include "tools/toml_edit.h"

#include "host_backend/config/toml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct document {
    const char *text;
    struct weir_arena arena;
    /* [[tenant]] or tenant = [...]; NULL: the text has neither */
    const struct weir_toml_value *tenants;
};

static bool open_document(struct document *d, const char *text)
{
    size_t bytes = strlen(text);
    const struct weir_toml_value *root;
    d->text = text;
    weir_arena_init(&d->arena, WEIR_TOML_ARENA_BASE + bytes * WEIR_TOML_ARENA_PER_BYTE);
    bool good = weir_toml_parse(text, bytes, &d->arena, &root, NULL) == WEIR_OK;
    d->tenants = good ? weir_toml_find(root, "tenant") : NULL;
    return good;
}

static const struct weir_toml_value *find_tenant(const struct document *d, const char *name)
{
    const struct weir_toml_value *row = d->tenants ? d->tenants->items : NULL;
    for (; row; row = row->next) {
        const struct weir_toml_value *value = weir_toml_find(row, "name");
        if (value && value->kind == WEIR_TOML_STRING && strcmp(value->string, name) == 0) {
            return row;
        }
    }
    return NULL;
}

bool weir_toml_has_tenants(const char *text)
{
    struct document d;
    bool has = open_document(&d, text) && d.tenants && d.tenants->items;
    weir_arena_finish(&d.arena);
    return has;
}

bool weir_toml_editable(const char *text)
{
    struct document d;
    bool good = open_document(&d, text) && (!d.tenants || d.tenants->made == WEIR_TOML_MADE_ROWS);
    weir_arena_finish(&d.arena);
    return good;
}

static size_t line_start(const char *text, size_t at)
{
    while (at > 0 && text[at - 1] != '\n') {
        at--;
    }
    return at;
}

/* Find the position behind the newline, or the end of the text. */
static size_t line_end(const char *text, size_t at)
{
    at += strcspn(text + at, "\n");
    return at + (text[at] == '\n');
}

/* Print a value, in quotes unless it is a number. */
static void print_value(FILE *out, const char *value)
{
    bool number = *value && strspn(value, "0123456789") == strlen(value);
    fprintf(out, number && (*value != '0' || !value[1]) ? "%s" : "\"%s\"", value);
}

static void print_assignment(FILE *out, const char *key, const char *value)
{
    if (key && value && *value) {
        fprintf(out, "%s = ", key);
        print_value(out, value);
        putc('\n', out);
    }
}

/* Print the beginning of a text, and end its last line. */
static void print_lines(FILE *out, const char *text, size_t bytes)
{
    fwrite(text, 1, bytes, out);
    if (bytes > 0 && text[bytes - 1] != '\n') {
        putc('\n', out);
    }
}

/* Print a text with a key's value changed, its lines removed, or a line added after the name's. */
static void print_set(FILE *out, const char *text, const struct weir_toml_value *tenant,
                      const char *key, const char *value)
{
    const struct weir_toml_value *there = key ? weir_toml_find(tenant, key) : NULL;
    bool wanted = key && value && *value;
    if (there && wanted) {
        fwrite(text, 1, there->begin, out);
        print_value(out, value);
        fputs(text + there->end, out);
    } else if (there) {
        fwrite(text, 1, line_start(text, there->key_at), out);
        fputs(text + line_end(text, there->end), out);
    } else if (wanted) {
        size_t behind = line_end(text, weir_toml_find(tenant, "name")->end);
        print_lines(out, text, behind);
        print_assignment(out, key, value);
        fputs(text + behind, out);
    } else {
        fputs(text, out);
    }
}

static void print_added(FILE *out, const struct document *d, const char *tenant)
{
    print_lines(out, d->text, strlen(d->text));
    if (!d->tenants && strcmp(tenant, "default") != 0) {
        fputs("\n[[tenant]]\nname = \"default\"\n", out);
    }
    fprintf(out, "\n[[tenant]]\nname = \"%s\"\n", tenant);
}

char *weir_toml_set(const char *text, const char *tenant, const char *key, const char *value)
{
    char *edited = NULL;
    size_t bytes = 0;
    struct document d;
    FILE *out = open_document(&d, text) ? open_memstream(&edited, &bytes) : NULL;
    if (out) {
        const struct weir_toml_value *row = find_tenant(&d, tenant);
        if (row) {
            print_set(out, text, row, key, value);
        } else {
            print_added(out, &d, tenant);
            print_assignment(out, key, value);
        }
        if (fclose(out)) {
            free(edited);
            edited = NULL;
        }
    }
    weir_arena_finish(&d.arena);
    return edited;
}

char *weir_toml_remove(const char *text, const char *tenant)
{
    struct document d;
    char *edited = open_document(&d, text) ? strdup(text) : NULL;
    const struct weir_toml_value *row = edited ? find_tenant(&d, tenant) : NULL;
    if (row) {
        strcpy(edited + line_start(text, row->begin), text + row->end);
    }
    weir_arena_finish(&d.arena);
    return edited;
}

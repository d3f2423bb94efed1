/*
 * weir.toml edited line by line. The reader (host_backend/config/toml.c) allows no value over
 * several lines, so a line is a header, an assignment, a comment or blank, and nothing else.
 */
#include "tools/toml_edit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A [[tenant]] table: from its header to the next table's, or to the end. */
struct section {
    const char *start, *end;
    const char *name_end; /* behind the line with its name: where keys are put in */
};

static const char *next_line(const char *at)
{
    const char *end = strchr(at, '\n');
    return end ? end + 1 : at + strlen(at);
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

/* The value in a line that assigns to key; NULL: it does not. */
static const char *value_of(const char *line, const char *key)
{
    const char *at = skip_blanks(line);
    size_t n = strlen(key);
    if (strncmp(at, key, n) != 0) {
        return NULL;
    }
    at = skip_blanks(at + n);
    return *at == '=' ? skip_blanks(at + 1) : NULL;
}

static bool is_header(const char *line)
{
    return *skip_blanks(line) == '[';
}

static bool is_tenant_header(const char *line)
{
    const char *at = skip_blanks(line);
    if (strncmp(at, "[[", 2) != 0) {
        return false;
    }
    at = skip_blanks(at + 2);
    return strncmp(at, "tenant", 6) == 0 && *skip_blanks(at + 6) == ']';
}

/* Is this line's name the tenant's? */
static bool names(const char *line, const char *tenant)
{
    const char *value = value_of(line, "name");
    size_t n = strlen(tenant);
    return value && (*value == '"' || *value == '\'') && strncmp(value + 1, tenant, n) == 0 &&
           value[1 + n] == *value;
}

static bool find_section(const char *text, const char *tenant, struct section *ret)
{
    struct section s = {NULL, NULL, NULL};
    for (const char *line = text; *line; line = next_line(line)) {
        if (is_header(line)) {
            if (s.name_end) {
                break;
            }
            s.start = is_tenant_header(line) ? line : NULL;
        } else if (s.start && names(line, tenant)) {
            s.name_end = next_line(line);
        }
        s.end = next_line(line);
    }
    *ret = s;
    return s.name_end;
}

bool weir_toml_has_tenants(const char *text)
{
    for (const char *line = text; *line; line = next_line(line)) {
        if (is_tenant_header(line)) {
            return true;
        }
    }
    return false;
}

/* Numbers stand bare, as people write them. */
static void print_value(FILE *out, const char *key, const char *value)
{
    bool number = *value && strspn(value, "0123456789") == strlen(value);
    fprintf(out, number ? "%s = %s" : "%s = \"%s\"", key, value);
}

/* The comment behind a value, with the blanks before it; "" when there is none. */
static const char *comment_of(const char *value)
{
    char quote = *value == '"' || *value == '\'' ? *value : '\0';
    const char *at = value;
    if (quote) {
        for (at++; *at && *at != quote && *at != '\n'; at++) {
            at += *at == '\\' && quote == '"' && at[1];
        }
        at += *at == quote;
    } else {
        at += strcspn(at, " \t#\r\n");
    }
    const char *comment = skip_blanks(at);
    return *comment == '#' ? at : "";
}

static void print_line(FILE *out, const char *line, const char *key, const char *value)
{
    const char *comment = comment_of(value_of(line, key));
    print_value(out, key, value);
    fprintf(out, "%.*s\n", (int)strcspn(comment, "\r\n"), comment);
}

/* The file may end without a newline. */
static void print_until(FILE *out, const char *from, const char *to)
{
    fwrite(from, 1, (size_t)(to - from), out);
    if (to > from && to[-1] != '\n') {
        putc('\n', out);
    }
}

/* The text with a key's line changed, taken out, or (behind the name's) put in. */
static void print_set(FILE *out, const char *text, const struct section *s, const char *key,
                      const char *value)
{
    bool wanted = key && value && *value;
    bool there = false;
    for (const char *line = s->start; key && line < s->end; line = next_line(line)) {
        there |= value_of(line, key) != NULL;
    }
    print_until(out, text, s->start);
    for (const char *line = s->start; line < s->end; line = next_line(line)) {
        if (!key || !value_of(line, key)) {
            print_until(out, line, next_line(line));
        } else if (wanted) {
            fprintf(out, "%.*s", (int)(skip_blanks(line) - line), line);
            print_line(out, line, key, value);
        }
        if (wanted && !there && next_line(line) == s->name_end) {
            print_value(out, key, value);
            putc('\n', out);
        }
    }
    fputs(s->end, out);
}

char *weir_toml_set(const char *text, const char *tenant, const char *key, const char *value)
{
    char *edited = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&edited, &bytes);
    if (!out) {
        return NULL;
    }
    struct section section;
    if (find_section(text, tenant, &section)) {
        print_set(out, text, &section, key, value);
    } else {
        print_until(out, text, text + strlen(text));
        if (!weir_toml_has_tenants(text) && strcmp(tenant, "default") != 0) {
            fprintf(out, "\n[[tenant]]\nname = \"default\"\n");
        }
        fprintf(out, "\n[[tenant]]\nname = \"%s\"\n", tenant);
        if (key && value && *value) {
            print_value(out, key, value);
            putc('\n', out);
        }
    }
    if (fclose(out)) {
        free(edited);
        return NULL;
    }
    return edited;
}

char *weir_toml_remove(const char *text, const char *tenant)
{
    struct section s;
    if (!find_section(text, tenant, &s)) {
        return strdup(text);
    }
    size_t before = (size_t)(s.start - text);
    char *edited = malloc(before + strlen(s.end) + 1);
    if (edited) {
        memcpy(edited, text, before);
        strcpy(edited + before, s.end);
    }
    return edited;
}

/*
 * libvirt returns well-formed XML, because it has parsed it: a start tag, and perhaps children,
 * which are ignored here. So it is enough to look for a name, an equals sign and quotes.
 */
#include "tools/virt_element.h"

#include "base/status.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n"

struct attribute {
    const char *name, *value; /* these point into the element */
    int name_len, value_len;
};

/* Find where the attributes of an element begin. */
static const char *first_of(const char *element)
{
    return element + strcspn(element, BLANKS "/>");
}

/* Read the attribute at or after `at`; returns where the next may begin, or NULL: there is none. */
static const char *next_of(const char *at, struct attribute *ret)
{
    ret->name = at + strspn(at, BLANKS);
    ret->name_len = (int)strcspn(ret->name, "=/>" BLANKS);
    at = ret->name + ret->name_len;
    at += strspn(at, BLANKS);
    WEIR_FAIL_IF(ret->name_len == 0 || *at != '=', NULL);
    at++;
    at += strspn(at, BLANKS);
    const char *end = *at == '\'' || *at == '"' ? strchr(at + 1, *at) : NULL;
    WEIR_FAIL_IF(!end, NULL);
    ret->value = at + 1;
    ret->value_len = (int)(end - ret->value);
    return end + 1;
}

static bool is_named(const struct attribute *attribute, const char *name)
{
    return (size_t)attribute->name_len == strlen(name) &&
           strncmp(attribute->name, name, strlen(name)) == 0;
}

static bool belongs_to(const char *element, const char *machine, const char *tenant)
{
    struct attribute a;
    for (const char *at = first_of(element); (at = next_of(at, &a));) {
        if (is_named(&a, "name")) {
            return (size_t)a.value_len == strlen(tenant) &&
                   strncmp(a.value, tenant, strlen(tenant)) == 0;
        }
    }
    return strcmp(machine, tenant) == 0;
}

static bool is_replaced(const struct attribute *attribute, const char (*words)[80], size_t n_words)
{
    if (is_named(attribute, "name") || strncmp(attribute->name, "xmlns", 5) == 0) {
        return true;
    }
    for (size_t i = 0; i < n_words; i++) {
        size_t len = strcspn(words[i], "=");
        if (((size_t)attribute->name_len == len && strncmp(attribute->name, words[i], len) == 0) ||
            (is_named(attribute, "unit") && strncmp(words[i], "memory=", 7) == 0)) {
            return true;
        }
    }
    return false;
}

char *weir_virt_element(const char *old, const char *machine, const char *tenant,
                        const char (*words)[80], size_t n_words)
{
    char *text = NULL;
    size_t bytes;
    struct attribute a;
    FILE *out = open_memstream(&text, &bytes);
    WEIR_FAIL_IF(!out, NULL);
    fprintf(out, "<tenant");
    if (strcmp(tenant, machine) != 0) {
        fprintf(out, " name='%s'", tenant);
    }
    for (size_t i = 0; i < n_words; i++) {
        int len = (int)strcspn(words[i], "=");
        fprintf(out, " %.*s='%s'", len, words[i], words[i] + len + 1);
    }
    if (old && belongs_to(old, machine, tenant)) {
        for (const char *at = first_of(old); (at = next_of(at, &a));) {
            if (!is_replaced(&a, words, n_words)) {
                /* Keep the value's own quotes: it may contain the other kind. */
                fprintf(out, " %.*s=%.*s", a.name_len, a.name, a.value_len + 2, a.value - 1);
            }
        }
    }
    fprintf(out, "/>");
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

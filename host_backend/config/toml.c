/* A reader for the part of TOML that weir.toml uses; one line at a time, no look-ahead. */
#include "host_backend/config/toml.h"

#include <string.h>

#define TEXT_MAX 512 /* bytes of a key or a string */

struct reader {
    const char *at, *end, *line_start;
    uint32_t line;
    const struct weir_toml_visitor *visitor;
    void *user;
    struct weir_diag *diag;
};

static uint32_t column(const struct reader *r)
{
    return (uint32_t)(r->at - r->line_start) + 1;
}

#define FAIL(r, ...) (weir_diag_set((r)->diag, (r)->line, column(r), __VA_ARGS__), false)

static bool at_line_end(const struct reader *r)
{
    return r->at == r->end || *r->at == '\n' ||
           (*r->at == '\r' && r->at + 1 < r->end && r->at[1] == '\n');
}

static void skip_blanks(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t')) {
        r->at++;
    }
}

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 && c != '\t';
}

/* Behind the #. Whoever edits the file takes its text for a C string, so there is no NUL in it. */
static bool skip_comment(struct reader *r)
{
    while (!at_line_end(r)) {
        if (is_control(*r->at)) {
            return FAIL(r, "a control character in a comment");
        }
        r->at++;
    }
    return true;
}

/* Blanks, a comment, and the end of the line. */
static bool finish_line(struct reader *r)
{
    skip_blanks(r);
    if (r->at < r->end && *r->at == '#' && !skip_comment(r)) {
        return false;
    }
    if (!at_line_end(r)) {
        return FAIL(r, "unexpected text after the value");
    }
    if (r->at < r->end) {
        r->at += *r->at == '\r' ? 2 : 1;
        r->line++;
        r->line_start = r->at;
    }
    return true;
}

static bool is_key_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static bool read_key(struct reader *r, char key[TEXT_MAX])
{
    size_t n = 0;

    while (r->at < r->end && is_key_char(*r->at)) {
        if (n == TEXT_MAX - 1) {
            return FAIL(r, "the name is too long");
        }
        key[n++] = *r->at++;
    }
    key[n] = 0;
    return n != 0 || FAIL(r, "a name of letters, digits, _ and - is expected here");
}

static bool read_escape(struct reader *r, char *ret)
{
    static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
    const char *found = r->at < r->end ? strchr(from, *r->at) : NULL;

    if (found == NULL || *found == 0) {
        return FAIL(r, "unknown escape in a string");
    }
    *ret = to[found - from];
    r->at++;
    return true;
}

static bool read_string(struct reader *r, char text[TEXT_MAX])
{
    char quote = *r->at++;
    size_t n = 0;

    for (;;) {
        char c;

        if (at_line_end(r)) {
            return FAIL(r, "the string does not end on this line");
        }
        c = *r->at++;
        if (c == quote) {
            text[n] = 0;
            return true;
        }
        if (c == '\\' && quote == '"') {
            if (!read_escape(r, &c)) {
                return false;
            }
        } else if (is_control(c)) {
            r->at--;
            return FAIL(r, "a control character in a string");
        }
        if (n == TEXT_MAX - 1) {
            return FAIL(r, "the string is too long");
        }
        text[n++] = c;
    }
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

static bool read_integer(struct reader *r, int64_t *ret)
{
    bool negative = *r->at == '-', digits = false;
    int base = 10;
    uint64_t value = 0;

    if (*r->at == '-' || *r->at == '+') {
        r->at++;
    }
    if (r->end - r->at > 2 && r->at[0] == '0' && (r->at[1] == 'x' || r->at[1] == 'o')) {
        base = r->at[1] == 'x' ? 16 : 8;
        r->at += 2;
    }
    for (; r->at < r->end && (digit_of(*r->at) < base || (*r->at == '_' && digits)); r->at++) {
        if (*r->at == '_') {
            continue;
        }
        digits = true;
        if (value > ((uint64_t)INT64_MAX - (uint64_t)digit_of(*r->at)) / (uint64_t)base) {
            return FAIL(r, "the number is too large");
        }
        value = value * (uint64_t)base + (uint64_t)digit_of(*r->at);
    }
    if (!digits) {
        return FAIL(r, "a number is expected here");
    }
    *ret = negative ? -(int64_t)value : (int64_t)value;
    return true;
}

static bool take_word(struct reader *r, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0 ||
        ((size_t)(r->end - r->at) > n && is_key_char(r->at[n]))) {
        return false;
    }
    r->at += n;
    return true;
}

static bool read_value(struct reader *r, char text[TEXT_MAX], struct weir_toml_value *value)
{
    *value = (struct weir_toml_value){.line = r->line, .column = column(r)};
    if (at_line_end(r)) {
        return FAIL(r, "a value is missing");
    }
    if (*r->at == '"' || *r->at == '\'') {
        value->kind = WEIR_TOML_STRING;
        value->string = text;
        return read_string(r, text);
    }
    if (*r->at == '-' || *r->at == '+' || (*r->at >= '0' && *r->at <= '9')) {
        value->kind = WEIR_TOML_INTEGER;
        return read_integer(r, &value->integer);
    }
    value->kind = WEIR_TOML_BOOLEAN;
    value->boolean = take_word(r, "true");
    return value->boolean || take_word(r, "false") ||
           FAIL(r, "a value must be a string in quotes, an integer, true or false");
}

static bool read_table(struct reader *r)
{
    uint32_t at_column = column(r);
    char name[TEXT_MAX];
    bool array;

    r->at++;
    array = r->at < r->end && *r->at == '[';
    r->at += array;
    skip_blanks(r);
    if (!read_key(r, name)) {
        return false;
    }
    skip_blanks(r);
    for (int i = 0; i <= array; i++) {
        if (r->at == r->end || *r->at != ']') {
            return FAIL(r, "']' is missing");
        }
        r->at++;
    }
    return r->visitor->table(r->user, name, array, r->line, at_column, r->diag) && finish_line(r);
}

static bool read_assignment(struct reader *r)
{
    uint32_t at_column = column(r);
    char key[TEXT_MAX], text[TEXT_MAX];
    struct weir_toml_value value;

    if (!read_key(r, key)) {
        return false;
    }
    skip_blanks(r);
    if (r->at == r->end || *r->at != '=') {
        return FAIL(r, "'=' is missing after '%.40s'", key);
    }
    r->at++;
    skip_blanks(r);
    return read_value(r, text, &value) &&
           r->visitor->value(r->user, key, r->line, at_column, &value, r->diag) && finish_line(r);
}

enum weir_status weir_toml_parse(const char *text, size_t bytes,
                                 const struct weir_toml_visitor *visitor, void *user,
                                 struct weir_diag *ret_diag)
{
    struct reader r = {text, text + bytes, text, 1, visitor, user, ret_diag};

    while (r.at < r.end) {
        bool ok;

        skip_blanks(&r);
        if (at_line_end(&r) || *r.at == '#') {
            ok = finish_line(&r);
        } else if (*r.at == '[') {
            ok = read_table(&r);
        } else {
            ok = read_assignment(&r);
        }
        if (!ok) {
            return WEIR_ERR_SYNTAX;
        }
    }
    return WEIR_OK;
}

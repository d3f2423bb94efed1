/*
 * A reader for TOML 1.0: tables, keys, arrays and strings. toml_scalar.c has numbers and times.
 *
 * The reader works on a copy of the text that ends in NUL, so that looking one byte ahead is always
 * allowed: NUL itself is refused wherever it stands. A string's decoded escapes are written over
 * the string, which never grows by that.
 */
#include "host_backend/config/toml_private.h"

#include "base/text.h"
#include <string.h>

#define DEPTH_MAX 64
#define KEYS_MAX  4096 /* keys of a table, which are compared one by one */

struct part { /* one part of a dotted key */
    const char *name;
    size_t bytes, at;
    uint32_t line, column;
};

static bool at_newline(const struct weir_toml_reader *r)
{
    return *r->at == '\n' || (*r->at == '\r' && r->at[1] == '\n');
}

static bool at_line_end(const struct weir_toml_reader *r)
{
    return r->at == r->end || at_newline(r);
}

static void take_newline(struct weir_toml_reader *r)
{
    r->at += *r->at == '\r' ? 2 : 1;
    r->line++;
    r->line_start = r->at;
}

static void skip_blanks(struct weir_toml_reader *r)
{
    r->at += strspn(r->at, " \t");
}

static bool is_control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

static bool skip_comment(struct weir_toml_reader *r)
{
    for (; !at_line_end(r); r->at++) {
        WEIR_FAIL_IF(is_control(*r->at), WEIR_TOML_FAIL(r, "a control character in a comment"));
    }
    return true;
}

/* Skip blanks, comments and ends of lines, which may stand between the elements of an array. */
static bool skip_lines(struct weir_toml_reader *r)
{
    for (;;) {
        skip_blanks(r);
        WEIR_FAIL_IF(*r->at == '#' && !skip_comment(r), false);
        if (!at_newline(r)) {
            return true;
        }
        take_newline(r);
    }
}

static bool finish_line(struct weir_toml_reader *r)
{
    skip_blanks(r);
    WEIR_FAIL_IF(*r->at == '#' && !skip_comment(r), false);
    WEIR_FAIL_IF(!at_line_end(r), WEIR_TOML_FAIL(r, "unexpected text after the value"));
    if (r->at < r->end) {
        take_newline(r);
    }
    return true;
}

/* ---------------------------------------------------------------- the tree */

static struct weir_toml_value *find(const struct weir_toml_value *table, const char *key, size_t n)
{
    struct weir_toml_value *item = table->items;

    while (item && (item->key_bytes != n || memcmp(item->key, key, n) != 0)) {
        item = item->next;
    }
    return item;
}

const struct weir_toml_value *weir_toml_find(const struct weir_toml_value *table, const char *key)
{
    return find(table, key, strlen(key));
}

const char *weir_toml_kind_text(enum weir_toml_kind kind)
{
    static const char *const texts[] = {"a string",       "an integer", "a float", "true or false",
                                        "a date or time", "an array",   "a table"};

    return texts[kind];
}

static bool refuse(struct weir_toml_reader *r, const struct part *part, const char *why)
{
    char name[80];

    weir_diag_set(r->diag, part->line, part->column, "'%s' %s",
                  weir_text_visible(part->name, name, sizeof name), why);
    return false;
}

static struct weir_toml_value *add(struct weir_toml_reader *r, struct weir_toml_value *to,
                                   const struct part *part)
{
    if (part && ++to->n_keys > KEYS_MAX) {
        refuse(r, part, "is one key too many for its table");
        return NULL;
    }
    struct weir_toml_value *value = weir_arena_alloc(r->arena, sizeof *value);
    if (!value) {
        r->no_memory = true;
        return NULL;
    }
    *value = (struct weir_toml_value){.line = r->line, .column = weir_toml_column(r)};
    if (part) {
        value->key = part->name;
        value->key_bytes = part->bytes;
        value->key_line = part->line;
        value->key_column = part->column;
        value->key_at = part->at;
    }
    *(to->last ? &to->last->next : &to->items) = value;
    to->last = value;
    return value;
}

/* ---------------------------------------------------------------- strings */

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

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; /* number of bytes that follow the first */

    *to++ = (char)((0xff00u >> (more + 1) & 0xff) | c >> (6 * more));
    while (more-- > 0) {
        *to++ = (char)(0x80 | (c >> (6 * more) & 0x3f));
    }
    return to;
}

/* Decode the escape behind a backslash. */
static bool read_escape(struct weir_toml_reader *r, char **to)
{
    static const char from[] = "btnfr\"\\", meant[] = "\b\t\n\f\r\"\\";
    const char *found = *r->at != 0 ? strchr(from, *r->at) : NULL;

    if (found) {
        *(*to)++ = meant[found - from];
        r->at++;
        return true;
    }
    int digits = *r->at == 'u' ? 4 : *r->at == 'U' ? 8 : 0;
    uint32_t c = 0;

    WEIR_FAIL_IF(digits == 0,
                 WEIR_TOML_FAIL(r, "unknown escape in a string (a backslash is written \\\\)"));
    r->at++;
    for (; digits > 0; digits--, r->at++) {
        WEIR_FAIL_IF(digit_of(*r->at) > 15,
                     WEIR_TOML_FAIL(r, "\\u wants 4 hexadecimal digits, \\U 8"));
        c = c << 4 | (uint32_t)digit_of(*r->at);
    }
    WEIR_FAIL_IF(c > 0x10ffff || (c >= 0xd800 && c < 0xe000),
                 WEIR_TOML_FAIL(r, "no character has this number"));
    *to = put_utf8(*to, c);
    return true;
}

/* A backslash at a line's end removes all blanks and line ends up to the next text. */
static bool skip_folded(struct weir_toml_reader *r)
{
    char *at = r->at + strspn(r->at, " \t");

    WEIR_FAIL_IF(*at != '\n' && !(*at == '\r' && at[1] == '\n'), false);
    r->at = at;
    while (at_newline(r)) {
        take_newline(r);
        skip_blanks(r);
    }
    return true;
}

static size_t quotes_at(const struct weir_toml_reader *r, char quote)
{
    const char text[] = {quote, 0};

    return strspn(r->at, text);
}

/* Copy the next character of a string to *to. */
static bool read_char(struct weir_toml_reader *r, char quote, bool lines, char **to)
{
    if (lines && at_newline(r)) {
        *(*to)++ = '\n';
        take_newline(r);
        return true;
    }
    WEIR_FAIL_IF(at_line_end(r), WEIR_TOML_FAIL(r, lines ? "the string does not end"
                                                         : "the string does not end on this line"));
    if (*r->at == '\\' && quote == '"') {
        r->at++;
        return (lines && skip_folded(r)) || read_escape(r, to);
    }
    WEIR_FAIL_IF(is_control(*r->at), WEIR_TOML_FAIL(r, "a control character in a string"));
    *(*to)++ = *r->at++;
    return true;
}

/* Read a string; the reader stands at its quote. */
static bool read_string(struct weir_toml_reader *r, bool lines_too, const char **ret, size_t *ret_n)
{
    char quote = *r->at, *from, *to;
    bool lines = lines_too && quotes_at(r, quote) >= 3;
    size_t closing = lines ? 3 : 1, n;

    r->at += closing;
    from = to = r->at;
    if (lines && at_newline(r)) {
        take_newline(r);
    }
    while ((n = quotes_at(r, quote)) < closing) {
        if (n != 0) { /* a text may end in one or two quotes: """ one " and two "" """ */
            *to++ = quote;
            r->at++;
        } else if (!read_char(r, quote, lines, &to)) {
            return false;
        }
    }
    n = WEIR_MIN(n, 5);
    for (; lines && n > closing; n--) { /* of """" and """"" the first quotes belong to the text */
        *to++ = quote;
        r->at++;
    }
    r->at += closing;
    *to = 0;
    *ret = from;
    *ret_n = (size_t)(to - from);
    return true;
}

/* ---------------------------------------------------------------- keys */

static bool read_part(struct weir_toml_reader *r, struct part *part)
{
    size_t n = strspn(r->at, WEIR_TOML_BARE);

    *part = (struct part){
        .at = (size_t)(r->at - r->text), .line = r->line, .column = weir_toml_column(r)};
    if (*r->at == '"' || *r->at == '\'') {
        return read_string(r, false, &part->name, &part->bytes);
    }
    WEIR_FAIL_IF(n == 0, WEIR_TOML_FAIL(
                             r, "a name is expected here: letters, digits, _ and -, or in quotes"));
    part->name = weir_arena_strndup(r->arena, r->at, n);
    part->bytes = n;
    r->at += n;
    r->no_memory |= !part->name;
    return part->name != NULL;
}

/* Find or make the table that a part of a key or a header names; not for the last part. */
static struct weir_toml_value *step(struct weir_toml_reader *r, struct weir_toml_value *table,
                                    const struct part *part, bool header)
{
    struct weir_toml_value *item = find(table, part->name, part->bytes);

    if (!item) {
        item = add(r, table, part);
        if (item) {
            item->kind = WEIR_TOML_TABLE;
            item->made = header ? WEIR_TOML_MADE_IMPLIED : WEIR_TOML_MADE_DOTTED;
            item->line = part->line;
            item->column = part->column;
        }
        return item;
    }
    if (header && item->made == WEIR_TOML_MADE_ROWS) {
        return item->last;
    }
    if (item->made == WEIR_TOML_MADE_WHOLE) {
        refuse(r, part,
               item->kind == WEIR_TOML_TABLE ? "is whole: nothing can be added to {...}"
                                             : "is no table");
        return NULL;
    }
    if (!header && item->made != WEIR_TOML_MADE_DOTTED && item->made != WEIR_TOML_MADE_IMPLIED) {
        refuse(r, part, "has a header of its own: put the key there");
        return NULL;
    }
    item->made = header ? item->made : WEIR_TOML_MADE_DOTTED;
    return item;
}

/* Read a path a.b.c: find the table that the last part belongs to, and that part. */
static struct weir_toml_value *read_path(struct weir_toml_reader *r, struct weir_toml_value *table,
                                         bool header, struct part *last)
{
    for (int depth = 0; read_part(r, last); depth++) {
        skip_blanks(r);
        if (*r->at != '.') {
            return table;
        }
        if (depth == DEPTH_MAX) {
            (void)WEIR_TOML_FAIL(r, "more than %d tables inside each other", DEPTH_MAX);
            return NULL;
        }
        r->at++;
        skip_blanks(r);
        table = step(r, table, last, header);
        WEIR_FAIL_IF(!table, NULL);
    }
    return NULL;
}

/* ---------------------------------------------------------------- values */

static bool read_assignment(struct weir_toml_reader *r, struct weir_toml_value *table);

static bool read_array(struct weir_toml_reader *r, struct weir_toml_value *array)
{
    array->kind = WEIR_TOML_ARRAY;
    r->at++;
    for (;;) {
        WEIR_FAIL_IF(!skip_lines(r), false);
        if (*r->at == ']') {
            r->at++;
            return true;
        }
        struct weir_toml_value *item = add(r, array, NULL);
        WEIR_FAIL_IF(!item || !weir_toml_read_value(r, item) || !skip_lines(r), false);
        if (*r->at == ',') {
            r->at++;
        } else if (*r->at != ']') {
            return WEIR_TOML_FAIL(r, "',' or ']' is missing in the array");
        }
    }
}

static bool read_inline(struct weir_toml_reader *r, struct weir_toml_value *table)
{
    table->kind = WEIR_TOML_TABLE;
    r->at++;
    skip_blanks(r);
    if (*r->at == '}') {
        r->at++;
        return true;
    }
    for (;;) {
        skip_blanks(r);
        WEIR_FAIL_IF(!read_assignment(r, table), false);
        skip_blanks(r);
        if (*r->at == '}') {
            r->at++;
            return true;
        }
        WEIR_FAIL_IF(*r->at != ',',
                     WEIR_TOML_FAIL(r, "',' or '}' is missing: {...} stands on one line"));
        r->at++;
    }
}

bool weir_toml_read_value(struct weir_toml_reader *r, struct weir_toml_value *value)
{
    bool good;

    value->line = r->line;
    value->column = weir_toml_column(r);
    value->begin = (size_t)(r->at - r->text);
    if (*r->at == '"' || *r->at == '\'') {
        good = read_string(r, true, &value->string, &value->string_bytes);
    } else if (*r->at != '[' && *r->at != '{') {
        good =
            at_line_end(r) ? WEIR_TOML_FAIL(r, "a value is missing") : weir_toml_scalar(r, value);
    } else if (++r->depth > DEPTH_MAX) {
        good = WEIR_TOML_FAIL(r, "more than %d values inside each other", DEPTH_MAX);
    } else {
        good = *r->at == '[' ? read_array(r, value) : read_inline(r, value);
        r->depth--;
    }
    value->end = (size_t)(r->at - r->text);
    return good;
}

static bool read_assignment(struct weir_toml_reader *r, struct weir_toml_value *table)
{
    struct part part;

    table = read_path(r, table, false, &part);
    WEIR_FAIL_IF(!table, false);
    WEIR_FAIL_IF(find(table, part.name, part.bytes), refuse(r, &part, "is given twice"));
    if (*r->at != '=') {
        char name[80];

        return WEIR_TOML_FAIL(r, "'=' is missing after '%s'",
                              weir_text_visible(part.name, name, sizeof name));
    }
    r->at++;
    skip_blanks(r);
    struct weir_toml_value *value = add(r, table, &part);
    return value && weir_toml_read_value(r, value);
}

/* ---------------------------------------------------------------- headers */

/* Find or make the table of [a.b] or [[a.b]] in its parent. */
static struct weir_toml_value *open_table(struct weir_toml_reader *r,
                                          struct weir_toml_value *parent, const struct part *part,
                                          bool rows, uint32_t column)
{
    struct weir_toml_value *item = find(parent, part->name, part->bytes);

    if (rows && item && item->made != WEIR_TOML_MADE_ROWS) {
        refuse(r, part, "is no [[...]] above");
        return NULL;
    }
    if (!rows && item && item->made != WEIR_TOML_MADE_IMPLIED) {
        refuse(r, part,
               item->made == WEIR_TOML_MADE_ROWS ? "is [[...]] above: use two brackets here, too"
                                                 : "has a table above already: put its keys there");
        return NULL;
    }
    if (!item) {
        item = add(r, parent, part);
        WEIR_FAIL_IF(!item, NULL);
        item->column = column;
        item->kind = rows ? WEIR_TOML_ARRAY : WEIR_TOML_TABLE;
        item->made = rows ? WEIR_TOML_MADE_ROWS : WEIR_TOML_MADE_HEADER;
    }
    if (rows) {
        item = add(r, item, NULL);
        WEIR_FAIL_IF(!item, NULL);
        item->kind = WEIR_TOML_TABLE;
    }
    item->line = r->line;
    item->column = column;
    item->made = WEIR_TOML_MADE_HEADER;
    return item;
}

static bool read_header(struct weir_toml_reader *r, struct weir_toml_value *root,
                        struct weir_toml_value **table)
{
    uint32_t column = weir_toml_column(r);
    size_t begin = (size_t)(r->at - r->text);
    bool rows = r->at[1] == '[';
    struct part part;

    (*table)->end = (size_t)(r->line_start - r->text);
    r->at += rows ? 2 : 1;
    skip_blanks(r);
    struct weir_toml_value *parent = read_path(r, root, true, &part);
    WEIR_FAIL_IF(!parent, false);
    WEIR_FAIL_IF(strncmp(r->at, "]]", rows ? 2 : 1) != 0,
                 WEIR_TOML_FAIL(r, rows ? "']]' is missing" : "']' is missing"));
    r->at += rows ? 2 : 1;
    *table = open_table(r, parent, &part, rows, column);
    WEIR_FAIL_IF(!*table, false);
    (*table)->begin = begin;
    return finish_line(r);
}

/* ---------------------------------------------------------------- the text */

static bool check_utf8(struct weir_toml_reader *r)
{
    for (const char *at = r->text; at < r->end;) {
        const char *start = at;

        if (*at == 0 || weir_utf8_next(&at) < 0) {
            r->at = r->text + (start - r->text);
            for (const char *c = r->text; c < start; c++) {
                if (*c == '\n') {
                    r->line++;
                    r->line_start = r->text + (c + 1 - r->text);
                }
            }
            return WEIR_TOML_FAIL(r, *start == 0 ? "a NUL: this is no text" : "this is not UTF-8");
        }
    }
    return true;
}

static bool read_text(struct weir_toml_reader *r, struct weir_toml_value *root)
{
    struct weir_toml_value *table = root;

    WEIR_FAIL_IF(!check_utf8(r), false);
    if (strncmp(r->at, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark, as some editors write it */
        r->at += 3;
    }
    while (r->at < r->end) {
        bool good;

        skip_blanks(r);
        if (at_line_end(r) || *r->at == '#') {
            good = finish_line(r);
        } else if (*r->at == '[') {
            good = read_header(r, root, &table);
        } else {
            good = read_assignment(r, table) && finish_line(r);
        }
        WEIR_FAIL_IF(!good, false);
    }
    table->end = (size_t)(r->end - r->text);
    return true;
}

enum weir_status weir_toml_parse(const char *text, size_t bytes, struct weir_arena *arena,
                                 const struct weir_toml_value **ret_root,
                                 struct weir_diag *ret_diag)
{
    char *copy = weir_arena_strndup(arena, text, bytes);
    struct weir_toml_value *root = weir_arena_alloc(arena, sizeof *root);

    WEIR_FAIL_IF(!copy || !root, WEIR_ERR_NO_MEMORY);
    struct weir_toml_reader r = {.at = copy,
                                 .end = copy + bytes,
                                 .line_start = copy,
                                 .text = copy,
                                 .line = 1,
                                 .arena = arena,
                                 .diag = ret_diag};

    *root = (struct weir_toml_value){
        .kind = WEIR_TOML_TABLE, .made = WEIR_TOML_MADE_HEADER, .line = 1, .column = 1};
    if (!read_text(&r, root)) {
        return r.no_memory ? WEIR_ERR_NO_MEMORY : WEIR_ERR_SYNTAX;
    }
    *ret_root = root;
    return WEIR_OK;
}

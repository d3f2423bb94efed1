#include "ptx/lex.h"
#include "base/status.h"

#include <locale.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NUMBER_CHARS 64 /* longest decimal floating-point literal */

void weir_ptx_lexer_init(struct weir_ptx_lexer *lexer, const char *text, size_t len_bytes)
{
    const char *nul = len_bytes ? memchr(text, 0, len_bytes) : NULL;

    lexer->at = text;
    lexer->end = nul ? nul : text + len_bytes;
    lexer->line_start = text;
    lexer->line = 1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

static bool is_word(char c)
{
    return is_letter(c) || is_digit(c);
}

static char peek(const struct weir_ptx_lexer *lexer, size_t ahead)
{
    return (size_t)(lexer->end - lexer->at) > ahead ? lexer->at[ahead] : 0;
}

static void new_line(struct weir_ptx_lexer *lexer)
{
    lexer->line++;
    lexer->line_start = lexer->at + 1;
}

/* Skip a comment. If it has no end, go back, so that the diagnostic names its beginning. */
static bool skip_comment(struct weir_ptx_lexer *lexer)
{
    struct weir_ptx_lexer start = *lexer;

    for (lexer->at += 2; lexer->at < lexer->end; lexer->at++) {
        if (*lexer->at == '\n') {
            new_line(lexer);
        } else if (*lexer->at == '*' && peek(lexer, 1) == '/') {
            lexer->at += 2;
            return true;
        }
    }
    *lexer = start;
    return false;
}

/* Returns false at a comment without an end. */
static bool skip_space(struct weir_ptx_lexer *lexer)
{
    while (lexer->at < lexer->end) {
        char c = *lexer->at;

        if (c == '\n') {
            new_line(lexer);
            lexer->at++;
        } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
            lexer->at++;
        } else if (c == '/' && peek(lexer, 1) == '/') {
            const char *eol = memchr(lexer->at, '\n', (size_t)(lexer->end - lexer->at));

            lexer->at = eol ? eol : lexer->end;
        } else if (c == '/' && peek(lexer, 1) == '*') {
            WEIR_FAIL_IF(!skip_comment(lexer), false);
        } else {
            return true;
        }
    }
    return true;
}

static void bad(struct weir_ptx_lexer *lexer, struct weir_ptx_token *token, const char *reason)
{
    token->kind = WEIR_PTX_TOKEN_BAD;
    token->text = reason;
    token->len = (uint32_t)strlen(reason);
    lexer->at = lexer->end;
}

static void lex_word(struct weir_ptx_lexer *lexer, struct weir_ptx_token *token)
{
    lexer->at++;
    while (is_word(peek(lexer, 0))) {
        lexer->at++;
    }
    token->kind = WEIR_PTX_TOKEN_IDENT;
    token->text = token->start;
    token->len = (uint32_t)(lexer->at - token->start);
}

/* .word, .word::word: read a suffix or a directive, which may begin with a digit. */
static void lex_dot(struct weir_ptx_lexer *lexer, struct weir_ptx_token *token)
{
    lexer->at++;
    for (;;) {
        while (is_word(peek(lexer, 0))) {
            lexer->at++;
        }
        if (peek(lexer, 0) != ':' || peek(lexer, 1) != ':' || !is_word(peek(lexer, 2))) {
            break;
        }
        lexer->at += 2;
    }
    token->kind = WEIR_PTX_TOKEN_DOT;
    token->text = token->start + 1;
    token->len = (uint32_t)(lexer->at - token->text);
}

static int digit_value(char c)
{
    if (is_digit(c)) {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

/* Read digits of a base into token->bits; returns how many, -1 if they do not fit in 64 bits. */
static int lex_digits(struct weir_ptx_lexer *lexer, struct weir_ptx_token *token, unsigned base)
{
    int n = 0;

    token->bits = 0;
    for (; digit_value(peek(lexer, 0)) < (int)base; lexer->at++, n++) {
        if (__builtin_mul_overflow(token->bits, base, &token->bits) ||
            __builtin_add_overflow(token->bits, (unsigned)digit_value(*lexer->at), &token->bits)) {
            return -1;
        }
    }
    return n;
}

/* Read 0f and eight hexadecimal digits, or 0d and sixteen: the bits of a number. */
static void lex_float_bits(struct weir_ptx_lexer *lexer, struct weir_ptx_token *token, bool wide)
{
    lexer->at += 2;
    if (lex_digits(lexer, token, 16) != (wide ? 16 : 8)) {
        bad(lexer, token,
            wide ? "0d needs sixteen hexadecimal digits" : "0f needs eight hexadecimal digits");
        return;
    }
    token->kind = wide ? WEIR_PTX_TOKEN_FLOAT64 : WEIR_PTX_TOKEN_FLOAT32;
}

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* strtod() in the C locale: the process may have chosen another decimal point. */
static double to_double(const char *text, char **ret_tail)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale ? strtod_l(text, ret_tail, c_locale) : strtod(text, ret_tail);
}

static void lex_decimal_float(struct weir_ptx_lexer *lexer, struct weir_ptx_token *token)
{
    char buffer[MAX_NUMBER_CHARS + 1];
    size_t len = 0;
    char *tail;

    for (lexer->at = token->start; len < MAX_NUMBER_CHARS; lexer->at++) {
        char c = peek(lexer, 0);
        bool sign = (c == '+' || c == '-') && len && (buffer[len - 1] | 0x20) == 'e';

        if (!is_digit(c) && c != '.' && (c | 0x20) != 'e' && !sign) {
            break;
        }
        buffer[len++] = c;
    }
    buffer[len] = 0;
    double value = to_double(buffer, &tail);
    if (*tail || len == MAX_NUMBER_CHARS) {
        bad(lexer, token, "malformed number");
        return;
    }
    token->kind = WEIR_PTX_TOKEN_FLOAT;
    memcpy(&token->bits, &value, sizeof(value));
}

static void lex_number(struct weir_ptx_lexer *lexer, struct weir_ptx_token *token)
{
    char second = (char)(peek(lexer, 1) | 0x20);
    unsigned base = 10;

    if (*lexer->at == '0' && (second == 'f' || second == 'd')) {
        lex_float_bits(lexer, token, second == 'd');
        return;
    }
    if (*lexer->at == '0' && (second == 'x' || second == 'b')) {
        base = second == 'x' ? 16 : 2;
        lexer->at += 2;
    } else if (*lexer->at == '0' && is_digit(peek(lexer, 1))) {
        base = 8;
    }
    int n = lex_digits(lexer, token, base);
    if (n > 0 && base == 10 && (peek(lexer, 0) == '.' || (peek(lexer, 0) | 0x20) == 'e')) {
        lex_decimal_float(lexer, token);
        return;
    }
    if (peek(lexer, 0) == 'U') {
        lexer->at++;
    }
    token->kind = WEIR_PTX_TOKEN_INT;
    if (n < 0) {
        bad(lexer, token, "number does not fit in 64 bits");
    } else if (n == 0 || is_word(peek(lexer, 0))) {
        bad(lexer, token, "malformed number");
    }
}

static void lex_string(struct weir_ptx_lexer *lexer, struct weir_ptx_token *token)
{
    for (lexer->at++; lexer->at < lexer->end && *lexer->at != '"'; lexer->at++) {
        if (*lexer->at == '\n') {
            break;
        }
        if (*lexer->at == '\\' && peek(lexer, 1) != 0 && peek(lexer, 1) != '\n') {
            lexer->at++;
        }
    }
    if (lexer->at >= lexer->end || *lexer->at != '"') {
        bad(lexer, token, "string without an end");
        return;
    }
    token->kind = WEIR_PTX_TOKEN_STRING;
    token->text = token->start + 1;
    token->len = (uint32_t)(lexer->at - token->text);
    lexer->at++;
}

static void lex_punct(struct weir_ptx_lexer *lexer, struct weir_ptx_token *token)
{
    char c = *lexer->at;
    char next = peek(lexer, 1);
    bool doubled = c == next && (c == '<' || c == '>' || c == '=' || c == '&' || c == '|');

    token->kind = WEIR_PTX_TOKEN_PUNCT;
    token->text = token->start;
    if (doubled || (next == '=' && (c == '<' || c == '>' || c == '!'))) {
        token->punct = WEIR_PTX_PUNCT2(c, next);
        token->len = 2;
    } else if (strchr(",;:{}()[]<>+-*/%&|^~!=@?", c)) {
        token->punct = (unsigned char)c;
        token->len = 1;
    } else {
        bad(lexer, token, "character that PTX does not use");
        return;
    }
    lexer->at += token->len;
}

void weir_ptx_lexer_next(struct weir_ptx_lexer *lexer, struct weir_ptx_token *ret_token)
{
    struct weir_ptx_token *token = ret_token;
    bool closed = skip_space(lexer);

    memset(token, 0, sizeof(*token));
    token->start = lexer->at;
    token->text = lexer->at;
    token->line = lexer->line;
    token->column = (uint32_t)(lexer->at - lexer->line_start) + 1;
    if (!closed) {
        bad(lexer, token, "comment without an end");
        return;
    }
    char c = peek(lexer, 0);

    if (c == 0) {
        token->kind = WEIR_PTX_TOKEN_END;
    } else if (is_letter(c) || (c == '%' && is_word(peek(lexer, 1)))) {
        lex_word(lexer, token);
    } else if (c == '.' && is_word(peek(lexer, 1))) {
        lex_dot(lexer, token);
    } else if (is_digit(c)) {
        lex_number(lexer, token);
    } else if (c == '"') {
        lex_string(lexer, token);
    } else {
        lex_punct(lexer, token);
    }
}

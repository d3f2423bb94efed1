/* Helpers for the parser's files: tokens, errors, memory. */
#include "ptx/parse.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool weir_ptx_fail(struct weir_ptx_parser *p, const struct weir_ptx_token *at,
                   enum weir_status status, const char *fmt, ...)
{
    struct weir_ptx_token tok = at ? *at : p->tok;
    va_list args;

    WEIR_FAIL_IF(p->status != WEIR_OK, false);
    p->status = status;
    if (p->diag) {
        p->diag->line = tok.line;
        p->diag->column = tok.column;
        va_start(args, fmt);
        vsnprintf(p->diag->message, sizeof(p->diag->message), fmt, args);
        va_end(args);
    }
    p->lexer.at = p->lexer.end;
    memset(&p->tok, 0, sizeof(p->tok));
    p->tok.text = p->tok.start = p->lexer.end;
    return false;
}

bool weir_ptx_fail_memory(struct weir_ptx_parser *p)
{
    WEIR_FAIL_IF(p->module->arena.over_cap,
                 weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "module needs too much memory"));
    return weir_ptx_fail(p, NULL, WEIR_ERR_NO_MEMORY, "out of memory");
}

bool weir_ptx_next(struct weir_ptx_parser *p)
{
    WEIR_FAIL_IF(!weir_ptx_ok(p), false);
    weir_ptx_lexer_next(&p->lexer, &p->tok);
    WEIR_FAIL_IF(p->tok.kind == WEIR_PTX_TOKEN_BAD,
                 weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "%s", p->tok.text));
    return true;
}

struct weir_ptx_token weir_ptx_peek(const struct weir_ptx_parser *p)
{
    struct weir_ptx_lexer lexer = p->lexer;
    struct weir_ptx_token tok;

    weir_ptx_lexer_next(&lexer, &tok);
    return tok;
}

static bool text_is(const struct weir_ptx_token *tok, const char *word)
{
    return strlen(word) == tok->len && memcmp(tok->text, word, tok->len) == 0;
}

bool weir_ptx_at_punct(const struct weir_ptx_parser *p, uint16_t punct)
{
    return p->tok.kind == WEIR_PTX_TOKEN_PUNCT && p->tok.punct == punct;
}

bool weir_ptx_at_dot(const struct weir_ptx_parser *p, const char *word)
{
    return p->tok.kind == WEIR_PTX_TOKEN_DOT && text_is(&p->tok, word);
}

bool weir_ptx_at_ident(const struct weir_ptx_parser *p, const char *word)
{
    return p->tok.kind == WEIR_PTX_TOKEN_IDENT && text_is(&p->tok, word);
}

bool weir_ptx_accept(struct weir_ptx_parser *p, uint16_t punct)
{
    return weir_ptx_at_punct(p, punct) && weir_ptx_next(p);
}

bool weir_ptx_accept_dot(struct weir_ptx_parser *p, const char *word)
{
    return weir_ptx_at_dot(p, word) && weir_ptx_next(p);
}

bool weir_ptx_expect(struct weir_ptx_parser *p, uint16_t punct)
{
    if (weir_ptx_at_punct(p, punct)) {
        return weir_ptx_next(p);
    }
    WEIR_FAIL_IF(
        p->tok.kind == WEIR_PTX_TOKEN_END,
        weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "text ends where '%c' was expected", punct));
    return weir_ptx_fail(p, NULL, WEIR_ERR_SYNTAX, "expected '%c' before '%.*s'", punct,
                         p->tok.len > 40 ? 40 : (int)p->tok.len, p->tok.text);
}

void *weir_ptx_new(struct weir_ptx_parser *p, size_t size_bytes)
{
    void *ret = weir_arena_alloc_aligned(&p->module->arena, size_bytes, 8);

    if (!ret) {
        weir_ptx_fail_memory(p);
        return NULL;
    }
    return memset(ret, 0, size_bytes);
}

void *weir_ptx_keep(struct weir_ptx_parser *p, const void *data, size_t size_bytes)
{
    void *ret = weir_ptx_new(p, size_bytes);

    if (ret && size_bytes) {
        memcpy(ret, data, size_bytes);
    }
    return ret;
}

const char *weir_ptx_keep_text(struct weir_ptx_parser *p, const char *text, size_t len)
{
    const char *ret = weir_arena_strndup(&p->module->arena, text, len);

    if (!ret) {
        weir_ptx_fail_memory(p);
    }
    return ret;
}

void *weir_ptx_push(struct weir_ptx_parser *p, struct weir_ptx_vec *vec, size_t elem_bytes,
                    uint32_t max, const char *what)
{
    if (vec->n >= max) {
        weir_ptx_fail(p, NULL, WEIR_ERR_TOO_BIG, "more than %u %s", max, what);
        return NULL;
    }
    if (vec->n == vec->cap) {
        uint32_t cap = vec->cap ? vec->cap * 2 : 16;
        void *data = realloc(vec->data, (size_t)cap * elem_bytes);

        if (!data) {
            weir_ptx_fail_memory(p);
            return NULL;
        }
        vec->data = data;
        vec->cap = cap;
    }
    return memset((char *)vec->data + vec->n++ * elem_bytes, 0, elem_bytes);
}

void *weir_ptx_take(struct weir_ptx_parser *p, struct weir_ptx_vec *vec, size_t elem_bytes,
                    uint32_t *ret_n)
{
    void *kept = weir_ptx_keep(p, vec->data, vec->n * elem_bytes);

    *ret_n = kept ? vec->n : 0;
    vec->n = 0;
    return kept;
}

void weir_ptx_vec_free(struct weir_ptx_vec *vec)
{
    free(vec->data);
    memset(vec, 0, sizeof(*vec));
}

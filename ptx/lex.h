/* The lexer: PTX text to tokens, one at a time, without allocation. Private to ptx/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum weir_ptx_token_kind {
    WEIR_PTX_TOKEN_END,
    WEIR_PTX_TOKEN_IDENT,   /* a name, % and $ included; also _ */
    WEIR_PTX_TOKEN_DOT,     /* .word or .word::word; text is without the leading dot */
    WEIR_PTX_TOKEN_INT,     /* bits */
    WEIR_PTX_TOKEN_FLOAT,   /* decimal; bits of the double */
    WEIR_PTX_TOKEN_FLOAT32, /* 0f: bits */
    WEIR_PTX_TOKEN_FLOAT64, /* 0d: bits */
    WEIR_PTX_TOKEN_STRING,  /* text is without the quotes, escapes as written */
    WEIR_PTX_TOKEN_PUNCT,   /* one character, or one of << >> <= >= == != && ||: see punct */
    WEIR_PTX_TOKEN_BAD,     /* text is the reason */
};

/* Two-character punctuation, as a value of weir_ptx_token.punct. */
#define WEIR_PTX_PUNCT2(a, b) ((uint16_t)((a) << 8 | (b)))

struct weir_ptx_token {
    uint8_t kind; /* enum weir_ptx_token_kind */
    uint16_t punct;
    uint32_t len;
    const char *text;  /* borrowed from the source (BAD: static) */
    const char *start; /* first character in the source */
    uint64_t bits;
    uint32_t line;
    uint32_t column;
};

struct weir_ptx_lexer {
    const char *at;
    const char *end;
    const char *line_start;
    uint32_t line;
};

/** Start at the beginning; a NUL in the text ends it. The text is borrowed. */
void weir_ptx_lexer_init(struct weir_ptx_lexer *lexer, const char *text, size_t len_bytes);

/** Read the next token; END and BAD are given again and again. */
void weir_ptx_lexer_next(struct weir_ptx_lexer *lexer, struct weir_ptx_token *ret_token);

/*
 * The parser's state, shared by its files. Private to ptx/.
 *
 * Errors are sticky: the first weir_ptx_fail() fills the diagnostic and turns the current token
 * into the end of the text for good, so every loop that stops at the end stops, and results in
 * between need no checks. Functions return false once anything has failed.
 *
 * parse.c       module level: directives, functions, weir_ptx_parse()
 * parse_decl.c  variables, parameters, initialisers, registers
 * parse_init.c  initialisers
 * parse_expr.c  constant expressions
 * parse_util.c  tokens, failure, memory
 * parse_body.c  statements, labels, scopes
 * parse_inst.c  instructions and operands
 */
#pragma once

#include "ptx/ir.h"
#include "ptx/lex.h"
#include "ptx/names.h"
#include "ptx/ptx.h"
#include "ptx/tables.h"

/* A growing array on the heap; its elements are copied into the arena in the end. */
struct weir_ptx_vec {
    void *data;
    uint32_t n;
    uint32_t cap;
};

/* A use of a label, before or after its definition. It is resolved when its scope closes. */
struct weir_ptx_pending {
    const char *text;
    uint32_t len;
    uint32_t line;
    uint32_t column;
    uint32_t *dest; /* gets the label's id */
};

struct weir_ptx_parser {
    struct weir_ptx_lexer lexer;
    struct weir_ptx_token tok; /* the current one */
    enum weir_status status;
    struct weir_diag *diag;
    uint32_t flags; /* enum weir_ptx_parse_flag */
    struct weir_ptx_module *module;
    struct weir_ptx_names names; /* depth 0: module, 1: parameters, 2 ..: bodies */
    struct weir_ptx_regmap regmap;
    uint32_t next_reg_decl; /* number of the next register declaration, from 1 */
    uint32_t n_insts;       /* number of instructions of all functions so far */
    uint32_t n_inits;
    uint32_t n_symbols;
    struct weir_ptx_vec items; /* struct weir_ptx_item */
    struct weir_ptx_vec vars;  /* struct weir_ptx_var * */
    struct weir_ptx_vec funcs; /* struct weir_ptx_func * */
    struct weir_ptx_vec inits; /* struct weir_ptx_init, of the variable being read */

    /* The function being read. The vectors below are reused for the next one. */
    struct weir_ptx_func *func;
    struct weir_ptx_names printed; /* names that the printer will use in this function */
    uint32_t next_suffix;
    struct weir_ptx_vec regs;      /* struct weir_ptx_reg */
    struct weir_ptx_vec insts;     /* struct weir_ptx_inst */
    struct weir_ptx_vec labels;    /* struct weir_ptx_label */
    struct weir_ptx_vec tables;    /* struct weir_ptx_table * */
    struct weir_ptx_vec body_vars; /* struct weir_ptx_var * */
    struct weir_ptx_vec notes;     /* struct weir_ptx_note */
    struct weir_ptx_vec pending;   /* struct weir_ptx_pending */
    struct weir_ptx_vec elems;     /* struct weir_ptx_operand: a stack for the lists being read */
};

/** Fail at a token (NULL: the current one) unless an error came before. @return false */
bool weir_ptx_fail(struct weir_ptx_parser *p, const struct weir_ptx_token *at,
                   enum weir_status status, const char *fmt, ...) WEIR_PRINTF(4, 5);

/** Fail for lack of memory, or for the arena's cap. @return false */
bool weir_ptx_fail_memory(struct weir_ptx_parser *p);

static inline bool weir_ptx_ok(const struct weir_ptx_parser *p)
{
    return p->status == WEIR_OK;
}

/** Go to the next token. @return false: the text is invalid there */
bool weir_ptx_next(struct weir_ptx_parser *p);

/** The token after the current one. */
struct weir_ptx_token weir_ptx_peek(const struct weir_ptx_parser *p);

bool weir_ptx_at_punct(const struct weir_ptx_parser *p, uint16_t punct);
bool weir_ptx_at_dot(const struct weir_ptx_parser *p, const char *word);
bool weir_ptx_at_ident(const struct weir_ptx_parser *p, const char *word);

/** Step over the punctuation if it is there. @return whether it was */
bool weir_ptx_accept(struct weir_ptx_parser *p, uint16_t punct);
bool weir_ptx_accept_dot(struct weir_ptx_parser *p, const char *word);

/** Step over the punctuation or fail. */
bool weir_ptx_expect(struct weir_ptx_parser *p, uint16_t punct);

/** Allocate zeroed arena memory, or fail. */
void *weir_ptx_new(struct weir_ptx_parser *p, size_t size_bytes);

/** Copy n elements into the arena, or fail. */
void *weir_ptx_keep(struct weir_ptx_parser *p, const void *data, size_t size_bytes);

/** Copy a token's text, or fail. */
const char *weir_ptx_keep_text(struct weir_ptx_parser *p, const char *text, size_t len);

/** Append a zeroed element; NULL after failure. At most max elements are allowed, which `what`
 * names. */
void *weir_ptx_push(struct weir_ptx_parser *p, struct weir_ptx_vec *vec, size_t elem_bytes,
                    uint32_t max, const char *what);

/** Move a vector's elements into the arena and empty it; *ret_n gets their number. */
void *weir_ptx_take(struct weir_ptx_parser *p, struct weir_ptx_vec *vec, size_t elem_bytes,
                    uint32_t *ret_n);

/** Free a vector's memory. */
void weir_ptx_vec_free(struct weir_ptx_vec *vec);

/* parse_expr.c */

/** Read a constant integer expression, with its binary operators. */
bool weir_ptx_parse_const(struct weir_ptx_parser *p, uint64_t *ret_value);

/** Read a number within bounds; the diagnostic calls it `what`. */
bool weir_ptx_parse_const_max(struct weir_ptx_parser *p, uint64_t max, const char *what,
                              uint64_t *ret_value);

/** Read at most one "+ constant" or "- constant" after a symbol or register. */
bool weir_ptx_parse_offset(struct weir_ptx_parser *p, int64_t *ret_offset);

/* parse_init.c */

/** Read the initialiser behind the = of a variable whose type and dimensions are known. */
bool weir_ptx_parse_init(struct weir_ptx_parser *p, struct weir_ptx_var *var);

/* parse_decl.c */

/** Can the current token begin a variable declaration (a state space, .align ..)? */
bool weir_ptx_at_space(const struct weir_ptx_parser *p);

/** Read variable declarations up to the semicolon, at module level or in a body. */
bool weir_ptx_parse_vars(struct weir_ptx_parser *p, enum weir_ptx_linkage linkage);

/** Read .reg declarations up to the semicolon. */
bool weir_ptx_parse_regs(struct weir_ptx_parser *p);

/** Read a list of parameters in parentheses; names are declared unless declare is false. */
bool weir_ptx_parse_params(struct weir_ptx_parser *p, struct weir_ptx_func *func, bool returns,
                           bool declare);

/** Make a new register of the function being read. @return its id, WEIR_PTX_NONE after failure */
uint32_t weir_ptx_new_reg(struct weir_ptx_parser *p, const char *name, size_t len,
                          enum weir_ptx_type type, uint32_t line);

/** Fail if the name is declared in the innermost scope already. */
bool weir_ptx_check_new_name(struct weir_ptx_parser *p, const struct weir_ptx_token *name);

/** Make a name for a label, variable or table that is unique in the printed function. */
const char *weir_ptx_unique_name(struct weir_ptx_parser *p, const char *text, size_t len);

/* parse_inst.c */

/** Read an instruction, from its guard to its semicolon. */
bool weir_ptx_parse_inst(struct weir_ptx_parser *p);

/** Note that dest must get the id of the label that the current token names; steps over it. */
bool weir_ptx_parse_label_use(struct weir_ptx_parser *p, uint32_t *dest);

/* parse_body.c */

/** Read a body from { to }, into p->func. */
bool weir_ptx_parse_body(struct weir_ptx_parser *p);

/** Read .pragma "text" {, "text"} ; the current token is .pragma. Calls add() for each text. */
typedef bool (*weir_ptx_pragma_fn)(struct weir_ptx_parser *p, const char *text);
bool weir_ptx_parse_pragma(struct weir_ptx_parser *p, weir_ptx_pragma_fn add);

/* check.c */

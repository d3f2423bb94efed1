/*
 * A reader for TOML 1.0, which gives a tree with the place of each key and value.
 *
 * With the places the schema (config.c) reports errors, and the editor (tools/toml_edit.c) replaces
 * a value's bytes. The reader converts no value: a caller that needs another kind reports that
 * itself.
 */
#pragma once

#include "base/arena.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

enum weir_toml_kind {
    WEIR_TOML_STRING,
    WEIR_TOML_INTEGER,
    WEIR_TOML_FLOAT,
    WEIR_TOML_BOOLEAN,
    WEIR_TOML_TIME, /* a date, a time, or both with a T between; what it says is not read */
    WEIR_TOML_ARRAY,
    WEIR_TOML_TABLE,
};

/* What later lines may add to a table or an array (TOML 1.0, "Table" and "Keys"). */
enum weir_toml_made {
    WEIR_TOML_MADE_WHOLE,   /* a scalar, [1, 2], {a = 1}: later lines may add nothing */
    WEIR_TOML_MADE_IMPLIED, /* [a.b] has made a: a header [a] may still follow */
    WEIR_TOML_MADE_HEADER,  /* [a] */
    WEIR_TOML_MADE_DOTTED,  /* a.b = 1 has made a: only more dotted keys may follow */
    WEIR_TOML_MADE_ROWS,    /* [[a]] */
};

/* Immutable once parsed. The arena of the parse owns all of it. */
struct weir_toml_value {
    enum weir_toml_kind kind;
    enum weir_toml_made made;
    const char *key; /* in its table; a NUL follows. NULL: for the root and array elements */
    size_t key_bytes;
    uint32_t key_line, key_column;
    uint32_t line, column; /* place of the value or, for a table with a header, of the header */
    const char *string;    /* of a STRING; a NUL follows */
    size_t string_bytes;   /* a string may have NULs inside ("\u0000") */
    int64_t integer;
    double number;
    bool boolean;
    uint32_t n_keys;                      /* keys of a TABLE */
    struct weir_toml_value *items, *last; /* items of an ARRAY or TABLE, in the order of the text */
    struct weir_toml_value *next;         /* the next item of the same table or array */
    /* Offsets in the text: the key's first byte, the value's first, the byte behind the value.
     * A table with a header has [begin, end) from its '[' to the next header's line. */
    size_t key_at, begin, end;
};

/* The most arena memory that a text's tree takes, for each byte of the text and in all. */
#define WEIR_TOML_ARENA_PER_BYTE 128
#define WEIR_TOML_ARENA_BASE     4096

/**
 * Read a text.
 *
 * @param text      any bytes; need not end in NUL.
 * @param arena     the tree's memory; a cap of WEIR_TOML_ARENA_BASE and _PER_BYTE is enough.
 * @param ret_root  a TABLE, valid as long as the arena's memory is.
 * @param ret_diag  filled on WEIR_ERR_SYNTAX.
 * @return WEIR_OK, WEIR_ERR_SYNTAX, WEIR_ERR_NO_MEMORY
 * @thread any
 * @source https://toml.io/en/v1.0.0
 */
enum weir_status weir_toml_parse(const char *text, size_t bytes, struct weir_arena *arena,
                                 const struct weir_toml_value **ret_root,
                                 struct weir_diag *ret_diag) WEIR_MUST_CHECK;

/** The item of a table with this key; NULL: there is none. @thread any */
const struct weir_toml_value *weir_toml_find(const struct weir_toml_value *table, const char *key);

/** Names a kind in messages: "a string", "an integer", .. @thread any */
const char *weir_toml_kind_text(enum weir_toml_kind kind);

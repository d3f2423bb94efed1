/*
 * A reader for the part of TOML that weir.toml uses: [table], [[array of tables]], and
 * key = "basic string" | 'literal string' | integer | true | false, with comments.
 *
 * Keys are bare, values stay on their line. Everything else is an error with line and column.
 */
#ifndef WEIR_HOST_BACKEND_CONFIG_TOML_H
#define WEIR_HOST_BACKEND_CONFIG_TOML_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

enum weir_toml_kind {
    WEIR_TOML_STRING,
    WEIR_TOML_INTEGER,
    WEIR_TOML_BOOLEAN,
};

struct weir_toml_value {
    enum weir_toml_kind kind;
    const char *string; /* NUL-terminated, without NUL inside; borrowed for the call */
    int64_t integer;
    bool boolean;
    uint32_t line, column; /* of the value */
};

/* Both return false after filling diag: the parse ends with WEIR_ERR_SYNTAX. */
struct weir_toml_visitor {
    bool (*table)(void *user, const char *name, bool array, uint32_t line, uint32_t column,
                  struct weir_diag *diag);
    bool (*value)(void *user, const char *key, uint32_t line, uint32_t column,
                  const struct weir_toml_value *value, struct weir_diag *diag);
};

/**
 * Read a text.
 *
 * @param text      any bytes; need not end in NUL.
 * @param visitor   called in the text's order.
 * @param ret_diag  filled on WEIR_ERR_SYNTAX.
 * @return WEIR_OK, WEIR_ERR_SYNTAX
 * @thread any
 */
enum weir_status weir_toml_parse(const char *text, size_t bytes,
                                 const struct weir_toml_visitor *visitor, void *user,
                                 struct weir_diag *ret_diag) WEIR_MUST_CHECK;

#endif

/* Types and functions that the files of TOML's reader share. */
#pragma once

#include "host_backend/config/toml.h"

/* Owner thread only. */
struct weir_toml_reader {
    char *at, *line_start, *text;
    const char *end; /* the end of the text, where a NUL stands */
    uint32_t line;
    int depth; /* nesting depth of arrays and inline tables */
    struct weir_arena *arena;
    struct weir_diag *diag;
    bool no_memory;
};

#define WEIR_TOML_BARE "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

static inline uint32_t weir_toml_column(const struct weir_toml_reader *r)
{
    return (uint32_t)(r->at - r->line_start) + 1;
}

/* Report an error at the place that the reader has reached. */
#define WEIR_TOML_FAIL(r, ...)                                                                     \
    (weir_diag_set((r)->diag, (r)->line, weir_toml_column(r), __VA_ARGS__), false)

/* toml.c: read a value of any kind, but not the rest of its line. */
bool weir_toml_read_value(struct weir_toml_reader *r, struct weir_toml_value *value);

/* toml_scalar.c: read a number, true, false, or a time. */
bool weir_toml_scalar(struct weir_toml_reader *r, struct weir_toml_value *value);

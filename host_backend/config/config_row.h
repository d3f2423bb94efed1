/* The rows of weir.toml's tables (config.c), and how a value is stored (config_store.c). */
#pragma once

#include "host_backend/config/config.h"
#include "host_backend/config/toml.h"

#define WEIR_AREA_UNIT (UINT64_C(1) << 30)

enum weir_row_kind {
    ROW_TEXT,
    ROW_NAME,
    ROW_KEY,
    ROW_U32,
    ROW_U64,
    ROW_AMOUNT,
    ROW_AMOUNTS, /* amounts with commas, kept as text */
    ROW_CHOICE,
    ROW_BYTES, /* a power of two from low to high */
    ROW_AREA,  /* a multiple of WEIR_AREA_UNIT from low to high */
    ROW_LIMIT, /* any number of bytes */
    ROW_DEVICES,
    ROW_POLICY,
    ROW_PCT,
    ROW_BOOL,
    ROW_USER,
    ROW_LABELS
};

struct weir_row {
    const char *key;
    enum weir_row_kind kind;
    size_t offset, size;
    int64_t low, high;
    const char *const *choices; /* ROW_CHOICE: the index is stored; ends in NULL */
};

/* The values of isolation: those of enum weir_isolation, and an old name for "tenant". */
#define WEIR_ISOLATION_WORD_OLD_TENANT 4
extern const char *const weir_isolation_words[];

/* Report a wrong value with its place in the text. */
#define WEIR_WRONG(value, ...)                                                                     \
    (weir_diag_set(diag, (value)->line, (value)->column, __VA_ARGS__), false)

/* Store a value in the object's field that the row names; false after an error was reported. */
bool weir_row_store(const struct weir_row *row, void *object, const struct weir_toml_value *value,
                    struct weir_diag *diag);

/* Write an amount in the largest unit that divides it. */
void weir_amount_text(const struct weir_amount *amount, char *text, size_t bytes);

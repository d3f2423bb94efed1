/* The kind byte of handles, from kinds.def. */
#pragma once

enum weir_kind {
    WEIR_KIND_NONE = 0,
#define WEIR_KIND(NAME, name) WEIR_KIND_##NAME,
#include "proto/wire/kinds.def"
#undef WEIR_KIND
    WEIR_KIND_COUNT
};

/** The name of a kind, such as "stream"; "?" outside the table. @thread any */
const char *weir_kind_name(enum weir_kind kind);

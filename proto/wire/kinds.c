#include "proto/wire/kinds.h"

#include <stddef.h>

const char *weir_kind_name(enum weir_kind kind)
{
    static const char *const names[WEIR_KIND_COUNT] = {
#define WEIR_KIND(NAME, name) [WEIR_KIND_##NAME] = #name,
#include "proto/wire/kinds.def"
#undef WEIR_KIND
    };
    const char *name = (unsigned)kind < WEIR_KIND_COUNT ? names[kind] : NULL;
    return name ? name : "?";
}

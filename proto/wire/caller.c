/* Names of the functions that send requests: see caller.h. */
#include "proto/wire/caller.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *weir_caller_name(int32_t caller, const char *fallback, char *name)
{
    int32_t symbol = (caller & 0xffff) - 1;
    bool known = caller >> 16 == WEIR_SYMBOL_COUNT && symbol >= 0 && symbol < WEIR_SYMBOL_COUNT;
    snprintf(name, WEIR_CALLER_NAME_BYTES, "%s", known ? weir_symbol_name[symbol] : fallback);
    char *suffix = known ? strchr(name, '_') : NULL;
    if (suffix) {
        *suffix = 0;
    }
    return name;
}

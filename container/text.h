/* Which texts may stand in files of JSON and YAML. Private to container/. */
#pragma once

#include "base/text.h"
#include <stdbool.h>

/** Is it UTF-8 without control characters of ASCII? */
static inline bool weir_text_ok(const char *text)
{
    while (*text != 0) {
        int32_t code = weir_utf8_next(&text);

        if (code < 0x20 || code == 0x7f) {
            return false;
        }
    }
    return true;
}

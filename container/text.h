/* Texts in quotes, as JSON and YAML both read them. Private to container/. */
#ifndef WEIR_CONTAINER_TEXT_H
#define WEIR_CONTAINER_TEXT_H

#include <stdbool.h>
#include <stdio.h>

/** Has the text no control characters? */
static inline bool weir_text_ok(const char *text)
{
    for (; *text != 0; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            return false;
        }
    }
    return true;
}

/** Write a text that is ok: quotes and backslashes are all that must be escaped. */
static inline void weir_text_put(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text != 0; text++) {
        if (*text == '"' || *text == '\\') {
            putc('\\', out);
        }
        putc(*text, out);
    }
    putc('"', out);
}

#endif

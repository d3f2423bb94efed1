/*
 * Any text: it parses or is refused with a position. What parses must print, its print must parse,
 * and print the same again.
 */
#include "ptx/ptx.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

static void must(int condition)
{
    if (!condition) {
        abort();
    }
}

static char *print(const struct weir_ptx_module *module, size_t *ret_len_bytes)
{
    char *text = NULL;

    must(weir_ptx_print_buffer(module, &text, ret_len_bytes) == WEIR_OK);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
    struct weir_ptx_module *first = NULL, *second = NULL;
    struct weir_diag diag = {0};
    char *text, *again;
    size_t text_len, again_len;

    if (weir_ptx_parse((const char *)data, len_bytes, 0, &diag, &first) != WEIR_OK) {
        must(diag.message[0] != 0);
        return 0;
    }
    text = print(first, &text_len);
    must(weir_ptx_parse(text, text_len, 0, &diag, &second) == WEIR_OK);
    again = print(second, &again_len);
    must(text_len == again_len && memcmp(text, again, text_len) == 0);
    free(again);
    free(text);
    weir_ptx_destroy(second);
    weir_ptx_destroy(first);
    return 0;
}

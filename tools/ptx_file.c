#include "tools/ptx_file.h"

#include "ptx/ir.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read all of a stream, up to one byte more than a PTX text may have. */
static char *read_all(FILE *in, size_t *ret_len)
{
    const size_t max = (size_t)WEIR_PTX_MAX_TEXT_BYTES + 1;
    size_t cap = 1 << 16, len = 0;
    char *text = malloc(cap);

    while (text && len < max) {
        size_t got = fread(text + len, 1, cap - len, in);

        len += got;
        if (got == 0) {
            break;
        }
        if (len == cap) {
            char *larger = realloc(text, cap *= 2);

            if (!larger) {
                free(text);
            }
            text = larger;
        }
    }
    if (text && ferror(in)) {
        free(text);
        text = NULL;
    }
    *ret_len = len;
    return text;
}

struct weir_ptx_module *weir_ptx_file_load(const char *path)
{
    struct weir_ptx_module *module = NULL;
    struct weir_diag diag = {0};
    size_t len = 0;
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char *text = in ? read_all(in, &len) : NULL;

    if (!text) {
        perror(path);
    } else {
        enum weir_status status = weir_ptx_parse(text, len, WEIR_PTX_DROP_DEBUG, &diag, &module);

        if (status != WEIR_OK) {
            fprintf(stderr, "%s:%u:%u: %s\n", path, diag.line, diag.column,
                    diag.message[0] ? diag.message : weir_status_text(status));
        }
    }
    if (in && in != stdin) {
        fclose(in);
    }
    free(text);
    return module;
}

/* ptx_roundtrip IN OUT: parse, print to OUT, parse that and print again; both prints must agree. */
#include "ptx/ptx.h"

#include <stdlib.h>
#include <string.h>

static char *read_all(const char *path, size_t *ret_len)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long len;

    if (file && fseek(file, 0, SEEK_END) == 0 && (len = ftell(file)) >= 0) {
        rewind(file);
        text = malloc((size_t)len + 1);
        *ret_len = text ? fread(text, 1, (size_t)len, file) : 0;
    }
    if (file) {
        fclose(file);
    }
    return text;
}

/* Parse text and print it, or say why not. */
static char *reprint(const char *path, const char *text, size_t len, size_t *ret_len)
{
    struct weir_ptx_module *module = NULL;
    struct weir_diag diag = {0};
    char *printed = NULL;

    if (weir_ptx_parse(text, len, 0, &diag, &module) != WEIR_OK) {
        fprintf(stderr, "%s:%u:%u: %s\n", path, diag.line, diag.column, diag.message);
        return NULL;
    }
    if (weir_ptx_print_buffer(module, &printed, ret_len) != WEIR_OK) {
        printed = NULL;
    }
    weir_ptx_destroy(module);
    return printed;
}

int main(int argc, char **argv)
{
    size_t len = 0, first_len = 0, second_len = 0;
    char *text = argc == 3 ? read_all(argv[1], &len) : NULL;
    char *first = text ? reprint(argv[1], text, len, &first_len) : NULL;
    char *second = first ? reprint(argv[2], first, first_len, &second_len) : NULL;
    FILE *out = second ? fopen(argv[2], "wb") : NULL;
    int status = 1;

    if (!second || !out) {
        fprintf(stderr, "usage: ptx_roundtrip IN OUT\n");
    } else if (first_len != second_len || memcmp(first, second, first_len) != 0) {
        fprintf(stderr, "%s: prints differently the second time\n", argv[1]);
    } else {
        status = fwrite(first, 1, first_len, out) != first_len;
    }
    if (out && fclose(out) != 0) {
        status = 1;
    }
    free(second);
    free(first);
    free(text);
    return status;
}

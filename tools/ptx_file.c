#include "tools/ptx_file.h"
#include "base/fd.h"

#include "ptx/ir.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weir_ptx_module *weir_ptx_file_load(const char *path)
{
    struct weir_ptx_module *module = NULL;
    struct weir_diag diag = {0};
    size_t len = 0;
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 ? weir_fd_text(fd, WEIR_PTX_MAX_TEXT_BYTES, &len) : NULL;

    if (!text) {
        perror(path);
    } else {
        enum weir_status status = weir_ptx_parse(text, len, WEIR_PTX_DROP_DEBUG, &diag, &module);

        if (status != WEIR_OK) {
            fprintf(stderr, "%s:%u:%u: %s\n", path, diag.line, diag.column,
                    diag.message[0] ? diag.message : weir_status_text(status));
        }
    }
    if (!is_stdin) {
        weir_fd_close(fd);
    }
    free(text);
    return module;
}

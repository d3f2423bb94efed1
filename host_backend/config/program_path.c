#include "host_backend/config/program_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool weir_is_program(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

bool weir_program_find(const char *name, char *ret_path, size_t bytes)
{
    const char *at = getenv("PATH");

    ret_path[0] = 0;
    while (at && *at != 0) {
        size_t n = strcspn(at, ":");

        if (at[0] == '/') {
            int length = snprintf(ret_path, bytes, "%.*s/%s", (int)n, at, name);

            if (length > 0 && (size_t)length < bytes && weir_is_program(ret_path)) {
                return true;
            }
        }
        at += n + (at[n] == ':');
    }
    return false;
}

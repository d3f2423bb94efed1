#include "base/replace.h"

#include <limits.h>
#include <unistd.h>

static bool name_of(const char *path, char next[PATH_MAX])
{
    return snprintf(next, PATH_MAX, "%s.new", path) < PATH_MAX;
}

FILE *weir_replace_begin(const char *path)
{
    char next[PATH_MAX];

    return name_of(path, next) ? fopen(next, "we") : NULL;
}

bool weir_replace_end(FILE *file, const char *path, bool good)
{
    char next[PATH_MAX];

    good = name_of(path, next) && good;
    good = fflush(file) == 0 && good; /* the write reports a full disk here */
    good = fclose(file) == 0 && good && rename(next, path) == 0;
    if (!good) {
        (void)unlink(next);
    }
    return good;
}

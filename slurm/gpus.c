#include "slurm/gpus.h"

#include <stdio.h>
#include <string.h>

/* Returns the position of an item in a list, from 0; -1: it is not there. */
static int find(const char *list, const char *item, size_t bytes)
{
    for (int at = 0; *list; at++) {
        size_t n = strcspn(list, ",");
        if (n == bytes && strncmp(list, item, n) == 0) {
            return at;
        }
        list += n + (list[n] == ',');
    }
    return -1;
}

/* Returns the next item; NULL behind the last. */
static const char *next(const char *item)
{
    item += strcspn(item, ",");
    return *item ? item + 1 : NULL;
}

static int count(const char *list)
{
    int n = 0;
    for (const char *item = *list ? list : NULL; item; item = next(item)) {
        n++;
    }
    return n;
}

bool weir_gpus_ok(const char *list)
{
    int at = 0;
    if (!*list || strlen(list) >= WEIR_GPUS_BYTES) {
        return false;
    }
    for (const char *item = list; item; item = next(item), at++) {
        size_t n = strcspn(item, ",");
        if (n == 0 || n > 3 || strspn(item, "0123456789") < n || find(list, item, n) != at) {
            return false;
        }
    }
    return true;
}

bool weir_gpus_same(const char *a, const char *b)
{
    for (const char *item = *a ? a : NULL; item; item = next(item)) {
        if (find(b, item, strcspn(item, ",")) < 0) {
            return false;
        }
    }
    return count(a) == count(b);
}

void weir_gpus_visible(const char *list, const char *used, char ret_list[WEIR_GPUS_BYTES])
{
    size_t n = 0;
    ret_list[0] = '\0';
    for (const char *item = used && *used ? used : NULL; item; item = next(item)) {
        int at = find(list, item, strcspn(item, ","));
        if (at >= 0 && n + 5 < WEIR_GPUS_BYTES) {
            n += (size_t)snprintf(ret_list + n, WEIR_GPUS_BYTES - n, "%s%d", n ? "," : "", at);
        }
    }
    for (int at = 0; n == 0 && at < count(list);) {
        size_t used_bytes = strlen(ret_list);
        snprintf(ret_list + used_bytes, WEIR_GPUS_BYTES - used_bytes, "%s%d", at ? "," : "", at);
        at++;
    }
}

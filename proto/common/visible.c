#include "proto/common/visible.h"

#include "base/gpu_uuid.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_uuid(const char *item)
{
    return strncasecmp(item, "GPU-", 4) == 0;
}

/* Find the device whose UUID begins like this; -1: there is none, or more than one. */
static int by_uuid(const char *item, size_t len, const CUuuid *uuids, int n)
{
    int found = -1;
    for (int i = 0; i < n && len > 4; i++) {
        char text[WEIR_GPU_UUID_BYTES];
        weir_gpu_uuid_text((const uint8_t *)uuids[i].bytes, text);
        if (len < sizeof text && strncasecmp(item, text, len) == 0) {
            if (found >= 0) {
                return -1;
            }
            found = i;
        }
    }
    return found;
}

static int by_ordinal(const char *item, int n)
{
    char *end;
    long ordinal = strtol(item, &end, 10);
    return end != item && ordinal >= 0 && ordinal < n ? (int)ordinal : -1;
}

static const char *skip_blanks(const char *at)
{
    while (isspace((unsigned char)*at)) {
        at++;
    }
    return at;
}

int weir_visible_order(const char *list, const CUuuid *uuids, int n, int *ret_order)
{
    bool uuid = is_uuid(skip_blanks(list));
    uint32_t seen = 0;
    int found = 0;
    while (*list) {
        const char *item = skip_blanks(list);
        size_t len = strcspn(item, ",");
        size_t used = len;
        while (used && isspace((unsigned char)item[used - 1])) {
            used--;
        }
        int device = is_uuid(item) != uuid ? -1
                     : uuid                ? by_uuid(item, used, uuids, n)
                                           : by_ordinal(item, n);
        if (device < 0) {
            break;
        }
        if (seen >> device & 1) {
            return 0;
        }
        seen |= 1u << device;
        ret_order[found++] = device;
        list = item + len + (item[len] == ',');
    }
    return found;
}

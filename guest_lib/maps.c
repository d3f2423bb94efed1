#include "guest_lib/maps.h"
#include "base/status.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static bool parse(const char *line, struct weir_mapping *ret)
{
    unsigned long long from, to, offset, inode;
    char flags[5];
    int path = -1;

    if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu %n", &from, &to, flags, &offset, &ret->major,
               &ret->minor, &inode, &path) != 7 ||
        path < 0) {
        return false;
    }
    ret->from = from;
    ret->to = to;
    ret->offset = offset;
    ret->inode = inode;
    ret->protection = (flags[0] == 'r' ? PROT_READ : 0) | (flags[1] == 'w' ? PROT_WRITE : 0) |
                      (flags[2] == 'x' ? PROT_EXEC : 0);
    ret->shared = flags[3] == 's';
    size_t length = strcspn(line + path, "\n");
    length = length < sizeof ret->path ? length : 0;
    memcpy(ret->path, line + path, length);
    ret->path[length] = 0;
    return true;
}

bool weir_maps_visit(bool (*fn)(const struct weir_mapping *mapping, void *user), void *user)
{
    struct weir_mapping mapping;
    char line[512];
    FILE *file = fopen("/proc/self/maps", "re");
    WEIR_FAIL_IF(!file, false);
    /* The rest of a line that is too long does not parse as a mapping. */
    while (fgets(line, sizeof line, file) && (!parse(line, &mapping) || fn(&mapping, user))) {
    }
    fclose(file);
    return true;
}

uint64_t weir_maps_pinned_bytes(void)
{
    unsigned long long kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "VmPin: %llu", &kib) != 1) {
    }
    if (file) {
        fclose(file);
    }
    return kib << 10;
}

/* See record.h. */
#include "tests/instructions/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define MAGIC "weir-record 1"
#define LEVEL 19

static FILE *open_record(const struct test_case *c, const char *folder, const char *mode)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.rec", folder, c->name);
    return fopen(path, mode);
}

static enum record_state read_open(const struct test_case *c, FILE *f, uint64_t key, void *outputs,
                                   char *device, size_t device_bytes)
{
    char line[256];
    char name[200];
    uint64_t recorded = 0;
    size_t bytes = 0;
    int driver = 0;
    if (!fgets(line, sizeof line, f) || strcmp(line, MAGIC "\n") != 0 ||
        fscanf(f, "key %" SCNx64 "\n", &recorded) != 1 ||
        fscanf(f, "device %199[^\n]\n", name) != 1 || fscanf(f, "driver %d\n", &driver) != 1 ||
        fscanf(f, "bytes %zu", &bytes) != 1 || fgetc(f) != '\n' || fgetc(f) != '\n') {
        return RECORD_BROKEN;
    }
    if (recorded != key || bytes != case_output_bytes(c)) {
        return RECORD_STALE;
    }
    size_t room = ZSTD_compressBound(bytes);
    void *packed = malloc(room);
    if (!packed) {
        return RECORD_BROKEN;
    }
    size_t n = fread(packed, 1, room, f);
    size_t got = ZSTD_decompress(outputs, bytes, packed, n);
    free(packed);
    snprintf(device, device_bytes, "%s, driver %d", name, driver);
    return got == bytes ? RECORD_OK : RECORD_BROKEN;
}

enum record_state record_read(const struct test_case *c, const char *folder, uint64_t key,
                              void *outputs, char *device, size_t device_bytes)
{
    FILE *f = open_record(c, folder, "rb");
    if (!f) {
        return RECORD_MISSING;
    }
    enum record_state state = read_open(c, f, key, outputs, device, device_bytes);
    fclose(f);
    return state;
}

bool record_write(const struct test_case *c, const char *folder, uint64_t key, const void *outputs,
                  const struct driver_device *device)
{
    size_t bytes = case_output_bytes(c);
    size_t room = ZSTD_compressBound(bytes);
    void *packed = malloc(room);
    FILE *f = open_record(c, folder, "wb");
    bool ok = packed && f;
    if (ok) {
        size_t n = ZSTD_compress(packed, room, outputs, bytes, LEVEL);
        ok = !ZSTD_isError(n) &&
             fprintf(f, MAGIC "\nkey %016" PRIx64 "\ndevice %s\ndriver %d\nbytes %zu\n\n", key,
                     device->name, device->driver_version, bytes) > 0 &&
             fwrite(packed, 1, n, f) == n;
    }
    if (f) {
        ok = fclose(f) == 0 && ok;
    }
    free(packed);
    return ok;
}

/* wire_seeds FOLDER: writes seeds for fuzz_wire, two per half of every operation. */
#include "tests/lib/wire_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static int write_seed(const char *folder, unsigned number, enum wire_sample_size size)
{
    struct wire_half half = wire_half_get(number);
    void *message = wire_sample_make(&half, size, number);
    size_t bytes = half.bytes(message);
    uint8_t *seed = aligned_alloc(8, 8 + bytes);
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s-%s-%d", folder, half.op, half.way, (int)size);
    FILE *file = fopen(path, "wb");
    int failed = 1;
    if (seed && file) {
        half.encode(message, seed + 8);
        seed[6] = (uint8_t)number;
        seed[7] = (uint8_t)(number >> 8);
        failed = fwrite(seed + 6, 1, bytes + 2, file) != bytes + 2;
    }
    if (file) {
        failed |= fclose(file);
    }
    free(seed);
    wire_sample_free(&half, message);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    (void)mkdir(argv[1], 0777);
    for (unsigned i = 0; i < WIRE_HALVES; i++) {
        if (write_seed(argv[1], i, WIRE_SAMPLE_EMPTY) ||
            write_seed(argv[1], i, WIRE_SAMPLE_SMALL)) {
            (void)fprintf(stderr, "%s: cannot write to %s\n", argv[0], argv[1]);
            return 1;
        }
    }
    return 0;
}

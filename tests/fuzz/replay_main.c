/*
 * Replays files through a fuzz target without libFuzzer: PROGRAM PATH..., each a file or a folder.
 *
 * Exit status 77 (skipped) when there is nothing to replay.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX_BYTES (64u << 20)

/* The input lies at the end of its own allocation, so that sanitizers see any step beyond it. */
static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file || fstat(fileno(file), &info) || info.st_size > INPUT_MAX_BYTES) {
        (void)fprintf(stderr, "%s: cannot be read\n", path);
        if (file) {
            (void)fclose(file);
        }
        return -1;
    }
    size_t bytes = (size_t)info.st_size;
    uint8_t *data = malloc(bytes ? bytes : 1);
    int count = -1;
    if (data && fread(data, 1, bytes, file) == bytes) {
        (void)LLVMFuzzerTestOneInput(data, bytes);
        count = 1;
    }
    free(data);
    (void)fclose(file);
    return count;
}

static int replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) {
        return 0;
    }
    int count = 0;
    for (struct dirent *entry; count >= 0 && (entry = readdir(folder));) {
        char name[4096];
        struct stat info;
        int length = snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (length >= (int)sizeof(name) || stat(name, &info) || !S_ISREG(info.st_mode)) {
            continue;
        }
        int one = replay_file(name);
        count = one < 0 ? -1 : count + one;
    }
    (void)closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        struct stat info;
        int count = 0;
        if (!stat(argv[i], &info)) {
            count = S_ISDIR(info.st_mode) ? replay_folder(argv[i]) : replay_file(argv[i]);
        }
        if (count < 0) {
            return 1;
        }
        total += count;
    }
    if (!total) {
        (void)fprintf(stderr, "%s: nothing to replay\n", argv[0]);
        return 77;
    }
    (void)printf("%d inputs\n", total);
    return 0;
}

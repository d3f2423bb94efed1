/* `weir profile`: `weir run`, while Weir's libcupti profiles the program (WEIR_PROFILE). */
#include "base/status.h"
#include "tools/command.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_FILE "weir-profile.%p.json"

/* Pass an absolute path, because the program may change its directory. */
static bool set_file(const char *file)
{
    char folder[PATH_MAX], path[2 * PATH_MAX];
    if (file[0] == '/') {
        return setenv("WEIR_PROFILE", file, 1) == 0;
    }
    WEIR_FAIL_IF(!getcwd(folder, sizeof folder), false);
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    return n < (int)sizeof path && setenv("WEIR_PROFILE", path, 1) == 0;
}

/* NVTX in the program shall call the library, too, unless it is to call another. */
static void set_markers(void)
{
    char folder[PATH_MAX], path[PATH_MAX + sizeof "/libcupti.so.13"];
    if (weir_path_guest_lib(folder, sizeof folder)) {
        (void)snprintf(path, sizeof path, "%s/libcupti.so.13", folder);
        (void)setenv("NVTX_INJECTION64_PATH", path, 0);
    }
}

static bool is_out(const char *word)
{
    return strcmp(word, "-o") == 0 || strcmp(word, "--out") == 0;
}

int weir_cmd_profile(int argc, char **argv)
{
    const char *file = DEFAULT_FILE;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("Usage: weir profile [-o FILE] [OPTIONS OF weir run] [--] PROGRAM [ARGUMENTS]\n\n"
               "Run a CUDA program through Weir, and write when its kernels ran and waited, as "
               "Chrome\ntrace events (Perfetto shows them).\n\n"
               "  -o, --out FILE  %%p in it is the process's number (default \"%s\")\n",
               DEFAULT_FILE);
        return WEIR_EXIT_OK;
    }
    if (argc > 1 && is_out(argv[1])) {
        if (argc < 3) {
            fprintf(stderr, "weir profile: %s wants a file\n", argv[1]);
            return WEIR_EXIT_USAGE;
        }
        file = argv[2];
        argv[2] = argv[0];
        argc -= 2;
        argv += 2;
    }
    if (!set_file(file)) {
        fprintf(stderr, "weir profile: the name of the file is too long\n");
        return WEIR_EXIT_USAGE;
    }
    set_markers();
    return weir_cmd_run(argc, argv);
}

/*
 * `weir serve` and its processes as an earlier release would be: its workers' rows say another
 * version of the link. $WEIR_TEST_LINK_VERSION is that version. Knows the options that lib.py
 * gives.
 */
#include "host_backend/config/control.h"
#include "host_backend/keeper/keep.h"

#include "tests/e2e/e2e_older_host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned weir_test_link_version;

static int serve(int argc, char **argv)
{
    struct weir_serve_params params = {.softgpu = getenv("WEIR_TEST_SOFTGPU")};

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--end") == 0) {
            params.end = true;
        } else if (strcmp(argv[i], "--config") == 0) {
            params.config_path = value;
        } else if (strcmp(argv[i], "--run-dir") == 0) {
            params.run_dir = value;
        } else if (strcmp(argv[i], "--driver") == 0) {
            params.driver = value;
        } else if (strcmp(argv[i], "--log") == 0) {
            params.log = value;
        }
    }
    return weir_serve_main(&params);
}

int main(int argc, char **argv)
{
    const char *version = getenv("WEIR_TEST_LINK_VERSION");

    weir_test_link_version = version ? (unsigned)atoi(version) : 0;
    if (argc > 1 && strcmp(argv[1], "serve") == 0) {
        return serve(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        return weir_worker_main(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "gate") == 0) {
        return weir_gate_main(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "keep") == 0) {
        return weir_keeper_main(argc - 1, argv + 1);
    }
    fprintf(stderr, "serve, worker, gate or keep\n");
    return 2;
}

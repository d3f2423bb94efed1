/* weir run: exec a program with the guest library in front of NVIDIA's. */
#include "host_backend/control.h"
#include "tools/command.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A missing socket is better said now than as "no CUDA device" by the program. */
static bool socket_there(const char *url)
{
    static const char scheme[] = "ipc://";
    if (strncmp(url, scheme, sizeof(scheme) - 1) != 0) {
        return true;
    }
    const char *path = url + sizeof(scheme) - 1;
    if (access(path, R_OK | W_OK) == 0) {
        return true;
    }
    fprintf(stderr, "weir run: %s: %s (is weir serve running? see weir doctor)\n", path,
            strerror(errno));
    return false;
}

static bool set_library_path(const char *folder)
{
    const char *old = getenv("LD_LIBRARY_PATH");
    char *joined = NULL;
    if (asprintf(&joined, "%s%s%s", folder, old && *old ? ":" : "", old ? old : "") < 0) {
        return false;
    }
    bool set = setenv("LD_LIBRARY_PATH", joined, 1) == 0;
    free(joined);
    return set;
}

int weir_cmd_run(int argc, char **argv)
{
    const char *tenant = NULL;
    const char *host = NULL;
    const char *run_dir = NULL;
    const char *transport = NULL;
    const char *key = NULL;
    const char *server_key = NULL;
    const struct weir_option options[] = {
        {"tenant", "NAME", "be this tenant of the host on this machine (default \"default\")",
         &tenant, NULL},
        {"host", "URL", "ipc://PATH or tcp://ADDRESS:PORT (default: $WEIR_HOST)", &host, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {"transport", "NAME", "insist on shm or zmq", &transport, NULL},
        {"key", "FILE", "this tenant's secret key (tcp)", &key, NULL},
        {"server-key", "FILE", "the server's public key (tcp)", &server_key, NULL},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse_front(argc, argv, "[OPTIONS] [--] PROGRAM [ARGUMENTS]",
                                  "Run a CUDA program, unchanged, through Weir.", options, &first,
                                  &exit_status)) {
        return exit_status;
    }
    if (first >= argc) {
        fprintf(stderr, "weir run: which program? (see weir run --help)\n");
        return WEIR_EXIT_USAGE;
    }
    char folder[PATH_MAX];
    if (!weir_path_guest_lib(folder, sizeof(folder))) {
        fprintf(stderr, "weir run: the guest library is not where it is installed to; "
                        "set WEIR_LIB_DIR\n");
        return WEIR_EXIT_FAILED;
    }
    char url[PATH_MAX];
    if (!host && !tenant && !run_dir) {
        host = getenv("WEIR_HOST");
    }
    if (!host || !*host) {
        snprintf(url, sizeof(url), "ipc://%s/%s.sock",
                 run_dir ? run_dir : weir_control_default_run_dir(), tenant ? tenant : "default");
        host = url;
    }
    if (!socket_there(host)) {
        return WEIR_EXIT_FAILED;
    }
    bool good = set_library_path(folder) && setenv("WEIR_HOST", host, 1) == 0;
    good = good && (!transport || setenv("WEIR_TRANSPORT", transport, 1) == 0);
    good = good && (!key || setenv("WEIR_KEY", key, 1) == 0);
    good = good && (!server_key || setenv("WEIR_SERVER_KEY", server_key, 1) == 0);
    if (!good) {
        fprintf(stderr, "weir run: %s\n", strerror(errno));
        return WEIR_EXIT_FAILED;
    }
    execvp(argv[first], argv + first);
    int reason = errno;
    fprintf(stderr, "weir run: %s: %s\n", argv[first], strerror(reason));
    return reason == ENOENT ? WEIR_EXIT_NO_PROGRAM : WEIR_EXIT_CANNOT_EXEC;
}

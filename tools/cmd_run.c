/* weir run: exec a program with the guest library in front of NVIDIA's. */
#include "host_backend/config/control.h"
#include "host_backend/config/request_names.h"
#include "proto/transport/transport.h"
#include "proto/wire/address.h"
#include "proto/wire/keys.h"
#include "tools/ask.h"
#include "tools/command.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define WISH_BYTES 128
#define WISHES_MAX 5 /* rows of weir_request_names */

/* weir run reports what cannot work, because the program would only say "no CUDA device". */

static const char *name_or_environment(const char *given, const char *variable)
{
    return given ? given : getenv(variable);
}

/* Say why a tenant's socket is missing, if the folder belongs to a host; false: there is no host.
 * This user may not be allowed to ask the host. */
static bool complain_of_missing(const char *path, const char *tenant)
{
    char run_dir[PATH_MAX];
    struct weir_status_report *report = NULL;
    const char *name = strrchr(path, '/');
    const char *source = NULL; /* of the tenant, if the host has it */
    if (!name) {
        return false;
    }
    snprintf(run_dir, sizeof(run_dir), "%.*s", (int)(name - path), path);
    enum weir_status status = weir_control_status(run_dir, &report);
    for (size_t i = 0; status == WEIR_OK && i < report->n_tenants; i++) {
        if (strcmp(report->tenants[i].name, tenant) == 0) {
            source = report->tenants[i].source;
        }
    }
    if (source && strcmp(source, WEIR_CONTROL_OF_USER) == 0) {
        fprintf(stderr, "weir run: tenant '%s' is for the programs of a user who names no tenant\n",
                tenant);
    } else if (source) {
        fprintf(stderr,
                "weir run: %s: the socket of tenant '%s' was removed: systemctl reload weir, or "
                "SIGHUP, makes it again\n",
                path, tenant);
    } else if (status == WEIR_OK || status == WEIR_ERR_DENIED) {
        fprintf(stderr, "weir run: %s: the host has no tenant '%s' (see weir tenant list)%s\n",
                path, tenant, status == WEIR_OK ? "" : ", or its socket was removed");
    }
    weir_status_report_destroy(report);
    return status == WEIR_OK || status == WEIR_ERR_DENIED;
}

static bool socket_there(const char *host, const char *tenant)
{
    const char *path;
    if (weir_address_scheme(host, &path) != WEIR_SCHEME_IPC || access(path, R_OK | W_OK) == 0) {
        return true;
    }
    int reason = errno;
    if (reason == EACCES) {
        fprintf(stderr,
                "weir run: %s: %s: this user may not be that tenant (see socket_mode and user in "
                "weir.toml(5))\n",
                path, strerror(reason));
    } else if (!(reason == ENOENT && tenant && complain_of_missing(path, tenant))) {
        fprintf(stderr, "weir run: %s: %s (is weir serve running? see weir doctor)\n", path,
                strerror(reason));
    }
    return false;
}

static bool host_good(const char *host)
{
    const char *problem = weir_address_problem(host);
    if (problem) {
        fprintf(stderr, "weir run: the host '%s': %s\n", host, problem);
    }
    return !problem;
}

/* Can this host name exist? If the lookup only fails for now, as while a machine starts, the answer
 * is yes. */
static bool name_there(const char *host)
{
    char name[256];
    const char *place;
    struct addrinfo *found = NULL;
    if (weir_address_scheme(host, &place) != WEIR_SCHEME_TCP || *place == '[' ||
        !strrchr(place, ':')) {
        return true;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(strrchr(place, ':') - place), place);
    int reason = getaddrinfo(name, NULL, NULL, &found);
    if (reason == 0) {
        freeaddrinfo(found);
    } else if (reason == EAI_NONAME) {
        fprintf(stderr, "weir run: %s: %s\n", host, gai_strerror(reason));
    }
    return reason != EAI_NONAME;
}

static bool transport_good(const char *name)
{
    enum weir_transport_id id = weir_transport_find(name);
    bool good = id != WEIR_TRANSPORT_COUNT && weir_transport_kind(id)->negotiable;
    if (!good) {
        fprintf(stderr, "weir run: the transport '%s': shm or zmq is wanted\n", name);
    }
    return good;
}

static bool key_good(const char *option, const char *text_or_path)
{
    char key[WEIR_KEY_TEXT_BYTES];
    enum weir_status status = weir_key_read(text_or_path, key);
    explicit_bzero(key, sizeof(key));
    if (status != WEIR_OK) {
        fprintf(stderr, "weir run: --%s '%s': %s (a key is a line of 40 characters: weir keygen)\n",
                option, text_or_path,
                status == WEIR_ERR_INVALID ? "no key" : weir_status_text(status));
    }
    return status == WEIR_OK;
}

/* A tcp connection needs both keys, and the public key must lie beside the secret one. */
static bool keys_good(const char *host, const char *key, const char *server_key)
{
    const char *place;
    char path[WEIR_KEY_PATH_BYTES];
    if (weir_address_scheme(host, &place) == WEIR_SCHEME_TCP) {
        key = name_or_environment(key, "WEIR_KEY");
        server_key = name_or_environment(server_key, "WEIR_SERVER_KEY");
        if (!key || !server_key) {
            fprintf(stderr, "weir run: tcp:// wants --key and --server-key\n");
            return false;
        }
    }
    if ((key && !key_good("key", key)) || (server_key && !key_good("server-key", server_key))) {
        return false;
    }
    const char *public_path = weir_key_public_path(key, path);
    if (key && !public_path) {
        fprintf(stderr, "weir run: --key '%s': NAME.secret is wanted, with NAME.public beside it\n",
                key);
    }
    return !key || (public_path && key_good("key", public_path));
}

/* Triton's proton looks for libcupti in no other way. */
static bool set_library_paths(const char *folder)
{
    const char *old = getenv("LD_LIBRARY_PATH");
    char *joined = NULL;
    if (asprintf(&joined, "%s%s%s", folder, old && *old ? ":" : "", old ? old : "") < 0) {
        return false;
    }
    bool set = setenv("LD_LIBRARY_PATH", joined, 1) == 0;
    free(joined);
    return set && setenv("TRITON_CUPTI_LIB_PATH", folder, 0) == 0;
}

/* The requests for a share on demand, from options and, as in containers, from variables. */
struct wishes {
    const char *values[WISHES_MAX]; /* one for each of weir_request_names */
    bool any;
    const char *variable; /* one that asks; NULL: none does */
};

static bool wants_share(const struct wishes *w)
{
    bool wants = w->any;
    for (size_t i = 0; i < WISHES_MAX; i++) {
        wants |= w->values[i] != NULL;
    }
    return wants;
}

/* Has a container's engine read the variables already? Then there is a socket, but no run directory
 * of a host. */
static bool is_answered(const char *run_dir)
{
    static const char *const files[] = {"default.sock", "admin.sock", WEIR_CONTROL_NEW_SOCKET};
    bool there[3];
    for (size_t i = 0; i < 3; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", run_dir ? run_dir : weir_control_default_run_dir(),
                 files[i]);
        there[i] = access(path, F_OK) == 0 || errno != ENOENT;
    }
    return there[0] && !there[1] && !there[2];
}

/* Add the requests of the environment; complains on stderr. */
static bool take_environment(struct wishes *w, const char *run_dir)
{
    bool answered = is_answered(run_dir);
    for (char **variable = environ; *variable; variable++) {
        const struct weir_request_name *row;
        const char *value;
        struct weir_diag diag = {0};
        if (weir_request_variable(*variable, &row, &value, &diag) != WEIR_OK) {
            fprintf(stderr, "weir run: %s\n", diag.message);
            return false;
        }
        if (!row || answered) {
            continue;
        }
        const char **wish = &w->values[row - weir_request_names];
        if (*wish && strcasecmp(*wish, value) != 0) {
            fprintf(stderr, "weir run: the option %s and %s=%s contradict each other\n", *wish,
                    row->variable, value);
            return false;
        }
        *wish = value;
        w->variable = row->variable;
    }
    return true;
}

/* The share exists now, so another weir run inside the program must not ask for one again. */
static void forget_environment(void)
{
    for (size_t i = 0; i < WISHES_MAX; i++) {
        unsetenv(weir_request_names[i].variable);
    }
}

/* Get the URL of a tenant that the host makes for this process; complains on stderr. */
static int make_share(const struct wishes *w, const char *run_dir, char *url, size_t bytes)
{
    char texts[WISHES_MAX][WISH_BYTES];
    const char *words[WISHES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < WISHES_MAX; i++) {
        const char *key = weir_request_names[i].key;
        if (w->values[i]) {
            if (snprintf(texts[n], WISH_BYTES, "%s=%s", key, w->values[i]) >= WISH_BYTES) {
                fprintf(stderr, "weir run: --%s is too long\n", key);
                return WEIR_EXIT_USAGE;
            }
            words[n] = texts[n];
            n++;
        }
    }
    struct weir_new_share share;
    enum weir_status status = weir_control_new(run_dir, NULL, 0, words, n, &share);
    if (status == WEIR_ERR_INVALID) {
        fprintf(stderr, "weir run: %s\n", share.why);
        return WEIR_EXIT_FAILED;
    }
    if (status != WEIR_OK) {
        fprintf(stderr, "weir run: %s/" WEIR_CONTROL_NEW_SOCKET ": %s%s\n",
                run_dir ? run_dir : weir_control_default_run_dir(), weir_status_text(status),
                status == WEIR_ERR_NOT_FOUND ? " (is weir serve running?)"
                : status == WEIR_ERR_DENIED
                    ? " (who may ask says socket_mode in [default] of weir.toml)"
                    : "");
        return WEIR_EXIT_FAILED;
    }
    return snprintf(url, bytes, "ipc://%s/default.sock", share.folder) < (int)bytes
               ? WEIR_EXIT_OK
               : WEIR_EXIT_FAILED;
}

int weir_cmd_run(int argc, char **argv)
{
    const char *tenant = NULL;
    const char *host = NULL;
    const char *run_dir = NULL;
    const char *transport = NULL;
    const char *key = NULL;
    const char *server_key = NULL;
    struct wishes wishes = {.any = false};
    const struct weir_option options[] = {
        {"tenant", "NAME", "be this tenant of the host on this machine (default \"default\")",
         &tenant, NULL},
        {"host", "URL",
         "ipc://PATH, tcp://ADDRESS:PORT or another of weir-libcuda(7) (default: $WEIR_HOST)",
         &host, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {"transport", "shm|zmq", "insist on this way to the host", &transport, NULL},
        {"key", "FILE", "this tenant's secret key (tcp)", &key, NULL},
        {"server-key", "FILE", "the server's public key (tcp)", &server_key, NULL},
        {"new", NULL, "have a share of its own, made for this run and gone with it", NULL,
         &wishes.any},
        {"memory", "SIZE", "GPU memory of such a share", &wishes.values[0], NULL},
        {"weight", "N", "its weight against others, 1 to 10000", &wishes.values[1], NULL},
        {"priority", "low|normal|high", "its class: a higher one goes first", &wishes.values[2],
         NULL},
        {"sm-limit", "PERCENT", "how much of the multiprocessors it gets at most",
         &wishes.values[3], NULL},
        {"sessions", "N", "how many processes it may have at a time", &wishes.values[4], NULL},
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
    if (tenant && !weir_ask_tenant_good("run", tenant)) {
        return WEIR_EXIT_USAGE;
    }
    char folder[PATH_MAX];
    if (!weir_path_guest_lib(folder, sizeof(folder))) {
        fprintf(stderr, "weir run: the guest library is not where it is installed to; "
                        "set WEIR_LIB_DIR\n");
        return WEIR_EXIT_FAILED;
    }
    char url[PATH_MAX];
    if (!take_environment(&wishes, run_dir)) {
        return WEIR_EXIT_USAGE;
    }
    if (wants_share(&wishes)) {
        const char *elsewhere = wishes.variable ? getenv("WEIR_HOST") : NULL;
        if (host || tenant || key || server_key || (elsewhere && *elsewhere)) {
            fprintf(stderr,
                    "weir run: %s%sa share is made by the host of this machine: it goes with no "
                    "--tenant, --host, --key or --server-key%s\n",
                    wishes.variable ? wishes.variable : "",
                    wishes.variable ? " asks for a share: " : "",
                    wishes.variable ? ", nor with WEIR_HOST" : "");
            return WEIR_EXIT_USAGE;
        }
        exit_status = make_share(&wishes, run_dir, url, sizeof(url));
        if (exit_status != WEIR_EXIT_OK) {
            return exit_status;
        }
        forget_environment();
        host = url;
    } else if (!host && !tenant && !run_dir) {
        host = getenv("WEIR_HOST");
    }
    const char *meant = NULL; /* the tenant, if the user gave only the host's folder */
    if (!host || !*host) {
        meant = tenant ? tenant : "default";
        snprintf(url, sizeof(url), "ipc://%s/%s.sock",
                 run_dir ? run_dir : weir_control_default_run_dir(), meant);
        host = url;
    }
    if (!host_good(host) || (transport && !transport_good(transport)) ||
        !keys_good(host, key, server_key)) {
        return WEIR_EXIT_USAGE;
    }
    if (!socket_there(host, meant) || !name_there(host)) {
        return WEIR_EXIT_FAILED;
    }
    bool good = set_library_paths(folder) && setenv("WEIR_HOST", host, 1) == 0;
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

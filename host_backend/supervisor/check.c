/*
 * `weir serve --check` looks whether this machine has all that the configuration names: devices,
 * users, folders, programs. The check creates nothing. It prints all errors, not only the first. A
 * host may be running already, since its file is checked before a reload.
 */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/libvirt.h"
#include "host_backend/supervisor/tenants/tenants.h"

#include "host_backend/config/file_cache.h"
#include "host_backend/config/program_path.h"
#include "proto/wire/keys.h"
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKET_PATH_BYTES sizeof(((struct sockaddr_un *)0)->sun_path)

static bool complain(const char *what, const char *value, const char *why)
{
    fprintf(stderr, "weir serve: %s '%s': %s\n", what, value, why);
    return false;
}

/* ---------------------------------------------------------------- also before each start */

bool weir_sup_check_names(const struct weir_supervisor *sup)
{
    const struct weir_host_config *config = &sup->config;
    size_t folder = strlen(config->run_dir) + sizeof "/.sock"; /* length with the NUL */
    bool good = true;

    for (uint32_t i = 0; i < config->n_tenants; i++) {
        size_t bytes = folder + strlen(config->tenants[i].name);

        if (bytes > SOCKET_PATH_BYTES) {
            fprintf(stderr,
                    "weir serve: run_dir '%s': too long: the path of tenant '%s''s socket has %zu "
                    "bytes, and %zu are allowed\n",
                    config->run_dir, config->tenants[i].name, bytes - 1, SOCKET_PATH_BYTES - 1);
            good = false;
            break;
        }
    }
    return good;
}

/* ---------------------------------------------------------------- places */

static bool is_usable_folder(const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        return false;
    }
    if (!S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        return false;
    }
    return access(path, W_OK | X_OK) == 0;
}

/* The parent folder of a path. */
static const char *parent_of(const char *path, char room[WEIR_CONFIG_PATH_BYTES])
{
    char *end;

    snprintf(room, WEIR_CONFIG_PATH_BYTES, "%s", path);
    for (end = room + strlen(room); end > room + 1 && end[-1] == '/'; end--) {
        end[-1] = 0;
    }
    end = strrchr(room, '/');
    if (!end) {
        return ".";
    }
    end[end == room ? 1 : 0] = 0;
    return room;
}

/* Check run_dir. The host itself only creates its last folder. */
static bool check_run_dir(const char *run_dir)
{
    char room[WEIR_CONFIG_PATH_BYTES];
    const char *parent = parent_of(run_dir, room);

    if (is_usable_folder(run_dir)) {
        return true;
    }
    WEIR_FAIL_IF(errno != ENOENT, complain("run_dir", run_dir, strerror(errno)));
    return is_usable_folder(parent) ||
           complain("run_dir cannot be made in", parent, strerror(errno));
}

/* Can the host listen on the address? A port in use is assumed to be that of the running host. */
static bool check_address(const char *key, const char *address, bool is_running)
{
    int fd;

    if (weir_sup_listen_address(address, &fd)) {
        close(fd);
        return true;
    }
    return (is_running && errno == EADDRINUSE) || complain(key, address, strerror(errno));
}

static bool check_key(const struct weir_host_config *config)
{
    char key[WEIR_KEY_Z85_BYTES];
    enum weir_status status =
        config->listen_tcp[0] != 0 ? weir_key_read(config->server_key, key) : WEIR_OK;

    explicit_bzero(key, sizeof key);
    return status == WEIR_OK ||
           complain("server_key", config->server_key, weir_sup_key_error(status));
}

static bool check_libvirt(const struct weir_supervisor *sup)
{
    return sup->config.libvirt_uri[0] == 0 ||
           (sup->params.libvirt && access(sup->params.libvirt, X_OK) == 0) ||
           complain("[libvirt] uri", sup->config.libvirt_uri, WEIR_SUP_NO_LIBVIRT);
}

static bool check_metrics(const char *listen, bool is_running)
{
    const char *path = strncmp(listen, "unix:", 5) == 0 ? listen + 5 : listen;
    char room[WEIR_CONFIG_PATH_BYTES];

    if (*listen == 0) {
        return true;
    }
    if (*path != '/') {
        return check_address("metrics", listen, is_running);
    }
    return is_usable_folder(parent_of(path, room)) || complain("metrics", path, strerror(errno));
}

/* Does a host listen on admin.sock? A file there that is no socket is an error. */
static bool check_admin(const char *run_dir, bool *ret_running)
{
    struct weir_status_report *report = NULL;
    char path[WEIR_CONFIG_PATH_BYTES + 16];
    struct stat info;

    *ret_running = weir_control_status(run_dir, &report) == WEIR_OK;
    weir_status_report_destroy(report);
    snprintf(path, sizeof path, "%s/admin.sock", run_dir);
    WEIR_FAIL_IF(lstat(path, &info) == 0 && !S_ISSOCK(info.st_mode),
                 complain("the admin socket", path, "another file is in its place"));
    return true;
}

static bool check_log(const char *log)
{
    const char *path = strchr(log, ':');
    char room[WEIR_CONFIG_PATH_BYTES];

    return !path || access(path + 1, W_OK) == 0 ||
           (errno == ENOENT && is_usable_folder(parent_of(path + 1, room))) ||
           complain("log", log, strerror(errno));
}

/* What the host goes on without: users, programs and folders that workers and machines use. */
static bool check_named(const struct weir_supervisor *sup)
{
    const struct weir_host_config *config = &sup->config;
    const struct weir_confine_user *user = &sup->running.user;
    const char *compiler = config->forms.compiler;
    char dir[WEIR_FORMS_PATH_BYTES];
    const char *fault = NULL;
    bool good = true;

    if (config->vm_user[0] != 0 && !getpwnam(config->vm_user)) {
        good = complain("vm_user", config->vm_user, "there is no such user");
    }
    if (strcmp(compiler, "auto") != 0 && strcmp(compiler, "driver") != 0 &&
        !weir_is_program(compiler)) {
        good = complain("[forms] compiler", compiler, "no such program");
    }
    weir_file_cache_find(config->forms.cache_dir, dir, sizeof dir);
    if (dir[0] != 0) {
        fault = weir_file_cache_fault(dir, user->is_other ? user->uid : geteuid());
    }
    return !fault ? good : complain("[forms] cache_dir", dir, fault);
}

/* ---------------------------------------------------------------- devices */

/* In the child: become a worker's user, with a worker's access to devices. */
static _Noreturn void become_probe(const struct weir_supervisor *sup, const char *devices, int out)
{
    const struct weir_host_config *config = &sup->config;
    const char *program = sup->params.program ? sup->params.program : "/proc/self/exe";
    const char *const words[] = {
        "weir", "worker", WEIR_WORKER_PROBE, config->driver, config->softgpu, devices, NULL};
    char *argv[WEIR_COUNT(words)];

    memcpy(argv, words, sizeof words); /* execv() changes none of the strings */
    if (dup2(out, STDOUT_FILENO) < 0 || !weir_confine_become(&sup->running.user)) {
        _exit(WEIR_WORKER_EXIT_FAILED);
    }
    execv(program, argv);
    _exit(WEIR_WORKER_EXIT_FAILED);
}

/* Does the machine have all devices of a list? If so, also give the memory of all of them, and how
 * many contexts fit on one device. */
static bool check_devices(const struct weir_supervisor *sup, const char *devices,
                          uint64_t *ret_bytes, uint32_t *ret_contexts)
{
    char text[48] = "", *rest = text;
    int ends[2], wait_status;

    WEIR_FAIL_IF(pipe2(ends, O_CLOEXEC) != 0, complain("devices", devices, strerror(errno)));
    pid_t child = fork();
    if (child == 0) {
        become_probe(sup, devices, ends[1]);
    }
    close(ends[1]);
    if (child > 0) {
        (void)!read(ends[0], text, sizeof text - 1); /* the probe's line, or its output's end */
    }
    close(ends[0]);
    if (child < 0 || waitpid(child, &wait_status, 0) != child || !WIFEXITED(wait_status) ||
        (WEXITSTATUS(wait_status) != WEIR_WORKER_EXIT_OK &&
         WEXITSTATUS(wait_status) != WEIR_WORKER_EXIT_DRIVER)) {
        return complain("driver", sup->config.driver, "the process that looks for devices failed");
    }
    *ret_bytes = strtoull(text, &rest, 10);
    *ret_contexts = (uint32_t)strtoul(rest, NULL, 10);
    return WEXITSTATUS(wait_status) == WEIR_WORKER_EXIT_OK; /* else the probe has printed why */
}

/* Check each list of devices that tenants have; each list once. */
static bool check_tenant_devices(const struct weir_supervisor *sup)
{
    uint64_t bytes;
    uint32_t contexts;
    bool good = true;

    for (uint32_t i = 0; i < sup->config.n_tenants; i++) {
        const char *list = weir_config_new_devices(&sup->config, i);

        good = (!list || check_devices(sup, list, &bytes, &contexts)) && good;
    }
    return good;
}

/* Warn if a quota exceeds the devices' memory, which a program would notice late. */
static void warn_of_quotas(const struct weir_host_config *config, uint64_t bytes)
{
    const size_t memory = (size_t)weir_setting_find("memory");
    struct weir_diag diag = {0};

    if (!weir_setting_fits(memory, &config->demand.usual, bytes, &diag)) {
        fprintf(stderr, "weir serve: warning: [default]: %s\n", diag.message);
    }
    for (uint32_t i = 0; i < config->n_tenants; i++) {
        if (!weir_setting_fits(memory, &config->tenants[i], bytes, &diag)) {
            fprintf(stderr, "weir serve: warning: tenant '%s': %s\n", config->tenants[i].name,
                    diag.message);
        }
    }
}

/* Warn if there are too few contexts: the tenants whose programs have their own workers share
 * them. */
static void warn_of_contexts(const struct weir_host_config *config, uint32_t contexts)
{
    uint32_t n = 0, spares = config->workers.spares,
             sure = contexts > spares ? contexts - spares : 0;

    for (uint32_t i = 0; i < config->n_tenants; i++) {
        n += config->tenants[i].isolation == WEIR_ISOLATION_PROGRAM ||
             config->tenants[i].isolation == WEIR_ISOLATION_STRICT;
    }
    if (n > sure) {
        fprintf(
            stderr,
            "weir serve: warning: %u of %u tenants can be sure of a context for a program: the GPU "
            "takes %u contexts, and %u are for spare workers; tenants with isolation = \"group\" "
            "need none of their own\n",
            sure, n, contexts, spares);
    }
}

bool weir_sup_check(const struct weir_supervisor *sup)
{
    const struct weir_host_config *config = &sup->config;
    const char *tcp = weir_sup_tcp_address(config);
    uint64_t total_bytes = 0;
    uint32_t contexts = 0;
    bool is_running, good;

    good = check_run_dir(config->run_dir);
    good = check_admin(config->run_dir, &is_running) && good;
    good = check_metrics(config->metrics_listen, is_running) && good;
    if (*tcp != 0) {
        good = check_address("listen_tcp", tcp, is_running) && good;
    }
    good = check_key(config) && good;
    good = check_log(config->log) && good;
    good = check_libvirt(sup) && good;
    good = check_named(sup) && good;
    good = check_devices(sup, config->devices, &total_bytes, &contexts) && good;
    good = good && check_tenant_devices(sup); /* else the same devices would be reported twice */
    if (good) {
        const struct weir_tenant_config *tenants[WEIR_CONFIG_TENANTS_MAX];

        for (uint32_t i = 0; i < config->n_tenants; i++) {
            tenants[i] = &config->tenants[i];
        }
        warn_of_contexts(config, contexts);
        warn_of_quotas(config, total_bytes);
        uint32_t pct = weir_config_promised_pct(tenants, config->n_tenants, "", total_bytes);

        if (pct > 100) {
            fprintf(stderr, "weir serve: warning: " WEIR_SUP_MEMORY_REMARK "\n", pct);
        }
    }
    return good;
}

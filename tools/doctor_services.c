/* Checks what workers, remote and virtual machines, Prometheus, MPS and Slurm need of a host. */
#include "base/fd.h"
#include "host_backend/config/config.h"
#include "host_backend/config/file_cache.h"
#include "host_backend/config/program_path.h"
#include "host_backend/confine/confine.h"
#include "tools/command.h"
#include "tools/doctor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SHM_LEAST  (1u << 20) /* less free space counts as full */
#define MPS_NAME   "nvidia-cuda-mps-control"
#define COMPILER_S 5 /* for its version */

/* Does a program listen at "ADDRESS:PORT" of this machine? true also if unknown. */
static bool listens(const char *address)
{
    char host[128];
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    address = strncmp(address, "tcp://", 6) == 0 ? address + 6 : address;
    if (!colon) {
        return true;
    }
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    bool any = !host[0] || strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0 ||
               strcmp(host, "[::]") == 0;
    size_t n = strlen(host);
    if (host[0] == '[' && host[n - 1] == ']') {
        memmove(host, host + 1, n);
        host[n - 2] = 0;
    }
    if (getaddrinfo(any ? "127.0.0.1" : host, colon + 1, &hints, &found) != 0) {
        return true;
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool there =
        fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) == 0 || errno != ECONNREFUSED;
    weir_fd_close(fd);
    freeaddrinfo(found);
    return there;
}

/* Has the host itself reported that this does not work? Then one report is enough. */
static bool is_told(const struct weir_status_report *report, const char *extra)
{
    return WEIR_ANY(i, report->n_extras,
                    strcmp(report->extras[i].name, extra) == 0 && !report->extras[i].up);
}

static void check_port(const struct weir_status_report *report, const char *extra, const char *key,
                       const char *address)
{
    if (is_told(report, extra)) {
        return;
    }
    if (strcmp(strrchr(address, ':') ? strrchr(address, ':') : "", ":0") == 0) {
        weir_doctor_mend("warning", "name a port in weir.toml: what comes must know it",
                         "%s %s: the port is another after each start; the host's log says which",
                         key, address);
    } else if (!listens(address)) {
        weir_doctor_mend("problem", "systemctl restart weir", "%s: nobody listens at %s", key,
                         address);
    } else {
        weir_doctor_ok("%s: %s", key, address);
    }
}

/* Only the host may be able to read a secret key. */
static void check_key(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        weir_doctor_mend_at("problem", "put it back, or make one by weir keygen:", path,
                            "server_key %s: %s", path, strerror(errno));
    } else if (info.st_mode & 077) {
        weir_doctor_mend_at("problem", "chmod 600", path,
                            "server_key %s has mode %o: others can read the host's secret key",
                            path, info.st_mode & 0777);
    }
}

static void check_remote(const struct weir_status_report *report,
                         const struct weir_host_config *config)
{
    const char *metrics = config->metrics_listen;
    if (config->server_key[0]) {
        check_key(config->server_key);
    }
    if (config->listen_tcp[0]) {
        check_port(report, "tcp", "listen_tcp", config->listen_tcp);
    }
    if (metrics[0] && metrics[0] != '/' && strncmp(metrics, "unix:", 5) != 0) {
        check_port(report, "metrics", "metrics", metrics);
    }
}

/* Look for the socket of libvirtd, or of virtqemud, its daemon for QEMU alone. */
static bool has_libvirt(void)
{
    static const char *const paths[] = {"/run/libvirt/libvirt-sock-ro",
                                        "/run/libvirt/virtqemud-sock-ro", NULL};
    for (size_t i = 0; paths[i]; i++) {
        if (access(paths[i], F_OK) == 0 && weir_doctor_is_served(paths[i], SOCK_STREAM)) {
            return true;
        }
    }
    return false;
}

static void check_libvirt(const struct weir_status_report *report,
                          const struct weir_host_config *config)
{
    char path[PATH_MAX];
    if (!config->libvirt_uri[0] || is_told(report, "libvirt")) {
        return;
    }
    if (!weir_path_libvirt(path, sizeof path)) {
        weir_doctor_mend(
            "problem", "install the package weir-libvirt, or take [libvirt] out of weir.toml",
            "[libvirt] uri: weir-libvirt is not installed: metadata of machines is not "
            "followed");
    } else if (!weir_doctor_has_process("weir-libvirt", (pid_t)report->pid)) {
        weir_doctor_mend("problem", "systemctl restart weir, which [libvirt] needs",
                         "[libvirt] uri: weir-libvirt does not run: metadata of machines is not "
                         "followed");
    } else if (strncmp(config->libvirt_uri, "qemu:///", 8) == 0 && !has_libvirt()) {
        weir_doctor_mend("problem", "systemctl start libvirtd",
                         "[libvirt] uri %s: libvirt does not run", config->libvirt_uri);
    } else {
        weir_doctor_ok("libvirt: metadata of %s is followed", config->libvirt_uri);
    }
}

/* Does the MPS daemon of this folder run? It writes its pid beside its pipe. */
static bool mps_runs(const char *folder)
{
    char path[PATH_MAX + 64];
    int pid = 0;
    snprintf(path, sizeof path, "%s/" MPS_NAME ".pid", folder);
    FILE *file = fopen(path, "re");
    if (file) {
        bool known = fscanf(file, "%d", &pid) == 1 && pid > 0;
        fclose(file);
        if (known) {
            return kill(pid, 0) == 0 || errno == EPERM;
        }
    }
    return weir_doctor_has_process(MPS_NAME, 0);
}

/* A killed MPS daemon leaves its pipe; CUDA programs then fail instead of running without MPS. */
static void check_mps(const struct weir_host_config *config)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[PATH_MAX];
    bool any = weir_doctor_has_process(MPS_NAME, 0);
    snprintf(path, sizeof path, "%s", folder ? folder : "/tmp/nvidia-mps");
    char control[PATH_MAX + 16];
    snprintf(control, sizeof control, "%s/control", path);
    if (access(control, F_OK) == 0 && !mps_runs(path)) {
        weir_doctor_mend_at(
            "problem", "start it (" MPS_NAME " -d), or rm -r", path,
            "the machine's MPS daemon is dead, and %s is left: CUDA programs beside "
            "Weir fail",
            path);
    }
    if (config->workers.mps == WEIR_MPS_ON && access("/dev/nvidiactl", F_OK) == 0 && !any) {
        weir_doctor_mend(
            "problem", "look at the host's log, then systemctl restart weir",
            "mps = \"on\", and the host has no MPS daemon: programs' contexts take turns");
    }
}

static void check_shm(const struct weir_host_config *config)
{
    struct statvfs room;
    if (config->vm_region_bytes == 0) {
        return;
    }
    if (statvfs("/dev/shm", &room) != 0) {
        weir_doctor_mend("warning", "mount -t tmpfs tmpfs /dev/shm",
                         "/dev/shm: %s: machines have no memory in common with the host",
                         strerror(errno));
    } else if ((unsigned long long)room.f_bavail * room.f_frsize < SHM_LEAST) {
        weir_doctor_mend(
            "warning", "mount -o remount,size=50% /dev/shm",
            "/dev/shm is full: no further virtual machine finds room for what it has in "
            "common with the host");
    }
}

/* A line of plugstack.conf: "required /usr/lib/weir/weir_spank.so run_dir=/run/weir ...". */
static void check_plugin(char *line, const char *conf, const char *run_dir)
{
    char *rest = NULL;
    const char *kind = strtok_r(line, " \t\n", &rest), *plugin = strtok_r(NULL, " \t\n", &rest);
    const char *dir = "/run/weir"; /* the plugin's default */
    if (!kind || *kind == '#' || !plugin || !strstr(plugin, "weir_spank")) {
        return;
    }
    if (*plugin == '/' && access(plugin, R_OK) != 0) {
        weir_doctor_mend("problem", "install the package weir-slurm, or correct that line",
                         "%s names %s: %s: jobs do not start", conf, plugin, strerror(errno));
    }
    for (const char *word; (word = strtok_r(NULL, " \t\n", &rest));) {
        dir = strncmp(word, "run_dir=", 8) == 0 ? word + 8 : dir;
    }
    if (strcmp(dir, run_dir) != 0 && access(dir, F_OK) != 0) {
        weir_doctor_mend_at("problem", "set run_dir there to", run_dir,
                            "%s: jobs look for a host in %s, and it is in %s", conf, dir, run_dir);
    }
}

/* If plugstack.conf says "required", Slurm starts no job without the plugin. */
static void check_slurm(const struct weir_status_report *report)
{
    static const char *const files[] = {"/etc/slurm/plugstack.conf",
                                        "/etc/slurm-llnl/plugstack.conf", NULL};
    for (size_t i = 0; files[i]; i++) {
        FILE *file = fopen(files[i], "re");
        char line[2048];
        while (file && fgets(line, sizeof line, file)) {
            check_plugin(line, files[i], report->run_dir);
        }
        if (file) {
            fclose(file);
        }
    }
}

/* The next worker must load the same driver as this one. */
static void check_driver(const struct weir_status_report *report, const struct weir_eyes *worker)
{
    const char *driver = report->n_workers ? report->workers[0].driver : "";
    char why[400];
    if (driver[0] == '/' && !weir_eyes_load(worker, driver, why, sizeof why)) {
        weir_doctor_mend("problem", "install it anew, or set driver in [host] of weir.toml",
                         "new workers cannot load the driver %s: %s", driver, why);
    }
}

/* Workers execute the compiler as their own user. If weir.toml names none, none is required. */
static void check_compiler(const struct weir_host_config *config, const struct weir_eyes *worker)
{
    const char *name = config->forms.compiler;
    char path[PATH_MAX], text[256];
    const char *const argv[] = {path, "--version", NULL};
    snprintf(path, sizeof path, "%s", name);
    if (strcmp(name, "auto") == 0 && access("/dev/nvidiactl", F_OK) == 0 &&
        !weir_program_find("ptxas", path, sizeof path)) {
        snprintf(path, sizeof path, "/usr/local/cuda/bin/ptxas");
    }
    if (path[0] != '/' || !weir_is_program(path)) {
        return; /* the host itself reports that a named compiler is missing */
    }
    int status = weir_doctor_run(worker, argv, COMPILER_S, text, sizeof text);
    if (status != 0 && status != 126) {
        weir_doctor_mend(
            "warning",
            "install it anew, or set compiler = \"driver\" in [forms], then weir restart",
            "[forms] compiler %s does not run as %s%s%.*s: the driver compiles", path,
            worker->whose, text[0] ? ": " : "", (int)strcspn(text, "\n"), text);
    }
}

/* Can workers reach the cache folder, and is there free space in it? */
static void check_cache(const struct weir_status_report *report,
                        const struct weir_host_config *config, const struct weir_eyes *worker)
{
    char dir[WEIR_FORMS_PATH_BYTES], closed[PATH_MAX];
    weir_file_cache_find(config->forms.cache_dir, dir, sizeof dir);
    if (dir[0] == 0 || is_told(report, "cache")) {
        return;
    }
    int error = weir_eyes_access(worker, dir, R_OK | W_OK | X_OK, closed);
    if (error != 0 && error != ENOENT) {
        weir_doctor_mend_at("warning", closed[0] ? "chmod a+x" : "chown it to the workers' user:",
                            closed[0] ? closed : dir,
                            "[forms] cache_dir %s: %s cannot use it: %s; nothing is kept there",
                            dir, worker->whose, strerror(error));
    }
}

/* Check which user workers would run as after the host's next start. */
static void check_worker_user(const struct weir_status_report *report,
                              const struct weir_host_config *config)
{
    struct weir_confine_user user;
    struct weir_eyes worker = {.whose = "the host's user"};
    char proc[40], number[16];
    struct stat info;
    snprintf(proc, sizeof proc, "/proc/%llu",
             (unsigned long long)(report->n_workers ? report->workers[0].pid : report->pid));
    bool known = stat(proc, &info) == 0;
    if (geteuid() == 0 && weir_confine_user_find(config->worker_user, &user) != WEIR_OK) {
        weir_doctor_mend("problem", "make that user, or correct weir.toml: the host will not start",
                         "worker_user '%s': there is no such user", config->worker_user);
        return;
    }
    if (geteuid() == 0 && known && info.st_uid != 0 && !getpwuid(info.st_uid)) {
        weir_doctor_mend("problem",
                         "make it again: useradd --system --user-group --home-dir /var/cache/weir "
                         "--no-create-home --shell /usr/sbin/nologin " WEIR_CONFINE_USER,
                         "the user of workers, number %u, is gone: after its next start the host's "
                         "workers run as root",
                         info.st_uid);
    }
    snprintf(number, sizeof number, "%u", known ? info.st_uid : geteuid());
    if (weir_eyes_of(number, &worker)) {
        check_driver(report, &worker);
        check_compiler(config, &worker);
        check_cache(report, config, &worker);
    }
}

void weir_doctor_services(const struct weir_status_report *report,
                          const struct weir_host_config *config)
{
    check_worker_user(report, config);
    check_remote(report, config);
    check_libvirt(report, config);
    check_mps(config);
    check_shm(config);
    check_slurm(report);
}

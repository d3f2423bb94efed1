/*
 * weir doctor: check everything that Weir needs, in the order of use, and say how to mend what is
 * missing.
 *
 * Each check prints one line that begins with "ok", "warning" or "problem". A remedy follows the
 * last two. Exit status 1 if there is a problem. The guest library is tried in a child process, as
 * a program would use it, so that a broken library cannot crash the doctor.
 */
#include "base/clock.h"
#include "base/file_text.h"
#include "host_backend/config/control.h"
#include "host_backend/confine/confine.h"
#include "proto/cuda_abi.h"
#include "proto/wire/discover.h"
#include "tools/ask.h"
#include "tools/command.h"
#include "tools/doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_kernel(void)
{
    int fd = memfd_create("weir-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        weir_doctor_mend("problem", "Linux 4.14 or later with memfd_create is needed",
                         "memfd_create: %s", strerror(errno));
        return;
    }
    close(fd);
    weir_doctor_ok("the kernel has sealed memory files");
}

static void check_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1024) {
        weir_doctor_mend("warning", "raise it: ulimit -n 65536, or LimitNOFILE= in the unit",
                         "only %llu open files are allowed", (unsigned long long)limit.rlim_cur);
    } else {
        weir_doctor_ok("open files: %llu", (unsigned long long)limit.rlim_cur);
    }
}

/* Only nvidia-smi, pynvml, NCCL and the like need NVML. */
static void check_nvml(const char *folder)
{
    static const char file[] = "libnvidia-ml.so.1";
    char path[PATH_MAX + sizeof(file)];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    if (access(path, R_OK) == 0) {
        weir_doctor_ok("NVML for guests: %s", path);
    } else {
        weir_doctor_mend("warning", "install Weir whole; nvidia-smi and NCCL need it in a guest",
                         "%s is missing", path);
    }
}

#ifdef WEIR_GUEST_TOOL
#define LOOKS_AS_USERS true
#else
#define LOOKS_AS_USERS (geteuid() != 0) /* else weir_doctor_places() checks, if a host runs */
#endif

/* Do the files exist, and can users load them? */
static bool check_files(void)
{
    char path[PATH_MAX - 32], library[PATH_MAX], why[400];
    struct weir_eyes users;
    if (!weir_path_guest_lib(path, sizeof(path))) {
        weir_doctor_mend("problem", "install Weir whole (cmake --install), or set WEIR_LIB_DIR",
                         "the guest library is missing");
        return false;
    }
    snprintf(library, sizeof(library), "%s/libcuda.so.1", path);
    weir_eyes_of_anybody(0, &users);
    if (LOOKS_AS_USERS && !weir_eyes_load(&users, library, why, sizeof(why))) {
        weir_eyes_load_fails("problem", &users, library, why);
        return false;
    }
    weir_doctor_ok("guest library: %s", library);
    check_nvml(path);
    return true;
}

#ifdef WEIR_GUEST_TOOL
/* A guest needs no driver, but its loader must find Weir's library. */
static void check_driver(void)
{
    char folder[PATH_MAX];
    char wanted[PATH_MAX + 16], wanted_file[PATH_MAX], found_file[PATH_MAX];
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    Dl_info found = {.dli_fname = NULL};
    if (!library) {
        weir_doctor_mend("problem", "ldconfig", "programs find no libcuda.so.1: %s", dlerror());
        return;
    }
    if (weir_path_guest_lib(folder, sizeof(folder)) && dladdr(dlsym(library, "cuInit"), &found)) {
        snprintf(wanted, sizeof(wanted), "%s/libcuda.so.1", folder);
        if (realpath(wanted, wanted_file) && realpath(found.dli_fname, found_file) &&
            strcmp(wanted_file, found_file) == 0) {
            weir_doctor_ok("programs load it by themselves");
        } else {
            weir_doctor_mend("warning", "remove it, or start programs with weir run",
                             "programs load another libcuda.so.1: %s", found.dli_fname);
        }
    }
    dlclose(library);
}
#else
static void check_softgpu(void)
{
    char path[PATH_MAX];
    if (weir_path_softgpu(path, sizeof(path))) {
        weir_doctor_ok("softgpu: %s", path);
    } else {
        weir_doctor_mend("warning", "install Weir whole; without it a host needs an NVIDIA GPU",
                         "softgpu is missing");
    }
}

/* Does this function belong to the guest library? */
static bool is_ours(CUresult (*function)(int *))
{
    char folder[PATH_MAX - 32], wanted[PATH_MAX], ours[PATH_MAX], found[PATH_MAX];
    Dl_info info;
    if (!function || !weir_path_guest_lib(folder, sizeof(folder)) ||
        !dladdr(*(void **)&function, &info)) {
        return false;
    }
    snprintf(wanted, sizeof(wanted), "%s/libcuda.so.1", folder);
    return realpath(wanted, ours) && realpath(info.dli_fname, found) && strcmp(ours, found) == 0;
}

static void check_driver(void)
{
    bool device = access("/dev/nvidiactl", F_OK) == 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int version = 0;
    CUresult (*get_version)(int *) = NULL;
    if (library) {
        *(void **)&get_version = dlsym(library, "cuDriverGetVersion");
    }
    if (get_version) {
        (void)get_version(&version);
    }
    if (library && is_ours(get_version)) {
        weir_doctor_mend(device ? "problem" : "warning",
                         "take its folder out of /etc/ld.so.conf.d and LD_LIBRARY_PATH, then "
                         "ldconfig",
                         "libcuda.so.1 is Weir's guest library here: workers load it for a driver");
    } else if (device && library) {
        weir_doctor_ok("NVIDIA driver: CUDA %d.%d", version / 1000, version % 1000 / 10);
    } else if (device) {
        weir_doctor_mend("problem", "install NVIDIA's libcuda1 that matches the kernel module",
                         "there is an NVIDIA device but no libcuda.so.1: %s", dlerror());
    } else {
        weir_doctor_ok("no NVIDIA device: weir serve uses softgpu here; the package's service "
                       "waits for a GPU, or for driver = \"softgpu\"");
    }
    if (library) {
        dlclose(library);
    }
    check_softgpu();
}
#endif

/* Find the host that a program started here would use. */
static const char *host_url(const char *run_dir, char *url, size_t bytes)
{
    if (!run_dir) {
        const char *found = weir_discover_host(getenv("WEIR_HOST"), url);
        if (strcmp(found, WEIR_DEFAULT_HOST) != 0) {
            return found;
        }
    }
    snprintf(url, bytes, "ipc://%s/default.sock",
             run_dir ? run_dir : weir_control_default_run_dir());
    return url;
}

/*
 * Print which way to a host a program would use if its user names no host, and why it would not use
 * the better ones. Print nothing if this machine's socket is the only way.
 */
static void print_routes(const char *url)
{
    struct weir_route routes[WEIR_ROUTES_MAX];
    size_t n = weir_discover(routes);
    for (size_t i = 0; i < n; i++) {
        if (routes[i].status == WEIR_ERR_NOT_FOUND) {
            weir_doctor_way("no way by %s: %s", routes[i].kind, routes[i].about);
        } else if (routes[i].status != WEIR_OK) {
            weir_doctor_mend("warning", "see weir's kvm page", "the way by %s is closed: %s",
                             routes[i].kind, routes[i].about);
        } else {
            weir_doctor_way("%s by %s: %s",
                            strcmp(routes[i].url, url) == 0 ? "taken: " : "open: ", routes[i].kind,
                            routes[i].about);
        }
    }
}

/* A host without the tenant "default" has no default.sock: each program must name its tenant. */
static const char *tenant_url(const char *run_dir, const struct weir_status_report *report,
                              const char *url, char room[PATH_MAX])
{
    const char *path = url + strlen("ipc://");
    const char *file = strrchr(path, '/');
    bool has_default =
        WEIR_ANY(i, report->n_tenants, strcmp(report->tenants[i].name, "default") == 0);
    if (!file || strcmp(file, "/default.sock") != 0 || access(path, F_OK) == 0 || has_default ||
        report->n_tenants == 0) {
        return url;
    }
    const char *tenant = report->tenants[0].name;
    weir_doctor_ok("no tenant 'default': programs name theirs, as here: weir run --tenant %s",
                   tenant);
    snprintf(room, PATH_MAX, "ipc://%s/%s.sock", run_dir ? run_dir : weir_control_default_run_dir(),
             tenant);
    return room;
}

/* What /proc/PID/status says about a process. */
struct confinement {
    uid_t uid;
    bool capable; /* the process has capabilities, or could get some */
    bool no_new_privileges;
    bool filtered; /* its system calls are filtered */
};

/* Read the number behind a name. */
static uint64_t fact_of(const char *text, const char *name, int base)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, base) : 0;
}

static bool look_at_process(uint64_t pid, struct confinement *ret_found)
{
    char path[40];
    char text[4096];
    snprintf(path, sizeof path, "/proc/%llu/status", (unsigned long long)pid);
    WEIR_FAIL_IF(!weir_file_text(path, text, sizeof text), false);
    ret_found->uid = (uid_t)fact_of(text, "\nUid:", 10);
    ret_found->capable = (fact_of(text, "\nCapPrm:", 16) | fact_of(text, "\nCapInh:", 16)) != 0;
    ret_found->no_new_privileges = fact_of(text, "\nNoNewPrivs:", 10) == 1;
    ret_found->filtered = fact_of(text, "\nSeccomp:", 10) == 2;
    return true;
}

static void check_worker_user(const struct confinement *worker, const struct confinement *host)
{
    const struct passwd *known = getpwuid(worker->uid);
    char name[64];
    snprintf(name, sizeof name, "%u", worker->uid);
    if (known) {
        snprintf(name, sizeof name, "%s", known->pw_name);
    }
    if (worker->uid == 0) {
        weir_doctor_mend(
            "warning", "make a system user " WEIR_CONFINE_USER ", or set worker_user in weir.toml",
            "workers run as root");
    } else if (worker->uid == host->uid) {
        weir_doctor_mend("warning",
                         "run the host as root, with a user " WEIR_CONFINE_USER " for its workers",
                         "workers run as the host's own user, %s", name);
    } else {
        weir_doctor_ok("workers run as %s", name);
    }
}

/* Check one worker only: the host starts all of them in the same way. */
static void check_workers(const struct weir_status_report *report)
{
    struct confinement worker, host;
    if (report->n_workers == 0 || !look_at_process(report->workers[0].pid, &worker) ||
        !look_at_process(report->pid, &host)) {
        return;
    }
    check_worker_user(&worker, &host);
    if (worker.capable || !worker.no_new_privileges) {
        weir_doctor_mend("warning", "look at the host's log", "workers have privileges");
    }
    if (!worker.filtered) {
        weir_doctor_mend("warning", "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER)",
                         "no system calls are refused to workers");
    } else {
        weir_doctor_ok("workers have %sprivileges, and system calls are refused to them",
                       worker.capable || !worker.no_new_privileges ? "" : "no ");
    }
}

/* nvidia-smi on the host shows workers: print whose programs they serve. */
static void map_workers(const struct weir_status_report *report)
{
    for (size_t i = 0; i < report->n_workers; i++) {
        char programs[256];
        char share[48] = "";
        if (report->workers[i].sm_share_pct) {
            snprintf(share, sizeof share, " with %u %% of the multiprocessors",
                     report->workers[i].sm_share_pct);
        }
        if (report->workers[i].pid) {
            weir_doctor_ok(
                "process %llu in the host's nvidia-smi is a worker%s%s%s: %s",
                (unsigned long long)report->workers[i].pid,
                report->workers[i].tenant[0] ? " of tenant " : "", report->workers[i].tenant, share,
                weir_worker_programs(report, &report->workers[i], programs, sizeof programs));
        }
    }
}

/* The host keeps running when it cannot open one of these services. */
static void check_extras(const struct weir_status_report *report)
{
    for (size_t i = 0; i < report->n_extras; i++) {
        const struct weir_status_extra *e = &report->extras[i];
        if (!e->up) {
            weir_doctor_mend(
                "warning",
                "mend that, or ask for something else in weir.toml: the host tries again",
                "%s does not work: %s", e->name, e->why);
        }
    }
}

/* Quotas reserve nothing, so their sum may exceed the device's memory. */
static void check_memory(const struct weir_status_report *report)
{
    if (report->memory_promised_pct > 100) {
        weir_doctor_mend(
            "warning", "lower memory of tenants (weir tenant list), if each must get its own",
            "the memory quotas promise %u %% of a GPU's memory: who asks late may get none",
            report->memory_promised_pct);
    }
}

/* Without admin.sock a host still serves programs, but no command can reach it. A container has
 * neither of the two sockets. */
static void check_admin(const char *run_dir, enum weir_status status)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/" WEIR_CONTROL_NEW_SOCKET,
             run_dir ? run_dir : weir_control_default_run_dir());
    if (status == WEIR_ERR_NOT_FOUND && access(path, F_OK) == 0) {
        weir_doctor_mend("problem", "systemctl reload weir",
                         "nobody listens at the host's admin.sock: commands cannot ask it");
    }
}

/* Somebody may have replaced or removed the host's program file since the host started. */
static void check_program(const struct weir_status_report *report)
{
    char proc[40], exe[PATH_MAX];
    snprintf(proc, sizeof proc, "/proc/%llu/exe", (unsigned long long)report->pid);
    ssize_t n = readlink(proc, exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    char *gone = strstr(exe, " (deleted)");
    if (!gone || strcmp(report->version, WEIR_VERSION) != 0) {
        return; /* check_version() has already reported another version */
    }
    *gone = 0;
    bool there = access(exe, X_OK) == 0;
    weir_doctor_mend(there ? "warning" : "problem",
                     there ? "weir restart, which ends no program"
                           : "install it anew: the host goes on, and cannot start again",
                     "the host's program %s was %s", exe, there ? "replaced" : "removed");
}

/* An upgrade does not restart a host that programs use. */
static void check_version(const struct weir_status_report *report)
{
    bool same = weir_speaks_same(report);
    if (strcmp(report->version, WEIR_VERSION) != 0 || !same) {
        weir_doctor_mend(same ? "warning" : "problem", "weir restart, which ends no program",
                         "host runs %s, installed is %s%s", report->version, WEIR_VERSION,
                         same ? "" : ", which it does not understand: new programs are refused");
    }
    if (report->drained) {
        weir_doctor_mend("warning", "weir undrain",
                         "all tenants are drained: new programs are refused");
    }
    for (size_t i = 0; !report->drained && i < report->n_tenants; i++) {
        if (report->tenants[i].drained) {
            weir_doctor_mend_at("warning", "weir undrain", report->tenants[i].name,
                                "tenant %s is drained: its new programs are refused",
                                report->tenants[i].name);
        }
    }
}

/* Returns the host's address for the trial of a program; NULL: there is no host. */
static const char *check_host(const char *run_dir, const char *url, char room[PATH_MAX])
{
    static const char *const of_machines[] = {"devdax://", "ivshmem://", "vsock://"};
    for (size_t i = 0; i < WEIR_COUNT(of_machines); i++) {
        if (strncmp(url, of_machines[i], strlen(of_machines[i])) == 0) {
            weir_doctor_ok("host: this is a virtual machine's guest, and the way is %s", url);
            print_routes(url);
            return url;
        }
    }
    if (strncmp(url, "tcp://", 6) == 0) {
        weir_doctor_ok("remote host: %s", url);
        return url;
    }
    struct weir_status_report *report;
    enum weir_status status = weir_control_status(run_dir, &report);
    if (status == WEIR_OK) {
        weir_doctor_ok("host: pid %llu, version %s, %zu tenant%s, %zu worker%s",
                       (unsigned long long)report->pid, report->version, report->n_tenants,
                       report->n_tenants == 1 ? "" : "s", report->n_workers,
                       report->n_workers == 1 ? "" : "s");
        check_version(report);
        check_program(report);
        check_workers(report);
        map_workers(report);
        check_memory(report);
        check_extras(report);
#ifndef WEIR_GUEST_TOOL
        weir_doctor_host(report);
#endif
        /* A drained host would refuse the trial of a program, too. */
        url = report->drained ? NULL : tenant_url(run_dir, report, url, room);
        weir_status_report_destroy(report);
        return url;
    }
    if (status == WEIR_ERR_STOPPED || status == WEIR_ERR_TIMED_OUT) {
        weir_doctor_mend("problem",
                         "let it go on (kill -CONT), or restart it: systemctl restart weir",
                         "the host does not answer: %s", weir_status_text(status));
        return NULL;
    }
    const char *path = url + (strncmp(url, "ipc://", 6) == 0 ? 6 : 0);
    int reason = access(path, R_OK | W_OK) == 0 ? 0 : errno;
    if (reason == 0 && weir_doctor_is_served(path, SOCK_SEQPACKET)) {
        weir_doctor_ok("host: socket %s (its status is not for this user)", path);
        check_admin(run_dir, status);
        return url;
    }
    if (status == WEIR_ERR_DENIED && reason == ENOENT) {
        weir_doctor_mend(
            "problem", "run weir doctor as root, or try a tenant: weir run --tenant NAME",
            "the host here has no tenant 'default', and this user may not ask it for others");
        return NULL;
    }
    reason = reason == 0 ? ECONNREFUSED : reason;
    weir_doctor_mend("problem",
                     reason == EACCES
                         ? "add this user to the socket's group, or set socket_mode in weir.toml"
                         : "start it: weir serve, or systemctl start weir",
                     "no host at %s: %s", path, strerror(reason));
#ifndef WEIR_GUEST_TOOL
    weir_doctor_no_host(run_dir);
#endif
    if (!run_dir) {
        print_routes(url);
    }
    return NULL;
}

/* Runs in the child and makes the calls that programs make first. The exit status is the first
 * CUresult that is not 0. */
static int probe_guest(const char *library, const char *url)
{
    setenv("WEIR_HOST", url, 1);
    setenv("WEIR_LOG", "error", 0);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "           %s\n", dlerror());
        return 255;
    }
    CUresult (*init)(unsigned int);
    CUresult (*count)(int *);
    CUresult (*name)(char *, int, CUdevice);
    CUresult (*memory)(size_t *, CUdevice);
    *(void **)&init = dlsym(handle, "cuInit");
    *(void **)&count = dlsym(handle, "cuDeviceGetCount");
    *(void **)&name = dlsym(handle, "cuDeviceGetName");
    *(void **)&memory = dlsym(handle, "cuDeviceTotalMem_v2");
    if (!init || !count || !name || !memory) {
        return 255;
    }
    uint64_t start_ns = weir_clock_now_ns();
    CUresult result = init(0);
    double took_ms = (double)(weir_clock_now_ns() - start_ns) / 1e6;
    int n = 0;
    WEIR_THEN(result, count(&n));
    for (int i = 0; result == CUDA_SUCCESS && i < n; i++) {
        char device[128] = "";
        size_t bytes = 0;
        result = name(device, sizeof(device), i);
        WEIR_THEN(result, memory(&bytes, i));
        if (result == CUDA_SUCCESS && i == 0) {
            weir_doctor_ok("a program here sees: %s, %zu MiB (cuInit took %.1f ms)", device,
                           bytes >> 20, took_ms);
        } else if (result == CUDA_SUCCESS) {
            weir_doctor_ok("and device %d: %s, %zu MiB", i, device, bytes >> 20);
        }
    }
    fflush(stdout);
    return (int)result;
}

static void check_guest(const char *url)
{
    char folder[PATH_MAX - 32];
    char library[PATH_MAX];
    if (!weir_path_guest_lib(folder, sizeof(folder))) {
        return;
    }
    snprintf(library, sizeof(library), "%s/libcuda.so.1", folder);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        _exit(probe_guest(library, url));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) {
        weir_doctor_mend("problem", "look at the limits on processes", "cannot start a process: %s",
                         strerror(errno));
    } else if (WIFSIGNALED(status)) {
        weir_doctor_mend("problem", "install Weir anew; if that does not help, please report it",
                         "the guest library crashed");
    } else if (WEXITSTATUS(status) == 255) {
        weir_doctor_mend("problem", "use the library of this installation",
                         "the guest library does not load");
    } else if (WEXITSTATUS(status)) {
        weir_doctor_mend("problem", "see the line above and the host's log",
                         "a program here gets CUDA error %d from the host", WEXITSTATUS(status));
    }
}

int weir_cmd_doctor(int argc, char **argv)
{
    const char *run_dir = NULL;
    bool json = false;
    const struct weir_option options[] = {
        {"json", NULL, "one JSON object a line, a check each", NULL, &json},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS]",
                            "Look at what Weir needs and say how to mend what is missing.", options,
                            &first, &exit_status)) {
        return exit_status;
    }
    if (json) {
        weir_doctor_use_json();
    }
    char buffer[PATH_MAX];
    const char *url = host_url(run_dir, buffer, sizeof(buffer));
    check_kernel();
    check_limits();
    bool loads = check_files();
    check_driver();
    char tenant[PATH_MAX];
    url = check_host(run_dir, url, tenant);
    if (url && loads) {
        check_guest(url);
    }
    return weir_doctor_end();
}

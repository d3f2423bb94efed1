/*
 * Checks what users' programs need on the machine: the library, the run directory, the sockets.
 * Each is tried as the users who need it: the user that a tenant names, the members of its socket's
 * group, or anybody, as the socket's mode says.
 */
#include "container/edits.h"
#include "host_backend/config/config.h"
#include "tools/command.h"
#include "tools/doctor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define EYES_MAX 16 /* different users for whom the library is tried */

struct view {
    const struct weir_status_report *report;
    const struct weir_host_config *config;
    uid_t host; /* who runs the host */
    struct weir_eyes eyes[EYES_MAX];
    size_t n_eyes;
    size_t n_found; /* problems with sockets */
};

static void add_eyes(struct view *view, const struct weir_eyes *eyes)
{
    for (size_t i = 0; i < view->n_eyes; i++) {
        if (view->eyes[i].uid == eyes->uid && view->eyes[i].gid == eyes->gid) {
            return;
        }
    }
    if (view->n_eyes < EYES_MAX) {
        view->eyes[view->n_eyes++] = *eyes;
    }
}

/* May these users do it? If not, report which users, and which folder keeps them out. */
static bool is_open(const struct weir_eyes *eyes, const char *path, const char *what)
{
    char closed[PATH_MAX];
    struct stat info;
    int error = weir_eyes_access(eyes, path, R_OK | W_OK, closed);
    if (error == 0) {
        return true;
    }
    if (closed[0] && stat(closed, &info) == 0) {
        weir_doctor_mend_at("problem", "chmod a+x", closed,
                            "%s: %s cannot pass %s (mode %o), so they cannot reach %s", what,
                            eyes->whose, closed, info.st_mode & 07777, path);
    } else {
        weir_doctor_mend("problem", "systemctl restart weir", "%s: %s may not use %s: %s", what,
                         eyes->whose, path, strerror(error));
    }
    return false;
}

/*
 * Check a tenant's socket, or the one that gives shares on demand. @param user its owner by
 * weir.toml, or "". @param mode mode that the host gives a socket without an owner.
 */
static bool check_socket(struct view *view, const char *path, const char *what, const char *user,
                         mode_t mode)
{
    struct weir_eyes eyes;
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISSOCK(info.st_mode)) {
        weir_doctor_mend("problem", "systemctl reload weir", "%s: its socket %s is gone: %s", what,
                         path, strerror(errno == ENOENT ? ENOENT : ENOTSOCK));
        return false;
    }
    if (!weir_doctor_is_served(path, SOCK_SEQPACKET)) {
        weir_doctor_mend("problem", "systemctl restart weir", "%s: nobody listens at %s", what,
                         path);
        return false;
    }
    bool owned = info.st_uid != view->host;
    mode = owned ? 0600 : mode;
    if (*user) {
        bool known = weir_eyes_of(user, &eyes);
        if (!known || eyes.uid != info.st_uid) {
            weir_doctor_mend("problem", "systemctl restart weir",
                             known ? "%s: %s does not belong to user %s"
                                   : "%s: the user of %s, %s, is not known here",
                             what, path, user);
            return false;
        }
    }
    if ((info.st_mode & mode) != mode) {
        weir_doctor_mend_at(
            "problem", mode == 0600 ? "chmod 600" : "systemctl restart weir, or chmod u+rw,g+rw",
            path, "%s: %s has mode %o instead of %o", what, path, info.st_mode & 0777, mode);
        return false;
    }
    if (owned) {
        char number[16];
        snprintf(number, sizeof number, "%u", info.st_uid);
        if (!weir_eyes_of(*user ? user : number, &eyes)) {
            return true;
        }
    } else if ((mode & 06) == 06) {
        weir_eyes_of_anybody(0, &eyes);
    } else if ((mode & 060) == 060 && info.st_gid != 0) {
        weir_eyes_of_anybody(info.st_gid, &eyes);
    } else {
        return true; /* it is the host's user's alone */
    }
    add_eyes(view, &eyes);
    return is_open(&eyes, path, what);
}

/* Check the folder itself, which all may enter. Those above it are checked for each user. */
static bool check_folder(const char *path, mode_t needs, const char *what, const char *remedy)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        weir_doctor_mend("problem", "systemctl reload weir", "%s %s is gone: %s", what, path,
                         strerror(errno));
    } else if ((info.st_mode & needs) != needs) {
        weir_doctor_mend_at("problem", remedy, path,
                            "%s %s is closed (mode %o): programs of users get 'permission denied'",
                            what, path, info.st_mode & 07777);
    } else {
        return true;
    }
    return false;
}

static void check_tenants(struct view *view)
{
    const struct weir_status_report *report = view->report;
    bool good = true;
    size_t n = 0;
    for (size_t i = 0; i < report->n_tenants; i++) {
        const char *tenant = report->tenants[i].name;
        char path[PATH_MAX], what[96];
        if (strcmp(report->tenants[i].source, WEIR_CONTROL_ON_DEMAND) == 0) {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s.sock", report->run_dir, tenant);
        snprintf(what, sizeof what, "tenant %s", tenant);
        good = check_socket(view, path, what, weir_config_user_of(view->config, tenant),
                            (mode_t)view->config->socket_mode) &&
               good;
        n++;
    }
    if (good && n != 0) {
        weir_doctor_ok("sockets of %zu tenant%s: there, and open to whom they are for", n,
                       n == 1 ? "" : "s");
    }
}

static void check_shares(struct view *view)
{
    char path[PATH_MAX];
    if (view->config->demand.per_user == 0) {
        return;
    }
    snprintf(path, sizeof path, "%s/" WEIR_CONTROL_NEW_SOCKET, view->report->run_dir);
    (void)check_socket(view, path, "shares on demand", "",
                       (mode_t)view->config->demand.socket_mode);
    snprintf(path, sizeof path, "%s/" WEIR_CONTAINER_SHARES, view->report->run_dir);
    if (check_folder(path, 0711, "the folder of shares", "chmod 711")) {
        snprintf(path, sizeof path, "%s/" WEIR_CONTAINER_SHARES "/none", view->report->run_dir);
        (void)check_folder(path, 0755, "the folder for the device new,", "chmod 755");
    }
}

/* Check the sockets to which QEMU connects, as the user that QEMU runs as. The check does not
 * connect: the host would take it for a virtual machine. */
static void check_machines(struct view *view)
{
    const struct weir_status_report *report = view->report;
    char path[PATH_MAX];
    struct weir_eyes eyes;
    struct stat info;
    if (view->config->vm_region_bytes == 0) {
        return;
    }
    snprintf(path, sizeof path, "%s/vm", report->run_dir);
    if (!check_folder(path, 0711, "the folder of machines' sockets", "chmod 711")) {
        return;
    }
    for (size_t i = 0; i < report->n_tenants; i++) {
        const char *tenant = report->tenants[i].name;
        char number[16], what[128];
        snprintf(path, sizeof path, "%s/vm/%s.sock", report->run_dir, tenant);
        snprintf(what, sizeof what, "virtual machines of tenant %s", tenant);
        if (strcmp(report->tenants[i].source, WEIR_CONTROL_ON_DEMAND) == 0) {
            continue;
        }
        if (lstat(path, &info) != 0) {
            weir_doctor_mend("problem", "systemctl reload weir", "%s: the socket %s is gone: %s",
                             what, path, strerror(errno));
            continue;
        }
        snprintf(number, sizeof number, "%u", info.st_uid);
        if ((info.st_mode & 0600) != 0600) {
            weir_doctor_mend_at("problem", "chmod 600", path, "%s: %s has mode %o", what, path,
                                info.st_mode & 0777);
        } else if (info.st_uid != view->host && weir_eyes_of(number, &eyes)) {
            (void)is_open(&eyes, path, what);
        }
    }
}

/* Can all users load the library? If only root runs programs, a failure is a warning. */
static void check_library(struct view *view)
{
    static const char *const files[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
    char folder[PATH_MAX - 32], path[PATH_MAX], why[400];
    struct weir_eyes anybody;
    bool has_users = view->n_eyes != 0 || view->config->cdi[0] != 0 ||
                     strcmp(view->report->run_dir, WEIR_CONTAINER_RUN_DIR) == 0;
    if (!weir_path_guest_lib(folder, sizeof folder)) {
        return;
    }
    weir_eyes_of_anybody(0, &anybody); /* containers may run their programs as any user */
    add_eyes(view, &anybody);
    for (size_t i = 0; i < view->n_eyes; i++) {
        for (size_t k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%s/%s", folder, files[k]);
            if (access(path, F_OK) == 0 && !weir_eyes_load(&view->eyes[i], path, why, sizeof why)) {
                weir_eyes_load_fails(has_users ? "problem" : "warning", &view->eyes[i], path, why);
            }
        }
    }
}

/* May users' programs have managed memory that migrates (docs/design/managed.md)? */
static void check_managed(const struct view *view)
{
    FILE *setting = fopen("/proc/sys/vm/unprivileged_userfaultfd", "re");
    bool for_all = setting && fgetc(setting) == '1';
    char closed[PATH_MAX];
    if (setting) {
        fclose(setting);
    }
    for (size_t i = 0; i < view->n_eyes && !for_all; i++) {
        if (view->eyes[i].uid != 0 &&
            weir_eyes_access(&view->eyes[i], "/dev/userfaultfd", R_OK | W_OK, closed) != 0) {
            weir_doctor_ok("managed memory (cudaMallocManaged) of %s stays on the host, where "
                           "kernels are slower with it: they may not open /dev/userfaultfd",
                           view->eyes[i].whose);
        }
    }
}

void weir_doctor_places(const struct weir_status_report *report,
                        const struct weir_host_config *config)
{
    struct view *view = calloc(1, sizeof *view);
    struct stat info;
    char proc[40];
    if (!view) {
        return;
    }
    snprintf(proc, sizeof proc, "/proc/%llu", (unsigned long long)report->pid);
    view->report = report;
    view->config = config;
    view->host = stat(proc, &info) == 0 ? info.st_uid : geteuid();
    bool open =
        view->host != 0 || check_folder(report->run_dir, 0711, "the run directory", "chmod 711");
    if (open) {
        check_tenants(view);
        check_shares(view);
        check_machines(view);
    }
    check_library(view);
    check_managed(view);
    free(view);
}

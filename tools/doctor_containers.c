/*
 * Checks what containers need of a host: a current CDI file where engines look, a hook that engines
 * can execute, and each tenant's folder with its socket.
 *
 * The CDI file is compared with what the host would write now. Differences that people can
 * understand are reported one by one, the rest as one.
 */
#include "container/cdi.h"
#include "host_backend/config/config.h"
#include "tools/cdi_file.h"
#include "tools/command.h"
#include "tools/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (4u << 20)
#define HOOK_S   5

static const char *const engines_look[] = {"/etc/cdi", "/var/run/cdi", "/run/cdi", NULL};

/* The whole text of a file; to be freed. NULL: see errno. */
static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = file ? calloc(1, FILE_MAX) : NULL;
    if (text) {
        (void)!fread(text, 1, FILE_MAX - 1, file);
    }
    if (file) {
        fclose(file);
    }
    return text;
}

/* Find the host's CDI file: its command line wins. false: it serves no containers. */
static bool find_file(const struct weir_status_report *report,
                      const struct weir_host_config *config, char path[PATH_MAX])
{
    char proc[48], line[8192];
    snprintf(proc, sizeof proc, "/proc/%llu/cmdline", (unsigned long long)report->pid);
    FILE *file = fopen(proc, "re");
    size_t n = file ? fread(line, 1, sizeof line - 2, file) : 0;
    line[n] = line[n + 1] = 0;
    if (file) {
        fclose(file);
    }
    snprintf(path, PATH_MAX, "%s", config->cdi);
    for (const char *word = line; word < line + n; word += strlen(word) + 1) {
        if (strncmp(word, "--cdi=", 6) == 0) {
            snprintf(path, PATH_MAX, "%s", word + 6);
        } else if (strcmp(word, "--cdi") == 0) {
            snprintf(path, PATH_MAX, "%s", word + sizeof "--cdi");
        }
    }
    if (!path[0] && strcmp(report->run_dir, WEIR_CONTAINER_RUN_DIR) == 0) {
        snprintf(path, PATH_MAX, "%s", WEIR_CDI_DEFAULT_PATH);
    }
    return path[0] && strcmp(path, "none") != 0;
}

/* Read a key's next value from a file that the host wrote; NULL: there is none left. */
static const char *next_value(const char *at, const char *key, char value[PATH_MAX])
{
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\": \"", key);
    at = strstr(at, quoted);
    if (at) {
        at += strlen(quoted);
        snprintf(value, PATH_MAX, "%.*s", (int)strcspn(at, "\""), at);
    }
    return at;
}

/* Do all files exist that the CDI file mounts or executes? */
static size_t check_sources(const char *text, const char *path)
{
    static const char *const keys[] = {"hostPath", "path"};
    size_t n = 0;
    for (size_t k = 0; k < 2; k++) {
        char value[PATH_MAX], before[PATH_MAX] = "";
        for (const char *at = text; (at = next_value(at, keys[k], value));) {
            if (strcmp(value, before) != 0 && access(value, F_OK) != 0) {
                weir_doctor_mend(
                    "problem", "systemctl reload weir",
                    "containers: %s names %s, which is not there: it may be of another "
                    "version of Weir",
                    path, value);
                n++;
            }
            memcpy(before, value, sizeof before);
        }
    }
    return n;
}

static bool is_tenant(const struct weir_status_report *report, const char *name)
{
    for (size_t i = 0; i < report->n_tenants; i++) {
        if (strcmp(report->tenants[i].name, name) == 0 &&
            strcmp(report->tenants[i].source, WEIR_CONTROL_ON_DEMAND) != 0) {
            return true;
        }
    }
    return false;
}

/* Are its devices the tenants? */
static size_t check_devices(const struct weir_status_report *report, const char *text,
                            const char *path)
{
    char value[PATH_MAX];
    size_t n = 0;
    for (const char *at = text; (at = next_value(at, "name", value));) {
        if (strcmp(value, WEIR_CDI_NEW) != 0 && strcmp(value, WEIR_CDI_ALL) != 0 &&
            !is_tenant(report, value)) {
            weir_doctor_mend("problem", "systemctl reload weir",
                             "containers: %s has a device %s, and there is no such tenant", path,
                             value);
            n++;
        }
    }
    for (size_t i = 0; i < report->n_tenants; i++) {
        const char *name = report->tenants[i].name;
        char device[96];
        snprintf(device, sizeof device, "\"name\": \"%s\"", name);
        if (is_tenant(report, name) && weir_cdi_name_ok(name) && !strstr(text, device)) {
            weir_doctor_mend("problem", "systemctl reload weir",
                             "containers: %s has no device for tenant %s", path, name);
            n++;
        }
    }
    return n;
}

static void check_file(const struct weir_status_report *report, const char *path)
{
    char closed[PATH_MAX], folder[PATH_MAX], lib[PATH_MAX];
    char *text = read_file(path), *wanted = NULL;
    struct weir_eyes anybody;
    size_t bytes = 0, n = 0;
    if (!text) {
        weir_doctor_mend(
            "problem", "systemctl reload weir",
            "containers: the CDI file %s cannot be read: %s; podman and docker know no "
            "weir.dev/gpu",
            path, strerror(errno));
        return;
    }
    weir_eyes_of_anybody(0, &anybody);
    if (weir_eyes_access(&anybody, path, R_OK, closed) != 0) {
        weir_doctor_mend_at("problem", closed[0] ? "chmod a+x" : "chmod a+r",
                            closed[0] ? closed : path,
                            "containers: %s cannot read %s, so podman without root knows no "
                            "weir.dev/gpu",
                            anybody.whose, path);
        n++;
    }
    n += check_sources(text, path) + check_devices(report, text, path);
    FILE *out = open_memstream(&wanted, &bytes);
    enum weir_status status = out ? weir_cdi_generate(report, out, NULL, false) : WEIR_ERR_IO;
    if (out) {
        fclose(out);
    }
    if (status == WEIR_OK && n == 0 && strcmp(text, wanted) != 0) {
        bool ours = weir_path_guest_lib(folder, sizeof folder) && realpath(folder, lib) &&
                    strstr(text, lib);
        weir_doctor_mend(ours ? "problem" : "warning",
                         ours ? "systemctl reload weir"
                              : "run the weir doctor of the host's own installation",
                         "containers: %s is not what this installation writes: %s", path,
                         ours ? "changed, cut off, or of another version of Weir"
                              : "it names the library of another one");
    } else if (n == 0) {
        weir_doctor_ok("CDI file: %s", path);
    }
    free(wanted);
    free(text);
}

/* Find other files with the same devices: engines refuse a device that two files define. */
static void check_others(const char *path)
{
    char own[PATH_MAX], other[PATH_MAX];
    if (!realpath(path, own)) {
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        DIR *dir = opendir(engines_look[i]);
        const struct dirent *entry;
        while (dir && (entry = readdir(dir))) {
            char name[PATH_MAX], *text = NULL;
            const char *end = strrchr(entry->d_name, '.');
            snprintf(name, sizeof name, "%s/%s", engines_look[i], entry->d_name);
            if (end && (strcmp(end, ".json") == 0 || strcmp(end, ".yaml") == 0) &&
                realpath(name, other) && strcmp(own, other) != 0) {
                text = read_file(other);
            }
            if (text && strstr(text, WEIR_CDI_KIND)) {
                weir_doctor_mend_at("problem", "rm", name,
                                    "containers: %s has devices " WEIR_CDI_KIND
                                    ", too: engines take neither, or the wrong one",
                                    name);
            }
            free(text);
        }
        if (dir) {
            closedir(dir);
        }
    }
}

/* Do engines look into the file's folder, by default or by their configuration? */
static void check_place(const char *path)
{
    static const char *const settings[] = {"/etc/containers/containers.conf",
                                           "/usr/share/containers/containers.conf",
                                           "/etc/docker/daemon.json", NULL};
    char folder[PATH_MAX];
    bool known = false;
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    for (size_t i = 0; engines_look[i]; i++) {
        known |= strcmp(folder, engines_look[i]) == 0;
    }
    for (size_t i = 0; !known && settings[i]; i++) {
        char *text = read_file(settings[i]);
        known = text && strstr(text, folder);
        free(text);
    }
    if (!known) {
        weir_doctor_mend(
            "warning",
            "name it in cdi_spec_dirs of containers.conf, in cdi-spec-dirs of docker's "
            "daemon.json, or to podman --cdi-spec-dir",
            "containers: engines do not look into %s, where the CDI file is", folder);
    }
}

static void check_hook(void)
{
    char path[PATH_MAX], text[256];
    struct weir_eyes anybody;
    if (!weir_path_oci_hook(path, sizeof path)) {
        weir_doctor_way(
            "containers: weir-oci-hook is not installed: there is no device new, and of "
            "two devices the later wins");
        return;
    }
    const char *const argv[] = {path, NULL};
    weir_eyes_of_anybody(0, &anybody);
    /* Without arguments the hook complains and ends with 1. */
    int status = weir_doctor_run(&anybody, argv, HOOK_S, text, sizeof text);
    if (status != 1 && status != 126) {
        weir_doctor_mend_at("problem", "chmod a+rx, or install Weir whole:", path,
                            "containers do not start: %s cannot be executed by %s%s%s", path,
                            anybody.whose, text[0] ? ": " : "", text);
    }
}

/* Check the folder that is mounted into containers, which any user there must be able to use. */
static bool check_tenant(const struct weir_status_report *report, const char *tenant)
{
    char folder[PATH_MAX], path[PATH_MAX + 16];
    struct stat info, around;
    if (weir_container_folder(report->run_dir, tenant, folder, sizeof folder) != WEIR_OK) {
        return true;
    }
    snprintf(path, sizeof path, "%s/" WEIR_CONTAINER_SOCKET, folder);
    if (lstat(path, &info) != 0) {
        weir_doctor_mend("problem", "systemctl reload weir",
                         "containers of tenant %s: the socket %s is gone: %s", tenant, path,
                         strerror(errno));
        return false;
    }
    if (stat(folder, &around) != 0) {
        return true;
    }
    mode_t wanted = info.st_uid != around.st_uid ? 0600 : 0666; /* a tenant's user owns it alone */
    if ((info.st_mode & wanted) != wanted) {
        weir_doctor_mend_at(
            "problem", wanted == 0600 ? "chmod 600" : "chmod 666", path,
            "containers of tenant %s: the socket has mode %o, so users of containers "
            "cannot connect",
            tenant, info.st_mode & 0777);
        return false;
    }
    if ((around.st_mode & 0755) != 0755) {
        weir_doctor_mend_at(
            "problem", "chmod 755", folder,
            "containers of tenant %s: the folder has mode %o, so users of containers "
            "cannot pass",
            tenant, around.st_mode & 0777);
        return false;
    }
    bool served = weir_doctor_is_served(path, SOCK_SEQPACKET);
    if (!served) {
        weir_doctor_mend("problem", "systemctl restart weir",
                         "containers of tenant %s: nobody listens at %s", tenant, path);
    }
    return served;
}

static void check_folders(const struct weir_status_report *report,
                          const struct weir_host_config *config)
{
    mode_t wanted = 0700 | ((mode_t)config->socket_mode >> 1 & 011);
    char path[PATH_MAX];
    struct stat info;
    bool good = true;
    snprintf(path, sizeof path, "%s/" WEIR_CONTAINER_FOLDER, report->run_dir);
    if (stat(path, &info) != 0) {
        weir_doctor_mend("problem", "systemctl reload weir", "containers: %s is gone: %s", path,
                         strerror(errno));
        return;
    }
    if ((info.st_mode & wanted) != wanted) {
        weir_doctor_mend(
            "problem", "systemctl reload weir",
            "containers: %s is closed (mode %o instead of %o): those who may use tenants "
            "cannot give them to containers",
            path, info.st_mode & 0777, wanted);
        return;
    }
    for (size_t i = 0; i < report->n_tenants; i++) {
        const char *name = report->tenants[i].name;
        if (is_tenant(report, name) && weir_cdi_name_ok(name)) {
            good = check_tenant(report, name) && good;
        }
    }
    if (good) {
        weir_doctor_ok("containers: folders and sockets of tenants are there");
    }
}

void weir_doctor_containers(const struct weir_status_report *report,
                            const struct weir_host_config *config)
{
    char path[PATH_MAX];
    if (!find_file(report, config, path)) {
        return;
    }
    check_folders(report, config);
    check_file(report, path);
    check_others(path);
    check_place(path);
    check_hook();
}

/*
 * Containers: a second socket for each tenant, in a folder that is mounted into containers, and the
 * CDI file that says so.
 *
 *   <run_dir>/containers/                0710 or so (socket_mode): who may reach tenants' sockets
 *   <run_dir>/containers/A/              0755, mounted read-only at /run/weir of a container
 *   <run_dir>/containers/A/default.sock  0666
 *
 * Any user of a container, in whatever user namespace, must be able to connect, so the socket is
 * open to all; what guards it on the host is the folder above, which only the engine passes. Who
 * can reach it is the tenant: a container sees its own folder and no way out of it.
 *
 * Folders stay when the host stops: containers that have them mounted find the new socket there
 * when it comes back. Those of tenants that are gone are removed, also such that an earlier host
 * left.
 */
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/tenants.h"

#include "base/log.h"
#include "container/cdi.h"
#include "proto/wire/accept.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Path of the CDI file to write; NULL: containers are not served. */
static const char *cdi_path(const struct weir_supervisor *sup)
{
    if (sup->config.cdi[0] == 0) {
        return strcmp(sup->config.run_dir, WEIR_CONTAINER_RUN_DIR) == 0 ? WEIR_CDI_DEFAULT_PATH
                                                                        : NULL;
    }
    return strcmp(sup->config.cdi, "none") == 0 ? NULL : sup->config.cdi;
}

static bool is_served(const struct weir_sup_tenant *tenant)
{
    return tenant->used && !tenant->gone && tenant->source != WEIR_ORIGIN_DEMAND &&
           weir_cdi_name_ok(tenant->config.name);
}

static bool socket_path(const struct weir_supervisor *sup, const char *tenant, char path[108])
{
    char folder[PATH_MAX];
    int n;

    if (weir_container_folder(sup->config.run_dir, tenant, folder, sizeof folder) != WEIR_OK) {
        return false;
    }
    n = snprintf(path, 108, "%s/" WEIR_CONTAINER_SOCKET, folder);
    return n > 0 && n < 108;
}

static void close_socket(const struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    char path[108];

    if (tenant->container_fd < 0) {
        return;
    }
    close(tenant->container_fd);
    tenant->container_fd = -1;
    if (!sup->life.restarts && socket_path(sup, tenant->config.name, path)) {
        unlink(path);
    }
}

static bool make_folder(const char *path, mode_t mode)
{
    return (mkdir(path, mode) == 0 || errno == EEXIST) && chmod(path, mode) == 0;
}

static void open_socket(const struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    char folder[PATH_MAX], path[108];
    enum weir_status status = WEIR_ERR_IO;

    if (!socket_path(sup, tenant->config.name, path) ||
        weir_container_folder(sup->config.run_dir, tenant->config.name, folder, sizeof folder) !=
            WEIR_OK) {
        status = WEIR_ERR_TOO_BIG;
    } else if (make_folder(folder, 0755)) {
        status = weir_sup_listen_for(tenant, path, 0666, &tenant->container_fd);
    }
    if (status != WEIR_OK) {
        tenant->container_fd = -1;
        weir_log_error("supervisor: no socket for containers tenant=%s why=\"%s\"",
                       tenant->config.name, weir_status_text(status));
    }
}

/* Remove the folders of tenants that are not served (any more). */
static void sweep(struct weir_supervisor *sup, const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        bool kept = entry->d_name[0] == '.';
        char path[PATH_MAX + 512];

        for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
            kept |= is_served(&sup->tenants[i]) &&
                    strcmp(sup->tenants[i].config.name, entry->d_name) == 0;
        }
        if (!kept) {
            snprintf(path, sizeof path, "%s/%s/" WEIR_CONTAINER_SOCKET, folder, entry->d_name);
            unlink(path);
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            rmdir(path); /* fails if it has files that are not ours */
        }
    }
    if (dir) {
        closedir(dir);
    }
}

static void write_cdi(struct weir_supervisor *sup, const char *path)
{
    const char *names[WEIR_CONFIG_TENANTS_MAX];
    char run_dir[PATH_MAX];
    struct weir_container_edits *common = malloc(sizeof *common);
    struct weir_cdi_spec spec = {common, run_dir, names, 0, sup->params.oci_hook};
    enum weir_status status = WEIR_ERR_NO_MEMORY;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (is_served(&sup->tenants[i])) {
            names[spec.n_tenants++] = sup->tenants[i].config.name;
        }
    }
    if (!realpath(sup->config.run_dir, run_dir)) {
        run_dir[0] = 0; /* refused below */
    }
    if (common && !sup->params.guest_lib) {
        weir_sup_extra_fails(sup, WEIR_EXTRA_CONTAINERS,
                             "no CDI file, the guest's libcuda.so.1 is not to be found");
    } else if (common) {
        status =
            weir_container_edits_common(sup->params.guest_lib, WEIR_CONTAINER_NVIDIA_SMI, common);
        if (status == WEIR_OK) {
            status = weir_cdi_store(path, &spec);
        }
        if (status != WEIR_OK && (spec.n_tenants != 0 || spec.hook)) {
            weir_sup_extra_fails(sup, WEIR_EXTRA_CONTAINERS, "no CDI file '%.80s': %s", path,
                                 weir_status_text(status));
        } else {
            weir_sup_extra_works(sup, WEIR_EXTRA_CONTAINERS);
        }
    }
    free(common);
}

void weir_sup_containers_follow(struct weir_supervisor *sup)
{
    const char *path = cdi_path(sup);
    mode_t shared = (mode_t)sup->config.socket_mode >> 1 & 011; /* who may write may also pass */
    char folder[PATH_MAX], socket[108];

    if (!path) {
        return;
    }
    snprintf(folder, sizeof folder, "%s/" WEIR_CONTAINER_FOLDER, sup->config.run_dir);
    if (!make_folder(folder, 0700 | shared)) {
        weir_sup_extra_fails(sup, WEIR_EXTRA_CONTAINERS, "'%.80s': %s", folder, strerror(errno));
        return;
    }
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (tenant->used && !is_served(tenant)) {
            close_socket(sup, tenant);
            if (!tenant->gone && tenant->source != WEIR_ORIGIN_DEMAND) {
                weir_log_warn("supervisor: containers cannot be this tenant's, its name must begin "
                              "and end with a letter or digit tenant=%s",
                              tenant->config.name);
            }
            continue;
        }
        if (tenant->used && socket_path(sup, tenant->config.name, socket)) {
            (void)weir_sup_socket_lost(socket, &tenant->container_fd);
        }
        if (tenant->used && tenant->container_fd < 0) {
            open_socket(sup, tenant);
        }
    }
    sweep(sup, folder);
    write_cdi(sup, path);
}

void weir_sup_containers_close(struct weir_supervisor *sup)
{
    const char *path = cdi_path(sup);
    bool any = sup->demand.fd >= 0; /* if so, there was a device "new" */

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used) {
            any |= sup->tenants[i].container_fd >= 0;
            close_socket(sup, &sup->tenants[i]);
        }
    }
    if (path && any && !sup->life.restarts) {
        unlink(path);
    }
}

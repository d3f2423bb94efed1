/*
 * Containers: a second socket for each tenant, in a folder that is mounted into containers, and the
 * CDI file that describes the mount.
 *
 *   <run_dir>/containers/                0710 or so (socket_mode): who may reach tenants' sockets
 *   <run_dir>/containers/A/              0755, mounted read-only at /run/weir of a container
 *   <run_dir>/containers/A/default.sock  0666
 *
 *   <run_dir>/users/1000/ 0700 and an access list: this user and root may pass
 *   <run_dir>/users/1000/B/ as containers/A, of a tenant B that belongs to the user
 *   <run_dir>/containers/B a link to that folder, to find it by the name
 *
 * Any user of a container, in whatever user namespace, must be able to connect, so the socket is
 * open to all. On the host the parent folder protects it: a container engine that root runs may
 * enter it. If the tenant belongs to a user, so may that user's engine. Whoever can reach the
 * socket acts as the tenant: a container sees only its own folder.
 *
 * Folders stay when the host stops: containers that have them mounted find the new socket there
 * after a restart. Folders of removed tenants are removed, including those that an earlier host
 * left.
 */
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/tenants/tenants.h"

#include "base/log.h"
#include "container/cdi.h"
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
    return tenant->used && !tenant->gone && !weir_sup_is_of_user(tenant) &&
           weir_cdi_name_ok(tenant->config.name);
}

/* The folder that is mounted into the tenant's containers. @return false: its path is too long, or
 * there is no such user */
static bool folder_of(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                      char folder[PATH_MAX])
{
    uint32_t uid;

    if (!weir_sup_tenant_has_user(tenant)) {
        return weir_container_folder(sup->config.run_dir, tenant->config.name, folder, PATH_MAX) ==
               WEIR_OK;
    }
    int n = weir_sup_owner(&tenant->config, &uid) == WEIR_OK
                ? snprintf(folder, PATH_MAX, "%s/" WEIR_CONTAINER_USERS "/%u/%s",
                           sup->config.run_dir, uid, tenant->config.name)
                : -1;
    return n > 0 && n < PATH_MAX;
}

static bool socket_path(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                        char path[108])
{
    char folder[PATH_MAX];
    int n = folder_of(sup, tenant, folder)
                ? snprintf(path, 108, "%s/" WEIR_CONTAINER_SOCKET, folder)
                : -1;

    return n > 0 && n < 108;
}

static void close_socket(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    char path[108];

    if (tenant->container_fd < 0) {
        return;
    }
    close(tenant->container_fd);
    tenant->container_fd = -1;
    if (socket_path(sup, tenant, path)) {
        unlink(path);
        weir_book_listens(sup, path, -1);
    }
}

/* Remove a tenant's folder, or the link to it. Other files stay. */
static void remove_folder(const char *path)
{
    char socket[PATH_MAX + 1024];

    if (unlink(path) != 0 && (errno == EISDIR || errno == EPERM)) {
        snprintf(socket, sizeof socket, "%s/" WEIR_CONTAINER_SOCKET, path);
        (void)unlink(socket);
        (void)rmdir(path);
    }
}

static bool make_folder(const char *path, mode_t mode)
{
    return (mkdir(path, mode) == 0 || errno == EEXIST) && chmod(path, mode) == 0;
}

/* Make the parent folder of a user's tenant, and the link to the tenant's folder. */
static enum weir_status make_users_folder(const struct weir_supervisor *sup,
                                          const struct weir_sup_tenant *tenant)
{
    char path[PATH_MAX], link[PATH_MAX], to[PATH_MAX];
    uint32_t uid;

    enum weir_status status = weir_sup_owner(&tenant->config, &uid);
    if (status != WEIR_OK || weir_container_folder(sup->config.run_dir, tenant->config.name, link,
                                                   sizeof link) != WEIR_OK) {
        return status;
    }
    snprintf(path, sizeof path, "%s/" WEIR_CONTAINER_USERS, sup->config.run_dir);
    WEIR_FAIL_IF(!make_folder(path, 0711), WEIR_ERR_IO);
    snprintf(path, sizeof path, "%s/" WEIR_CONTAINER_USERS "/%u", sup->config.run_dir, uid);
    snprintf(to, sizeof to, "../" WEIR_CONTAINER_USERS "/%u/%s", uid, tenant->config.name);
    status = weir_sup_user_folder(path, uid);
    remove_folder(link); /* made when the tenant belonged to nobody, or to another user */
    return status == WEIR_OK && symlink(to, link) != 0 ? WEIR_ERR_IO : status;
}

static void open_socket(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    char folder[PATH_MAX], path[108];
    enum weir_status status = WEIR_ERR_TOO_BIG;

    if (socket_path(sup, tenant, path) && folder_of(sup, tenant, folder)) {
        if (weir_sup_tenant_has_user(tenant)) {
            status = make_users_folder(sup, tenant);
        } else {
            (void)unlink(folder); /* a link, if the tenant was a user's */
            status = WEIR_OK;
        }
        status = status == WEIR_OK && !make_folder(folder, 0755) ? WEIR_ERR_IO : status;
        status = status == WEIR_OK ? weir_sup_listen_kept(sup, path, 0666, &tenant->container_fd)
                                   : status;
    }
    if (status != WEIR_OK) {
        tenant->container_fd = -1;
        weir_log_error("supervisor: no socket for containers tenant=%s why=\"%s\"",
                       tenant->config.name, weir_status_text(status));
    }
}

/* Is this the entry of a served tenant? For a user's tenant that is a link, or the folder among
 * that user's. */
static bool is_entry_of(const struct weir_sup_tenant *tenant, const char *name, const char *user)
{
    uint32_t uid;
    bool owned = weir_sup_tenant_has_user(tenant);

    return is_served(tenant) && strcmp(tenant->config.name, name) == 0 &&
           (!user || (owned && weir_sup_owner(&tenant->config, &uid) == WEIR_OK &&
                      strtoul(user, NULL, 10) == uid));
}

/* Remove the folders of tenants that are not served. @param user whose folder it is; NULL: that of
 * all tenants */
static void sweep(struct weir_supervisor *sup, const char *folder, const char *user)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        bool kept = entry->d_name[0] == '.';
        char path[PATH_MAX + 512];

        for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
            kept |= is_entry_of(&sup->tenants[i], entry->d_name, user);
        }
        if (!kept) {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            remove_folder(path);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

static void sweep_users(struct weir_supervisor *sup)
{
    char users[PATH_MAX], path[PATH_MAX + 512];
    const struct dirent *entry;

    snprintf(users, sizeof users, "%s/" WEIR_CONTAINER_USERS, sup->config.run_dir);
    DIR *dir = opendir(users);
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", users, entry->d_name);
            sweep(sup, path, entry->d_name);
            (void)rmdir(path); /* fails unless it is empty */
        }
    }
    if (dir) {
        closedir(dir);
        (void)rmdir(users);
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
        WEIR_THEN(status, weir_cdi_store(path, &spec));
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
            if (!tenant->gone && !weir_sup_is_of_user(tenant)) {
                weir_log_warn("supervisor: containers cannot be this tenant's, its name must begin "
                              "and end with a letter or digit tenant=%s",
                              tenant->config.name);
            }
            continue;
        }
        if (tenant->used && socket_path(sup, tenant, socket)) {
            (void)weir_sup_socket_lost(socket, &tenant->container_fd);
        }
        if (tenant->used && tenant->container_fd < 0) {
            open_socket(sup, tenant);
        }
    }
    sweep(sup, folder, NULL);
    sweep_users(sup);
    write_cdi(sup, path);
}

void weir_sup_containers_close(struct weir_supervisor *sup)
{
    const char *path = cdi_path(sup);
    bool any = sup->demand.fd >= 0; /* then the device "new" was in the CDI file */

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used) {
            any |= sup->tenants[i].container_fd >= 0;
            close_socket(sup, &sup->tenants[i]);
        }
    }
    if (path && any) {
        unlink(path);
    }
}

/* Makes a tenant's user the owner of its sockets and files. */
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"

#include "proto/wire/accept.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

bool weir_sup_tenant_has_user(const struct weir_sup_tenant *tenant)
{
    return tenant->config.user[0] != 0;
}

enum weir_status weir_sup_owner(const struct weir_tenant_config *config, uint32_t *ret_uid)
{
    return weir_user_id(config->user, ret_uid);
}

void weir_sup_own(struct weir_tenant_config *config, uint32_t uid)
{
    snprintf(config->user, sizeof config->user, "%u", uid);
}

enum weir_status weir_sup_give_to_user(const struct weir_sup_tenant *tenant, const char *path)
{
    uint32_t uid;
    enum weir_status status = weir_sup_owner(&tenant->config, &uid);

    return status == WEIR_OK && chown(path, uid, (gid_t)-1) != 0 ? WEIR_ERR_DENIED : status;
}

enum weir_status weir_sup_listen_for(const struct weir_sup_tenant *tenant, const char *path,
                                     mode_t mode, int *ret_fd)
{
    bool owned = weir_sup_tenant_has_user(tenant);
    enum weir_status status = weir_listen_unix(path, owned ? 0600 : mode, ret_fd);

    if (status != WEIR_OK || !owned) {
        return status;
    }
    status = weir_sup_give_to_user(tenant, path);
    if (status != WEIR_OK) {
        close(*ret_fd);
        unlink(path);
        *ret_fd = -1;
    }
    return status;
}

/* Let one user pass a folder, by an access list in the kernel's form (linux/posix_acl_xattr.h). The
 * machine's byte order is little-endian, as the list's is. The owner may do everything, the user
 * may pass, nobody else has rights. */
static bool let_pass(const char *path, uint32_t uid)
{
    const struct {
        uint32_t version;
        struct {
            uint16_t tag, rights;
            uint32_t id;
        } row[5];
    } list = {2,
              {{0x01, 7, UINT32_MAX},
               {0x02, 1, uid},
               {0x04, 0, UINT32_MAX},
               {0x10, 1, UINT32_MAX},
               {0x20, 0, UINT32_MAX}}};

    return setxattr(path, "system.posix_acl_access", &list, sizeof list, 0) == 0;
}

enum weir_status weir_sup_user_folder(const char *path, uint32_t uid)
{
    /* An existing folder keeps its mode: chmod() would also change its access list. */
    WEIR_FAIL_IF(mkdir(path, 0700) == 0 ? chmod(path, 0700) != 0 : errno != EEXIST, WEIR_ERR_IO);
    return uid == geteuid() || let_pass(path, uid)
               ? WEIR_OK
               : WEIR_ERR_DENIED; /* a file system without access lists */
}

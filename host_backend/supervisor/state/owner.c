/* Makes a tenant's user the owner of its sockets and files. */
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"

#include "proto/wire/accept.h"
#include <stdio.h>
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

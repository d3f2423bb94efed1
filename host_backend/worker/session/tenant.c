/* What others read of a tenant, and charge to it: see tenant.h. */
#include "host_backend/worker/session/tenant.h"
#include "host_backend/worker/session/session.h"

#include "base/log.h"

struct weir_tenant_config weir_tenant_settings(struct weir_tenant *tenant)
{
    struct weir_tenant_config config;

    (void)weir_sessions_lock(tenant->worker);
    config = tenant->config;
    weir_sessions_unlock(tenant->worker);
    return config;
}

void weir_tenant_refused(struct weir_tenant *tenant, enum weir_account_item item)
{
    weir_log_warn("tenant: it may have no more %s tenant=%s used=%llu",
                  weir_account_item_text(item), tenant->name,
                  (unsigned long long)weir_account_used(&tenant->account, item));
}

CUresult weir_tenant_charge(struct weir_tenant *tenant, const struct weir_amounts *amounts)
{
    enum weir_account_item refused;

    if (weir_account_charge_all(&tenant->account, amounts, &refused)) {
        return CUDA_SUCCESS;
    }
    if (refused != WEIR_ACCOUNT_DEVICE_MEMORY && refused != WEIR_ACCOUNT_PINNED_MEMORY) {
        weir_tenant_refused(tenant, refused);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

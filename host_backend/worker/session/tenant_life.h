/* Adds, changes and removes a tenant in a worker. tenant.h has its type. */
#pragma once

#include "host_backend/worker/state/tenant.h"

struct weir_tenant *weir_tenant_create(struct weir_worker *worker, uint32_t index,
                                       const struct weir_tenant_config *config);
/**
 * Let the tenant charge a page that its other workers share, and list its programs there.
 * @param page   a mapping, taken.
 * @param place  of this worker in the page.
 * @thread main, before it has a session
 */
void weir_tenant_share_account(struct weir_tenant *tenant, struct weir_account_page *page,
                               uint32_t place);
/** Apply new settings; the name stays. @thread main */
void weir_tenant_configure(struct weir_tenant *tenant, const struct weir_tenant_config *config);
/** No session may be left. */
void weir_tenant_destroy(struct weir_tenant *tenant);

/*
 * Divides memory of the machine among all tenants.
 *
 * Pinned memory cannot be swapped out, and other memory of workers is charged to no container. So
 * the sum of all tenants is bounded, and each holder (users.h) is guaranteed a part. A tenant's
 * workers charge its page (base/account.h), where the supervisor writes the current grant. A worker
 * that needs more asks. When too little is left, the supervisor takes back unused grants from all
 * pages.
 *
 * The supervisor does not trust a tenant's page, since workers can write there. It only believes
 * that the tenant uses less than its grant.
 */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/tenants/tenants.h"

#include "base/clock.h"

#include <limits.h>
#include <unistd.h>

#define SLACK_BYTES (UINT64_C(64) << 20) /* granted in addition, so that few ask again soon */

/* The most memory of all tenants together: a quarter of the machine is reserved for other uses. */
static uint64_t total_of(enum weir_account_item item)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    return item == WEIR_ACCOUNT_PINNED_MEMORY ? machine / 2 : machine / 4;
}

static bool grant(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                  enum weir_account_item item, uint64_t bytes)
{
    uint64_t granted[WEIR_HOLDERS_MAX];
    const struct weir_supply supply = {
        .total = total_of(item), .used = granted, .n = WEIR_HOLDERS_MAX};

    weir_sup_holders(sup, granted);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];
        uint64_t *own = &granted[weir_sup_holder(t)];

        if (t->used && t->account) { /* tenants that are being removed count, too */
            *own = (*own == WEIR_SUPPLY_NOBODY ? 0 : *own) + t->granted[item];
        }
    }
    WEIR_FAIL_IF(!weir_supply_allows(&supply, weir_sup_holder(tenant), bytes), false);
    tenant->granted[item] += bytes;
    atomic_store(&tenant->account->granted[item], tenant->granted[item]);
    return true;
}

static void take_back(struct weir_supervisor *sup, enum weir_account_item item)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *t = &sup->tenants[i];

        if (t->used && t->account) {
            t->granted[item] = weir_account_page_trim(t->account, item, t->granted[item]);
        }
    }
}

/* How much the tenant's grant must grow for this amount. 0: not at all. */
static uint64_t lack(const struct weir_sup_tenant *tenant, enum weir_account_item item,
                     uint64_t amount)
{
    uint64_t used = atomic_load(&tenant->account->used[item]), granted = tenant->granted[item];

    used = WEIR_MIN(used, granted);
    return amount > granted - used ? amount - (granted - used) : 0;
}

void weir_sup_grant(struct weir_supervisor *sup, int worker, const struct weir_link_more *more)
{
    struct weir_sup_tenant *tenant = &sup->tenants[more->tenant_index];
    enum weir_account_item item = (enum weir_account_item)more->item;

    if (!tenant->account || more->item >= WEIR_ACCOUNT_COUNT || !weir_account_is_divided(item)) {
        return;
    }
    uint64_t bytes = lack(tenant, item, more->amount);
    if (bytes != 0 && more->amount < total_of(item) &&
        !grant(sup, tenant, item, bytes + SLACK_BYTES) && !grant(sup, tenant, item, bytes)) {
        take_back(sup, item);
        (void)grant(sup, tenant, item, lack(tenant, item, more->amount));
    }
    atomic_uint *answered = &tenant->account->answered[worker];
    atomic_store(answered, more->question);
    weir_futex_wake((uint32_t *)(void *)answered, INT_MAX);
}

/* See account.h. All accesses are relaxed: a count publishes nothing but itself. */
#include "base/account.h"

#include <assert.h>

void weir_account_limit_set(struct weir_account *account, enum weir_account_item item,
                            uint64_t limit)
{
    atomic_store_explicit(&account->limit[item], limit, memory_order_relaxed);
}

bool weir_account_charge(struct weir_account *account, enum weir_account_item item, uint64_t amount)
{
    uint64_t limit = weir_account_limit(account, item);
    uint_fast64_t used = weir_account_used(account, item);

    do {
        if (used > limit || amount > limit - used) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&account->used[item], &used, used + amount,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void weir_account_release(struct weir_account *account, enum weir_account_item item,
                          uint64_t amount)
{
    uint64_t before = atomic_fetch_sub_explicit(&account->used[item], amount, memory_order_relaxed);

    assert(before >= amount);
    (void)before;
}

uint64_t weir_account_used(const struct weir_account *account, enum weir_account_item item)
{
    return atomic_load_explicit(&account->used[item], memory_order_relaxed);
}

uint64_t weir_account_limit(const struct weir_account *account, enum weir_account_item item)
{
    return atomic_load_explicit(&account->limit[item], memory_order_relaxed);
}

uint64_t weir_account_left(const struct weir_account *account, enum weir_account_item item)
{
    uint64_t limit = weir_account_limit(account, item), used = weir_account_used(account, item);

    return used < limit ? limit - used : 0;
}

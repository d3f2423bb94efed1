/*
 * Implements account.h. All accesses are relaxed: a count publishes no other data. A grant is
 * trimmed to the amount used. The trimming side writes the grant and a charging one the use; then
 * each passes a fence and reads the other number, so at least one of them sees the other's write.
 */
#include "base/account.h"
#include "base/status.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define ASKS_MAX 3

void weir_account_limit_set(struct weir_account *account, enum weir_account_item item,
                            uint64_t limit)
{
    atomic_store_explicit(&account->limit[item], limit, memory_order_relaxed);
}

void weir_account_pool_init(struct weir_account_pool *pool)
{
    for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++) {
        pool->share[i] = UINT64_MAX;
        pool->limit[i] = 0;
        atomic_init(&pool->used[i], 0);
    }
}

void weir_account_pool_divide(struct weir_account_pool *pool, enum weir_account_item item,
                              uint64_t total, uint32_t n_accounts)
{
    pool->share[item] = total / 2 / n_accounts;
    pool->limit[item] = total - pool->share[item] * n_accounts;
}

static uint64_t n_there(const struct weir_supply *supply)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < supply->n; i++) {
        n += supply->used[i] != WEIR_SUPPLY_NOBODY;
    }
    return n;
}

uint64_t weir_supply_part(const struct weir_supply *supply)
{
    uint64_t n = n_there(supply), part = n != 0 ? supply->total / 2 / n : 0;

    return WEIR_MAX(part, supply->least);
}

bool weir_supply_allows(const struct weir_supply *supply, uint32_t who, uint64_t amount)
{
    uint64_t part = weir_supply_part(supply), taken = 0, kept = 0, left;

    for (uint32_t i = 0; i < supply->n; i++) {
        uint64_t used = supply->used[i];

        taken += used != WEIR_SUPPLY_NOBODY ? used : 0;
        kept += used < part && i != who ? part - used : 0;
    }
    if (part * n_there(supply) > supply->total && kept > supply->total / 2) {
        kept = supply->total / 2;
    }
    if (amount <= part && supply->used[who] <= part - amount) {
        kept = 0; /* this user is within its own part */
    }
    left = taken < supply->total ? supply->total - taken : 0;
    return kept <= left && amount <= left - kept;
}

/* Returns how much the pool must give when an account's use grows from less to more. */
static uint64_t from_pool(const struct weir_account *account, enum weir_account_item item,
                          uint64_t less, uint64_t more)
{
    uint64_t share = account->pool ? account->pool->share[item] : UINT64_MAX;

    return more > share ? more - WEIR_MAX(less, share) : 0;
}

static bool take_from_pool(struct weir_account_pool *pool, enum weir_account_item item,
                           uint64_t amount)
{
    uint_fast64_t used = atomic_load_explicit(&pool->used[item], memory_order_relaxed);

    do {
        if (amount > pool->limit[item] - used) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&pool->used[item], &used, used + amount,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* Do a tenant's processes share this item? Each process has its own amount of the other items. */
static bool is_common(enum weir_account_item item)
{
    return item == WEIR_ACCOUNT_DEVICE_MEMORY || item == WEIR_ACCOUNT_PINNED_MEMORY ||
           item == WEIR_ACCOUNT_HOST_MEMORY || item == WEIR_ACCOUNT_SESSIONS ||
           item == WEIR_ACCOUNT_MONITORS || item >= WEIR_ACCOUNT_OF_DEVICE;
}

static struct weir_account_page *page_for(const struct weir_account *account,
                                          enum weir_account_item item)
{
    return is_common(item) ? account->page : NULL;
}

bool weir_account_is_divided(enum weir_account_item item)
{
    return item == WEIR_ACCOUNT_PINNED_MEMORY || item == WEIR_ACCOUNT_HOST_MEMORY;
}

/* How much of the item all processes together may use now: the grant, or the limit if that is
 * less. */
static uint64_t granted_to(const struct weir_account *account, enum weir_account_item item)
{
    uint64_t limit = weir_account_limit(account, item), granted = limit;

    if (account->ask && weir_account_is_divided(item)) {
        granted = atomic_load_explicit(&account->page->granted[item], memory_order_relaxed);
    }
    return WEIR_MIN(granted, limit);
}

static bool has_room(uint64_t limit, uint64_t used, uint64_t amount)
{
    return used <= limit && amount <= limit - used;
}

static void release_page(struct weir_account *account, enum weir_account_item item, uint64_t amount)
{
    struct weir_account_page *page = page_for(account, item);

    if (page) {
        atomic_fetch_sub_explicit(&page->of[account->place][item], amount, memory_order_relaxed);
        atomic_fetch_sub_explicit(&page->used[item], amount, memory_order_relaxed);
    }
}

/* Charge the total first: if the process dies in between, too much stays counted. */
static bool try_page(struct weir_account *account, enum weir_account_item item, uint64_t amount)
{
    struct weir_account_page *page = account->page;
    uint_fast64_t used = atomic_load_explicit(&page->used[item], memory_order_relaxed);

    do {
        if (!has_room(granted_to(account, item), used, amount)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&page->used[item], &used, used + amount,
                                                    memory_order_relaxed, memory_order_relaxed));
    atomic_fetch_add_explicit(&page->of[account->place][item], amount, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* see weir_account_page_trim() */
    if (account->ask && used + amount > granted_to(account, item)) {
        release_page(account, item, amount);
        return false;
    }
    return true;
}

static bool charge_page(struct weir_account *account, enum weir_account_item item, uint64_t amount)
{
    const struct weir_account_page *page = page_for(account, item);
    bool charged = !page || try_page(account, item, amount);

    /* The amount may be granted to another user before this process takes it, so ask again. */
    for (int i = 0; !charged && i < ASKS_MAX && account->ask && weir_account_is_divided(item);
         i++) {
        if (!has_room(weir_account_limit(account, item),
                      atomic_load_explicit(&page->used[item], memory_order_relaxed), amount)) {
            return false; /* this user is over the limit */
        }
        account->ask(account, item, amount);
        charged = try_page(account, item, amount);
    }
    return charged;
}

uint64_t weir_account_page_trim(struct weir_account_page *page, enum weir_account_item item,
                                uint64_t granted)
{
    uint64_t used = atomic_load_explicit(&page->used[item], memory_order_relaxed);

    if (used < granted) {
        atomic_store_explicit(&page->granted[item], used, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst); /* see try_page() */
        used = atomic_load_explicit(&page->used[item], memory_order_relaxed);
    }
    granted = WEIR_MIN(used, granted);
    atomic_store_explicit(&page->granted[item], granted, memory_order_relaxed);
    return granted;
}

void weir_account_page_settle(struct weir_account_page *page, uint32_t place)
{
    for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++) {
        uint64_t had = atomic_exchange_explicit(&page->of[place][i], 0, memory_order_relaxed);

        atomic_fetch_sub_explicit(&page->used[i], had, memory_order_relaxed);
    }
    weir_programs_settle(&page->programs, place);
}

void weir_account_page_clear(struct weir_account_page *page)
{
    for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++) {
        uint64_t kept = atomic_load_explicit(&page->of[WEIR_ACCOUNT_KEPT][i], memory_order_relaxed);

        atomic_store_explicit(&page->used[i], kept, memory_order_relaxed);
    }
}

bool weir_account_page_keep(struct weir_account_page *page, uint32_t place,
                            enum weir_account_item item, uint64_t amount)
{
    uint_fast64_t had = atomic_load_explicit(&page->of[place][item], memory_order_relaxed);

    do {
        WEIR_FAIL_IF(amount > had, false);
    } while (!atomic_compare_exchange_weak_explicit(&page->of[place][item], &had, had - amount,
                                                    memory_order_relaxed, memory_order_relaxed));
    atomic_fetch_add_explicit(&page->of[WEIR_ACCOUNT_KEPT][item], amount, memory_order_relaxed);
    return true;
}

void weir_account_page_release(struct weir_account_page *page, enum weir_account_item item,
                               uint64_t amount)
{
    atomic_fetch_sub_explicit(&page->of[WEIR_ACCOUNT_KEPT][item], amount, memory_order_relaxed);
    atomic_fetch_sub_explicit(&page->used[item], amount, memory_order_relaxed);
}

static void subtract(atomic_uint_fast64_t *used, uint64_t amount, uint64_t *ret_before)
{
    *ret_before = atomic_fetch_sub_explicit(used, amount, memory_order_relaxed);
    assert(*ret_before >= amount);
}

static bool charge_own(struct weir_account *account, enum weir_account_item item, uint64_t amount)
{
    uint_fast64_t used = weir_account_used(account, item);

    for (;;) {
        uint64_t limit = weir_account_limit(account, item), pooled, before;

        if (used > limit || amount > limit - used) {
            return false;
        }
        pooled = from_pool(account, item, used, used + amount);
        if (pooled != 0 && !take_from_pool(account->pool, item, pooled)) {
            return false;
        }
        if (atomic_compare_exchange_strong_explicit(&account->used[item], &used, used + amount,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            return true;
        }
        if (pooled != 0) { /* another thread changed the value first: try again */
            subtract(&account->pool->used[item], pooled, &before);
        }
    }
}

bool weir_account_charge(struct weir_account *account, enum weir_account_item item, uint64_t amount)
{
    WEIR_FAIL_IF(!charge_page(account, item, amount), false);
    if (!charge_own(account, item, amount)) {
        release_page(account, item, amount);
        return false;
    }
    return true;
}

void weir_account_passed_on(struct weir_account *account, enum weir_account_item item,
                            uint64_t amount)
{
    uint64_t before, pooled;

    subtract(&account->used[item], amount, &before);
    pooled = from_pool(account, item, before - amount, before);
    if (pooled != 0) {
        subtract(&account->pool->used[item], pooled, &before);
    }
}

void weir_account_release(struct weir_account *account, enum weir_account_item item,
                          uint64_t amount)
{
    release_page(account, item, amount);
    weir_account_passed_on(account, item, amount);
}

bool weir_account_charge_all(struct weir_account *account, const struct weir_amounts *amounts,
                             enum weir_account_item *ret_refused)
{
    for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++) {
        if (amounts->of[i] == 0 ||
            weir_account_charge(account, (enum weir_account_item)i, amounts->of[i])) {
            continue;
        }
        *ret_refused = (enum weir_account_item)i;
        while (i-- > 0) {
            weir_account_release(account, (enum weir_account_item)i, amounts->of[i]);
        }
        return false;
    }
    return true;
}

void weir_account_release_all(struct weir_account *account, const struct weir_amounts *amounts)
{
    for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++) {
        weir_account_release(account, (enum weir_account_item)i, amounts->of[i]);
    }
}

void weir_account_charge_again(struct weir_account *account, const struct weir_amounts *amounts)
{
    for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++) {
        enum weir_account_item item = (enum weir_account_item)i;
        struct weir_account_page *page = page_for(account, item);
        uint64_t amount = amounts->of[i], used, pooled;

        if (page) {
            atomic_fetch_add_explicit(&page->used[i], amount, memory_order_relaxed);
            atomic_fetch_add_explicit(&page->of[account->place][i], amount, memory_order_relaxed);
        }
        used = atomic_fetch_add_explicit(&account->used[i], amount, memory_order_relaxed);
        pooled = from_pool(account, item, used, used + amount);
        if (pooled != 0) {
            atomic_fetch_add_explicit(&account->pool->used[i], pooled, memory_order_relaxed);
        }
    }
}

bool weir_account_is_device_memory(enum weir_account_item item)
{
    return item == WEIR_ACCOUNT_DEVICE_MEMORY || item >= WEIR_ACCOUNT_OF_DEVICE;
}

struct weir_amounts weir_account_device_bytes(uint32_t device, uint64_t bytes)
{
    struct weir_amounts amounts = {.of = {[WEIR_ACCOUNT_DEVICE_MEMORY] = bytes}};

    assert(device < WEIR_ACCOUNT_DEVICES);
    amounts.of[WEIR_ACCOUNT_OF_DEVICE + device] = bytes;
    return amounts;
}

const char *weir_account_item_text(enum weir_account_item item)
{
    static const char *const texts[WEIR_ACCOUNT_COUNT] = {
        [WEIR_ACCOUNT_DEVICE_MEMORY] = "device memory",
        [WEIR_ACCOUNT_PINNED_MEMORY] = "pinned memory",
        [WEIR_ACCOUNT_DESCRIPTORS] = "descriptors",
        [WEIR_ACCOUNT_MAPPINGS] = "mappings",
        [WEIR_ACCOUNT_BUS_GUARDS] = "guards of shared files",
        [WEIR_ACCOUNT_HOST_MEMORY] = "host memory",
        [WEIR_ACCOUNT_SESSIONS] = "sessions",
        [WEIR_ACCOUNT_MONITORS] = "monitors",
    };

    return item < WEIR_ACCOUNT_OF_DEVICE ? texts[item] : "memory of one device";
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
    const struct weir_account_page *page = page_for(account, item);
    uint64_t limit = weir_account_limit(account, item);
    uint64_t used = page ? atomic_load_explicit(&page->used[item], memory_order_relaxed)
                         : weir_account_used(account, item);

    return used < limit ? limit - used : 0;
}

/* @param used device memory in use at this place. */
static uint64_t of_ended_at(const struct weir_account *account, struct weir_programs *programs,
                            uint32_t place, uint64_t used, uint64_t besides, uint64_t max_age_ns)
{
    struct weir_programs_sum sum = weir_programs_look(programs, place, max_age_ns);
    uint64_t alive = sum.alive_bytes + (place == account->place ? besides : 0);

    return sum.n_ended != 0 && used > alive ? used - alive : 0;
}

uint64_t weir_account_of_ended(const struct weir_account *account, struct weir_programs *programs,
                               uint64_t besides, uint64_t max_age_ns)
{
    const enum weir_account_item item = WEIR_ACCOUNT_DEVICE_MEMORY;
    uint64_t bytes = 0;

    if (!account->page) {
        return of_ended_at(account, programs, account->place, weir_account_used(account, item),
                           besides, max_age_ns);
    }
    for (uint32_t place = 0; place < WEIR_ACCOUNT_KEPT; place++) {
        uint64_t used = atomic_load_explicit(&account->page->of[place][item], memory_order_relaxed);

        bytes += used != 0 ? of_ended_at(account, programs, place, used, besides, max_age_ns) : 0;
    }
    return bytes;
}

/* host_backend/supervisor/tenants/grants.c: the machine's memory, divided among tenants. */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include <string.h>
#include <unistd.h>

#include "../../lib/tl_cmocka.h"

enum { ALICE, BOB, CAROL, N, WORKER = 7 };

#define PINNED WEIR_ACCOUNT_PINNED_MEMORY

static struct weir_supervisor sup;
static struct weir_account_page pages[N];
static uint64_t all; /* of pinned memory, that they divide */

static int set_up(void **state)
{
    (void)state;
    memset(&sup, 0, sizeof sup);
    memset(pages, 0, sizeof pages);
    all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
    for (uint32_t i = 0; i < N; i++) {
        sup.tenants[i] = (struct weir_sup_tenant){.used = true, .index = i, .account = &pages[i]};
    }
    return 0;
}

/* A worker of the tenant's asks for more; when it is granted, it is used. */
static bool get(uint32_t tenant, uint64_t bytes)
{
    const struct weir_link_more more = {.tenant_index = tenant,
                                        .item = PINNED,
                                        .question =
                                            atomic_load(&pages[tenant].answered[WORKER]) + 1,
                                        .amount = bytes};

    weir_sup_grant(&sup, WORKER, &more);
    assert_int_equal(atomic_load(&pages[tenant].answered[WORKER]), more.question);
    if (atomic_load(&pages[tenant].granted[PINNED]) <
        atomic_load(&pages[tenant].used[PINNED]) + bytes) {
        return false;
    }
    atomic_fetch_add(&pages[tenant].used[PINNED], bytes);
    return true;
}

static uint64_t granted_to_all(void)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < N; i++) {
        sum += sup.tenants[i].granted[PINNED];
    }
    return sum;
}

static void nobody_gets_what_is_guaranteed_to_others(void **state)
{
    const uint64_t part = all / 2 / N, some = all / 64;
    uint64_t got = 0;

    (void)state;
    assert_false(get(ALICE, all));
    while (get(ALICE, some)) {
        got += some;
    }
    assert_in_range(got, all - 2 * part - some, all - 2 * part);
    assert_true(get(BOB, part));
    assert_false(get(BOB, some));
    assert_true(get(CAROL, part));
    assert_true(granted_to_all() <= all);
}

static void what_is_not_used_any_more_is_others(void **state)
{
    const uint64_t part = all / 2 / N;

    (void)state;
    assert_true(get(ALICE, all / 2));
    assert_false(get(BOB, part + all / 4));
    atomic_fetch_sub(&pages[ALICE].used[PINNED], all / 4);
    assert_true(get(BOB, part + all / 4 - all / 32));
    assert_true(granted_to_all() <= all);
    assert_false(get(ALICE, all / 4)); /* it has gone */
}

static void shares_of_a_user_have_one_part(void **state)
{
    const uint64_t part = all / 2 / 2;

    (void)state;
    sup.tenants[BOB].source = sup.tenants[CAROL].source = WEIR_ORIGIN_DEMAND;
    sup.tenants[BOB].demand_user = sup.tenants[CAROL].demand_user = 9;
    assert_true(get(ALICE, all - part));
    assert_true(get(BOB, part - part / 4));
    assert_true(get(CAROL, part / 4));
    assert_false(get(CAROL, part / 4));
}

static void nonsense_is_not_answered_with_more(void **state)
{
    struct weir_link_more more = {.item = WEIR_ACCOUNT_DEVICE_MEMORY, .question = 5, .amount = 1};

    (void)state;
    weir_sup_grant(&sup, WORKER, &more);
    more.item = UINT32_MAX;
    weir_sup_grant(&sup, WORKER, &more);
    assert_int_equal(atomic_load(&pages[0].answered[WORKER]), 0);
    assert_false(get(ALICE, UINT64_MAX));
    atomic_store(&pages[ALICE].used[PINNED], UINT64_MAX);
    assert_false(get(ALICE, UINT64_MAX - all));
    assert_true(granted_to_all() <= all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nobody_gets_what_is_guaranteed_to_others, set_up),
        cmocka_unit_test_setup(what_is_not_used_any_more_is_others, set_up),
        cmocka_unit_test_setup(shares_of_a_user_have_one_part, set_up),
        cmocka_unit_test_setup(nonsense_is_not_answered_with_more, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* host_backend/supervisor/watch/events.c: which events are kept. The rest:
 * tests/e2e/test_events.py. */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/watch/events.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/tl_cmocka.h"

enum { ALICE, BOB, KEPT = 1024 };

static struct weir_supervisor sup;

static int set_up(void **state)
{
    (void)state;
    memset(&sup, 0, sizeof sup);
    for (uint32_t i = 0; i < 4; i++) {
        sup.tenants[i].used = true;
        sup.tenants[i].index = i;
        snprintf(sup.tenants[i].config.name, sizeof sup.tenants[i].config.name, "tenant-%u", i);
    }
    return weir_sup_events_open(&sup) ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    weir_sup_events_close(&sup);
    return 0;
}

static void happens(const struct weir_sup_tenant *tenant, enum weir_event_kind kind, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        weir_sup_event(&sup, &(struct weir_sup_event){.kind = kind, .tenant = tenant}, "%s", "");
    }
}

/* How many are kept, and of them a tenant's, in the order of their numbers. */
static uint32_t kept(const char *tenant, size_t *ret_all)
{
    struct weir_admin_client client = {0};
    struct weir_status_report report = {0};
    char *words[] = {NULL};
    uint64_t last = 0;
    uint32_t n = 0;

    assert_true(weir_sup_events_request(&sup, &client, words, 1));
    client.answer(&sup, &client, &report);
    for (size_t i = 0; i < report.n_events; i++) {
        assert_true(report.events[i].number > last);
        last = report.events[i].number;
        n += strcmp(report.events[i].tenant, tenant) == 0;
    }
    *ret_all = report.n_events;
    free(report.events);
    return n;
}

static void nobody_pushes_out_what_is_told_about_others(void **state)
{
    size_t all;

    (void)state;
    happens(NULL, WEIR_EVENT_GATE_STARTED, 1);
    happens(&sup.tenants[ALICE], WEIR_EVENT_TENANT_ADDED, 3);
    happens(&sup.tenants[BOB], WEIR_EVENT_TENANT_CHANGED, 3 * KEPT);
    assert_int_equal(kept("tenant-0", &all), 3);
    assert_int_equal(all, KEPT);
    assert_int_equal(kept("", &all), 1);
    happens(&sup.tenants[ALICE], WEIR_EVENT_TENANT_CHANGED, 3 * KEPT);
    assert_in_range(kept("tenant-1", &all), (KEPT - 1) / 2, (KEPT + 1) / 2);
    assert_int_equal(kept("", &all), 1);
}

static void a_users_shares_are_limited_as_one(void **state)
{
    size_t all;

    (void)state;
    for (uint32_t i = 2; i < 4; i++) {
        sup.tenants[i].source = WEIR_ORIGIN_DEMAND;
        sup.tenants[i].demand_user = 5;
    }
    happens(&sup.tenants[2], WEIR_EVENT_TENANT_ADDED, 40);
    happens(&sup.tenants[3], WEIR_EVENT_TENANT_REMOVED, 40);
    assert_int_equal(kept("tenant-2", &all), 40);
    assert_int_equal(all, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_pushes_out_what_is_told_about_others, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_users_shares_are_limited_as_one, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

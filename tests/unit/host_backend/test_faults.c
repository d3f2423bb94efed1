/* host_backend/supervisor/tenants/faults.c: quarantine of shares on demand. The rest: tests/e2e. */
#include "base/clock.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define QUARANTINE_S 60u

enum { ALICE = 1000, BOB = 1001 }; /* users */

static struct weir_supervisor sup;

static void have_share(uint32_t slot, uint32_t uid)
{
    struct weir_sup_tenant *t = &sup.tenants[slot];

    *t = (struct weir_sup_tenant){.used = true,
                                  .index = slot,
                                  .generation = t->generation,
                                  .worker = -1,
                                  .source = WEIR_ORIGIN_DEMAND,
                                  .demand_user = (uint32_t)(weir_sup_user(&sup, uid) - sup.users)};
    t->config.isolation = WEIR_ISOLATION_PROGRAM;
}

/* A domain with a program of each of two users' shares. */
static int set_up(void **state)
{
    (void)state;
    memset(&sup, 0, sizeof sup);
    sup.config.quarantine_s = QUARANTINE_S;
    sup.mps.of[0] = (struct weir_sup_mps){.used = true};
    have_share(0, ALICE);
    have_share(1, BOB);
    for (int i = 0; i < 2; i++) {
        sup.workers[i] = (struct weir_sup_worker){.used = true,
                                                  .kind = WEIR_WORKER_PROGRAM,
                                                  .link = -1,
                                                  .tenant = i,
                                                  .program = {.domain = 1, .busy = true}};
    }
    return 0;
}

static bool begins_in_quarantine(uint32_t uid)
{
    have_share(3, uid);
    weir_sup_quarantine_inherit(&sup, &sup.tenants[3]);
    return sup.tenants[3].faults.quarantine_end_ns != 0;
}

static void fault(int worker)
{
    const struct weir_link_fault what = {.tenant_index = (uint32_t)worker,
                                         .generation = sup.tenants[worker].generation,
                                         .error = 700};

    weir_sup_fault(&sup, worker, &what);
}

/* As the share's program does: its fault is known only when it has gone. */
static void go(uint32_t slot)
{
    sup.tenants[slot].gone = true;
    sup.tenants[slot].generation++;
    sup.tenants[slot].used = false;
}

static void a_users_next_share_is_in_quarantine(void **state)
{
    (void)state;
    have_share(2, ALICE); /* it has another, which does nothing */
    fault(0);
    go(0);
    assert_false(begins_in_quarantine(ALICE)); /* nobody has been blamed */
    weir_sup_faults_tick(&sup, weir_clock_now_ns() + WEIR_NS_PER_S);
    assert_true(begins_in_quarantine(ALICE));
    assert_in_range(sup.tenants[3].faults.quarantine_end_ns,
                    weir_clock_now_ns() + (QUARANTINE_S - 5) * WEIR_NS_PER_S,
                    weir_clock_now_ns() + QUARANTINE_S * WEIR_NS_PER_S);
    assert_true(sup.tenants[2].faults.quarantine_end_ns != 0);
    assert_true(sup.tenants[1].faults.quarantine_end_ns == 0);
    assert_false(begins_in_quarantine(BOB));
}

static void it_ends_with_the_users_quarantine(void **state)
{
    (void)state;
    fault(0);
    weir_sup_faults_tick(&sup, weir_clock_now_ns() + WEIR_NS_PER_S);
    weir_sup_user(&sup, ALICE)->quarantine_end_ns = weir_clock_now_ns() - 1;
    assert_false(begins_in_quarantine(ALICE));
}

static void one_that_ends_no_others_work_is_in_none(void **state)
{
    (void)state;
    sup.workers[0].program.domain = 0;
    fault(0);
    assert_int_equal(sup.tenants[0].faults.suspected, 1);
    assert_false(begins_in_quarantine(ALICE));
    sup.workers[0].program.domain = 1;
    sup.config.quarantine_s = 0; /* there is none */
    fault(0);
    weir_sup_faults_tick(&sup, weir_clock_now_ns() + WEIR_NS_PER_S);
    assert_int_equal(sup.tenants[0].faults.suspected, 2);
    assert_false(begins_in_quarantine(ALICE));
}

static void no_report_of_an_earlier_tenant_counts_against_the_slots_next(void **state)
{
    struct weir_link_fault old = {
        .tenant_index = 0, .generation = 7, .error = 700, .n_suspects = 1};

    (void)state;
    sup.workers[0] = (struct weir_sup_worker){.used = true, .link = -1, .tenant = -1};
    sup.tenants[0].config.isolation = WEIR_ISOLATION_GROUP;
    sup.tenants[0].generation = 9;
    weir_sup_fault(&sup, 0, &old);
    assert_false(begins_in_quarantine(ALICE));
    sup.tenants[0].gone = true;
    sup.tenants[0].generation = 8; /* it has just gone */
    weir_sup_fault(&sup, 0, &old);
    assert_true(begins_in_quarantine(ALICE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_users_next_share_is_in_quarantine, set_up),
        cmocka_unit_test_setup(it_ends_with_the_users_quarantine, set_up),
        cmocka_unit_test_setup(one_that_ends_no_others_work_is_in_none, set_up),
        cmocka_unit_test_setup(no_report_of_an_earlier_tenant_counts_against_the_slots_next,
                               set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

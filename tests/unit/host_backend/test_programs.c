/* host_backend/supervisor/programs.c: which workers end for whom. The rest: tests/e2e. */
#include "host_backend/supervisor/supervisor.h"

#include "base/clock.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { SPARE, BUSY, KEPT, SHARED, N };

static struct weir_supervisor sup;
static struct weir_spin_page page;
static int links[N]; /* the workers' ends */

static int set_up(void **state)
{
    const struct weir_sup_worker workers[N] = {
        [SPARE] = {.kind = WEIR_WORKER_PROGRAM, .tenant = -1, .program = {.native = true}},
        [BUSY] = {.kind = WEIR_WORKER_PROGRAM, .tenant = 0, .program = {.busy = true}},
        [KEPT] = {.kind = WEIR_WORKER_PROGRAM, .tenant = 0},
        [SHARED] = {.kind = WEIR_WORKER_SHARED, .tenant = -1}};

    (void)state;
    memset(&sup, 0, sizeof sup);
    sup.spin.page = &page;
    for (int i = 0; i < N; i++) {
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
            return 1;
        }
        sup.workers[i] = workers[i];
        sup.workers[i].used = sup.workers[i].ready = true;
        sup.workers[i].link = pair[0];
        links[i] = pair[1];
    }
    sup.workers[KEPT].program.idle_since_ns = weir_clock_now_ns();
    sup.config.workers.idle_s = 10;
    sup.tenants[0].used = true;
    sup.tenants[0].config.isolation = WEIR_ISOLATION_PROGRAM;
    sup.tenants[0].config.sm_limit_pct = 100;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        close(sup.workers[i].link);
        close(links[i]);
    }
    return 0;
}

static bool was_stopped(int worker)
{
    struct weir_link_message message;

    return recv(links[worker], &message, sizeof message, MSG_DONTWAIT) > 0 &&
           message.type == WEIR_LINK_STOP;
}

static void who_serves_nobody_gives_way(void **state)
{
    (void)state;
    weir_sup_programs_tick(&sup, weir_clock_now_ns());
    assert_int_equal(atomic_load(&page.idle_workers), 2);
    weir_sup_programs_give_way(&sup);
    assert_true(was_stopped(SPARE));
    assert_true(was_stopped(KEPT));
    assert_false(was_stopped(BUSY));
    assert_false(was_stopped(SHARED));
    weir_sup_programs_give_way(&sup); /* they are told once */
    assert_false(was_stopped(SPARE));
}

static void only_kept_workers_end_with_time(void **state)
{
    uint64_t now_ns = weir_clock_now_ns();

    (void)state;
    weir_sup_programs_tick(&sup, now_ns);
    assert_false(was_stopped(KEPT));
    weir_sup_programs_tick(&sup, now_ns + 11 * WEIR_NS_PER_S);
    assert_true(was_stopped(KEPT));
    assert_false(was_stopped(SPARE));
    assert_false(was_stopped(BUSY));
    assert_string_equal(weir_sup_program_state(&sup.workers[KEPT]), "stopping");
    assert_string_equal(weir_sup_program_state(&sup.workers[SPARE]), "spare");
    assert_string_equal(weir_sup_program_state(&sup.workers[SHARED]), "");
}

/* A program whose tenant has an SM limit gets a worker of its own kind under MPS. */
static void a_spare_of_no_use_ends(void **state)
{
    uint64_t now_ns = weir_clock_now_ns();

    (void)state;
    sup.mps_wanted = true;
    sup.mps[0] = (struct weir_sup_mps){.used = true};
    sup.workers[SPARE].program.native = false;
    sup.workers[SPARE].program.domain = 1;
    sup.tenants[0].config.sm_limit_pct = 50;
    weir_sup_programs_tick(&sup, now_ns);
    assert_false(was_stopped(SPARE)); /* it has not told how many SMs there are */
    sup.mps[0].sms = (struct weir_link_sms){.n = 1, .sms = {8}};
    sup.tenants[0].config.sm_limit_pct = 100;
    weir_sup_programs_tick(&sup, now_ns);
    assert_false(was_stopped(SPARE));
    sup.tenants[0].config.sm_limit_pct = 50;
    weir_sup_programs_tick(&sup, now_ns);
    assert_true(was_stopped(SPARE));
    assert_false(was_stopped(BUSY));
    assert_false(was_stopped(KEPT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_serves_nobody_gives_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_kept_workers_end_with_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_spare_of_no_use_ends, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

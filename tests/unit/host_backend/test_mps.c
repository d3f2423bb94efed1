/*
 * host_backend/supervisor/domains/mps_blame.c: what an MPS server's log says about a fault; and
 * mps.c: a server that takes no clients is replaced; the domain in reserve; connections.
 */
#include "base/clock.h"
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "loop_turn.h"
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Lines that the server of driver 580 wrote when one of its two clients used a wild address. */
static const char fault[] =
    "[2026-11-25 17:53:06.659 Server  6590] Status of client {PID: 6588, Context ID: 1} is ACTIVE\n"
    "[2026-11-25 17:53:06.911 Server  6590] Client {PID: 6600, Context: 1} encountered a fatal GPU "
    "error.\n"
    "[2026-11-25 17:53:06.911 Server  6590] Server is handling a fatal GPU error.\n"
    "[2026-11-25 17:53:06.911 Server  6590] The following client process have a sticky error set:\n"
    "[2026-11-25 17:53:06.911 Server  6590] 6600\n";

static void the_log_names_the_process(void **state)
{
    (void)state;
    assert_int_equal(weir_mps_log_culprit(fault), 6600);
    assert_int_equal(weir_mps_log_culprit("Client {PID: 17, Context: 1} encountered a fatal GPU "
                                          "error.\n"),
                     17);
}

static void other_lines_name_nobody(void **state)
{
    (void)state;
    assert_int_equal(weir_mps_log_culprit(""), 0);
    assert_int_equal(weir_mps_log_culprit("Client {PID: 17, Context ID: 0} connected\n"), 0);
    assert_int_equal(weir_mps_log_culprit("Client {PID: 17, Context ID: 0} connected\n"
                                          "Somebody encountered a fatal GPU error.\n"),
                     0);
    assert_int_equal(weir_mps_log_culprit("encountered a fatal GPU error, Client {PID: 17"), 0);
    assert_int_equal(weir_mps_log_culprit("Client {PID: x, Context: 1} encountered a fatal GPU "
                                          "error.\n"),
                     0);
}

/* Its folder is the workers', of whom a guest may have taken one over. */
static void a_pipe_in_the_place_of_the_log_keeps_nobody_waiting(void **state)
{
    char path[sizeof((struct weir_sup_mps *)NULL)->folder + 16];
    struct weir_sup_mps domain = {.folder = "/tmp/weir-mps-XXXXXX"};
    int fd;

    (void)state;
    assert_non_null(mkdtemp(domain.folder));
    snprintf(path, sizeof path, "%s/server.log", domain.folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    fd = weir_mps_log_open(&domain, O_RDONLY);
    assert_true(fd >= 0);
    close(fd);
    weir_mps_folder_remove(&domain);
    assert_int_equal(access(path, F_OK), -1);
}

enum { READY, STARTING };

static struct weir_supervisor sup;
static int alive;    /* a pipe that the daemon and its server have open */
static pid_t server; /* the daemon's child */

/* A daemon with a server, and two workers in the domain. */
static int set_up(void **state)
{
    uint64_t now_ns = weir_clock_now_ns();
    int ends[2];

    (void)state;
    memset(&sup, 0, sizeof sup);
    sup.listener = &weir_worker_events;
    sup.mps.wanted = true;
    if (pipe(ends) != 0) {
        return 1;
    }
    sup.mps.of[0] = (struct weir_sup_mps){
        .used = true, .ready = true, .started_ns = now_ns, .served_ns = now_ns, .pid = fork()};
    if (sup.mps.of[0].pid == 0) {
        pid_t child = fork();

        if (child != 0) {
            (void)!write(ends[1], &child, sizeof child);
        }
        pause();
        _exit(0);
    }
    close(ends[1]);
    alive = ends[0];
    for (int i = READY; i <= STARTING; i++) {
        sup.workers[i] = (struct weir_sup_worker){.used = true,
                                                  .kind = WEIR_WORKER_PROGRAM,
                                                  .link = -1,
                                                  .tenant = -1,
                                                  .ready = i == READY,
                                                  .started_ns = now_ns,
                                                  .program = {.domain = 1}};
    }
    return sup.mps.of[0].pid > 0 && read(alive, &server, sizeof server) == sizeof server ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    kill(server, SIGKILL);
    kill(sup.mps.of[0].pid, SIGKILL);
    waitpid(sup.mps.of[0].pid, NULL, 0);
    close(alive);
    return 0;
}

static void a_server_that_takes_no_client_is_replaced(void **state)
{
    uint64_t start_ns = sup.workers[STARTING].started_ns;
    struct pollfd end = {alive, POLLIN, 0};

    (void)state;
    weir_mps_tick(&sup, start_ns + 14 * WEIR_NS_PER_S);
    assert_false(sup.mps.of[0].leaving);
    weir_mps_tick(&sup, start_ns + 16 * WEIR_NS_PER_S);
    assert_true(sup.mps.of[0].leaving);
    assert_true(sup.workers[READY].program.stopping);
    /* Both have ended: nobody has the other end any more. */
    assert_int_equal(poll(&end, 1, 5000), 1);
    assert_int_equal(end.revents, POLLHUP);
}

static void one_that_takes_others_may_take_long(void **state)
{
    uint64_t start_ns = sup.workers[STARTING].started_ns;

    (void)state;
    sup.mps.of[0].served_ns = start_ns + 10 * WEIR_NS_PER_S; /* another worker was ready then */
    weir_mps_tick(&sup, start_ns + 16 * WEIR_NS_PER_S);
    assert_false(sup.mps.of[0].leaving);
    sup.workers[STARTING].ready = true;
    weir_mps_tick(&sup, start_ns + 60 * WEIR_NS_PER_S);
    assert_false(sup.mps.of[0].leaving);
}

/* Its daemon is to start again in two seconds: until then there is nothing to do at once. */
static void without_a_daemon_nobody_is_looked_at_again_and_again(void **state)
{
    uint64_t now_ns = sup.workers[STARTING].started_ns + 16 * WEIR_NS_PER_S;
    pid_t daemon = sup.mps.of[0].pid;
    int wait_ms;

    (void)state;
    sup.mps.of[0].pid = 0;
    sup.mps.of[0].started_ns = now_ns;
    wait_ms = loop_wait_ms(&sup, weir_mps_watch, now_ns);
    sup.mps.of[0].pid = daemon; /* or the group of pid 0 would be killed in the end */
    assert_in_range(wait_ms, 2000, 2001);
}

/* The last of its workers may be stuck in the driver, and says nothing that would wake us. */
static void workers_that_do_not_leave_are_killed_in_time(void **state)
{
    uint64_t now_ns = weir_clock_now_ns(), latest_ms;

    (void)state;
    weir_mps_faulted(&sup, &sup.mps.of[0]);
    latest_ms = 600 + (weir_clock_now_ns() - now_ns) / WEIR_NS_PER_MS;
    assert_in_range(loop_wait_ms(&sup, weir_mps_watch, now_ns), 400, latest_ms);
    sup.mps.of[0].closing = true; /* others need its place */
    assert_in_range(loop_wait_ms(&sup, weir_mps_watch, now_ns), 400, latest_ms);
    sup.mps.of[0].closing = false;
    sup.mps.wanted = false; /* it was given up meanwhile */
    assert_in_range(loop_wait_ms(&sup, weir_mps_watch, now_ns), 400, latest_ms);
}

/* A second domain, whose server has been started if it serves. */
static void have_reserve(bool serves)
{
    sup.mps.of[1] = sup.mps.of[0];
    sup.mps.of[1].turn = sup.mps.turns = 1;
    sup.mps.of[1].reserve = sup.mps.of[1].asked = true;
    sup.mps.of[1].serves = serves;
}

static void all_workers_end(void)
{
    sup.workers[READY].used = sup.workers[STARTING].used = false;
    weir_mps_tick(&sup, weir_clock_now_ns());
}

static void the_domain_in_reserve_takes_workers_after_a_fault(void **state)
{
    uint32_t domain = 0;

    (void)state;
    have_reserve(true);
    assert_int_equal(weir_mps_room(&sup, "", &domain), WEIR_MPS_ROOM);
    assert_int_equal(domain, 1);
    weir_mps_faulted(&sup, &sup.mps.of[0]);
    assert_int_equal(weir_mps_room(&sup, "", &domain), WEIR_MPS_ROOM);
    assert_int_equal(domain, 2);
    all_workers_end();
    assert_true(sup.mps.of[0].reserve && sup.mps.of[0].serves);
    assert_false(sup.mps.of[1].reserve);
    assert_int_equal(weir_mps_room(&sup, "", &domain), WEIR_MPS_ROOM);
    assert_int_equal(domain, 2);
    /* The first has just begun to recover, so for another fault there is none. */
    weir_mps_faulted(&sup, &sup.mps.of[1]);
    assert_int_equal(weir_mps_room(&sup, "", &domain), WEIR_MPS_ROOM_SOON);
}

static void one_without_a_server_does_not(void **state)
{
    uint32_t domain = 0;

    (void)state;
    have_reserve(false);
    weir_mps_faulted(&sup, &sup.mps.of[0]);
    assert_int_equal(weir_mps_room(&sup, "", &domain), WEIR_MPS_ROOM_SOON);
    all_workers_end();
    assert_false(sup.mps.of[0].reserve);
    assert_true(sup.mps.of[1].reserve);
}

static void the_one_in_reserve_is_what_opens_when_the_first_is_full(void **state)
{
    uint32_t domain = 0;

    (void)state;
    have_reserve(true);
    for (int i = 0; i < WEIR_MPS_CLIENTS_MAX; i++) {
        sup.workers[i] = sup.workers[READY];
    }
    assert_int_equal(weir_mps_room(&sup, "", &domain), WEIR_MPS_FULL);
    assert_true(weir_mps_open(&sup, ""));
    assert_false(sup.mps.of[1].reserve);
    assert_int_equal(weir_mps_room(&sup, "", &domain), WEIR_MPS_ROOM);
    assert_int_equal(domain, 2);
}

/* What a server bears is enough for each of its clients, and who starts first has more. */
static void the_first_clients_have_more_connections(void **state)
{
    struct weir_sup_worker like = sup.workers[READY];
    uint32_t sum = 0;

    (void)state;
    sup.workers[READY].used = sup.workers[STARTING].used = false;
    for (int i = 0; i < WEIR_MPS_CLIENTS_MAX; i++) {
        like.program.connections = weir_mps_connections(&sup, &like);
        assert_int_equal(like.program.connections, i < 4 ? 8 : 2);
        sup.workers[i] = like;
        sum += like.program.connections;
    }
    assert_int_equal(sum, 120);
    sup.workers[0].used = false; /* its connections are free again */
    assert_int_equal(weir_mps_connections(&sup, &sup.workers[7]), 8);
    sup.workers[0] = like;                                            /* one with 2 */
    assert_int_equal(weir_mps_connections(&sup, &sup.workers[1]), 8); /* it has them itself */
    assert_int_equal(weir_mps_connections(&sup, &sup.workers[0]), 8);
}

static void other_servers_and_what_a_program_asks_for(void **state)
{
    struct weir_sup_worker like = sup.workers[READY];

    (void)state;
    for (int i = 0; i < 4; i++) {
        like.program.connections = weir_mps_connections(&sup, &like);
        sup.workers[STARTING + 1 + i] = like;
    }
    assert_int_equal(weir_mps_connections(&sup, &like), 2);
    like.program.domain = 2;
    assert_int_equal(weir_mps_connections(&sup, &like), 8);
    like.connections.wanted = 1;
    assert_int_equal(weir_mps_connections(&sup, &like), 1);
    like.connections.wanted = 32;
    assert_int_equal(weir_mps_connections(&sup, &like), 2);
    like.program.domain = 0;
    assert_int_equal(weir_mps_connections(&sup, &like), 0);
}

static void have_tenant(int at, const char *devices, enum weir_isolation isolation)
{
    struct weir_sup_tenant *t = &sup.tenants[at];

    t->used = true;
    t->config.isolation = isolation;
    snprintf(t->config.devices, sizeof t->config.devices, "%s", devices);
}

static void lists_with_a_gpu_in_common_share_a_server(void **state)
{
    uint32_t domain = 0;

    (void)state;
    snprintf(sup.mps.of[0].devices, sizeof sup.mps.of[0].devices, "0");
    sup.mps.of[0].ready = true;
    have_tenant(0, "0", WEIR_ISOLATION_PROGRAM);
    have_tenant(1, "0,1", WEIR_ISOLATION_PROGRAM);
    have_tenant(2, "1,2", WEIR_ISOLATION_STRICT);
    for (const char *const *list = (const char *const[]){"0", "0,1", "1,0", "1", NULL}; *list;
         list++) {
        assert_int_equal(weir_mps_room(&sup, *list, &domain), WEIR_MPS_ROOM);
        assert_int_equal(domain, 1);
    }
    assert_false(weir_mps_lists_meet(&sup, "0", "2")); /* who is under no server joins none */
    have_tenant(3, "3,2", WEIR_ISOLATION_PROGRAM);
    assert_false(weir_mps_lists_meet(&sup, "0", "3"));
    have_tenant(4, "2,1", WEIR_ISOLATION_PROGRAM);
    assert_true(weir_mps_lists_meet(&sup, "0", "3"));
    assert_true(weir_mps_lists_meet(&sup, "3", "0"));
    sup.tenants[4].gone = true;
    assert_false(weir_mps_lists_meet(&sup, "0", "3"));
    have_tenant(3, "", WEIR_ISOLATION_PROGRAM); /* the host's list, which is all GPUs */
    assert_true(weir_mps_lists_meet(&sup, "0", "63"));
}

static void a_server_has_room_on_each_gpu_by_itself(void **state)
{
    uint32_t domain = 0;

    (void)state;
    snprintf(sup.mps.of[0].devices, sizeof sup.mps.of[0].devices, "0");
    sup.mps.of[0].ready = true;
    have_tenant(0, "0,1", WEIR_ISOLATION_PROGRAM);
    snprintf(sup.workers[READY].devices, sizeof sup.workers[READY].devices, "0");
    sup.workers[READY].program.connections = 8;
    for (int i = 0; i < WEIR_MPS_CLIENTS_MAX; i++) {
        sup.workers[i] = sup.workers[READY];
    }
    assert_int_equal(weir_mps_room(&sup, "0", &domain), WEIR_MPS_FULL);
    assert_int_equal(weir_mps_room(&sup, "0,1", &domain), WEIR_MPS_FULL);
    assert_int_equal(weir_mps_room(&sup, "1", &domain), WEIR_MPS_ROOM);
    snprintf(sup.workers[60].devices, sizeof sup.workers[60].devices, "1");
    sup.workers[60].program.domain = 1;
    assert_int_equal(weir_mps_connections(&sup, &sup.workers[60]), 8);
    assert_int_equal(weir_mps_connections(&sup, &sup.workers[0]), 2);
}

static void sms_are_known_by_list(void **state)
{
    const struct weir_link_sms one = {.n = 1, .sms = {132}}, two = {.n = 2, .sms = {132, 78}};

    (void)state;
    assert_null(weir_mps_sms(&sup, "0"));
    weir_mps_sms_note(&sup, "0", &one);
    weir_mps_sms_note(&sup, "0,1", &two);
    weir_mps_sms_note(&sup, "0,1", &one); /* it is known */
    assert_int_equal(weir_mps_sms(&sup, "0")->n, 1);
    assert_int_equal(weir_mps_sms(&sup, "0,1")->sms[1], 78);
    assert_null(weir_mps_sms(&sup, "1"));
}

/* Domains in all places, with devices of their own, the last ones in reserve; no daemons. */
static void have_all_places_taken(int n_reserves)
{
    snprintf(sup.config.run_dir, sizeof sup.config.run_dir, "/nonexistent");
    snprintf(sup.mps.of[0].devices, sizeof sup.mps.of[0].devices, "0");
    for (int i = 1; i < WEIR_MPS_MAX; i++) {
        sup.mps.of[i] = (struct weir_sup_mps){.used = true,
                                              .user = &sup.running.user,
                                              .reserve = i >= WEIR_MPS_MAX - n_reserves,
                                              .started_ns = weir_clock_now_ns()};
        snprintf(sup.mps.of[i].devices, sizeof sup.mps.of[i].devices, "%d", i);
        sup.workers[100 + i] =
            (struct weir_sup_worker){.used = !sup.mps.of[i].reserve,
                                     .kind = WEIR_WORKER_PROGRAM,
                                     .link = -1,
                                     .program = {.domain = (uint32_t)i + 1, .busy = true}};
    }
    sup.workers[READY].program.busy = true;
    sup.workers[READY].tenant = 0;
}

static uint32_t n_closing(void)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        n += sup.mps.of[i].closing;
    }
    return n;
}

static void one_in_reserve_makes_place_for_other_devices(void **state)
{
    uint32_t domain = 0;

    (void)state;
    have_all_places_taken(2);
    assert_int_equal(weir_mps_room(&sup, "20,21", &domain), WEIR_MPS_NO_ROOM);
    assert_true(weir_mps_make_place(&sup));
    assert_true(weir_mps_make_place(&sup)); /* once is enough */
    assert_int_equal(n_closing(), 1);
    assert_true(sup.mps.of[WEIR_MPS_MAX - 2].closing);
    weir_mps_tick(&sup, weir_clock_now_ns());
    assert_false(sup.mps.of[WEIR_MPS_MAX - 2].used);
    assert_int_equal(weir_mps_room(&sup, "20,21", &domain), WEIR_MPS_ROOM_SOON);
    assert_string_equal(sup.mps.of[WEIR_MPS_MAX - 2].devices, "20,21");
}

static void one_without_programs_makes_place_and_its_workers_end(void **state)
{
    uint64_t now_ns = weir_clock_now_ns();
    pid_t daemon = sup.mps.of[0].pid;
    int status = 0;

    (void)state;
    have_all_places_taken(0);
    assert_false(weir_mps_make_place(&sup)); /* programs are in all */
    sup.workers[READY].program.busy = false;
    sup.mps.of[0].user = &sup.running.user;
    snprintf(sup.mps.of[0].folder, sizeof sup.mps.of[0].folder, "/nonexistent/mps-0");
    assert_true(weir_mps_make_place(&sup));
    assert_true(sup.mps.of[0].closing);
    assert_true(sup.workers[READY].program.stopping && sup.workers[STARTING].program.stopping);
    weir_mps_tick(&sup, now_ns);
    assert_true(sup.mps.of[0].close_by_ns == 0); /* they have not ended */
    sup.workers[READY].used = sup.workers[STARTING].used = false;
    weir_mps_tick(&sup, now_ns);
    assert_in_range(loop_wait_ms(&sup, weir_mps_watch, now_ns), 0, 5001);
    weir_mps_tick(&sup, now_ns + 6 * WEIR_NS_PER_S); /* it does not hear */
    while (sup.mps.of[0].pid != 0) {
        siginfo_t info;

        assert_int_equal(waitid(P_PID, (id_t)daemon, &info, WEXITED | WNOWAIT), 0);
        status = info.si_status;
        weir_mps_reap(&sup);
    }
    assert_int_equal(status, SIGKILL);
    weir_mps_tick(&sup, now_ns);
    assert_false(sup.mps.of[0].used);
    sup.mps.of[0].pid = fork(); /* for tear_down() */
    if (sup.mps.of[0].pid == 0) {
        _exit(0);
    }
}

static void reserves_leave_a_place_for_other_devices(void **state)
{
    (void)state;
    have_all_places_taken(0);
    sup.life.announced = true;
    sup.mps.of[WEIR_MPS_MAX - 1].used = false; /* the last place */
    weir_mps_tick(&sup, weir_clock_now_ns());
    assert_false(sup.mps.of[WEIR_MPS_MAX - 1].used);
    sup.mps.of[WEIR_MPS_MAX - 2].used = false;
    weir_mps_tick(&sup, weir_clock_now_ns());
    assert_true(sup.mps.of[WEIR_MPS_MAX - 2].used && sup.mps.of[WEIR_MPS_MAX - 2].reserve);
    assert_false(sup.mps.of[WEIR_MPS_MAX - 1].used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_names_the_process),
        cmocka_unit_test(other_lines_name_nobody),
        cmocka_unit_test(a_pipe_in_the_place_of_the_log_keeps_nobody_waiting),
        cmocka_unit_test_setup_teardown(lists_with_a_gpu_in_common_share_a_server, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_server_has_room_on_each_gpu_by_itself, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sms_are_known_by_list, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_server_that_takes_no_client_is_replaced, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_takes_others_may_take_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_daemon_nobody_is_looked_at_again_and_again,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(workers_that_do_not_leave_are_killed_in_time, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_domain_in_reserve_takes_workers_after_a_fault, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_without_a_server_does_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_one_in_reserve_is_what_opens_when_the_first_is_full,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_clients_have_more_connections, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_servers_and_what_a_program_asks_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_in_reserve_makes_place_for_other_devices, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_without_programs_makes_place_and_its_workers_end,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(reserves_leave_a_place_for_other_devices, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

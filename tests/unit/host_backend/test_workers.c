/* host_backend/supervisor/workers/workers.c: the links to workers. The rest: tests/e2e. */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/machines/ivshmem.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/worker_process.h"
#include "host_backend/supervisor/workers/workers.h"
#include "loop_turn.h"

#include "../../lib/tl_lived.h"
#include "base/clock.h"
#include "base/log.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct weir_supervisor sup;
static int link_end; /* the worker's */

/* A shared worker that has been started, and two tenants that are to be served by it. */
static int set_up(void **state)
{
    int pair[2];

    (void)state;
    memset(&sup, 0, sizeof sup);
    sup.listener = &weir_worker_events;
    sup.gate.link = sup.tcp_fd = -1;
    assert_true(weir_sup_machines_open(&sup));
    sup.life.listening = sup.life.announced = true;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
        return 1;
    }
    sup.workers[0] = (struct weir_sup_worker){.used = true, .link = pair[0], .tenant = -1};
    link_end = pair[1];
    for (uint32_t i = 0; i < 2; i++) {
        sup.tenants[i] = (struct weir_sup_tenant){.used = true, .index = i};
        sup.tenants[i].config.isolation = WEIR_ISOLATION_GROUP;
    }
    sup.workers[0].pid = fork();
    if (sup.workers[0].pid == 0) {
        pause(); /* it stands still */
        _exit(0);
    }
    return sup.workers[0].pid > 0 ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    if (sup.workers[0].pid > 0) {
        kill(sup.workers[0].pid, SIGKILL);
        waitpid(sup.workers[0].pid, NULL, 0);
    }
    if (sup.workers[0].link >= 0) {
        close(sup.workers[0].link);
    }
    close(link_end);
    weir_sup_machines_close(&sup);
    for (int i = 0; i < 2; i++) { /* their pages stay mapped */
        if (sup.tenants[i].account) {
            close(sup.tenants[i].account_fd);
        }
    }
    return 0;
}

/* The next message for the worker; 0: there is none. */
static uint32_t heard(struct weir_link_message *ret_message)
{
    return recv(link_end, ret_message, sizeof *ret_message, MSG_DONTWAIT) ==
                   (ssize_t)sizeof *ret_message
               ? ret_message->type
               : 0;
}

static void say(uint32_t type)
{
    const struct weir_link_message message = {.type = type};

    assert_int_equal(weir_link_send(link_end, &message, -1), WEIR_OK);
    weir_sup_worker_receive(&sup, 0);
}

static void a_worker_is_told_its_tenants_when_it_reads(void **state)
{
    struct weir_tenant_config changed = sup.tenants[1].config;
    struct weir_link_message message;

    (void)state;
    weir_sup_tenant_commit(&sup, &sup.tenants[1], &changed);
    weir_sup_workers_listen(&sup);
    assert_int_equal(heard(&message), 0);
    assert_false(weir_sup_worker_is_told(&sup, 0));
    say(WEIR_LINK_READS);
    assert_true(weir_sup_worker_is_told(&sup, 0));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(heard(&message), WEIR_LINK_TENANT);
        assert_int_equal(message.tenant.index, i);
    }
    assert_int_equal(heard(&message), WEIR_LINK_LISTEN);
    changed.weight = 7;
    weir_sup_tenant_commit(&sup, &sup.tenants[1], &changed);
    assert_int_equal(heard(&message), WEIR_LINK_TENANT);
    assert_int_equal(message.tenant.config.weight, 7);
    say(WEIR_LINK_READS); /* once is enough */
    assert_int_equal(heard(&message), 0);
}

/* Nothing of it can be in the worker, which will never say that it is free of it. */
static void a_tenant_that_goes_before_that_leaves_its_slot(void **state)
{
    struct weir_link_message message;

    (void)state;
    sup.tenants[0].gone = true;
    sup.tenants[0].generation = 1;
    say(WEIR_LINK_READS);
    assert_false(sup.tenants[0].used);
    assert_int_equal(heard(&message), WEIR_LINK_TENANT);
    assert_int_equal(message.tenant.index, 1);
}

static void a_worker_that_stands_still_is_killed_when_its_link_is_lost(void **state)
{
    const struct weir_link_message message = {.type = WEIR_LINK_STATUS};
    uint64_t now_ns = weir_clock_now_ns();
    int status = 0;

    (void)state;
    sup.workers[0].told = sup.workers[0].ready = true;
    shutdown(link_end, SHUT_RDWR);
    assert_false(weir_sup_worker_send(&sup, 0, &message, -1));
    assert_int_equal(sup.workers[0].link, -1);
    assert_false(sup.workers[0].ready || weir_sup_worker_is_told(&sup, 0));
    assert_in_range(loop_wait_ms(&sup, weir_sup_workers_watch, now_ns), 4000, 6000);
    weir_sup_workers_tick(&sup, now_ns + 4 * WEIR_NS_PER_S); /* it may be ending its sessions */
    assert_int_equal(waitpid(sup.workers[0].pid, &status, WNOHANG), 0);
    weir_sup_workers_tick(&sup, now_ns + 6 * WEIR_NS_PER_S);
    assert_int_equal(waitpid(sup.workers[0].pid, &status, 0), sup.workers[0].pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    sup.workers[0].pid = 0;
}

/* Its end is no failure only if it was asked to start again. */
static void one_that_ends_well_without_being_asked_has_failed(void **state)
{
    uint64_t began_ns = weir_host_clock_ns();

    (void)state;
    sup.workers[0].kind = WEIR_WORKER_TENANT;
    sup.workers[0].tenant = 0;
    sup.tenants[0].config.isolation = WEIR_ISOLATION_TENANT;
    sup.workers[0].stop_by_ns = began_ns + WEIR_NS_PER_S; /* as after a lost link */
    kill(sup.workers[0].pid, SIGKILL);
    waitpid(sup.workers[0].pid, NULL, 0);
    sup.workers[0].pid = fork();
    if (sup.workers[0].pid == 0) {
        _exit(WEIR_WORKER_EXIT_OK);
    }
    while (sup.workers[0].pid != 0) {
        siginfo_t info;

        assert_int_equal(waitid(P_PID, (id_t)sup.workers[0].pid, &info, WEXITED | WNOWAIT), 0);
        weir_sup_workers_reap(&sup);
    }
    assert_int_equal(sup.workers[0].failures, 1);
    assert_int_equal(sup.workers[0].stop_by_ns, 0);
    assert_true(sup.workers[0].restart_at_ns > began_ns);
}

/* Else a worker that starts would wait for the port for ever. */
/* How long a message to it takes, at worst, until its link is lost. */
static uint64_t slowest_send_ns(uint64_t limit)
{
    const struct weir_link_message message = {.type = WEIR_LINK_STATUS};
    uint64_t slowest_ns = 0;
    bool sent = true;

    for (uint64_t n = 0; n < limit && sent;) {
        struct tl_lived begin = tl_lived_now();
        uint64_t took_ns;

        for (int i = 0; i < 1000 && n < limit && sent; i++, n++) {
            sent = weir_sup_worker_send(&sup, 0, &message, -1);
        }
        took_ns = tl_lived_since_ns(begin);
        slowest_ns = took_ns > slowest_ns ? took_ns : slowest_ns;
    }
    return slowest_ns;
}

static void a_worker_that_does_not_read_holds_nobody_up(void **state)
{
    const struct weir_link_message message = {.type = WEIR_LINK_STATUS};

    (void)state;
    for (int i = 0; i < WEIR_OUTBOX_MAX && sup.workers[0].outbox.n < 10; i++) {
        assert_true(weir_sup_worker_send(&sup, 0, &message, -1));
    }
    assert_int_equal(sup.workers[0].outbox.n, 10);
    assert_in_range(loop_wait_ms(&sup, weir_sup_workers_watch, weir_clock_now_ns()), 5000, 10000);
    weir_sup_workers_tick(&sup, weir_clock_now_ns() + 5 * WEIR_NS_PER_S);
    assert_true(sup.workers[0].link >= 0);
    assert_true(slowest_send_ns(WEIR_OUTBOX_MAX / 2) < 2 * WEIR_NS_PER_S);
    assert_true(sup.workers[0].link >= 0);
    weir_sup_workers_tick(&sup, weir_clock_now_ns() + 11 * WEIR_NS_PER_S);
    assert_int_equal(sup.workers[0].link, -1);
    assert_int_equal(sup.workers[0].outbox.n, 0);
    weir_sup_workers_tick(&sup, weir_clock_now_ns() + 20 * WEIR_NS_PER_S);
    assert_int_equal(waitpid(sup.workers[0].pid, NULL, 0), sup.workers[0].pid);
    sup.workers[0].pid = 0;
}

static void a_flood_of_messages_for_it_ends_its_link(void **state)
{
    (void)state;
    assert_true(slowest_send_ns(100000) < 2 * WEIR_NS_PER_S);
    assert_int_equal(sup.workers[0].link, -1);
    assert_true(sup.workers[0].stop_by_ns != 0);
}

static void a_worker_that_talks_nonsense_has_so_many_lines_written(void **state)
{
    static char text[1u << 20];
    int log = memfd_create("log", MFD_CLOEXEC);
    char spec[64];
    int n_lines = 0;
    ssize_t n;

    (void)state;
    snprintf(spec, sizeof spec, "warn:/proc/self/fd/%d", log);
    assert_int_equal(weir_log_init(spec, "test"), WEIR_OK);
    weir_log_rate_init(&sup.workers[0].log_rate);
    for (int i = 0; i < WEIR_LOG_RATE_LINES + 20; i++) {
        say(UINT32_MAX);
    }
    assert_int_equal(weir_log_init("none", "test"), WEIR_OK);
    n = pread(log, text, sizeof text, 0);
    for (ssize_t i = 0; i < n; i++) {
        n_lines += text[i] == '\n';
    }
    assert_int_equal(n_lines, WEIR_LOG_RATE_LINES + 1); /* one says that there are more */
    close(log);
}

static void a_port_that_cannot_be_made_is_lost(void **state)
{
    struct weir_link_message message = {.type = WEIR_LINK_GATE_PORT,
                                        .gate_port = {.id = 6, .worker = 0}};
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    sup.gate.link = pair[0];
    sup.workers[0].gate.port = 7;
    assert_int_equal(weir_link_send(pair[1], &message, -1), WEIR_OK);
    weir_sup_gate_receive(&sup);
    assert_int_equal(heard(&message), 0); /* that was an earlier worker's */
    message = (struct weir_link_message){.type = WEIR_LINK_GATE_PORT, .gate_port = {.id = 7}};
    assert_int_equal(weir_link_send(pair[1], &message, -1), WEIR_OK);
    weir_sup_gate_receive(&sup);
    assert_int_equal(heard(&message), WEIR_LINK_GATE_LOST);
    assert_int_equal(sup.workers[0].gate.port, 0);
    assert_int_equal(recv(pair[1], &message, sizeof message, MSG_DONTWAIT), sizeof message);
    assert_int_equal(message.type, WEIR_LINK_GATE_PORT_GONE);
    assert_int_equal(message.gate_port.id, 7);
    close(pair[0]);
    close(pair[1]);
}

static uint32_t gate_heard(int end, struct weir_link_message *ret_message)
{
    return recv(end, ret_message, sizeof *ret_message, MSG_DONTWAIT) == (ssize_t)sizeof *ret_message
               ? ret_message->type
               : 0;
}

/* Before guests come to it. Later it may be in one's hands. */
static void a_worker_says_once_which_gpus_there_are(void **state)
{
    struct weir_link_message message = {.type = WEIR_LINK_READS};
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    sup.gate.link = pair[0];
    message.reads =
        (struct weir_link_reads){.n = 2, .gpu = {{.uuid = "one", .sms = 132}, {.uuid = "two"}}};
    assert_int_equal(weir_link_send(link_end, &message, -1), WEIR_OK);
    weir_sup_worker_receive(&sup, 0);
    assert_int_equal(gate_heard(pair[1], &message), WEIR_LINK_GATE_GPU);
    assert_string_equal((const char *)message.gpu.uuid, "one");
    assert_int_equal(message.gpu.sms, 132);
    assert_int_equal(gate_heard(pair[1], &message), WEIR_LINK_GATE_GPU);
    assert_int_equal(gate_heard(pair[1], &message), WEIR_LINK_GATE_PORT); /* after them */
    while (gate_heard(pair[1], &message) != 0) {
        assert_int_not_equal(message.type, WEIR_LINK_GATE_GPU);
    }
    message.type = WEIR_LINK_READS;
    message.reads =
        (struct weir_link_reads){.n = UINT32_MAX, .gpu = {{.uuid = "one"}, {.uuid = "invented"}}};
    assert_int_equal(weir_link_send(link_end, &message, -1), WEIR_OK);
    weir_sup_worker_receive(&sup, 0);
    assert_int_equal(gate_heard(pair[1], &message), 0);
    assert_int_equal(sup.gate.n_gpus, 2);
    assert_int_equal(sup.gate.gpus[0].sms, 132);
    close(pair[0]);
    close(pair[1]);
}

/* It would wait for its port for ever. */
static void a_worker_that_comes_when_the_gate_has_died_hears_that(void **state)
{
    struct weir_link_message message;

    (void)state;
    sup.workers[0].gate.comes = true;
    say(WEIR_LINK_READS);
    assert_int_equal(heard(&message), WEIR_LINK_GATE_LOST);
}

/* ---------------------------------------------------------------- what a hostile worker says */

static void tell(struct weir_link_message message, int fd)
{
    assert_int_equal(weir_link_send(link_end, &message, fd), WEIR_OK);
    weir_sup_worker_receive(&sup, 0);
}

/* The messages of link.def that a worker does not send, and numbers that are none. */
static void a_worker_is_not_heard_with_messages_of_others(void **state)
{
#define WEIR_LINK(message, worker, gate, of_worker, of_gate, when, about)                          \
    [WEIR_LINK_##message] = #of_worker,
    static const char *const handlers[WEIR_LINK_COUNT + 2] = {
#include "host_backend/config/link.def"
    };
#undef WEIR_LINK
    static struct weir_supervisor before;
    uint32_t n_refused = 0;

    (void)state;
    say(WEIR_LINK_READS);
    for (uint32_t type = 0; type < WEIR_LINK_COUNT + 2; type++) {
        if (handlers[type] && strcmp(handlers[type], "NO") != 0) {
            continue;
        }
        before = sup;
        say(type);
        before.workers[0].log_rate = sup.workers[0].log_rate; /* there may be a line about it */
        assert_memory_equal(&before, &sup, sizeof sup);
        n_refused++;
    }
    assert_in_range(n_refused, 20, WEIR_LINK_COUNT);
}

/* Of a tenant: its memory is kept, it has caused a fault, its sessions were refused. */
static void speak_of(uint32_t tenant)
{
    tell((struct weir_link_message){.type = WEIR_LINK_KEEP, .chunk = {.tenant_index = tenant}},
         link_end);
    tell((struct weir_link_message){.type = WEIR_LINK_FAULT,
                                    .fault = {.tenant_index = tenant, .n_suspects = 1}},
         -1);
    tell(
        (struct weir_link_message){
            .type = WEIR_LINK_EVENT,
            .event = {.kind = WEIR_EVENT_SESSION_REFUSED, .tenant_index = tenant, .n = 5}},
        -1);
}

static void a_worker_is_heard_about_its_own_tenants_alone(void **state)
{
    (void)state;
    weir_sup_chunks_init(&sup);
    sup.config.quarantine_s = 60;
    sup.tenants[1].worker = 1;
    speak_of(1);
    speak_of(2); /* there is none */
    speak_of(UINT32_MAX);
    assert_int_equal(sup.chunks.n_kept, 0);
    assert_int_equal(sup.tenants[1].faults.sure, 0);
    assert_int_equal(sup.tenants[1].faults.quarantine_end_ns, 0);
    assert_int_equal(sup.tenants[1].refused.sessions, 0);
    speak_of(0);
    assert_int_equal(sup.chunks.n_kept, 1);
    assert_int_equal(sup.tenants[0].faults.sure, 1);
    assert_int_not_equal(sup.tenants[0].faults.quarantine_end_ns, 0);
    assert_int_equal(sup.tenants[0].refused.sessions, 5);
    weir_sup_drop_all(&sup, 0);
    free(sup.chunks.kept);
}

/* Its slot may be another's when the worker that has its work still writes into its window. */
static void a_tenant_is_free_when_its_own_worker_says_so(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        sup.tenants[i].gone = true;
        sup.tenants[i].worker = (int)i;
        tell((struct weir_link_message){.type = WEIR_LINK_TENANT_FREE, .tenant = {.index = i}}, -1);
    }
    assert_false(sup.tenants[0].used);
    assert_true(sup.tenants[1].used);
}

/* It would take the room of those that come, and names that other hosts are to have. */
static void a_worker_with_guests_claims_no_gpus(void **state)
{
    (void)state;
    sup.config.exclusive = true;
    say(WEIR_LINK_READS);
    tell((struct weir_link_message){.type = WEIR_LINK_DEVICES, .gpus = {.n = 1, .uuid = {"x"}}},
         -1);
    assert_int_equal(sup.claims.n, 0);
}

/* Nobody else sees what it writes there, and the supervisor believes little of it. */
static void what_a_worker_writes_on_its_page_reaches_no_other(void **state)
{
    struct weir_spin_page gate = {0}, *hostile, *seen;
    int fd[2];

    (void)state;
    sup.workers[1].used = true;
    sup.spin.page = &gate;
    sup.spin.cores = 1;
    sup.spin.loadavg_fd = -1; /* so nothing is decided */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_sup_spin_worker_starts(&sup, &sup.workers[i], &fd[i]), WEIR_OK);
    }
    weir_sup_spin_show(&sup, 7);
    sup.workers[1].giving.n_syncs = 3;
    weir_sup_giving_answer(&sup, weir_clock_now_ns());
    assert_int_equal(weir_spin_page_map(fd[0], &hostile), WEIR_OK);
    assert_int_equal(weir_spin_page_map(fd[1], &seen), WEIR_OK);
    assert_int_equal(atomic_load(&seen->tenants), 7);
    memset(hostile, 0xff, sizeof *hostile);
    weir_sup_spin_tick(&sup, weir_clock_now_ns());
    assert_int_equal(sup.spin.idle_epochs, 0); /* it lies about that */
    assert_int_equal(atomic_load(&seen->level), WEIR_SPIN_ALL);
    assert_int_equal(atomic_load(&seen->synced), 3);
    assert_int_equal(atomic_load(&seen->giving), 0);
    assert_int_equal(atomic_load(&seen->epoch), 1);
    assert_int_equal(atomic_load(&gate.level), WEIR_SPIN_ALL);
    assert_int_equal(atomic_load(&gate.gate_asks), 0);
    assert_int_equal(atomic_load(&hostile->tenants), 7);
    for (int i = 0; i < 2; i++) {
        weir_sup_spin_worker_gone(&sup.workers[i]);
        close(fd[i]);
    }
    weir_spin_page_unmap(hostile);
    weir_spin_page_unmap(seen);
}

/* The name of a share on demand comes once: its slot would be taken for ever. */
static void a_tenant_without_a_worker_leaves_its_slot(void **state)
{
    struct weir_tenant_config config = {.isolation = WEIR_ISOLATION_TENANT};
    struct weir_diag diag = {0};

    (void)state;
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) { /* there is no slot for another */
        if (!sup.workers[i].used) {
            sup.workers[i] =
                (struct weir_sup_worker){.used = true, .kind = WEIR_WORKER_SHARED, .link = -1};
            snprintf(sup.workers[i].group, sizeof sup.workers[i].group, "others");
        }
    }
    snprintf(config.name, sizeof config.name, "run-7");
    assert_int_equal(weir_sup_tenant_add(&sup, &config, WEIR_ORIGIN_COMMAND, &diag), WEIR_ERR_IO);
    assert_null(weir_sup_tenant_find(&sup, "run-7"));
    assert_false(sup.tenants[2].used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_worker_is_told_its_tenants_when_it_reads, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_tenant_that_goes_before_that_leaves_its_slot, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_worker_that_stands_still_is_killed_when_its_link_is_lost,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_worker_that_does_not_read_holds_nobody_up, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_flood_of_messages_for_it_ends_its_link, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_worker_that_talks_nonsense_has_so_many_lines_written,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_port_that_cannot_be_made_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_worker_says_once_which_gpus_there_are, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_worker_that_comes_when_the_gate_has_died_hears_that,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_worker_is_not_heard_with_messages_of_others, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_worker_is_heard_about_its_own_tenants_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_tenant_is_free_when_its_own_worker_says_so, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_worker_with_guests_claims_no_gpus, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_worker_writes_on_its_page_reaches_no_other, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_ends_well_without_being_asked_has_failed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_tenant_without_a_worker_leaves_its_slot, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

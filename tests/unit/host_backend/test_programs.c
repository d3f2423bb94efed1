/* host_backend/supervisor/workers/programs.c: which workers end for whom. The rest: tests/e2e. */
#include "programs_fixture.h"

#include "host_backend/supervisor/domains/mps.h"
#include "keeper_fixture.h"
#include <sys/eventfd.h>

static bool was_stopped(int worker)
{
    struct weir_link_message message;

    return recv(links[worker], &message, sizeof message, MSG_DONTWAIT) > 0 &&
           message.type == WEIR_LINK_STOP;
}

static void lack_memory(int worker, uint64_t now_ns)
{
    weir_sup_program_lacks_memory(&sup, worker);
    weir_sup_programs_tick(&sup, now_ns);
}

/* How many may give memory back, as a worker is told that asks. */
static uint32_t n_giving(int worker, uint64_t now_ns)
{
    lack_memory(worker, now_ns);
    return atomic_load(&pages[worker].giving);
}

static void who_serves_nobody_gives_way(void **state)
{
    (void)state;
    assert_int_equal(n_giving(BUSY, weir_clock_now_ns()), 2);
    assert_true(was_stopped(SPARE));
    assert_true(was_stopped(KEPT));
    assert_false(was_stopped(BUSY));
    assert_false(was_stopped(SHARED));
    assert_int_equal(n_giving(SHARED, weir_clock_now_ns()), 2); /* they have not ended yet */
    assert_false(was_stopped(SPARE));
}

static void is_refused(enum weir_status reason, const char *why)
{
    int end = have_pending(0);

    weir_sup_programs_tick(&sup, weir_clock_now_ns());
    was_told(end, reason, why);
}

static void one_that_a_program_waits_for_does_not(void **state)
{
    int end = have_pending(0);

    (void)state;
    sup.tenants[0].config.sessions_max = 4;
    sup.workers[SPARE].ready = false;         /* it starts */
    sup.workers[KEPT].connections.wanted = 7; /* the program asks for no such worker */
    assert_int_equal(n_giving(BUSY, weir_clock_now_ns()), 1);
    assert_false(was_stopped(SPARE));
    assert_true(was_stopped(KEPT));
    weir_sup_pending_forget(&sup, &sup.programs.pending[0]);
    close(end);
}

static void who_lacks_memory_in_a_loop_is_heard_once_a_second(void **state)
{
    uint64_t now_ns = weir_clock_now_ns();

    (void)state;
    lack_memory(BUSY, now_ns);
    assert_true(was_stopped(SPARE));
    sup.workers[SPARE].program.stopping = false; /* another has taken its place */
    lack_memory(BUSY, now_ns + WEIR_NS_PER_S / 2);
    assert_false(was_stopped(SPARE));
    assert_in_range(loop_wait_ms(&sup, weir_sup_programs_watch, now_ns + WEIR_NS_PER_S / 2), 499,
                    501);
    lack_memory(SHARED, now_ns + WEIR_NS_PER_S / 2); /* that is not the same */
    assert_true(was_stopped(SPARE));
    sup.workers[SPARE].program.stopping = false;
    weir_sup_programs_tick(&sup, now_ns + WEIR_NS_PER_S); /* what it asked for has not been lost */
    assert_true(was_stopped(SPARE));
}

/* A process that its parent has waited for. */
static pid_t gone(void)
{
    pid_t child = fork();

    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    return child;
}

static void a_program_that_has_ended_gives_memory_for_a_while(void **state)
{
    uint64_t now_ns = weir_clock_now_ns();

    (void)state;
    sup.workers[SPARE].used = sup.workers[KEPT].used = false;
    sup.workers[BUSY].program.pid = getpid();
    assert_int_equal(n_giving(SHARED, now_ns), 0);
    sup.workers[BUSY].program.pid = gone(); /* its worker has not noticed */
    assert_int_equal(n_giving(SHARED, now_ns), 1);
    atomic_store(&pages[SHARED].ending, 2); /* it has noticed two */
    assert_int_equal(n_giving(BUSY, now_ns + WEIR_NS_PER_S), 2);
    assert_int_equal(n_giving(BUSY, now_ns + WEIR_ENDING_NS), 1);
    assert_int_equal(n_giving(BUSY, now_ns + WEIR_ENDING_NS + WEIR_NS_PER_S), 0);
    atomic_store(&pages[SHARED].ending, 0);
    assert_int_equal(n_giving(BUSY, now_ns + WEIR_ENDING_NS + WEIR_NS_PER_S), 0);
    atomic_store(&pages[SHARED].ending, 1); /* another one */
    assert_int_equal(n_giving(BUSY, now_ns + WEIR_ENDING_NS + WEIR_NS_PER_S), 1);
}

static bool was_told_to_give_back(int worker)
{
    struct weir_link_message message;

    return recv(links[worker], &message, sizeof message, MSG_DONTWAIT) > 0 &&
           message.type == WEIR_LINK_GIVE_BACK;
}

static void spare_memory_is_given_back_to_who_lacks_some(void **state)
{
    uint64_t now_ns = weir_clock_now_ns();

    (void)state;
    sup.workers[SPARE].used = sup.workers[KEPT].used = false;
    atomic_store(&pages[SHARED].spares, 3);
    weir_sup_programs_tick(&sup, now_ns);
    assert_false(was_told_to_give_back(SHARED)); /* nobody needs it */
    assert_int_equal(n_giving(BUSY, now_ns), 1);
    assert_true(was_told_to_give_back(SHARED));
    assert_false(was_told_to_give_back(BUSY));
    atomic_store(&pages[SHARED].spares, 0);
    assert_int_equal(n_giving(BUSY, now_ns), 0);
    assert_false(was_told_to_give_back(SHARED));
}

/* Then a context is tried for again at once. */
static void spare_memory_makes_room_for_a_context(void **state)
{
    (void)state;
    sup.life.announced = true;
    sup.workers[N] = (struct weir_sup_worker){
        .used = true, .kind = WEIR_WORKER_PROGRAM, .tenant = -1, .link = -1};
    atomic_store(&pages[SHARED].spares, 1);
    weir_sup_program_died(&sup, N, WEIR_WORKER_EXIT_FULL << 8);
    assert_true(was_told_to_give_back(SHARED));
    assert_true(weir_sup_has_room(&sup, "", weir_clock_now_ns()));
    sup.workers[N] = (struct weir_sup_worker){
        .used = true, .kind = WEIR_WORKER_PROGRAM, .tenant = -1, .link = -1};
    atomic_store(&pages[SHARED].spares, 0);
    weir_sup_program_died(&sup, N, WEIR_WORKER_EXIT_FULL << 8);
    assert_false(weir_sup_has_room(&sup, "", weir_clock_now_ns()));
}

static void who_syncs_is_told_when_all_is_done(void **state)
{
    (void)state;
    weir_sup_program_syncs(&sup, BUSY);
    weir_sup_program_syncs(&sup, BUSY);
    weir_sup_programs_tick(&sup, weir_clock_now_ns());
    assert_int_equal(atomic_load(&pages[BUSY].synced), 2);
    assert_int_equal(atomic_load(&pages[SHARED].synced), 0);
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
    sup.mps.wanted = true;
    sup.mps.of[0] = (struct weir_sup_mps){.used = true};
    sup.workers[SPARE].program.native = false;
    sup.workers[SPARE].program.domain = 1;
    sup.workers[SPARE].program.connections = 8;
    sup.tenants[0].config.sm_limit_pct = 50;
    weir_sup_programs_tick(&sup, now_ns);
    assert_false(was_stopped(SPARE)); /* it has not told how many SMs there are */
    weir_mps_sms_note(&sup, "", &(struct weir_link_sms){.n = 1, .sms = {8}});
    sup.tenants[0].config.sm_limit_pct = 100;
    weir_sup_programs_tick(&sup, now_ns);
    assert_false(was_stopped(SPARE));
    sup.tenants[0].config.sm_limit_pct = 50;
    weir_sup_programs_tick(&sup, now_ns);
    assert_true(was_stopped(SPARE));
    assert_false(was_stopped(BUSY));
    assert_false(was_stopped(KEPT));
}

/* The worker's death before it was ready, as waitpid() tells it. */
/* Two spares have few connections, and others that had more have ended. */
static void spares_with_few_connections_are_replaced_one_by_one(void **state)
{
    struct weir_sup_worker *first = &sup.workers[SPARE], *second = &sup.workers[KEPT];
    uint64_t now_ns = weir_clock_now_ns();

    (void)state;
    sup.mps.wanted = true;
    sup.mps.of[0] = (struct weir_sup_mps){.used = true, .ready = true};
    first->program = second->program = (struct weir_sup_program){.domain = 1, .connections = 2};
    second->tenant = -1;
    for (int i = 0; i < 4; i++) {
        sup.workers[N + i] = sup.workers[BUSY];
        sup.workers[N + i].link = -1;
        sup.workers[N + i].program.domain = 1;
        sup.workers[N + i].program.connections = 8;
    }
    weir_sup_programs_tick(&sup, now_ns);
    assert_false(was_stopped(SPARE) || was_stopped(KEPT));
    sup.workers[N].used = sup.workers[N + 1].used = false;
    sup.programs.spares_paused_ns = now_ns; /* a spare has just been given out */
    weir_sup_programs_tick(&sup, now_ns);
    assert_false(was_stopped(SPARE) || was_stopped(KEPT));
    now_ns += 3 * WEIR_NS_PER_S;
    weir_sup_programs_tick(&sup, now_ns);
    weir_sup_programs_tick(&sup, now_ns);
    assert_true(was_stopped(SPARE));
    assert_false(was_stopped(KEPT)); /* while the first one ends .. */
    first->program = (struct weir_sup_program){.domain = 1, .connections = 8};
    first->stop_by_ns = 0;
    first->ready = false;
    weir_sup_programs_tick(&sup, now_ns);
    assert_false(was_stopped(KEPT)); /* .. and the next one starts */
    first->ready = true;
    weir_sup_programs_tick(&sup, now_ns);
    assert_false(was_stopped(SPARE));
    assert_true(was_stopped(KEPT));
}

static void cannot_start(const char *devices)
{
    sup.workers[N] = (struct weir_sup_worker){
        .used = true, .kind = WEIR_WORKER_PROGRAM, .tenant = -1, .link = -1};
    snprintf(sup.workers[N].devices, sizeof sup.workers[N].devices, "%s", devices);
    weir_sup_program_died(&sup, N, WEIR_WORKER_EXIT_DRIVER << 8);
}

static void have_devices(int worker, const char *devices)
{
    snprintf(sup.workers[worker].devices, sizeof sup.workers[worker].devices, "%s", devices);
}

static void one_that_cannot_start_says_nothing_about_other_devices(void **state)
{
    uint64_t now_ns;

    (void)state;
    sup.life.announced = true;
    cannot_start("1");
    now_ns = weir_clock_now_ns();
    assert_false(weir_sup_has_room(&sup, "1", now_ns));
    assert_false(weir_sup_has_room_for_spares(&sup, "1", now_ns));
    assert_true(weir_sup_has_room(&sup, "0", now_ns));
    assert_true(weir_sup_has_room_for_spares(&sup, "0", now_ns));
    assert_in_range(loop_wait_ms(&sup, weir_sup_programs_watch, now_ns), 1900, 2001);
    assert_true(weir_sup_has_room(&sup, "1", now_ns + 2 * WEIR_NS_PER_S));
    assert_false(weir_sup_has_room_for_spares(&sup, "1", now_ns + 2 * WEIR_NS_PER_S));
    assert_true(weir_sup_has_room_for_spares(&sup, "1", now_ns + 30 * WEIR_NS_PER_S));
    cannot_start("1");
    weir_sup_shortage_less(&sup); /* another has ended */
    assert_true(weir_sup_has_room(&sup, "1", now_ns));
}

static void a_program_is_told_why_no_worker_starts(void **state)
{
    static const struct {
        int wait_status;
        enum weir_status reason;
        const char *why;
    } rows[] = {
        {WEIR_WORKER_EXIT_FULL << 8, WEIR_ERR_NO_MEMORY, "no room for another context"},
        {WEIR_WORKER_EXIT_DRIVER << 8, WEIR_ERR_DRIVER, "could not open the GPU"},
        {WEIR_WORKER_EXIT_NO_FD << 8, WEIR_ERR_NO_DESCRIPTOR, "no file descriptor left"},
        {WEIR_WORKER_EXIT_FAILED << 8, WEIR_ERR_INTERNAL, "ended before it was ready"},
        {SIGKILL, WEIR_ERR_INTERNAL, "ended before it was ready"},
    };

    (void)state;
    sup.life.announced = true;
    sup.config.workers.on_shortage = WEIR_SHORTAGE_REFUSE;
    sup.tenants[0].config.sessions_max = 4;
    sup.workers[SPARE].used = sup.workers[KEPT].used = false; /* none is there to give way */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sup.workers[N] = (struct weir_sup_worker){
            .used = true, .kind = WEIR_WORKER_PROGRAM, .tenant = -1, .link = -1};
        weir_sup_program_died(&sup, N, rows[i].wait_status);
        is_refused(rows[i].reason, rows[i].why);
    }
}

/* The places of programs that live are waited for less. */
static void the_place_of_an_ended_program_is_waited_for(void **state)
{
    int end = have_pending(0);
    uint64_t since_ns = sup.programs.pending[0].since_ns;

    (void)state;
    sup.life.announced = true;
    sup.tenants[0].config.sessions_max = 1;
    sup.workers[BUSY].program.pid = gone();
    weir_sup_programs_tick(&sup, since_ns + 2 * WEIR_NS_PER_S);
    assert_true(sup.programs.pending[0].used);
    assert_in_range(loop_wait_ms(&sup, weir_sup_programs_watch, since_ns + 2 * WEIR_NS_PER_S), 1,
                    3001);
    weir_sup_programs_tick(&sup, since_ns + WEIR_ENDING_NS);
    was_told(end, WEIR_ERR_QUOTA, "sessions");
    end = have_pending(0);
    sup.workers[BUSY].program.pid = getpid();
    weir_sup_programs_tick(&sup, sup.programs.pending[0].since_ns + WEIR_NS_PER_S);
    was_told(end, WEIR_ERR_QUOTA, "sessions");
}

/* There is no room for a context, but soon there may be. */
static void the_context_of_an_ended_program_is_waited_for(void **state)
{
    int end = have_pending(0);
    uint64_t since_ns = sup.programs.pending[0].since_ns;

    (void)state;
    sup.life.announced = true;
    sup.config.workers.on_shortage = WEIR_SHORTAGE_REFUSE;
    sup.tenants[0].config.sessions_max = 4;
    sup.workers[SPARE].used = sup.workers[KEPT].used = false;
    sup.workers[N] = (struct weir_sup_worker){
        .used = true, .kind = WEIR_WORKER_PROGRAM, .tenant = -1, .link = -1};
    weir_sup_program_died(&sup, N, WEIR_WORKER_EXIT_FULL << 8);
    sup.workers[BUSY].program.pid = gone();
    weir_sup_programs_tick(&sup, since_ns + WEIR_NS_PER_S);
    assert_true(sup.programs.pending[0].used);
    sup.workers[BUSY].program.pid = getpid();
    weir_sup_programs_tick(&sup, since_ns + WEIR_NS_PER_S);
    was_told(end, WEIR_ERR_NO_MEMORY, "no room for another context");
}

/* No process can be had: the limit of this one's descriptors, and of its user's processes. */
static void a_lack_of_the_host_is_told_as_such(void **state)
{
    struct rlimit before, none;

    (void)state;
    sup.life.announced = true;
    sup.config.workers.on_shortage = WEIR_SHORTAGE_REFUSE;
    sup.tenants[0].config.sessions_max = 4;
    sup.workers[SPARE].used = sup.workers[KEPT].used = false;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int end = have_pending(0);
    int last = dup(0);

    close(last);
    none = (struct rlimit){.rlim_cur = (rlim_t)last, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    weir_sup_programs_tick(&sup, weir_clock_now_ns());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    was_told(end, WEIR_ERR_NO_DESCRIPTOR, "no file descriptor left for another worker");
    snprintf(sup.tenants[0].config.devices, sizeof sup.tenants[0].config.devices, "0");
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) { /* all slots are taken, for other GPUs */
        sup.workers[i].kind = sup.workers[i].used ? sup.workers[i].kind : WEIR_WORKER_SHARED;
        sup.workers[i].used = true;
        have_devices(i, "1");
    }
    is_refused(WEIR_ERR_FULL, "as many workers or processes as it may");
}

static void who_waits_is_told_that_the_host_stops(void **state)
{
    int end = have_pending(0);

    (void)state;
    weir_sup_pending_close(&sup);
    was_told(end, WEIR_ERR_NOT_FOUND, "the host is shutting down");
    assert_false(sup.programs.pending[0].used);
}

static void many_lists_that_cannot_start_are_all_tried_again(void **state)
{
    char devices[16];

    (void)state;
    sup.life.announced = true;
    for (int i = 0; i < 3 * WEIR_SHORTAGES_MAX; i++) {
        snprintf(devices, sizeof devices, "%d", i);
        cannot_start(devices);
        assert_false(weir_sup_has_room(&sup, devices, weir_clock_now_ns()));
    }
    assert_true(weir_sup_has_room(&sup, "0", weir_clock_now_ns())); /* forgotten first */
}

static void no_worker_ends_for_devices_that_it_has_not(void **state)
{
    int end;

    (void)state;
    sup.life.announced = true;
    have_devices(KEPT, "0");
    have_devices(SPARE, "0");
    sup.tenants[1] = sup.tenants[0];
    sup.tenants[1].index = 1;
    snprintf(sup.tenants[1].config.devices, sizeof sup.tenants[1].config.devices, "1");
    sup.tenants[1].config.sessions_max = 4;
    cannot_start("1");
    end = have_pending(1);
    weir_sup_programs_tick(&sup, weir_clock_now_ns());
    close(end);
    assert_false(sup.programs.pending[0].used); /* it was refused */
    assert_int_equal(sup.tenants[1].refused.sessions, 1);
    assert_false(was_stopped(KEPT));
}

static void a_host_without_a_driver_ends_and_one_with_a_broken_gpu_does_not(void **state)
{
    (void)state;
    sup.workers[SHARED].pid = 1;
    cannot_start("1");
    assert_false(sup.life.stopping);
    sup.workers[SHARED].ready = false; /* it is in its first start */
    cannot_start("1");
    assert_false(sup.life.stopping);
    sup.workers[SHARED].restarts = 1; /* it has failed, too */
    cannot_start("1");
    assert_true(sup.life.stopping);
    assert_int_equal(sup.life.exit_status, WEIR_SERVE_EXIT_NO_GPU);
}

static void one_that_does_not_get_ready_is_killed(void **state)
{
    struct weir_sup_worker *w = &sup.workers[SPARE];
    int status = 0;

    (void)state;
    w->ready = false;
    w->started_ns = weir_clock_now_ns();
    w->pid = fork();
    if (w->pid == 0) {
        pause();
        _exit(0);
    }
    assert_true(w->pid > 0);
    weir_sup_programs_tick(&sup, w->started_ns + 59 * WEIR_NS_PER_S);
    assert_false(w->program.terminated);
    assert_in_range(loop_wait_ms(&sup, weir_sup_programs_watch, w->started_ns + 59 * WEIR_NS_PER_S),
                    0, 1001);
    weir_sup_programs_tick(&sup, w->started_ns + 60 * WEIR_NS_PER_S);
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    w->pid = 0;
    weir_sup_program_died(&sup, SPARE, status);
    assert_false(weir_sup_has_room_for_spares(&sup, "", weir_clock_now_ns()));
}

/* ---------------------------------------------------------------- starts */

enum { FIRST_TENANT = 1, WAITING = 6 };

/* Programs of a tenant each wait, the later the lower its slot. @param ends  the guests' */
static void have_programs_wait(uint64_t now_ns, int ends[WAITING])
{
    for (int i = 0; i < WAITING; i++) {
        int tenant = FIRST_TENANT + i, pair[2];

        sup.tenants[tenant] = sup.tenants[0];
        sup.tenants[tenant].index = (uint32_t)tenant;
        sup.tenants[tenant].account_fd = -1;
        sup.tenants[tenant].config.sessions_max = 4;
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
        ends[i] = pair[1];
        sup.programs.pending[i] =
            (struct weir_sup_pending){.used = true,
                                      .fd = pair[0],
                                      .said_hello = true,
                                      .since_ns = now_ns - (uint64_t)i,
                                      .guest = {.tenant_index = (uint32_t)tenant}};
    }
}

/* Workers are started, but do nothing and never get ready. */
static void no_more_than_three_start_at_once(void **state)
{
    char folder[] = "/tmp/weir-test-programs-XXXXXX";
    uint64_t now_ns = weir_clock_now_ns();
    int ends[WAITING];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(sup.config.run_dir, sizeof sup.config.run_dir, "%s", folder);
    sup.params.program = "/bin/true";
    pid_t keeper = start_keeper(&sup, folder);

    sup.config.workers.spares = 2;
    sup.life.announced = true;
    sup.gate.link = -1;
    sup.spin.page_fd = -1;
    sup.workers[SPARE].tenant = 0; /* theirs is none of those that wait */
    have_programs_wait(now_ns, ends);
    weir_sup_programs_tick(&sup, now_ns);
    assert_int_equal(sup.running.starts, 3);
    now_ns = weir_clock_now_ns();
    weir_sup_programs_tick(&sup, now_ns);
    assert_int_equal(sup.running.starts, 3);
    assert_in_range(loop_wait_ms(&sup, weir_sup_programs_watch, now_ns), 1, 1100);
    sup.config.workers.spares = 0;
    weir_sup_programs_tick(&sup, now_ns + 3 * WEIR_NS_PER_S); /* they are slow: others are tried */
    assert_int_equal(sup.running.starts, WAITING);
    for (int i = 0; i < WAITING; i++) {
        assert_true(sup.programs.pending[i].used);
        weir_sup_pending_forget(&sup, &sup.programs.pending[i]);
        close(ends[i]);
    }
    weir_sup_workers_close(&sup);
    weir_book_close(&sup, true);
    assert_int_equal(waitpid(keeper, NULL, 0), keeper);
    assert_int_equal(rmdir(folder), 0);
}

/* A session leaves a worker for this one's next place. */
static void leaves(int worker, uint64_t session, int64_t pid)
{
    const struct weir_link_moved moved = {.guest = {.session = session, .pid = pid}};
    int box = eventfd(0, EFD_CLOEXEC);

    assert_true(box >= 0);
    weir_sup_program_moved(&sup, worker, &moved, box);
}

static uint32_t n_waiting(uint64_t session)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_PENDING_MAX; i++) {
        const struct weir_sup_pending *p = &sup.programs.pending[i];

        n += p->used && p->moved && p->guest.session == session;
    }
    return n;
}

/* The supervisor ends while five sessions wait for workers. */
static void the_next_supervisor_has_the_sessions_that_wait(void **state)
{
    char folder[] = "/tmp/weir-test-programs-XXXXXX";
    pid_t keeper;

    (void)state;
    assert_non_null(mkdtemp(folder));
    sup.config.linger_s = 60;
    keeper = start_keeper(&sup, folder);
    for (uint64_t session = 1; session <= 5; session++) {
        leaves(BUSY, session, 100 + (int64_t)session);
    }
    leaves(SHARED, 6, 106); /* its sessions have no boxes */
    for (int i = 0; i < WEIR_PENDING_MAX; i++) {
        struct weir_sup_pending *p = &sup.programs.pending[i];

        if (p->used && p->guest.session == 5) {
            weir_sup_pending_forget(&sup, p); /* its worker has it */
        } else if (p->used) {
            close(p->fd);
        }
    }
    weir_book_close(&sup, false);
    memset(&sup.programs, 0, sizeof sup.programs);
    assert_true(weir_book_open(&sup));
    leaves(BUSY, 2, 102);                  /* its message comes again */
    sup.workers[KEPT].program.busy = true; /* and 3 has been sent to this one */
    sup.workers[KEPT].program.pid = 103;
    sup.workers[KEPT].pid = sup.workers[BUSY].pid + 1;
    weir_sup_pending_adopt(&sup);
    assert_int_equal(n_waiting(1), 1);
    assert_int_equal(n_waiting(2), 1);
    assert_int_equal(n_waiting(3), 0);
    assert_int_equal(n_waiting(4), 1);
    assert_int_equal(n_waiting(5), 0);
    assert_int_equal(n_waiting(6), 0);
    assert_int_equal(sup.programs.n_guests, 4); /* nobody else gets such a number */
    for (int i = 0; i < WEIR_PENDING_MAX; i++) {
        if (sup.programs.pending[i].used) {
            weir_sup_pending_forget(&sup, &sup.programs.pending[i]);
        }
    }
    weir_book_close(&sup, false);
    assert_true(weir_book_open(&sup));
    assert_null(weir_book_next(&sup, WEIR_BOOK_MOVED, NULL)); /* all have been removed */
    weir_book_close(&sup, true);
    assert_int_equal(waitpid(keeper, NULL, 0), keeper);
    assert_int_equal(rmdir(folder), 0);
}

static void a_worker_goes_to_who_has_waited_for_longest(void **state)
{
    uint64_t now_ns = weir_clock_now_ns();
    int ends[WAITING];

    (void)state;
    sup.programs.shortages[0].room_ns = sup.programs.shortages[0].spares_ns =
        now_ns + 9 * WEIR_NS_PER_S;
    sup.gate.link = -1;
    sup.config.workers.on_shortage = WEIR_SHORTAGE_SHARE;
    sup.workers[KEPT].program.stopping = true; /* so the others wait for its end */
    have_programs_wait(now_ns, ends);
    weir_sup_programs_tick(&sup, now_ns);
    assert_int_equal(sup.workers[SPARE].tenant, FIRST_TENANT + WAITING - 1);
    assert_false(sup.programs.pending[WAITING - 1].used);
    for (int i = 0; i < WAITING; i++) {
        if (sup.programs.pending[i].used) {
            weir_sup_pending_forget(&sup, &sup.programs.pending[i]);
        }
        close(ends[i]);
    }
}

static void tenants_have_their_turns(void **state)
{
    static const struct {
        uint32_t slot, tenant;
        uint64_t since_ns;
    } rows[] = {{7, 1, 100}, {3, 1, 200}, {0, 1, 300}, {9, 2, 250}, {2, 3, 400}, {5, 2, 500}};
    static const uint16_t wanted[] = {7, 9, 2, 3, 5, 0};
    uint16_t slots[WEIR_PENDING_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sup.programs.pending[rows[i].slot] =
            (struct weir_sup_pending){.used = true,
                                      .fd = -1,
                                      .since_ns = rows[i].since_ns,
                                      .guest = {.tenant_index = rows[i].tenant}};
    }
    assert_int_equal(weir_sup_pending_in_turn(&sup, slots), sizeof wanted / sizeof wanted[0]);
    assert_memory_equal(slots, wanted, sizeof wanted);
}

/* ---------------------------------------------------------------- contexts of a GPU */

enum { CONTEXTS = 12, FREE_FROM = 8 };

/* A GPU that takes few contexts, and workers on it that serve a tenant's programs. */
static void have_busy(int tenant, int first, int n)
{
    sup.gate.n_gpus = 1;
    sup.gate.gpus[0].contexts = CONTEXTS;
    for (int i = first; i < first + n; i++) {
        sup.workers[i] = (struct weir_sup_worker){.used = true,
                                                  .kind = WEIR_WORKER_PROGRAM,
                                                  .ready = true,
                                                  .link = -1,
                                                  .tenant = tenant,
                                                  .program = {.busy = true, .native = true}};
    }
}

static void have_tenants(int n)
{
    for (int i = 0; i < n; i++) {
        sup.tenants[i] = sup.tenants[0];
        sup.tenants[i].index = (uint32_t)i;
        sup.tenants[i].config.sessions_max = 100;
    }
}

static void a_tenant_with_its_part_of_the_contexts_gets_no_more(void **state)
{
    int end;

    (void)state;
    have_tenants(4);
    sup.workers[BUSY].used = sup.workers[KEPT].used = sup.workers[SHARED].used = false;
    sup.config.workers.on_shortage = WEIR_SHORTAGE_REFUSE;
    have_busy(1, FREE_FROM, 9); /* of twelve; the other three tenants have none */
    end = have_pending(1);
    weir_sup_programs_tick(&sup, weir_clock_now_ns());
    was_told(end, WEIR_ERR_QUOTA, "its part of the contexts");
    assert_int_equal(sup.workers[SPARE].tenant, -1);
    end = have_pending(2); /* who has none gets the spare that is there */
    weir_sup_programs_tick(&sup, weir_clock_now_ns());
    assert_int_equal(sup.workers[SPARE].tenant, 2);
    close(end);
}

static void beyond_its_part_it_shares_a_worker(void **state)
{
    int end;

    (void)state;
    have_tenants(4);
    sup.workers[BUSY].used = sup.workers[KEPT].used = sup.workers[SHARED].used = false;
    have_busy(1, FREE_FROM, 9);
    end = have_pending(1);
    weir_sup_programs_tick(&sup, weir_clock_now_ns());
    assert_false(sup.programs.pending[0].used);
    assert_int_equal(sup.workers[FREE_FROM].program.n_guests, 1);
    assert_int_equal(sup.workers[SPARE].tenant, -1);
    close(end);
}

static void where_others_have_all_contexts_that_is_said(void **state)
{
    int end;

    (void)state;
    have_tenants(4);
    sup.workers[SPARE].used = sup.workers[BUSY].used = sup.workers[KEPT].used = false;
    sup.workers[SHARED].used = false;
    have_busy(1, FREE_FROM, CONTEXTS); /* from before the other tenants came */
    end = have_pending(2);
    weir_sup_programs_tick(&sup, weir_clock_now_ns());
    was_told(end, WEIR_ERR_FULL, "other tenants' programs have all");
}

static void an_idle_worker_gives_way_to_a_program_on_a_full_gpu(void **state)
{
    int end;

    (void)state;
    have_tenants(4);
    sup.workers[SPARE].used = sup.workers[BUSY].used = sup.workers[SHARED].used = false;
    have_busy(1, FREE_FROM, CONTEXTS - 1);
    sup.workers[FREE_FROM + CONTEXTS - 3].program.busy = false; /* its second kept one */
    sup.workers[FREE_FROM + CONTEXTS - 2].program.busy = false;
    sup.workers[FREE_FROM + CONTEXTS - 3].program.idle_since_ns =
        sup.workers[FREE_FROM + CONTEXTS - 2].program.idle_since_ns = weir_clock_now_ns();
    end = have_pending(2);
    weir_sup_programs_tick(&sup, weir_clock_now_ns());
    assert_true(sup.programs.pending[0].used);
    assert_int_equal(sup.running.starts, 0);
    assert_true(was_stopped(KEPT));
    weir_sup_pending_forget(&sup, &sup.programs.pending[0]);
    close(end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_serves_nobody_gives_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_a_program_waits_for_does_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_lacks_memory_in_a_loop_is_heard_once_a_second, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_program_that_has_ended_gives_memory_for_a_while, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_syncs_is_told_when_all_is_done, set_up, tear_down),
        cmocka_unit_test_setup_teardown(spare_memory_is_given_back_to_who_lacks_some, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(spare_memory_makes_room_for_a_context, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_place_of_an_ended_program_is_waited_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_context_of_an_ended_program_is_waited_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(only_kept_workers_end_with_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_spare_of_no_use_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(spares_with_few_connections_are_replaced_one_by_one, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_cannot_start_says_nothing_about_other_devices,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_program_is_told_why_no_worker_starts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lack_of_the_host_is_told_as_such, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_waits_is_told_that_the_host_stops, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_lists_that_cannot_start_are_all_tried_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(no_worker_ends_for_devices_that_it_has_not, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_does_not_get_ready_is_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_host_without_a_driver_ends_and_one_with_a_broken_gpu_does_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_more_than_three_start_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_next_supervisor_has_the_sessions_that_wait, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_worker_goes_to_who_has_waited_for_longest, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(tenants_have_their_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_tenant_with_its_part_of_the_contexts_gets_no_more, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(beyond_its_part_it_shares_a_worker, set_up, tear_down),
        cmocka_unit_test_setup_teardown(where_others_have_all_contexts_that_is_said, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_idle_worker_gives_way_to_a_program_on_a_full_gpu, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

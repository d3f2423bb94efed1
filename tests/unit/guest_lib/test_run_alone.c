#include "base/clock.h"
#include "guest_lib/run_alone.h"
#include "tests/lib/tl_cmocka.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE_BYTES 4096
#define COUNTERS   4
#define SIGNALS    30

/* ---------------------------------------------------------------- replacing pages */

/* What a function that runs alone does: put a memory file in the place of pages. */
struct replacement {
    uint8_t *at, *file;
    size_t bytes;
};

static void begin_replacing(struct replacement *r, void *at, size_t bytes)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    *r = (struct replacement){.at = at, .bytes = bytes};
    r->file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(r->file != MAP_FAILED);
    close(fd);
}

/* AddressSanitizer knows places in stacks that nobody may read. */
__attribute__((no_sanitize("address"))) static void replace(void *user)
{
    const struct replacement *r = user;

    for (size_t i = 0; i < r->bytes; i++) {
        ((volatile uint8_t *)r->file)[i] = r->at[i];
    }
    (void)!mremap(r->file, r->bytes, r->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, r->at);
}

/* A page with counters, each counted by a thread that remembers how far it came. */
static uint64_t *counters;
static uint64_t counted[COUNTERS];
static int stop;

static void *count(void *user)
{
    size_t i = (uintptr_t)user;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        __atomic_store_n(&counters[i], counters[i] + 1, __ATOMIC_RELAXED);
        counted[i]++;
    }
    return NULL;
}

static void writes_of_other_threads_are_not_lost(void **state)
{
    static struct replacement r;
    pthread_t threads[COUNTERS];
    const char *why;

    (void)state;
    counters = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(counters != MAP_FAILED);
    for (size_t i = 0; i < COUNTERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, count, (void *)i), 0);
    }
    for (int round = 0; round < 20; round++) {
        begin_replacing(&r, counters, PAGE_BYTES);
        assert_true(weir_run_alone(replace, &r, &why));
        assert_null(why);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < COUNTERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(counters[i], counted[i]);
    }
    munmap(counters, PAGE_BYTES);
}

/* In a program of its own: what is replaced would be shared with children, and sanitizers know no
 * threads of a child. */
static const char *own_path;

static void in_program(const char *name)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        execl(own_path, own_path, name, (char *)NULL);
        _exit(9);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void replace_own_stack(void)
{
    static struct replacement r;
    volatile unsigned before = 4711;
    const char *why;

    begin_replacing(&r, (void *)((uintptr_t)&before & ~(uintptr_t)(PAGE_BYTES - 1)), PAGE_BYTES);
    _exit(weir_run_alone(replace, &r, &why) && before == 4711 ? 0 : 1);
}

static void the_callers_own_stack_may_be_replaced(void **state)
{
    (void)state;
    in_program("stack");
}

/* ---------------------------------------------------------------- inside the kernel */

static void nothing(void *user)
{
    __atomic_store_n((int *)user, 1, __ATOMIC_RELAXED);
}

static pid_t waiter;

static void *wait_for_events(void *user)
{
    struct epoll_event event;
    int *epoll = user;

    __atomic_store_n(&waiter, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    errno = 0;
    return epoll_wait(*epoll, &event, 1, -1) == 1 ? user : NULL;
}

/* Until the kernel says that the thread is so: 'S' asleep, 'Z' dead. */
static void await_state(pid_t tid, char state)
{
    char path[64], text[256] = "";

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    for (const char *end = NULL; !end || end[2] != state; end = strrchr(text, ')')) {
        FILE *file = fopen(path, "re");

        if (!file || !fgets(text, sizeof text, file)) {
            abort();
        }
        fclose(file);
    }
}

static void await_sleep(void)
{
    while (__atomic_load_n(&waiter, __ATOMIC_ACQUIRE) == 0) {
    }
    await_state(waiter, 'S');
}

static void a_call_that_waits_begins_anew(void **state)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC), pipes[2], ran = 0;
    struct epoll_event event = {.events = EPOLLIN};
    pthread_t thread;
    const char *why;
    void *got;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event), 0);
    waiter = 0;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_events, &epoll), 0);
    await_sleep();
    assert_true(weir_run_alone(nothing, &ran, &why));
    await_sleep();
    assert_int_equal(write(pipes[1], "x", 1), 1);
    pthread_join(thread, &got);
    assert_ptr_equal(got, &epoll);
    assert_int_equal(ran, 1);
    close(epoll);
    close(pipes[0]);
    close(pipes[1]);
}

/* A thread whose descriptor's page becomes one of a file is still joined. */
static void *replace_own_descriptor(void *user)
{
    static struct replacement r;
    const char *why;

    await_sleep();
    begin_replacing(&r, (void *)((uintptr_t)pthread_self() & ~(uintptr_t)(PAGE_BYTES - 1)),
                    PAGE_BYTES);
    return weir_run_alone(replace, &r, &why) ? user : NULL;
}

static void join_after_replacing(void)
{
    pthread_t thread;
    void *got;

    waiter = (pid_t)syscall(SYS_gettid);
    if (pthread_create(&thread, NULL, replace_own_descriptor, &got) == 0) {
        pthread_join(thread, &got);
        _exit(got == &got ? 0 : 1);
    }
}

static void waiters_on_a_replaced_page_are_woken(void **state)
{
    (void)state;
    in_program("join");
}

static int handled;

static void handle(int number)
{
    (void)number;
    __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
}

static void *take_signals(void *user)
{
    while (__atomic_load_n(&handled, __ATOMIC_RELAXED) < SIGNALS) {
    }
    return user;
}

static void signals_that_come_meanwhile_are_handled(void **state)
{
    struct sigaction action = {.sa_handler = handle};
    pthread_t thread;
    const char *why;
    int ran;

    (void)state;
    sigaction(SIGUSR1, &action, NULL);
    assert_int_equal(pthread_create(&thread, NULL, take_signals, NULL), 0);
    for (int sent = 0; sent < SIGNALS; sent++) {
        pthread_kill(thread, SIGUSR1);
        assert_true(weir_run_alone(nothing, &ran, &why));
        while (__atomic_load_n(&handled, __ATOMIC_RELAXED) <= sent) {
        }
    }
    pthread_join(thread, NULL);
}

/* ---------------------------------------------------------------- what stands in the way */

static void die(void *user)
{
    (void)user;
    syscall(SYS_exit, 0);
}

static void a_function_that_does_not_return_was_not_run(void **state)
{
    const char *why = NULL;

    (void)state;
    assert_false(weir_run_alone(die, NULL, &why));
    assert_non_null(why);
}

static void *sleep_for_ever(void *user)
{
    pause();
    return user;
}

static bool refuse(unsigned int call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {4, filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void run_without_ptrace(void)
{
    pthread_t thread;
    const char *why = NULL;
    int ran = 0;
    bool alone = refuse(SYS_ptrace) && weir_run_alone(nothing, &ran, &why) && ran && !why;

    ran = 0;
    if (!alone || pthread_create(&thread, NULL, sleep_for_ever, NULL) != 0) {
        _exit(1);
    }
    _exit(!weir_run_alone(nothing, &ran, &why) && !ran && why && strstr(why, "ptrace") ? 0 : 2);
}

static void without_ptrace_a_single_thread_runs_alone_and_several_do_not(void **state)
{
    (void)state;
    in_program("ptrace");
}

/* The first thread is dead, and listed still. */
static void *run_after_first(void *user)
{
    const char *why;
    int ran = 0;

    (void)user;
    await_state(getpid(), 'Z');
    _exit(weir_run_alone(nothing, &ran, &why) && ran ? 0 : 3);
}

static void leave_first(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, run_after_first, NULL) == 0) {
        pthread_exit(NULL);
    }
}

static void a_dead_first_thread_is_none(void **state)
{
    (void)state;
    in_program("first");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } programs[] = {{"stack", replace_own_stack},
                    {"join", join_after_replacing},
                    {"ptrace", run_without_ptrace},
                    {"first", leave_first}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_of_other_threads_are_not_lost),
        cmocka_unit_test(the_callers_own_stack_may_be_replaced),
        cmocka_unit_test(a_call_that_waits_begins_anew),
        cmocka_unit_test(waiters_on_a_replaced_page_are_woken),
        cmocka_unit_test(signals_that_come_meanwhile_are_handled),
        cmocka_unit_test(a_function_that_does_not_return_was_not_run),
        cmocka_unit_test(without_ptrace_a_single_thread_runs_alone_and_several_do_not),
        cmocka_unit_test(a_dead_first_thread_is_none),
    };

    for (size_t i = 0; argc > 1 && i < sizeof programs / sizeof programs[0]; i++) {
        if (strcmp(programs[i].name, argv[1]) == 0) {
            programs[i].run();
        }
    }
    own_path = argv[0];
    return argc > 1 ? 9 : cmocka_run_group_tests(tests, NULL, NULL);
}

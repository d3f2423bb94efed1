/* When a virtual machine is taken to have run: the rule, and what it looks at. */
#include "host_backend/worker/memory/vm_clock.h"

#include "base/clock.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define START_NS  (1000 * WEIR_NS_PER_S)
#define PASSED_S  60
#define SILENT_S  10 /* until a program that does not beat is taken for dead (worker/regions.c) */
#define LOOK_MAX  10000
#define LOOK_STEP ((struct timespec){.tv_nsec = 1000000})

/* Looked at once a second for a minute, by a machine whose processors move
 * every so many seconds. */
static uint64_t ran_s(struct weir_vm_clock *clock, uint64_t *now_ns, unsigned every_s)
{
    uint64_t before_ns = clock->run_ns;

    for (unsigned i = 1; i <= PASSED_S; i++) {
        *now_ns += WEIR_NS_PER_S;
        weir_vm_clock_step(clock, *now_ns,
                           every_s != 0 ? clock->signs + (i % every_s == 0) : clock->signs);
    }
    return (clock->run_ns - before_ns) / WEIR_NS_PER_S;
}

static void step_of_a_running_machine_counts_all_time(void **state)
{
    static const struct {
        const char *name;
        unsigned every_s;
    } rows[] = {{"busy", 1}, {"idle, as measured", 2}, {"idle, its watchdog alone", 4}, {"5 s", 5}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_vm_clock clock = {.pid = 1};
        uint64_t now_ns = START_NS;

        weir_vm_clock_step(&clock, now_ns, 7);
        assert_int_equal(clock.run_ns, 0);
        if (ran_s(&clock, &now_ns, rows[i].every_s) != PASSED_S) {
            fail_msg("%s: %llu ns of %u s", rows[i].name, (unsigned long long)clock.run_ns,
                     PASSED_S);
        }
    }
}

static void step_of_a_suspended_machine_stands_still(void **state)
{
    struct weir_vm_clock clock = {.pid = 1};
    uint64_t now_ns = START_NS, before_ns;

    (void)state;
    weir_vm_clock_step(&clock, now_ns, 7);
    (void)ran_s(&clock, &now_ns, 1);
    before_ns = clock.run_ns;
    assert_int_equal(ran_s(&clock, &now_ns, 0), 0);
    /* It goes on, and its programs have time for a beat. */
    weir_vm_clock_step(&clock, now_ns + WEIR_NS_PER_S, clock.signs + 1);
    assert_in_range(clock.run_ns - before_ns, 0, SILENT_S * WEIR_NS_PER_S / 4);
}

static void step_after_nobody_looked_counts_little(void **state)
{
    struct weir_vm_clock clock = {.pid = 1};

    (void)state;
    weir_vm_clock_step(&clock, START_NS, 7);
    weir_vm_clock_step(&clock, START_NS + PASSED_S * WEIR_NS_PER_S, 8);
    assert_in_range(clock.run_ns, 0, SILENT_S * WEIR_NS_PER_S / 4);
}

static void step_of_an_unknown_machine_counts_all_time(void **state)
{
    struct weir_vm_clock clock = {0};

    (void)state;
    assert_int_equal(weir_vm_signs(clock.pid), WEIR_VM_SIGNS_UNKNOWN);
    for (uint64_t i = 0; i <= PASSED_S; i++) {
        weir_vm_clock_step(&clock, START_NS + i * WEIR_NS_PER_S, WEIR_VM_SIGNS_UNKNOWN);
    }
    assert_int_equal(clock.run_ns, PASSED_S * WEIR_NS_PER_S);
}

/* ---------------------------------------------------------------- what it looks at */

/* A thread that sleeps until it is poked, and says so when it goes to sleep again. */
struct sleeper {
    const char *name; /* NULL: the process's */
    int poke[2], woke[2];
    pthread_t thread;
    pid_t tid;
    unsigned long turns; /* on a processor, given up by itself */
};

static void *doze(void *user)
{
    struct sleeper *s = user;
    char byte;

    if (s->name) {
        (void)prctl(PR_SET_NAME, s->name);
    }
    s->tid = (pid_t)syscall(SYS_gettid);
    do {
        (void)!write(s->woke[1], "", 1);
    } while (read(s->poke[0], &byte, 1) == 1);
    return NULL;
}

static unsigned long turns_of(const struct sleeper *s, char *ret_letter)
{
    unsigned long turns = 0;
    char path[64], line[256];
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)s->tid);
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        (void)!sscanf(line, "State: %c", ret_letter);
        (void)!sscanf(line, "voluntary_ctxt_switches: %lu", &turns);
    }
    fclose(file);
    return turns;
}

/* Is it asleep again, and was its turn counted? */
static void await_sleep(struct sleeper *s)
{
    char letter = 0;
    unsigned long turns = turns_of(s, &letter);

    for (int i = 0; i < LOOK_MAX && (letter != 'S' || turns == s->turns); i++) {
        nanosleep(&LOOK_STEP, NULL);
        turns = turns_of(s, &letter);
    }
    assert_int_equal(letter, 'S');
    assert_int_not_equal(turns, s->turns);
    s->turns = turns;
}

static void await_woken(struct sleeper *s)
{
    char byte;

    assert_int_equal(read(s->woke[0], &byte, 1), 1);
    await_sleep(s);
}

static void start(struct sleeper *s)
{
    assert_int_equal(pipe(s->poke), 0);
    assert_int_equal(pipe(s->woke), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, doze, s), 0);
    await_woken(s);
}

static void poke(struct sleeper *s)
{
    assert_int_equal(write(s->poke[1], "", 1), 1);
    await_woken(s);
}

static void stop(struct sleeper *s)
{
    close(s->poke[1]);
    pthread_join(s->thread, NULL);
    close(s->poke[0]);
    close(s->woke[0]);
    close(s->woke[1]);
}

static void signs_of_named_processors_are_theirs_alone(void **state)
{
    struct sleeper processors[] = {{.name = "CPU 0/KVM"}, {.name = "CPU 1/KVM"}}, other = {0};
    uint64_t before, after;

    (void)state;
    start(&processors[0]);
    start(&processors[1]);
    start(&other); /* a screen's, say */
    for (int i = 0; i < 2; i++) {
        before = weir_vm_signs(getpid());
        poke(&other);
        assert_int_equal(weir_vm_signs(getpid()), before);
        poke(&processors[i]); /* very idle: one turn, and no tick of the processor's time */
        after = weir_vm_signs(getpid());
        assert_int_not_equal(after, before);
    }
    stop(&processors[0]);
    stop(&processors[1]);
    stop(&other);
}

static void signs_without_names_are_of_all_but_the_first_thread(void **state)
{
    struct sleeper other = {0};
    uint64_t before;

    (void)state;
    start(&other);
    before = weir_vm_signs(getpid());
#ifndef __SANITIZE_THREAD__ /* which has a thread of its own */
    for (int i = 0; i < 10; i++) {
        nanosleep(&LOOK_STEP, NULL); /* the monitor's life */
    }
    assert_int_equal(weir_vm_signs(getpid()), before);
#endif
    poke(&other);
    assert_int_not_equal(weir_vm_signs(getpid()), before);
    stop(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_of_a_running_machine_counts_all_time),
        cmocka_unit_test(step_of_a_suspended_machine_stands_still),
        cmocka_unit_test(step_after_nobody_looked_counts_little),
        cmocka_unit_test(step_of_an_unknown_machine_counts_all_time),
        cmocka_unit_test(signs_of_named_processors_are_theirs_alone),
        cmocka_unit_test(signs_without_names_are_of_all_but_the_first_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

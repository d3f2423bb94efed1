/* Who may wait by spinning: host_backend/config/spin.h. */
#include "host_backend/config/spin.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <unistd.h>

#define EPOCH_NS (20 * WEIR_NS_PER_MS)
#define CORES    16

struct machine {
    struct weir_spin_governor governor;
    uint64_t now_ns;
    bool gate_asks;
};

/* What is decided after n epochs in which everything stays as it is. */
static enum weir_spin_level after(struct machine *m, uint32_t n, uint32_t running, uint32_t active)
{
    const struct weir_spin_seen seen = {
        .running = running, .active = active, .gate_asks = m->gate_asks, .cores = CORES};
    enum weir_spin_level level = WEIR_SPIN_ALL;

    for (uint32_t i = 0; i < n; i++) {
        m->now_ns += EPOCH_NS;
        level = weir_spin_decide(&m->governor, &seen, m->now_ns);
    }
    return level;
}

static void decide_by_sessions_and_others(void **state)
{
    static const struct {
        const char *what;
        uint32_t running, active;
        enum weir_spin_level level;
    } rows[] = {
        {"one tenant alone", 2, 1, WEIR_SPIN_ALL},
        {"nobody at all", 0, 0, WEIR_SPIN_ALL},
        {"eight sessions have both threads on a core", 16, 8, WEIR_SPIN_ALL},
        {"nine have room for their guests only", 18, 9, WEIR_SPIN_GUESTS},
        {"sixteen, each guest on a core", 16, 16, WEIR_SPIN_GUESTS},
        {"twenty services", 14, 20, WEIR_SPIN_NOBODY},
        {"one session beside fourteen busy threads", 16, 1, WEIR_SPIN_ALL},
        {"one session beside fifteen", 17, 1, WEIR_SPIN_GUESTS},
        {"one session beside a machine that is full", 30, 1, WEIR_SPIN_NOBODY},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct machine m = {0};

        if (after(&m, 10, rows[i].running, rows[i].active) != rows[i].level) {
            fail_msg("%s: level %d", rows[i].what, (int)m.governor.level);
        }
    }
}

/* It is one thread more; where it has no core of its own the sessions give way first. */
static void the_gate_process_has_a_core_where_one_is_idle(void **state)
{
    static const struct {
        const char *what;
        uint32_t running, active;
        enum weir_spin_level level;
        bool gate_may;
    } rows[] = {
        {"two sessions and the gate", 5, 2, WEIR_SPIN_ALL, true},
        {"seven sessions, all spinning", 15, 7, WEIR_SPIN_ALL, true},
        {"eight leave no core for it", 17, 8, WEIR_SPIN_GUESTS, true},
        {"twenty services, two cores idle", 14, 20, WEIR_SPIN_NOBODY, true},
        {"twenty services, it has the last core", 16, 20, WEIR_SPIN_NOBODY, true},
        {"twenty services, no core idle", 17, 20, WEIR_SPIN_NOBODY, false},
        {"two sessions beside a machine that is full", 30, 2, WEIR_SPIN_NOBODY, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct machine m = {.gate_asks = true};

        if (after(&m, 10, rows[i].running, rows[i].active) != rows[i].level ||
            m.governor.gate_may != rows[i].gate_may) {
            fail_msg("%s: level %d gate %d", rows[i].what, (int)m.governor.level,
                     m.governor.gate_may);
        }
    }
}

/* It does not ask: it would need one core more than are in use. */
static void a_gate_process_that_sleeps_needs_an_idle_core(void **state)
{
    struct machine m = {0};

    (void)state;
    assert_int_equal(after(&m, 10, 16, 20), WEIR_SPIN_NOBODY);
    assert_false(m.governor.gate_may);
    (void)after(&m, 60, 15, 20);
    assert_true(m.governor.gate_may);
}

/* Cores are short whenever it spins: it tries ever more seldom. */
static void the_gate_process_tries_seldom_where_it_is_too_much(void **state)
{
    struct machine m = {.gate_asks = true};
    uint32_t tries = 0, allowed = 0;

    (void)state;
    for (uint32_t i = 0; i < 60 * 50; i++) { /* a minute */
        bool may = m.governor.n == 0 || m.governor.gate_may;

        (void)after(&m, 1, 15 + (may ? 2 : 0), 20); /* who waits behind it wants a core, too */
        tries += !may && m.governor.gate_may;
        allowed += may;
    }
    assert_in_range(tries, 3, 8);
    assert_true(allowed < 100); /* of 3000 epochs */
}

static void a_single_busy_sample_changes_nothing(void **state)
{
    struct machine m = {0};

    (void)state;
    assert_int_equal(after(&m, 10, 2, 1), WEIR_SPIN_ALL);
    assert_int_equal(after(&m, 1, 40, 1), WEIR_SPIN_ALL);
    assert_int_equal(after(&m, 10, 2, 1), WEIR_SPIN_ALL);
}

/* Others need nearly all cores: that is only seen while sessions spin,
 * so each try costs them time. */
static void tries_become_rare_when_each_is_too_soon(void **state)
{
    struct machine m = {0};
    uint32_t tries = 0, allowed = 0;

    (void)state;
    for (uint32_t i = 0; i < 60 * 50; i++) { /* a minute */
        bool spins = m.governor.n == 0 || m.governor.level == WEIR_SPIN_ALL;
        enum weir_spin_level before = m.governor.level;

        /* Thirteen other threads; four sessions' eight threads are on a core
         * only while they spin. */
        (void)after(&m, 1, 13 + (spins ? 8 : 2), 4);
        tries += before < WEIR_SPIN_ALL && m.governor.level == WEIR_SPIN_ALL;
        allowed += spins;
    }
    assert_in_range(tries, 3, 8);
    assert_true(allowed < 60); /* of 3000 epochs */
}

static void an_old_failure_is_forgotten(void **state)
{
    struct machine m = {0};

    (void)state;
    assert_int_equal(after(&m, 10, 40, 4), WEIR_SPIN_NOBODY);
    assert_int_equal(after(&m, 60, 4, 4), WEIR_SPIN_ALL);
    assert_int_equal(after(&m, 500, 4, 4), WEIR_SPIN_ALL);
    assert_int_equal(after(&m, 10, 40, 4), WEIR_SPIN_NOBODY);
    assert_int_equal(after(&m, 60, 4, 4), WEIR_SPIN_ALL); /* again after a second, not two */
}

static void sessions_are_counted_once_an_epoch_and_the_gate_process(void **state)
{
    struct weir_spin_page *ours, *theirs;
    uint32_t first = 0, second = 0;
    int fd;

    (void)state;
    assert_int_equal(weir_spin_page_create(&fd, &ours), WEIR_OK);
    assert_int_equal(weir_spin_page_map(fd, &theirs), WEIR_OK);
    close(fd);
    atomic_store(&ours->epoch, 5);
    assert_int_equal(weir_spin_note(theirs, &first), WEIR_SPIN_ALL);
    assert_int_equal(weir_spin_note(theirs, &first), WEIR_SPIN_ALL);
    assert_int_equal(weir_spin_note(theirs, &second), WEIR_SPIN_ALL);
    assert_int_equal(atomic_load(&ours->active[1]), 2);
    assert_int_equal(atomic_load(&ours->active[0]), 0);
    atomic_store(&ours->level, WEIR_SPIN_GUESTS);
    assert_int_equal(weir_spin_note(theirs, &first), WEIR_SPIN_GUESTS);
    assert_false(weir_spin_host_may(theirs));
    assert_int_equal(atomic_load(&ours->gate_asks), 0);
    assert_true(weir_spin_gate_may(theirs));
    assert_int_equal(atomic_load(&ours->gate_asks), 1);
    atomic_store(&ours->gate_may, 0);
    assert_false(weir_spin_gate_may(theirs));
}

static void a_page_that_is_too_small_is_refused(void **state)
{
    struct weir_spin_page *page;
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(weir_spin_page_map(ends[0], &page), WEIR_ERR_INVALID);
    assert_int_equal(weir_spin_page_map(-1, &page), WEIR_ERR_INVALID);
    close(ends[0]);
    close(ends[1]);
}

static void a_host_that_runs_for_years_goes_on_deciding(void **state)
{
    struct machine m = {.governor.n = UINT32_MAX - 1};

    (void)state;
    assert_int_equal(after(&m, 10, 30, 1), WEIR_SPIN_NOBODY);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(decide_by_sessions_and_others),
        cmocka_unit_test(the_gate_process_has_a_core_where_one_is_idle),
        cmocka_unit_test(a_gate_process_that_sleeps_needs_an_idle_core),
        cmocka_unit_test(the_gate_process_tries_seldom_where_it_is_too_much),
        cmocka_unit_test(a_single_busy_sample_changes_nothing),
        cmocka_unit_test(tries_become_rare_when_each_is_too_soon),
        cmocka_unit_test(an_old_failure_is_forgotten),
        cmocka_unit_test(a_host_that_runs_for_years_goes_on_deciding),
        cmocka_unit_test(sessions_are_counted_once_an_epoch_and_the_gate_process),
        cmocka_unit_test(a_page_that_is_too_small_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

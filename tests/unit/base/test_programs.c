/* base/programs.h */
#include "base/programs.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct weir_programs table;

static int set_up(void **state)
{
    (void)state;
    memset(&table, 0, sizeof table);
    return 0;
}

static struct weir_programs_sum look(void)
{
    return weir_programs_look(&table, WEIR_ANY_PLACE, WEIR_ENDING_NS);
}

static void a_table_names_all_programs_of_a_process(void **state)
{
    struct weir_program program;
    uint32_t first, second, other;
    char long_name[200];

    (void)state;
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_false(weir_programs_get(&table, 1, &program));
    first = weir_programs_add(&table, 3, 0, "python3");
    second = weir_programs_add(&table, 3, 0, long_name);
    other = weir_programs_add(&table, 4, 0, "other");
    assert_int_equal(weir_programs_last(&table), 3);
    weir_programs_show(&table, first, 77);
    weir_programs_hold(&table, second, 5000);
    assert_true(weir_programs_get(&table, first, &program));
    assert_int_equal(program.pid, 77);
    assert_int_equal(program.place, 3);
    assert_int_equal(program.bytes, 0);
    assert_false(program.ended);
    assert_string_equal(program.name, "python3");
    weir_programs_remove(&table, first);
    assert_false(weir_programs_get(&table, first, &program));
    assert_true(weir_programs_get(&table, second, &program));
    assert_int_equal(program.pid, 0); /* not shown */
    assert_int_equal(program.bytes, 5000);
    assert_int_equal(strlen(program.name), WEIR_PROGRAM_NAME_BYTES - 1);
    weir_programs_settle(&table, 3); /* their process has died */
    assert_false(weir_programs_get(&table, second, &program));
    assert_true(weir_programs_get(&table, other, &program));
    assert_int_equal(program.place, 4);
}

static void a_table_has_room_for_so_many_programs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WEIR_PROGRAMS; i++) {
        assert_int_not_equal(weir_programs_add(&table, 3, 0, "one"), 0);
    }
    assert_int_equal(weir_programs_add(&table, 4, 0, "one too many"), 0);
    weir_programs_hold(&table, 0, 5000);
    weir_programs_end(&table, 0);
    weir_programs_remove(&table, 0);
    assert_int_equal(look().n_ended, 0);
    assert_int_equal(look().alive_bytes, 0);
    weir_programs_remove(&table, 9);
    assert_int_equal(weir_programs_add(&table, 4, 0, "the next"), 9);
}

static void who_has_ended_does_not_count_as_alive(void **state)
{
    uint32_t one = weir_programs_add(&table, 0, 0, "one"),
             two = weir_programs_add(&table, 1, 0, "two");
    struct weir_program program;

    (void)state;
    weir_programs_hold(&table, one, 100);
    weir_programs_hold(&table, two, 20);
    assert_int_equal(look().n_ended, 0);
    assert_int_equal(look().alive_bytes, 120);
    weir_programs_end(&table, one);
    assert_int_equal(look().n_ended, 1);
    assert_int_equal(look().alive_bytes, 20);
    assert_true(weir_programs_get(&table, one, &program) && program.ended);
    assert_int_equal(weir_programs_look(&table, 1, WEIR_ENDING_NS).n_ended, 0);
    assert_int_equal(weir_programs_look(&table, 0, WEIR_ENDING_NS).alive_bytes, 0);
    atomic_fetch_sub(&table.rows[one - 1].ended_ns, WEIR_ENDING_NS); /* it was long ago */
    assert_int_equal(look().n_ended, 0);
    assert_int_equal(look().alive_bytes, 120);
    assert_int_equal(weir_programs_look(&table, 0, UINT64_MAX).n_ended, 1);
    weir_programs_remove(&table, one);
    assert_int_equal(look().alive_bytes, 20);
}

static void the_end_of_a_program_is_not_its_successors(void **state)
{
    uint32_t one = weir_programs_add(&table, 0, 0, "one");

    (void)state;
    weir_programs_end(&table, one);
    weir_programs_remove(&table, one);
    assert_int_equal(weir_programs_add(&table, 0, 0, "two"), one);
    assert_int_equal(look().n_ended, 0);
}

/* As its parent sees it: as soon as that has waited. */
static void a_process_that_was_waited_for_has_ended(void **state)
{
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    assert_true(child > 0);
    weir_programs_hold(&table, weir_programs_add(&table, 0, (uint32_t)child, "child"), 7);
    assert_int_not_equal(weir_programs_add(&table, 0, (uint32_t)getpid(), "self"), 0);
    assert_int_equal(look().n_ended, 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(look().n_ended, 1);
    assert_int_equal(look().alive_bytes, 0);
    assert_true(weir_process_is_gone((uint32_t)child));
    assert_false(weir_process_is_gone(0));
}

static void *await(void *ends)
{
    while (weir_programs_ends(&table) == *(uint32_t *)ends) {
        weir_programs_await(&table, *(uint32_t *)ends, WEIR_FOREVER);
    }
    return NULL;
}

static void who_waits_is_woken_by_each_end(void **state)
{
    uint32_t number = weir_programs_add(&table, 0, 0, "one"), ends = weir_programs_ends(&table);
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, await, &ends), 0);
    weir_programs_remove(&table, number);
    pthread_join(thread, NULL);
    ends = weir_programs_ends(&table);
    assert_int_equal(pthread_create(&thread, NULL, await, &ends), 0);
    weir_programs_settle(&table, 0);
    pthread_join(thread, NULL);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_table_names_all_programs_of_a_process, set_up),
        cmocka_unit_test_setup(a_table_has_room_for_so_many_programs, set_up),
        cmocka_unit_test_setup(who_has_ended_does_not_count_as_alive, set_up),
        cmocka_unit_test_setup(the_end_of_a_program_is_not_its_successors, set_up),
        cmocka_unit_test_setup(a_process_that_was_waited_for_has_ended, set_up),
        cmocka_unit_test_setup(who_waits_is_woken_by_each_end, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The loop: handlers of what has happened, and how long it sleeps. */
#include "host_backend/loop/loop.h"

#include "../../lib/tl_cmocka.h"
#include "base/clock.h"
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct weir_host_loop *loop;
static int pipes[3][2];
static int handled[8], n_handled;

static int set_up(void **state)
{
    (void)state;
    n_handled = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pipe(pipes[i]), 0);
    }
    return weir_host_loop_create(2, &loop) == WEIR_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
    weir_host_loop_destroy(loop);
    return 0;
}

static void note(void *user, int index)
{
    assert_ptr_equal(user, pipes);
    handled[n_handled++] = index;
}

static void turn(void)
{
    uint64_t woken_ns = 0;

    assert_int_equal(weir_host_loop_turn(loop, &woken_ns), WEIR_OK);
    assert_int_not_equal(woken_ns, 0);
}

static void handlers_are_called_in_the_order_of_their_watches(void **state)
{
    (void)state;
    assert_int_equal(write(pipes[0][1], "x", 1), 1);
    assert_int_equal(write(pipes[1][1], "x", 1), 1);
    weir_host_loop_begin(loop, 1);
    weir_host_loop_watch(loop, -1, POLLIN, note, pipes, 9); /* nobody */
    weir_host_loop_watch(loop, pipes[1][0], POLLIN, note, pipes, 1);
    weir_host_loop_watch(loop, pipes[0][0], POLLIN, note, pipes, 0);
    turn();
    assert_int_equal(n_handled, 2);
    assert_int_equal(handled[0], 1);
    assert_int_equal(handled[1], 0);
}

/* What is watched holds for one turn. */
static void a_watch_that_is_not_renewed_is_gone(void **state)
{
    (void)state;
    assert_int_equal(write(pipes[0][1], "x", 1), 1);
    weir_host_loop_begin(loop, 1);
    weir_host_loop_watch(loop, pipes[0][0], POLLIN, note, pipes, 0);
    turn();
    weir_host_loop_begin(loop, 1);
    weir_host_loop_wake(loop, 0);
    turn();
    assert_int_equal(n_handled, 1);
}

static void the_end_is_told_where_nothing_else_is_watched(void **state)
{
    (void)state;
    assert_int_equal(write(pipes[0][1], "x", 1), 1);
    weir_host_loop_begin(loop, 1);
    weir_host_loop_watch(loop, pipes[0][0], 0, note, pipes, 0);
    weir_host_loop_wake(loop, 0);
    turn();
    assert_int_equal(n_handled, 0);
    close(pipes[0][1]);
    weir_host_loop_begin(loop, 1);
    weir_host_loop_watch(loop, pipes[0][0], 0, note, pipes, 0);
    turn();
    assert_int_equal(n_handled, 1);
    pipes[0][1] = dup(pipes[0][0]);
}

static void more_than_it_has_room_for_are_not_watched(void **state)
{
    (void)state;
    weir_host_loop_begin(loop, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write(pipes[i][1], "x", 1), 1);
        weir_host_loop_watch(loop, pipes[i][0], POLLIN, note, pipes, i);
    }
    turn();
    assert_int_equal(n_handled, 2);
}

static void it_sleeps_until_the_first_time(void **state)
{
    (void)state;
    weir_host_loop_begin(loop, WEIR_NS_PER_S);
    assert_int_equal(weir_host_loop_now_ns(loop), WEIR_NS_PER_S);
    assert_int_equal(weir_host_loop_wait_ms(loop), -1);
    weir_host_loop_wake(loop, WEIR_FOREVER);
    assert_int_equal(weir_host_loop_wait_ms(loop), -1);
    weir_host_loop_wake(loop, 3 * WEIR_NS_PER_S);
    weir_host_loop_wake(loop, 2 * WEIR_NS_PER_S);
    weir_host_loop_wake(loop, 4 * WEIR_NS_PER_S);
    assert_int_equal(weir_host_loop_wait_ms(loop), 1001);
    weir_host_loop_wake(loop, 0);
    assert_int_equal(weir_host_loop_wait_ms(loop), 0);
}

/* Whoever stops must be let go by somebody else. */
static pid_t stop_for_3_s(void)
{
    pid_t parent = getpid(), child = fork();

    if (child == 0) {
        usleep(100000);
        kill(parent, SIGSTOP);
        sleep(3);
        kill(parent, SIGCONT);
        _exit(0);
    }
    return child;
}

/* A stop in a sleep is no time that has passed. */
static void a_stop_does_not_count(void **state)
{
    uint64_t real_ns = weir_clock_now_ns(), own_ns = weir_host_clock_ns();
    pid_t child = stop_for_3_s();

    (void)state;
    assert_true(child > 0);
    while (waitpid(child, NULL, WNOHANG) == 0) {
        weir_host_loop_begin(loop, weir_host_clock_ns());
        weir_host_loop_wake(loop, weir_host_clock_ns() + 400 * WEIR_NS_PER_MS);
        turn();
    }
    real_ns = weir_clock_now_ns() - real_ns;
    own_ns = weir_host_clock_ns() - own_ns;
    assert_true(real_ns >= 3 * WEIR_NS_PER_S);
    assert_true(real_ns - own_ns >= 2 * WEIR_NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(handlers_are_called_in_the_order_of_their_watches, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_watch_that_is_not_renewed_is_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_is_told_where_nothing_else_is_watched, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(more_than_it_has_room_for_are_not_watched, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(it_sleeps_until_the_first_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stop_does_not_count, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

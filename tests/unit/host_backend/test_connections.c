/* host_backend/worker/device/connections.c: how long a program waits. The rest: tests/e2e. */
#include "host_backend/worker/device/connections.h"

#include "base/clock.h"
#include "base/thread.h"
#include "host_backend/worker/state/worker.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define HOUR_S 3600

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

/* The time of day is about to be set back by an hour. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = __real_clock_gettime(clock, now);

    now->tv_sec += clock == CLOCK_REALTIME ? HOUR_S : 0;
    return result;
}

static void the_time_of_day_makes_no_wait_longer(void **state)
{
    struct weir_worker *worker = calloc(1, sizeof *worker);
    uint64_t begin_ns, took_ns;

    (void)state;
    assert_non_null(worker);
    worker->link = -1;
    worker->config.connections_of_guest = true;
    pthread_mutex_init(&worker->lock, NULL);
    weir_thread_condition_init(&worker->idle);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    assert_int_equal(weir_connections_choose(worker), WEIR_OK);
    assert_true(weir_connections_admit(worker, "a", 0)); /* and does not leave */
    alarm(20);
    begin_ns = weir_clock_now_ns();
    assert_true(weir_connections_admit(worker, "a", 1)); /* it waits for the other to leave */
    took_ns = weir_clock_now_ns() - begin_ns;
    alarm(0);
    assert_in_range(took_ns, 200 * WEIR_NS_PER_MS, 10 * WEIR_NS_PER_S);
    weir_connections_destroy(worker);
    pthread_cond_destroy(&worker->idle);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
}

/* The supervisor asks for 32, the most there are. A program's own worker gets what the driver gives
 * by itself, but under one of the supervisor's MPS servers what the supervisor says. */
static void a_worker_of_many_programs_has_all_that_it_is_to_have(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct weir_worker *worker = calloc(1, sizeof *worker);

        assert_non_null(worker);
        worker->config.by_program = kind != 0;
        worker->config.under_mps = kind == 2;
        worker->config.connections = 32;
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
        assert_int_equal(weir_connections_choose(worker), WEIR_OK);
        assert_int_equal(weir_connections_count(worker), kind == 1 ? 8 : 32);
        weir_connections_destroy(worker);
        free(worker);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_of_many_programs_has_all_that_it_is_to_have),
        cmocka_unit_test(the_time_of_day_makes_no_wait_longer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

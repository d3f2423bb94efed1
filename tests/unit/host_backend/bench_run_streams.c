/*
 * The CPU time of weir_run_streams_given(), which each launch and copy of every program calls,
 * while there are no runs. Prints; fails on gross regressions only, because other machines are
 * slower, or busy.
 *
 *     build/dev/tests/unit/host_backend/bench_run_streams
 */
#include "host_backend/worker/runs/run_streams.h"

#include "tests/lib/tl_cmocka.h"
#include <pthread.h>
#include <time.h>

#define CALLS    1000000u
#define STREAMS  200u
#define GROSS_NS 1000.0

static uint64_t asked; /* of the driver */

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    asked++;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
    (void)stream;
    asked++;
    return CUDA_SUCCESS;
}

static double cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* With one thread alone locks would cost less than in a worker. */
static void *until_the_end(void *user)
{
    pthread_barrier_wait(user);
    return NULL;
}

/* Operations for one stream after the other. */
static void measure(uint32_t connections, uint32_t n_streams, uint32_t in_a_row)
{
    const struct weir_driver driver = {.cuStreamIsCapturing = is_capturing, .cuStreamQuery = query};
    struct weir_run_streams *streams = weir_run_streams_create(&driver, connections);
    struct weir_stream_told told[STREAMS] = {{0}};
    double begin_ns, call_ns;

    assert_non_null(streams);
    asked = 0;
    begin_ns = cpu_ns();
    for (uint32_t i = 0; i < CALLS; i++) {
        uint32_t s = i / in_a_row % n_streams;

        weir_run_streams_given(streams, NULL, &told[s], (CUstream)&told[s], false);
    }
    call_ns = (cpu_ns() - begin_ns) / CALLS;
    print_message("connections %u, streams %3u, %u in a row: %.1f ns, %.2f driver calls\n",
                  connections, n_streams, in_a_row, call_ns, (double)asked / CALLS);
    for (uint32_t s = 0; s < n_streams; s++) {
        weir_run_streams_gone(streams, &told[s]);
    }
    weir_run_streams_destroy(streams);
    assert_true(call_ns < GROSS_NS);
}

static void told_of_operations(void **state)
{
    pthread_barrier_t end;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_barrier_init(&end, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, until_the_end, &end), 0);
    measure(8, 1, 1);
    measure(8, 4, 1);
    measure(8, STREAMS, 1);
    measure(2, 1, 1);
    measure(2, 2, 1);
    measure(2, 4, 10);
    pthread_barrier_wait(&end);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(told_of_operations)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

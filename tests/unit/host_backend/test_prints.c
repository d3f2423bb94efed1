/* Sessions that print, and how long they hold each other up. */
#include "../../lib/tl_cmocka.h"
#include "host_backend/worker/device/prints.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/worker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_NS (5 * WEIR_NS_PER_MS)
#define STREAMS   4

static struct weir_worker worker;
static struct weir_driver driver;
static struct weir_session alice, bob;
static int saved_stdout;
static atomic_bool busy[STREAMS];       /* of the streams 1, 2, 3; 0 is where nobody has work */
static size_t stream_of_event[STREAMS]; /* that it was recorded in; 0: it was not */
static size_t n_events;             /* the names of events are 1, 2, 3, in the order of making */
static int n_live;                  /* events */
static unsigned n_queries[STREAMS]; /* of events, by the stream */
static unsigned n_idle;             /* how often the stream without work was waited for */

static CUstream stream_of(size_t n)
{
    return (CUstream)n;
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    assert_int_equal(flags, CU_EVENT_DISABLE_TIMING);
    *ret = (CUevent)++n_events;
    n_live++;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    (void)event;
    n_live--;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    stream_of_event[(size_t)event] = (size_t)stream;
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    size_t n = stream_of_event[(size_t)event];

    n_queries[n]++;
    return busy[n] ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_synchronize(CUevent event)
{
    assert_false(busy[stream_of_event[(size_t)event]]);
    return CUDA_SUCCESS;
}

/* Of a stream that has work nobody asks: it may be under capture. There is no cuStreamQuery. */
static CUresult stream_synchronize(CUstream stream)
{
    assert_ptr_equal(stream, stream_of(STREAMS));
    n_idle++;
    return CUDA_SUCCESS;
}

static int set_up(void **state)
{
    (void)state;
    saved_stdout = dup(STDOUT_FILENO);
    memset(&worker, 0, sizeof worker);
    for (size_t i = 0; i < STREAMS; i++) {
        busy[i] = false;
    }
    memset(n_queries, 0, sizeof n_queries);
    memset(stream_of_event, 0, sizeof stream_of_event);
    n_events = n_idle = 0;
    driver.cuEventCreate = event_create;
    driver.cuEventDestroy_v2 = event_destroy;
    driver.cuEventRecord = event_record;
    driver.cuEventQuery = event_query;
    driver.cuEventSynchronize = event_synchronize;
    driver.cuStreamSynchronize = stream_synchronize;
    alice = bob = (struct weir_session){
        .worker = &worker, .driver = &driver, .devices.work_streams = {stream_of(STREAMS)}};
    assert_int_equal(weir_prints_create(SETTLE_NS, &worker.prints), WEIR_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_prints_forget(&alice, NULL);
    weir_prints_forget(&bob, NULL);
    assert_int_equal(n_live, 0);
    weir_session_prints_destroy(alice.prints);
    weir_session_prints_destroy(bob.prints);
    weir_prints_destroy(worker.prints);
    dup2(saved_stdout, STDOUT_FILENO);
    close(saved_stdout);
    return 0;
}

static void launch(struct weir_session *session, size_t stream)
{
    assert_int_equal(weir_prints_begin(session, stream_of(stream)), CUDA_SUCCESS);
    weir_prints_end(session, stream_of(stream), true);
}

static void bob_prints(void)
{
    launch(&bob, 3);
}

static void all_streams_of_another_are_waited_for_together(void **state)
{
    uint64_t begin_ns = weir_clock_now_ns();

    (void)state;
    busy[1] = busy[2] = true;
    launch(&alice, 1);
    launch(&alice, 2);
    bob_prints();
    assert_true(n_queries[1] > 1 && n_queries[2] > 1);
    assert_true(weir_clock_now_ns() - begin_ns >= SETTLE_NS);
}

static void take_text_of(struct weir_session *session, const char *want)
{
    char text[16];
    size_t n = weir_prints_bytes(session);

    assert_int_equal(n, strlen(want));
    weir_prints_take(session, text, n);
    assert_memory_equal(text, want, n);
}

static void what_is_printed_before_goes_to_its_session(void **state)
{
    (void)state;
    launch(&alice, 1);
    assert_int_equal(write(STDOUT_FILENO, "mine", 4), 4);
    bob_prints();
    assert_int_equal(n_idle, 1); /* or a driver would not have written it */
    take_text_of(&alice, "mine");
    assert_int_equal(weir_prints_bytes(&bob), 0);
}

/* Natively nobody waits for a kernel in another stream either. */
static void collecting_waits_for_nothing(void **state)
{
    (void)state;
    busy[1] = true;
    launch(&alice, 1);
    launch(&alice, 2);
    assert_int_equal(write(STDOUT_FILENO, "two", 3), 3);
    assert_int_equal(weir_prints_collect(&alice), CUDA_SUCCESS);
    assert_int_equal(n_queries[1], 1);
    take_text_of(&alice, "two");

    busy[1] = false;
    assert_int_equal(write(STDOUT_FILENO, "one", 3), 3); /* the output is hers still */
    bob_prints();
    take_text_of(&alice, "one");
}

/* A stream may have been given other work since, or be under capture: see stream_synchronize(). */
static void kernels_that_have_ended_are_not_asked_about_again(void **state)
{
    (void)state;
    launch(&alice, 1);
    assert_int_equal(weir_prints_collect(&alice), CUDA_SUCCESS);
    assert_int_equal(weir_prints_collect(&alice), CUDA_SUCCESS);
    bob_prints();
    assert_int_equal(n_queries[1], 1);
}

/* Bob waits for alice's kernel meanwhile. */
static void *collect_and_end(void *argument)
{
    while (weir_prints_bytes(&alice) == 0) {
        (void)weir_prints_collect(&alice);
    }
    busy[1] = false;
    return argument;
}

static void who_is_waited_for_can_collect(void **state)
{
    pthread_t thread;

    (void)state;
    weir_prints_destroy(worker.prints);
    assert_int_equal(weir_prints_create(WEIR_PRINTS_SETTLE_NS, &worker.prints), WEIR_OK);
    busy[1] = true;
    launch(&alice, 1);
    assert_int_equal(write(STDOUT_FILENO, "mine", 4), 4);
    assert_int_equal(pthread_create(&thread, NULL, collect_and_end, NULL), 0);
    alarm(5);
    bob_prints();
    alarm(0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    take_text_of(&alice, "mine");
}

/* It may wait in the gate: there is nothing to ask about yet. */
static void a_launch_that_has_begun_is_waited_for(void **state)
{
    uint64_t begin_ns = weir_clock_now_ns();

    (void)state;
    assert_int_equal(weir_prints_begin(&alice, stream_of(1)), CUDA_SUCCESS);
    bob_prints();
    assert_true(weir_clock_now_ns() - begin_ns >= SETTLE_NS);
    weir_prints_end(&alice, stream_of(1), false);
    assert_int_equal(weir_prints_collect(&alice), CUDA_SUCCESS);
    assert_int_equal(n_queries[1], 0); /* the launch was refused */
}

static void who_was_late_waits_for_it_before_it_prints_again(void **state)
{
    (void)state;
    busy[1] = true;
    launch(&alice, 1);
    bob_prints();
    n_queries[1] = 0;
    launch(&alice, 2);
    assert_true(n_queries[1] > 1);
    n_queries[1] = 0;
    launch(&alice, 2);
    assert_int_equal(n_queries[1], 0); /* once */
}

static void a_late_stream_that_is_gone_is_not_waited_for(void **state)
{
    (void)state;
    busy[1] = true;
    launch(&alice, 1);
    bob_prints();
    weir_prints_forget(&alice, stream_of(1));
    n_queries[1] = 0;
    launch(&alice, 2);
    assert_int_equal(n_queries[1], 1); /* whether it has ended */
}

static void a_stream_that_is_gone_is_kept_until_its_kernel_has_ended(void **state)
{
    (void)state;
    busy[1] = true;
    launch(&alice, 1);
    weir_prints_forget(&alice, stream_of(1));
    launch(&alice, 2);
    assert_int_equal(n_live, 2);
    busy[1] = false;
    launch(&alice, 2);
    assert_int_equal(n_live, 1);
    assert_int_equal(n_idle, 1); /* what it printed is written while the output is hers */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_streams_of_another_are_waited_for_together, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_printed_before_goes_to_its_session, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(collecting_waits_for_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(kernels_that_have_ended_are_not_asked_about_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_is_waited_for_can_collect, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_launch_that_has_begun_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_was_late_waits_for_it_before_it_prints_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_late_stream_that_is_gone_is_not_waited_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_stream_that_is_gone_is_kept_until_its_kernel_has_ended,
                                        set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

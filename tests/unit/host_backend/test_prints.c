/* Sessions that print, and how long they hold each other up. */
#include "../../lib/tl_cmocka.h"
#include "host_backend/worker/session/prints.h"
#include "host_backend/worker/session/session.h"
#include "host_backend/worker/session/worker.h"

#include <string.h>
#include <unistd.h>

#define SETTLE_NS (5 * WEIR_NS_PER_MS)
#define STREAMS   4

static struct weir_worker worker;
static struct weir_driver driver;
static struct weir_session alice, bob;
static int saved_stdout;
static bool busy[STREAMS]; /* of the streams 1, 2, 3 */
static unsigned n_queries[STREAMS];
static void (*during_query)(void); /* once */

static CUstream stream_of(size_t n)
{
    return (CUstream)n;
}

static CUresult stream_query(CUstream stream)
{
    size_t n = (size_t)stream;
    void (*act)(void) = during_query;

    n_queries[n]++;
    during_query = NULL;
    if (act != NULL) {
        act();
    }
    return busy[n] ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult stream_synchronize(CUstream stream)
{
    assert_false(busy[(size_t)stream]);
    return CUDA_SUCCESS;
}

static int set_up(void **state)
{
    (void)state;
    saved_stdout = dup(STDOUT_FILENO);
    memset(&worker, 0, sizeof worker);
    memset(busy, 0, sizeof busy);
    memset(n_queries, 0, sizeof n_queries);
    driver.cuStreamQuery = stream_query;
    driver.cuStreamSynchronize = stream_synchronize;
    alice = bob = (struct weir_session){.worker = &worker, .driver = &driver};
    assert_int_equal(weir_prints_create(SETTLE_NS, &worker.prints), WEIR_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_session_prints_destroy(alice.prints);
    weir_session_prints_destroy(bob.prints);
    weir_prints_destroy(worker.prints);
    dup2(saved_stdout, STDOUT_FILENO);
    close(saved_stdout);
    return 0;
}

static void bob_prints(void)
{
    assert_int_equal(weir_prints_begin(&bob, stream_of(3)), CUDA_SUCCESS);
}

static void all_streams_of_another_are_waited_for_together(void **state)
{
    (void)state;
    busy[1] = busy[2] = true;
    assert_int_equal(weir_prints_begin(&alice, stream_of(1)), CUDA_SUCCESS);
    assert_int_equal(weir_prints_begin(&alice, stream_of(2)), CUDA_SUCCESS);
    bob_prints();
    assert_true(n_queries[1] > 1);
    assert_int_equal(n_queries[2], 1); /* the time was over */
}

static void what_is_printed_before_goes_to_its_session(void **state)
{
    char text[4];

    (void)state;
    assert_int_equal(weir_prints_begin(&alice, stream_of(1)), CUDA_SUCCESS);
    assert_int_equal(write(STDOUT_FILENO, "mine", 4), 4);
    bob_prints();
    assert_int_equal(weir_prints_bytes(&alice), 4);
    weir_prints_take(&alice, text, sizeof text);
    assert_memory_equal(text, "mine", 4);
    assert_int_equal(weir_prints_bytes(&bob), 0);
}

/* With the lock held over alice's wait, bob would never get on here. */
static void waiting_for_its_own_holds_nobody_up(void **state)
{
    (void)state;
    assert_int_equal(weir_prints_begin(&alice, stream_of(1)), CUDA_SUCCESS);
    alarm(20);
    during_query = bob_prints;
    assert_int_equal(weir_prints_collect(&alice), CUDA_SUCCESS);
    alarm(0);
    assert_null(during_query);
}

static void who_was_late_waits_for_it_before_it_prints_again(void **state)
{
    (void)state;
    busy[1] = true;
    assert_int_equal(weir_prints_begin(&alice, stream_of(1)), CUDA_SUCCESS);
    bob_prints();
    n_queries[1] = 0;
    assert_int_equal(weir_prints_begin(&alice, stream_of(2)), CUDA_SUCCESS);
    assert_true(n_queries[1] > 1);
    n_queries[1] = 0;
    assert_int_equal(weir_prints_begin(&alice, stream_of(2)), CUDA_SUCCESS);
    assert_int_equal(n_queries[1], 0); /* once */
}

static void a_late_stream_that_is_gone_is_not_waited_for(void **state)
{
    (void)state;
    busy[1] = true;
    assert_int_equal(weir_prints_begin(&alice, stream_of(1)), CUDA_SUCCESS);
    bob_prints();
    weir_prints_forget(&alice, stream_of(1));
    n_queries[1] = 0;
    assert_int_equal(weir_prints_begin(&alice, stream_of(2)), CUDA_SUCCESS);
    assert_int_equal(n_queries[1], 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_streams_of_another_are_waited_for_together, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_printed_before_goes_to_its_session, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(waiting_for_its_own_holds_nobody_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_was_late_waits_for_it_before_it_prints_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_late_stream_that_is_gone_is_not_waited_for, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

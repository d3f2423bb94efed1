/* The barrier around calls that wait for the device, with a driver that is busy for as many looks
 * as told. */
#include "host_backend/worker/device/barrier.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"

#include "../../lib/tl_lived.h"
#include "tests/lib/tl_cmocka.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    struct weir_worker worker;
    struct weir_session *sessions[2];
    atomic_int busy_looks; /* cuEventQuery says so, as often */
    atomic_int records, looks;
    atomic_int let_in; /* passes of the other session's thread */
    atomic_bool quit;
    CUresult record_result;
    int done; /* which calls that were put off, in decimal */
} f;

static CUresult CUDA_CB ctx_get(CUcontext *ret_context)
{
    *ret_context = NULL;
    return CUDA_SUCCESS;
}

static CUresult CUDA_CB ctx_set(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult CUDA_CB event_create(CUevent *ret_event, unsigned flags)
{
    (void)flags;
    *ret_event = (CUevent)&f;
    return CUDA_SUCCESS;
}

static CUresult CUDA_CB event_destroy(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

static CUresult CUDA_CB record(CUcontext context, CUevent event)
{
    (void)context;
    (void)event;
    assert_int_equal(atomic_load(&f.worker.device_idle->captures), 0);
    atomic_fetch_add(&f.records, 1);
    return f.record_result;
}

static CUresult CUDA_CB query(CUevent event)
{
    (void)event;
    atomic_fetch_add(&f.looks, 1);
    return atomic_fetch_sub(&f.busy_looks, 1) > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static int set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    f.worker.device_idle = weir_device_idle_create();
    assert_non_null(f.worker.device_idle);
    pthread_mutex_init(&f.worker.lock, NULL);
    f.worker.platform.keeps_out = true;
    f.worker.platform.by_program = true;
    f.worker.platform.n_devices = 1;
    atomic_store(&f.worker.platform.devices[0].is_open, true);
    f.worker.platform.driver.cuCtxGetCurrent = ctx_get;
    f.worker.platform.driver.cuCtxSetCurrent = ctx_set;
    f.worker.platform.driver.cuEventCreate = event_create;
    f.worker.platform.driver.cuEventDestroy_v2 = event_destroy;
    f.worker.platform.driver.cuCtxRecordEvent = record;
    f.worker.platform.driver.cuEventQuery = query;
    for (int i = 0; i < 2; i++) {
        f.sessions[i] = calloc(1, sizeof *f.sessions[i]);
        assert_non_null(f.sessions[i]);
        f.sessions[i]->worker = &f.worker;
        f.sessions[i]->about = calloc(1, sizeof *f.sessions[i]->about);
        assert_non_null(f.sessions[i]->about);
        f.sessions[i]->idle = weir_session_idle_create();
        assert_non_null(f.sessions[i]->idle);
    }
    f.sessions[0]->next = f.sessions[1];
    f.worker.sessions = f.sessions[0];
    f.worker.n_sessions = 2;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_device_idle_destroy(&f.worker);
    pthread_mutex_destroy(&f.worker.lock);
    for (int i = 0; i < 2; i++) {
        weir_session_idle_destroy(f.sessions[i]->idle);
        free(f.sessions[i]->about);
        free(f.sessions[i]);
    }
    return 0;
}

/* The other session: in and out of handlers. */
static void *pass_on_and_on(void *unused)
{
    (void)unused;
    while (!atomic_load(&f.quit)) {
        weir_device_barrier_enter(f.sessions[1]);
        atomic_fetch_add(&f.let_in, 1);
        weir_device_barrier_leave(f.sessions[1]);
    }
    return NULL;
}

static void begin_alone_asks_nothing(void **state)
{
    (void)state;
    f.worker.sessions = f.sessions[1];
    f.worker.n_sessions = 1;
    uint32_t idle = weir_device_idle_begin(&f.worker, f.sessions[1]);

    assert_int_equal(atomic_load(&f.records), 0);
    assert_int_equal(atomic_load(&f.worker.device_idle->closed), 0);
    weir_device_idle_end(&f.worker, idle);
}

/* The builder of twins is a thread of the worker's own: whoever is alone may still give work. */
static void begin_by_the_worker_itself_asks_beside_one_session(void **state)
{
    (void)state;
    f.worker.sessions = f.sessions[1];
    f.worker.n_sessions = 1;
    uint32_t idle = weir_device_idle_begin(&f.worker, NULL);

    assert_int_equal(atomic_load(&f.records), 1);
    assert_int_equal(atomic_load(&f.worker.device_idle->closed), 1);
    weir_device_idle_end(&f.worker, idle);
    assert_int_equal(atomic_load(&f.worker.device_idle->closed), 0);
}

/* PyTorch loads NVML, which has a session of its own. */
static void begin_beside_a_monitor_asks_nothing(void **state)
{
    (void)state;
    f.sessions[1]->about->monitor = true;
    weir_device_idle_end(&f.worker, weir_device_idle_begin(&f.worker, f.sessions[0]));
    assert_int_equal(atomic_load(&f.records), 0);
    assert_int_equal(atomic_load(&f.worker.device_idle->turns), 0);
}

/* Kernels are looked up while a graph is captured: the capture waits for that, not the other way
 * round. */
static void begin_within_an_own_capture_does_not_wait(void **state)
{
    (void)state;
    f.sessions[0]->n_captures = 1;
    atomic_store(&f.worker.device_idle->captures, 1);
    weir_device_barrier_enter(f.sessions[0]);
    weir_device_idle_end(&f.worker, weir_device_idle_begin(&f.worker, NULL));
    weir_device_barrier_leave(f.sessions[0]);
    assert_int_equal(atomic_load(&f.worker.device_idle->turns), 0);
    assert_int_equal(atomic_load(&f.worker.device_idle->late), 0);
}

static void *wait_for_idle(void *unused)
{
    (void)unused;
    weir_device_idle_end(&f.worker, weir_device_idle_begin(&f.worker, NULL));
    atomic_store(&f.quit, true);
    return NULL;
}

/* The builder waits for the end of a capture, and the capture for a call of the session that makes
 * it. */
static void begin_within_an_own_capture_passes_who_waits_for_it(void **state)
{
    pthread_t builder;

    (void)state;
    f.sessions[0]->n_captures = 1;
    atomic_store(&f.worker.device_idle->captures, 1);
    assert_int_equal(pthread_create(&builder, NULL, wait_for_idle, NULL), 0);
    while (atomic_load(&f.worker.device_idle->turns) < 3) {
    }
    for (int i = 0; i < 10; i++) {
        weir_device_idle_end(&f.worker, weir_device_idle_begin(&f.worker, f.sessions[0]));
    }
    assert_false(atomic_load(&f.quit));
    atomic_store(&f.worker.device_idle->captures, 0);
    pthread_join(builder, NULL);
    assert_true(atomic_load(&f.quit));
    assert_int_equal(atomic_load(&f.worker.device_idle->late), 0);
}

static void begin_keeps_the_others_out_until_the_end(void **state)
{
    pthread_t other;
    int before;

    (void)state;
    assert_int_equal(pthread_create(&other, NULL, pass_on_and_on, NULL), 0);
    while (atomic_load(&f.let_in) < 100) {
    }
    for (int turn = 0; turn < 200; turn++) {
        uint32_t idle = weir_device_idle_begin(&f.worker, NULL);
        uint32_t inner = weir_device_idle_begin(&f.worker, NULL); /* they nest */

        before = atomic_load(&f.let_in);
        weir_device_idle_end(&f.worker, inner);
        if (turn % 10 == 0) {
            usleep(1000); /* also on a busy machine the other thread gets to the barrier now */
        }
        assert_int_equal(atomic_load(&f.let_in), before);
        weir_device_idle_end(&f.worker, idle);
    }
    before = atomic_load(&f.let_in);
    while (atomic_load(&f.let_in) == before) {
    }
    atomic_store(&f.quit, true);
    pthread_join(other, NULL);
    assert_int_equal(atomic_load(&f.worker.device_idle->late), 0);
}

static void begin_opens_while_the_device_does_not_end(void **state)
{
    pthread_t other;
    uint32_t idle;

    (void)state;
    atomic_store(&f.busy_looks, 1000);
    assert_int_equal(pthread_create(&other, NULL, pass_on_and_on, NULL), 0);
    while (atomic_load(&f.let_in) == 0) {
    }
    idle = weir_device_idle_begin(&f.worker, NULL);
    assert_true(atomic_load(&f.busy_looks) <= 0);
    assert_true(atomic_load(&f.worker.device_idle->turns) > 0);
    assert_true(atomic_load(&f.let_in) > 0);
    weir_device_idle_end(&f.worker, idle);
    atomic_store(&f.quit, true);
    pthread_join(other, NULL);
}

static void *end_capture(void *unused)
{
    (void)unused;
    while (atomic_load(&f.worker.device_idle->turns) < 3) {
    }
    atomic_store(&f.worker.device_idle->captures, 0);
    return NULL;
}

static void begin_waits_for_the_end_of_a_capture(void **state)
{
    pthread_t other;
    uint32_t idle;

    (void)state;
    atomic_store(&f.worker.device_idle->captures, 1);
    assert_int_equal(pthread_create(&other, NULL, end_capture, NULL), 0);
    idle = weir_device_idle_begin(&f.worker, NULL); /* record() asserts that there is none */
    assert_true(atomic_load(&f.records) > 0);
    weir_device_idle_end(&f.worker, idle);
    pthread_join(other, NULL);
}

/* Both are in a handler: each has to leave it for the other. */
static void *begin_inside(void *session)
{
    for (int i = 0; i < 50; i++) {
        weir_device_barrier_enter(session);
        weir_device_idle_end(&f.worker, weir_device_idle_begin(&f.worker, NULL));
        weir_device_barrier_leave(session);
    }
    return NULL;
}

static void begin_inside_two_handlers_ends(void **state)
{
    pthread_t other;

    (void)state;
    assert_int_equal(pthread_create(&other, NULL, begin_inside, f.sessions[1]), 0);
    begin_inside(f.sessions[0]);
    pthread_join(other, NULL);
    assert_int_equal(atomic_load(&f.worker.device_idle->closed), 0);
    assert_int_equal(atomic_load(&f.worker.device_idle->late), 0);
}

static void *rest_inside(void *session)
{
    struct weir_session *inside;

    weir_device_barrier_enter(session);
    inside = weir_device_barrier_pause();
    assert_ptr_equal(inside, session);
    atomic_store(&f.let_in, 1);
    while (!atomic_load(&f.quit)) { /* as while a context is opened */
    }
    weir_device_barrier_resume(inside);
    assert_int_equal(atomic_load(&f.worker.device_idle->closed), 0);
    weir_device_barrier_leave(session);
    return NULL;
}

static void begin_does_not_wait_for_a_handler_that_pauses(void **state)
{
    pthread_t other;
    uint32_t idle;

    (void)state;
    assert_null(weir_device_barrier_pause()); /* in no handler */
    weir_device_barrier_resume(NULL);
    assert_int_equal(pthread_create(&other, NULL, rest_inside, f.sessions[1]), 0);
    while (atomic_load(&f.let_in) == 0) {
    }
    idle = weir_device_idle_begin(&f.worker, f.sessions[0]);
    assert_int_equal(atomic_load(&f.worker.device_idle->turns), 0);
    atomic_store(&f.quit, true); /* it comes back only after the end */
    weir_device_idle_end(&f.worker, idle);
    pthread_join(other, NULL);
}

/* A device without a context has no work. */
static void begin_asks_only_devices_that_are_open(void **state)
{
    (void)state;
    f.worker.platform.n_devices = 2;
    weir_device_idle_end(&f.worker, weir_device_idle_begin(&f.worker, f.sessions[0]));
    assert_int_equal(atomic_load(&f.records), 1);
    atomic_store(&f.worker.platform.devices[1].is_open, true);
    weir_device_idle_end(&f.worker, weir_device_idle_begin(&f.worker, f.sessions[0]));
    assert_int_equal(atomic_load(&f.records), 3);
}

/* Work of another program does not end: only the caller waits, and not for ever. */
static void begin_within_gives_up_and_leaves_the_barrier_open(void **state)
{
    uint64_t start_ns;
    pthread_t other;
    uint32_t idle;
    int before;

    (void)state;
    atomic_store(&f.busy_looks, INT_MAX);
    assert_int_equal(pthread_create(&other, NULL, pass_on_and_on, NULL), 0);
    start_ns = weir_clock_now_ns();
    assert_int_equal(
        weir_device_idle_begin_within(&f.worker, f.sessions[0], 5 * WEIR_NS_PER_MS, &idle),
        CUDA_ERROR_TIMEOUT);
    assert_true(weir_clock_now_ns() - start_ns >= 5 * WEIR_NS_PER_MS);
    assert_int_equal(atomic_load(&f.worker.device_idle->late), 1);
    assert_int_equal(atomic_load(&f.worker.device_idle->closed), 0);
    assert_int_equal(f.worker.device_idle->depth, 0);
    assert_false(weir_device_may_be_idle(&f.worker));
    before = atomic_load(&f.let_in);
    while (atomic_load(&f.let_in) == before) { /* it may not have had a core yet */
        sched_yield();
    }
    atomic_store(&f.quit, true);
    pthread_join(other, NULL);
    atomic_store(&f.busy_looks, 0);
    assert_true(weir_device_may_be_idle(&f.worker));
    assert_int_equal(weir_device_idle_begin_within(&f.worker, f.sessions[0], 0, &idle),
                     CUDA_SUCCESS);
    weir_device_idle_end(&f.worker, idle);
}

/* Within a handler it is inside again afterwards, whatever came of it. */
static void begin_within_a_handler_that_gives_up_is_inside_again(void **state)
{
    uint32_t idle;

    (void)state;
    weir_device_barrier_enter(f.sessions[0]);
    atomic_store(&f.busy_looks, INT_MAX);
    assert_int_equal(weir_device_idle_begin_within(&f.worker, NULL, 0, &idle), CUDA_ERROR_TIMEOUT);
    atomic_store(&f.busy_looks, 0);
    assert_int_equal(weir_device_idle_begin_within(&f.worker, f.sessions[1], 0, &idle),
                     CUDA_SUCCESS);
    weir_device_idle_end(&f.worker, idle);
    weir_device_barrier_leave(f.sessions[0]);
}

static void begin_within_stops_when_the_session_ends(void **state)
{
    uint32_t idle;

    (void)state;
    atomic_store(&f.busy_looks, INT_MAX);
    atomic_store(&f.sessions[0]->ending, true);
    assert_int_equal(
        weir_device_idle_begin_within(&f.worker, f.sessions[0], WEIR_NS_PER_S * 60, &idle),
        CUDA_ERROR_TIMEOUT);
}

/* In a worker of several programs another one may come while it waits. */
static void begin_alone_among_others_that_may_come_waits(void **state)
{
    (void)state;
    f.worker.platform.by_program = false;
    f.worker.sessions = f.sessions[1];
    f.worker.n_sessions = 1;
    weir_device_idle_end(&f.worker, weir_device_idle_begin(&f.worker, f.sessions[1]));
    assert_int_equal(atomic_load(&f.records), 1);
}

/* Nothing that comes to an end would be found: the call has its error at once. */
static void begin_on_a_dead_context_does_not_wait(void **state)
{
    (void)state;
    f.record_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    weir_device_idle_end(&f.worker, weir_device_idle_begin(&f.worker, f.sessions[0]));
    assert_int_equal(atomic_load(&f.worker.device_idle->turns), 0);
    assert_int_equal(atomic_load(&f.worker.device_idle->closed), 0);
}

static void do_it(struct weir_session *session, void *what)
{
    (void)session;
    assert_int_equal(atomic_load(&f.worker.device_idle->closed), 1);
    f.done = 10 * f.done + *(int *)what;
}

static void put_off_is_done_in_order_when_the_device_is_idle(void **state)
{
    struct weir_session *s = f.sessions[0];
    int first = 1, second = 2;
    struct tl_lived start;
    uint32_t idle;

    (void)state;
    s->tenant = calloc(1, sizeof *s->tenant);
    assert_non_null(s->tenant);
    atomic_store(&f.busy_looks, INT_MAX);
    assert_int_equal(weir_device_idle_begin_within(&f.worker, s, 0, &idle), CUDA_ERROR_TIMEOUT);
    weir_put_off(s, do_it, &first, 0x1000, 0x1000);
    weir_put_off(s, do_it, &second, 0, 0);
    start = tl_lived_now();
    assert_int_equal(weir_put_off_begin(s, &idle), CUDA_ERROR_TIMEOUT); /* and does not wait */
    assert_true(tl_lived_since_ns(start) < WEIR_PUT_OFF_NS);
    assert_true(weir_put_off_holds(s, 0x1fff, 1));
    assert_false(weir_put_off_holds(s, 0x2000, 0x1000));
    weir_put_off_try(s);
    assert_int_equal(f.done, 0);
    weir_put_off_try(s); /* not so soon again */
    atomic_store(&f.busy_looks, 0);
    weir_session_unloads(s);
    weir_put_off_finish(s);
    assert_int_equal(f.done, 12);
    assert_false(weir_put_off_any(s));
    assert_false(weir_put_off_holds(s, 0x1000, 1));
    assert_int_equal(weir_put_off_begin(s, &idle), CUDA_SUCCESS);
    weir_device_idle_end(&f.worker, idle);
    free(s->tenant);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(begin_alone_asks_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(begin_by_the_worker_itself_asks_beside_one_session, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(begin_beside_a_monitor_asks_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(begin_within_an_own_capture_does_not_wait, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(begin_within_an_own_capture_passes_who_waits_for_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(begin_keeps_the_others_out_until_the_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(begin_opens_while_the_device_does_not_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(begin_waits_for_the_end_of_a_capture, set_up, tear_down),
        cmocka_unit_test_setup_teardown(begin_inside_two_handlers_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(begin_does_not_wait_for_a_handler_that_pauses, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(begin_asks_only_devices_that_are_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(begin_within_gives_up_and_leaves_the_barrier_open, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(begin_within_a_handler_that_gives_up_is_inside_again,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(begin_within_stops_when_the_session_ends, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(begin_alone_among_others_that_may_come_waits, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(begin_on_a_dead_context_does_not_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(put_off_is_done_in_order_when_the_device_is_idle, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

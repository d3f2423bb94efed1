/* Events of the guest library against a worker in a thread. */
#include "guest_lib/entry.h"
#include "guest_lib/stream.h"
#include "proto/common/ctx_stack.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_host.h"

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

static int start(void **state)
{
    CUcontext ctx;
    *state = tl_host_start();
    OK(weir_guest_cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(weir_guest_cuCtxSetCurrent(ctx));
    return 0;
}

static int stop(void **state)
{
    weir_ctx_stack_set(NULL);
    tl_host_stop(*state);
    return 0;
}

static void event_states(void **state)
{
    struct tl_host *host = *state;
    CUevent e, other, plain;
    CUstream s;
    float ms = 0;
    OK(weir_guest_cuEventCreate(&e, 0));
    OK(weir_guest_cuEventCreate(&other, 0));
    OK(weir_guest_cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    OK(weir_guest_cuStreamCreate(&s, 0));
    OK(weir_guest_cuEventQuery(e));
    OK(weir_guest_cuEventSynchronize(e));
    assert_int_equal(weir_guest_cuEventElapsedTime_v2(&ms, e, other), CUDA_ERROR_INVALID_HANDLE);
    OK(weir_guest_cuEventRecord(e, s));
    OK(weir_guest_cuEventRecord(plain, s));
    tl_host_drain();
    tl_host_hold(host, true);
    OK(weir_guest_cuEventRecord(other, s));
    assert_int_equal(weir_guest_cuEventQuery(other), CUDA_ERROR_NOT_READY);
    assert_int_equal(weir_guest_cuEventElapsedTime_v2(&ms, e, other), CUDA_ERROR_NOT_READY);
    tl_host_drain();
    tl_host_hold(host, false);
    OK(weir_guest_cuEventSynchronize(other));
    OK(weir_guest_cuEventElapsedTime_v2(&ms, e, other));
    assert_true(ms == 1.5f);
    assert_int_equal(weir_guest_cuEventElapsedTime_v2(&ms, e, plain), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(weir_guest_cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    OK(weir_guest_cuEventDestroy_v2(other));
    assert_int_equal(weir_guest_cuEventQuery(other), CUDA_ERROR_INVALID_HANDLE);
}

static void completed_event_makes_its_stream_idle(void **state)
{
    struct tl_host *host = *state;
    CUevent e;
    CUstream s;
    OK(weir_guest_cuEventCreate(&e, CU_EVENT_DEFAULT));
    OK(weir_guest_cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuEventRecord(e, s));
    OK(weir_guest_cuEventSynchronize(e));
    OK(weir_guest_cuStreamQuery(s));
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_mark), 0);
}

/* An event without timing writes no word any more when the program has not asked about several
 * records. When it asks, the host is asked about that record, and later ones write a word. */
static void event_for_streams_needs_no_word(void **state)
{
    struct tl_host *host = *state;
    CUevent e;
    CUstream a, b;
    OK(weir_guest_cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(weir_guest_cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    tl_host_hold(host, true);
    for (int i = 0; i < 3; i++) {
        OK(weir_guest_cuEventRecord(e, a));
        OK(weir_guest_cuStreamWaitEvent(b, e, 0));
        OK(weir_guest_cuEventRecord(e, b));
        OK(weir_guest_cuStreamWaitEvent(a, e, 0));
    }
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_event_create), 1);
    assert_int_equal(tl_host_count(host, WEIR_OP_event_query), 0);
    assert_int_equal(weir_guest_cuEventQuery(e), CUDA_ERROR_NOT_READY);
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_event_query), 1);
    OK(weir_guest_cuEventRecord(e, a));
    assert_int_equal(weir_guest_cuEventQuery(e), CUDA_ERROR_NOT_READY);
    tl_host_drain();
    tl_host_hold(host, false);
    OK(weir_guest_cuEventSynchronize(e));
    OK(weir_guest_cuEventQuery(e));
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_event_query), 1);
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_mark), 0);
}

/* A wait for such a record: a mark tells the end, unless the stream was given more. A new event
 * that is recorded once and waited for, as many programs do, is waited for by its word. */
static void event_for_streams_is_waited_for(void **state)
{
    struct tl_host *host = *state;
    CUevent e, other;
    CUstream s;
    OK(weir_guest_cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(weir_guest_cuEventCreate(&other, CU_EVENT_DISABLE_TIMING));
    OK(weir_guest_cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuEventRecord(e, s));
    OK(weir_guest_cuEventSynchronize(e));
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_mark), 0);
    for (int i = 0; i < 5; i++) {
        OK(weir_guest_cuEventRecord(e, s));
    }
    OK(weir_guest_cuEventSynchronize(e));
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_mark), 1);
    assert_int_equal(tl_host_count(host, WEIR_OP_event_query), 0);
    for (int i = 0; i < 5; i++) {
        OK(weir_guest_cuEventRecord(other, s));
    }
    OK(weir_guest_cuEventRecord(e, s));
    OK(weir_guest_cuEventSynchronize(other));
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_mark), 1);
    assert_int_equal(tl_host_count(host, WEIR_OP_event_query), 1);
}

static void event_rerecorded_on_another_stream_takes_another_word(void **state)
{
    struct tl_host *host = *state;
    CUevent e;
    CUstream a, b;
    uint32_t first, value, second;
    CUevent plain;
    OK(weir_guest_cuEventCreate(&e, CU_EVENT_DEFAULT));
    OK(weir_guest_cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    tl_host_hold(host, true);
    const struct weir_guest_event *event = weir_guest_object_get(WEIR_KIND_EVENT, e);
    OK(weir_guest_cuEventRecord(e, a));
    first = event->word;
    OK(weir_guest_cuEventRecord(e, b)); /* the first record is under way */
    second = event->word;
    value = event->value;
    OK(weir_guest_cuEventRecord(e, b));
    tl_host_drain();
    assert_int_not_equal(first, second);
    assert_int_equal(event->word, second);
    assert_int_equal(event->value, value + 1);
    assert_int_equal(tl_host_count(host, WEIR_OP_event_create), 1);
    /* Also if the newest record writes no word, but the one before it does. */
    OK(weir_guest_cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    event = weir_guest_object_get(WEIR_KIND_EVENT, plain);
    for (int i = 0; i < 3; i++) {
        OK(weir_guest_cuEventRecord(plain, a));
    }
    first = event->word;
    OK(weir_guest_cuEventRecord(plain, b));
    assert_false(event->written);
    assert_int_equal(weir_guest_cuEventQuery(plain), CUDA_ERROR_NOT_READY);
    OK(weir_guest_cuEventRecord(plain, b));
    assert_true(event->written);
    assert_int_not_equal(event->word, first);
    assert_int_equal(weir_guest_cuEventQuery(e), CUDA_ERROR_NOT_READY);
    tl_host_hold(host, false);
    OK(weir_guest_cuEventSynchronize(e));
    OK(weir_guest_cuEventDestroy_v2(e));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(event_states),
        TEST(completed_event_makes_its_stream_idle),
        TEST(event_for_streams_needs_no_word),
        TEST(event_for_streams_is_waited_for),
        TEST(event_rerecorded_on_another_stream_takes_another_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The order of work: streams, events, host functions, values in memory, capture's refusals. */
#include "support.h"

#include <pthread.h>
#include <unistd.h>

struct gate {
    int open;
    int order[8];
    int n;
};

static void wait_for_gate(void *user)
{
    struct gate *gate = user;
    while (__atomic_load_n(&gate->open, __ATOMIC_ACQUIRE) == 0) {
        usleep(100);
    }
    gate->order[gate->n++] = 1;
}

static void note_two(void *user)
{
    struct gate *gate = user;
    gate->order[gate->n++] = 2;
}

static void open_gate(struct gate *gate)
{
    __atomic_store_n(&gate->open, 1, __ATOMIC_RELEASE);
}

static void event_in_one_stream_holds_another(void **state)
{
    (void)state;
    struct gate gate = {0};
    CUstream a, b;
    CUevent event;
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuLaunchHostFunc(a, wait_for_gate, &gate));
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    OK(cuLaunchHostFunc(b, note_two, &gate));
    assert_int_equal(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    open_gate(&gate);
    OK(cuStreamSynchronize(b));
    OK(cuEventQuery(event));
    assert_int_equal(gate.order[0], 1);
    assert_int_equal(gate.order[1], 2);
    OK(cuEventDestroy_v2(event));
    assert_int_equal(cuEventDestroy_v2(event), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
    assert_int_equal(cuStreamSynchronize(b), CUDA_ERROR_INVALID_HANDLE);
}

static void legacy_stream_waits_for_blocking_streams_only(void **state)
{
    (void)state;
    struct gate slow = {0};
    CUstream blocking, apart;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(blocking, wait_for_gate, &slow));
    OK(cuLaunchHostFunc(CU_STREAM_LEGACY, note_two, &slow));
    assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    OK(cuStreamQuery(apart));
    open_gate(&slow);
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(slow.order[0], 1);
    assert_int_equal(slow.order[1], 2);
    struct gate other = {0};
    OK(cuLaunchHostFunc(apart, wait_for_gate, &other));
    OK(cuStreamSynchronize(NULL)); /* does not wait for it */
    open_gate(&other);
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy_v2(blocking));
    OK(cuStreamDestroy_v2(apart));
}

static void *open_later(void *user)
{
    usleep(2000);
    __atomic_store_n((uint32_t *)user, 7, __ATOMIC_RELEASE);
    return NULL;
}

static void wait_value_sees_a_store_of_the_program(void **state)
{
    (void)state;
    CUstream stream;
    uint32_t *words;
    pthread_t thread;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&words, 64, 0));
    words[0] = words[1] = 0;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)words;
    OK(cuStreamWaitValue32_v2(stream, at, 7, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWriteValue32_v2(stream, at + 4, 9, 0));
    assert_int_equal(pthread_create(&thread, NULL, open_later, words), 0);
    OK(cuStreamSynchronize(stream));
    assert_int_equal(words[1], 9);
    pthread_join(thread, NULL);
    assert_int_equal(cuStreamWriteValue32_v2(stream, at + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamWriteValue32_v2(stream, 16, 1, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeHost(words));
    OK(cuStreamDestroy_v2(stream));
}

static void events_give_time_only_when_they_may(void **state)
{
    (void)state;
    CUevent a, b, silent;
    float ms = -1;
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuEventCreate(&silent, CU_EVENT_DISABLE_TIMING));
    assert_int_equal(cuEventElapsedTime_v2(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventRecord(a, NULL));
    OK(cuEventRecord(b, NULL));
    OK(cuEventRecord(silent, NULL));
    OK(cuEventSynchronize(b));
    OK(cuEventElapsedTime_v2(&ms, a, b));
    assert_true(ms >= 0);
    assert_int_equal(cuEventElapsedTime_v2(&ms, a, silent), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuEventCreate(&a, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    OK(cuEventDestroy_v2(b));
    OK(cuEventDestroy_v2(silent));
}

static void unsafe_call_in_a_global_capture_is_refused_and_ends_it(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph;
    CUdeviceptr a;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(cuMemAlloc_v2(&a, 16), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc_v2(&a, 16));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(a));
    OK(cuStreamDestroy_v2(stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_in_one_stream_holds_another),
        cmocka_unit_test(legacy_stream_waits_for_blocking_streams_only),
        cmocka_unit_test(wait_value_sees_a_store_of_the_program),
        cmocka_unit_test(events_give_time_only_when_they_may),
        cmocka_unit_test(unsafe_call_in_a_global_capture_is_refused_and_ends_it),
    };
    return cmocka_run_group_tests(tests, enter_context, leave_context);
}

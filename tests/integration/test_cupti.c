/* Times by libcupti, on softgpu with the libcupti that it has for tests: whose record is whose. */
#include "../lib/tl_cmocka.h"
#include "host_backend/worker/profile/cupti.h"
#include "proto/driver_table.h"
#include "proto/profile/record.h"
#include "tests/e2e/kernels.h"
#include "tests/integration/soft_driver.h"

#include <pthread.h>
#include <string.h>

#define WORDS 1000u
#define MANY  70000u /* more than the calls whose ids are kept */

static struct weir_driver driver;
static CUcontext context;
static CUfunction mix;
static CUdeviceptr memory;
static CUstream stream;

#define DRV(call) assert_int_equal(driver.call, CUDA_SUCCESS)

static int set_up_group(void **state)
{
    CUmodule module;

    (void)state;
    context = soft_driver_open(&driver);
    DRV(cuModuleLoadData(&module, e2e_ptx));
    DRV(cuModuleGetFunction(&mix, module, "mix"));
    DRV(cuMemAlloc_v2(&memory, WORDS * 4));
    DRV(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return 0;
}

static struct weir_cupti_sink *open_sink(void)
{
    struct weir_cupti_sink *sink = weir_cupti_open(WEIR_TEST_SOFTGPU);

    assert_non_null(sink);
    return sink;
}

static void launch(uint32_t blocks)
{
    uint32_t n = 1, a = 1, b = 0;
    void *params[] = {&memory, &n, &a, &b};

    DRV(cuLaunchKernel(mix, blocks, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

/* Take the records, of which none may be lost. @return how many */
static uint32_t take(struct weir_cupti_sink *sink, const struct weir_cupti_record **ret_records)
{
    uint32_t n = 0, lost = 0;

    *ret_records = weir_cupti_take(sink, &n, &lost);
    assert_int_equal(lost, 0);
    return n;
}

static void each_sink_gets_what_was_given_under_its_ids(void **state)
{
    struct weir_cupti_sink *a = open_sink(), *b = open_sink();
    const struct weir_cupti_record *records;

    (void)state;
    weir_cupti_push(a, 7);
    launch(3);
    weir_cupti_pop();
    launch(1); /* nobody's */
    weir_cupti_push(b, 9);
    DRV(cuMemsetD32Async(memory, 5, 10, stream));
    DRV(cuMemcpyDtoDAsync_v2(memory + 400, memory, 100, stream));
    weir_cupti_pop();
    DRV(cuStreamSynchronize(stream));
    assert_int_equal(take(a, &records), 1);
    assert_int_equal(records[0].id, 7);
    assert_int_equal(records[0].class, WEIR_PROFILE_KERNEL);
    assert_string_equal(records[0].name, "mix");
    assert_int_equal(records[0].grid[0], 3);
    assert_int_equal(records[0].block[0], 32);
    assert_int_equal(records[0].node, 0);
    assert_true(records[0].begin_ns <= records[0].end_ns);
    assert_int_equal(take(b, &records), 2);
    assert_int_equal(records[0].id, 9);
    assert_int_equal(records[0].class, WEIR_PROFILE_MEMSET);
    assert_int_equal(records[0].bytes, 40);
    assert_int_equal(records[0].value, 5);
    assert_int_equal(records[1].class, WEIR_PROFILE_D2D);
    assert_int_equal(records[1].bytes, 100);
    assert_true(records[1].begin_ns >= records[0].end_ns);
    weir_cupti_close(a);
    weir_cupti_push(b, 10);
    launch(1);
    weir_cupti_pop();
    DRV(cuStreamSynchronize(stream));
    assert_int_equal(take(b, &records), 1);
    assert_int_equal(records[0].id, 10);
    weir_cupti_close(b);
    assert_true(weir_cupti_was_used());
}

static void records_of_a_closed_sink_are_nobodys(void **state)
{
    struct weir_cupti_sink *sink = open_sink();
    const struct weir_cupti_record *records;

    (void)state;
    weir_cupti_push(sink, 1);
    launch(1);
    weir_cupti_pop();
    weir_cupti_close(sink);
    weir_cupti_close(NULL);
    sink = open_sink();
    DRV(cuStreamSynchronize(stream));
    assert_int_equal(take(sink, &records), 0);
    weir_cupti_close(sink);
}

static void nodes_of_a_graph_have_numbers_and_the_launch_has_the_id(void **state)
{
    struct weir_cupti_sink *sink = open_sink();
    const struct weir_cupti_record *records;
    CUgraph graph;
    CUgraphExec exec;

    (void)state;
    DRV(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(1);
    launch(2);
    DRV(cuStreamEndCapture(stream, &graph));
    DRV(cuGraphInstantiateWithFlags(&exec, graph, 0));
    weir_cupti_push(sink, 4);
    DRV(cuGraphLaunch(exec, stream));
    weir_cupti_pop();
    DRV(cuStreamSynchronize(stream));
    assert_int_equal(take(sink, &records), 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(records[i].id, 4);
        assert_int_equal(records[i].node, i + 1);
        assert_int_equal(records[i].grid[0], i + 1);
    }
    DRV(cuGraphExecDestroy(exec));
    DRV(cuGraphDestroy(graph));
    weir_cupti_close(sink);
}

/* One thread gives work, and takes; the other has a sink of its own. */
static void *give_many(void *user)
{
    struct weir_cupti_sink *sink = open_sink();
    const struct weir_cupti_record *records;
    uint32_t n = 0;

    (void)user;
    DRV(cuCtxSetCurrent(context));
    for (uint32_t i = 0; i < MANY / 2; i++) {
        weir_cupti_push(sink, i);
        DRV(cuMemsetD32Async(memory, i, 1, stream));
        weir_cupti_pop();
        if (i % 1000 == 999) {
            n += take(sink, &records);
        }
    }
    DRV(cuStreamSynchronize(stream));
    while (n < MANY / 2) { /* the other thread's work may hold buffers back */
        n += take(sink, &records);
    }
    assert_int_equal(n, MANY / 2);
    weir_cupti_close(sink);
    return NULL;
}

static void none_of_many_is_lost_with_two_threads(void **state)
{
    pthread_t other;

    (void)state;
    assert_int_equal(pthread_create(&other, NULL, give_many, NULL), 0);
    (void)give_many(NULL);
    assert_int_equal(pthread_join(other, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sink_gets_what_was_given_under_its_ids),
        cmocka_unit_test(records_of_a_closed_sink_are_nobodys),
        cmocka_unit_test(nodes_of_a_graph_have_numbers_and_the_launch_has_the_id),
        cmocka_unit_test(none_of_many_is_lost_with_two_threads),
    };

    return cmocka_run_group_tests(tests, set_up_group, NULL);
}

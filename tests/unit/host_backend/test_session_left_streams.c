/* Streams that the guest destroys while they are in a capture that began in another one. */
#include "session_fixture.h"

#define BEGINNER 2u
#define JOINER   3u

static CUstream joined; /* captured whenever one is */

static CUresult end_capture(CUstream stream, CUgraph *ret)
{
    assert_ptr_equal(stream, fake_capturing);
    fake_capturing = NULL;
    return fake_graph_create(ret, 0);
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    *ret = fake_capturing && (stream == fake_capturing || stream == joined)
               ? CU_STREAM_CAPTURE_STATUS_ACTIVE
               : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static void use_captures(void)
{
    f.worker.platform.driver.cuStreamGetCaptureInfo_v3 = fake_capture_info;
    f.worker.platform.driver.cuStreamBeginCapture_v2 = fake_capture_begin;
    f.worker.platform.driver.cuStreamEndCapture = end_capture;
    f.worker.platform.driver.cuStreamIsCapturing = is_capturing;
}

static CUresult begin(uint32_t index)
{
    const struct weir_op_capture_begin_in in = {.s = name(WEIR_KIND_STREAM, index)};

    return call(WEIR_OP_capture_begin, &in, NULL);
}

static CUresult end(uint32_t index)
{
    const struct weir_op_capture_end_in in = {.s = name(WEIR_KIND_STREAM, index),
                                              .g = name(WEIR_KIND_GRAPH, 1)};

    return call(WEIR_OP_capture_end, &in, NULL);
}

static CUresult destroy(uint32_t index)
{
    const struct weir_op_stream_destroy_in in = {.s = name(WEIR_KIND_STREAM, index)};

    return call(WEIR_OP_stream_destroy, &in, NULL);
}

/* A capture begins in a stream; one of another context has joined it, and is destroyed. */
static int set_up_joined(void **state)
{
    const struct weir_op_ctx_create_in ctx = {
        .c = name(WEIR_KIND_CONTEXT, 2), .legacy = name(WEIR_KIND_STREAM, 4), .legacy_word = 4};
    const struct weir_op_stream_create_in in = {
        .s = name(WEIR_KIND_STREAM, JOINER), .c = ctx.c, .word = JOINER};
    int live;

    prepare = use_captures;
    fake_capturing = NULL;
    if (set_up(state) != 0) {
        return -1;
    }
    make_context();
    make_stream(BEGINNER);
    assert_int_equal(call(WEIR_OP_ctx_create, &ctx, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_stream_create, &in, NULL), CUDA_SUCCESS);
    joined = (CUstream)atomic_load(&fake_next); /* the newest */
    assert_int_equal(begin(BEGINNER), CUDA_SUCCESS);
    live = fake_live;
    assert_int_equal(destroy(JOINER), CUDA_SUCCESS);
    assert_int_equal(fake_live, live);
    return 0;
}

static void left_stream_is_gone_for_the_guest(void **state)
{
    (void)state;
    assert_int_equal(begin(JOINER), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(destroy(JOINER), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(destroy(BEGINNER), CUDA_SUCCESS);
    assert_int_equal(begin(JOINER), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(end(JOINER), CUDA_ERROR_INVALID_HANDLE);
}

static void left_stream_goes_with_the_end_of_the_capture(void **state)
{
    int live = fake_live;

    (void)state;
    assert_int_equal(end(BEGINNER), CUDA_SUCCESS);
    assert_int_equal(fake_live, live); /* less the stream, and the graph */
}

static void left_stream_goes_with_the_stream_of_the_capture(void **state)
{
    int live = fake_live;

    (void)state;
    assert_int_equal(destroy(BEGINNER), CUDA_SUCCESS);
    assert_int_equal(fake_live, live - 2);
}

static void left_stream_goes_with_the_context_of_the_capture(void **state)
{
    const struct weir_op_ctx_destroy_in in = {.c = name(WEIR_KIND_CONTEXT, 1)};
    int live = fake_live;

    (void)state;
    assert_int_equal(call(WEIR_OP_ctx_destroy, &in, NULL), CUDA_SUCCESS);
    assert_int_equal(fake_live, live - 3); /* the legacy stream, too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(left_stream_is_gone_for_the_guest, set_up_joined,
                                        tear_down),
        cmocka_unit_test_setup_teardown(left_stream_goes_with_the_end_of_the_capture, set_up_joined,
                                        tear_down),
        cmocka_unit_test_setup_teardown(left_stream_goes_with_the_stream_of_the_capture,
                                        set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(left_stream_goes_with_the_context_of_the_capture,
                                        set_up_joined, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

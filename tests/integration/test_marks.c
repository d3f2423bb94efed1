/* Marks on softgpu: reached in order, by word and by event, and words that are handed on. */
#include "../lib/tl_cmocka.h"
#include "host_backend/worker/device/mark.h"
#include "tests/integration/soft_driver.h"
#include "tests/lib/tl_await.h"
#include <string.h>

#define STREAMS 70u /* more than a page has words */

static struct fixture {
    struct weir_driver driver;
    struct weir_marks *marks;
    CUstream stream;
    CUdeviceptr gate; /* a stream waits until it is 1 */
} f;

#define DRV(call) assert_int_equal(f.driver.call, CUDA_SUCCESS)

static int set_up_group(void **state)
{
    (void)state;
    (void)soft_driver_open(&f.driver);
    DRV(cuStreamCreate(&f.stream, CU_STREAM_NON_BLOCKING));
    DRV(cuMemAlloc_v2(&f.gate, 4));
    return 0;
}

static int tear_down_group(void **state)
{
    (void)state;
    DRV(cuMemFree_v2(f.gate));
    DRV(cuStreamDestroy_v2(f.stream));
    soft_driver_close(&f.driver);
    return 0;
}

static void open_marks(bool words)
{
    assert_int_equal(weir_marks_create(&f.driver, words, &f.marks), WEIR_OK);
}

static int tear_down(void **state)
{
    (void)state;
    weir_marks_destroy(f.marks);
    f.marks = NULL;
    return 0;
}

/* The stream stops there until go_on(). */
static void stop_here(CUstream stream)
{
    DRV(cuMemsetD32Async(f.gate, 0, 1, f.stream));
    DRV(cuStreamSynchronize(f.stream));
    DRV(cuStreamWaitValue32_v2(stream, f.gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static void go_on(void)
{
    CUstream other;

    DRV(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DRV(cuStreamWriteValue32_v2(other, f.gate, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    DRV(cuStreamSynchronize(other));
    DRV(cuStreamDestroy_v2(other));
}

static bool is_reached(const struct weir_gate_mark *mark)
{
    return mark->word ? (int32_t)(__atomic_load_n(mark->word, __ATOMIC_ACQUIRE) - mark->value) >= 0
                      : weir_mark_event_reached(f.marks, mark->event);
}

static void await(const struct weir_gate_mark *mark)
{
    tl_await(is_reached(mark));
}

static void marks_come_in_their_order(bool words)
{
    struct weir_mark_word word = {0};
    struct weir_gate_mark marks[3];

    open_marks(words);
    assert_int_equal(weir_mark_stream(f.marks, &word, f.stream, &marks[0]), CUDA_SUCCESS);
    await(&marks[0]);
    stop_here(f.stream);
    assert_int_equal(weir_mark_stream(f.marks, &word, f.stream, &marks[1]), CUDA_SUCCESS);
    assert_int_equal(weir_mark_stream(f.marks, &word, f.stream, &marks[2]), CUDA_SUCCESS);
    assert_true(is_reached(&marks[0]));
    assert_false(is_reached(&marks[1]));
    assert_false(is_reached(&marks[2]));
    go_on();
    await(&marks[2]);
    assert_true(is_reached(&marks[1]));
    for (int i = 0; i < 3; i++) {
        if (marks[i].event) {
            weir_mark_event_put(f.marks, marks[i].event);
        }
    }
    weir_mark_word_put(f.marks, &word);
}

static void by_word_in_order(void **state)
{
    (void)state;
    marks_come_in_their_order(true);
}

static void by_event_in_order(void **state)
{
    (void)state;
    marks_come_in_their_order(false);
}

/* Which kernels may still run is known from the words alone. */
static void kernels_are_pending_until_their_mark(void **state)
{
    struct weir_mark_word word = {0};
    struct weir_gate_mark first, second;

    (void)state;
    open_marks(true);
    assert_false(weir_mark_kernels_pending(&word)); /* none yet */
    weir_mark_kernel_given(&word, 1);
    assert_true(weir_mark_kernels_pending(&word)); /* nothing stands behind it */
    weir_mark_kernel_given(&word, -1);
    assert_false(weir_mark_kernels_pending(&word)); /* it was refused */
    weir_mark_kernel_given(&word, 1);
    assert_false(weir_mark_originals_pending(&word)); /* it can be stopped */
    weir_mark_original_given(&word);
    assert_true(weir_mark_originals_pending(&word));
    stop_here(f.stream);
    assert_int_equal(weir_mark_stream(f.marks, &word, f.stream, &first), CUDA_SUCCESS);
    assert_true(weir_mark_kernels_pending(&word)); /* the GPU has not come that far */
    assert_true(weir_mark_originals_pending(&word));
    go_on();
    await(&first);
    assert_false(weir_mark_kernels_pending(&word));
    assert_false(weir_mark_originals_pending(&word));
    weir_mark_kernel_given(&word, 1);
    assert_true(weir_mark_kernels_pending(&word));
    assert_false(weir_mark_originals_pending(&word));
    assert_int_equal(weir_mark_stream(f.marks, &word, f.stream, &first), CUDA_SUCCESS);
    await(&first);
    stop_here(f.stream);
    assert_int_equal(weir_mark_stream(f.marks, &word, f.stream, &second), CUDA_SUCCESS);
    assert_false(weir_mark_kernels_pending(&word)); /* the second is of other work, a copy, say */
    go_on();
    await(&second);
    weir_mark_word_put(f.marks, &word);
}

/* A stream may go while the GPU has yet to write its word: nobody else may get that word before. */
static void word_is_not_handed_on_too_early(void **state)
{
    static struct weir_mark_word words[STREAMS];
    struct weir_gate_mark marks[STREAMS], late;
    struct weir_mark_word leaving = {0};
    CUstream stream;
    const uint32_t *left;

    (void)state;
    open_marks(true);
    memset(words, 0, sizeof words);
    DRV(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    stop_here(stream);
    assert_int_equal(weir_mark_stream(f.marks, &leaving, stream, &late), CUDA_SUCCESS);
    left = leaving.word;
    weir_mark_word_put(f.marks, &leaving);
    assert_null(leaving.word);
    for (uint32_t i = 0; i < STREAMS; i++) {
        assert_int_equal(weir_mark_stream(f.marks, &words[i], f.stream, &marks[i]), CUDA_SUCCESS);
        assert_ptr_not_equal(words[i].word, left);
    }
    go_on();
    DRV(cuStreamSynchronize(stream));
    DRV(cuStreamSynchronize(f.stream));
    for (uint32_t i = 0; i < STREAMS; i++) {
        assert_true(is_reached(&marks[i]));
        weir_mark_word_put(f.marks, &words[i]);
    }
    /* Now all are free again, that one too; its numbers go on from where they were. */
    for (uint32_t i = 0, found = 0; i < STREAMS; i++) {
        assert_int_equal(weir_mark_stream(f.marks, &words[i], f.stream, &marks[i]), CUDA_SUCCESS);
        found += words[i].word == left;
        assert_true(i + 1 < STREAMS || found == 1);
    }
    DRV(cuStreamSynchronize(f.stream));
    for (uint32_t i = 0; i < STREAMS; i++) {
        assert_true(is_reached(&marks[i]));
    }
    DRV(cuStreamDestroy_v2(stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(by_word_in_order, tear_down),
        cmocka_unit_test_teardown(by_event_in_order, tear_down),
        cmocka_unit_test_teardown(kernels_are_pending_until_their_mark, tear_down),
        cmocka_unit_test_teardown(word_is_not_handed_on_too_early, tear_down),
    };

    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}

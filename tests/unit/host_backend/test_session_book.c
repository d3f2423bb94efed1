/* A session's book, and the box in which a session travels. */
#include "host_backend/worker/rebuild/box.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/session/objects.h"
#include "session_fixture.h"
#include <sys/socket.h>
#include <unistd.h>

static void serve_one_program(void)
{
    f.worker.platform.by_program = true;
}

static int set_up_book(void **state)
{
    prepare = serve_one_program;
    return set_up(state);
}

/* The operations of the records that are kept, a letter each. */
static const char *kept(void)
{
    static char text[16];
    const struct weir_kept_record **records;
    uint32_t n, error;

    (void)deferred(&error);
    assert_int_equal(weir_session_book_list(f.session, &records, &n), WEIR_OK);
    assert_true(n < sizeof text);
    for (uint32_t i = 0; i < n; i++) {
        text[i] = weir_ops[records[i]->record.op].name[0];
    }
    text[n] = 0;
    free(records);
    return text;
}

static void make_event(uint32_t index)
{
    struct weir_op_event_create_in in = {.e = name(WEIR_KIND_EVENT, index),
                                         .c = name(WEIR_KIND_CONTEXT, 1)};

    assert_int_equal(send_op(WEIR_OP_event_create, WEIR_RECORD_POSTED, &in), WEIR_OK);
}

static CUevent native_of(uint32_t index)
{
    const struct weir_host_event *event =
        weir_host_object_get(f.session, WEIR_KIND_EVENT, name(WEIR_KIND_EVENT, index));

    return event ? event->o.native : NULL;
}

static void records_live_as_long_as_their_objects(void **state)
{
    struct weir_op_event_destroy_in end_event = {.e = name(WEIR_KIND_EVENT, 1)};
    struct weir_op_ctx_destroy_in end_context = {.c = name(WEIR_KIND_CONTEXT, 1)};

    (void)state;
    assert_string_equal(kept(), "");
    make_context();
    make_event(1);
    make_stream(2);
    assert_string_equal(kept(), "ces");
    make_event(1); /* refused: there is one of that name */
    assert_string_equal(kept(), "ces");
    assert_int_equal(send_op(WEIR_OP_event_destroy, WEIR_RECORD_POSTED, &end_event), WEIR_OK);
    assert_string_equal(kept(), "cs");
    assert_int_equal(call(WEIR_OP_ctx_destroy, &end_context, NULL), CUDA_SUCCESS);
    assert_string_equal(kept(), "");
}

static void make_surface(uint32_t array)
{
    const struct weir_op_surface_create_in in = {.c = name(WEIR_KIND_CONTEXT, 1),
                                                 .a = name(WEIR_KIND_ARRAY, array)};

    assert_int_equal(call(WEIR_OP_surface_create, &in, NULL), CUDA_SUCCESS);
}

static void end_surface(uint64_t number)
{
    const struct weir_op_surface_destroy_in in = {.object = number};

    assert_int_equal(call(WEIR_OP_surface_destroy, &in, NULL), CUDA_SUCCESS);
}

/* No record names a surface by a handle. */
static void records_of_surfaces_live_as_long_as_they_do(void **state)
{
    const struct weir_op_array_create_in array = {
        .c = name(WEIR_KIND_CONTEXT, 1),
        .a = name(WEIR_KIND_ARRAY, 1),
        .desc = {4, 4, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST}};
    const struct weir_op_cuArrayDestroy_in end_array = {.hArray = array.a};
    const struct weir_kept_record **records;
    uint32_t n;

    (void)state;
    make_context();
    assert_int_equal(call(WEIR_OP_array_create, &array, NULL), CUDA_SUCCESS);
    make_surface(1);
    make_surface(1);
    assert_string_equal(kept(), "cass");
    assert_int_equal(weir_session_book_list(f.session, &records, &n), WEIR_OK);
    assert_int_equal(records[3]->n_names, 2);
    assert_int_equal(records[3]->names[0], 2); /* as the driver has numbered it */
    free(records);
    end_surface(1);
    assert_string_equal(kept(), "cas");
    assert_int_equal(call(WEIR_OP_cuArrayDestroy, &end_array, NULL), CUDA_SUCCESS);
    assert_string_equal(kept(), "casc"); /* the surface needs the array as it was */
    end_surface(2);
    assert_string_equal(kept(), "c");
}

/* Keep a record as if it had been handled. */
static void note(uint32_t attribute, uint32_t value)
{
    struct weir_op_stream_attribute_in in = {.s = name(WEIR_KIND_STREAM, 1),
                                             .attribute = attribute,
                                             .write = 1,
                                             .value = {.priority = (int)value}};
    _Alignas(8) uint8_t room[1024] = {0};
    struct weir_record *record = (struct weir_record *)(void *)room;
    size_t bytes = weir_ops[WEIR_OP_stream_attribute].in_bytes(&in);

    *record = (struct weir_record){.len_bytes = (uint32_t)(sizeof *record + bytes),
                                   .op = WEIR_OP_stream_attribute,
                                   .seq = ++f.seq};
    weir_ops[WEIR_OP_stream_attribute].in_encode(&in, record + 1);
    weir_session_book_note(
        f.session,
        weir_session_book_begin(f.session, record, (const union weir_op_any_in *)(const void *)&in),
        NULL, CUDA_SUCCESS);
}

static void of_what_is_set_the_last_is_kept(void **state)
{
    const struct weir_kept_record **records;
    uint64_t last;
    uint32_t n;

    (void)state;
    make_context();
    assert_string_equal(kept(), "c");
    note(1, 5);
    note(2, 5);
    note(1, 6);
    last = f.seq;
    note(1, 6); /* nothing new */
    assert_string_equal(kept(), "css");
    assert_int_equal(weir_session_book_list(f.session, &records, &n), WEIR_OK);
    assert_true(records[2]->record.seq == last);
    free(records);
}

/* ---------------------------------------------------------------- boxes */

#define FILES 300u /* more than one message has */

static void box_carries_bytes_and_descriptors(void **state)
{
    static const uint64_t words[] = {4711, 4712};
    struct weir_box box = {0}, got;
    int fd, pair[2], file;
    char byte;

    (void)state;
    assert_int_equal(pipe(pair), 0);
    (void)weir_box_put(&box, words, sizeof words[0]);
    (void)weir_box_put(&box, "abc", 4);
    (void)weir_box_put(&box, &words[1], sizeof words[1]);
    for (uint32_t i = 0; i < FILES; i++) {
        weir_box_put_file(&box, WEIR_BOX_CHUNK, i, pair[1]);
    }
    assert_int_equal(weir_box_send(&box, &fd), WEIR_OK);
    weir_box_finish(&box, false);
    close(pair[1]);
    assert_int_equal(weir_box_receive(fd, &got), WEIR_OK);
    assert_memory_equal(weir_box_get(&got, 8), words, 8);
    assert_string_equal(weir_box_get(&got, 4), "abc");
    assert_memory_equal(weir_box_get(&got, 8), words + 1, 8);
    assert_null(weir_box_get(&got, 1));
    assert_true(got.failed);
    assert_int_equal(weir_box_take_file(&got, WEIR_BOX_ALLOC, 7), -1);
    file = weir_box_take_file(&got, WEIR_BOX_CHUNK, FILES - 1);
    assert_int_equal(weir_box_take_file(&got, WEIR_BOX_CHUNK, FILES - 1), -1);
    weir_box_finish(&got, true);
    assert_int_equal(write(file, "x", 1), 1); /* the only one that is left */
    close(file);
    assert_int_equal(read(pair[0], &byte, 1), 1);
    assert_int_equal(read(pair[0], &byte, 1), 0);
    close(pair[0]);
}

static void what_is_no_box_is_refused(void **state)
{
    struct weir_box got;
    int pair[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
        assert_true(i == 0 || send(pair[0], "nothing", 7, 0) == 7);
        close(pair[0]);
        assert_int_equal(weir_box_receive(pair[1], &got), WEIR_ERR_PEER);
    }
}

static int n_late; /* how often the event of number 2 is not done yet */

static CUresult elapsed(float *ret_ms, CUevent start, CUevent end)
{
    uint64_t first = (uintptr_t)native_of(1), second = (uintptr_t)native_of(2);

    if ((uintptr_t)start == first || (uintptr_t)end == first) {
        return CUDA_ERROR_INVALID_HANDLE; /* another driver has recorded it */
    }
    *ret_ms = -1; /* 1 ms ago */
    return (uintptr_t)end == second && n_late-- > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

/* The program has seen that the second event is done; the driver is a moment behind. */
static void time_since_an_event_of_another_driver(void **state)
{
    struct weir_op_event_elapsed_in in = {.start = name(WEIR_KIND_EVENT, 1),
                                          .end = name(WEIR_KIND_EVENT, 2)};
    struct weir_host_event *first;

    (void)state;
    f.worker.platform.driver.cuEventElapsedTime_v2 = elapsed;
    make_context();
    make_event(1);
    make_event(2);
    assert_string_equal(kept(), "cee");
    first = weir_host_object_get(f.session, WEIR_KIND_EVENT, in.start);
    first->at_ms = (double)weir_clock_now_ns() / 1e6 - 101;
    n_late = 3;
    assert_int_equal(call(WEIR_OP_event_elapsed, &in, NULL), CUDA_SUCCESS);
    assert_true(n_late < 0); /* it was asked until it knew */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(records_of_surfaces_live_as_long_as_they_do, set_up_book,
                                        tear_down),
        cmocka_unit_test_setup_teardown(records_live_as_long_as_their_objects, set_up_book,
                                        tear_down),
        cmocka_unit_test_setup_teardown(of_what_is_set_the_last_is_kept, set_up_book, tear_down),
        cmocka_unit_test_setup_teardown(time_since_an_event_of_another_driver, set_up_book,
                                        tear_down),
        cmocka_unit_test(box_carries_bytes_and_descriptors),
        cmocka_unit_test(what_is_no_box_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A session: records in, objects, replies, the end. */
#include "session_fixture.h"

static void mark_of_a_stream_writes_its_word(void **state)
{
    struct weir_op_stream_mark_in in = {.s = name(WEIR_KIND_STREAM, 2), .value = 77};
    uint32_t error;

    (void)state;
    make_context();
    make_stream(2);
    assert_int_equal(send_op(WEIR_OP_stream_mark, WEIR_RECORD_POSTED, &in), WEIR_OK);
    assert_int_equal(deferred(&error), 0);
    assert_int_equal(f.guest->ops->view(f.guest)->words[2], 77);
}

static void posted_errors_are_deferred_and_counted(void **state)
{
    struct weir_op_stream_mark_in wild = {.s = 0x1234};
    struct weir_op_copy_in copy = {.dst = 0x200000000000, .src = 0, .bytes = 16, .flags = 2};
    uint32_t error;

    (void)state;
    make_context();
    assert_int_equal(send_op(WEIR_OP_stream_mark, WEIR_RECORD_POSTED, &wild), WEIR_OK);
    assert_int_equal(deferred(&error), 1);
    assert_int_equal(error, CUDA_ERROR_INVALID_HANDLE);
    copy.s = name(WEIR_KIND_STREAM, 1);
    assert_int_equal(send_op(WEIR_OP_copy, WEIR_RECORD_POSTED, &copy), WEIR_OK);
    assert_int_equal(deferred(&error), 2);
    assert_int_equal(error, CUDA_ERROR_INVALID_VALUE); /* no memory of this session is there */
    assert_int_equal(f.guest->ops->view(f.guest)->header->deferred_seq, 2);
    assert_string_equal(fake_log, "");
}

static void handle_of_another_kind_or_used_twice_is_refused(void **state)
{
    struct weir_op_event_query_in query = {.e = name(WEIR_KIND_STREAM, 1)};
    uint32_t error;

    (void)state;
    make_context();
    assert_int_equal(call(WEIR_OP_event_query, &query, NULL), CUDA_ERROR_INVALID_HANDLE);
    make_stream(2);
    make_stream(2);
    assert_int_equal(deferred(&error), 1);
    assert_int_equal(error, CUDA_ERROR_INVALID_HANDLE);
    make_stream(1u << 23); /* over the limit of streams */
    assert_int_equal(deferred(&error), 2);
}

static void nodes_die_with_their_graph(void **state)
{
    struct weir_op_cuGraphCreate_in graph = {.phGraph = name(WEIR_KIND_GRAPH, 1)};
    struct weir_op_cuGraphAddEmptyNode_in node = {.phGraphNode = name(WEIR_KIND_NODE, 1),
                                                  .hGraph = name(WEIR_KIND_GRAPH, 1)};
    struct weir_op_cuGraphDestroy_in destroy = {.hGraph = name(WEIR_KIND_GRAPH, 1)};
    struct weir_op_graph_host_set_in set = {.n = name(WEIR_KIND_NODE, 1)};

    (void)state;
    assert_int_equal(call(WEIR_OP_cuGraphCreate, &graph, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_cuGraphAddEmptyNode, &node, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_cuGraphDestroy, &destroy, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_cuGraphDestroy, &destroy, NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(call(WEIR_OP_graph_host_set, &set, NULL), CUDA_ERROR_INVALID_HANDLE);
}

/* A copy inside the arena, which needs no other memory; returns the deferred errors so far. */
static uint32_t copy_in_arena(uint64_t dst, uint64_t src, uint64_t bytes, uint32_t *ret_error)
{
    struct weir_op_copy_in in = {
        .s = name(WEIR_KIND_STREAM, 1), .dst = dst, .src = src, .bytes = bytes, .flags = 3};

    assert_int_equal(send_op(WEIR_OP_copy, WEIR_RECORD_POSTED, &in), WEIR_OK);
    return deferred(ret_error);
}

static void arena_is_registered_part_by_part_when_used(void **state)
{
    static const struct {
        uint64_t dst, src, bytes;
        size_t registered; /* of the arena, afterwards */
    } rows[] = {{0, 4096, 4096, 256u << 10},
                {8192, 0, 4096, 256u << 10},
                {(256u << 10) - 16, 0, 16, 256u << 10},
                {ARENA_BYTES - 16, 256u << 10, 16, (256u + 768 + 1024) << 10},
                {1u << 20, 256u << 10, 768u << 10, (256u + 768 + 1024) << 10}};
    uint32_t error;

    (void)state;
    make_context();
    assert_int_equal(deferred(&error), 0);
    assert_int_equal(atomic_load(&fake_registered_bytes), WORDS_BYTES);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(copy_in_arena(rows[i].dst, rows[i].src, rows[i].bytes, &error), 0);
        assert_int_equal(atomic_load(&fake_registered_bytes), WORDS_BYTES + rows[i].registered);
    }
}

static void block_in_two_parts_or_outside_is_refused(void **state)
{
    static const uint64_t rows[][2] = {
        {(256u << 10) - 16, 32}, {0, (256u << 10) + 1},        {ARENA_BYTES - 16, 17},
        {ARENA_BYTES, 1},        {ARENA_BYTES - 16, 1u << 31}, {~0ull - 7, 16},
        {16, ~0ull - 8}};
    uint32_t error;

    (void)state;
    make_context();
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(copy_in_arena(rows[i][0], 0, rows[i][1], &error), i + 1);
        assert_int_equal(error, CUDA_ERROR_INVALID_VALUE);
    }
}

static void part_that_could_not_be_registered_is_tried_again(void **state)
{
    uint32_t error;

    (void)state;
    make_context();
    assert_int_equal(deferred(&error), 0);
    atomic_store(&fake_refusals, 1);
    assert_int_equal(copy_in_arena(0, 16, 16, &error), 1);
    assert_int_equal(error, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(atomic_load(&fake_registered_bytes), WORDS_BYTES);
    assert_int_equal(copy_in_arena(0, 16, 16, &error), 1);
    assert_int_equal(atomic_load(&fake_registered_bytes), WORDS_BYTES + (256u << 10));
}

/* Names of graphs come again: a condition of the one before must not be taken for the new one's. */
static void condition_dies_with_its_graph(void **state)
{
    struct weir_op_graph_condition_in condition = {.g = name(WEIR_KIND_GRAPH, 1)};
    struct weir_op_graph_add_conditional_in in = {
        .g = name(WEIR_KIND_GRAPH, 1), .n = name(WEIR_KIND_NODE, 1), .size = 1};
    struct weir_op_cuGraphDestroy_in destroy = {.hGraph = name(WEIR_KIND_GRAPH, 1)};

    (void)state;
    make_graph(1);
    in.handle = fake_next + 1;
    assert_int_equal(call(WEIR_OP_graph_condition, &condition, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_cuGraphDestroy, &destroy, NULL), CUDA_SUCCESS);
    make_graph(1);
    assert_int_equal(call(WEIR_OP_graph_add_conditional, &in, NULL), CUDA_ERROR_INVALID_VALUE);
    in.handle = fake_next + 1;
    assert_int_equal(call(WEIR_OP_graph_condition, &condition, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_graph_add_conditional, &in, NULL), CUDA_SUCCESS);
}

/* A driver does not survive a graph that is gone. */
static void bodies_die_with_their_node(void **state)
{
    struct weir_op_graph_condition_in condition = {.g = name(WEIR_KIND_GRAPH, 1)};
    struct weir_op_graph_add_conditional_in in = {
        .g = name(WEIR_KIND_GRAPH, 1), .n = name(WEIR_KIND_NODE, 1), .size = 2};
    struct weir_op_cuGraphDestroyNode_in destroy = {.hNode = name(WEIR_KIND_NODE, 1)};

    (void)state;
    make_graph(1);
    in.handle = fake_next + 1;
    assert_int_equal(call(WEIR_OP_graph_condition, &condition, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_graph_add_conditional, &in, NULL), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&f.worker.counts.objects), 4);
    assert_int_equal(call(WEIR_OP_cuGraphDestroyNode, &destroy, NULL), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&f.worker.counts.objects), 1);
}

/* A place that the driver does not give is lost to the tenant that asked, not to all. */
static void lost_places_are_the_tenants_own(void **state)
{
    struct weir_op_vmm_reserve_in in = {.bytes = FAKE_VMM_BYTES / 16};

    (void)state;
    fake_elsewhere = true;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(call(WEIR_OP_vmm_reserve, &in, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    }
    pthread_mutex_lock(&f.worker.vmm_area->lock);
    assert_true(weir_window_free_bytes(&f.worker.vmm_area->window) == FAKE_VMM_BYTES / 4 * 3);
    pthread_mutex_unlock(&f.worker.vmm_area->lock);
}

/* Nobody would free what a guest with a page of its own sent besides. */
static void statistics_beside_a_page_are_refused(void **state)
{
    struct weir_op_stats_put_in in = {.n_data = 0};

    (void)state;
    assert_int_equal(call(WEIR_OP_stats_put, &in, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

static void everything_is_freed_when_the_guest_vanishes(void **state)
{
    struct weir_op_event_create_in event = {.c = name(WEIR_KIND_CONTEXT, 1)};
    struct weir_op_cuGraphCreate_in graph = {.phGraph = name(WEIR_KIND_GRAPH, 1)};
    uint32_t error;

    (void)state;
    make_context();
    for (uint32_t i = 2; i < 20; i++) {
        make_stream(i);
        event.e = name(WEIR_KIND_EVENT, i);
        assert_int_equal(send_op(WEIR_OP_event_create, WEIR_RECORD_POSTED, &event), WEIR_OK);
    }
    assert_int_equal(call(WEIR_OP_cuGraphCreate, &graph, NULL), CUDA_SUCCESS);
    assert_int_equal(deferred(&error), 0);
    /* tear_down looks */
}

static void broken_record_ends_the_session(void **state)
{
    struct weir_record record = {.len_bytes = sizeof record, .op = 60000};

    (void)state;
    make_context();
    assert_ends_session(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(mark_of_a_stream_writes_its_word, set_up, tear_down),
        cmocka_unit_test_setup_teardown(posted_errors_are_deferred_and_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(handle_of_another_kind_or_used_twice_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nodes_die_with_their_graph, set_up, tear_down),
        cmocka_unit_test_setup_teardown(arena_is_registered_part_by_part_when_used, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(block_in_two_parts_or_outside_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(part_that_could_not_be_registered_is_tried_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(condition_dies_with_its_graph, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bodies_die_with_their_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lost_places_are_the_tenants_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(statistics_beside_a_page_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(everything_is_freed_when_the_guest_vanishes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(broken_record_ends_the_session, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The generated halves of automatic entry points, back to back: a program's call goes through the
 * guest's half, the codec both ways and the host's half to a fake driver with one graph of three
 * nodes.
 */
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include "proto/host_hand.h"
#include "proto/wire/guest_api.h"
#include "proto/wire/session_api.h"
#include "tests/lib/tl_cmocka.h"

#include <stdlib.h>
#include <string.h>

#define NODE(i) ((void *)(uintptr_t)(0xd0 + (i))) /* the driver's nodes */
#define GRAPH   ((void *)(uintptr_t)0xd1d0)
#define EVENT   ((void *)(uintptr_t)0xe0)

/* ------------------------------------------------------------------ the fake session's names */

static struct {
    enum weir_kind kind;
    uint64_t handle;
    void *object;
} names[32];
static unsigned n_names;
static uint64_t next_reserved, next_host_name;
static unsigned guest_drops, host_drops;
static void *arena[32];
static unsigned n_arena;

CUresult weir_session_use(struct weir_session *session, enum weir_kind kind, uint64_t handle,
                          void **ret_object)
{
    (void)session;
    for (unsigned i = 0; i < n_names; i++) {
        if (names[i].kind == kind && names[i].handle == handle && names[i].object) {
            *ret_object = names[i].object;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult weir_session_free_name(struct weir_session *session, enum weir_kind kind, uint64_t handle)
{
    void *object = NULL;
    return weir_session_use(session, kind, handle, &object) == CUDA_SUCCESS
               ? CUDA_ERROR_INVALID_HANDLE
               : CUDA_SUCCESS;
}

CUresult weir_session_put(struct weir_session *session, enum weir_kind kind, uint64_t handle,
                          void *object)
{
    (void)session;
    assert_true(n_names < 32);
    names[n_names].kind = kind;
    names[n_names].handle = handle;
    names[n_names++].object = object;
    return CUDA_SUCCESS;
}

CUresult weir_session_name(struct weir_session *session, enum weir_kind kind, void *object,
                           uint64_t *ret_handle)
{
    for (unsigned i = 0; i < n_names; i++) {
        if (names[i].kind == kind && names[i].object == object) {
            *ret_handle = names[i].handle;
            return CUDA_SUCCESS;
        }
    }
    *ret_handle = next_host_name++;
    return weir_session_put(session, kind, *ret_handle, object);
}

void weir_session_drop(struct weir_session *session, enum weir_kind kind, uint64_t handle)
{
    (void)session;
    for (unsigned i = 0; i < n_names; i++) {
        if (names[i].kind == kind && names[i].handle == handle) {
            names[i].object = NULL;
            host_drops++;
        }
    }
}

CUresult weir_session_remove(struct weir_session *session, enum weir_kind kind, uint64_t handle)
{
    void *object = NULL;
    CUresult result = weir_session_use(session, kind, handle, &object);

    if (result == CUDA_SUCCESS) {
        result = weir_session_driver(session)->cuArrayDestroy(object);
    }
    if (result == CUDA_SUCCESS) {
        weir_session_drop(session, kind, handle);
    }
    return result;
}

CUresult weir_session_stream_begin(struct weir_session *session, uint64_t handle,
                                   CUstream *ret_stream)
{
    return weir_session_use(session, WEIR_KIND_STREAM, handle, (void **)ret_stream);
}

CUresult weir_session_check_dptr(struct weir_session *session, uint64_t address, uint64_t bytes)
{
    (void)session;
    return address >= 0x1000 && bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_session_device(struct weir_session *session, int32_t ordinal, CUdevice *ret_device)
{
    (void)session;
    *ret_device = ordinal + 4;
    return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

void *weir_session_alloc(struct weir_session *session, size_t bytes)
{
    (void)session;
    assert_true(n_arena < 32);
    return arena[n_arena++] = calloc(1, bytes);
}

/* ------------------------------------------------------------------ the fake driver */

static CUresult driver_result;
static unsigned driver_calls;
static CUgraphNode seen_from[4], seen_to[4];
static size_t seen_count;
static bool seen_edge_data;

static CUresult fake_graph_create(CUgraph *phGraph, unsigned int flags)
{
    driver_calls++;
    assert_int_equal(flags, 0);
    if (driver_result == CUDA_SUCCESS) {
        *phGraph = GRAPH;
    }
    return driver_result;
}

#define ARRAY ((CUarray)0xa44a0)

static CUresult fake_array_destroy(CUarray hArray)
{
    assert_ptr_equal(hArray, ARRAY);
    return driver_result;
}

static CUresult fake_get_nodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    assert_ptr_equal(hGraph, GRAPH);
    for (size_t i = 0; nodes && i < 3 && i < *numNodes; i++) {
        nodes[i] = NODE(i);
    }
    *numNodes = nodes && *numNodes < 3 ? *numNodes : 3;
    return driver_result;
}

static CUresult fake_add_dependencies(CUgraph hGraph, const CUgraphNode *from,
                                      const CUgraphNode *to, const CUgraphEdgeData *edgeData,
                                      size_t numDependencies)
{
    (void)hGraph;
    driver_calls++;
    assert_true(numDependencies <= 4);
    memcpy(seen_from, from, numDependencies * sizeof(*from));
    memcpy(seen_to, to, numDependencies * sizeof(*to));
    seen_edge_data = edgeData && edgeData[0].to_port == 7;
    seen_count = numDependencies;
    return driver_result;
}

static CUresult fake_get_event(CUgraphNode hNode, CUevent *event_out)
{
    assert_ptr_equal(hNode, NODE(0));
    *event_out = EVENT;
    return driver_result;
}

static CUresult fake_max_width(size_t *width, CUarray_format format, unsigned channels,
                               CUdevice dev)
{
    assert_int_equal(format, CU_AD_FORMAT_FLOAT);
    *width = 1000 * channels + (unsigned)dev;
    return driver_result;
}

static const struct weir_driver fake_driver = {
    .cuGraphCreate = fake_graph_create,
    .cuArrayDestroy = fake_array_destroy,
    .cuGraphGetNodes = fake_get_nodes,
    .cuGraphAddDependencies_v2 = fake_add_dependencies,
    .cuGraphEventRecordNodeGetEvent = fake_get_event,
    .cuDeviceGetTexture1DLinearMaxWidth = fake_max_width,
};

const struct weir_driver *weir_session_driver(struct weir_session *session)
{
    (void)session;
    return &fake_driver;
}

/* ------------------------------------------------------------------ the fake guest library */

struct weir_channel *weir_guest_channel(void)
{
    return NULL;
}

CUresult weir_guest_use(enum weir_kind kind, const void *value, uint64_t *ret_handle)
{
    (void)kind;
    *ret_handle = (uintptr_t)value;
    return value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult weir_guest_reserve(enum weir_kind kind, uint64_t *ret_handle)
{
    (void)kind;
    *ret_handle = next_reserved++;
    return CUDA_SUCCESS;
}

void weir_guest_drop(enum weir_kind kind, uint64_t handle)
{
    (void)kind;
    (void)handle;
    guest_drops++;
}

CUresult weir_guest_adopt(enum weir_kind kind, uint64_t *handles, uint32_t n)
{
    (void)kind;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_not_equal(handles[i], 0);
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_device(CUdevice device, int32_t *ret_ordinal)
{
    *ret_ordinal = device;
    return CUDA_SUCCESS;
}

static CUresult serve(enum weir_op op, const void *in, void *out)
{
    switch ((int)op) {
    case WEIR_OP_cuGraphCreate:
        return weir_host_cuGraphCreate(NULL, in);
    case WEIR_OP_cuArrayDestroy:
        return weir_host_cuArrayDestroy(NULL, in);
    case WEIR_OP_cuGraphGetNodes:
        return weir_host_cuGraphGetNodes(NULL, in, out);
    case WEIR_OP_cuGraphAddDependencies_v2:
        return weir_host_cuGraphAddDependencies_v2(NULL, in);
    case WEIR_OP_cuGraphEventRecordNodeGetEvent:
        return weir_host_cuGraphEventRecordNodeGetEvent(NULL, in, out);
    case WEIR_OP_cuDeviceGetTexture1DLinearMaxWidth:
        return weir_host_cuDeviceGetTexture1DLinearMaxWidth(NULL, in, out);
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

CUresult weir_channel_call(struct weir_channel *channel, enum weir_op op, const void *in, void *out)
{
    (void)channel;
    static uint64_t request[4096],
        reply[4096]; /* valid until the next call, as the contract says */
    const struct weir_op_info *info = &weir_ops[op];
    union weir_op_any_in host_in;
    union weir_op_any_out host_out;
    memset(&host_out, 0, sizeof(host_out));
    size_t bytes = info->in_bytes(in);
    assert_true(bytes <= sizeof(request));
    info->in_encode(in, request);
    assert_true(info->in_decode(request, bytes, &host_in));
    CUresult result = serve(op, &host_in, &host_out);
    bytes = info->out_bytes(&host_out);
    assert_true(bytes <= sizeof(reply));
    info->out_encode(&host_out, reply);
    assert_true(info->out_decode(reply, bytes, out));
    while (n_arena) {
        free(arena[--n_arena]);
    }
    return result;
}

CUresult weir_channel_post(struct weir_channel *channel, enum weir_op op, const void *in)
{
    (void)channel;
    (void)op;
    (void)in;
    return CUDA_ERROR_UNKNOWN;
}

static int fresh(void **state)
{
    (void)state;
    n_names = guest_drops = host_drops = driver_calls = 0;
    next_reserved = 0x5000;
    next_host_name = 0x7000;
    driver_result = CUDA_SUCCESS;
    return 0;
}

static CUgraph make_graph(void)
{
    CUgraph graph = NULL;
    assert_int_equal(weir_guest_cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    return graph;
}

/* ------------------------------------------------------------------ tests */

static void new_object_is_known_by_the_guests_name(void **state)
{
    (void)state;
    CUgraph graph = make_graph();
    assert_int_equal((uintptr_t)graph, 0x5000);
    void *object = NULL;
    assert_int_equal(weir_session_use(NULL, WEIR_KIND_GRAPH, 0x5000, &object), CUDA_SUCCESS);
    assert_ptr_equal(object, GRAPH);
    assert_int_equal(guest_drops, 0);
}

static void new_object_that_fails_frees_its_name(void **state)
{
    (void)state;
    CUgraph graph = (CUgraph)(uintptr_t)1;
    driver_result = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(weir_guest_cuGraphCreate(&graph, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal((uintptr_t)graph, 1);
    assert_int_equal(guest_drops, 1);
    assert_int_equal(n_names, 0);
    assert_int_equal(weir_guest_cuGraphCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

static void name_in_use_is_refused_before_the_driver_is_called(void **state)
{
    (void)state;
    (void)make_graph();
    next_reserved = 0x5000;
    CUgraph graph = NULL;
    assert_int_equal(weir_guest_cuGraphCreate(&graph, 0), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(driver_calls, 1);
}

static void destroyed_object_dies_on_both_sides_only_on_success(void **state)
{
    (void)state;
    CUarray array = (CUarray)0x6000;
    assert_int_equal(weir_session_put(NULL, WEIR_KIND_ARRAY, (uintptr_t)array, ARRAY),
                     CUDA_SUCCESS);
    driver_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(weir_guest_cuArrayDestroy(array), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(guest_drops + host_drops, 0);
    driver_result = CUDA_SUCCESS;
    assert_int_equal(weir_guest_cuArrayDestroy(array), CUDA_SUCCESS);
    assert_int_equal(guest_drops, 1);
    assert_int_equal(host_drops, 1);
    assert_int_equal(weir_guest_cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(weir_guest_cuArrayDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
}

static void counted_array_answers_every_size_as_cuda_does(void **state)
{
    (void)state;
    CUgraph graph = make_graph();
    size_t count = 99;
    assert_int_equal(weir_guest_cuGraphGetNodes(graph, NULL, &count), CUDA_SUCCESS);
    assert_int_equal(count, 3);
    CUgraphNode nodes[6];
    memset(nodes, 0xff, sizeof(nodes));
    count = 5;
    assert_int_equal(weir_guest_cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
    assert_int_equal(count, 3);
    assert_int_equal((uintptr_t)nodes[0], 0x7000);
    assert_int_equal((uintptr_t)nodes[2], 0x7002);
    assert_null(nodes[3]);
    assert_null(nodes[4]);
    assert_int_equal((uintptr_t)nodes[5], UINTPTR_MAX);
    CUgraphNode two[3] = {NULL, NULL, NODE(9)};
    count = 2;
    assert_int_equal(weir_guest_cuGraphGetNodes(graph, two, &count), CUDA_SUCCESS);
    assert_int_equal(count, 2);
    assert_ptr_equal(two[1], nodes[1]); /* the same name again */
    assert_ptr_equal(two[2], NODE(9));
    assert_int_equal(weir_guest_cuGraphGetNodes(graph, nodes, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void input_arrays_of_handles_are_translated(void **state)
{
    (void)state;
    CUgraph graph = make_graph();
    CUgraphNode nodes[3];
    size_t count = 3;
    assert_int_equal(weir_guest_cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
    CUgraphNode to[2] = {nodes[2], nodes[0]};
    assert_int_equal(weir_guest_cuGraphAddDependencies_v2(graph, nodes, to, NULL, 2), CUDA_SUCCESS);
    assert_int_equal(seen_count, 2);
    assert_ptr_equal(seen_from[1], NODE(1));
    assert_ptr_equal(seen_to[0], NODE(2));
    assert_false(seen_edge_data);
    CUgraphEdgeData edges[2] = {{.to_port = 7}, {.to_port = 0}};
    assert_int_equal(weir_guest_cuGraphAddDependencies_v2(graph, nodes, to, edges, 2),
                     CUDA_SUCCESS);
    assert_true(seen_edge_data);
    driver_calls = 0;
    to[1] = (CUgraphNode)(uintptr_t)0x9999;
    assert_int_equal(weir_guest_cuGraphAddDependencies_v2(graph, nodes, to, NULL, 2),
                     CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(weir_guest_cuGraphAddDependencies_v2(graph, NULL, to, NULL, 2),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_guest_cuGraphAddDependencies_v2(graph, nodes, to, NULL, 70000),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver_calls, 0);
}

static void lying_guest_is_refused_by_the_hosts_half(void **state)
{
    (void)state;
    (void)make_graph();
    driver_calls = 0;
    static const uint64_t handles[3] = {0x7000, 0x7001, 0x7002};
    weir_session_put(NULL, WEIR_KIND_NODE, 0x7000, NODE(0));
    struct weir_op_cuGraphAddDependencies_v2_in in = {
        .hGraph = 0x5000, .from = handles, .n_from = 1, .to = handles, .n_to = 0};
    assert_int_equal(weir_host_cuGraphAddDependencies_v2(NULL, &in), CUDA_ERROR_INVALID_VALUE);
    struct weir_op_cuGraphGetNodes_in get = {.hGraph = 0x5000, .numNodes = UINT64_MAX, .want = 1};
    struct weir_op_cuGraphGetNodes_out got = {0};
    assert_int_equal(weir_host_cuGraphGetNodes(NULL, &get, &got), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver_calls, 0);
    while (n_arena) {
        free(arena[--n_arena]);
    }
}

static void existing_object_that_comes_out_is_named(void **state)
{
    (void)state;
    (void)make_graph();
    weir_session_put(NULL, WEIR_KIND_NODE, 0x6000, NODE(0));
    weir_session_put(NULL, WEIR_KIND_EVENT, 0x6100, EVENT);
    CUevent event = NULL;
    CUgraphNode node = (CUgraphNode)(uintptr_t)0x6000;
    assert_int_equal(weir_guest_cuGraphEventRecordNodeGetEvent(node, &event), CUDA_SUCCESS);
    assert_int_equal((uintptr_t)event, 0x6100);
}

static void scalars_and_devices_travel(void **state)
{
    (void)state;
    size_t width = 0;
    assert_int_equal(
        weir_guest_cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 2, 0),
        CUDA_SUCCESS);
    assert_int_equal(width, 2004);
    assert_int_equal(
        weir_guest_cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 2, 1),
        CUDA_ERROR_INVALID_DEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(new_object_is_known_by_the_guests_name, fresh),
        cmocka_unit_test_setup(new_object_that_fails_frees_its_name, fresh),
        cmocka_unit_test_setup(name_in_use_is_refused_before_the_driver_is_called, fresh),
        cmocka_unit_test_setup(destroyed_object_dies_on_both_sides_only_on_success, fresh),
        cmocka_unit_test_setup(counted_array_answers_every_size_as_cuda_does, fresh),
        cmocka_unit_test_setup(input_arrays_of_handles_are_translated, fresh),
        cmocka_unit_test_setup(lying_guest_is_refused_by_the_hosts_half, fresh),
        cmocka_unit_test_setup(existing_object_that_comes_out_is_named, fresh),
        cmocka_unit_test_setup(scalars_and_devices_travel, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The slice of a node, and what a cluster makes of it. */
#include "kubernetes/plan.h"
#include "tests/lib/tl_cmocka.h"
#include <stdio.h>
#include <string.h>

static struct weir_kube_node node_with(uint32_t gpus)
{
    struct weir_kube_node node = {.name = "n1", .n_gpus = gpus, .host_is_up = true, .taints = true};

    for (uint32_t i = 0; i < gpus; i++) {
        node.gpus[i] = (struct weir_kube_gpu){.ordinal = i + 1, .memory_bytes = UINT64_C(80) << 30};
    }
    return node;
}

static json_t *device(json_t *slice, size_t i)
{
    return json_array_get(json_object_get(json_object_get(slice, "spec"), "devices"), i);
}

static const char *memory_of(const json_t *body)
{
    return json_string_value(
        json_object_get(json_object_get(json_object_get(body, "capacity"), "memory"), "value"));
}

static void slice_has_a_device_for_each_gpu(void **state)
{
    struct weir_kube_node node = node_with(2);
    json_t *slice = weir_kube_slice(&node, "uid-1", 7);

    (void)state;
    assert_string_equal(json_string_value(json_object_get(device(slice, 1), "name")), "gpu2");
    assert_string_equal(memory_of(device(slice, 1)), "80Gi");
    assert_null(json_object_get(device(slice, 0), "taints"));
    assert_null(device(slice, 2));
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(json_object_get(slice, "spec"), "pool"), "generation")),
                     7);
    assert_true(weir_kube_slice_is(slice, slice));
    json_decref(slice);
}

static void contexts_are_taken_off(void **state)
{
    static const struct {
        uint32_t slots, n_shares;
        uint64_t context_mib, left_mib;
    } cases[] = {{0, 0, 0, 81920}, {0, 0, 551, 81369},  {0, 16, 551, 72553},
                 {0, 16, 8192, 0}, {4, 16, 551, 79716}, {10, 0, 8192, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weir_kube_node node = node_with(1);

        node.slots = cases[i].slots;
        node.gpus[0].n_shares = cases[i].n_shares;
        node.gpus[0].context_bytes = cases[i].context_mib << 20;
        assert_int_equal(weir_kube_memory(&node, &node.gpus[0]) >> 20, cases[i].left_mib);
    }
}

static void slice_in_slots_and_v1beta1(void **state)
{
    struct weir_kube_node node = node_with(2);
    json_t *slice;

    (void)state;
    node.slots = 3;
    node.is_v1beta1 = true;
    slice = weir_kube_slice(&node, "", 1);
    assert_string_equal(json_string_value(json_object_get(device(slice, 5), "name")), "gpu2-2");
    assert_string_equal(memory_of(json_object_get(device(slice, 5), "basic")), "27306Mi");
    assert_null(json_object_get(json_object_get(slice, "metadata"), "ownerReferences"));
    json_decref(slice);
}

static void slice_is_the_same_but_for_what_the_server_adds(void **state)
{
    struct weir_kube_node node = node_with(1);
    json_t *wanted = weir_kube_slice(&node, "", 1), *there = json_deep_copy(wanted), *tainted;

    (void)state;
    json_object_set_new(device(there, 0), "addition", json_true());
    assert_true(weir_kube_slice_is(wanted, there));
    node.host_is_up = false;
    tainted = weir_kube_slice(&node, "", 1);
    assert_false(weir_kube_slice_is(tainted, there));
    assert_false(weir_kube_slice_is(wanted, tainted)); /* a taint that is over must go */
    json_array_append(json_object_get(json_object_get(there, "spec"), "devices"), device(there, 0));
    assert_false(weir_kube_slice_is(wanted, there));
    assert_false(weir_kube_slice_is(wanted, NULL));
    json_decref(wanted);
    json_decref(there);
    json_decref(tainted);
}

static void what_a_cluster_leaves_out_is_found(void **state)
{
    struct weir_kube_node node = node_with(1);
    json_t *sent, *back;

    (void)state;
    node.host_is_up = false;
    sent = weir_kube_slice(&node, "", 1);
    back = json_deep_copy(sent);
    assert_int_equal(weir_kube_slice_lost(sent, back), WEIR_KUBE_LOST_NOTHING);
    json_object_del(device(back, 0), "taints");
    assert_int_equal(weir_kube_slice_lost(sent, back), WEIR_KUBE_LOST_TAINTS);
    json_object_del(device(back, 0), "allowMultipleAllocations");
    assert_int_equal(weir_kube_slice_lost(sent, back), WEIR_KUBE_LOST_CAPACITY);
    assert_int_equal(weir_kube_slice_lost(sent, NULL), WEIR_KUBE_LOST_CAPACITY);
    json_decref(sent);
    json_decref(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slice_has_a_device_for_each_gpu),
        cmocka_unit_test(contexts_are_taken_off),
        cmocka_unit_test(slice_in_slots_and_v1beta1),
        cmocka_unit_test(slice_is_the_same_but_for_what_the_server_adds),
        cmocka_unit_test(what_a_cluster_leaves_out_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

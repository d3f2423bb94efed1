/* Claims as strangers write them, and the shares that they are. What is told of wrong ones is in
 * e2e_kubernetes. */
#include "kubernetes/plan.h"
#include "tests/lib/tl_cmocka.h"
#include <stdio.h>
#include <string.h>

#define UID "0f8fad5b-d9cb-469f-a165-70867728950e"

static struct weir_kube_node node_with(uint32_t gpus)
{
    struct weir_kube_node node = {.name = "n1",
                                  .n_gpus = gpus,
                                  .max_weight = 100,
                                  .max_priority = WEIR_PRIORITY_NORMAL,
                                  .host_is_up = true};

    for (uint32_t i = 0; i < gpus; i++) {
        node.gpus[i] = (struct weir_kube_gpu){.ordinal = i, .memory_bytes = UINT64_C(4) << 30};
        snprintf(node.gpus[i].uuid, sizeof node.gpus[i].uuid, "GPU-%u", i);
    }
    return node;
}

/* A claim's record. @param results, config  JSON arrays' contents. */
static json_t *record_of(const struct weir_kube_node *node, const char *results, const char *config,
                         struct weir_diag *diag)
{
    char text[4096];
    json_t *claim, *record;

    snprintf(text, sizeof text,
             "{\"metadata\": {\"uid\": \"" UID "\", \"name\": \"c\", \"namespace\": \"ml\"},"
             "\"status\": {\"reservedFor\": [{\"name\": \"p\"}], \"allocation\": {\"devices\": "
             "{\"results\": [%s], \"config\": [%s]}}}}",
             results, config);
    claim = json_loads(text, 0, NULL);
    assert_non_null(claim);
    *diag = (struct weir_diag){0};
    record = weir_kube_claim_record(node, claim, diag);
    assert_true(record || diag->message[0] != 0);
    json_decref(claim);
    return record;
}

#define RESULT(request, device, memory, compute)                                                   \
    "{\"driver\": \"gpu.weir.dev\", \"pool\": \"n1\", \"request\": \"" request                     \
    "\", \"device\": \"" device "\", \"consumedCapacity\": {\"memory\": \"" memory                 \
    "\", \"compute\": \"" compute "\"}}"
#define PARAMETERS(source, requests, fields)                                                       \
    "{\"source\": \"" source "\", \"requests\": [" requests                                        \
    "], \"opaque\": {\"driver\": \"gpu.weir.dev\", \"parameters\": {\"apiVersion\": "              \
    "\"gpu.weir.dev/v1alpha1\", \"kind\": \"Share\", " fields "}}}"

static void assert_words(json_t *record, const char *wanted)
{
    char text[1024] = "";
    json_t *word;
    size_t i;

    assert_non_null(record);
    json_array_foreach(json_object_get(record, "words"), i, word)
    {
        size_t at = strlen(text);

        snprintf(text + at, sizeof text - at, "%s%s", i == 0 ? "" : " ", json_string_value(word));
    }
    assert_string_equal(text, wanted);
    json_decref(record);
}

static void record_of_one_gpu_names_no_device(void **state)
{
    struct weir_kube_node node = node_with(1);
    struct weir_diag diag;

    (void)state;
    assert_words(record_of(&node, RESULT("gpu", "gpu0", "1536Mi", "0"), "", &diag),
                 "memory=1610612736 labels=namespace=ml,pod=p,claim=c");
    assert_words(record_of(&node, RESULT("gpu", "gpu0", "1Mi", "25"),
                           PARAMETERS("FromClaim", "", "\"weight\": 100, \"sm_limit\": 7"), &diag),
                 "memory=1048576 min_share=25 weight=100 sm_limit=7 "
                 "labels=namespace=ml,pod=p,claim=c");
}

static void record_of_two_gpus_has_a_quota_for_each(void **state)
{
    struct weir_kube_node node = node_with(3);
    struct weir_diag diag;

    (void)state;
    assert_words(record_of(&node,
                           RESULT("b", "gpu2", "1Gi", "10") "," RESULT("a", "gpu0", "2Gi", "10"),
                           "", &diag),
                 "memory=3221225472 device_memory=2048Mi,1024Mi devices=GPU-0,GPU-2 min_share=10 "
                 "labels=namespace=ml,pod=p,claim=c");
    assert_words(record_of(&node,
                           RESULT("b", "gpu2", "1Gi", "10") "," RESULT("a", "gpu2", "2Gi", "5"), "",
                           &diag),
                 "memory=3221225472 devices=GPU-2 min_share=15 labels=namespace=ml,pod=p,claim=c");
    /* One after the other would fit. */
    assert_null(record_of(
        &node, RESULT("b", "gpu2", "3Gi", "0") "," RESULT("a", "gpu2", "3Gi", "0"), "", &diag));
    assert_null(record_of(
        &node, RESULT("b", "gpu2", "1Gi", "60") "," RESULT("a", "gpu2", "1Gi", "60"), "", &diag));
}

static void parameters_of_a_claim_come_last_and_stay_under_bounds(void **state)
{
    struct weir_kube_node node = node_with(1);
    struct weir_diag diag;

    (void)state;
    assert_words(record_of(&node, RESULT("gpu", "gpu0", "1Gi", "0"),
                           PARAMETERS("FromClaim", "", "\"weight\": 50") "," PARAMETERS(
                               "FromClass", "", "\"weight\": 900, \"priority\": \"high\""),
                           &diag),
                 "memory=1073741824 weight=50 priority=high labels=namespace=ml,pod=p,claim=c");
    assert_null(record_of(&node, RESULT("gpu", "gpu0", "1Gi", "0"),
                          PARAMETERS("FromClaim", "", "\"weight\": 101"), &diag));
    /* Whatever is no class's is a claim's. */
    assert_null(record_of(&node, RESULT("gpu", "gpu0", "1Gi", "0"),
                          PARAMETERS("FromNowhere", "", "\"priority\": \"high\""), &diag));
    assert_null(record_of(&node, RESULT("gpu", "gpu0", "1Gi", "0"),
                          PARAMETERS("FromClass", "", "\"colour\": 1"), &diag));
}

static void parameters_of_other_requests_do_not_count(void **state)
{
    struct weir_kube_node node = node_with(1);
    struct weir_diag diag;

    (void)state;
    assert_words(record_of(&node, RESULT("gpu/small", "gpu0", "1Gi", "0"),
                           PARAMETERS("FromClaim", "\"other\"", "\"weight\": 50") "," PARAMETERS(
                               "FromClaim", "\"gpu\"", "\"weight\": 60"),
                           &diag),
                 "memory=1073741824 weight=60 labels=namespace=ml,pod=p,claim=c");
}

static void slots_have_their_part(void **state)
{
    static const char slot[] = "{\"driver\": \"gpu.weir.dev\", \"pool\": \"n1\", \"request\": "
                               "\"gpu\", \"device\": \"gpu0-3\"}";
    struct weir_kube_node node = node_with(1);
    struct weir_diag diag;

    (void)state;
    node.slots = 4;
    assert_words(record_of(&node, slot, "", &diag),
                 "memory=1073741824 labels=namespace=ml,pod=p,claim=c");
    node.slots = 3;
    assert_null(record_of(&node, slot, "", &diag));
    node.slots = 0;
    assert_null(record_of(&node, slot, "", &diag));
}

static void slots_of_a_device_plugin_are_records(void **state)
{
    struct weir_kube_node node = node_with(2);
    json_t *record;

    (void)state;
    node.slots = 4;
    record = weir_kube_slot_record(&node, 6);
    assert_string_equal(json_string_value(json_object_get(record, "uid")), "gpu1-2");
    assert_words(record, "memory=1073741824 devices=GPU-1");
    assert_null(weir_kube_slot_record(&node, 8));
}

static void whatever_is_no_claim_is_refused(void **state)
{
#define BAD_UID                                                                                    \
    "{\"metadata\": {\"uid\": \"../x\"}, \"status\": {\"allocation\": {\"devices\": "              \
    "{\"results\": []}}}}"
    static const char *const texts[] = {
        "[]",
        "{}",
        "{\"metadata\": 3}",
        "{\"metadata\": {\"uid\": \"" UID "\"}}",
        "{\"metadata\": {\"uid\": \"" UID "\"}, \"status\": {\"allocation\": {\"devices\": 7}}}",
        "{\"metadata\": {\"uid\": \"" UID
        "\"}, \"status\": {\"allocation\": {\"devices\": {\"results\": [1, null, []]}}}}",
        BAD_UID};
    struct weir_kube_node node = node_with(1);

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *claim = json_loads(texts[i], 0, NULL);
        struct weir_diag diag = {0};

        assert_non_null(claim);
        assert_null(weir_kube_claim_record(&node, claim, &diag));
        assert_true(diag.message[0] != 0);
        json_decref(claim);
    }
}

static void labels_are_such_that_the_host_takes_them(void **state)
{
    struct weir_kube_node node = node_with(1);
    struct weir_diag diag = {0};
    char name[300], text[700];
    json_t *claim, *record;

    (void)state;
    memset(name, 'x', 250);
    name[250] = 0;
    snprintf(text, sizeof text,
             "{\"metadata\": {\"uid\": \"" UID "\", \"name\": \"%s\", \"namespace\": \"a b,c\"},"
             "\"status\": {\"allocation\": {\"devices\": {\"results\": [" RESULT(
                 "gpu", "gpu0", "1Gi", "0") "]}}}}",
             name);
    claim = json_loads(text, 0, NULL);
    record = weir_kube_claim_record(&node, claim, &diag);
    assert_non_null(record);
    snprintf(text, sizeof text, "%s",
             json_string_value(json_array_get(json_object_get(record, "words"), 1)));
    assert_int_equal(strlen(text), strlen("labels=") + 191);
    assert_memory_equal(text, "labels=namespace=a_b_c,claim=xxx", 32);
    json_decref(record);
    json_decref(claim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_of_one_gpu_names_no_device),
        cmocka_unit_test(record_of_two_gpus_has_a_quota_for_each),
        cmocka_unit_test(parameters_of_a_claim_come_last_and_stay_under_bounds),
        cmocka_unit_test(parameters_of_other_requests_do_not_count),
        cmocka_unit_test(slots_have_their_part),
        cmocka_unit_test(slots_of_a_device_plugin_are_records),
        cmocka_unit_test(whatever_is_no_claim_is_refused),
        cmocka_unit_test(labels_are_such_that_the_host_takes_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

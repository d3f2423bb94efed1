/*
 * From an allocated claim to the settings of a tenant.
 *
 * Amounts that must add up are capacity, which Kubernetes' scheduler has counted: `memory` becomes
 * a quota for each GPU, `compute` the tenant's min_share. Weight, priority and sm_limit are
 * parameters. An administrator sets those of a class. Anybody who may create claims sets those of a
 * claim, so they come later and stay under the node's bounds. If several requests were given the
 * same GPU, the tenant's quota there is their sum.
 */
#include "kubernetes/plan.h"

#include "base/guess.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABELS_BYTES 192 /* as of a tenant's labels */
#define WEIGHT_MAX   10000

/* A claim's share while it is read. */
struct share {
    const struct weir_kube_node *node;
    uint64_t bytes[WEIR_KUBE_GPUS_MAX]; /* quota of each GPU of the node; 0: the GPU is not in the
                                           claim */
    uint64_t compute_pct[WEIR_KUBE_GPUS_MAX];
    uint32_t weight, sm_limit_pct; /* 0: not said */
    enum weir_priority priority;
    bool has_priority;
};

/* Say why; false. */
#define REFUSE(diag, ...) (weir_diag_set((diag), 0, 0, __VA_ARGS__), false)

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

bool weir_kube_uid_ok(const char *uid)
{
    size_t n = strlen(uid);

    return n > 0 && n < WEIR_KUBE_UID_BYTES && uid[0] != '-' && uid[n - 1] != '-' &&
           strspn(uid, "0123456789abcdefghijklmnopqrstuvwxyzABCDEF-") == n;
}

/* ---------------------------------------------------------------- devices */

/* Find the GPU of a published device; -1: none. */
static int gpu_of(const struct weir_kube_node *node, const char *device)
{
    char name[WEIR_KUBE_DEVICE_BYTES];

    for (uint32_t i = 0; weir_kube_device_name(node, i, name); i++) {
        if (strcmp(name, device) == 0) {
            return (int)(i / (node->slots != 0 ? node->slots : 1));
        }
    }
    return -1;
}

/* Read an amount that Kubernetes' scheduler counted; `usual` if it counted none. */
static bool counted(const json_t *result, const char *what, uint64_t usual, uint64_t *ret_value,
                    struct weir_diag *diag)
{
    const json_t *amount = json_object_get(json_object_get(result, "consumedCapacity"), what);

    *ret_value = usual;
    return !amount ||
           (json_is_string(amount) &&
            weir_quantity_parse(json_string_value(amount), ret_value) == WEIR_OK) ||
           REFUSE(diag, "the allocation's %s is no quantity", what);
}

/* Add one allocated device to the share. */
static bool add_result(struct share *share, const json_t *result, struct weir_diag *diag)
{
    const struct weir_kube_node *node = share->node;
    const char *name = text_of(result, "device");
    uint64_t bytes, compute_pct, whole;

    WEIR_FAIL_IF(strcmp(text_of(result, "pool"), node->name) != 0,
                 REFUSE(diag, "device '%.60s' is of pool '%.60s', not of this node", name,
                        text_of(result, "pool")));
    int gpu = gpu_of(node, name);
    WEIR_FAIL_IF(gpu < 0, REFUSE(diag, "this node has no device '%.60s'", name));
    whole = weir_kube_memory(node, &node->gpus[gpu]) / (node->slots != 0 ? node->slots : 1);
    if (!counted(result, "memory", whole, &bytes, diag) ||
        !counted(result, "compute", 0, &compute_pct, diag)) {
        return false;
    }
    share->bytes[gpu] += bytes;
    share->compute_pct[gpu] += compute_pct;
    if (bytes == 0 || share->bytes[gpu] > node->gpus[gpu].memory_bytes ||
        share->compute_pct[gpu] > 100) {
        return REFUSE(
            diag, "device '%.60s': the claim has %llu MiB and %llu %% of it, and it has %llu MiB",
            name, (unsigned long long)(share->bytes[gpu] >> 20),
            (unsigned long long)share->compute_pct[gpu],
            (unsigned long long)(node->gpus[gpu].memory_bytes >> 20));
    }
    return true;
}

/* ---------------------------------------------------------------- parameters */

static bool is_ours(const json_t *request_names, const json_t *results)
{
    size_t i, k;
    json_t *name, *result;

    if (json_array_size(request_names) == 0) {
        return true;
    }
    json_array_foreach((json_t *)(uintptr_t)request_names, i, name)
    {
        const char *wanted = json_string_value(name);

        json_array_foreach((json_t *)(uintptr_t)results, k, result)
        {
            const char *request = text_of(result, "request");
            size_t main_name = strcspn(request, "/"); /* "gpu/small" is a choice of "gpu" */

            if (wanted && strcmp(text_of(result, "driver"), WEIR_KUBE_DRIVER) == 0 &&
                (strcmp(wanted, request) == 0 ||
                 (strlen(wanted) == main_name && strncmp(wanted, request, main_name) == 0))) {
                return true;
            }
        }
    }
    return false;
}

static bool whole_number(const char *key, const json_t *value, json_int_t most, uint32_t *ret,
                         struct weir_diag *diag)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > most) {
        return REFUSE(diag, "parameters: '%s' must be a number from 1 to %lld", key,
                      (long long)most);
    }
    *ret = (uint32_t)json_integer_value(value);
    return true;
}

/* Take one field of the parameters. */
static bool take_field(struct share *share, const char *key, const json_t *value,
                       struct weir_diag *diag)
{
    struct weir_guess guess = weir_guess_begin(key);
    char meant[64];

    if (strcmp(key, "apiVersion") == 0 || strcmp(key, "kind") == 0) {
        return true; /* looked at before */
    }
    if (strcmp(key, "weight") == 0) {
        return whole_number(key, value, WEIGHT_MAX, &share->weight, diag);
    }
    if (strcmp(key, "sm_limit") == 0) {
        return whole_number(key, value, 100, &share->sm_limit_pct, diag);
    }
    if (strcmp(key, "priority") == 0) {
        share->has_priority = true;
        return (json_is_string(value) &&
                weir_priority_find(json_string_value(value), &share->priority)) ||
               REFUSE(diag, "parameters: 'priority' must be one of: low, normal, high");
    }
    weir_guess_offer(&guess, "weight");
    weir_guess_offer(&guess, "priority");
    weir_guess_offer(&guess, "sm_limit");
    return REFUSE(diag, "parameters: unknown field '%.40s'%s", key, weir_guess_text(&guess, meant));
}

static bool take_parameters(struct share *share, const json_t *parameters, bool of_claim,
                            struct weir_diag *diag)
{
    const struct weir_kube_node *node = share->node;
    const char *key;
    json_t *value;

    if (strcmp(text_of(parameters, "apiVersion"), WEIR_KUBE_PARAMETERS) != 0 ||
        strcmp(text_of(parameters, "kind"), "Share") != 0) {
        return REFUSE(diag,
                      "parameters: this driver knows apiVersion " WEIR_KUBE_PARAMETERS
                      ", kind Share, not '%.40s', '%.20s'",
                      text_of(parameters, "apiVersion"), text_of(parameters, "kind"));
    }
    json_object_foreach((json_t *)(uintptr_t)parameters, key, value)
    {
        WEIR_FAIL_IF(!take_field(share, key, value, diag), false);
    }
    if (of_claim && json_object_get(parameters, "weight") && share->weight > node->max_weight) {
        return REFUSE(diag,
                      "weight=%u is over the limit of %u for claims on this node; a device "
                      "class may have more",
                      share->weight, node->max_weight);
    }
    if (of_claim && json_object_get(parameters, "priority") &&
        share->priority > node->max_priority) {
        return REFUSE(diag,
                      "priority=%s is over the limit of %s for claims on this node; a device "
                      "class may have more",
                      weir_priority_names[share->priority],
                      weir_priority_names[node->max_priority]);
    }
    return true;
}

/* Take the classes' parameters first, so that the claim's override them. */
static bool take_config(struct share *share, const json_t *devices, struct weir_diag *diag)
{
    const json_t *config = json_object_get(devices, "config");
    json_t *one;
    size_t i;

    for (int of_claim = 0; of_claim <= 1; of_claim++) {
        json_array_foreach((json_t *)(uintptr_t)config, i, one)
        {
            const json_t *opaque = json_object_get(one, "opaque");

            if (strcmp(text_of(opaque, "driver"), WEIR_KUBE_DRIVER) != 0 ||
                (strcmp(text_of(one, "source"), "FromClass") == 0) == of_claim ||
                !is_ours(json_object_get(one, "requests"), json_object_get(devices, "results"))) {
                continue;
            }
            if (!take_parameters(share, json_object_get(opaque, "parameters"), of_claim, diag)) {
                return false;
            }
        }
    }
    return true;
}

/* ---------------------------------------------------------------- the record */

/* Append NAME=VALUE to the labels, with '_' for invalid characters, as far as there is room. */
static void label(char labels[LABELS_BYTES], const char *name, const char *value)
{
    size_t at = strlen(labels);
    int head = snprintf(labels + at, LABELS_BYTES - at, "%s%s=%s", at == 0 ? "" : ",", name, value);

    if (*value == 0 || head < 0 || at + (size_t)head - strlen(value) + 1 >= LABELS_BYTES) {
        labels[at] = 0;
        return;
    }
    for (char *c = labels + at + (size_t)head - strlen(value); c < labels + LABELS_BYTES && *c != 0;
         c++) {
        *c = *c > ' ' && *c <= '~' && !strchr(",\"\\", *c) ? *c : '_';
    }
}

/* Add the quotas and, if the host has several GPUs, the list of the claim's. */
static bool say_devices(const struct share *share, json_t *words, struct weir_diag *diag)
{
    char list[WEIR_KUBE_GPUS_MAX * 48] = "", quotas[192] = "";
    uint64_t sum = 0, compute_pct = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < share->node->n_gpus; i++) {
        size_t at = strlen(list), quota = strlen(quotas);

        if (share->bytes[i] == 0) {
            continue;
        }
        WEIR_FAIL_IF(n != 0 && share->compute_pct[i] != compute_pct,
                     REFUSE(diag,
                            "the claim's GPUs have different amounts of compute: a share has one "
                            "for all of its GPUs"));
        compute_pct = share->compute_pct[i];
        sum += share->bytes[i];
        snprintf(list + at, sizeof list - at, "%s%s", n == 0 ? "" : ",", share->node->gpus[i].uuid);
        snprintf(quotas + quota, sizeof quotas - quota, "%s%lluMi", n == 0 ? "" : ",",
                 (unsigned long long)((share->bytes[i] + (1 << 20) - 1) >> 20));
        n++;
    }
    WEIR_FAIL_IF(n == 0, REFUSE(diag, "the claim has no device of " WEIR_KUBE_DRIVER));
    json_array_append_new(words, json_sprintf("memory=%llu", (unsigned long long)sum));
    if (n > 1) {
        json_array_append_new(words, json_sprintf("device_memory=%s", quotas));
    }
    if (share->node->n_gpus > 1) {
        json_array_append_new(words, json_sprintf("devices=%s", list));
    }
    if (compute_pct != 0) {
        json_array_append_new(words,
                              json_sprintf("min_share=%llu", (unsigned long long)compute_pct));
    }
    return true;
}

static void say_rest(const struct share *share, const json_t *claim, json_t *words)
{
    const json_t *metadata = json_object_get(claim, "metadata");
    const json_t *pods = json_object_get(json_object_get(claim, "status"), "reservedFor");
    char labels[LABELS_BYTES] = "";

    if (share->weight != 0) {
        json_array_append_new(words, json_sprintf("weight=%u", share->weight));
    }
    if (share->has_priority) {
        json_array_append_new(words,
                              json_sprintf("priority=%s", weir_priority_names[share->priority]));
    }
    if (share->sm_limit_pct != 0) {
        json_array_append_new(words, json_sprintf("sm_limit=%u", share->sm_limit_pct));
    }
    label(labels, "namespace", text_of(metadata, "namespace"));
    label(labels, "pod", text_of(json_array_get(pods, 0), "name"));
    label(labels, "claim", text_of(metadata, "name"));
    json_array_append_new(words, json_sprintf("labels=%s", labels));
}

json_t *weir_kube_claim_record(const struct weir_kube_node *node, const json_t *claim,
                               struct weir_diag *ret_diag)
{
    const json_t *devices =
        json_object_get(json_object_get(json_object_get(claim, "status"), "allocation"), "devices");
    const char *uid = text_of(json_object_get(claim, "metadata"), "uid");
    json_t *words = json_array(), *told = json_array(), *result, *record = NULL;
    struct share share = {.node = node};
    bool good = true;
    size_t i;

    if (!weir_kube_uid_ok(uid)) {
        good = REFUSE(ret_diag, "the claim's uid is none");
    } else if (!json_is_array(json_object_get(devices, "results"))) {
        good = REFUSE(ret_diag, "the claim is not allocated");
    }
    json_array_foreach(json_object_get(devices, "results"), i, result)
    {
        if (good && strcmp(text_of(result, "driver"), WEIR_KUBE_DRIVER) == 0) {
            good = add_result(&share, result, ret_diag);
            json_array_append_new(/* kubelet is answered from this */
                                  told, json_pack("{s:s, s:s, s:s, s:s}", "request",
                                                  text_of(result, "request"), "pool",
                                                  text_of(result, "pool"), "device",
                                                  text_of(result, "device"), "share",
                                                  text_of(result, "shareID")));
        }
    }
    good = good && take_config(&share, devices, ret_diag) && say_devices(&share, words, ret_diag);
    if (good) {
        say_rest(&share, claim, words);
        record = json_pack("{s:s, s:O, s:O}", "uid", uid, "words", words, "devices", told);
    }
    json_decref(words);
    json_decref(told);
    return record;
}

json_t *weir_kube_slot_record(const struct weir_kube_node *node, uint32_t index)
{
    struct share share = {.node = node};
    struct weir_diag diag;
    char name[WEIR_KUBE_DEVICE_BYTES];

    WEIR_FAIL_IF(!weir_kube_device_name(node, index, name), NULL);
    json_t *words = json_array();
    share.bytes[index / node->slots] =
        weir_kube_memory(node, &node->gpus[index / node->slots]) / node->slots;
    (void)say_devices(&share, words, &diag);
    return json_pack("{s:s, s:o, s:[{s:s, s:s}]}", "uid", name, "words", words, "devices", "pool",
                     node->name, "device", name);
}

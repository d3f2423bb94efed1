/*
 * Claims are strangers' input: any JSON is refused with a reason, or is a share within the node's
 * GPUs and bounds, with settings that the host takes.
 *
 * The first byte says what the node is like; the rest is the claim.
 */
#include "host_backend/config/config.h"
#include "kubernetes/plan.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_at(bool condition, int line)
{
    if (!condition) {
        (void)fprintf(stderr, "fuzz_kube_claim.c:%d: does not hold\n", line);
        abort();
    }
}
#define require(condition) require_at((condition), __LINE__)

static struct weir_kube_node node_of(uint8_t kind)
{
    struct weir_kube_node node = {.name = "n1",
                                  .n_gpus = 1 + (kind & 3),
                                  .slots = kind & 4 ? 3 : 0,
                                  .max_weight = 100,
                                  .max_priority = WEIR_PRIORITY_NORMAL};

    for (uint32_t i = 0; i < node.n_gpus; i++) {
        node.gpus[i] = (struct weir_kube_gpu){.ordinal = i, .memory_bytes = UINT64_C(4) << 30};
        (void)snprintf(node.gpus[i].uuid, sizeof node.gpus[i].uuid, "GPU-%u", i);
    }
    return node;
}

/* Each word is a setting that the host takes, and no quota is over what the node has. */
static void check_words(const struct weir_kube_node *node, const json_t *words)
{
    struct weir_tenant_config config;
    json_t *word;
    size_t i;

    weir_tenant_config_default(&config, "k8s-0");
    json_array_foreach((json_t *)(uintptr_t)words, i, word)
    {
        char text[1024];
        struct weir_diag diag = {0};
        char *equals;
        int setting;

        (void)snprintf(text, sizeof text, "%s", json_string_value(word));
        equals = strchr(text, '=');
        require(equals != NULL);
        *equals = 0;
        setting = weir_setting_find(text);
        require(setting >= 0);
        require(weir_setting_store((size_t)setting, equals + 1, &config, &diag) == WEIR_OK ||
                config.memory.bytes < (1u << 20)); /* the host wants a MiB, which the policy says */
    }
    require(config.memory.bytes != 0 || json_array_size(words) == 0);
    require(config.memory.bytes <= node->n_gpus * (UINT64_C(4) << 30));
    require(config.min_share_pct <= 100);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_kube_node node = node_of(size != 0 ? data[0] : 0);
    struct weir_diag diag = {0};
    json_t *claim = size != 0 ? json_loadb((const char *)data + 1, size - 1, 0, NULL) : NULL;
    json_t *record = claim ? weir_kube_claim_record(&node, claim, &diag) : NULL;
    char text[64];
    uint64_t value;

    if (record) {
        check_words(&node, json_object_get(record, "words"));
    } else {
        require(!claim || diag.message[0] != 0);
    }
    json_decref(record);
    json_decref(claim);
    (void)snprintf(text, sizeof text, "%.*s", (int)(size < 63 ? size : 63), (const char *)data);
    if (weir_quantity_parse(text, &value) == WEIR_OK) {
        uint64_t again = 0;

        weir_quantity_text(value, text);
        require(weir_quantity_parse(text, &again) == WEIR_OK && again == value);
    }
    return 0;
}

/* The slice that a node publishes: see plan.h. */
#include "kubernetes/plan.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
/* The memory that a claim gets if it names no amount. */
#define USUAL_BYTES (UINT64_C(1) << 30)

static json_t *attributes(const struct weir_kube_gpu *gpu)
{
    return json_pack("{s:{s:I}, s:{s:s}, s:{s:s}}", "index", "int", (json_int_t)gpu->ordinal,
                     "uuid", "string", gpu->uuid, "productName", "string", gpu->product);
}

uint64_t weir_kube_memory(const struct weir_kube_node *node, const struct weir_kube_gpu *gpu)
{
    uint64_t programs = node->slots != 0 ? node->slots : gpu->n_shares + 1;
    uint64_t taken = programs * gpu->context_bytes;

    return taken < gpu->memory_bytes ? gpu->memory_bytes - taken : 0;
}

/* Memory and compute as Kubernetes counts them. A claim's amount is rounded up to a MiB. */
static json_t *counted(const struct weir_kube_node *node, const struct weir_kube_gpu *gpu)
{
    uint64_t whole = weir_kube_memory(node, gpu) / MIB * MIB;
    char all[32], usual[32];

    weir_quantity_text(whole, all);
    weir_quantity_text(WEIR_MIN(whole, USUAL_BYTES), usual);
    return json_pack("{s:{s:s, s:{s:s, s:{s:s, s:s, s:s}}}, s:{s:s, s:{s:s, s:{s:s, s:s, s:s}}}}",
                     "memory", "value", all, "requestPolicy", "default", usual, "validRange", "min",
                     "1Mi", "max", all, "step", "1Mi", "compute", "value", "100", "requestPolicy",
                     "default", "0", "validRange", "min", "0", "max", "100", "step", "1");
}

/* The number of devices that stand for one GPU in the slice. */
static uint32_t parts_of(const struct weir_kube_node *node)
{
    return node->slots != 0 ? node->slots : 1;
}

bool weir_kube_device_name(const struct weir_kube_node *node, uint32_t index,
                           char name[WEIR_KUBE_DEVICE_BYTES])
{
    uint32_t gpu = index / parts_of(node);

    if (gpu < node->n_gpus) {
        snprintf(name, WEIR_KUBE_DEVICE_BYTES, node->slots != 0 ? "gpu%u-%u" : "gpu%u",
                 node->gpus[gpu].ordinal, index % parts_of(node));
    }
    return gpu < node->n_gpus;
}

/* Make a device of the slice: a slot of a GPU, or a whole GPU, which many claims may share. */
static json_t *device(const struct weir_kube_node *node, const struct weir_kube_gpu *gpu,
                      const char *name)
{
    json_t *body = json_object(), *made;
    char part[32];

    json_object_set_new(body, "attributes", attributes(gpu));
    if (node->slots == 0) {
        json_object_set_new(body, "allowMultipleAllocations", json_true());
        json_object_set_new(body, "capacity", counted(node, gpu));
    } else {
        weir_quantity_text(weir_kube_memory(node, gpu) / node->slots / MIB * MIB, part);
        json_object_set_new(body, "capacity", json_pack("{s:{s:s}}", "memory", "value", part));
    }
    if (!node->host_is_up && node->taints) {
        json_object_set_new(body, "taints",
                            json_pack("[{s:s, s:s, s:s}]", "key", WEIR_KUBE_DRIVER "/host", "value",
                                      "down", "effect", "NoSchedule"));
    }
    made = node->is_v1beta1 ? json_pack("{s:o}", "basic", body) : body;
    json_object_set_new(made, "name", json_string(name));
    return made;
}

json_t *weir_kube_slice(const struct weir_kube_node *node, const char *owner, int64_t generation)
{
    json_t *devices = json_array(), *slice;
    char name[300];

    for (uint32_t i = 0; weir_kube_device_name(node, i, name); i++) {
        json_array_append_new(devices, device(node, &node->gpus[i / parts_of(node)], name));
    }
    snprintf(name, sizeof name, "%s-" WEIR_KUBE_DRIVER, node->name);
    slice = json_pack("{s:s, s:s, s:{s:s}, s:{s:s, s:s, s:{s:s, s:I, s:i}, s:o}}", "apiVersion",
                      node->is_v1beta1 ? "resource.k8s.io/v1beta1" : "resource.k8s.io/v1", "kind",
                      "ResourceSlice", "metadata", "name", name, "spec", "driver", WEIR_KUBE_DRIVER,
                      "nodeName", node->name, "pool", "name", node->name, "generation",
                      (json_int_t)generation, "resourceSliceCount", 1, "devices", devices);
    if (slice && *owner != 0) {
        json_object_set_new(json_object_get(slice, "metadata"), "ownerReferences",
                            json_pack("[{s:s, s:s, s:s, s:s, s:b}]", "apiVersion", "v1", "kind",
                                      "Node", "name", node->name, "uid", owner, "controller", 1));
    }
    return slice;
}

/* Does `there` have everything in `wanted`, with the same values? It may have more. */
static bool is_within(const json_t *wanted, const json_t *there)
{
    const char *key;
    json_t *value;

    if (json_is_object(wanted)) {
        json_object_foreach((json_t *)(uintptr_t)wanted, key, value)
        {
            if (!is_within(value, json_object_get(there, key))) {
                return false;
            }
        }
        return json_is_object(there);
    }
    if (json_is_array(wanted)) {
        size_t n = json_array_size(wanted), i = 0;

        while (i < n && is_within(json_array_get(wanted, i), json_array_get(there, i))) {
            i++;
        }
        return i == n && json_array_size(there) == n;
    }
    return there && json_equal(wanted, there);
}

static json_t *devices_of(const json_t *slice)
{
    return json_object_get(json_object_get(slice, "spec"), "devices");
}

/* Get the object with a device's members, in either version of the API. */
static json_t *body_of(json_t *device_of_slice)
{
    json_t *basic = json_object_get(device_of_slice, "basic");

    return basic ? basic : device_of_slice;
}

bool weir_kube_slice_is(const json_t *wanted, const json_t *there)
{
    json_t *devices = devices_of(there), *ours = devices_of(wanted);

    for (size_t i = 0; i < json_array_size(devices); i++) { /* look for unwanted taints */
        if (json_object_get(body_of(json_array_get(devices, i)), "taints") &&
            !json_object_get(body_of(json_array_get(ours, i)), "taints")) {
            return false;
        }
    }
    return ours && is_within(ours, devices);
}

enum weir_kube_lost weir_kube_slice_lost(const json_t *sent, const json_t *back)
{
    json_t *ours = body_of(json_array_get(devices_of(sent), 0));
    json_t *theirs = body_of(json_array_get(devices_of(back), 0));

    if (json_object_get(ours, "allowMultipleAllocations") &&
        !json_is_true(json_object_get(theirs, "allowMultipleAllocations"))) {
        return WEIR_KUBE_LOST_CAPACITY;
    }
    return json_object_get(ours, "taints") && !json_object_get(theirs, "taints")
               ? WEIR_KUBE_LOST_TAINTS
               : WEIR_KUBE_LOST_NOTHING;
}

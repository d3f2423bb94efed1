/*
 * What weir-dra decides, without sockets: which devices a node publishes, and what share a claim
 * is. Everything here is Kubernetes' JSON in and JSON out, or a text for the pod's events.
 */
#ifndef WEIR_KUBERNETES_PLAN_H
#define WEIR_KUBERNETES_PLAN_H

#include "base/priority.h"
#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR_KUBE_DRIVER "gpu.weir.dev"
/* The version of a claim's parameters. Stored claims outlive the driver, so each has one. */
#define WEIR_KUBE_PARAMETERS "gpu.weir.dev/v1alpha1"
#define WEIR_KUBE_GPUS_MAX   16
#define WEIR_KUBE_UID_BYTES  48
/* What the tenants of claims are called: this and the claim's uid. */
#define WEIR_KUBE_TENANT "k8s-"

/* A GPU of the host. */
struct weir_kube_gpu {
    char uuid[48];
    char product[128];
    uint32_t ordinal;      /* the driver's; names the device: "gpu0" */
    uint64_t memory_bytes; /* that quotas may promise */
};

/* What the node has and what claims may ask for. */
struct weir_kube_node {
    char name[254];
    struct weir_kube_gpu gpus[WEIR_KUBE_GPUS_MAX];
    uint32_t n_gpus;
    uint32_t slots;      /* of a GPU, where the cluster does not count capacity; 0: it does */
    uint32_t max_weight; /* of a claim's own parameters; a class may say anything */
    enum weir_priority max_priority;
    bool host_is_up;
    bool taints;     /* the cluster has taints of devices */
    bool is_v1beta1; /* the API's version of slices */
};

/* quantity.c: Kubernetes' quantities, "8Gi", "1500m", "2e9" */

/**
 * Read a quantity, as the API server writes it, as a whole number, rounded up as Kubernetes rounds.
 * @param ret_value  up to 2^60.
 * @return WEIR_OK, WEIR_ERR_INVALID (no quantity, negative, or larger)
 * @thread any
 */
enum weir_status weir_quantity_parse(const char *text, uint64_t *ret_value) WEIR_MUST_CHECK;

/** Write a number in the largest binary unit that divides it, "512Mi". @thread any */
void weir_quantity_text(uint64_t value, char text[32]);

/* slice.c */

#define WEIR_KUBE_DEVICE_BYTES 32

/**
 * The name of a published device: "gpu0", or "gpu0-3" where there are slots.
 * @param index  from 0. A GPU's slots are next to each other.
 * @return false: there are not so many
 * @thread any
 */
bool weir_kube_device_name(const struct weir_kube_node *node, uint32_t index,
                           char name[WEIR_KUBE_DEVICE_BYTES]);

/**
 * The slice that the node publishes: one device for each GPU, or `slots` for each.
 * @param owner       the node's uid; "": not known.
 * @param generation  of the pool.
 * @return owned by the caller; NULL: out of memory
 * @thread any
 */
json_t *weir_kube_slice(const struct weir_kube_node *node, const char *owner, int64_t generation);

/** Does a slice that the API server has say what this one says? Its own additions do not count.
 * @thread any */
bool weir_kube_slice_is(const json_t *wanted, const json_t *there);

/* What the API server has left out of a slice that it was sent. */
enum weir_kube_lost { WEIR_KUBE_LOST_NOTHING, WEIR_KUBE_LOST_TAINTS, WEIR_KUBE_LOST_CAPACITY };

/** What a cluster does not know it leaves out without a word: find out. @thread any */
enum weir_kube_lost weir_kube_slice_lost(const json_t *sent, const json_t *back);

/* claim.c */

/** May this be a claim's uid or a slot's name, and a part of a file's and a tenant's name? @thread
 * any */
bool weir_kube_uid_ok(const char *uid);

/**
 * The share that an allocated claim is on this node, as a record:
 *
 *     {"uid", "words": [KEY=VALUE for weir tenant add],
 *      "devices": [{"request", "pool", "device", "share"}]}
 *
 * @param claim     a ResourceClaim, by strangers; checked here.
 * @param ret_diag  says what is wrong, for the pod's events.
 * @return owned by the caller; NULL: the claim is refused
 * @thread any
 */
json_t *weir_kube_claim_record(const struct weir_kube_node *node, const json_t *claim,
                               struct weir_diag *ret_diag);

/** The record of a slot, of a node that has slots; the slot's name is in the uid's place.
 * @param index  as of weir_kube_device_name().
 * @return owned by the caller; NULL: there are not so many @thread any */
json_t *weir_kube_slot_record(const struct weir_kube_node *node, uint32_t index);

#endif

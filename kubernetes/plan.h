/*
 * The decisions of weir-dra, without sockets: which devices a node publishes, which share a claim
 * stands for. The functions take and return Kubernetes' JSON, or a text for the pod's events.
 */
#pragma once

#include "base/priority.h"
#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR_KUBE_DRIVER "gpu.weir.dev"
/* The version of a claim's parameters, in each claim: claims may outlive this driver. */
#define WEIR_KUBE_PARAMETERS "gpu.weir.dev/v1alpha1"
#define WEIR_KUBE_GPUS_MAX   16
#define WEIR_KUBE_UID_BYTES  48
/* The name of a claim's tenant is this and the claim's uid. */
#define WEIR_KUBE_TENANT "k8s-"

/* A GPU of the host. */
struct weir_kube_gpu {
    char uuid[48];
    char product[128];
    uint32_t ordinal;       /* the GPU driver's number; names the device: "gpu0" */
    uint64_t memory_bytes;  /* that quotas may promise */
    uint64_t context_bytes; /* what a claim's program takes beyond its quota */
    uint32_t n_shares;      /* number of tenants on it whose programs take that */
};

/* The node's GPUs, and the bounds on what claims may ask for. */
struct weir_kube_node {
    char name[254];
    struct weir_kube_gpu gpus[WEIR_KUBE_GPUS_MAX];
    uint32_t n_gpus;
    uint32_t slots;      /* slots of each GPU, if the cluster does not count capacity; 0: it does */
    uint32_t max_weight; /* bound on a claim's own parameters; a class has no bound */
    enum weir_priority max_priority;
    bool host_is_up;
    bool taints;     /* the cluster supports taints of devices */
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
 * The memory of a GPU that all claims together may have: what programs' contexts leave, one in each
 * slot, or in each claim that there is and in one more. @thread any
 */
uint64_t weir_kube_memory(const struct weir_kube_node *node, const struct weir_kube_gpu *gpu);

/**
 * The name of a published device: "gpu0", or "gpu0-3" where there are slots.
 * @param index  from 0. A GPU's slots are next to each other.
 * @return false: there are not so many
 * @thread any
 */
bool weir_kube_device_name(const struct weir_kube_node *node, uint32_t index,
                           char name[WEIR_KUBE_DEVICE_BYTES]);

/**
 * Make the slice that the node publishes: one device for each GPU, or `slots` devices for each.
 * @param owner       the node's uid; "": not known.
 * @param generation  of the pool.
 * @return owned by the caller; NULL: out of memory
 * @thread any
 */
json_t *weir_kube_slice(const struct weir_kube_node *node, const char *owner, int64_t generation);

/** Is the API server's slice the same as the wanted one, apart from what the server adds itself?
 * @thread any */
bool weir_kube_slice_is(const json_t *wanted, const json_t *there);

/* A part of a slice that the API server has dropped. */
enum weir_kube_lost { WEIR_KUBE_LOST_NOTHING, WEIR_KUBE_LOST_TAINTS, WEIR_KUBE_LOST_CAPACITY };

/** A cluster silently drops fields that it does not know: find out which. @thread any */
enum weir_kube_lost weir_kube_slice_lost(const json_t *sent, const json_t *back);

/* claim.c */

/** Is this valid as a claim's uid or a slot's name? Then it may be a part of file names and
 * tenants' names. @thread any */
bool weir_kube_uid_ok(const char *uid);

/**
 * Make the record of the share that an allocated claim gets on this node:
 *
 *     {"uid", "words": [KEY=VALUE for weir tenant add],
 *      "devices": [{"request", "pool", "device", "share"}]}
 *
 * @param claim     a ResourceClaim, not trusted; checked here.
 * @param ret_diag  says what is wrong, for the pod's events.
 * @return owned by the caller; NULL: the claim is refused
 * @thread any
 */
json_t *weir_kube_claim_record(const struct weir_kube_node *node, const json_t *claim,
                               struct weir_diag *ret_diag);

/** Make the record of a slot, for a node that has slots; its name stands in place of the uid.
 * @param index  as of weir_kube_device_name().
 * @return owned by the caller; NULL: there are not so many @thread any */
json_t *weir_kube_slot_record(const struct weir_kube_node *node, uint32_t index);

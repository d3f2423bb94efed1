/* The state of weir-dra, and what its threads do with it. Private to kubernetes/. */
#pragma once

#include "base/thread.h"
#include "kubernetes/api.h"
#include "kubernetes/grpc.h"
#include "kubernetes/plan.h"
#include "kubernetes/protobuf.h"

#include <stdbool.h>
#include <stdint.h>

#define WEIR_DRA_CDI "weir.dev/gpu=" /* a tenant's CDI device is this, then the tenant's name */

/* A claim that a thread works on. */
struct weir_dra_busy {
    const char *uid;
    struct weir_dra_busy *next;
};

struct weir_dra {
    /* Immutable, up to the lock: */
    const char *run_dir;   /* the host's runtime folder; NULL: the default */
    const char *state_dir; /* the folder of the claims' files */
    const char *kubelet;   /* kubelet's folder */
    uint32_t slots;        /* slots of each GPU, if the cluster does not count capacity */
    bool is_plugin;        /* this is a device plugin, not a driver of claims */
    struct weir_api api;
    char endpoint[108], registry[108]; /* the driver's socket; the one that kubelet finds */

    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t changed; /* the host, what there is to publish, or who works on which claim */
    struct weir_kube_node node; /* has no GPUs until the host has reported them */
    bool knows_api;             /* the version of the API is known */
    bool registered;            /* kubelet has registered the driver */
    uint64_t wishes;            /* counts reasons to publish the slice again */
    struct weir_dra_busy *busy;
};

/* claims.c: the gRPC methods */

extern const struct weir_grpc_method weir_dra_methods[];
/** Send a message as the whole answer or a part of it, and free it. @return false: the client no
 * longer reads, or memory is short @thread the call's */
bool weir_dra_send(struct weir_grpc_call *call, struct weir_pb *message);
/** Answer a client that watches the devices: by tell() now, when the host comes up or goes down,
 * and at intervals. @param tell  @return false: the client is gone @thread the call's */
enum weir_grpc_code weir_dra_watch(struct weir_dra *dra, struct weir_grpc_call *call,
                                   bool (*tell)(const struct weir_kube_node *node,
                                                struct weir_grpc_call *call));
/** Lock a claim; other threads wait for it. @param busy the caller's; must stay until the unlock.
 * @thread any */
void weir_dra_claim_lock(struct weir_dra *dra, struct weir_dra_busy *busy, const char *uid);
void weir_dra_claim_unlock(struct weir_dra *dra, struct weir_dra_busy *busy);

/* host.c: the link to the Weir host */

/** Follow the host: learn its GPUs, and keep its tenants the same as the claims. @param user struct
 * weir_dra @thread one of its own */
void *weir_dra_host_thread(void *user);
/**
 * Make the tenant of a record, or remove it. It is no error if it exists, or is gone, already.
 * @return WEIR_OK
 * @return WEIR_ERR_INVALID  the host refuses; the diagnosis says why.
 * @return else  the host is not there, or does not answer: try again
 * @thread any
 */
enum weir_status weir_dra_tenant_make(struct weir_dra *dra, const json_t *record,
                                      struct weir_diag *diag) WEIR_MUST_CHECK;
enum weir_status weir_dra_tenant_remove(struct weir_dra *dra, const char *uid,
                                        struct weir_diag *diag) WEIR_MUST_CHECK;

/* records.c: the claims that are prepared on this node. Each has a file, <folder>/UID.json, written
 * before its tenant is made. So no tenant is lost, however the driver ends. */

/** A claim's record (plan.h), owned by the caller; NULL: there is none, or its file makes no sense.
 * @thread any */
json_t *weir_records_get(const char *folder, const char *uid);
/** Write a record. @return false: it cannot be written @thread any, one for each claim at a time */
bool weir_records_put(const char *folder, const json_t *record);
/** Remove a record, if there is one. @return false: it is still there @thread any */
bool weir_records_remove(const char *folder, const char *uid);
/** All uids, as an array of strings; owned by the caller. @thread any */
json_t *weir_records_list(const char *folder);

/* publish.c: the node's slice */

/** Keep the node's slice at the API server right. @param user struct weir_dra @thread one of its
 * own */
void *weir_dra_publish_thread(void *user);

/* plugin.c: slots instead of claims */

extern const char weir_plugin_endpoint[]; /* its socket, in kubelet's folder */
/** Write the slots' records, once the GPUs are known. @thread the host's */
void weir_plugin_slots(struct weir_dra *dra);
/** Listen, and register with kubelet each time kubelet has started. @param user struct weir_dra
 * @thread one of its own */
void *weir_plugin_thread(void *user);

/* The state of weir-dra, and what its threads do with it. Private to kubernetes/. */
#ifndef WEIR_KUBERNETES_DRA_H
#define WEIR_KUBERNETES_DRA_H

#include "kubernetes/api.h"
#include "kubernetes/grpc.h"
#include "kubernetes/plan.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR_DRA_STREAMS_MAX 8 /* watches of health */
/* Requests about claims at a time; kubelet makes one for each pod. */
#define WEIR_DRA_CALLS_MAX 64

struct weir_dra_options {
    const char *run_dir;   /* the host's; NULL: the default */
    const char *state_dir; /* of the claims' files */
    const char *kubelet;   /* kubelet's folder */
    uint32_t slots;        /* of a GPU, where the cluster does not count capacity */
};

struct weir_dra {
    struct weir_dra_options options; /* immutable, as api */
    struct weir_api api;
    struct weir_grpc *server;
    char endpoint[108];

    pthread_mutex_t lock;   /* guards what follows, but for streams */
    pthread_cond_t changed; /* the host is up or down, there is something to publish, a claim is
                               done, or all ends */
    struct weir_kube_node node;
    bool knows_gpus;   /* the host has told them */
    bool knows_api;    /* the API server has told its versions */
    bool registered;   /* kubelet has taken the driver */
    uint64_t wishes;   /* how often there was something to publish */
    uint32_t n_asking; /* questions to the host */
    uint32_t n_calls;  /* requests that threads answer */
    char busy[WEIR_DRA_CALLS_MAX + 1][WEIR_KUBE_UID_BYTES]; /* claims in work; "": free */
    bool stops;

    /* The main thread's: */
    struct weir_grpc_call *streams[WEIR_DRA_STREAMS_MAX];
    uint64_t told_ns; /* when the streams were last told */
    bool told_up;
};

/* claims.c: the gRPC methods */

extern const struct weir_grpc_method weir_dra_methods[];
/** Tell those who watch the devices' health, if it is time. @thread main */
void weir_dra_tick(void *user);
/** Have a claim to oneself; others wait. @return false: all ends @thread any but main */
bool weir_dra_claim_lock(struct weir_dra *dra, const char *uid);
void weir_dra_claim_unlock(struct weir_dra *dra, const char *uid);

/* host.c: the link to the Weir host */

/** Follow the host until all ends: what GPUs it has, and whether its tenants are those of the
 * claims. @param user  struct weir_dra @thread one of its own */
void *weir_dra_host_thread(void *user);
/**
 * Make the tenant of a record, or remove it. No error if that is done already.
 * @return WEIR_OK
 * @return WEIR_ERR_INVALID  the host refuses; the diagnosis says why.
 * @return else  the host is not there, or does not answer: try again
 * @thread any but main
 */
enum weir_status weir_dra_tenant_make(struct weir_dra *dra, const json_t *record,
                                      struct weir_diag *diag) WEIR_MUST_CHECK;
enum weir_status weir_dra_tenant_remove(struct weir_dra *dra, const char *tenant,
                                        struct weir_diag *diag) WEIR_MUST_CHECK;

/* publish.c: the node's slice */

/** Keep the slice as it must be until all ends. @thread one of its own */
void *weir_dra_publish_thread(void *user);

/** Wait until something has changed, for so long at most. @thread any but main, with the lock */
void weir_dra_wait_locked(struct weir_dra *dra, uint64_t wait_ns);
/** Wake all who wait. @thread any, with the lock */
void weir_dra_changed_locked(struct weir_dra *dra);

#endif

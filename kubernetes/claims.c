/*
 * Answers kubelet: who the driver is, prepared and unprepared claims, the health of devices.
 *
 * The host or the API server may be down for a moment. kubelet waits 45 s and tries again only
 * after a minute, so the driver itself tries again. One thread at a time works on a claim. A
 * claim's file is written before its tenant is made, and removed after the tenant.
 */
#include "kubernetes/dra.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_NS   (40 * WEIR_NS_PER_S) /* kubelet waits for 45 s */
#define AGAIN_NS    (250 * WEIR_NS_PER_MS)
#define HEALTH_NS   (10 * WEIR_NS_PER_S) /* kubelet considers a report valid for 30 s */
#define HEALTH_S    30
#define HEALTH_GOOD 1
#define HEALTH_BAD  2
#define DRA_V1      "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define DRA_V1BETA1 "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/"
#define DRAHEALTH   "/v1alpha1.DRAResourceHealth/"

/* A claim as kubelet names it. */
struct named {
    char namespace_[64], uid[WEIR_KUBE_UID_BYTES], name[254];
};

bool weir_dra_send(struct weir_grpc_call *call, struct weir_pb *message)
{
    bool good = !message->failed && weir_grpc_send(call, message->data, message->bytes);

    free(message->data);
    return good;
}

enum weir_grpc_code weir_dra_watch(struct weir_dra *dra, struct weir_grpc_call *call,
                                   bool (*tell)(const struct weir_kube_node *node,
                                                struct weir_grpc_call *call))
{
    struct weir_kube_node node;
    bool good;

    do {
        uint64_t end_ns = weir_clock_now_ns() + HEALTH_NS;

        pthread_mutex_lock(&dra->lock);
        node = dra->node;
        pthread_mutex_unlock(&dra->lock);
        good = tell(&node, call);
        pthread_mutex_lock(&dra->lock);
        while (good && dra->node.host_is_up == node.host_is_up &&
               weir_thread_condition_wait(&dra->changed, &dra->lock, end_ns)) {
        }
        pthread_mutex_unlock(&dra->lock);
    } while (good);
    return WEIR_GRPC_OK;
}

/* ---------------------------------------------------------------- waiting */

void weir_dra_claim_lock(struct weir_dra *dra, struct weir_dra_busy *busy, const char *uid)
{
    const struct weir_dra_busy *other;

    WEIR_LOCKED(&dra->lock);
    do {
        for (other = dra->busy; other && strcmp(other->uid, uid) != 0; other = other->next) {
        }
        if (other) {
            pthread_cond_wait(&dra->changed, &dra->lock);
        }
    } while (other);
    *busy = (struct weir_dra_busy){uid, dra->busy};
    dra->busy = busy;
}

void weir_dra_claim_unlock(struct weir_dra *dra, struct weir_dra_busy *busy)
{
    struct weir_dra_busy **at = &dra->busy;

    WEIR_LOCKED(&dra->lock);
    while (*at != busy) {
        at = &(*at)->next;
    }
    *at = busy->next;
    pthread_cond_broadcast(&dra->changed);
}

/* Wait a moment before another try. @return false: too little time is left */
static bool may_try_again(uint64_t end_ns)
{
    bool may = weir_clock_now_ns() + AGAIN_NS < end_ns;

    if (may) {
        (void)usleep(AGAIN_NS / WEIR_NS_PER_US);
    }
    return may;
}

/* ---------------------------------------------------------------- prepare */

/* Copy the node's state once its GPUs and the API's version are known. @return false: too late */
static bool node_now(struct weir_dra *dra, uint64_t end_ns, struct weir_kube_node *ret_node)
{
    bool knows;

    do {
        pthread_mutex_lock(&dra->lock);
        knows = dra->node.n_gpus != 0 && dra->knows_api;
        *ret_node = dra->node;
        pthread_mutex_unlock(&dra->lock);
    } while (!knows && may_try_again(end_ns));
    return knows;
}

/* Get a claim from the API server. NULL: the diagnosis says why. */
static json_t *fetch(struct weir_dra *dra, const struct weir_kube_node *node,
                     const struct named *claim, uint64_t end_ns, struct weir_diag *diag)
{
    json_t *answer = NULL;
    char path[500];
    long code;

    snprintf(path, sizeof path, "/apis/resource.k8s.io/%s/namespaces/%s/resourceclaims/%s",
             node->is_v1beta1 ? "v1beta1" : "v1", claim->namespace_, claim->name);
    while (!weir_api_ask(&dra->api, "GET", path, NULL, &answer, &code, diag)) {
        json_decref(answer);
        if ((code >= 400 && code < 500 && code != 401 && code != 429) || !may_try_again(end_ns)) {
            return NULL;
        }
    }
    const char *uid =
        json_string_value(json_object_get(json_object_get(answer, "metadata"), "uid"));
    if (!uid || strcmp(uid, claim->uid) != 0) {
        weir_diag_set(diag, 0, 0, "the claim was replaced by another one of its name");
        json_decref(answer);
        answer = NULL;
    }
    return answer;
}

/* Make the record of a claim that is prepared for the first time. NULL: the diagnosis says why. */
static json_t *new_record(struct weir_dra *dra, const struct named *claim, uint64_t end_ns,
                          struct weir_diag *diag)
{
    struct weir_kube_node node;
    json_t *object, *record;

    if (!node_now(dra, end_ns, &node)) {
        weir_diag_set(diag, 0, 0, "the Weir host of this node, or the API server, is down");
        return NULL;
    }
    object = fetch(dra, &node, claim, end_ns, diag);
    record = object ? weir_kube_claim_record(&node, object, diag) : NULL;
    json_decref(object);
    if (record && !weir_records_put(dra->state_dir, record)) {
        weir_diag_set(diag, 0, 0, "the claim's file cannot be written in %.100s", dra->state_dir);
        json_decref(record);
        record = NULL;
    }
    return record;
}

/* Add a device of a record to the answer to kubelet. */
static void put_device(struct weir_pb *answer, const json_t *device, const char *cdi)
{
    size_t opened = weir_pb_open(answer, 1);

    weir_pb_text(answer, 1, json_string_value(json_object_get(device, "request")));
    weir_pb_text(answer, 2, json_string_value(json_object_get(device, "pool")));
    weir_pb_text(answer, 3, json_string_value(json_object_get(device, "device")));
    weir_pb_text(answer, 4, cdi);
    weir_pb_text(answer, 5, json_string_value(json_object_get(device, "share")));
    weir_pb_close(answer, opened);
}

/* Prepare a locked claim, and answer with its devices. @return false: the diagnosis says why */
static bool prepare(struct weir_dra *dra, const struct named *claim, uint64_t end_ns,
                    struct weir_pb *answer, struct weir_diag *diag)
{
    json_t *record = weir_records_get(dra->state_dir, claim->uid), *device;
    bool known = record != NULL;
    enum weir_status status;
    char cdi[96];
    size_t i;

    record = record ? record : new_record(dra, claim, end_ns, diag);
    WEIR_FAIL_IF(!record, false);
    do {
        status = weir_dra_tenant_make(dra, record, diag);
    } while (status != WEIR_OK && status != WEIR_ERR_INVALID && may_try_again(end_ns));
    if (status == WEIR_OK) {
        snprintf(cdi, sizeof cdi, WEIR_DRA_CDI WEIR_KUBE_TENANT "%s", claim->uid);
        json_array_foreach(json_object_get(record, "devices"), i, device)
        {
            put_device(answer, device, cdi);
        }
    } else if (status == WEIR_ERR_INVALID && !known) {
        /* Otherwise keep the record: the host may have the tenant, and kubelet asks again. */
        (void)weir_records_remove(dra->state_dir, claim->uid);
    }
    json_decref(record);
    return status == WEIR_OK;
}

/* Remove a claim's tenant and record. A host that is down runs no programs, and its tenant is
 * removed when it is back (host.c). @return false: the diagnosis says why */
static bool unprepare(struct weir_dra *dra, const char *uid, uint64_t end_ns,
                      struct weir_diag *diag)
{
    enum weir_status status;

    do {
        status = weir_dra_tenant_remove(dra, uid, diag);
    } while (status != WEIR_OK && status != WEIR_ERR_INVALID && status != WEIR_ERR_NOT_FOUND &&
             may_try_again(end_ns));
    WEIR_FAIL_IF(status != WEIR_OK && status != WEIR_ERR_NOT_FOUND, false);
    if (!weir_records_remove(dra->state_dir, uid)) {
        weir_diag_set(diag, 0, 0, "the claim's file cannot be removed from %.100s", dra->state_dir);
        return false;
    }
    return true;
}

/* ---------------------------------------------------------------- requests about claims */

static bool read_named(const struct weir_pb_field *message, struct named *ret)
{
    struct weir_pb_reader reader = {message->data, message->data + message->bytes, !message->data};
    struct weir_pb_field field;
    bool good = true;

    *ret = (struct named){0};
    while (weir_pb_next(&reader, &field)) {
        if (field.number == 1) {
            good &= weir_pb_copy(&field, ret->namespace_, sizeof ret->namespace_);
        } else if (field.number == 2) {
            good &= weir_pb_copy(&field, ret->uid, sizeof ret->uid);
        } else if (field.number == 3) {
            good &= weir_pb_copy(&field, ret->name, sizeof ret->name);
        }
    }
    return good && !reader.bad;
}

/* Prepare a claim (ends: unprepare it), and add its entry to the answer. */
static void answer_claim(struct weir_dra *dra, const struct named *claim, bool ends,
                         uint64_t end_ns, struct weir_pb *answer)
{
    struct weir_dra_busy busy;
    struct weir_diag diag = {.message = "the claim's uid is none"};
    size_t entry = weir_pb_open(answer, 1), value;
    bool good = weir_kube_uid_ok(claim->uid);

    weir_pb_text(answer, 1, claim->uid);
    value = weir_pb_open(answer, 2);
    if (good) {
        weir_dra_claim_lock(dra, &busy, claim->uid);
        good = ends ? unprepare(dra, claim->uid, end_ns, &diag)
                    : prepare(dra, claim, end_ns, answer, &diag);
        weir_dra_claim_unlock(dra, &busy);
    }
    if (good) {
        weir_log_info("weir-dra: %s claim=%s/%s tenant=" WEIR_KUBE_TENANT "%s",
                      ends ? "ended" : "prepared", claim->namespace_, claim->name, claim->uid);
    } else {
        weir_pb_text(answer, ends ? 1 : 2, diag.message);
        weir_log_warn("weir-dra: not %s claim=%s/%s why=\"%s\"", ends ? "ended" : "prepared",
                      claim->namespace_, claim->name, diag.message);
    }
    weir_pb_close(answer, value);
    weir_pb_close(answer, entry);
}

static enum weir_grpc_code answer_claims(struct weir_dra *dra, struct weir_grpc_call *call,
                                         const uint8_t *message, size_t bytes, bool ends)
{
    uint64_t end_ns = weir_clock_now_ns() + ANSWER_NS;
    struct weir_pb_reader reader = {message, message + bytes, false};
    struct weir_pb_field field;
    struct weir_pb answer = {0};

    while (weir_pb_next(&reader, &field)) {
        struct named claim;

        if (field.number == 1 && !read_named(&field, &claim)) {
            reader.bad = true;
        } else if (field.number == 1) {
            answer_claim(dra, &claim, ends, end_ns, &answer);
        }
    }
    if (reader.bad) {
        free(answer.data);
        return WEIR_GRPC_INVALID;
    }
    return weir_dra_send(call, &answer) ? WEIR_GRPC_OK : WEIR_GRPC_INTERNAL;
}

static enum weir_grpc_code on_prepare(void *user, struct weir_grpc_call *call,
                                      const uint8_t *message, size_t bytes)
{
    return answer_claims(user, call, message, bytes, false);
}

static enum weir_grpc_code on_unprepare(void *user, struct weir_grpc_call *call,
                                        const uint8_t *message, size_t bytes)
{
    return answer_claims(user, call, message, bytes, true);
}

/* ---------------------------------------------------------------- registration and health */

static enum weir_grpc_code on_info(void *user, struct weir_grpc_call *call, const uint8_t *message,
                                   size_t bytes)
{
    const struct weir_dra *dra = user;
    struct weir_pb info = {0};

    (void)message;
    (void)bytes;
    weir_pb_text(&info, 1, "DRAPlugin");
    weir_pb_text(&info, 2, WEIR_KUBE_DRIVER);
    weir_pb_text(&info, 3, dra->endpoint);
    weir_pb_text(&info, 4, "v1.DRAPlugin");
    weir_pb_text(&info, 4, "v1beta1.DRAPlugin");
    weir_pb_text(&info, 4, "v1alpha1.DRAResourceHealth");
    return weir_dra_send(call, &info) ? WEIR_GRPC_OK : WEIR_GRPC_INTERNAL;
}

/* kubelet deletes the node's slices when it starts, so publish at each registration. */
static enum weir_grpc_code on_registered(void *user, struct weir_grpc_call *call,
                                         const uint8_t *message, size_t bytes)
{
    struct weir_dra *dra = user;
    struct weir_pb_reader reader = {message, message + bytes, false};
    struct weir_pb_field field;
    bool good = false;
    char why[200] = "";

    while (weir_pb_next(&reader, &field)) {
        good |= field.number == 1 && field.value != 0;
        if (field.number == 2) {
            (void)weir_pb_copy(&field, why, sizeof why);
        }
    }
    if (good) {
        weir_log_info("weir-dra: kubelet has registered the driver");
        pthread_mutex_lock(&dra->lock);
        dra->registered = true;
        dra->wishes++;
        pthread_cond_broadcast(&dra->changed);
        pthread_mutex_unlock(&dra->lock);
    } else {
        weir_log_error("weir-dra: kubelet refuses the driver why=\"%s\"", why);
    }
    /* Send an empty message: kubelet takes an answer without a message as an error. */
    return weir_grpc_send(call, NULL, 0) ? WEIR_GRPC_OK : WEIR_GRPC_INTERNAL;
}

/* Send the health of all devices to a client that watches. */
static bool tell_health(const struct weir_kube_node *node, struct weir_grpc_call *call)
{
    struct weir_pb list = {0};
    char name[WEIR_KUBE_DEVICE_BYTES];

    for (uint32_t i = 0; weir_kube_device_name(node, i, name); i++) {
        size_t health = weir_pb_open(&list, 1), id = weir_pb_open(&list, 1);

        weir_pb_text(&list, 1, node->name);
        weir_pb_text(&list, 2, name);
        weir_pb_close(&list, id);
        weir_pb_number(&list, 2, node->host_is_up ? HEALTH_GOOD : HEALTH_BAD);
        weir_pb_number(&list, 3, (uint64_t)time(NULL));
        weir_pb_number(&list, 4, HEALTH_S);
        weir_pb_text(&list, 5, node->host_is_up ? "" : "the Weir host is down");
        weir_pb_close(&list, health);
    }
    return weir_dra_send(call, &list);
}

static enum weir_grpc_code on_watch(void *user, struct weir_grpc_call *call, const uint8_t *message,
                                    size_t bytes)
{
    (void)message;
    (void)bytes;
    return weir_dra_watch(user, call, tell_health);
}

const struct weir_grpc_method weir_dra_methods[] = {
    {"/pluginregistration.Registration/GetInfo", on_info},
    {"/pluginregistration.Registration/NotifyRegistrationStatus", on_registered},
    {DRA_V1 "NodePrepareResources", on_prepare},
    {DRA_V1 "NodeUnprepareResources", on_unprepare},
    {DRA_V1BETA1 "NodePrepareResources", on_prepare},
    {DRA_V1BETA1 "NodeUnprepareResources", on_unprepare},
    {DRAHEALTH "NodeWatchResources", on_watch},
    {NULL, NULL},
};

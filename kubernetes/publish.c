/*
 * Publishes the node's slice at the API server: at each registration with kubelet, which deletes
 * the slice when it starts, and whenever the slice, which is watched, is missing or wrong.
 *
 * A cluster silently drops fields that it does not know: if it dropped consumable capacity, a claim
 * would get a whole GPU. So the thread first sends the slice as a trial (dryRun). The answer shows
 * whether the node must publish GPUs or slots.
 */
#include "kubernetes/dra.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define API_PATH       "/apis/resource.k8s.io"
#define BACK_OFF_MAX_S 30u
#define WATCH_S        300
/* How long a deleted slice stays away: kubelet may have started, and soon registers the driver. A
 * pod that is placed before that waits for kubelet's next try, more than a minute. */
#define GONE_WAIT_NS (3 * WEIR_NS_PER_S)

/* What one round works with. */
struct round {
    struct weir_dra *dra;
    struct weir_kube_node node; /* a copy */
    uint64_t wishes;
    char owner[64];
    char slices[128]; /* path of the collection */
    char name[300];
    bool was_deleted;
    json_t *wanted; /* owned */
};

static void begin_round(struct round *r)
{
    struct weir_dra *dra = r->dra;

    pthread_mutex_lock(&dra->lock);
    while (!dra->registered || dra->node.n_gpus == 0) {
        pthread_cond_wait(&dra->changed, &dra->lock);
    }
    r->node = dra->node;
    r->wishes = dra->wishes;
    pthread_mutex_unlock(&dra->lock);
    snprintf(r->slices, sizeof r->slices, API_PATH "/%s/resourceslices",
             r->node.is_v1beta1 ? "v1beta1" : "v1");
    snprintf(r->name, sizeof r->name, "%s-" WEIR_KUBE_DRIVER, r->node.name);
}

static void log_failure(const char *what, const struct weir_diag *diag)
{
    weir_log_warn("weir-dra: %s why=\"%s\"", what, diag->message);
}

/* Find the newest version of the API that this driver knows. */
static bool discover(struct round *r)
{
    static const char *const paths[] = {API_PATH "/v1", API_PATH "/v1beta1"};
    struct weir_diag diag = {0};

    for (int i = 0; i < 2; i++) {
        json_t *answer = NULL;
        long code;
        bool good = weir_api_ask(&r->dra->api, "GET", paths[i], NULL, &answer, &code, &diag);

        json_decref(answer);
        if (good) {
            pthread_mutex_lock(&r->dra->lock);
            r->dra->node.is_v1beta1 = i != 0;
            r->dra->knows_api = true;
            pthread_mutex_unlock(&r->dra->lock);
            return true;
        }
        if (code != 404) {
            break;
        }
    }
    log_failure("there is no " API_PATH " of version v1 or v1beta1", &diag);
    return false;
}

/* Find the node's uid: as the slice's owner, so that the slice is deleted with the node. */
static bool find_owner(struct round *r)
{
    struct weir_diag diag = {0};
    json_t *node = NULL;
    char path[300];
    long code;

    snprintf(path, sizeof path, "/api/v1/nodes/%s", r->dra->node.name);
    if (!weir_api_ask(&r->dra->api, "GET", path, NULL, &node, &code, &diag)) {
        log_failure("the node cannot be read", &diag);
    }
    const char *uid = json_string_value(json_object_get(json_object_get(node, "metadata"), "uid"));
    snprintf(r->owner, sizeof r->owner, "%s", uid ? uid : "");
    json_decref(node);
    return r->owner[0] != 0;
}

/* Send the slice as a trial, and choose slots if the cluster does not count capacity. */
static bool probe(struct round *r)
{
    struct weir_dra *dra = r->dra;
    struct weir_kube_node node = r->node;
    enum weir_kube_lost lost = WEIR_KUBE_LOST_NOTHING;
    struct weir_diag diag = {0};
    char path[200];
    bool good = true;

    node.host_is_up = false; /* so that the trial has taints */
    node.taints = true;
    node.slots = 0;
    snprintf(path, sizeof path, "%s?dryRun=All", r->slices);
    do {
        json_t *sent = weir_kube_slice(&node, r->owner, 1), *back = NULL, *metadata;
        long code;

        metadata = json_object_get(sent, "metadata");
        json_object_set_new(metadata, "generateName", json_string("weir-trial-"));
        json_object_del(metadata, "name");
        good = weir_api_ask(&dra->api, "POST", path, sent, &back, &code, &diag);
        lost = good ? weir_kube_slice_lost(sent, back) : WEIR_KUBE_LOST_NOTHING;
        node.slots = lost == WEIR_KUBE_LOST_CAPACITY ? dra->slots : node.slots;
        node.taints = lost != WEIR_KUBE_LOST_TAINTS && node.taints;
        json_decref(sent);
        json_decref(back);
    } while (lost != WEIR_KUBE_LOST_NOTHING);
    if (!good) {
        log_failure("the trial of the slice failed", &diag);
        return false;
    }
    if (node.slots != r->node.slots) {
        weir_log_warn("weir-dra: this cluster does not count capacity (DRAConsumableCapacity), so "
                      "each GPU is published as slots slots=%u",
                      node.slots);
    }
    WEIR_LOCKED(&dra->lock);
    dra->node.slots = r->node.slots = node.slots;
    dra->node.taints = r->node.taints = node.taints;
    return true;
}

/* Create or change the slice. @return the stored slice, owned by the caller; NULL: failure */
static json_t *store(struct round *r)
{
    struct weir_diag diag = {0};
    json_t *there = NULL, *back = NULL, *metadata;
    int64_t generation = 0;
    char path[500];
    long code;

    snprintf(path, sizeof path, "%s/%s", r->slices, r->name);
    if (weir_api_ask(&r->dra->api, "GET", path, NULL, &there, &code, &diag)) {
        generation = json_integer_value(
            json_object_get(json_object_get(json_object_get(there, "spec"), "pool"), "generation"));
    } else if (code != 404) {
        log_failure("the slice cannot be read", &diag);
        json_decref(there);
        return NULL;
    }
    json_decref(r->wanted);
    r->wanted = weir_kube_slice(&r->node, r->owner, generation + 1);
    if (code != 404 && weir_kube_slice_is(r->wanted, there)) {
        return there;
    }
    metadata = json_object_get(r->wanted, "metadata");
    if (code != 404) { /* change it only if nobody has done so meanwhile */
        json_object_set(metadata, "resourceVersion",
                        json_object_get(json_object_get(there, "metadata"), "resourceVersion"));
    }
    if (weir_api_ask(&r->dra->api, code == 404 ? "POST" : "PUT", code == 404 ? r->slices : path,
                     r->wanted, &back, &code, &diag)) {
        weir_log_info(
            "weir-dra: published devices=%zu generation=%lld host=%s",
            json_array_size(json_object_get(json_object_get(r->wanted, "spec"), "devices")),
            (long long)generation + 1, r->node.host_is_up ? "up" : "down");
    } else {
        log_failure("the slice cannot be written", &diag);
        json_decref(back);
        back = NULL;
    }
    json_decref(there);
    return back;
}

/* ---------------------------------------------------------------- until something changes */

static bool on_event(void *user, const char *type, const json_t *object)
{
    struct round *r = user;

    r->was_deleted = strcmp(type, "DELETED") == 0;
    if (strcmp(type, "ADDED") == 0 || strcmp(type, "MODIFIED") == 0) {
        return weir_kube_slice_is(r->wanted, object);
    }
    return strcmp(type, "BOOKMARK") == 0;
}

static bool is_unchanged(void *user)
{
    struct round *r = user;

    WEIR_LOCKED(&r->dra->lock);
    return r->dra->wishes == r->wishes;
}

/* @return false: the server refuses the watch */
static bool watch(struct round *r, const json_t *there)
{
    const char *version =
        json_string_value(json_object_get(json_object_get(there, "metadata"), "resourceVersion"));
    char path[900];

    r->was_deleted = false;
    snprintf(path, sizeof path,
             "%s?watch=1&fieldSelector=metadata.name%%3D%s&timeoutSeconds=%d&resourceVersion=%s",
             r->slices, r->name, WATCH_S, version ? version : "0");
    bool good = weir_api_watch(&r->dra->api, path, on_event, is_unchanged, r);
    if (r->was_deleted) {
        uint64_t end_ns = weir_clock_now_ns() + GONE_WAIT_NS;

        pthread_mutex_lock(&r->dra->lock);
        while (r->dra->wishes == r->wishes &&
               weir_thread_condition_wait(&r->dra->changed, &r->dra->lock, end_ns)) {
        }
        pthread_mutex_unlock(&r->dra->lock);
    }
    return good;
}

/* Wait after a failure, longer each time. */
static void back_off(uint32_t *failures)
{
    (void)sleep(*failures < 5 ? 1u << *failures : BACK_OFF_MAX_S);
    (*failures)++;
}

void *weir_dra_publish_thread(void *user)
{
    struct round r = {.dra = user};
    uint32_t failures = 0;
    uint64_t probed = 0; /* the value of wishes at the last trial */

    while (!discover(&r) || !find_owner(&r)) {
        back_off(&failures);
    }
    failures = 0;
    for (;;) {
        json_t *there = NULL;

        begin_round(&r);
        if (probed == r.wishes || probe(&r)) { /* a cluster may have been upgraded with kubelet */
            probed = r.wishes;
            there = store(&r);
        }
        if (there && watch(&r, there)) {
            failures = 0;
        } else {
            back_off(&failures);
        }
        json_decref(there);
    }
    return NULL;
}

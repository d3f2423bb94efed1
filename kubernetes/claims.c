/*
 * What kubelet asks: who the driver is, to prepare claims and to end that, and how the devices are.
 *
 * A request about claims has a thread of its own, since the host or the API server may be away for
 * a moment, and kubelet, which tries again only after a minute, waits for 45 s. A claim is worked
 * on by one thread at a time. Its file is written before its tenant is made, and removed after it.
 */
#include "kubernetes/dra.h"
#include "kubernetes/kubelet.pb-c.h"
#include "kubernetes/records.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ANSWER_NS   (40 * WEIR_NS_PER_S) /* kubelet waits for 45 s */
#define AGAIN_NS    (250 * WEIR_NS_PER_MS)
#define HEALTH_NS   (10 * WEIR_NS_PER_S) /* kubelet takes the word for 30 s */
#define HEALTH_S    30
#define STACK_BYTES ((size_t)512 << 10) /* libcurl and TLS take some 100 KiB */
#define CDI_DEVICE  "weir.dev/gpu="
#define HEALTH_GOOD 1
#define HEALTH_BAD  2
#define DRA_V1      "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define DRA_V1BETA1 "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/"
#define DRAHEALTH   "/v1alpha1.DRAResourceHealth/"

/* Send a message, which protobuf-c packs, as the whole answer or a part of it. */
static void send_packed(struct weir_grpc_call *call, const ProtobufCMessage *message)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = malloc(bytes + 1);

    if (packed) {
        protobuf_c_message_pack(message, packed);
        weir_grpc_send(call, packed, bytes);
        free(packed);
    }
}

/* ---------------------------------------------------------------- waiting */

void weir_dra_wait_locked(struct weir_dra *dra, uint64_t wait_ns)
{
    if (!dra->stops) {
        (void)weir_thread_condition_wait(&dra->changed, &dra->lock, weir_clock_now_ns() + wait_ns);
    }
}

void weir_dra_changed_locked(struct weir_dra *dra)
{
    pthread_cond_broadcast(&dra->changed);
}

/* The place of a claim in the list of those in work; NULL: it is not there. */
static char *find_busy(struct weir_dra *dra, const char *uid)
{
    for (size_t i = 0; i < sizeof dra->busy / sizeof dra->busy[0]; i++) {
        if (strcmp(dra->busy[i], uid) == 0) {
            return dra->busy[i];
        }
    }
    return NULL;
}

bool weir_dra_claim_lock(struct weir_dra *dra, const char *uid)
{
    bool good;

    pthread_mutex_lock(&dra->lock);
    while (!dra->stops && find_busy(dra, uid)) {
        weir_dra_wait_locked(dra, AGAIN_NS);
    }
    good = !dra->stops;
    if (good) { /* each thread has one claim, and there is a place for each thread */
        snprintf(find_busy(dra, ""), WEIR_KUBE_UID_BYTES, "%s", uid);
    }
    pthread_mutex_unlock(&dra->lock);
    return good;
}

void weir_dra_claim_unlock(struct weir_dra *dra, const char *uid)
{
    pthread_mutex_lock(&dra->lock);
    find_busy(dra, uid)[0] = 0;
    weir_dra_changed_locked(dra);
    pthread_mutex_unlock(&dra->lock);
}

/* Wait a moment before another try. @return false: there is no time for one */
static bool may_try_again(struct weir_dra *dra, uint64_t end_ns)
{
    bool may;

    pthread_mutex_lock(&dra->lock);
    may = !dra->stops && weir_clock_now_ns() + AGAIN_NS < end_ns;
    if (may) {
        weir_dra_wait_locked(dra, AGAIN_NS);
    }
    pthread_mutex_unlock(&dra->lock);
    return may;
}

/* ---------------------------------------------------------------- prepare */

/* The node as it is now, once its GPUs are known. @return false: they are not in time */
static bool node_now(struct weir_dra *dra, uint64_t end_ns, struct weir_kube_node *ret_node)
{
    bool knows;

    do {
        pthread_mutex_lock(&dra->lock);
        knows = dra->knows_gpus && dra->knows_api;
        *ret_node = dra->node;
        pthread_mutex_unlock(&dra->lock);
    } while (!knows && may_try_again(dra, end_ns));
    return knows;
}

/* Get a claim from the API server. NULL: the diagnosis says why. */
static json_t *fetch(struct weir_dra *dra, const Weir__Kubelet__Claim *claim, uint64_t end_ns,
                     struct weir_diag *diag)
{
    struct weir_kube_node node;
    char path[700];
    json_t *answer = NULL;
    long code;

    if (!node_now(dra, end_ns, &node)) {
        weir_diag_set(diag, 0, 0, "the Weir host of this node, or the API server, is down");
        return NULL;
    }
    snprintf(path, sizeof path, "/apis/resource.k8s.io/%s/namespaces/%.253s/resourceclaims/%.253s",
             node.is_v1beta1 ? "v1beta1" : "v1", claim->namespace_, claim->name);
    while (!weir_api_ask(&dra->api, "GET", path, NULL, &answer, &code, diag)) {
        json_decref(answer);
        answer = NULL;
        if ((code >= 400 && code < 500 && code != 401 && code != 429) ||
            !may_try_again(dra, end_ns)) {
            return NULL;
        }
    }
    return answer;
}

/* The record of a claim that is prepared for the first time. NULL: the diagnosis says why. */
static json_t *new_record(struct weir_dra *dra, const Weir__Kubelet__Claim *claim, uint64_t end_ns,
                          struct weir_diag *diag)
{
    json_t *object = fetch(dra, claim, end_ns, diag), *record = NULL;
    const char *uid =
        json_string_value(json_object_get(json_object_get(object, "metadata"), "uid"));
    struct weir_kube_node node;

    if (object && (!uid || strcmp(uid, claim->uid) != 0)) {
        weir_diag_set(diag, 0, 0, "the claim was replaced by another one of its name");
    } else if (object && node_now(dra, end_ns, &node)) {
        record = weir_kube_claim_record(&node, object, diag);
    }
    json_decref(object);
    if (record && !weir_records_put(dra->options.state_dir, record)) {
        weir_diag_set(diag, 0, 0, "the claim's file cannot be written in %.100s",
                      dra->options.state_dir);
        json_decref(record);
        record = NULL;
    }
    return record;
}

/* Prepare a claim that this thread has. @return its record; NULL: the diagnosis says why */
static json_t *prepare(struct weir_dra *dra, const Weir__Kubelet__Claim *claim, uint64_t end_ns,
                       struct weir_diag *diag)
{
    json_t *record = weir_records_get(dra->options.state_dir, claim->uid);
    bool known = record != NULL;
    enum weir_status status;

    record = record ? record : new_record(dra, claim, end_ns, diag);
    if (!record) {
        return NULL;
    }
    do {
        status = weir_dra_tenant_make(dra, record, diag);
    } while (status != WEIR_OK && status != WEIR_ERR_INVALID && may_try_again(dra, end_ns));
    if (status == WEIR_OK) {
        if (!known) {
            weir_log_info("weir-dra: prepared claim=%s/%s tenant=" WEIR_KUBE_TENANT "%s",
                          claim->namespace_, claim->name, claim->uid);
        }
        return record;
    }
    if (status == WEIR_ERR_INVALID &&
        !known) { /* else the host may have it, and kubelet asks again */
        (void)weir_records_remove(dra->options.state_dir, claim->uid);
    }
    json_decref(record);
    return NULL;
}

/* A record's devices as kubelet is told of them. Strings are borrowed from the record. */
static bool fill_devices(const json_t *record, const char *cdi, Weir__Kubelet__Prepared *answer)
{
    const json_t *devices = json_object_get(record, "devices");
    size_t n = json_array_size(devices);
    struct filled {
        Weir__Kubelet__Device device;
        Weir__Kubelet__Device *at;
        char *request, *cdi;
    } *all = calloc(n, sizeof *all);

    answer->devices = calloc(n, sizeof(Weir__Kubelet__Device *));
    if (!all || !answer->devices) {
        free(all);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(devices, i);

        weir__kubelet__device__init(&all[i].device);
        all[i].request = (char *)(uintptr_t)json_string_value(json_object_get(one, "request"));
        all[i].cdi = (char *)(uintptr_t)cdi;
        all[i].device.requests = &all[i].request;
        all[i].device.n_requests = all[i].request ? 1 : 0;
        all[i].device.cdi = &all[i].cdi;
        all[i].device.n_cdi = 1;
        all[i].device.pool = (char *)(uintptr_t)json_string_value(json_object_get(one, "pool"));
        all[i].device.device = (char *)(uintptr_t)json_string_value(json_object_get(one, "device"));
        all[i].device.share = (char *)(uintptr_t)json_string_value(json_object_get(one, "share"));
        answer->devices[i] = &all[i].device;
    }
    answer->n_devices = n;
    return true;
}

/* ---------------------------------------------------------------- the threads */

struct job {
    struct weir_dra *dra;
    struct weir_grpc_call *call;
    Weir__Kubelet__Claims *claims;
    bool ends; /* unprepare */
};

/* One claim of a request to prepare, with its place in the answer. */
struct prepared {
    Weir__Kubelet__PreparedOf of;
    Weir__Kubelet__Prepared answer;
    struct weir_diag diag;
    json_t *record;
    char cdi[96];
};

static void prepare_one(struct weir_dra *dra, const Weir__Kubelet__Claim *claim, uint64_t end_ns,
                        struct prepared *p)
{
    weir__kubelet__prepared_of__init(&p->of);
    weir__kubelet__prepared__init(&p->answer);
    p->of.uid = claim->uid;
    p->of.prepared = &p->answer;
    if (!weir_kube_uid_ok(claim->uid)) {
        weir_diag_set(&p->diag, 0, 0, "the claim's uid is none");
    } else if (!weir_dra_claim_lock(dra, claim->uid)) {
        weir_diag_set(&p->diag, 0, 0, "weir-dra is ending");
    } else {
        p->record = prepare(dra, claim, end_ns, &p->diag);
        weir_dra_claim_unlock(dra, claim->uid);
    }
    snprintf(p->cdi, sizeof p->cdi, CDI_DEVICE WEIR_KUBE_TENANT "%s", claim->uid);
    if (!p->record || !fill_devices(p->record, p->cdi, &p->answer)) {
        if (p->diag.message[0] == 0) {
            weir_diag_set(&p->diag, 0, 0, "out of memory");
        }
        p->answer.error = p->diag.message;
        weir_log_warn("weir-dra: not prepared claim=%.60s/%.60s why=\"%s\"", claim->namespace_,
                      claim->name, p->diag.message);
    }
}

static void answer_prepare(struct job *job, uint64_t end_ns)
{
    Weir__Kubelet__PreparedClaims answer = WEIR__KUBELET__PREPARED_CLAIMS__INIT;
    size_t n = job->claims->n_claims;
    struct prepared *all = calloc(n + 1, sizeof *all);
    Weir__Kubelet__PreparedOf **list = calloc(n + 1, sizeof(Weir__Kubelet__PreparedOf *));

    for (size_t i = 0; all && list && i < n; i++) {
        prepare_one(job->dra, job->claims->claims[i], end_ns, &all[i]);
        list[answer.n_claims++] = &all[i].of;
    }
    answer.claims = list;
    if (answer.n_claims == n) {
        send_packed(job->call, &answer.base);
    }
    for (size_t i = 0; i < answer.n_claims; i++) {
        if (all[i].answer.devices) {
            free(all[i].answer.devices[0]); /* begins the block of all of them */
        }
        free(all[i].answer.devices);
        json_decref(all[i].record);
    }
    free(all);
    free(list);
}

/* End what a claim has. A host that is down has no programs, and loses the tenant when it is back
 * (host.c). @return false: the diagnosis says why */
static bool unprepare(struct weir_dra *dra, const char *uid, uint64_t end_ns,
                      struct weir_diag *diag)
{
    enum weir_status status;
    char tenant[64];
    bool gone;

    snprintf(tenant, sizeof tenant, WEIR_KUBE_TENANT "%s", uid);
    do {
        status = weir_dra_tenant_remove(dra, tenant, diag);
    } while (status != WEIR_OK && status != WEIR_ERR_INVALID && status != WEIR_ERR_NOT_FOUND &&
             may_try_again(dra, end_ns));
    if (status != WEIR_OK && status != WEIR_ERR_NOT_FOUND) {
        return false;
    }
    gone = weir_records_remove(dra->options.state_dir, uid);
    if (!gone) {
        weir_diag_set(diag, 0, 0, "the claim's file cannot be removed from %.100s",
                      dra->options.state_dir);
    }
    return gone;
}

struct unprepared {
    Weir__Kubelet__UnpreparedOf of;
    Weir__Kubelet__Unprepared answer;
    struct weir_diag diag;
};

static void unprepare_one(struct weir_dra *dra, const Weir__Kubelet__Claim *claim, uint64_t end_ns,
                          struct unprepared *u)
{
    bool good = false;

    weir__kubelet__unprepared_of__init(&u->of);
    weir__kubelet__unprepared__init(&u->answer);
    u->of.uid = claim->uid;
    u->of.unprepared = &u->answer;
    if (!weir_kube_uid_ok(claim->uid)) {
        weir_diag_set(&u->diag, 0, 0, "the claim's uid is none");
    } else if (weir_dra_claim_lock(dra, claim->uid)) {
        good = unprepare(dra, claim->uid, end_ns, &u->diag);
        weir_dra_claim_unlock(dra, claim->uid);
    } else {
        weir_diag_set(&u->diag, 0, 0, "weir-dra is ending");
    }
    if (!good) {
        u->answer.error = u->diag.message;
    } else {
        weir_log_info("weir-dra: ended claim=%.60s/%.60s tenant=" WEIR_KUBE_TENANT "%s",
                      claim->namespace_, claim->name, claim->uid);
    }
}

static void answer_unprepare(struct job *job, uint64_t end_ns)
{
    Weir__Kubelet__UnpreparedClaims answer = WEIR__KUBELET__UNPREPARED_CLAIMS__INIT;
    size_t n = job->claims->n_claims;
    struct unprepared *all = calloc(n + 1, sizeof *all);
    Weir__Kubelet__UnpreparedOf **list = calloc(n + 1, sizeof(Weir__Kubelet__UnpreparedOf *));

    for (size_t i = 0; all && list && i < n; i++) {
        unprepare_one(job->dra, job->claims->claims[i], end_ns, &all[i]);
        list[answer.n_claims++] = &all[i].of;
    }
    answer.claims = list;
    if (answer.n_claims == n) {
        send_packed(job->call, &answer.base);
    }
    free(all);
    free(list);
}

static void *run_job(void *user)
{
    struct job *job = user;
    struct weir_dra *dra = job->dra;
    uint64_t end_ns = weir_clock_now_ns() + ANSWER_NS;

    (job->ends ? answer_unprepare : answer_prepare)(job, end_ns);
    weir__kubelet__claims__free_unpacked(job->claims, NULL);
    weir_grpc_end(job->call, WEIR_GRPC_OK, "");
    free(job);
    pthread_mutex_lock(&dra->lock);
    dra->n_calls--;
    weir_dra_changed_locked(dra);
    pthread_mutex_unlock(&dra->lock);
    return NULL;
}

/* Let a thread answer, or refuse. */
static void start(struct weir_dra *dra, struct weir_grpc_call *call, const uint8_t *message,
                  size_t bytes, bool ends)
{
    struct job *job = calloc(1, sizeof *job);
    pthread_t thread;
    bool room, good = false;

    pthread_mutex_lock(&dra->lock);
    room = dra->n_calls < WEIR_DRA_CALLS_MAX && job && !dra->stops;
    dra->n_calls += room;
    pthread_mutex_unlock(&dra->lock);
    if (room) {
        *job = (struct job){dra, call, weir__kubelet__claims__unpack(NULL, bytes, message), ends};
        good = job->claims && weir_thread_start(&thread, STACK_BYTES, run_job, job) == 0;
    }
    if (good) {
        pthread_detach(thread);
        return;
    }
    if (room) {
        pthread_mutex_lock(&dra->lock);
        dra->n_calls--;
        pthread_mutex_unlock(&dra->lock);
        weir__kubelet__claims__free_unpacked(job->claims, NULL);
    }
    free(job);
    weir_grpc_end(call, room ? WEIR_GRPC_INVALID : WEIR_GRPC_EXHAUSTED,
                  room ? "no request about claims" : "too many requests at a time");
}

static void on_prepare(void *user, struct weir_grpc_call *call, const uint8_t *message,
                       size_t bytes)
{
    start(user, call, message, bytes, false);
}

static void on_unprepare(void *user, struct weir_grpc_call *call, const uint8_t *message,
                         size_t bytes)
{
    start(user, call, message, bytes, true);
}

/* ---------------------------------------------------------------- registration and health */

static void on_info(void *user, struct weir_grpc_call *call, const uint8_t *message, size_t bytes)
{
    static const char *const versions[] = {"v1.DRAPlugin", "v1beta1.DRAPlugin",
                                           "v1alpha1.DRAResourceHealth"};
    const struct weir_dra *dra = user;
    Weir__Kubelet__PluginInfo info = WEIR__KUBELET__PLUGIN_INFO__INIT;

    (void)message;
    (void)bytes;
    info.type = (char[]){"DRAPlugin"};
    info.name = (char[]){WEIR_KUBE_DRIVER};
    info.endpoint = (char *)(uintptr_t)dra->endpoint;
    info.versions = (char **)(uintptr_t)versions;
    info.n_versions = sizeof versions / sizeof versions[0];
    send_packed(call, &info.base);
    weir_grpc_end(call, WEIR_GRPC_OK, "");
}

/* kubelet deletes the node's slices when it starts, so publish at each registration. */
static void on_registered(void *user, struct weir_grpc_call *call, const uint8_t *message,
                          size_t bytes)
{
    struct weir_dra *dra = user;
    Weir__Kubelet__Registered *said = weir__kubelet__registered__unpack(NULL, bytes, message);

    if (said && said->good) {
        weir_log_info("weir-dra: kubelet has registered the driver");
        pthread_mutex_lock(&dra->lock);
        dra->registered = true;
        dra->wishes++;
        weir_dra_changed_locked(dra);
        pthread_mutex_unlock(&dra->lock);
    } else if (said) {
        weir_log_error("weir-dra: kubelet refuses the driver why=\"%.200s\"", said->error);
    }
    if (said) {
        weir_grpc_send(call, NULL, 0); /* an empty message; none is an error to kubelet */
    }
    weir_grpc_end(call, said ? WEIR_GRPC_OK : WEIR_GRPC_INVALID, "no status of a registration");
    if (said) {
        weir__kubelet__registered__free_unpacked(said, NULL);
    }
}

/* Send the health of all devices to one who watches. */
static void tell_health(const struct weir_kube_node *node, struct weir_grpc_call *call)
{
    static char down[] = "the Weir host is down";
    Weir__Kubelet__Healths answer = WEIR__KUBELET__HEALTHS__INIT;
    uint32_t parts = node->slots != 0 ? node->slots : 1, n = node->n_gpus * parts;
    struct one {
        Weir__Kubelet__Health health;
        Weir__Kubelet__DeviceId id;
        char name[32];
    } *all = calloc(n + 1, sizeof *all);
    Weir__Kubelet__Health **list = calloc(n + 1, sizeof(Weir__Kubelet__Health *));

    for (uint32_t i = 0; all && list && i < n; i++) {
        int used =
            snprintf(all[i].name, sizeof all[i].name, "gpu%u", node->gpus[i / parts].ordinal);

        if (node->slots != 0) {
            snprintf(all[i].name + used, sizeof all[i].name - (size_t)used, "-%u", i % parts);
        }
        weir__kubelet__health__init(&all[i].health);
        weir__kubelet__device_id__init(&all[i].id);
        all[i].id.pool = (char *)(uintptr_t)node->name;
        all[i].id.device = all[i].name;
        all[i].health.id = &all[i].id;
        all[i].health.health = node->host_is_up ? HEALTH_GOOD : HEALTH_BAD;
        all[i].health.seen_s = time(NULL);
        all[i].health.timeout_s = HEALTH_S;
        all[i].health.text = node->host_is_up ? all[i].health.text : down;
        list[answer.n_devices++] = &all[i].health;
    }
    answer.devices = list;
    if (answer.n_devices == n) {
        send_packed(call, &answer.base);
    }
    free(all);
    free(list);
}

static void on_watch(void *user, struct weir_grpc_call *call, const uint8_t *message, size_t bytes)
{
    struct weir_dra *dra = user;

    (void)message;
    (void)bytes;
    for (int i = 0; i < WEIR_DRA_STREAMS_MAX; i++) {
        if (!dra->streams[i]) {
            dra->streams[i] = call;
            dra->told_ns = 0; /* tell at the end of this turn */
            return;
        }
    }
    weir_grpc_end(call, WEIR_GRPC_EXHAUSTED, "too many watch the devices' health");
}

void weir_dra_tick(void *user)
{
    struct weir_dra *dra = user;
    struct weir_kube_node node;
    uint64_t now_ns = weir_clock_now_ns();
    bool stops;

    pthread_mutex_lock(&dra->lock);
    node = dra->node;
    stops = dra->stops;
    pthread_mutex_unlock(&dra->lock);
    for (int i = 0; i < WEIR_DRA_STREAMS_MAX; i++) {
        if (dra->streams[i] && (stops || weir_grpc_has_gone(dra->streams[i]))) {
            weir_grpc_end(dra->streams[i], WEIR_GRPC_OK, "");
            dra->streams[i] = NULL;
        }
    }
    if (node.host_is_up == dra->told_up && dra->told_ns != 0 && now_ns - dra->told_ns < HEALTH_NS) {
        return;
    }
    dra->told_up = node.host_is_up;
    dra->told_ns = now_ns;
    for (int i = 0; i < WEIR_DRA_STREAMS_MAX; i++) {
        if (dra->streams[i]) {
            tell_health(&node, dra->streams[i]);
        }
    }
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

/*
 * The device plugin, for clusters without dynamic resource allocation: each GPU has a number of
 * slots, which kubelet counts as a resource weir.dev/gpu. A slot is a permanent tenant with its
 * part of the GPU's memory, and has a record like a claim.
 *
 * The plugin registers with kubelet. kubelet empties the folder of sockets when it starts; then the
 * plugin listens and registers again.
 */
#include "kubernetes/dra.h"

#include "base/log.h"
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESOURCE   "weir.dev/gpu"
#define ENDPOINT   "weir.sock"
#define SERVICE    "/v1beta1.DevicePlugin/"
#define REGISTER   "http://kubelet/v1beta1.Registration/Register"
#define LOOK_US    (500 * 1000)
#define TIMEOUT_S  10L
#define HEAD_BYTES 5u /* of a gRPC message (grpc.c) */

const char weir_plugin_endpoint[] = "device-plugins/" ENDPOINT;

void weir_plugin_slots(struct weir_dra *dra)
{
    const struct weir_kube_node node = dra->node; /* only this thread changes the used members */
    json_t *wanted;

    for (uint32_t i = 0; (wanted = weir_kube_slot_record(&node, i)); i++) {
        const char *uid = json_string_value(json_object_get(wanted, "uid"));
        json_t *there = weir_records_get(dra->state_dir, uid);
        struct weir_diag diag = {0};

        if (!json_equal(wanted, there) && /* first remove the slot's old tenant, if any */
            (weir_dra_tenant_remove(dra, uid, &diag) != WEIR_OK ||
             !weir_records_put(dra->state_dir, wanted) ||
             weir_dra_tenant_make(dra, wanted, &diag) != WEIR_OK)) {
            weir_log_error("weir-dra: no slot can be made slot=%s files=%s why=\"%s\"", uid,
                           dra->state_dir, diag.message);
        }
        json_decref(there);
        json_decref(wanted);
    }
}

/* ---------------------------------------------------------------- what kubelet asks */

static enum weir_grpc_code on_options(void *user, struct weir_grpc_call *call,
                                      const uint8_t *message, size_t bytes)
{
    (void)user;
    (void)message;
    (void)bytes;
    return weir_grpc_send(call, NULL, 0) ? WEIR_GRPC_OK : WEIR_GRPC_INTERNAL;
}

static bool tell_slots(const struct weir_kube_node *node, struct weir_grpc_call *call)
{
    struct weir_pb list = {0};
    char name[WEIR_KUBE_DEVICE_BYTES];

    for (uint32_t i = 0; weir_kube_device_name(node, i, name); i++) {
        size_t slot = weir_pb_open(&list, 1);

        weir_pb_text(&list, 1, name);
        weir_pb_text(&list, 2, node->host_is_up ? "Healthy" : "Unhealthy");
        weir_pb_close(&list, slot);
    }
    return weir_dra_send(call, &list);
}

static enum weir_grpc_code on_list(void *user, struct weir_grpc_call *call, const uint8_t *message,
                                   size_t bytes)
{
    (void)message;
    (void)bytes;
    return weir_dra_watch(user, call, tell_slots);
}

/* Add what a container gets to the answer. @return false: it does not ask for one existing slot */
static bool put_container(struct weir_dra *dra, const struct weir_pb_field *container,
                          struct weir_pb *answer)
{
    struct weir_pb_reader reader = {container->data, container->data + container->bytes,
                                    !container->data};
    struct weir_pb_field field;
    char slot[WEIR_KUBE_DEVICE_BYTES] = "", cdi[96];
    size_t entry, device;
    int n = 0;

    while (weir_pb_next(&reader, &field)) {
        n += field.number == 1 && weir_pb_copy(&field, slot, sizeof slot);
    }
    json_t *record = n == 1 && !reader.bad ? weir_records_get(dra->state_dir, slot) : NULL;
    if (record) {
        snprintf(cdi, sizeof cdi, WEIR_DRA_CDI WEIR_KUBE_TENANT "%s", slot);
        entry = weir_pb_open(answer, 1);
        device = weir_pb_open(answer, 5);
        weir_pb_text(answer, 1, cdi);
        weir_pb_close(answer, device);
        weir_pb_close(answer, entry);
    }
    json_decref(record);
    return record;
}

static enum weir_grpc_code on_allocate(void *user, struct weir_grpc_call *call,
                                       const uint8_t *message, size_t bytes)
{
    struct weir_pb_reader reader = {message, message + bytes, false};
    struct weir_pb_field field;
    struct weir_pb answer = {0};
    bool good = true;

    while (good && weir_pb_next(&reader, &field)) {
        good = field.number != 1 || put_container(user, &field, &answer);
    }
    if (!good || reader.bad) {
        free(answer.data);
        return weir_grpc_refuse(call, "a container has one " RESOURCE ", not several");
    }
    return weir_dra_send(call, &answer) ? WEIR_GRPC_OK : WEIR_GRPC_INTERNAL;
}

static const struct weir_grpc_method methods[] = {
    {SERVICE "GetDevicePluginOptions", on_options},
    {SERVICE "ListAndWatch", on_list},
    {SERVICE "Allocate", on_allocate},
    {NULL, NULL},
};

/* ---------------------------------------------------------------- registration */

static size_t ignore(char *data, size_t size, size_t n, void *user)
{
    (void)data;
    (void)user;
    return size * n;
}

/* Register with kubelet, which calls back before it answers. @return did kubelet accept? */
static bool say_register(const char *kubelet)
{
    uint8_t frame[HEAD_BYTES + 100] = {0};
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/grpc");
    struct curl_header *status = NULL;
    struct weir_pb request = {0};
    CURL *curl = curl_easy_init();
    bool good = false;

    weir_pb_text(&request, 1, "v1beta1");
    weir_pb_text(&request, 2, ENDPOINT);
    weir_pb_text(&request, 3, RESOURCE);
    if (curl && !request.failed && request.bytes <= sizeof frame - HEAD_BYTES) {
        memcpy(frame + HEAD_BYTES, request.data, request.bytes);
        frame[HEAD_BYTES - 1] = (uint8_t)request.bytes;
        headers = curl_slist_append(headers, "TE: trailers");
        curl_easy_setopt(curl, CURLOPT_URL, REGISTER);
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, kubelet);
        curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, frame);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)(HEAD_BYTES + request.bytes));
        curl_easy_setopt(curl, CURLOPT_TIMEOUT, TIMEOUT_S);
        curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
        good = curl_easy_perform(curl) == CURLE_OK &&
               curl_easy_header(curl, "grpc-status", 0, CURLH_TRAILER | CURLH_HEADER, -1,
                                &status) == CURLHE_OK &&
               strcmp(status->value, "0") == 0;
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    free(request.data);
    return good;
}

/* Identify a file for as long as it exists; 0: there is none. */
static ino_t inode_of(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? info.st_ino : 0;
}

void *weir_plugin_thread(void *user)
{
    struct weir_dra *dra = user;
    char kubelet[120];
    ino_t known = 0;
    int fd = -1;

    snprintf(kubelet, sizeof kubelet, "%s/device-plugins/kubelet.sock", dra->kubelet);
    pthread_mutex_lock(&dra->lock);
    while (!dra->node.host_is_up) { /* once it is up, its tenants exist */
        pthread_cond_wait(&dra->changed, &dra->lock);
    }
    pthread_mutex_unlock(&dra->lock);
    for (;; (void)usleep(LOOK_US)) {
        ino_t there = inode_of(kubelet);

        if (there == 0 || (there == known && inode_of(dra->endpoint) != 0)) {
            continue;
        }
        if (fd >= 0) {
            (void)shutdown(fd, SHUT_RDWR);
            fd = -1;
        }
        if (weir_grpc_listen(dra->endpoint, methods, dra, &fd) == WEIR_OK &&
            say_register(kubelet)) {
            weir_log_info("weir-dra: kubelet has registered the device plugin");
            known = there;
        } else {
            weir_log_warn("weir-dra: kubelet does not take the device plugin socket=%s", kubelet);
        }
    }
    return NULL;
}

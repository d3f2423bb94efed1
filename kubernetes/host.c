/*
 * Follows the Weir host through its admin socket, and reads its events to notice its end at once.
 * Each time a host comes up, its tenants are compared with the claims' files: a claim that lacks a
 * tenant gets it, and a tenant whose claim has no file is removed.
 */
#include "kubernetes/dra.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/config/control.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX    16
#define TENANT_BYTES 64
#define AGAIN_NS     (250 * WEIR_NS_PER_MS)

static const char *tenant_of(const char *uid, char tenant[TENANT_BYTES])
{
    snprintf(tenant, TENANT_BYTES, WEIR_KUBE_TENANT "%s", uid);
    return tenant;
}

/* Send a request to the host, and get the reason if it refuses. */
static enum weir_status ask(struct weir_dra *dra, const char *const *words, size_t n_words,
                            struct weir_diag *diag)
{
    struct weir_status_report *report = NULL;
    enum weir_status status = weir_control_ask(dra->run_dir, words, n_words, -1, &report);

    if (status != WEIR_OK) {
        weir_diag_set(diag, 0, 0, "the Weir host of this node: %s", weir_status_text(status));
        return status == WEIR_ERR_INVALID ? WEIR_ERR_PEER : status;
    }
    for (size_t i = 0; i < report->n_notes; i++) {
        if (strcmp(report->notes[i].kind, "error") == 0) {
            weir_diag_set(diag, 0, 0, "the Weir host refuses: %.160s", report->notes[i].text);
            status = WEIR_ERR_INVALID;
        }
    }
    weir_status_report_destroy(report);
    return status;
}

enum weir_status weir_dra_tenant_make(struct weir_dra *dra, const json_t *record,
                                      struct weir_diag *diag)
{
    const json_t *settings = json_object_get(record, "words");
    const char *words[WORDS_MAX] = {"tenant", "keep"};
    char tenant[TENANT_BYTES];
    size_t n = 2;

    words[n++] = tenant_of(json_string_value(json_object_get(record, "uid")), tenant);
    for (size_t i = 0; i < json_array_size(settings) && n < WORDS_MAX; i++) {
        const char *word = json_string_value(json_array_get(settings, i));

        words[n++] = word ? word : ""; /* an invalid file: the host refuses the empty word */
    }
    enum weir_status status = ask(dra, words, n, diag);
    return status == WEIR_ERR_INVALID && strstr(diag->message, "already") ? WEIR_OK : status;
}

enum weir_status weir_dra_tenant_remove(struct weir_dra *dra, const char *uid,
                                        struct weir_diag *diag)
{
    char tenant[TENANT_BYTES];
    const char *const words[] = {"tenant", "remove", tenant_of(uid, tenant)};
    enum weir_status status = ask(dra, words, 3, diag);

    return status == WEIR_ERR_INVALID && strstr(diag->message, "there is no tenant") ? WEIR_OK
                                                                                     : status;
}

/* ---------------------------------------------------------------- when a host has come up */

/* Make the tenant of a prepared claim, if the host has lost it. */
static void restore(struct weir_dra *dra, const struct weir_status_report *report, const char *uid)
{
    struct weir_dra_busy busy;
    struct weir_diag diag = {0};
    char tenant[TENANT_BYTES];

    for (size_t i = 0; i < report->n_tenants; i++) {
        if (strcmp(report->tenants[i].name, tenant_of(uid, tenant)) == 0) {
            return;
        }
    }
    weir_dra_claim_lock(dra, &busy, uid);
    json_t *record = weir_records_get(dra->state_dir, uid);
    if (record && weir_dra_tenant_make(dra, record, &diag) == WEIR_OK) {
        weir_log_info("weir-dra: a share is there again tenant=%s", tenant);
    } else if (record) {
        weir_log_error("weir-dra: a share cannot be made again tenant=%s why=\"%s\"", tenant,
                       diag.message);
    }
    json_decref(record);
    weir_dra_claim_unlock(dra, &busy);
}

/* Remove a tenant whose claim has no file any more. */
static void clear(struct weir_dra *dra, const struct weir_status_tenant *row)
{
    size_t head = strlen(WEIR_KUBE_TENANT);
    struct weir_dra_busy busy;
    struct weir_diag diag = {0};

    if (strcmp(row->source, "kept") != 0 || strncmp(row->name, WEIR_KUBE_TENANT, head) != 0 ||
        !weir_kube_uid_ok(row->name + head)) {
        return;
    }
    weir_dra_claim_lock(dra, &busy, row->name + head);
    json_t *record = weir_records_get(dra->state_dir, row->name + head);
    if (!record && weir_dra_tenant_remove(dra, row->name + head, &diag) == WEIR_OK) {
        weir_log_info("weir-dra: removed the share of a claim that is gone tenant=%s", row->name);
    }
    json_decref(record);
    weir_dra_claim_unlock(dra, &busy);
}

/* Is a record of this program's mode, slots or claims? A claim's uid does not begin with "gpu". */
static bool belongs(const struct weir_dra *dra, const char *uid)
{
    char name[WEIR_KUBE_DEVICE_BYTES];
    bool is_slot = false;

    for (uint32_t i = 0; !is_slot && weir_kube_device_name(&dra->node, i, name); i++) {
        is_slot = strcmp(name, uid) == 0;
    }
    return dra->is_plugin ? is_slot : strncmp(uid, "gpu", 3) != 0;
}

static void compare(struct weir_dra *dra, const struct weir_status_report *report)
{
    json_t *uids, *uid;
    size_t i;

    if (dra->is_plugin) {
        weir_plugin_slots(dra);
    }
    uids = weir_records_list(dra->state_dir);
    json_array_foreach(uids, i, uid)
    {
        if (belongs(dra, json_string_value(uid))) {
            restore(dra, report, json_string_value(uid));
        } else { /* of the other mode, or of a run with more slots */
            (void)weir_records_remove(dra->state_dir, json_string_value(uid));
        }
    }
    json_decref(uids);
    for (i = 0; i < report->n_tenants; i++) {
        clear(dra, &report->tenants[i]);
    }
}

/* Take over the GPUs that the host reports, and have the slice published again if other claims
 * have come or gone. @return false: the host does not know its GPUs yet */
static bool take_gpus(struct weir_dra *dra, const struct weir_status_report *report)
{
    struct weir_kube_node *node = &dra->node;
    uint32_t n = 0;

    WEIR_LOCKED(&dra->lock);
    for (size_t i = 0; i < report->n_devices && n < WEIR_KUBE_GPUS_MAX; i++) {
        const struct weir_status_device *row = &report->devices[i];
        struct weir_kube_gpu *gpu = &node->gpus[n];

        if (row->promise_bytes == 0) {
            continue;
        }
        if (gpu->n_shares != row->shares && row->context_bytes != 0 && node->slots == 0) {
            dra->wishes++;
            pthread_cond_broadcast(&dra->changed);
        }
        *gpu = (struct weir_kube_gpu){.ordinal = row->ordinal,
                                      .memory_bytes = row->promise_bytes,
                                      .context_bytes = row->context_bytes,
                                      .n_shares = row->shares};
        snprintf(gpu->uuid, sizeof gpu->uuid, "%s", row->uuid);
        snprintf(gpu->product, sizeof gpu->product, "%.64s", row->name); /* as long as allowed */
        n++;
    }
    node->n_gpus = n != 0 ? n : node->n_gpus;
    return n != 0;
}

static void set_up(struct weir_dra *dra, bool up)
{
    WEIR_LOCKED(&dra->lock);
    if (dra->node.host_is_up != up) {
        dra->node.host_is_up = up;
        dra->wishes++;                         /* new GPUs, or taints */
        pthread_cond_broadcast(&dra->changed); /* wakes the threads that report health, too */
        if (up) {
            weir_log_info("weir-dra: the Weir host is there gpus=%u", dra->node.n_gpus);
        } else {
            weir_log_warn("weir-dra: the Weir host is down");
        }
    }
}

/* Tenants that come or go change what the slice says. The host tells events that it still keeps
 * again, so the last one is remembered. */
static bool wants_more(void *user, const struct weir_status_event *event)
{
    uint64_t *seen = user;
    bool is_new = event->number > *seen;

    *seen = is_new ? event->number : *seen;
    return !is_new ||
           (strcmp(event->kind, "tenant-added") != 0 && strcmp(event->kind, "tenant-removed") != 0);
}

void *weir_dra_host_thread(void *user)
{
    struct weir_dra *dra = user;
    uint64_t pid = 0, seen = 0; /* the host's, and its last event; 0: none */

    for (;; (void)usleep(AGAIN_NS / WEIR_NS_PER_US)) {
        struct weir_status_report *report = NULL;
        bool up = weir_control_status(dra->run_dir, &report) == WEIR_OK;

        if (up && take_gpus(dra, report)) {
            if (report->pid != pid) {
                compare(dra, report);
                seen = 0;
            }
            set_up(dra, true);
            /* Until tenants come or go, or the host ends, whose successor may have its pid. */
            pid = weir_control_follow(dra->run_dir, wants_more, &seen) == WEIR_OK ? report->pid : 0;
        } else if (!up) {
            pid = 0;
            set_up(dra, false);
        }
        weir_status_report_destroy(report);
    }
    return NULL;
}

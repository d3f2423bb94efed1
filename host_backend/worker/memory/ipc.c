/* Memory and events that processes of a tenant share. */
#include "host_backend/worker/memory/ipc.h"

#include "base/log.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(CUipcEventHandle) == WEIR_ENTRY_VALUE_BYTES, "an entry has room for it");

/* ---------------------------------------------------------------- memory */

static CUresult publish_fd(struct weir_tenant *tenant, CUmemGenericAllocationHandle memory,
                           int file, const struct weir_link_entry *entry)
{
    const struct weir_platform *platform = weir_worker_platform(tenant->worker);
    int fd;

    if (entry->device == WEIR_ENTRY_ON_HOST) {
        return weir_directory_publish(tenant, entry, file);
    }
    WEIR_FAIL_IF(!platform->posix_fds, CUDA_ERROR_NOT_SUPPORTED);
    WEIR_TRY(platform->driver.cuMemExportToShareableHandle(
        &fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUresult result = weir_directory_publish(tenant, entry, fd);
    close(fd);
    return result;
}

/* Does the supervisor take the charge of this item over with the entry? */
static bool is_passed_on(enum weir_account_item item, const struct weir_link_entry *entry)
{
    return entry->device == WEIR_ENTRY_ON_HOST ? item == WEIR_ACCOUNT_PINNED_MEMORY
                                               : weir_account_is_device_memory(item);
}

CUresult weir_ipc_memory_publish(struct weir_tenant *tenant, CUmemGenericAllocationHandle memory,
                                 int file, struct weir_link_entry *entry,
                                 struct weir_amounts *charged)
{
    entry->kind = WEIR_ENTRY_MEMORY;
    WEIR_FAIL_IF(!weir_directory_new_key(entry->key), CUDA_ERROR_OPERATING_SYSTEM);
    CUresult result = publish_fd(tenant, memory, file, entry);
    /* The worker is ending if no answer comes; then the supervisor settles its charges. */
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEVICE_UNAVAILABLE) {
        for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++) {
            if (is_passed_on((enum weir_account_item)i, entry)) {
                weir_account_passed_on(&tenant->account, (enum weir_account_item)i, charged->of[i]);
                charged->of[i] = 0;
            }
        }
    }
    return result;
}

/* Replace an entry for a descriptor by one for the memory that the descriptor stands for. */
static void name_memory(struct weir_link_entry *entry)
{
    if (entry->kind == WEIR_ENTRY_DESCRIPTOR) {
        entry->kind = WEIR_ENTRY_MEMORY;
        memcpy(entry->key, entry->value, sizeof entry->key);
    }
}

CUresult weir_ipc_memory_import(struct weir_tenant *tenant, struct weir_link_entry *entry,
                                CUmemGenericAllocationHandle *ret_memory, int *ret_file)
{
    const struct weir_platform *platform = weir_worker_platform(tenant->worker);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    int fd;

    WEIR_TRY(weir_directory_find(tenant, entry, &fd));
    name_memory(entry);
    if (entry->device == WEIR_ENTRY_ON_HOST && ret_file) {
        *ret_file = fd;
        return CUDA_SUCCESS;
    }
    if (entry->device < platform->n_devices) {
        result = weir_worker_device_open(tenant->worker, entry->device);
        result = result == CUDA_SUCCESS ? platform->driver.cuMemImportFromShareableHandle(
                                              ret_memory, (void *)(intptr_t)fd,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
                                        : result;
    }
    close(fd);
    if (result != CUDA_SUCCESS) {
        weir_log_warn("ipc: memory of another worker is not to be had tenant=%s result=%d",
                      tenant->name, (int)result);
        weir_directory_withdraw(tenant, WEIR_ENTRY_MEMORY, entry->key);
    }
    return result;
}

/* ---------------------------------------------------------------- events */

/* softgpu needs a file for each event that other processes may open. */
static struct weir_amounts cost_of_event(const struct weir_tenant *tenant)
{
    bool has_file = weir_directory_is_used(tenant) && !weir_worker_platform(tenant->worker)->real;

    return (struct weir_amounts){.of = {[WEIR_ACCOUNT_DESCRIPTORS] = has_file}};
}

static CUresult new_event(struct weir_session *session, struct weir_ipc_event **ret_event)
{
    struct weir_amounts cost = cost_of_event(session->tenant);

    WEIR_TRY(weir_tenant_charge(session->tenant, &cost));
    struct weir_ipc_event *event = calloc(1, sizeof *event);
    if (!event) {
        weir_account_release_all(&session->tenant->account, &cost);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->charged = cost;
    event->refs = 1;
    *ret_event = event;
    return CUDA_SUCCESS;
}

static void free_event(struct weir_session *session, struct weir_ipc_event *event)
{
    weir_account_release_all(&session->tenant->account, &event->charged);
    free(event);
}

/* Sessions of one worker share a context, so they need no interprocess event of the driver. */
static unsigned native_flags(const struct weir_tenant *tenant)
{
    return CU_EVENT_DISABLE_TIMING |
           (weir_directory_is_used(tenant) ? (unsigned)CU_EVENT_INTERPROCESS : 0);
}

CUresult weir_ipc_event_create(struct weir_session *session, struct weir_ipc_event **ret_event)
{
    struct weir_ipc_event *event;

    WEIR_TRY(new_event(session, &event));
    CUresult result = session->driver->cuEventCreate(&event->native, native_flags(session->tenant));
    if (result != CUDA_SUCCESS) {
        free_event(session, event);
        return result;
    }
    *ret_event = event;
    return CUDA_SUCCESS;
}

static CUresult publish_event(struct weir_session *session, struct weir_ipc_event *event)
{
    struct weir_link_entry entry = {.kind = WEIR_ENTRY_EVENT};
    CUipcEventHandle handle;

    WEIR_TRY(session->driver->cuIpcGetEventHandle(&handle, event->native));
    memcpy(entry.key, event->key, sizeof entry.key);
    memcpy(entry.value, &handle, sizeof entry.value);
    WEIR_TRY(weir_directory_publish(session->tenant, &entry, -1));
    event->is_published = true;
    return CUDA_SUCCESS;
}

/* List the event, so that sessions of this worker find it. */
static void enter_event(struct weir_tenant *tenant, struct weir_ipc_event *event)
{
    WEIR_LOCKED(&tenant->lock);
    event->has_key = true;
    WEIR_PUSH(tenant->events, event);
}

CUresult weir_ipc_event_share(struct weir_session *session, struct weir_ipc_event *event)
{
    if (event->has_key) {
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(!weir_directory_new_key(event->key), CUDA_ERROR_OPERATING_SYSTEM);
    if (weir_directory_is_used(session->tenant)) {
        WEIR_TRY(publish_event(session, event));
    }
    enter_event(session->tenant, event);
    return CUDA_SUCCESS;
}

static struct weir_ipc_event *find_event(struct weir_tenant *tenant, const uint8_t *key)
{
    struct weir_ipc_event *event;

    WEIR_LOCKED(&tenant->lock);
    for (event = tenant->events; event; event = event->next) {
        if (memcmp(event->key, key, sizeof event->key) == 0) {
            event->refs++;
            break;
        }
    }
    return event;
}

static CUresult import_event(struct weir_session *session, const uint8_t *key,
                             struct weir_ipc_event **ret_event)
{
    struct weir_link_entry entry = {.kind = WEIR_ENTRY_EVENT};
    struct weir_ipc_event *event;
    CUipcEventHandle handle;
    int no_fd;

    memcpy(entry.key, key, sizeof entry.key);
    WEIR_TRY(weir_directory_find(session->tenant, &entry, &no_fd));
    WEIR_TRY(new_event(session, &event));
    memcpy(&handle, entry.value, sizeof handle);
    CUresult result = session->driver->cuIpcOpenEventHandle(&event->native, handle);
    if (result != CUDA_SUCCESS) {
        free_event(session, event);
        return result;
    }
    memcpy(event->key, key, sizeof event->key);
    enter_event(session->tenant, event);
    *ret_event = event;
    return CUDA_SUCCESS;
}

CUresult weir_ipc_event_open(struct weir_session *session, const uint8_t key[WEIR_ENTRY_KEY_BYTES],
                             struct weir_ipc_event **ret_event)
{
    *ret_event = find_event(session->tenant, key);
    if (*ret_event) {
        return CUDA_SUCCESS;
    }
    return weir_directory_is_used(session->tenant) ? import_event(session, key, ret_event)
                                                   : CUDA_ERROR_INVALID_VALUE;
}

static void leave_locked(struct weir_tenant *tenant, const struct weir_ipc_event *event)
{
    WEIR_UNLINK(tenant->events, event, next);
}

CUresult weir_ipc_event_put(struct weir_session *session, struct weir_ipc_event *event)
{
    struct weir_tenant *tenant = session->tenant;

    pthread_mutex_lock(&tenant->lock);
    bool is_last = --event->refs == 0;
    if (is_last) {
        leave_locked(tenant, event);
    }
    pthread_mutex_unlock(&tenant->lock);
    if (!is_last) {
        return CUDA_SUCCESS;
    }
    if (event->is_published) {
        weir_directory_withdraw(tenant, WEIR_ENTRY_EVENT, event->key);
    }
    CUresult result = session->driver->cuEventDestroy_v2(event->native);
    free_event(session, event);
    return result;
}

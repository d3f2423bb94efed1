/*
 * Descriptors that stand for memory or for a pool, for other processes of the tenant.
 *
 * The guest has one end of a socket pair; a random token is in its buffer and can be peeked at. The
 * worker holds the other end, to which nothing can be sent: a descriptor in its buffer would stay
 * open, and could be the guest's own end. When the last copy of the guests' end is closed, in any
 * process, ours reports a hang-up: the main thread sees it through one epoll descriptor and drops
 * the reference. A guest that shuts its end down, or reads the token, harms only its own tenant.
 *
 * Where the tenant has other workers, the supervisor gets a copy of our end and watches it, too: so
 * the descriptor outlives this worker.
 */
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/state/tenant.h"

#include "host_backend/worker/memory/ipc.h"
#include "host_backend/worker/state/session.h"
#include "proto/wire/export.h"
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_AT 64

/* Our end. */
static const struct weir_amounts cost = {.of = {[WEIR_ACCOUNT_DESCRIPTORS] = 1}};

struct weir_export {
    struct weir_export *next; /* list of the tenant, under the tenant's lock */
    struct weir_tenant *tenant;
    int fd;                       /* our end of the connection */
    struct weir_vmm_alloc *alloc; /* a reference; NULL: the export is of a pool */
    uint8_t name[16];
    uint8_t token[WEIR_EXPORT_TOKEN_BYTES];
};

static void free_export(struct weir_export *export)
{
    /* The supervisor may have a copy, so that close() would not remove it from the set. */
    (void)epoll_ctl(weir_directory_watch_fd(export->tenant->worker), EPOLL_CTL_DEL, export->fd,
                    NULL);
    close(export->fd);
    weir_account_release_all(&export->tenant->account, &cost);
    if (export->alloc) {
        weir_vmm_alloc_put(export->alloc);
    }
    free(export);
}

/* Make the pair, with the token in it; our end is export->fd. */
static bool open_pair(struct weir_export *export, int *ret_guest_fd)
{
    struct weir_export_message message = {.magic = WEIR_EXPORT_MAGIC};
    int pair[2];

    memcpy(message.token, export->token, sizeof message.token);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        return false;
    }
    if (send(pair[0], &message, sizeof message, MSG_NOSIGNAL) != (ssize_t)sizeof message ||
        shutdown(pair[0], SHUT_RD) != 0) {
        close(pair[0]);
        close(pair[1]);
        return false;
    }
    export->fd = pair[0];
    *ret_guest_fd = pair[1];
    return true;
}

/* List an export. The worker's first one makes the epoll set that the main thread watches. */
static bool enter(struct weir_export *export)
{
    struct weir_tenant *t = export->tenant;
    struct epoll_event event = {.events = 0, .data = {.ptr = export}}; /* hang-up is always seen */
    bool ok = false;

    WEIR_LOCKED(&t->lock);
    if (epoll_ctl(weir_directory_watch_fd(t->worker), EPOLL_CTL_ADD, export->fd, &event) == 0) {
        WEIR_PUSH(t->exports, export);
        if (export->alloc) {
            export->alloc->refs++;
            export->alloc->seen = true;
        }
        ok = true;
    }
    return ok;
}

/* Publish memory once, however many sessions of this worker export it. */
static CUresult publish_alloc(struct weir_tenant *tenant, struct weir_vmm_alloc *alloc)
{
    struct weir_link_entry entry = {.device = alloc->on_host ? WEIR_ENTRY_ON_HOST : alloc->device,
                                    .bytes = alloc->bytes,
                                    .handle_types = alloc->handle_types};

    if (alloc->published) {
        return CUDA_SUCCESS;
    }
    WEIR_TRY(weir_ipc_memory_publish(tenant, alloc->memory, alloc->file, &entry, &alloc->charged));
    memcpy(alloc->key, entry.key, sizeof alloc->key);
    alloc->published = true;
    return CUDA_SUCCESS;
}

static CUresult publish_locked(const struct weir_export *export)
{
    struct weir_link_entry entry = {.kind = WEIR_ENTRY_POOL};

    memcpy(entry.key, export->token, sizeof export->token);
    memcpy(entry.value, export->name, sizeof export->name);
    if (export->alloc) {
        WEIR_TRY(publish_alloc(export->tenant, export->alloc));
        entry.kind = WEIR_ENTRY_DESCRIPTOR;
        memcpy(entry.value, export->alloc->key, sizeof export->alloc->key);
    }
    return weir_directory_publish(export->tenant, &entry, export->fd);
}

static CUresult publish(const struct weir_export *export)
{
    CUresult result = CUDA_SUCCESS;

    if (weir_directory_is_used(export->tenant)) {
        pthread_mutex_lock(&export->tenant->publishing);
        result = publish_locked(export);
        pthread_mutex_unlock(&export->tenant->publishing);
    }
    return result;
}

/* Make an export of charged memory, and list it. */
static CUresult create(struct weir_tenant *tenant, struct weir_vmm_alloc *alloc,
                       const uint8_t name[16], int *ret_fd)
{
    struct weir_export *export = calloc(1, sizeof *export);

    WEIR_FAIL_IF(!export, CUDA_ERROR_OUT_OF_MEMORY);
    export->tenant = tenant;
    export->alloc = alloc;
    memcpy(export->name, name, sizeof export->name);
    if (getrandom(export->token, sizeof export->token, 0) != (ssize_t)sizeof export->token ||
        !open_pair(export, ret_fd)) {
        free(export);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    CUresult result = publish(export);
    if (result == CUDA_SUCCESS && !enter(export)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        close(*ret_fd); /* closing this end makes the supervisor's end hang up */
        close(export->fd);
        free(export);
    }
    return result;
}

CUresult weir_export_create(struct weir_tenant *tenant, struct weir_vmm_alloc *alloc,
                            const uint8_t name[16], int *ret_fd)
{
    WEIR_TRY(weir_tenant_charge(tenant, &cost));
    CUresult result = create(tenant, alloc, name, ret_fd);
    if (result != CUDA_SUCCESS) {
        weir_account_release_all(&tenant->account, &cost);
    }
    return result;
}

static struct weir_export *find_locked(struct weir_tenant *t, const uint8_t token[16])
{
    struct weir_export *found = NULL;

    for (struct weir_export *s = t->exports; s; s = s->next) {
        unsigned differ = 0;

        for (size_t i = 0; i < sizeof s->token; i++) {
            differ |= (unsigned)(s->token[i] ^ token[i]);
        }
        if (differ == 0) {
            found = s;
        }
    }
    return found;
}

CUresult weir_export_find_alloc(struct weir_tenant *tenant, const uint8_t token[16],
                                struct weir_vmm_alloc **ret_alloc)
{
    struct weir_vmm_alloc *alloc = NULL;

    pthread_mutex_lock(&tenant->lock);
    const struct weir_export *export = find_locked(tenant, token);
    if (export && export->alloc) {
        alloc = export->alloc;
        alloc->refs++;
    }
    pthread_mutex_unlock(&tenant->lock);
    if (alloc) {
        *ret_alloc = alloc;
        return CUDA_SUCCESS;
    }
    return weir_directory_is_used(tenant) ? weir_vmm_alloc_import(tenant, token, ret_alloc)
                                          : CUDA_ERROR_INVALID_VALUE;
}

/* Find the name of a pool of another worker. */
static CUresult find_name_elsewhere(struct weir_tenant *tenant, const uint8_t token[16],
                                    uint8_t ret_name[16])
{
    struct weir_link_entry entry = {.kind = WEIR_ENTRY_POOL};
    int no_fd;

    WEIR_FAIL_IF(!weir_directory_is_used(tenant), CUDA_ERROR_INVALID_VALUE);
    memcpy(entry.key, token, WEIR_EXPORT_TOKEN_BYTES);
    WEIR_TRY(weir_directory_find(tenant, &entry, &no_fd));
    memcpy(ret_name, entry.value, 16);
    return CUDA_SUCCESS;
}

CUresult weir_export_find_name(struct weir_tenant *tenant, const uint8_t token[16],
                               uint8_t ret_name[16])
{
    pthread_mutex_lock(&tenant->lock);
    const struct weir_export *export = find_locked(tenant, token);
    bool found = export && !export->alloc;
    if (found) {
        memcpy(ret_name, export->name, sizeof export->name);
    }
    pthread_mutex_unlock(&tenant->lock);
    return found ? CUDA_SUCCESS : find_name_elsewhere(tenant, token, ret_name);
}

void weir_exports_look(struct weir_worker *worker)
{
    struct epoll_event events[LOOK_AT];
    int n = epoll_wait(weir_directory_watch_fd(worker), events, LOOK_AT, 0);

    for (int i = 0; i < n; i++) {
        struct weir_export *export = events[i].data.ptr;
        struct weir_tenant *t = export->tenant;

        pthread_mutex_lock(&t->lock);
        WEIR_UNLINK(t->exports, export, next);
        pthread_mutex_unlock(&t->lock);
        free_export(export);
    }
}

void weir_exports_drop_all(struct weir_tenant *tenant)
{
    for (struct weir_export *export; (export = WEIR_POP(tenant->exports));) {
        free_export(export);
    }
}

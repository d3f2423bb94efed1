/*
 * Descriptors that stand for memory or for a pool, for other processes of the tenant.
 *
 * The guest has one end of a socket pair in which a random token waits to be peeked at; the worker
 * holds the other, to which nothing can be sent: a descriptor that waits in it would live on, and
 * could be the guest's own end. When the last copy of the guests' end is closed, in whatever
 * process, ours hangs up: the main thread sees it through one epoll descriptor and drops the
 * reference. A guest that shuts its end down, or eats the token, harms its own tenant alone.
 */
#include "host_backend/worker/session/vmm.h"

#include "base/log.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/session/worker.h"
#include "proto/wire/share.h"
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHARES_MAX 8192 /* a tenant: each is a descriptor of ours */
#define LOOK_AT    64

struct weir_share {
    struct weir_share *next; /* in the tenant, under its lock */
    struct weir_tenant *tenant;
    int fd;                       /* our end */
    struct weir_vmm_alloc *alloc; /* a reference; NULL: a pool */
    uint8_t name[16];
    uint8_t token[WEIR_SHARE_TOKEN_BYTES];
};

static void free_share(struct weir_share *share)
{
    close(share->fd);
    if (share->alloc != NULL) {
        weir_vmm_alloc_put(share->alloc);
    }
    free(share);
}

/* The pair, with the token in it; ours is share->fd. */
static bool open_pair(struct weir_share *share, int *ret_guest_fd)
{
    struct weir_share_message message = {.magic = WEIR_SHARE_MAGIC};
    int pair[2];

    memcpy(message.token, share->token, sizeof message.token);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        return false;
    }
    if (send(pair[0], &message, sizeof message, MSG_NOSIGNAL) != (ssize_t)sizeof message ||
        shutdown(pair[0], SHUT_RD) != 0) {
        close(pair[0]);
        close(pair[1]);
        return false;
    }
    share->fd = pair[0];
    *ret_guest_fd = pair[1];
    return true;
}

/* The worker's first share makes what the main thread looks at. */
static bool enter(struct weir_share *share)
{
    struct weir_tenant *t = share->tenant;
    struct epoll_event event = {.events = 0, .data = {.ptr = share}}; /* hang-up is always told */
    bool ok = false;

    pthread_mutex_lock(&t->lock);
    if (t->n_shares < SHARES_MAX &&
        epoll_ctl(t->worker->shares_fd, EPOLL_CTL_ADD, share->fd, &event) == 0) {
        share->next = t->shares;
        t->shares = share;
        t->n_shares++;
        if (share->alloc != NULL) {
            share->alloc->refs++;
        }
        ok = true;
    }
    pthread_mutex_unlock(&t->lock);
    return ok;
}

CUresult weir_share_create(struct weir_tenant *tenant, struct weir_vmm_alloc *alloc,
                           const uint8_t name[16], int *ret_fd)
{
    struct weir_share *share = calloc(1, sizeof *share);

    if (share == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    share->tenant = tenant;
    share->alloc = alloc;
    memcpy(share->name, name, sizeof share->name);
    if (getrandom(share->token, sizeof share->token, 0) != (ssize_t)sizeof share->token ||
        !open_pair(share, ret_fd)) {
        free(share);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (!enter(share)) {
        close(*ret_fd);
        close(share->fd);
        free(share);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static struct weir_share *find_locked(struct weir_tenant *t, const uint8_t token[16])
{
    struct weir_share *found = NULL;

    for (struct weir_share *s = t->shares; s != NULL; s = s->next) {
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

struct weir_vmm_alloc *weir_share_find_alloc(struct weir_tenant *tenant, const uint8_t token[16])
{
    struct weir_vmm_alloc *alloc = NULL;
    const struct weir_share *share;

    pthread_mutex_lock(&tenant->lock);
    share = find_locked(tenant, token);
    if (share != NULL && share->alloc != NULL) {
        alloc = share->alloc;
        alloc->refs++;
    }
    pthread_mutex_unlock(&tenant->lock);
    return alloc;
}

bool weir_share_find_name(struct weir_tenant *tenant, const uint8_t token[16], uint8_t ret_name[16])
{
    const struct weir_share *share;
    bool found;

    pthread_mutex_lock(&tenant->lock);
    share = find_locked(tenant, token);
    found = share != NULL && share->alloc == NULL;
    if (found) {
        memcpy(ret_name, share->name, sizeof share->name);
    }
    pthread_mutex_unlock(&tenant->lock);
    return found;
}

void weir_shares_look(struct weir_worker *worker)
{
    struct epoll_event events[LOOK_AT];
    int n = epoll_wait(worker->shares_fd, events, LOOK_AT, 0);

    for (int i = 0; i < n; i++) {
        struct weir_share *share = events[i].data.ptr;
        struct weir_tenant *t = share->tenant;

        pthread_mutex_lock(&t->lock);
        for (struct weir_share **at = &t->shares; *at != NULL; at = &(*at)->next) {
            if (*at == share) {
                *at = share->next;
                t->n_shares--;
                break;
            }
        }
        pthread_mutex_unlock(&t->lock);
        free_share(share); /* closing takes it out of the epoll set */
    }
}

void weir_shares_drop_all(struct weir_tenant *tenant)
{
    while (tenant->shares != NULL) {
        struct weir_share *share = tenant->shares;

        tenant->shares = share->next;
        free_share(share);
    }
    tenant->n_shares = 0;
}

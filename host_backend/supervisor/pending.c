/*
 * Connections of programs that have no worker yet: from their arrival until a worker gets them
 * (programs.c), or they are turned away. The supervisor looks at the hello and leaves it to the
 * worker to read.
 */
#include "host_backend/supervisor/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "proto/wire/accept.h"
#include "proto/wire/control.h"
#include "proto/wire/control_codec.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define TENANT_PENDING 64u /* connections of a tenant that wait, at most */
#define OUT_OF_MEMORY  2   /* CUDA_ERROR_OUT_OF_MEMORY */
#define UNKNOWN        999 /* CUDA_ERROR_UNKNOWN */

void weir_sup_pending_forget(struct weir_sup_pending *p)
{
    close(p->fd);
    *p = (struct weir_sup_pending){.fd = -1};
}

/* The guest is told, and so are the log, the counts and the events. */
static void refuse(struct weir_supervisor *sup, const struct weir_link_guest *guest, int fd,
                   enum weir_status reason, int32_t result, const char *why)
{
    struct weir_sup_tenant *tenant = &sup->tenants[guest->tenant_index];

    weir_log_limit_thread(weir_sup_log_rate(sup, tenant), tenant->config.name);
    weir_log_warn("supervisor: guest refused tenant=%s pid=%lld why=\"%s\"", tenant->config.name,
                  (long long)guest->pid, why);
    weir_log_limit_thread(NULL, NULL);
    tenant->refused.sessions++;
    weir_sup_event(sup,
                   &(struct weir_sup_event){.kind = WEIR_EVENT_SESSION_REFUSED,
                                            .tenant = tenant,
                                            .program = guest->program,
                                            .pid = (uint64_t)guest->pid},
                   "%s", why);
    weir_refuse(fd, reason, result, why);
}

void weir_sup_turn_away(struct weir_supervisor *sup, struct weir_sup_pending *p,
                        enum weir_status reason, int32_t result, const char *why)
{
    refuse(sup, &p->guest, p->fd, reason, result, why);
    weir_sup_pending_forget(p);
}

void weir_sup_pending_close(struct weir_supervisor *sup)
{
    for (size_t i = 0; i < WEIR_PENDING_MAX; i++) {
        if (sup->pending[i].used) { /* nobody serves now, so it need not try again */
            weir_sup_turn_away(sup, &sup->pending[i], WEIR_ERR_NOT_FOUND, UNKNOWN,
                               "the host is shutting down");
        }
    }
}

/* Look at the hello, which the worker will read. */
static void peek_hello(struct weir_supervisor *sup, struct weir_sup_pending *p)
{
    struct weir_hello *hello = NULL;
    uint8_t *bytes = malloc(WEIR_CONTROL_MAX_BYTES);
    ssize_t n =
        bytes == NULL ? -1 : recv(p->fd, bytes, WEIR_CONTROL_MAX_BYTES, MSG_PEEK | MSG_DONTWAIT);
    bool later = n < 0 && (bytes == NULL || errno == EAGAIN || errno == EINTR);

    if (n > 0 && weir_hello_decode(bytes, (size_t)n, &hello) == WEIR_OK) {
        p->said_hello = true;
        p->guest.start.hello_ns = weir_clock_now_ns();
        p->monitor = hello->monitor;
        p->connections = hello->monitor ? 0 : hello->wish.connections;
        p->sm_pct = hello->monitor ? 0 : hello->wish.sm_pct;
        weir_hello_destroy(hello);
    } else if (n > 0) {
        weir_sup_turn_away(sup, p, WEIR_ERR_PEER, UNKNOWN, "not a hello of this protocol");
    } else if (!later) {
        weir_sup_pending_forget(p);
    }
    free(bytes);
}

void weir_sup_program_arrived(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                              int fd, const struct weir_link_guest *guest)
{
    struct weir_sup_pending *free_slot = NULL;
    uint32_t n = 0;

    for (size_t i = 0; i < WEIR_PENDING_MAX; i++) {
        struct weir_sup_pending *p = &sup->pending[i];

        n += p->used && p->guest.tenant_index == tenant->index;
        free_slot = free_slot == NULL && !p->used ? p : free_slot;
    }
    if (free_slot == NULL || n >= TENANT_PENDING) {
        refuse(sup, guest, fd, WEIR_ERR_QUOTA, OUT_OF_MEMORY,
               n >= TENANT_PENDING ? "too many programs of the tenant wait for a worker"
                                   : "too many programs wait for a worker");
        close(fd);
        return;
    }
    *free_slot = (struct weir_sup_pending){
        .used = true, .fd = fd, .since_ns = weir_clock_now_ns(), .guest = *guest};
    free_slot->guest.start.arrived_ns = free_slot->since_ns;
    peek_hello(sup, free_slot); /* it may be there */
}

void weir_sup_pending_look(struct weir_supervisor *sup, struct weir_sup_pending *pending)
{
    if (!pending->said_hello) {
        peek_hello(sup, pending);
    } else {
        weir_sup_pending_forget(pending); /* only its end is waited for */
    }
}

/* ---------------------------------------------------------------- whose turn it is */

struct turn {
    uint16_t slot;
    uint16_t before; /* how many older ones its tenant has */
    uint64_t since_ns;
};

static int older_first(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;

    if (a->since_ns != b->since_ns) {
        return a->since_ns < b->since_ns ? -1 : 1;
    }
    return a->slot < b->slot ? -1 : a->slot > b->slot;
}

static int tenants_in_turn(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;

    return a->before != b->before ? (a->before < b->before ? -1 : 1) : older_first(left, right);
}

uint32_t weir_sup_pending_in_turn(const struct weir_supervisor *sup,
                                  uint16_t ret_slots[WEIR_PENDING_MAX])
{
    uint16_t n_of[WEIR_CONFIG_TENANTS_MAX] = {0};
    struct turn turns[WEIR_PENDING_MAX];
    uint32_t n = 0;

    for (uint32_t i = 0; i < WEIR_PENDING_MAX; i++) {
        if (sup->pending[i].used) {
            turns[n++] = (struct turn){.slot = (uint16_t)i, .since_ns = sup->pending[i].since_ns};
        }
    }
    qsort(turns, n, sizeof turns[0], older_first);
    for (uint32_t i = 0; i < n; i++) {
        turns[i].before = n_of[sup->pending[turns[i].slot].guest.tenant_index]++;
    }
    qsort(turns, n, sizeof turns[0], tenants_in_turn);
    for (uint32_t i = 0; i < n; i++) {
        ret_slots[i] = turns[i].slot;
    }
    return n;
}

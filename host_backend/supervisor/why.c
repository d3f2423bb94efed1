/*
 * Answers a tenant's question why its work waits (weir why).
 *
 * A client connects to a tenant's socket as a program does, and says in the hello that it wants no
 * session. So whoever may run programs as a tenant may ask about that tenant, and about no other.
 * The rest of the hello is not read. Since any user may ask, there are few connections, and fewer
 * for each holder. Workers are asked for their status ten times a second at most, and the
 * supervisor never waits for a client to read.
 *
 * The answer has the tenant's rows of a status. It names the other tenants for which the work
 * waited, if the operator wants that ([default] show_others).
 */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/watch/append.h"

#include "base/clock.h"
#include "host_backend/config/status_text.h"
#include "proto/cuda_abi.h"
#include "proto/wire/accept.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OF_HOLDER_MAX 4 /* part of WEIR_ASKERS_MAX for one holder */
#define ANSWER_NS     (5 * WEIR_NS_PER_S)
#define FRESH_NS      (100 * WEIR_NS_PER_MS) /* results that are this recent are used again */
#define PIECE_BYTES   (32u << 10)            /* fits into any socket's buffer */

static void forget(struct weir_sup_asker *asker)
{
    close(asker->fd);
    free(asker->text);
    *asker = (struct weir_sup_asker){.fd = -1};
}

/* Is this a guest's socket? A worker may have passed something else. */
static bool is_socket_of_guest(int fd)
{
    int domain = 0, type = 0;
    socklen_t bytes = sizeof domain;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET;
}

/* A place for another connection of the holder; NULL: there is none. */
static struct weir_sup_asker *find_place(struct weir_supervisor *sup, uint32_t holder)
{
    struct weir_sup_asker *place = NULL;
    uint32_t n = 0;

    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        struct weir_sup_asker *a = &sup->admin.askers[i];

        if (a->fd < 0) {
            place = a;
        } else {
            n += weir_sup_holder(&sup->tenants[a->tenant]) == holder;
        }
    }
    return n < OF_HOLDER_MAX ? place : NULL;
}

void weir_sup_asks_why(struct weir_supervisor *sup, uint32_t tenant, int fd)
{
    struct weir_sup_asker *place = find_place(sup, weir_sup_holder(&sup->tenants[tenant]));
    uint8_t hello;

    /* Read the hello: closing a socket with unread data would reset the connection, and lose the
     * answer. */
    (void)!recv(fd, &hello, sizeof hello, MSG_DONTWAIT);
    if (!is_socket_of_guest(fd) || !place) {
        weir_refuse(fd, WEIR_ERR_FULL, CUDA_ERROR_OUT_OF_MEMORY,
                    "too many ask why their work waits, try again");
        close(fd);
        return;
    }
    bool fresh = !sup->admin.gathering && weir_clock_now_ns() - sup->admin.gathered_ns <= FRESH_NS;
    *place = (struct weir_sup_asker){.fd = fd,
                                     .tenant = tenant,
                                     .generation = sup->tenants[tenant].generation,
                                     .gathering = fresh ? 0 : weir_sup_admin_gather(sup),
                                     .deadline_ns = weir_clock_now_ns() + ANSWER_NS};
}

/* ---------------------------------------------------------------- the answer */

/* Add rows of devices, without the values about other tenants, which only an operator may see. */
static void add_devices(const struct weir_supervisor *sup, struct weir_status_report *report)
{
    for (size_t i = 0; i < sup->admin.gathered.n_devices; i++) {
        const struct weir_status_device *d = &sup->admin.gathered.devices[i];
        struct weir_status_device row = *d;

        row.free_bytes = row.utilization_pct = row.temperature_c = row.power_w = NAN;
        row.sm_ns = 0;
        weir_sup_append((void **)&report->devices, &report->n_devices, &row, sizeof row);
    }
}

static void add_waits(const struct weir_supervisor *sup, const char *name,
                      struct weir_status_report *report)
{
    for (size_t i = 0; i < sup->admin.gathered.n_waits; i++) {
        struct weir_status_wait row = sup->admin.gathered.waits[i];

        if (strcmp(row.tenant, name) == 0) {
            if (row.other[0] != 0 && !sup->config.demand.show_others) {
                snprintf(row.other, sizeof row.other, "%s", WEIR_STATUS_OTHER_HIDDEN);
            }
            weir_sup_append((void **)&report->waits, &report->n_waits, &row, sizeof row);
        }
    }
}

static void fill_report(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                        struct weir_status_report *report)
{
    const struct weir_status_report *all = &sup->admin.gathered;
    const char *name = tenant->config.name;

    snprintf(report->version, sizeof report->version, "%s", WEIR_VERSION);
    snprintf(report->policy, sizeof report->policy, "%s", sup->config.scheduler.policy);
    weir_sup_uses_join(sup);
    add_devices(sup, report);
    weir_sup_admin_tenants(sup, name, report);
    for (size_t i = 0; i < all->n_sessions; i++) {
        if (strcmp(all->sessions[i].tenant, name) == 0) {
            weir_sup_append((void **)&report->sessions, &report->n_sessions, &all->sessions[i],
                            sizeof all->sessions[i]);
        }
    }
    for (size_t i = 0; i < all->n_programs; i++) {
        if (strcmp(all->programs[i].tenant, name) == 0) {
            weir_sup_append((void **)&report->programs, &report->n_programs, &all->programs[i],
                            sizeof all->programs[i]);
        }
    }
    add_waits(sup, name, report);
}

static void send_some(struct weir_sup_asker *asker)
{
    while (asker->sent < asker->bytes) {
        size_t left = asker->bytes - asker->sent;
        ssize_t n = send(asker->fd, asker->text + asker->sent, WEIR_MIN(left, PIECE_BYTES),
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            break;
        }
        asker->sent += (size_t)n;
    }
    forget(asker);
}

static void answer(struct weir_supervisor *sup, struct weir_sup_asker *asker)
{
    const struct weir_sup_tenant *tenant = &sup->tenants[asker->tenant];
    struct weir_status_report *report = calloc(1, sizeof *report);
    FILE *out = report ? open_memstream(&asker->text, &asker->bytes) : NULL;

    if (out && !tenant->gone && tenant->generation == asker->generation) {
        fill_report(sup, tenant, report);
        weir_status_text_write(out, report);
    }
    if (!out || fclose(out) != 0) {
        asker->bytes = 0;
    }
    weir_status_report_destroy(report);
    asker->deadline_ns = weir_clock_now_ns() + ANSWER_NS;
    send_some(asker);
}

/* ---------------------------------------------------------------- the loop */

static void on_asker(void *user, int index)
{
    struct weir_supervisor *sup = user;
    struct weir_sup_asker *asker = &sup->admin.askers[index];

    if (asker->fd >= 0 && asker->text) {
        send_some(asker);
    } else if (asker->fd >= 0) {
        forget(asker); /* no events are watched: poll() reports a hang-up only */
    }
}

void weir_sup_why_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        const struct weir_sup_asker *a = &sup->admin.askers[i];

        if (a->fd >= 0) {
            weir_host_loop_watch(loop, a->fd, a->text ? POLLOUT : 0, on_asker, sup, i);
            weir_host_loop_wake(loop, a->deadline_ns);
        }
    }
}

void weir_sup_why_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        struct weir_sup_asker *a = &sup->admin.askers[i];

        if (a->fd >= 0 && !a->text &&
            (a->gathering < sup->admin.n_gatherings || !sup->admin.gathering)) {
            answer(sup, a);
        } else if (a->fd >= 0 && now_ns >= a->deadline_ns) {
            forget(a);
        }
    }
}

void weir_sup_why_close(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        if (sup->admin.askers[i].fd >= 0) {
            forget(&sup->admin.askers[i]);
        }
    }
}

#include "host_backend/worker/stream_ports.h"

#include "base/log.h"
#include "host_backend/worker/guests.h"
#include "host_backend/worker/memory/vm_clock.h"
#include "host_backend/worker/state/worker.h"
#include "proto/transport/stream_port.h"
#include <stdlib.h>
#include <unistd.h>

#define PORTS_MAX 32 /* of a tenant */

struct served_port {
    struct served_port *next; /* in the worker, under its lock */
    struct weir_worker *worker;
    struct weir_link_guest guest;
    struct weir_port *port;
    struct weir_vm_clock clock; /* of whoever reads the port */
};

static uint64_t clock_ns(void *user)
{
    return weir_vm_clock_advance(user);
}

static void *serve_port(void *argument)
{
    struct served_port *p = argument;
    struct weir_worker *worker = p->worker;
    struct weir_stream_link *link;
    struct weir_transport *stream;

    while (weir_port_await(p->port, &link) == WEIR_OK) {
        if (weir_stream_create(link, &stream) == WEIR_OK) {
            weir_guest_streams(worker, &p->guest, stream);
        }
    }
    pthread_mutex_lock(&worker->lock);
    for (struct served_port **at = &worker->ports; *at != NULL; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    weir_port_destroy(p->port);
    free(p);
    pthread_cond_broadcast(&worker->idle);
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

/* Enter it into the list; false: the tenant has too many. */
static bool enter(struct served_port *p)
{
    struct weir_worker *worker = p->worker;
    uint32_t n = 0;

    pthread_mutex_lock(&worker->lock);
    for (const struct served_port *other = worker->ports; other != NULL; other = other->next) {
        n += other->guest.tenant_index == p->guest.tenant_index;
    }
    if (n < PORTS_MAX) {
        p->next = worker->ports;
        worker->ports = p;
    }
    pthread_mutex_unlock(&worker->lock);
    return n < PORTS_MAX;
}

void weir_port_arrived(struct weir_worker *worker, const struct weir_link_guest *guest, int fd)
{
    struct served_port *p = calloc(1, sizeof *p);
    pthread_attr_t attr;
    pthread_t thread;
    int failed;

    if (p == NULL) {
        close(fd);
        return;
    }
    *p = (struct served_port){.worker = worker, .guest = *guest, .clock = {.pid = guest->pid}};
    p->port = weir_port_create(fd, clock_ns, &p->clock);
    if (p->port == NULL || !enter(p)) {
        weir_log_warn("worker: a virtio-serial port is not served tenant_index=%u pid=%lld",
                      guest->tenant_index, (long long)guest->pid);
        weir_port_destroy(p->port);
        free(p);
        return;
    }
    weir_guest_thread_attr(&attr);
    failed = pthread_create(&thread, &attr, serve_port, p);
    pthread_attr_destroy(&attr);
    if (failed != 0) {
        weir_port_stop(p->port);
        serve_port(p); /* returns at once: there is nothing to read any more */
    }
}

void weir_ports_stop(struct weir_worker *worker, uint32_t tenant_index)
{
    pthread_mutex_lock(&worker->lock);
    for (struct served_port *p = worker->ports; p != NULL; p = p->next) {
        if (tenant_index == WEIR_PORTS_ALL || p->guest.tenant_index == tenant_index) {
            weir_port_stop(p->port);
        }
    }
    pthread_mutex_unlock(&worker->lock);
}

bool weir_ports_any_locked(const struct weir_worker *worker, uint32_t tenant_index)
{
    const struct served_port *p = worker->ports;

    while (p != NULL && p->guest.tenant_index != tenant_index) {
        p = p->next;
    }
    return p != NULL;
}

void weir_ports_finish(struct weir_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    while (worker->ports != NULL) {
        pthread_cond_wait(&worker->idle, &worker->lock);
    }
    pthread_mutex_unlock(&worker->lock);
}

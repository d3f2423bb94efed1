/*
 * virtio-serial ports: QEMU's connections, on each of which one process of the machine after the
 * other has a session (proto/transport/stream_port.h). A thread a port.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STREAM_PORTS_H
#define WEIR_HOST_BACKEND_WORKER_STREAM_PORTS_H

#include "host_backend/config/link.h"

struct weir_worker;

/** Serve a port that the supervisor accepted. fd is taken. @thread main */
void weir_port_arrived(struct weir_worker *worker, const struct weir_link_guest *guest, int fd);

/** Hang up on a tenant's ports; WEIR_PORTS_ALL: on all. Their sessions end. @thread main */
void weir_ports_stop(struct weir_worker *worker, uint32_t tenant_index);
#define WEIR_PORTS_ALL UINT32_MAX

/** Has this tenant any, also such as are on their way down? The worker's lock is held. */
bool weir_ports_any_locked(const struct weir_worker *worker, uint32_t tenant_index);

/** Wait until there are none, after weir_ports_stop(). @thread main */
void weir_ports_finish(struct weir_worker *worker);

#endif

/*
 * The ways of virtual machines beside ivshmem: vsock, and virtio-serial ports.
 *
 * vsock: one listening socket; the CID that a connection comes from is the machine, as the kernel
 * says, and a tenant's vsock_cid says whose it is. virtio-serial: QEMU connects to
 * <run_dir>/vm/<tenant>.serial, once for each port; the socket is the tenant. Accepted connections
 * go to the tenant's worker. Owner thread only. Private to host_backend/supervisor.
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_MACHINES_CHANNELS_H
#define WEIR_HOST_BACKEND_SUPERVISOR_MACHINES_CHANNELS_H

#include "host_backend/supervisor/state/supervisor.h"

/** Listen for a tenant's ports; its path is too long: it has none. */
void weir_sup_serial_listen(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Stop listening; the worker hangs up on the ports that are there. */
void weir_sup_serial_close(struct weir_sup_tenant *tenant);

/** After any change of the tenants: listen on vsock while one has a CID. */
void weir_sup_vsock_follow(struct weir_supervisor *sup);
void weir_sup_vsock_close(struct weir_supervisor *sup);
/** Watch for guests and ports that connect. */
void weir_sup_channels_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);

#endif

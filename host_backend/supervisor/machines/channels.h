/*
 * The way of virtual machines beside ivshmem: vsock. One listening socket; the CID that a
 * connection comes from is the machine, as the kernel says, and a tenant's vsock_cid says whose it
 * is. Accepted connections go to the tenant's worker. Owner thread only. Private to
 * host_backend/supervisor.
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_MACHINES_CHANNELS_H
#define WEIR_HOST_BACKEND_SUPERVISOR_MACHINES_CHANNELS_H

#include "host_backend/supervisor/state/supervisor.h"

/** After any change of the tenants: listen on vsock while one has a CID. */
void weir_sup_vsock_follow(struct weir_supervisor *sup);
void weir_sup_vsock_close(struct weir_supervisor *sup);
/** Watch for guests and ports that connect. */
void weir_sup_channels_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);

#endif

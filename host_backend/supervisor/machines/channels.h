/*
 * Connections of virtual machines without ivshmem: vsock. There is one listening socket. The kernel
 * reports the CID of a connection, which identifies the machine, and a tenant's vsock_cid says
 * whose machine it is. Accepted connections go to the tenant's worker. Owner thread only. Private
 * to host_backend/supervisor.
 */
#pragma once

#include "host_backend/supervisor/state/supervisor.h"

/** After any change of the tenants: listen on vsock while a tenant has a CID. */
void weir_sup_vsock_follow(struct weir_supervisor *sup);
void weir_sup_vsock_close(struct weir_supervisor *sup);
/** Watch for guests that connect. */
void weir_sup_channels_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);

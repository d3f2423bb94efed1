/*
 * The way of virtual machines beside ivshmem: vsock. One listening socket; the CID that a
 * connection comes from is the machine, as the kernel says, and a tenant's vsock_cid says whose it
 * is. Accepted connections go to the tenant's worker. Owner thread only. Private to
 * host_backend/supervisor.
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_CHANNELS_H
#define WEIR_HOST_BACKEND_SUPERVISOR_CHANNELS_H

struct weir_supervisor;

/** After any change of the tenants: listen on vsock while one has a CID. */
void weir_sup_vsock_follow(struct weir_supervisor *sup);
/** A guest connects. */
void weir_sup_vsock_accept(struct weir_supervisor *sup);
void weir_sup_vsock_close(struct weir_supervisor *sup);

#endif

/* Connections and sockets of the supervisor. All functions: @thread main */
#pragma once

#include "host_backend/supervisor/state/supervisor.h"

/* accept.c */

/** Fill the reserve with as many descriptors as possible. */
void weir_sup_reserve_fill(struct weir_supervisor *sup);
void weir_sup_reserve_close(struct weir_supervisor *sup);
/**
 * Accept a guest's connection. If no descriptors are left, the guest gets an error.
 * @param address, bytes  as for accept(); or NULL.
 * @return the descriptor, which does not block; -1: there was no guest, or it was refused
 */
int weir_sup_accept_guest(struct weir_supervisor *sup, int listen_fd, struct sockaddr *address,
                          socklen_t *bytes);
/**
 * Accept an operator's connection, with a descriptor of the reserve if no other is left.
 * @param flags  for accept4().
 * @return the descriptor; -1: there was no operator; or no descriptor was left, and the connection
 *         was closed
 */
int weir_sup_accept_operator(struct weir_supervisor *sup, int listen_fd, int flags);

/* listen_unix.c */

/** Remove the workers' sockets that a killed host has left in the run directory: no worker of this
 * host may get their names again. Other files are not removed. */
void weir_sup_sweep_endpoints(const struct weir_supervisor *sup);
/**
 * Listen on a unix stream socket; a socket file without a listener is replaced.
 * @return WEIR_OK, WEIR_ERR_EXISTS, WEIR_ERR_TOO_BIG, WEIR_ERR_DENIED, WEIR_ERR_IO
 */
enum weir_status weir_sup_listen(const char *path, mode_t mode, int *ret_fd) WEIR_MUST_CHECK;

/**
 * Has somebody removed the file of a listening socket? Then close the socket, and log it: the
 * caller listens again.
 * @param listen_fd set to -1 if so; -1 before: returns false.
 */
bool weir_sup_socket_lost(const char *path, int *listen_fd);

/* listen_tcp.c */

/** Has a text one of the forms "ADDRESS:PORT", "[ADDRESS]:PORT", "localhost:PORT", ":PORT",
 * "*:PORT" with a numeric address? */
bool weir_sup_address_ok(const char *address);
/** Listen on an address of such a form. @return false, with errno */
bool weir_sup_listen_address(const char *address, int *ret_fd) WEIR_MUST_CHECK;
/** Describe for people what is wrong with a key's file. @param status of weir_key_read() */
const char *weir_sup_key_error(enum weir_status status);
/** The address of listen_tcp; "": none. Borrowed from the configuration. */
const char *weir_sup_tcp_address(const struct weir_host_config *config);
/**
 * Listen at the address of listen_tcp, if there is one, or report that this extra fails. The socket
 * outlives the workers that accept from it: guests that come while one is replaced wait in its
 * backlog, as in that of a tenant's socket.
 */
void weir_sup_tcp_open(struct weir_supervisor *sup);

/* owner.c */

/** Has the tenant a user who owns its files? */
bool weir_sup_tenant_has_user(const struct weir_sup_tenant *tenant);
/** The number of the tenant's user. @return as weir_user_id() */
enum weir_status weir_sup_owner(const struct weir_tenant_config *config,
                                uint32_t *ret_uid) WEIR_MUST_CHECK;
/** Make this user the owner of the tenant's files. */
void weir_sup_own(struct weir_tenant_config *config, uint32_t uid);
/** Give a file to the tenant's user. @return WEIR_OK, as weir_user_id(), WEIR_ERR_DENIED */
enum weir_status weir_sup_give_to_user(const struct weir_sup_tenant *tenant,
                                       const char *path) WEIR_MUST_CHECK;
/** Make a folder through which a user may pass, and nobody else but the host's user and root.
 * @return WEIR_OK, WEIR_ERR_IO, WEIR_ERR_DENIED (the file system has no access lists) */
enum weir_status weir_sup_user_folder(const char *path, uint32_t uid) WEIR_MUST_CHECK;
/**
 * weir_listen_unix() for a tenant's socket: with this mode, or for its user alone if it has one.
 * @return as weir_listen_unix(), WEIR_ERR_DENIED (only root gives sockets away)
 */
enum weir_status weir_sup_listen_for(const struct weir_sup_tenant *tenant, const char *path,
                                     mode_t mode, int *ret_fd) WEIR_MUST_CHECK;

/**
 * Listen for guests at a path, or take over the last supervisor's socket there, with the programs
 * that wait in it. The next supervisor can take it over, too.
 * @return as weir_listen_unix()
 */
enum weir_status weir_sup_listen_kept(struct weir_supervisor *sup, const char *path, mode_t mode,
                                      int *ret_fd) WEIR_MUST_CHECK;

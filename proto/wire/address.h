/* The addresses of hosts in $WEIR_HOST and `weir run --host`: "SCHEME://PLACE". */
#pragma once

#include <stdbool.h>

enum weir_scheme {
    WEIR_SCHEME_IPC,     /* a unix socket */
    WEIR_SCHEME_TCP,     /* a connection from another machine */
    WEIR_SCHEME_IVSHMEM, /* from here on for virtual machines; place: a device's resource2 */
    WEIR_SCHEME_DEVDAX,
    WEIR_SCHEME_VSOCK,
    WEIR_SCHEME_COUNT
};

/**
 * Find the scheme of an address.
 *
 * @param host       borrowed.
 * @param ret_place  the part behind the scheme, within host; all of host if it has no scheme.
 * @return WEIR_SCHEME_COUNT for an unknown scheme.
 * @thread any
 */
enum weir_scheme weir_address_scheme(const char *host, const char **ret_place);

/**
 * Is this an address that weir_connect() understands? Whether a host is there is not checked.
 *
 * @return NULL: it is; else a sentence with the required form (static).
 * @thread any
 */
const char *weir_address_problem(const char *host);

/**
 * Read "CID:PORT"; without ":PORT" the default port, "" for this machine's host.
 *
 * @return false: the text is not of this form; then *ret_cid and *ret_port are undefined.
 * @thread any
 */
bool weir_address_vsock(const char *place, unsigned int *ret_cid, unsigned int *ret_port);

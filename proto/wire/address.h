/* The addresses of hosts, as $WEIR_HOST and `weir run --host` have them: "SCHEME://PLACE". */
#ifndef WEIR_PROTO_WIRE_ADDRESS_H
#define WEIR_PROTO_WIRE_ADDRESS_H

#include <stdbool.h>

enum weir_scheme {
    WEIR_SCHEME_IPC,     /* a unix socket */
    WEIR_SCHEME_TCP,     /* a connection from another machine */
    WEIR_SCHEME_IVSHMEM, /* from here on, ways out of a virtual machine; this one is a device's
                            resource2 */
    WEIR_SCHEME_DEVDAX,
    WEIR_SCHEME_VSOCK,
    WEIR_SCHEME_COUNT
};

/**
 * The scheme of an address.
 *
 * @param host       borrowed.
 * @param ret_place  what follows the scheme, within host; the whole of host where there is none.
 * @return WEIR_SCHEME_COUNT for one that there is not.
 * @thread any
 */
enum weir_scheme weir_address_scheme(const char *host, const char **ret_place);

/**
 * Is this an address that weir_connect() understands? Whether anybody is there is not looked at.
 *
 * @return NULL: it is; else a sentence that says which form is wanted (static).
 * @thread any
 */
const char *weir_address_problem(const char *host);

/**
 * Read "CID:PORT"; without ":PORT" the usual one, "" for this machine's host.
 *
 * @return false: it is none; then *ret_cid and *ret_port are undefined.
 * @thread any
 */
bool weir_address_vsock(const char *place, unsigned int *ret_cid, unsigned int *ret_port);

#endif

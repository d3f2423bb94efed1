/*
 * Where a process finds its host when the user names none: all possible ways, best first.
 *
 * Used by the guest library, which takes the first that works, and by weir doctor, which prints
 * them all.
 */
#ifndef WEIR_PROTO_WIRE_DISCOVER_H
#define WEIR_PROTO_WIRE_DISCOVER_H

#include "base/status.h"
#include <stddef.h>

#define WEIR_ROUTES_MAX       8
#define WEIR_ROUTE_URL_BYTES  256
#define WEIR_ROUTE_TEXT_BYTES 200
#define WEIR_DEFAULT_HOST     "ipc:///run/weir/default.sock"

struct weir_route {
    const char *kind;        /* "socket", "devdax", "ivshmem", "vsock" and so on; static */
    enum weir_status status; /* WEIR_OK: the route works; WEIR_ERR_NOT_FOUND: it does not exist */
    char url[WEIR_ROUTE_URL_BYTES]; /* address for weir_connect(); "" if the route does not exist */
    char about[WEIR_ROUTE_TEXT_BYTES]; /* what was found, or why the route cannot be used */
};

/**
 * Look at every way to a host. A process on the host's own kernel has a socket; one in a virtual
 * machine has the machine's devices.
 *
 * @param routes  WEIR_ROUTES_MAX of them.
 * @return how many were filled.
 * @thread any; errno is preserved
 */
size_t weir_discover(struct weir_route *routes);

/**
 * The host to connect to.
 *
 * @param wanted  what the user says ($WEIR_HOST): returned as it is, but NULL, "", "devdax://" and
 *                "ivshmem://", which stand for the first way (of that kind) that works.
 * @param url     WEIR_ROUTE_URL_BYTES of room.
 * @return wanted or url; WEIR_DEFAULT_HOST where there is no way at all.
 * @thread any
 */
const char *weir_discover_host(const char *wanted, char *url);

#endif

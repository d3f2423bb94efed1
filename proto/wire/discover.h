/*
 * Finds the hosts that a process can use when the user names none: all possible routes, best first.
 *
 * The guest library uses the first that works, and weir doctor prints them all.
 */
#pragma once

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
 * Check every route to a host. A process on the host's own kernel has a socket; one in a virtual
 * machine has the machine's devices.
 *
 * @param routes  WEIR_ROUTES_MAX of them.
 * @return the number of routes filled in.
 * @thread any; errno is preserved
 */
size_t weir_discover(struct weir_route *routes);

/**
 * Choose the host to connect to.
 *
 * @param wanted  the user's choice ($WEIR_HOST), which is returned unchanged. Exceptions are NULL,
 *                "", "devdax://" and "ivshmem://": they mean the first route (of that kind) that
 *                works.
 * @param url     WEIR_ROUTE_URL_BYTES of room.
 * @return wanted or url; WEIR_DEFAULT_HOST if there is no route at all.
 * @thread any
 */
const char *weir_discover_host(const char *wanted, char *url);

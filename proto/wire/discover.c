#include "proto/wire/discover.h"
#include "base/clock.h"
#include "proto/transport/ivshmem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PCI_DEVICES "/sys/bus/pci/devices"
#define SOCKET_PATH &WEIR_DEFAULT_HOST[sizeof "ipc://" - 1]
#define ANY_IVSHMEM "ivshmem://"

static void look_for_socket(struct weir_route *route)
{
    route->kind = "socket";
    if (access(SOCKET_PATH, F_OK) != 0) {
        route->status = WEIR_ERR_NOT_FOUND;
        snprintf(route->about, sizeof route->about, "no %s", SOCKET_PATH);
        return;
    }
    route->status = WEIR_OK;
    snprintf(route->url, sizeof route->url, "%s", WEIR_DEFAULT_HOST);
    snprintf(route->about, sizeof route->about, "%s", SOCKET_PATH);
}

/* ---------------------------------------------------------------- ivshmem */

/* A file of a PCI device that holds one hexadecimal number; -1: not to be read. */
static long read_number(const char *device, const char *name)
{
    char path[320], text[32];
    snprintf(path, sizeof path, PCI_DEVICES "/%.64s/%s", device, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (n <= 0) {
        return -1;
    }
    text[n] = 0;
    return strtol(text, NULL, 16);
}

static const char *why_not(enum weir_status status)
{
    switch ((int)status) {
    case WEIR_ERR_NOT_FOUND:
        return "it has no memory here (no BAR 2: on q35, give it at the machine's start)";
    case WEIR_ERR_DENIED:
        return "no permission for resource0 and resource2 (a udev rule gives them to a group), or "
               "the kernel is locked down (Secure Boot)";
    case WEIR_ERR_PEER:
        return "its memory is none of Weir's, or of another version";
    default:
        return weir_status_text(status);
    }
}

static void try_device(const char *device, struct weir_route *route)
{
    char path[WEIR_ROUTE_URL_BYTES - sizeof ANY_IVSHMEM];
    struct weir_region region;
    snprintf(path, sizeof path, PCI_DEVICES "/%.64s/resource2", device);
    route->status = weir_region_open(path, &region);
    if (route->status != WEIR_OK) {
        snprintf(route->about, sizeof route->about, "PCI device %.20s: %s", device,
                 why_not(route->status));
        return;
    }
    const struct weir_region_header *header = region.control;
    snprintf(route->url, sizeof route->url, ANY_IVSHMEM "%s", path);
    snprintf(route->about, sizeof route->about, "PCI device %.20s, %llu MiB%s", device,
             (unsigned long long)(region.bytes >> 20),
             __atomic_load_n(&header->epoch, __ATOMIC_ACQUIRE) ? "" : ", which no host serves now");
    weir_region_close(&region);
}

/* The first of several devices that is a region; else what is wrong with the last. */
static void look_for_ivshmem(struct weir_route *route)
{
    route->kind = "ivshmem";
    route->status = WEIR_ERR_NOT_FOUND;
    snprintf(route->about, sizeof route->about, "no PCI device %04x:%04x", WEIR_REGION_PCI_VENDOR,
             WEIR_REGION_PCI_DEVICE);
    DIR *devices = opendir(PCI_DEVICES);
    const struct dirent *entry;
    while (devices && route->url[0] == 0 && (entry = readdir(devices))) {
        if (entry->d_name[0] != '.' &&
            read_number(entry->d_name, "vendor") == WEIR_REGION_PCI_VENDOR &&
            read_number(entry->d_name, "device") == WEIR_REGION_PCI_DEVICE) {
            try_device(entry->d_name, route);
        }
    }
    if (devices) {
        closedir(devices);
    }
}

/* ---------------------------------------------------------------- all */

/* The last resort, and never a guess: it needs an address and keys. */
static void tell_of_tcp(struct weir_route *route)
{
    route->kind = "tcp";
    snprintf(route->about, sizeof route->about,
             "taken only where WEIR_HOST, WEIR_KEY and WEIR_SERVER_KEY name a host");
}

size_t weir_discover(struct weir_route *routes)
{
    static void (*const ways[])(struct weir_route *) = {look_for_socket, look_for_ivshmem,
                                                        tell_of_tcp};
    const size_t n = sizeof ways / sizeof ways[0];
    int saved_errno = errno;
    for (size_t i = 0; i < n; i++) {
        routes[i] = (struct weir_route){.status = WEIR_ERR_NOT_FOUND};
        ways[i](&routes[i]);
    }
    errno = saved_errno;
    return n;
}

const char *weir_discover_host(const char *wanted, char *url)
{
    bool any = !wanted || !*wanted;
    bool ivshmem = !any && strcmp(wanted, ANY_IVSHMEM) == 0;
    if (!any && !ivshmem) {
        return wanted;
    }
    struct weir_route routes[WEIR_ROUTES_MAX];
    size_t n = weir_discover(routes);
    for (size_t i = 0; i < n; i++) {
        if (routes[i].status == WEIR_OK && (any || strcmp(routes[i].kind, "ivshmem") == 0)) {
            snprintf(url, WEIR_ROUTE_URL_BYTES, "%s", routes[i].url);
            return url;
        }
    }
    return any ? WEIR_DEFAULT_HOST : wanted;
}

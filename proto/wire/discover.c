#include "proto/wire/discover.h"
#include "base/clock.h"
#include "base/file_text.h"
#include "proto/transport/ivshmem.h"
#include "proto/wire/connect_stream.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#define PCI_DEVICES   "/sys/bus/pci/devices"
#define SOCKET_PATH   &WEIR_DEFAULT_HOST[sizeof "ipc://" - 1]
#define DAX_DEVICES   "/sys/bus/dax/devices"
#define NVDIMMS       "/sys/bus/nd/devices"
#define ANY_IVSHMEM   "ivshmem://"
#define ANY_DEVDAX    "devdax://"
#define VSOCK         "/dev/vsock"
#define VSOCK_WAIT_NS WEIR_NS_PER_S /* how long to wait for an answer from the host's kernel */

static void look_for_socket(struct weir_route *route)
{
    route->kind = "socket";
    if (access(SOCKET_PATH, F_OK) != 0) {
        snprintf(route->about, sizeof route->about, "no %s", SOCKET_PATH);
        return;
    }
    route->status = WEIR_OK;
    snprintf(route->url, sizeof route->url, "%s", WEIR_DEFAULT_HOST);
    snprintf(route->about, sizeof route->about, "%s", SOCKET_PATH);
}

/* ---------------------------------------------------------------- devices with a region */

/* A kind of device with a region: its name, and why it cannot be opened. */
struct device_kind {
    const char *scheme;
    const char *missing, *denied;
};

static const struct device_kind dax_kind = {
    .scheme = ANY_DEVDAX,
    .missing = "not found",
    .denied = "no permission (a udev rule gives it to a group)",
};

static const struct device_kind pci_kind = {
    .scheme = ANY_IVSHMEM,
    .missing = "it has no memory here (no BAR 2: on q35, give it at the machine's start)",
    .denied = "no permission for resource0 and resource2 (a udev rule gives them to a group), or "
              "the kernel is locked down (Secure Boot)",
};

static const char *why_not(const struct device_kind *kind, enum weir_status status)
{
    switch ((int)status) {
    case WEIR_ERR_NOT_FOUND:
        return kind->missing;
    case WEIR_ERR_DENIED:
        return kind->denied;
    case WEIR_ERR_PEER:
        return "its memory is none of Weir's, or of another version";
    default:
        return weir_status_text(status);
    }
}

/* Call look() for the names in a folder, until it returns true. */
static bool any_in(const char *folder, bool (*look)(const char *name, struct weir_route *route),
                   struct weir_route *route)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    bool enough = false;
    while (entries && !enough && (entry = readdir(entries))) {
        enough = entry->d_name[0] != '.' && look(entry->d_name, route);
    }
    if (entries) {
        closedir(entries);
    }
    return enough;
}

/* Check whether this device is a region. If not, describe the problem. */
static bool try_device(const struct device_kind *kind, const char *path, const char *name,
                       struct weir_route *route)
{
    struct weir_region region;
    route->status = weir_region_open(path, &region);
    if (route->status != WEIR_OK) {
        snprintf(route->about, sizeof route->about, "%s: %s", name, why_not(kind, route->status));
        return false;
    }
    const struct weir_region_header *header = region.control;
    bool served = __atomic_load_n(&header->epoch, __ATOMIC_ACQUIRE) != 0;
    snprintf(route->url, sizeof route->url, "%s%s", kind->scheme, path);
    snprintf(route->about, sizeof route->about, "%s, %llu MiB%s", name,
             (unsigned long long)(region.bytes >> 20), served ? "" : ", which no host serves now");
    weir_region_close(&region);
    return true;
}

static bool try_dax(const char *device, struct weir_route *route)
{
    char path[40];
    snprintf(path, sizeof path, "/dev/%.34s", device);
    return try_device(&dax_kind, path, path, route);
}

static bool is_namespace(const char *name, struct weir_route *route)
{
    (void)route;
    return strncmp(name, "namespace", strlen("namespace")) == 0;
}

static void look_for_devdax(struct weir_route *route)
{
    route->kind = "devdax";
    if (!any_in(DAX_DEVICES, try_dax, route) && route->about[0] == 0) {
        /* The kernel's drivers make the device of the NVDIMM:
         * nfit, nd_pmem, dax_pmem, device_dax. */
        bool nvdimm = any_in(NVDIMMS, is_namespace, route);
        snprintf(route->about, sizeof route->about, "no dax device%s",
                 nvdimm ? " of the NVDIMM (modprobe -a nd_pmem dax_pmem device_dax)" : "");
    }
}

/* Read a file of a PCI device that holds one hexadecimal number; -1: it cannot be read. */
static long read_number(const char *device, const char *name)
{
    char path[320], text[32];
    snprintf(path, sizeof path, PCI_DEVICES "/%.64s/%s", device, name);
    return weir_file_text(path, text, sizeof text) ? strtol(text, NULL, 16) : -1;
}

static bool try_pci(const char *device, struct weir_route *route)
{
    char path[128], name[40];
    if (read_number(device, "vendor") != WEIR_REGION_PCI_VENDOR ||
        read_number(device, "device") != WEIR_REGION_PCI_DEVICE) {
        return false;
    }
    snprintf(path, sizeof path, PCI_DEVICES "/%.64s/resource2", device);
    snprintf(name, sizeof name, "PCI device %.20s", device);
    return try_device(&pci_kind, path, name, route);
}

static void look_for_ivshmem(struct weir_route *route)
{
    route->kind = "ivshmem";
    snprintf(route->about, sizeof route->about, "no PCI device %04x:%04x", WEIR_REGION_PCI_VENDOR,
             WEIR_REGION_PCI_DEVICE);
    (void)any_in(PCI_DEVICES, try_pci, route);
}

/* ---------------------------------------------------------------- vsock */

/* This machine's CID; VMADDR_CID_ANY: it has none. */
static unsigned int local_cid(void)
{
    unsigned int cid = VMADDR_CID_ANY;
    int fd = open(VSOCK, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (ioctl(fd, IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) != 0) {
            cid = VMADDR_CID_ANY;
        }
        close(fd);
    }
    return cid;
}

static void look_for_vsock(struct weir_route *route)
{
    unsigned int cid = local_cid();
    route->kind = "vsock";
    if (access(VSOCK, F_OK) != 0) {
        snprintf(route->about, sizeof route->about, "no " VSOCK);
        return;
    }
    if (cid == VMADDR_CID_ANY || cid <= VMADDR_CID_HOST) {
        snprintf(route->about, sizeof route->about, VSOCK " leads to no host from here");
        return;
    }
    uint64_t deadline_ns = weir_clock_now_ns() + VSOCK_WAIT_NS;
    route->status = weir_connect_vsock("", NULL, deadline_ns, NULL, NULL);
    if (route->status != WEIR_OK) {
        snprintf(route->about, sizeof route->about, "the host does not listen on port %u (%s)",
                 WEIR_VSOCK_PORT, weir_status_text(route->status));
        return;
    }
    snprintf(route->url, sizeof route->url, WEIR_VSOCK_SCHEME "%u:%u", VMADDR_CID_HOST,
             WEIR_VSOCK_PORT);
    snprintf(route->about, sizeof route->about, "this machine is CID %u", cid);
}

/* ---------------------------------------------------------------- all */

/* Mention TCP as the last resort. It is never chosen automatically, since it needs an address and
 * keys. */
static void tell_of_tcp(struct weir_route *route)
{
    route->kind = "tcp";
    snprintf(route->about, sizeof route->about,
             "taken only where WEIR_HOST, WEIR_KEY and WEIR_SERVER_KEY name a host");
}

/* Each function gets a route whose status is WEIR_ERR_NOT_FOUND, and fills in what it finds. */
static void (*const ways[])(struct weir_route *) = {look_for_socket, look_for_devdax,
                                                    look_for_ivshmem, look_for_vsock, tell_of_tcp};
#define N_WAYS WEIR_COUNT(ways)
_Static_assert(N_WAYS <= WEIR_ROUTES_MAX, "room for all");

static void look(size_t way, struct weir_route *route)
{
    *route = (struct weir_route){.status = WEIR_ERR_NOT_FOUND};
    ways[way](route);
}

size_t weir_discover(struct weir_route *routes)
{
    int saved_errno = errno;
    for (size_t i = 0; i < N_WAYS; i++) {
        look(i, &routes[i]);
    }
    errno = saved_errno;
    return N_WAYS;
}

const char *weir_discover_host(const char *wanted, char *url)
{
    bool any = !wanted || !*wanted;
    const char *kind = any                                ? ""
                       : strcmp(wanted, ANY_IVSHMEM) == 0 ? "ivshmem"
                       : strcmp(wanted, ANY_DEVDAX) == 0  ? "devdax"
                                                          : NULL;
    if (!kind) {
        return wanted;
    }
    int saved_errno = errno;
    const char *found = any ? WEIR_DEFAULT_HOST : wanted;
    struct weir_route route = {.status = WEIR_ERR_NOT_FOUND};
    for (size_t i = 0; i < N_WAYS && found != url; i++) {
        look(i, &route);
        if (route.status == WEIR_OK && (any || strcmp(route.kind, kind) == 0)) {
            snprintf(url, WEIR_ROUTE_URL_BYTES, "%s", route.url);
            found = url;
        }
    }
    errno = saved_errno;
    return found;
}

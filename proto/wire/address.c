#include "proto/wire/address.h"
#include "proto/wire/connect_stream.h"
#include "proto/wire/unix_socket.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/vm_sockets.h>

bool weir_address_vsock(const char *place, unsigned int *ret_cid, unsigned int *ret_port)
{
    char rest;
    *ret_cid = VMADDR_CID_HOST;
    *ret_port = WEIR_VSOCK_PORT;
    int n = sscanf(place, "%u:%u%c", ret_cid, ret_port, &rest);
    return !*place || n == 2 || (n == 1 && !strchr(place, ':'));
}

static bool is_socket(const char *place)
{
    struct sockaddr_un address;
    return weir_unix_address(place, &address) == WEIR_OK;
}

static bool is_address_and_port(const char *place)
{
    const char *colon = strrchr(place, ':');
    if (!colon || colon == place || !isdigit((unsigned char)colon[1])) {
        return false;
    }
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    return *end == '\0' && port >= 1 && port <= 65535 && !strpbrk(place, "/ \t");
}

static bool is_device(const char *place)
{
    return *place == '\0' || *place == '/';
}

static bool is_vsock(const char *place)
{
    unsigned int cid, port;
    return weir_address_vsock(place, &cid, &port);
}

static const struct {
    const char *scheme;
    bool (*is_place)(const char *place);
    const char *form; /* error text for a place of the wrong form */
} schemes[WEIR_SCHEME_COUNT] = {
    [WEIR_SCHEME_IPC] = {"ipc://", is_socket, "ipc://PATH is wanted, PATH of at most 107 bytes"},
    [WEIR_SCHEME_TCP] = {"tcp://", is_address_and_port,
                         "tcp://ADDRESS:PORT is wanted, PORT of 1 to 65535"},
    [WEIR_SCHEME_IVSHMEM] = {"ivshmem://", is_device,
                             "ivshmem:// is wanted, or ivshmem:///PATH of a device's resource2"},
    [WEIR_SCHEME_DEVDAX] = {"devdax://", is_device,
                            "devdax:// is wanted, or devdax:///PATH of a device"},
    [WEIR_SCHEME_VSOCK] = {WEIR_VSOCK_SCHEME, is_vsock,
                           "vsock:// is wanted, or vsock://CID or vsock://CID:PORT"},
};

enum weir_scheme weir_address_scheme(const char *host, const char **ret_place)
{
    for (int i = 0; i < WEIR_SCHEME_COUNT; i++) {
        size_t length = strlen(schemes[i].scheme);
        if (strncmp(host, schemes[i].scheme, length) == 0) {
            *ret_place = host + length;
            return (enum weir_scheme)i;
        }
    }
    *ret_place = host;
    return WEIR_SCHEME_COUNT;
}

const char *weir_address_problem(const char *host)
{
    const char *place;
    enum weir_scheme scheme = weir_address_scheme(host, &place);
    if (strncmp(host, "virtio-serial:", strlen("virtio-serial:")) == 0) {
        return "virtio-serial is gone: use ivshmem:// (or vsock://, where the host has "
               "vhost_vsock)";
    }
    if (scheme == WEIR_SCHEME_COUNT) {
        return "an address begins with ipc://, tcp://, ivshmem://, devdax:// or vsock://";
    }
    return schemes[scheme].is_place(place) ? NULL : schemes[scheme].form;
}

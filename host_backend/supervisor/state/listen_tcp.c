/* Opens a listening TCP socket at an address that a person has written. */
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"

#include "proto/wire/keys.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 64 /* remote guests wait in it while their worker is being replaced */

/* The address to listen on, for freeaddrinfo(); NULL: the text has no valid form. */
static struct addrinfo *read_address(const char *address)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char host[WEIR_CONFIG_PATH_BYTES];
    char *colon, *name = host;

    snprintf(host, sizeof host, "%s", address);
    colon = strrchr(host, ':');
    if (!colon || strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5 ||
        atoi(colon + 1) > 65535) {
        return NULL; /* getaddrinfo() would cut off a port's upper bits */
    }
    *colon = 0;
    if (*name == '[' && colon > host && colon[-1] == ']') {
        colon[-1] = 0;
        name++;
    }
    if (strcmp(name, "localhost") == 0) {
        strcpy(name, "127.0.0.1");
    }
    if (strcmp(name, "*") == 0) {
        *name = 0;
    }
    return getaddrinfo(*name != 0 ? name : NULL, colon + 1, &hints, &found) == 0 ? found : NULL;
}

bool weir_sup_address_ok(const char *address)
{
    struct addrinfo *found = read_address(address);

    if (found) {
        freeaddrinfo(found);
    }
    return found != NULL;
}

bool weir_sup_listen_address(const char *address, int *ret_fd)
{
    struct addrinfo *found = read_address(address);
    int one = 1, fd;

    if (!found) {
        errno = EINVAL;
        return false;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
                    bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0)) {
        int why = errno;

        close(fd);
        fd = -1;
        errno = why;
    }
    freeaddrinfo(found);
    *ret_fd = fd;
    return fd >= 0;
}

/* Is the host's key there, without which no remote guest can connect? */
static bool has_key(struct weir_supervisor *sup)
{
    char key[WEIR_KEY_Z85_BYTES];
    enum weir_status status = weir_key_read(sup->config.server_key, key);

    explicit_bzero(key, sizeof key);
    if (status != WEIR_OK) {
        weir_sup_extra_fails(sup, WEIR_EXTRA_TCP, "server_key '%.80s': %s", sup->config.server_key,
                             weir_sup_key_error(status));
    }
    return status == WEIR_OK;
}

const char *weir_sup_key_error(enum weir_status status)
{
    return status == WEIR_ERR_INVALID ? "no key: a key is a line of 40 characters (weir keygen)"
                                      : weir_status_text(status);
}

const char *weir_sup_tcp_address(const struct weir_host_config *config)
{
    const char *listen = config->listen_tcp;

    return strncmp(listen, "tcp://", 6) == 0 ? listen + 6 : listen;
}

void weir_sup_tcp_open(struct weir_supervisor *sup)
{
    const char *address = weir_sup_tcp_address(&sup->config);

    if (*address == 0 || sup->tcp_fd >= 0 || !has_key(sup)) {
        return;
    }
    sup->tcp_fd = weir_book_listener(sup, address);
    if (sup->tcp_fd >= 0 || weir_sup_listen_address(address, &sup->tcp_fd)) {
        weir_book_listens(sup, address, sup->tcp_fd);
        weir_sup_extra_works(sup, WEIR_EXTRA_TCP);
    } else {
        weir_sup_extra_fails(sup, WEIR_EXTRA_TCP, "'%.80s': %s", address, strerror(errno));
    }
}

#include "proto/transport/stream_port.h"
#include "base/clock.h"
#include "proto/transport/fd_message.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define SILENT_NS      (10 * WEIR_NS_PER_S)
#define IN_BYTES       65536u
#define HEADER_BYTES   sizeof(struct weir_port_packet)
#define PAYLOAD_BYTES  (WEIR_PORT_PACKET_BYTES - HEADER_BYTES)
#define WAIT_MS        200
#define SECOND_OPEN_NS (500 * WEIR_NS_PER_MS)

struct weir_port {
    struct weir_stream_link base;
    bool is_host;
    bool is_socket;
    uint64_t (*clock_ns)(void *user);
    void *user;
    uint64_t opener; /* who is served; 0: nobody */
    /* The reading side's. */
    bool gone;         /* nothing more comes through the descriptor */
    bool ended;        /* nothing more comes of this opener */
    bool opened;       /* the guest's: OPENED has come */
    uint64_t next;     /* the host's: who wants to be served */
    uint64_t stranger; /* the host's: who speaks without being served */
    uint64_t heard_ns; /* by clock_ns */
    size_t left;       /* of the packet's payload: data for the caller */
    size_t skip;       /* or to be thrown away */
    size_t in_at, in_end;
    /* The writing side's: a packet that went out in part. */
    size_t out_at, out_end;
    uint8_t in[IN_BYTES];
    _Alignas(8) uint8_t out[WEIR_PORT_PACKET_BYTES];
};

static struct weir_port *port_of(struct weir_stream_link *link)
{
    return (struct weir_port *)(void *)link;
}

/* ---------------------------------------------------------------- reading */

/* 0: nothing now; -1: the other side of the port is gone. */
static ssize_t read_some(struct weir_port *port, void *bytes, size_t len)
{
    ssize_t n;
    do {
        n = read(port->base.fd, bytes, len);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        return n;
    }
    if (n < 0 && errno == EAGAIN) {
        return 0;
    }
    port->gone = true; /* 0: a port whose host is not connected, or a socket at its end */
    return -1;
}

static ssize_t refill(struct weir_port *port)
{
    size_t ready = port->in_end - port->in_at;
    memmove(port->in, port->in + port->in_at, ready);
    port->in_at = 0;
    port->in_end = ready;
    ssize_t n = read_some(port, port->in + ready, sizeof port->in - ready);
    port->in_end += n > 0 ? (size_t)n : 0;
    return n;
}

static bool proof_holds(const struct weir_port_packet *packet, const uint8_t *payload)
{
    struct weir_port_proof proof;
    memcpy(&proof, payload, sizeof proof);
    return proof.not_opener == ~packet->opener && proof.words == WEIR_PORT_PROOF;
}

/* Can a packet begin here? Its payload is there as far as it is looked at. */
static bool is_packet(const struct weir_port_packet *packet, const uint8_t *payload)
{
    if (packet->magic != WEIR_PORT_MAGIC || packet->opener == 0) {
        return false;
    }
    switch (packet->kind) {
    case WEIR_PORT_OPEN:
    case WEIR_PORT_OPENED:
        return packet->payload_bytes == sizeof(struct weir_port_proof) &&
               proof_holds(packet, payload);
    case WEIR_PORT_DATA:
        return packet->payload_bytes <= PAYLOAD_BYTES;
    case WEIR_PORT_BEAT:
    case WEIR_PORT_BYE:
        return packet->payload_bytes == 0;
    default:
        return false;
    }
}

static void take_packet(struct weir_port *port, const struct weir_port_packet *packet)
{
    bool ours = packet->opener == port->opener;
    port->skip = packet->payload_bytes;
    if (ours && port->is_host) {
        port->heard_ns = port->clock_ns(port->user);
    }
    switch (packet->kind) {
    case WEIR_PORT_OPEN:
        if (port->is_host && !ours) {
            port->next = packet->opener;
            port->ended = true;
        }
        break;
    case WEIR_PORT_OPENED:
        port->opened = port->opened || (ours && !port->is_host);
        break;
    case WEIR_PORT_DATA:
        if (ours && (port->is_host || port->opened)) {
            port->left = packet->payload_bytes;
            port->skip = 0;
        } else {
            port->stranger = packet->opener;
        }
        break;
    case WEIR_PORT_BYE:
        port->ended = port->ended || ours;
        break;
    default:
        break;
    }
}

/* Take the next packet's header. 0: it is not there yet; -1: gone. Between packets only. */
static int next_packet(struct weir_port *port)
{
    struct weir_port_packet packet;
    for (;;) {
        while (port->in_end - port->in_at < HEADER_BYTES + sizeof(struct weir_port_proof)) {
            /* A short packet may be the last one for now. */
            if (port->in_end - port->in_at >= HEADER_BYTES) {
                memcpy(&packet, port->in + port->in_at, sizeof packet);
                if (packet.magic != WEIR_PORT_MAGIC ||
                    (packet.kind != WEIR_PORT_OPEN && packet.kind != WEIR_PORT_OPENED)) {
                    break;
                }
            }
            ssize_t n = refill(port);
            if (n <= 0) {
                return (int)n;
            }
        }
        memcpy(&packet, port->in + port->in_at, sizeof packet);
        if (is_packet(&packet, port->in + port->in_at + HEADER_BYTES)) {
            port->in_at += HEADER_BYTES;
            take_packet(port, &packet);
            return 1;
        }
        port->in_at++; /* in the middle of what somebody else left: look on */
    }
}

/* Throw the payload away that is nobody's. 0: more is to come; -1: gone. */
static int skip_payload(struct weir_port *port)
{
    while (port->skip > 0) {
        size_t ready = port->in_end - port->in_at;
        size_t n = ready < port->skip ? ready : port->skip;
        port->in_at += n;
        port->skip -= n;
        if (port->skip > 0) {
            ssize_t got = refill(port);
            if (got <= 0) {
                return (int)got;
            }
        }
    }
    return 1;
}

/* Up to the next data of this opener. 1: some; 0: none yet; -1: it, or the port, is at its end. */
static int advance(struct weir_port *port)
{
    while (!port->ended && port->left == 0) {
        int rc = port->skip > 0 ? skip_payload(port) : next_packet(port);
        if (rc <= 0) {
            return rc;
        }
    }
    return port->ended ? -1 : 1;
}

static ssize_t port_read(struct weir_stream_link *link, void *bytes, size_t len)
{
    struct weir_port *port = port_of(link);
    int rc = advance(port);
    if (rc <= 0) {
        return rc;
    }
    size_t ready = port->in_end - port->in_at;
    len = len < port->left ? len : port->left;
    if (ready == 0) {
        ssize_t n = read_some(port, bytes, len);
        port->left -= n > 0 ? (size_t)n : 0;
        return n;
    }
    len = len < ready ? len : ready;
    memcpy(bytes, port->in + port->in_at, len);
    port->in_at += len;
    port->left -= len;
    return (ssize_t)len;
}

static bool port_silent(struct weir_stream_link *link)
{
    struct weir_port *port = port_of(link);
    return port->is_host && port->clock_ns(port->user) - port->heard_ns >= SILENT_NS;
}

/* ---------------------------------------------------------------- writing */

/* 1: out is empty; 0: no room; -1: gone. */
static int port_flush(struct weir_stream_link *link)
{
    struct weir_port *port = port_of(link);
    while (port->out_at < port->out_end) {
        const uint8_t *bytes = port->out + port->out_at;
        size_t len = port->out_end - port->out_at;
        ssize_t n = port->is_socket ? send(link->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : write(link->fd, bytes, len);
        if (n < 0 && errno != EINTR) {
            return errno == EAGAIN ? 0 : -1;
        }
        port->out_at += n > 0 ? (size_t)n : 0;
    }
    port->out_at = port->out_end = 0;
    return 1;
}

static void begin_packet(struct weir_port *port, enum weir_port_kind kind, size_t payload_bytes)
{
    struct weir_port_packet packet = {.magic = WEIR_PORT_MAGIC,
                                      .kind = (uint16_t)kind,
                                      .payload_bytes = (uint16_t)payload_bytes,
                                      .opener = port->opener};
    memcpy(port->out, &packet, sizeof packet);
    port->out_at = 0;
    port->out_end = sizeof packet + payload_bytes;
}

/* Write what was put into out; if none of it goes, it is taken back. As port_flush(). */
static int try_packet(struct weir_port *port)
{
    int rc = port_flush(&port->base);
    if (rc == 0 && port->out_at == 0) {
        port->out_end = 0;
        return 0;
    }
    return rc < 0 ? -1 : 1;
}

static ssize_t port_write(struct weir_stream_link *link, struct iovec *parts, int n)
{
    struct weir_port *port = port_of(link);
    int rc = port_flush(link);
    size_t len = 0;
    if (rc <= 0) {
        return rc;
    }
    for (int i = 0; i < n && len < PAYLOAD_BYTES; i++) {
        size_t room = PAYLOAD_BYTES - len;
        size_t part = parts[i].iov_len < room ? parts[i].iov_len : room;
        memcpy(port->out + HEADER_BYTES + len, parts[i].iov_base, part);
        len += part;
    }
    begin_packet(port, WEIR_PORT_DATA, len);
    rc = try_packet(port);
    return rc <= 0 ? rc : (ssize_t)len;
}

/* A packet without data, if it goes at once. */
static void say(struct weir_port *port, enum weir_port_kind kind)
{
    if (port_flush(&port->base) == 1) {
        begin_packet(port, kind, 0);
        (void)try_packet(port);
    }
}

static void port_beat(struct weir_stream_link *link)
{
    say(port_of(link), WEIR_PORT_BEAT);
}

static void port_bye(struct weir_stream_link *link)
{
    say(port_of(link), WEIR_PORT_BYE);
}

/* Room, something to read, or the end of the port. */
static enum weir_status wait_ready(const struct weir_port *port, short events, uint64_t deadline_ns)
{
    struct pollfd fd = {.fd = port->base.fd, .events = events};
    uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
    if (left_ns == 0) {
        return WEIR_ERR_TIMED_OUT;
    }
    uint64_t left_ms = left_ns / WEIR_NS_PER_MS + 1;
    poll(&fd, 1, left_ms < WAIT_MS ? (int)left_ms : WAIT_MS);
    return WEIR_OK;
}

/* OPEN and OPENED go out whole, whatever was left in out before. */
static enum weir_status say_opened(struct weir_port *port, enum weir_port_kind kind,
                                   uint64_t deadline_ns)
{
    struct weir_port_proof proof = {.not_opener = ~port->opener, .words = WEIR_PORT_PROOF};
    enum weir_status status = WEIR_OK;
    bool said = false;
    while (status == WEIR_OK) {
        int rc = port_flush(&port->base);
        if (rc == 1 && said) {
            return WEIR_OK;
        }
        if (rc == 1) {
            memcpy(port->out + HEADER_BYTES, &proof, sizeof proof);
            begin_packet(port, kind, sizeof proof);
            said = true;
            continue;
        }
        struct pollfd fd = {.fd = port->base.fd};
        if (rc < 0 || (poll(&fd, 1, 0) > 0 && (fd.revents & POLLHUP))) {
            return WEIR_ERR_CLOSED;
        }
        status = wait_ready(port, POLLOUT, deadline_ns);
    }
    return status;
}

/* ---------------------------------------------------------------- the host's end */

/* The port stays for the next opener. */
static void host_close(struct weir_stream_link *link, bool child)
{
    struct weir_port *port = port_of(link);
    (void)child; /* a worker does not fork */
    port->opener = 0;
    port->skip += port->left;
    port->left = 0;
}

static const struct weir_stream_link_ops host_ops = {
    .id = WEIR_TRANSPORT_SERIAL,
    .read = port_read,
    .write = port_write,
    .flush = port_flush,
    .silent = port_silent,
    .bye = port_bye,
    .close = host_close,
};

static struct weir_port *make_port(int fd, const struct weir_stream_link_ops *ops)
{
    int type;
    socklen_t len = sizeof type;
    struct weir_port *port = calloc(1, sizeof *port);
    if (!port) {
        close(fd);
        return NULL;
    }
    port->base = (struct weir_stream_link){.ops = ops, .fd = fd};
    port->is_host = ops == &host_ops;
    port->is_socket = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
    return port;
}

struct weir_port *weir_port_create(int fd, uint64_t (*clock_ns)(void *user), void *user)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        close(fd);
        return NULL;
    }
    struct weir_port *port = make_port(fd, &host_ops);
    if (port) {
        port->clock_ns = clock_ns;
        port->user = user;
    }
    return port;
}

/* Somebody goes on speaking whom this host does not serve: an opener of the worker before. */
static void send_away(struct weir_port *port)
{
    port->opener = port->stranger;
    port->stranger = 0;
    say(port, WEIR_PORT_BYE);
    port->opener = 0;
}

enum weir_status weir_port_await(struct weir_port *port, struct weir_stream_link **ret_link)
{
    port->ended = false;
    while (port->next == 0) {
        int rc = advance(port);
        if (rc < 0 && port->next == 0) {
            return WEIR_ERR_CLOSED;
        }
        if (port->stranger != 0) {
            send_away(port);
        }
        if (rc == 0) {
            struct pollfd fd = {.fd = port->base.fd, .events = POLLIN};
            poll(&fd, 1, -1);
        }
    }
    port->opener = port->next;
    port->next = 0;
    port->stranger = 0;
    port->ended = false;
    enum weir_status status = say_opened(port, WEIR_PORT_OPENED, WEIR_FOREVER);
    port->heard_ns = port->clock_ns(port->user);
    *ret_link = &port->base;
    return status;
}

void weir_port_stop(struct weir_port *port)
{
    shutdown(port->base.fd, SHUT_RDWR);
}

void weir_port_destroy(struct weir_port *port)
{
    if (port) {
        close(port->base.fd);
        free(port);
    }
}

/* ---------------------------------------------------------------- the guest's end */

static void guest_close(struct weir_stream_link *link, bool child)
{
    close(link->fd);
    if (!child) {
        free(link);
    }
}

static const struct weir_stream_link_ops guest_ops = {
    .id = WEIR_TRANSPORT_SERIAL,
    .read = port_read,
    .write = port_write,
    .flush = port_flush,
    .beat = port_beat,
    .bye = port_bye,
    .close = guest_close,
};

static enum weir_status await_opened(struct weir_port *port, uint64_t deadline_ns)
{
    enum weir_status status = WEIR_OK;
    while (status == WEIR_OK && !port->opened) {
        int rc = advance(port);
        if (rc < 0) {
            return WEIR_ERR_CLOSED;
        }
        if (rc == 0 && !port->opened) {
            status = wait_ready(port, POLLIN, deadline_ns);
        }
    }
    return status;
}

/*
 * Whatever is older than our OPEN may end in half a packet after all (another kernel, a QEMU that
 * lost its host in the middle): then OPEN counts as its payload. So the second OPEN comes behind as
 * many zeros as a packet can be long.
 */
static enum weir_status say_open(struct weir_port *port, uint64_t deadline_ns)
{
    uint64_t first_ns = weir_deadline_after(SECOND_OPEN_NS);
    enum weir_status status = say_opened(port, WEIR_PORT_OPEN, deadline_ns);
    if (status == WEIR_OK) {
        status = await_opened(port, first_ns < deadline_ns ? first_ns : deadline_ns);
    }
    if (status == WEIR_ERR_TIMED_OUT && weir_deadline_left_ns(deadline_ns) != 0) {
        memset(port->out, 0, sizeof port->out);
        port->out_at = 0;
        port->out_end = sizeof port->out;
        status = say_opened(port, WEIR_PORT_OPEN, deadline_ns);
        status = status == WEIR_OK ? await_opened(port, deadline_ns) : status;
    }
    return status;
}

enum weir_status weir_port_open_fd(int fd, uint64_t deadline_ns, struct weir_stream_link **ret_link)
{
    struct weir_port *port = make_port(fd, &guest_ops);
    if (!port) {
        return WEIR_ERR_NO_MEMORY;
    }
    enum weir_status status = WEIR_OK;
    if (getrandom(&port->opener, sizeof port->opener, 0) != (ssize_t)sizeof port->opener) {
        status = WEIR_ERR_IO;
    }
    port->opener |= 1; /* never 0 */
    if (status == WEIR_OK) {
        status = say_open(port, deadline_ns);
        status = status == WEIR_ERR_CLOSED ? WEIR_ERR_NOT_FOUND : status;
    }
    if (status == WEIR_OK) {
        *ret_link = &port->base;
    } else {
        guest_close(&port->base, false);
    }
    return status;
}

enum weir_status weir_port_open(const char *path, uint64_t deadline_ns,
                                struct weir_stream_link **ret_link)
{
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        return weir_port_open_fd(fd, deadline_ns, ret_link);
    }
    switch (errno) {
    case EBUSY:
        return WEIR_ERR_EXISTS;
    case ENOENT:
    case ENODEV:
    case ENXIO:
        return WEIR_ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
        return WEIR_ERR_DENIED;
    default:
        return WEIR_ERR_IO;
    }
}

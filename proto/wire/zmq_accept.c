/*
 * Accepts connections in place of libzmq.
 *
 * Any client that reaches a ZeroMQ socket may open any number of connections. When none of the
 * process's descriptors is left, libzmq's listener for unix sockets ends the process (an assertion
 * that knows EAGAIN and ENFILE, but not EMFILE), and its listener for tcp retries without a pause.
 * So accept() and accept4() of this program, which libzmq calls instead of the C library's, refuse
 * such a connection: they accept it with a descriptor that was kept in reserve, close it, and
 * return ECONNABORTED, which libzmq takes for a peer that has hung up.
 *
 * ZeroMQ's connections cannot use the last quarter of the descriptors: it is for programs that come
 * through a tenant's socket, and for the worker itself. The kernel gives the lowest free number, so
 * the number of a new descriptor shows about how many there are.
 *
 * A connection to a unix socket is refused unless its process has got a token through a tenant's
 * socket and has not used it yet.
 *
 * Any client of a tcp socket may leave its handshake unfinished for 5 s. At most HANDSHAKES_MAX are
 * pending at a time. When another one comes, the oldest silent one of the address with the most
 * handshakes is closed: a guest with a key finishes in some milliseconds, so it is not that old. A
 * second descriptor of each connection is kept to close the right one, because libzmq may have
 * reused its own number for another connection.
 *
 * Until weir_zmq_accept_guard() is called, both functions behave as the C library's do. Later they
 * still do so for sockets of other types than SOCK_STREAM, which are Weir's own.
 */
#include "proto/wire/zmq_accept.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "proto/transport/zmq_wire.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SAY_NS (10 * WEIR_NS_PER_S)
/* Most handshakes under way: libzmq finishes 800 a second (measured on one core). */
#define HANDSHAKES_MAX 64
#define ADDRESS_BYTES  16

/* A connection over tcp whose peer has not shown that it has a key. */
struct handshake {
    int fd;  /* libzmq's descriptor */
    int own; /* our descriptor of the same connection */
    uint64_t since_ns;
    /* The peer's address; all addresses of an IPv6 network count as one. */
    uint8_t from[ADDRESS_BYTES];
};

#define EXPORTED __attribute__((visibility("default")))

static struct {
    pthread_mutex_t lock; /* guards the members below, but not first_refused, set before */
    bool guards;          /* set once and read without the lock, as is the next member: */
    bool (*expects)(const struct weir_peer *peer);
    int first_refused; /* descriptors from this number on are not for ZeroMQ */
    int reserve;       /* -1: the reserve could not be opened again yet */
    uint64_t n_refused;
    uint64_t said_ns;
    int n_handshakes, most_handshakes;
    struct handshake handshakes[HANDSHAKES_MAX]; /* sorted by age, the oldest first */
} guard = {.lock = PTHREAD_MUTEX_INITIALIZER, .reserve = -1, .first_refused = INT_MAX};

static int open_reserve(void)
{
    return eventfd(0, EFD_CLOEXEC); /* the reserve may be any kind of descriptor */
}

void weir_zmq_accept_guard(bool (*expects)(const struct weir_peer *peer))
{
    struct rlimit limit;

    WEIR_LOCKED(&guard.lock);
    if (!guard.guards) {
        guard.expects = expects;
        guard.most_handshakes = HANDSHAKES_MAX;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < INT_MAX) {
            guard.first_refused = (int)(limit.rlim_cur - limit.rlim_cur / 4);
            if (limit.rlim_cur / 8 < HANDSHAKES_MAX) { /* each handshake has two descriptors */
                guard.most_handshakes = (int)limit.rlim_cur / 8;
            }
        }
        guard.reserve = open_reserve();
        __atomic_store_n(&guard.guards, true, __ATOMIC_RELEASE);
    }
}

static int system_accept(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    return (int)syscall(SYS_accept4, fd, address, bytes, flags);
}

static void say_refused_locked(void)
{
    uint64_t now_ns = weir_clock_now_ns();

    guard.n_refused++;
    if (guard.said_ns == 0 || now_ns - guard.said_ns >= SAY_NS) {
        guard.said_ns = now_ns;
        weir_log_error("zmq: too few descriptors left, connections are turned away refused=%llu",
                       (unsigned long long)guard.n_refused);
    }
}

/* Accept and close the connection, or the listener would stay ready. */
static void turn_away_one(int listener)
{
    int fd;

    WEIR_LOCKED(&guard.lock);
    if (guard.reserve >= 0) {
        close(guard.reserve);
        fd = system_accept(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        weir_fd_close(fd);
    }
    guard.reserve = open_reserve();
    say_refused_locked();
}

/* ---------------------------------------------------------------- handshakes over tcp */

static void forget_locked(int i)
{
    close(guard.handshakes[i].own);
    guard.n_handshakes--;
    memmove(&guard.handshakes[i], &guard.handshakes[i + 1],
            (size_t)(guard.n_handshakes - i) * sizeof guard.handshakes[0]);
}

static void settle_locked(int fd)
{
    for (int i = 0; i < guard.n_handshakes; i++) {
        if (guard.handshakes[i].fd == fd) {
            forget_locked(i);
            return;
        }
    }
}

void weir_zmq_accept_settled(int fd)
{
    WEIR_LOCKED(&guard.lock);
    settle_locked(fd);
}

static bool find_address(int fd, uint8_t ret_from[ADDRESS_BYTES])
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } peer;
    socklen_t bytes = sizeof peer;

    memset(&peer, 0, sizeof peer);
    memset(ret_from, 0, ADDRESS_BYTES);
    WEIR_FAIL_IF(getpeername(fd, &peer.any, &bytes) != 0, false);
    if (peer.any.sa_family == AF_INET) {
        memcpy(ret_from, &peer.four.sin_addr, sizeof peer.four.sin_addr);
    } else if (IN6_IS_ADDR_V4MAPPED(&peer.six.sin6_addr)) {
        memcpy(ret_from, &peer.six.sin6_addr.s6_addr[12], sizeof peer.four.sin_addr);
    } else {
        memcpy(ret_from, &peer.six.sin6_addr, ADDRESS_BYTES / 2);
    }
    return true;
}

/* Has the peer sent nothing yet? */
static bool is_silent(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
           info.tcpi_bytes_received == 0;
}

/* Find the oldest handshake of the address with the most handshakes. Prefer peers that have sent
 * nothing: on a busy machine a guest's handshake may have ended without libzmq having reported it
 * yet. */
static int oldest_locked(void)
{
    bool silent[HANDSHAKES_MAX], any = false;
    int oldest = 0, most = 0;

    for (int i = 0; i < guard.n_handshakes; i++) {
        silent[i] = is_silent(guard.handshakes[i].own);
        any |= silent[i];
    }
    for (int i = 0; i < guard.n_handshakes; i++) {
        int n = 0;

        for (int k = i; k < guard.n_handshakes && (silent[i] || !any); k++) {
            n += memcmp(guard.handshakes[i].from, guard.handshakes[k].from, ADDRESS_BYTES) == 0;
        }
        if (n > most) {
            most = n;
            oldest = i;
        }
    }
    return oldest;
}

/* Note a new connection over tcp. false: no descriptor is left for it. */
static bool begin_handshake(int fd)
{
    struct handshake h = {
        .fd = fd, .own = fcntl(fd, F_DUPFD_CLOEXEC, 0), .since_ns = weir_clock_now_ns()};
    int oldest;

    if (h.own < 0 || h.own >= guard.first_refused || !find_address(fd, h.from)) {
        weir_fd_close(h.own);
        return false;
    }
    WEIR_LOCKED(&guard.lock);
    settle_locked(fd); /* forget an older connection that had this number */
    while (guard.n_handshakes != 0 &&
           h.since_ns - guard.handshakes[0].since_ns > WEIR_ZMQ_HANDSHAKE_MS * WEIR_NS_PER_MS) {
        forget_locked(0); /* libzmq has closed the connection */
    }
    if (guard.n_handshakes == guard.most_handshakes) {
        oldest = oldest_locked();
        shutdown(guard.handshakes[oldest].own, SHUT_RDWR);
        forget_locked(oldest);
    }
    guard.handshakes[guard.n_handshakes++] = h;
    return true;
}

/* ---------------------------------------------------------------- accepting */

/* @return a socket's option that is a number; -1: the socket has none */
static int option(int fd, int name)
{
    int value;
    socklen_t bytes = sizeof value;

    return getsockopt(fd, SOL_SOCKET, name, &value, &bytes) == 0 ? value : -1;
}

static bool is_expected(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof who;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 &&
           guard.expects(&(struct weir_peer){.pid = who.pid, .uid = who.uid, .known = true});
}

static int guarded_accept(int listener, struct sockaddr *address, socklen_t *bytes, int flags)
{
    int fd = system_accept(listener, address, bytes, flags);
    bool local = option(listener, SO_DOMAIN) == AF_UNIX;

    if (fd >= 0 && local && !is_expected(fd)) {
        close(fd);
    } else if (fd >= guard.first_refused || (fd >= 0 && !local && !begin_handshake(fd))) {
        close(fd);
        pthread_mutex_lock(&guard.lock);
        say_refused_locked();
        pthread_mutex_unlock(&guard.lock);
    } else if (fd < 0 &&
               (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
        turn_away_one(listener);
    } else {
        return fd;
    }
    errno = ECONNABORTED;
    return -1;
}

EXPORTED int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    return __atomic_load_n(&guard.guards, __ATOMIC_ACQUIRE) && option(fd, SO_TYPE) == SOCK_STREAM
               ? guarded_accept(fd, address, bytes, flags)
               : system_accept(fd, address, bytes, flags);
}

EXPORTED int accept(int fd, struct sockaddr *address, socklen_t *bytes)
{
    return accept4(fd, address, bytes, 0);
}

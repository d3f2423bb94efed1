/*
 * Accepting connections in libzmq's place.
 *
 * Anybody who reaches a ZeroMQ socket may open connections without end. When none of the process's
 * descriptors is left, libzmq's listener for unix sockets ends the process (an assertion that knows
 * EAGAIN and ENFILE, but not EMFILE), and its listener for tcp asks again and again without a
 * pause. So accept() and accept4() of this program, which libzmq's calls reach before the C
 * library's, turn such a connection away: they accept it with a descriptor that was kept in
 * reserve, close it, and say ECONNABORTED, which libzmq takes for a peer that has changed its mind.
 *
 * The last quarter of the descriptors is not for connections of ZeroMQ: programs that come through
 * a tenant's socket, and the worker itself, must find some. The kernel gives the lowest number that
 * is free, so the number of a new descriptor tells how many there are.
 *
 * Until weir_zmq_accept_guard() is called, both do what the C library's do.
 */
#include "proto/wire/zmq_accept.h"

#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SAY_NS   (10 * WEIR_NS_PER_S)
#define EXPORTED __attribute__((visibility("default")))

static struct {
    pthread_mutex_t lock; /* guards what follows but first_refused, which is set before */
    bool guards;          /* read without the lock: it is set once */
    int first_refused;    /* descriptors from this number on are not for ZeroMQ */
    int reserve;          /* -1: could not be had again yet */
    uint64_t n_refused;
    uint64_t said_ns;
} guard = {.lock = PTHREAD_MUTEX_INITIALIZER, .reserve = -1, .first_refused = INT_MAX};

static int open_reserve(void)
{
    return eventfd(0, EFD_CLOEXEC); /* any descriptor will do */
}

void weir_zmq_accept_guard(void)
{
    struct rlimit limit;

    pthread_mutex_lock(&guard.lock);
    if (!guard.guards) {
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < INT_MAX) {
            guard.first_refused = (int)(limit.rlim_cur - limit.rlim_cur / 4);
        }
        guard.reserve = open_reserve();
        __atomic_store_n(&guard.guards, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&guard.lock);
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

/* The connection must go, or the listener would stay ready. */
static void turn_away_one(int listener)
{
    int fd;

    pthread_mutex_lock(&guard.lock);
    if (guard.reserve >= 0) {
        close(guard.reserve);
        fd = system_accept(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            close(fd);
        }
    }
    guard.reserve = open_reserve();
    say_refused_locked();
    pthread_mutex_unlock(&guard.lock);
}

static int guarded_accept(int listener, struct sockaddr *address, socklen_t *bytes, int flags)
{
    int fd = system_accept(listener, address, bytes, flags);

    if (fd >= guard.first_refused) {
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
    return __atomic_load_n(&guard.guards, __ATOMIC_ACQUIRE)
               ? guarded_accept(fd, address, bytes, flags)
               : system_accept(fd, address, bytes, flags);
}

EXPORTED int accept(int fd, struct sockaddr *address, socklen_t *bytes)
{
    return accept4(fd, address, bytes, 0);
}

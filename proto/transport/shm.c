/*
 * The co-located transport: two rings in the shared segment, and the unix socket of the handshake,
 * which passes descriptors and shows that the other process is gone.
 *
 * Waiting is adaptive. A waiter first spins for the time that its caller allows; then it raises its
 * "waits" flag, checks once more, and sleeps on the peer's index itself (a futex in the segment).
 * It sleeps in slices, because a dead peer cannot wake it: after each slice it checks the socket.
 * The slices are long where another thread watches the socket and wakes the waiter when the peer
 * dies. The peer makes the system call to wake only when it finds the flag raised, and once more at
 * its own orderly end.
 *
 * When the peer has gone, what it had published before is still received; only then comes CLOSED.
 */
#include "proto/transport/shm.h"
#include "base/clock.h"
#include "base/fd.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/ring.h"
#include "proto/transport/segment_map.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

/*
 * A dead peer is noticed at most one slice late. Slices are short at first, for a death in the
 * middle of a call, and longer for idle waits. The watcher's wake-up is lost if it comes between
 * the waiter's last look and its sleep, so slices end even when the socket is watched.
 */
#define FIRST_SLICE_NS   (20 * WEIR_NS_PER_MS)
#define LAST_SLICE_NS    (250 * WEIR_NS_PER_MS)
#define WATCHED_SLICE_NS WEIR_NS_PER_S

/* A full ring means that the peer is far behind: a short spin, then sleep. */
#define SEND_SPIN_NS (5 * WEIR_NS_PER_US)

/* How often a spinning thread checks the word between two readings of the clock. */
#define SPIN_BATCH 16

#define SEND_FD_TIMEOUT_NS (5 * WEIR_NS_PER_S)

/* Sleeps of a waiter that nobody can wake: the first is about a scheduler's tick, the last is for
 * idle times. */
#define FIRST_NAP_NS (20 * WEIR_NS_PER_US)
#define LAST_NAP_NS  (2 * WEIR_NS_PER_MS)

struct shm {
    struct weir_transport base;
    struct weir_segment_view view;
    int socket_fd;
    uint64_t cookie; /* identifies the socket, in a program that may close descriptors of others; 0:
                        not needed */
    int pid_fd;
    int segment_fd;           /* -1: not kept */
    int gone;                 /* atomic, relaxed: once set it stays */
    bool watched;             /* another thread calls look(); set before others use the transport */
    struct weir_ring to_peer; /* used by the sending thread */
    struct weir_ring from_peer; /* used by the receiving thread, as is the next member: */
    struct weir_ring_buffer received;
    bool preempted; /* the receiving thread lost its core while it spun, so it sleeps next time */
    struct weir_shm_hooks hooks; /* for a region: hooks that stand in for the socket */
};

static struct shm *shm_of(struct weir_transport *t)
{
    return (struct shm *)(void *)t;
}

static void *shm_segment(struct weir_transport *t)
{
    return shm_of(t)->view.base;
}

static const struct weir_segment_view *shm_view(struct weir_transport *t)
{
    return &shm_of(t)->view;
}

/* Is the socket still ours? Daemons close all descriptors, and a file that they open later may get
 * our socket's number. That descriptor is then not used and not closed. */
static bool has_socket(const struct shm *shm)
{
    return shm->socket_fd >= 0 &&
           (shm->cookie == 0 || weir_socket_cookie(shm->socket_fd) == shm->cookie);
}

static bool shm_peer_gone(struct weir_transport *t)
{
    struct shm *shm = shm_of(t);
    if (__atomic_load_n(&shm->gone, __ATOMIC_RELAXED)) {
        return true;
    }
    bool gone = shm->hooks.gone
                    ? shm->hooks.gone(shm->hooks.user)
                    : !has_socket(shm) || weir_fd_peer_gone(shm->socket_fd, shm->pid_fd);
    if (gone) {
        __atomic_store_n(&shm->gone, 1, __ATOMIC_RELAXED);
    }
    return gone;
}

/* Spin until the word differs from `seen`; false: the time is over, or the thread lost its core. */
static bool spin(const uint32_t *word, uint32_t seen, uint64_t spin_ns, bool *preempted)
{
    if (spin_ns == 0 || *preempted) {
        *preempted = false;
        return false;
    }
    uint64_t now_ns = weir_clock_now_ns(), end_ns = now_ns + spin_ns, looked_ns;
    do {
        for (int i = 0; i < SPIN_BATCH; i++) {
            if (__atomic_load_n(word, __ATOMIC_RELAXED) != seen) {
                return true;
            }
            weir_cpu_pause();
        }
        looked_ns = now_ns;
        now_ns = weir_clock_now_ns();
        *preempted = now_ns - looked_ns >= WEIR_PREEMPTED_NS;
    } while (now_ns < end_ns && !*preempted);
    return false;
}

static void nap(uint64_t ns)
{
    int saved_errno = errno;
    struct timespec time = {.tv_nsec = (long)ns};
    nanosleep(&time, NULL);
    errno = saved_errno;
}

/*
 * Wait although nobody can wake us: sleep for an eighth of the time waited so far. No flag is
 * raised, so the peer makes no system calls for us.
 */
static enum weir_status doze_on(struct shm *shm, const uint32_t *word, uint32_t seen,
                                uint64_t deadline_ns)
{
    uint64_t start_ns = weir_clock_now_ns();
    uint64_t asked_ns = start_ns;
    for (;;) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seen) {
            return WEIR_OK;
        }
        uint64_t now_ns = weir_clock_now_ns();
        uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
        if (left_ns == 0 || now_ns - asked_ns >= FIRST_SLICE_NS) {
            asked_ns = now_ns;
            WEIR_FAIL_IF(shm_peer_gone(&shm->base), WEIR_ERR_CLOSED);
        }
        WEIR_FAIL_IF(left_ns == 0, WEIR_ERR_TIMED_OUT);
        uint64_t nap_ns = (now_ns - start_ns) / 8;
        nap_ns = nap_ns < FIRST_NAP_NS ? FIRST_NAP_NS : WEIR_MIN(nap_ns, LAST_NAP_NS);
        nap(WEIR_MIN(nap_ns, left_ns));
    }
}

/* Must a thread that sleeps with this flag return at once? Only receivers can be called. */
static bool is_called(struct shm *shm, const uint32_t *waits)
{
    return waits == &shm->from_peer.control->consumer_waits &&
           atomic_load_explicit(&shm->base.called, memory_order_relaxed) &&
           atomic_exchange(&shm->base.called, false);
}

/* Sleep until the peer's index differs from `seen`. May also return OK if it does not differ. */
static enum weir_status sleep_on(struct shm *shm, uint32_t *word, uint32_t seen, uint32_t *waits,
                                 uint64_t deadline_ns)
{
    enum weir_status status = WEIR_OK;
    uint64_t slice_ns = shm->watched ? WATCHED_SLICE_NS : FIRST_SLICE_NS;
    if (shm->view.polled) {
        return doze_on(shm, word, seen, deadline_ns);
    }
    for (bool slept = false;; slept = true) {
        /* W1: flag, then index, both sequentially consistent; meets wake() in ring.c. */
        __atomic_store_n(waits, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != seen) {
            break;
        }
        uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
        /* Do not ask before the first slice: most waits end in it, and asking is a system call. */
        if ((left_ns == 0 || slept) && shm_peer_gone(&shm->base)) {
            status = WEIR_ERR_CLOSED;
            break;
        }
        if (left_ns == 0 || is_called(shm, waits)) {
            status = WEIR_ERR_TIMED_OUT;
            break;
        }
        weir_futex_wait(word, seen, WEIR_MIN(left_ns, slice_ns));
        if (!shm->watched) {
            slice_ns = slice_ns * 2 < LAST_SLICE_NS ? slice_ns * 2 : LAST_SLICE_NS;
        }
    }
    __atomic_store_n(waits, 0, __ATOMIC_RELAXED);
    return status;
}

static enum weir_status shm_send(struct weir_transport *t, const struct weir_record *record,
                                 const void *bulk, size_t bulk_bytes, uint64_t timeout_ns)
{
    (void)bulk;
    struct shm *shm = shm_of(t);
    WEIR_FAIL_IF(bulk_bytes != 0, WEIR_ERR_INVALID);
    enum weir_status status = weir_ring_push(&shm->to_peer, record);
    if (status != WEIR_ERR_AGAIN) {
        return status;
    }
    struct weir_ring_control *control = shm->to_peer.control;
    uint64_t deadline_ns = timeout_ns ? weir_deadline_after(timeout_ns) : 0;
    while (status == WEIR_ERR_AGAIN) {
        uint64_t spin_ns = WEIR_MIN(timeout_ns, SEND_SPIN_NS);
        bool preempted = false;
        if (!spin(&control->head, shm->to_peer.seen, spin_ns, &preempted)) {
            status = sleep_on(shm, &control->head, shm->to_peer.seen, &control->producer_waits,
                              deadline_ns);
        } else if (weir_deadline_left_ns(deadline_ns) == 0) {
            status = WEIR_ERR_TIMED_OUT; /* room becomes free in too small amounts, or the index is
                                            unstable */
        } else {
            status = WEIR_OK;
        }
        WEIR_THEN(status, weir_ring_push(&shm->to_peer, record));
    }
    return status;
}

/* Wait for the next record, and take it. */
static enum weir_status await_record(struct shm *shm, uint64_t spin_ns, uint64_t timeout_ns)
{
    struct weir_ring_control *control = shm->from_peer.control;
    uint64_t deadline_ns = timeout_ns ? weir_deadline_after(timeout_ns) : 0;
    enum weir_status waited = WEIR_OK;
    if (!spin(&control->tail, shm->from_peer.seen, WEIR_MIN(spin_ns, timeout_ns),
              &shm->preempted)) {
        waited = sleep_on(shm, &control->tail, shm->from_peer.seen, &control->consumer_waits,
                          deadline_ns);
    }
    if (waited == WEIR_ERR_TIMED_OUT) {
        return waited;
    }
    /* Try this even if the peer is gone: it may have sent between our last check and its end. */
    enum weir_status status = weir_ring_pop(&shm->from_peer, &shm->received);
    if (status == WEIR_ERR_AGAIN) {
        /* An index that moved and came back breaks the protocol. */
        status = waited == WEIR_ERR_CLOSED ? WEIR_ERR_CLOSED : WEIR_ERR_PEER;
    }
    return status;
}

static enum weir_status shm_receive(struct weir_transport *t, const struct weir_record **ret_record,
                                    const void **ret_bulk, size_t *ret_bulk_bytes, uint64_t spin_ns,
                                    uint64_t timeout_ns)
{
    struct shm *shm = shm_of(t);
    enum weir_status status = weir_ring_pop(&shm->from_peer, &shm->received);
    if (status == WEIR_ERR_AGAIN) {
        status = await_record(shm, spin_ns, timeout_ns);
    }
    if (status != WEIR_OK) {
        return status;
    }
    *ret_record = shm->received.bytes;
    *ret_bulk = NULL;
    *ret_bulk_bytes = 0;
    return WEIR_OK;
}

static enum weir_status shm_send_fd(struct weir_transport *t, int fd)
{
    WEIR_FAIL_IF(fd < 0, WEIR_ERR_INVALID);
    return !has_socket(shm_of(t)) ? WEIR_ERR_CLOSED
                                  : weir_fd_message_send(shm_of(t)->socket_fd, "", 1, fd,
                                                         weir_deadline_after(SEND_FD_TIMEOUT_NS));
}

static enum weir_status shm_receive_fd(struct weir_transport *t, uint64_t timeout_ns, int *ret_fd)
{
    char byte[8];
    size_t len;
    int fd;
    uint64_t deadline_ns = timeout_ns ? weir_deadline_after(timeout_ns) : 0;
    WEIR_FAIL_IF(!has_socket(shm_of(t)), WEIR_ERR_CLOSED);
    WEIR_TRY(
        weir_fd_message_receive(shm_of(t)->socket_fd, byte, sizeof byte, deadline_ns, &len, &fd));
    WEIR_FAIL_IF(fd < 0, WEIR_ERR_PEER);
    *ret_fd = fd;
    return WEIR_OK;
}

static int shm_region_fd(struct weir_transport *t)
{
    struct shm *shm = shm_of(t);
    return shm->hooks.region_fd ? shm->hooks.region_fd(shm->hooks.user) : -1;
}

static void shm_ring_bell(struct weir_transport *t)
{
    struct shm *shm = shm_of(t);
    if (shm->hooks.ring_bell) {
        shm->hooks.ring_bell(shm->hooks.user);
    }
}

static bool add_to(int epoll_fd, int fd, uint32_t events, uint64_t key)
{
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data = {.u64 = key}};
    return fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool shm_watch(struct weir_transport *t, int epoll_fd, uint64_t key)
{
    struct shm *shm = shm_of(t);
    int saved_errno = errno;
    shm->watched = shm->socket_fd >= 0 && !shm->view.polled &&
                   add_to(epoll_fd, shm->socket_fd, EPOLLRDHUP, key) &&
                   add_to(epoll_fd, shm->pid_fd, EPOLLIN, key);
    errno = saved_errno;
    return shm->watched;
}

/* Wake threads that sleep on either index, so that they ask the socket now and not after their
 * slice. */
static void shm_look(struct weir_transport *t)
{
    struct shm *shm = shm_of(t);
    weir_futex_wake(&shm->to_peer.control->head, INT_MAX);
    weir_futex_wake(&shm->from_peer.control->tail, INT_MAX);
}

static bool shm_state(struct weir_transport *t, struct weir_transport_state *ret_state)
{
    const struct shm *shm = shm_of(t);
    *ret_state = (struct weir_transport_state){.segment_fd = shm->segment_fd,
                                               .socket_fd = shm->socket_fd,
                                               .pid_fd = shm->pid_fd,
                                               .segment_bytes = shm->view.bytes,
                                               .sent = shm->to_peer.own,
                                               .received = shm->from_peer.own};
    return shm->segment_fd >= 0;
}

static void shm_leave(struct weir_transport *t)
{
    struct shm *shm = shm_of(t);
    if (shm->hooks.leave) {
        shm->hooks.leave(shm->hooks.user);
    }
}

static void let_go(struct weir_transport *t, bool child)
{
    struct shm *shm = shm_of(t);
    if (shm->hooks.leave && !child) {
        shm->hooks.leave(shm->hooks.user);
    }
    if (has_socket(shm)) {
        close(shm->socket_fd);
    }
    weir_fd_close(shm->pid_fd);
    weir_fd_close(shm->segment_fd);
    /* Wake a peer that sleeps on either index, so that it asks the socket now and not after its
     * slice. */
    if (!shm->to_peer.bell) {
        weir_futex_wake(&shm->to_peer.control->tail, 1);
        weir_futex_wake(&shm->from_peer.control->head, 1);
    }
    weir_segment_unmap(&shm->view);
    weir_ring_buffer_finish(&shm->received);
    if (shm->hooks.close) {
        shm->hooks.close(shm->hooks.user, child);
    }
    free(shm);
}

static void shm_destroy(struct weir_transport *t)
{
    let_go(t, false);
}

/* Closing a copy of the socket does not end the connection. */
static void shm_abandon(struct weir_transport *t)
{
    let_go(t, true);
}

#define SHM_OPS(transport_name)                                                                    \
    {                                                                                              \
        .name = (transport_name), .segment = shm_segment, .view = shm_view, .send = shm_send,      \
        .receive = shm_receive, .peer_gone = shm_peer_gone, .watch = shm_watch, .look = shm_look,  \
        .send_fd = shm_send_fd, .receive_fd = shm_receive_fd, .state = shm_state,                  \
        .destroy = shm_destroy, .abandon = shm_abandon                                             \
    }

#define REGION_OPS(transport_name)                                                                 \
    {                                                                                              \
        .name = (transport_name), .segment = shm_segment, .view = shm_view, .send = shm_send,      \
        .receive = shm_receive, .peer_gone = shm_peer_gone, .region_fd = shm_region_fd,            \
        .ring_bell = shm_ring_bell, .leave = shm_leave, .destroy = shm_destroy,                    \
        .abandon = shm_abandon                                                                     \
    }

static const struct weir_transport_ops shm_ops = SHM_OPS("shm");
static const struct weir_transport_ops loop_ops = SHM_OPS("loop");
static const struct weir_transport_ops ivshmem_ops = REGION_OPS("ivshmem");
static const struct weir_transport_ops devdax_ops = REGION_OPS("devdax");

static const struct weir_transport_ops *ops_of(enum weir_transport_id id)
{
    if (id == WEIR_TRANSPORT_IVSHMEM || id == WEIR_TRANSPORT_DEVDAX) {
        return id == WEIR_TRANSPORT_DEVDAX ? &devdax_ops : &ivshmem_ops;
    }
    return id == WEIR_TRANSPORT_LOOP ? &loop_ops : &shm_ops;
}

enum weir_status weir_shm_create(const struct weir_shm_params *params,
                                 struct weir_transport **ret_transport)
{
    struct shm *shm = calloc(1, sizeof *shm);
    WEIR_FAIL_IF(!shm, WEIR_ERR_NO_MEMORY);
    shm->base.ops = ops_of(params->id);
    shm->view = params->view;
    shm->hooks = params->hooks;
    shm->socket_fd = params->socket_fd;
    shm->cookie = params->is_host ? 0 : weir_socket_cookie(params->socket_fd);
    shm->pid_fd = params->pid_fd;
    shm->segment_fd = -1;
    struct weir_ring *to_guest = params->is_host ? &shm->to_peer : &shm->from_peer;
    struct weir_ring *to_host = params->is_host ? &shm->from_peer : &shm->to_peer;
    struct weir_segment_header *header = shm->view.header;
    weir_ring_init(to_guest, &header->to_guest, shm->view.to_guest, shm->view.ring_bytes);
    weir_ring_init(to_host, &header->to_host, shm->view.to_host, shm->view.ring_bytes);
    shm->to_peer.bell = shm->from_peer.bell = params->bell;
    shm->to_peer.bell_value = shm->from_peer.bell_value = params->bell_value;
    *ret_transport = &shm->base;
    return WEIR_OK;
}

void weir_shm_keep_segment(struct weir_transport *transport, int segment_fd)
{
    shm_of(transport)->segment_fd = segment_fd;
}

enum weir_status weir_shm_resume(const struct weir_transport_state *state,
                                 struct weir_transport **ret_transport)
{
    struct weir_shm_params end = {.id = WEIR_TRANSPORT_SHM,
                                  .is_host = true,
                                  .socket_fd = state->socket_fd,
                                  .pid_fd = state->pid_fd};
    enum weir_status status = weir_segment_map(state->segment_fd, state->segment_bytes, &end.view);
    WEIR_THEN(status, weir_shm_create(&end, ret_transport));
    if (status != WEIR_OK) {
        weir_segment_unmap(&end.view);
        return status;
    }
    struct shm *shm = shm_of(*ret_transport);
    shm->segment_fd = state->segment_fd;
    /* Both ends' indices as they were; what the guest's are is read at the first use: until then
     * the one ring counts as full, the other as empty. */
    shm->to_peer.own = state->sent;
    shm->to_peer.seen = state->sent - shm->to_peer.size_bytes;
    shm->from_peer.own = shm->from_peer.seen = state->received;
    return WEIR_OK;
}

/* What the transport says to a peer that lies:
 * an exact status each, in bounded time, and no crash. */
#include "base/clock.h"
#include "tests/lib/tl_lived.h"
#include "tests/lib/tl_peer.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int make_host(void **state)
{
    static struct tl_peer peer;
    tl_peer_make(true, &peer);
    *state = &peer;
    return 0;
}

static int make_guest(void **state)
{
    static struct tl_peer peer;
    tl_peer_make(false, &peer);
    *state = &peer;
    return 0;
}

static int destroy(void **state)
{
    tl_peer_destroy(*state);
    return 0;
}

static enum weir_status receive(struct tl_peer *peer, uint64_t timeout_ns)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;
    return peer->victim->ops->receive(peer->victim, &record, &bulk, &bulk_bytes, 0, timeout_ns);
}

static enum weir_status send_bytes(struct tl_peer *peer, uint32_t len, uint64_t timeout_ns)
{
    static union {
        struct weir_record record;
        uint8_t bytes[8192];
    } space;
    space.record = (struct weir_record){.len_bytes = len};
    return peer->victim->ops->send(peer->victim, &space.record, NULL, 0, timeout_ns);
}

static void receive_impossible_tail_is_peer_error(void **state)
{
    const uint32_t tails[] = {1, 8, 31, 4097, 4104, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffff000};
    struct tl_peer *peer = *state;
    tl_peer_plant(peer, 32);
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        print_message("    tail %#x\n", tails[i]);
        tl_peer_destroy(peer);
        tl_peer_make(true, peer);
        tl_peer_plant(peer, 32);
        tl_peer_set_tail(peer, tails[i]);
        assert_int_equal(receive(peer, WEIR_NS_PER_S), WEIR_ERR_PEER);
        assert_int_equal(receive(peer, 0), WEIR_ERR_PEER); /* and stays so */
    }
}

static void receive_impossible_length_is_peer_error(void **state)
{
    const uint32_t lens[] = {0,  1,    8,    24,   31,      33,         36,         72,
                             68, 4096, 4104, 8192, 2097160, 0x80000000, 0xfffffff8, 0xffffffff};
    struct tl_peer *peer = *state;
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        print_message("    length %#x\n", lens[i]);
        tl_peer_destroy(peer);
        tl_peer_make(true, peer);
        tl_peer_plant(peer, lens[i]);
        tl_peer_set_tail(peer, 64);
        assert_int_equal(receive(peer, WEIR_NS_PER_S), WEIR_ERR_PEER);
    }
}

static void receive_tail_that_comes_back_is_peer_error(void **state)
{
    struct tl_peer *peer = *state;
    tl_peer_plant(peer, 32);
    tl_peer_set_tail(peer, 32);
    assert_int_equal(receive(peer, 0), WEIR_OK);
    tl_peer_set_tail(peer, 0);
    assert_int_equal(receive(peer, WEIR_NS_PER_S), WEIR_ERR_PEER);
}

static void receive_header_changed_afterwards_keeps_the_copy(void **state)
{
    struct tl_peer *peer = *state;
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;
    tl_peer_plant(peer, 64);
    tl_peer_set_tail(peer, 64);
    assert_int_equal(peer->victim->ops->receive(peer->victim, &record, &bulk, &bulk_bytes, 0, 0),
                     WEIR_OK);
    tl_peer_plant(peer, 0xffffffff);
    memset(peer->ring_in, 0xff, 4096);
    assert_int_equal(record->len_bytes, 64);
    assert_int_equal(record->op, 1);
}

static void send_impossible_head_is_peer_error(void **state)
{
    const uint32_t heads[] = {1u << 30, 0x80000000, 4096 + 4000, 0xffffff00};
    struct tl_peer *peer = *state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        print_message("    head %#x\n", heads[i]);
        tl_peer_destroy(peer);
        tl_peer_make(true, peer);
        assert_int_equal(send_bytes(peer, 4000, 0), WEIR_OK);
        tl_peer_set_head(peer, heads[i]);
        assert_int_equal(send_bytes(peer, 4000, WEIR_NS_PER_S), WEIR_ERR_PEER);
        assert_int_equal(send_bytes(peer, 4000, 0), WEIR_ERR_PEER);
    }
}

static void send_larger_than_the_ring_is_too_big(void **state)
{
    assert_int_equal(send_bytes(*state, 4104, WEIR_NS_PER_S), WEIR_ERR_TOO_BIG);
    assert_int_equal(send_bytes(*state, 4096, WEIR_NS_PER_S), WEIR_OK);
}

static void send_to_who_never_reads_times_out(void **state)
{
    struct tl_peer *peer = *state;
    assert_int_equal(send_bytes(peer, 4096, 0), WEIR_OK);
    uint64_t start_ns = weir_clock_now_ns();
    struct tl_lived start = tl_lived_now();
    assert_int_equal(send_bytes(peer, 32, 20 * WEIR_NS_PER_MS), WEIR_ERR_TIMED_OUT);
    assert_true(weir_clock_now_ns() - start_ns >= 20 * WEIR_NS_PER_MS);
    assert_true(tl_lived_since_ns(start) < WEIR_NS_PER_S);
}

struct flicker {
    struct tl_peer *peer;
    int stop;
};

/* Moves the head to and fro within the possible, never giving room. */
static void *flicker(void *user)
{
    struct flicker *flicker = user;
    for (uint32_t i = 0; !__atomic_load_n(&flicker->stop, __ATOMIC_RELAXED); i++) {
        tl_peer_set_head(flicker->peer, i % 2 ? 8 : 0);
    }
    return NULL;
}

static void send_to_a_head_that_flickers_times_out(void **state)
{
    struct flicker job = {.peer = *state};
    pthread_t thread;
    assert_int_equal(send_bytes(job.peer, 4096, 0), WEIR_OK);
    assert_int_equal(pthread_create(&thread, NULL, flicker, &job), 0);
    struct tl_lived start = tl_lived_now();
    enum weir_status status = send_bytes(job.peer, 4096, 30 * WEIR_NS_PER_MS);
    uint64_t took_ns = tl_lived_since_ns(start);
    __atomic_store_n(&job.stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_int_equal(status, WEIR_ERR_TIMED_OUT);
    assert_true(took_ns < WEIR_NS_PER_S);
}

/* Always "asleep": makes us wake it each time. Costs a system call, nothing else. */
static void send_to_who_claims_to_sleep_succeeds(void **state)
{
    struct tl_peer *peer = *state;
    for (uint32_t i = 0; i < 64; i++) {
        peer->control_out->consumer_waits = 0xffffffff;
        assert_int_equal(send_bytes(peer, 64, 0), WEIR_OK);
    }
}

static void receive_of_a_flood_gives_each_record_once(void **state)
{
    struct tl_peer *peer = *state;
    for (uint32_t at = 0; at < 4096; at += 32) {
        struct weir_record record = {.len_bytes = 32, .seq = at};
        memcpy(peer->ring_in + at, &record, sizeof record);
    }
    tl_peer_set_tail(peer, 4096);
    for (uint32_t i = 0; i < 128; i++) {
        assert_int_equal(receive(peer, 0), WEIR_OK);
    }
    assert_int_equal(receive(peer, 0), WEIR_ERR_TIMED_OUT);
}

static void receive_after_hang_up_in_mid_record_is_closed(void **state)
{
    struct tl_peer *peer = *state;
    tl_peer_plant(peer, 64); /* written, never published */
    tl_peer_hang_up(peer);
    struct tl_lived start = tl_lived_now();
    assert_int_equal(receive(peer, WEIR_FOREVER), WEIR_ERR_CLOSED);
    assert_true(tl_lived_since_ns(start) < WEIR_NS_PER_S);
}

static void receive_of_half_a_record_before_hang_up_is_peer_error(void **state)
{
    struct tl_peer *peer = *state;
    tl_peer_plant(peer, 64);
    tl_peer_set_tail(peer, 40);
    tl_peer_hang_up(peer);
    assert_int_equal(receive(peer, WEIR_FOREVER), WEIR_ERR_PEER);
}

static void receive_after_shutdown_of_one_direction_is_closed(void **state)
{
    struct tl_peer *peer = *state;
    shutdown(peer->socket_fd, SHUT_WR);
    assert_int_equal(receive(peer, WEIR_FOREVER), WEIR_ERR_CLOSED);
}

static void segment_cannot_shrink_or_grow_or_be_unsealed(void **state)
{
    struct tl_peer *peer = *state;
    assert_int_equal(ftruncate(peer->memory_fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(peer->memory_fd, 1 << 26), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fcntl(peer->memory_fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(errno, EPERM);
}

static void header_scribbled_over_does_not_move_the_view(void **state)
{
    struct tl_peer *peer = *state;
    const struct weir_segment_view *view = peer->victim->ops->view(peer->victim);
    uint64_t arena_bytes = view->arena_bytes;
    memset(peer->view.header, 0xff, 64);
    assert_int_equal(view->arena_bytes, arena_bytes);
    assert_int_equal(view->ring_bytes, 4096);
    assert_int_equal(send_bytes(peer, 64, 0), WEIR_OK);
}

static void receive_fd_without_a_descriptor_is_peer_error(void **state)
{
    struct tl_peer *peer = *state;
    int fd = -1;
    assert_int_equal(send(peer->socket_fd, "x", 1, 0), 1);
    assert_int_equal(peer->victim->ops->receive_fd(peer->victim, WEIR_NS_PER_S, &fd),
                     WEIR_ERR_PEER);
    assert_int_equal(fd, -1);
}

static void send_fds(int socket_fd, const char *bytes, size_t len, int n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 16)];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
    for (int i = 0; i < n; i++) {
        memcpy(CMSG_DATA(header) + (size_t)i * sizeof(int), &socket_fd, sizeof(int));
    }
    assert_int_equal(sendmsg(socket_fd, &message, 0), len);
}

static int lowest_free_fd(void)
{
    int fd = dup(0);
    close(fd);
    return fd;
}

static void receive_fd_of_several_is_peer_error_and_leaks_none(void **state)
{
    const int counts[] = {2, 8, 16};
    struct tl_peer *peer = *state;
    int free_fd = lowest_free_fd();
    for (size_t i = 0; i < 3; i++) {
        int fd = -1;
        send_fds(peer->socket_fd, "x", 1, counts[i]);
        assert_int_equal(peer->victim->ops->receive_fd(peer->victim, WEIR_NS_PER_S, &fd),
                         WEIR_ERR_PEER);
        assert_int_equal(lowest_free_fd(), free_fd);
    }
}

static void receive_fd_with_a_long_message_is_peer_error_and_leaks_none(void **state)
{
    struct tl_peer *peer = *state;
    int free_fd = lowest_free_fd();
    int fd = -1;
    send_fds(peer->socket_fd, "0123456789abcdef", 16, 1);
    assert_int_equal(peer->victim->ops->receive_fd(peer->victim, WEIR_NS_PER_S, &fd),
                     WEIR_ERR_PEER);
    assert_int_equal(lowest_free_fd(), free_fd);
}

static void receive_fd_after_hang_up_is_closed(void **state)
{
    struct tl_peer *peer = *state;
    int fd;
    tl_peer_hang_up(peer);
    assert_int_equal(peer->victim->ops->receive_fd(peer->victim, WEIR_FOREVER, &fd),
                     WEIR_ERR_CLOSED);
}

static void guest_end_is_as_careful(void **state)
{
    struct tl_peer *peer = *state;
    tl_peer_plant(peer, 0xfffffff8);
    tl_peer_set_tail(peer, 64);
    assert_int_equal(receive(peer, WEIR_NS_PER_S), WEIR_ERR_PEER);
    assert_int_equal(send_bytes(peer, 4000, 0), WEIR_OK);
    tl_peer_set_head(peer, 0x40000000);
    assert_int_equal(send_bytes(peer, 4000, WEIR_NS_PER_S), WEIR_ERR_PEER);
}

#define HOST_TEST(name) cmocka_unit_test_setup_teardown(name, make_host, destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOST_TEST(receive_impossible_tail_is_peer_error),
        HOST_TEST(receive_impossible_length_is_peer_error),
        HOST_TEST(receive_tail_that_comes_back_is_peer_error),
        HOST_TEST(receive_header_changed_afterwards_keeps_the_copy),
        HOST_TEST(send_impossible_head_is_peer_error),
        HOST_TEST(send_larger_than_the_ring_is_too_big),
        HOST_TEST(send_to_who_never_reads_times_out),
        HOST_TEST(send_to_a_head_that_flickers_times_out),
        HOST_TEST(send_to_who_claims_to_sleep_succeeds),
        HOST_TEST(receive_of_a_flood_gives_each_record_once),
        HOST_TEST(receive_after_hang_up_in_mid_record_is_closed),
        HOST_TEST(receive_of_half_a_record_before_hang_up_is_peer_error),
        HOST_TEST(receive_after_shutdown_of_one_direction_is_closed),
        HOST_TEST(segment_cannot_shrink_or_grow_or_be_unsealed),
        HOST_TEST(header_scribbled_over_does_not_move_the_view),
        HOST_TEST(receive_fd_without_a_descriptor_is_peer_error),
        HOST_TEST(receive_fd_of_several_is_peer_error_and_leaks_none),
        HOST_TEST(receive_fd_with_a_long_message_is_peer_error_and_leaks_none),
        HOST_TEST(receive_fd_after_hang_up_is_closed),
        cmocka_unit_test_setup_teardown(guest_end_is_as_careful, make_guest, destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

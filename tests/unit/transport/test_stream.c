/*
 * What peers of a stream may send that no end of ours would: frames that lie, packets that are cut
 * short, openers that are killed, silent, or strangers.
 */
#include "base/clock.h"
#include "proto/transport/stream.h"
#include "proto/transport/stream_port.h"
#include "tests/lib/tl_pair.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND WEIR_NS_PER_S

static enum weir_status receive(struct weir_transport *t, uint64_t timeout_ns)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;
    return t->ops->receive(t, &record, &bulk, &bulk_bytes, 0, timeout_ns);
}

/* ---------------------------------------------------------------- frames */

/* An end, and the raw socket of its peer. */
static struct weir_transport *make_end(int *ret_peer)
{
    int fds[2];
    struct weir_transport *t;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct weir_stream_link *link = weir_stream_socket(fds[0]);
    assert_non_null(link);
    assert_int_equal(weir_stream_create(link, &t), WEIR_OK);
    *ret_peer = fds[1];
    return t;
}

static void put(int fd, const void *bytes, size_t len)
{
    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), len);
}

static void lying_frames_end_the_connection(void **state)
{
    const struct weir_stream_frame good = {
        .magic = WEIR_STREAM_MAGIC, .kind = WEIR_STREAM_RECORD, .head_bytes = 32};
    const struct weir_record fits = {.len_bytes = 32}, differs = {.len_bytes = 40};
    struct weir_stream_frame frames[8];
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        frames[i] = good;
    }
    frames[0].magic ^= 1;
    frames[1].kind = 0;
    frames[2].kind = WEIR_STREAM_PING; /* with a head */
    frames[3].head_bytes = 31;
    frames[4].head_bytes = WEIR_RECORD_MAX_BYTES + 8;
    frames[5].bulk_bytes = WEIR_BULK_MAX_BYTES + 1;
    frames[6].pad = 1;
    frames[7].kind = WEIR_STREAM_HELLO; /* not after the handshake */
    for (size_t i = 0; i <= 8; i++) {
        int peer;
        struct weir_transport *t = make_end(&peer);
        put(peer, &good, sizeof good);
        put(peer, &fits, sizeof fits);
        put(peer, i < 8 ? &frames[i] : &good, sizeof good);
        put(peer, &differs, sizeof fits); /* of the last: another length than the frame's */
        enum weir_status status = receive(t, TL_LONG_NS);
        status = status == WEIR_OK ? receive(t, TL_LONG_NS) : status;
        assert_int_equal(status, WEIR_ERR_PEER);
        assert_int_equal(receive(t, 0), WEIR_ERR_PEER);
        assert_true(t->ops->peer_gone(t));
        t->ops->destroy(t);
        close(peer);
    }
}

static void frames_come_in_any_pieces(void **state)
{
    struct {
        struct weir_stream_frame frame;
        struct weir_record record;
        uint8_t bulk[24];
    } message = {.frame = {.magic = WEIR_STREAM_MAGIC,
                           .kind = WEIR_STREAM_RECORD,
                           .head_bytes = 32,
                           .bulk_bytes = 24},
                 .record = {.len_bytes = 32}};
    const uint8_t *bytes = (const uint8_t *)&message;
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;
    int peer;
    struct weir_transport *t = make_end(&peer);
    (void)state;
    memset(message.bulk, 0x77, sizeof message.bulk);
    for (size_t cut = 1; cut < sizeof message; cut++) {
        message.record.seq = cut;
        put(peer, bytes, cut);
        assert_int_equal(receive(t, 0), WEIR_ERR_TIMED_OUT);
        put(peer, bytes + cut, sizeof message - cut);
        assert_int_equal(t->ops->receive(t, &record, &bulk, &bulk_bytes, 0, TL_LONG_NS), WEIR_OK);
        assert_int_equal(record->seq, cut);
        assert_int_equal(bulk_bytes, sizeof message.bulk);
        assert_memory_equal(bulk, message.bulk, sizeof message.bulk);
    }
    const struct weir_stream_frame ping = {.magic = WEIR_STREAM_MAGIC, .kind = WEIR_STREAM_PING};
    put(peer, &ping, sizeof ping);
    assert_int_equal(receive(t, 0), WEIR_ERR_TIMED_OUT); /* it says nothing */
    put(peer, bytes, 40);
    close(peer); /* in the middle */
    assert_int_equal(receive(t, TL_LONG_NS), WEIR_ERR_CLOSED);
    t->ops->destroy(t);
}

/* The end of the connection was read along with the lie. */
static void nothing_is_received_after_a_lie_before_the_end(void **state)
{
    const struct weir_stream_frame hello = {.magic = WEIR_STREAM_MAGIC, .kind = WEIR_STREAM_HELLO};
    const struct weir_stream_frame good = {
        .magic = WEIR_STREAM_MAGIC, .kind = WEIR_STREAM_RECORD, .head_bytes = 32};
    const struct weir_record fits = {.len_bytes = 32};
    int peer;
    struct weir_transport *t = make_end(&peer);

    (void)state;
    put(peer, &hello, sizeof hello); /* not after the handshake */
    put(peer, &good, sizeof good);
    put(peer, &fits, sizeof fits);
    close(peer);
    assert_int_equal(receive(t, TL_LONG_NS), WEIR_ERR_PEER);
    assert_int_equal(receive(t, TL_LONG_NS), WEIR_ERR_PEER);
    t->ops->destroy(t);
}

static void what_is_not_received_is_bounded(void **state)
{
    int peer;
    struct weir_transport *t = make_end(&peer);
    const struct weir_stream_frame frame = {.magic = WEIR_STREAM_MAGIC,
                                            .kind = WEIR_STREAM_RECORD,
                                            .head_bytes = WEIR_RECORD_MAX_BYTES};
    uint8_t *message = calloc(1, sizeof frame + WEIR_RECORD_MAX_BYTES);
    size_t sent = 0, at = 0, len = sizeof frame + WEIR_RECORD_MAX_BYTES;
    (void)state;
    memcpy(message, &frame, sizeof frame);
    ((struct weir_record *)(void *)(message + sizeof frame))->len_bytes = WEIR_RECORD_MAX_BYTES;
    for (int idle = 0; idle < 3;) {
        ssize_t n = send(peer, message + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        idle = n > 0 ? 0 : idle + 1;
        at = (at + (size_t)(n > 0 ? n : 0)) % len;
        sent += (size_t)(n > 0 ? n : 0);
        assert_false(t->ops->peer_gone(t)); /* reads what there is */
        assert_true(sent < 2 * (size_t)WEIR_STREAM_WINDOW_BYTES);
    }
    assert_true(sent >= WEIR_STREAM_WINDOW_BYTES);
    assert_int_equal(receive(t, TL_LONG_NS), WEIR_OK);
    t->ops->destroy(t);
    close(peer);
    free(message);
}

/* ---------------------------------------------------------------- ports */

static uint64_t now_ns; /* of the ports' clock */

static uint64_t clock_ns(void *user)
{
    (void)user;
    return now_ns;
}

struct half_port {
    int guest; /* raw */
    struct weir_port *port;
};

static struct half_port make_half_port(void)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct half_port half = {.guest = fds[1], .port = weir_port_create(fds[0], clock_ns, NULL)};
    assert_non_null(half.port);
    return half;
}

static void free_half_port(struct half_port *half)
{
    weir_port_destroy(half->port);
    close(half->guest);
}

static void put_packet(int fd, enum weir_port_kind kind, uint64_t opener, const void *payload,
                       size_t len)
{
    struct weir_port_packet packet = {.magic = WEIR_PORT_MAGIC,
                                      .kind = (uint16_t)kind,
                                      .payload_bytes = (uint16_t)len,
                                      .opener = opener};
    put(fd, &packet, sizeof packet);
    if (len > 0) {
        put(fd, payload, len);
    }
}

static void put_open(int fd, uint64_t opener)
{
    struct weir_port_proof proof = {.not_opener = ~opener, .words = WEIR_PORT_PROOF};
    put_packet(fd, WEIR_PORT_OPEN, opener, &proof, sizeof proof);
}

static void expect_packet(int fd, enum weir_port_kind kind, uint64_t opener)
{
    struct weir_port_packet packet;
    uint8_t payload[64];
    assert_int_equal(recv(fd, &packet, sizeof packet, MSG_WAITALL), sizeof packet);
    assert_int_equal(packet.kind, kind);
    assert_int_equal(packet.opener, opener);
    assert_true(packet.payload_bytes <= sizeof payload);
    if (packet.payload_bytes > 0) {
        assert_int_equal(recv(fd, payload, packet.payload_bytes, MSG_WAITALL),
                         packet.payload_bytes);
    }
}

static void put_record(int fd, uint64_t opener, uint64_t seq)
{
    struct {
        struct weir_stream_frame frame;
        struct weir_record record;
    } message = {
        .frame = {.magic = WEIR_STREAM_MAGIC, .kind = WEIR_STREAM_RECORD, .head_bytes = 32},
        .record = {.len_bytes = 32, .seq = seq}};
    put_packet(fd, WEIR_PORT_DATA, opener, &message, sizeof message);
}

static void expect_record(struct weir_transport *t, uint64_t seq)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;
    assert_int_equal(t->ops->receive(t, &record, &bulk, &bulk_bytes, 0, TL_LONG_NS), WEIR_OK);
    assert_int_equal(record->seq, seq);
}

static struct weir_transport *await(struct half_port *half, uint64_t opener)
{
    struct weir_stream_link *link;
    struct weir_transport *t;
    assert_int_equal(weir_port_await(half->port, &link), WEIR_OK);
    expect_packet(half->guest, WEIR_PORT_OPENED, opener);
    assert_int_equal(weir_stream_create(link, &t), WEIR_OK);
    return t;
}

static void an_opener_is_found_behind_what_others_left(void **state)
{
    struct half_port half = make_half_port();
    static const uint8_t zeros[WEIR_PORT_PACKET_BYTES];
    uint8_t mess[5000];
    (void)state;
    for (size_t i = 0; i < sizeof mess; i++) {
        mess[i] = (uint8_t)(i * 7);
    }
    put(half.guest, mess, sizeof mess);
    put_open(half.guest, 11);
    put_record(half.guest, 11, 1);
    struct weir_transport *t = await(&half, 11);
    expect_record(t, 1);
    /* Half a packet, and the zeros that the next opener sends when it is not heard. */
    struct weir_port_packet cut = {
        .magic = WEIR_PORT_MAGIC, .kind = WEIR_PORT_DATA, .payload_bytes = 30000, .opener = 11};
    put(half.guest, &cut, sizeof cut);
    put(half.guest, mess, 100);
    put_open(half.guest, 13);
    put(half.guest, zeros, sizeof zeros);
    put_open(half.guest, 13);
    put_record(half.guest, 13, 2);
    assert_int_equal(receive(t, TL_LONG_NS), WEIR_ERR_PEER); /* what became of its frame */
    t->ops->destroy(t);
    expect_packet(half.guest, WEIR_PORT_BYE, 11);
    t = await(&half, 13);
    expect_record(t, 2);
    t->ops->destroy(t);
    free_half_port(&half);
}

static void the_next_opener_ends_the_one_before(void **state)
{
    struct half_port half = make_half_port();
    (void)state;
    put_open(half.guest, 21);
    struct weir_transport *t = await(&half, 21);
    put_record(half.guest, 21, 1);
    put_open(half.guest, 23);
    put_record(half.guest, 21, 2); /* of the dead one: nobody's */
    put_record(half.guest, 23, 3);
    expect_record(t, 1);
    assert_int_equal(receive(t, TL_LONG_NS), WEIR_ERR_CLOSED);
    t->ops->destroy(t);
    expect_packet(half.guest, WEIR_PORT_BYE, 21);
    t = await(&half, 23);
    expect_record(t, 3);
    put_packet(half.guest, WEIR_PORT_BYE, 23, NULL, 0);
    assert_int_equal(receive(t, TL_LONG_NS), WEIR_ERR_CLOSED);
    t->ops->destroy(t);
    free_half_port(&half);
}

static void silence_ends_a_session_and_beats_keep_it(void **state)
{
    struct half_port half = make_half_port();
    (void)state;
    put_open(half.guest, 31);
    struct weir_transport *t = await(&half, 31);
    for (int i = 0; i < 5; i++) {
        now_ns += 9 * SECOND;
        put_packet(half.guest, WEIR_PORT_BEAT, 31, NULL, 0);
        assert_false(t->ops->peer_gone(t));
    }
    now_ns += 11 * SECOND;
    put_packet(half.guest, WEIR_PORT_BEAT, 33, NULL, 0); /* another one's does not count */
    assert_true(t->ops->peer_gone(t));
    assert_int_equal(receive(t, TL_LONG_NS), WEIR_ERR_CLOSED);
    t->ops->destroy(t);
    free_half_port(&half);
}

/* Once the guest has an answer. */
static void *stop_then(void *user)
{
    const struct half_port *half = user;
    struct pollfd answer = {.fd = half->guest, .events = POLLIN};
    poll(&answer, 1, TL_LONG_NS / WEIR_NS_PER_MS);
    weir_port_stop(half->port);
    return NULL;
}

static void strangers_are_sent_away(void **state)
{
    struct half_port half = make_half_port();
    struct weir_stream_link *link;
    pthread_t thread;
    (void)state;
    put_record(half.guest, 41, 1); /* of a session with the worker before */
    assert_int_equal(pthread_create(&thread, NULL, stop_then, &half), 0);
    assert_int_equal(weir_port_await(half.port, &link), WEIR_ERR_CLOSED);
    expect_packet(half.guest, WEIR_PORT_BYE, 41);
    pthread_join(thread, NULL);
    free_half_port(&half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lying_frames_end_the_connection),
        cmocka_unit_test(frames_come_in_any_pieces),
        cmocka_unit_test(nothing_is_received_after_a_lie_before_the_end),
        cmocka_unit_test(what_is_not_received_is_bounded),
        cmocka_unit_test(an_opener_is_found_behind_what_others_left),
        cmocka_unit_test(the_next_opener_ends_the_one_before),
        cmocka_unit_test(silence_ends_a_session_and_beats_keep_it),
        cmocka_unit_test(strangers_are_sent_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

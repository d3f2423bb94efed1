/* What peers of a stream may send that no end of ours would: frames that lie or are cut short. */
#include "base/clock.h"
#include "proto/transport/stream.h"
#include "tests/lib/tl_pair.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lying_frames_end_the_connection),
        cmocka_unit_test(frames_come_in_any_pieces),
        cmocka_unit_test(nothing_is_received_after_a_lie_before_the_end),
        cmocka_unit_test(what_is_not_received_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

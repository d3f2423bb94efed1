/* Another process goes on in place of a host's end. */
#include "proto/transport/segment_map.h"
#include "proto/transport/shm.h"

#include "../../lib/tl_cmocka.h"
#include "base/clock.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

struct ends {
    struct weir_transport *host, *guest;
};

static struct ends make_ends(void)
{
    const struct weir_segment_params sizes = {
        .n_words = 64, .ring_bytes = 1 << 16, .arena_bytes = 4096};
    struct weir_shm_params host = {.id = WEIR_TRANSPORT_SHM, .is_host = true, .pid_fd = -1};
    struct weir_shm_params guest = {.id = WEIR_TRANSPORT_SHM, .pid_fd = -1};
    struct ends ends;
    int pair[2], file;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
    host.socket_fd = pair[0];
    guest.socket_fd = pair[1];
    assert_int_equal(weir_segment_create(&sizes, &file, &host.view), WEIR_OK);
    assert_int_equal(weir_segment_map(file, host.view.bytes, &guest.view), WEIR_OK);
    assert_int_equal(weir_shm_create(&host, &ends.host), WEIR_OK);
    assert_int_equal(weir_shm_create(&guest, &ends.guest), WEIR_OK);
    weir_shm_keep_segment(ends.host, file);
    return ends;
}

static void send_one(struct weir_transport *t, uint64_t seq)
{
    const struct weir_record record = {.len_bytes = sizeof record, .seq = seq};

    assert_int_equal(t->ops->send(t, &record, NULL, 0, WEIR_NS_PER_S), WEIR_OK);
}

static void receive_one(struct weir_transport *t, uint64_t seq)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bytes;

    assert_int_equal(t->ops->receive(t, &record, &bulk, &bytes, 0, WEIR_NS_PER_S), WEIR_OK);
    assert_true(record->seq == seq);
}

static void records_of_both_directions_arrive_once(void **state)
{
    struct ends ends = make_ends();
    struct weir_transport_state passed;

    (void)state;
    for (uint64_t seq = 1; seq <= 3; seq++) {
        send_one(ends.guest, seq);
        send_one(ends.host, 10 + seq);
    }
    receive_one(ends.host, 1);
    receive_one(ends.guest, 11);
    assert_true(ends.host->ops->state(ends.host, &passed));
    passed.socket_fd = fcntl(passed.socket_fd, F_DUPFD_CLOEXEC, 0);
    passed.segment_fd = fcntl(passed.segment_fd, F_DUPFD_CLOEXEC, 0);
    ends.host->ops->destroy(ends.host);
    send_one(ends.guest, 4);
    assert_false(ends.guest->ops->peer_gone(ends.guest));
    assert_int_equal(weir_shm_resume(&passed, &ends.host), WEIR_OK);
    send_one(ends.host, 14);
    for (uint64_t seq = 2; seq <= 4; seq++) {
        receive_one(ends.host, seq);
        receive_one(ends.guest, 10 + seq);
    }
    ends.host->ops->destroy(ends.host);
    assert_true(ends.guest->ops->peer_gone(ends.guest));
    ends.guest->ops->destroy(ends.guest);
}

static void end_without_its_file_cannot_be_passed_on(void **state)
{
    struct ends ends = make_ends();
    struct weir_transport_state passed;

    (void)state;
    assert_false(ends.guest->ops->state(ends.guest, &passed));
    ends.host->ops->destroy(ends.host);
    ends.guest->ops->destroy(ends.guest);
}

/* What is no segment stays the caller's. */
static void wrong_file_is_refused(void **state)
{
    struct weir_transport *host;
    struct weir_transport_state passed = {.pid_fd = -1, .segment_bytes = 1 << 20};

    (void)state;
    passed.segment_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    passed.socket_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(weir_shm_resume(&passed, &host), WEIR_ERR_PEER);
    assert_int_equal(close(passed.segment_fd), 0);
    assert_int_equal(close(passed.socket_fd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_of_both_directions_arrive_once),
        cmocka_unit_test(end_without_its_file_cannot_be_passed_on),
        cmocka_unit_test(wrong_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

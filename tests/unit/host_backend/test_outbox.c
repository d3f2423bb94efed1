/* Messages that wait for room in a link: host_backend/supervisor/state/outbox.h. */
#include "../../lib/tl_cmocka.h"
#include "base/clock.h"
#include "host_backend/supervisor/state/outbox.h"
#include <dirent.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct weir_outbox box;
static int ends[2];

static int set_up(void **state)
{
    (void)state;
    memset(&box, 0, sizeof box);
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int tear_down(void **state)
{
    (void)state;
    weir_outbox_clear(&box);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static enum weir_status send_number(uint32_t number, int fd)
{
    struct weir_link_message message = {.type = WEIR_LINK_CONNECTIONS, .connections = number};

    return weir_outbox_send(&box, ends[0], &message, fd);
}

/* Until so many wait; gives how many have been sent or wait. */
static uint32_t send_until_some_wait(uint32_t n_wait, int fd)
{
    uint32_t n = 0;

    while (box.n < n_wait) {
        assert_int_equal(send_number(n++, fd), WEIR_OK);
    }
    return n;
}

static unsigned n_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(dir);
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

static void without_anything_waiting_it_is_sent_at_once(void **state)
{
    struct weir_link_message message;
    int fd;

    (void)state;
    assert_int_equal(send_number(7, -1), WEIR_OK);
    assert_int_equal(box.n, 0);
    assert_true(weir_outbox_due_ns(&box) == WEIR_FOREVER);
    assert_int_equal(weir_outbox_events(&box), POLLIN);
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_OK);
    assert_int_equal(message.connections, 7);
}

static void what_has_no_room_waits_and_keeps_its_order(void **state)
{
    uint32_t n = send_until_some_wait(20, -1);

    (void)state;
    assert_int_equal(weir_outbox_events(&box), POLLIN | POLLOUT);
    for (uint32_t i = 0; i < n; i++) {
        struct weir_link_message message;
        int fd;

        assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_OK);
        assert_int_equal(message.connections, i);
        assert_int_equal(weir_outbox_flush(&box, ends[0], weir_clock_now_ns()), WEIR_OK);
        if (i == 0) {
            assert_int_equal(send_number(n++, -1), WEIR_OK); /* behind the others */
        }
    }
    assert_int_equal(box.n, 0);
}

static void descriptors_wait_with_their_messages(void **state)
{
    unsigned before = n_descriptors();
    uint32_t n = send_until_some_wait(4, -1);
    struct weir_link_message message;
    int pair[2], fd = -1;

    (void)state;
    assert_int_equal(pipe(pair), 0);
    assert_int_equal(send_number(n, pair[0]), WEIR_OK);
    close(pair[0]); /* it was borrowed */
    for (uint32_t i = 0; i <= n; i++) {
        assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_OK);
        assert_int_equal(weir_outbox_flush(&box, ends[0], weir_clock_now_ns()), WEIR_OK);
    }
    assert_true(fd >= 0);
    assert_int_equal(write(pair[1], "x", 1), 1); /* somebody holds the reading end */
    close(fd);
    close(pair[1]);
    (void)send_until_some_wait(8, ends[1]);
    weir_outbox_clear(&box);
    assert_int_equal(n_descriptors(), before);
}

static void one_that_does_not_read_is_given_up(void **state)
{
    uint64_t due_ns;

    (void)state;
    (void)send_until_some_wait(1, -1);
    due_ns = weir_outbox_due_ns(&box);
    assert_in_range(due_ns - weir_clock_now_ns(), 5 * WEIR_NS_PER_S, 10 * WEIR_NS_PER_S);
    assert_int_equal(weir_outbox_flush(&box, ends[0], due_ns - 1), WEIR_OK);
    assert_int_equal(weir_outbox_flush(&box, ends[0], due_ns), WEIR_ERR_AGAIN);
}

static void one_that_reads_a_little_is_not(void **state)
{
    struct weir_link_message message;
    uint64_t due_ns;
    int fd;

    (void)state;
    (void)send_until_some_wait(100, -1);
    due_ns = weir_outbox_due_ns(&box);
    while (box.n == 100) {
        assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_OK);
        assert_int_equal(weir_outbox_flush(&box, ends[0], due_ns), WEIR_OK);
    }
    assert_true(weir_outbox_due_ns(&box) > due_ns);
}

static void only_so_many_wait(void **state)
{
    (void)state;
    (void)send_until_some_wait(WEIR_OUTBOX_MAX, -1);
    assert_int_equal(send_number(0, -1), WEIR_ERR_AGAIN);
    assert_int_equal(box.n, WEIR_OUTBOX_MAX);
}

static void an_end_that_is_gone_is_told(void **state)
{
    (void)state;
    (void)send_until_some_wait(1, -1);
    shutdown(ends[1], SHUT_RDWR);
    assert_int_equal(send_number(0, -1), WEIR_ERR_CLOSED);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_anything_waiting_it_is_sent_at_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_has_no_room_waits_and_keeps_its_order, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(descriptors_wait_with_their_messages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_does_not_read_is_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_reads_a_little_is_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_so_many_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_that_is_gone_is_told, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

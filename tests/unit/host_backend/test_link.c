/* Messages between supervisor and worker: host_backend/config/link.h. */
#include "host_backend/config/link.h"

#include "../../lib/tl_cmocka.h"
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int ends[2];

static int set_up(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int tear_down(void **state)
{
    (void)state;
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static void send_type(enum weir_link_type type, int fd)
{
    struct weir_link_message message = {.type = type};

    assert_int_equal(weir_link_send(ends[0], &message, fd), WEIR_OK);
}

static void receive_gives_message_and_descriptor(void **state)
{
    struct weir_link_message message;
    int fd;

    (void)state;
    send_type(WEIR_LINK_KEEP, ends[0]);
    send_type(WEIR_LINK_DROP, -1);
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_OK);
    assert_int_equal(message.type, WEIR_LINK_KEEP);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_OK);
    assert_int_equal(message.type, WEIR_LINK_DROP);
    assert_int_equal(fd, -1);
}

/* A tenant that uses up the host's descriptors must not end the link, and with it all sessions. */
static void receive_without_descriptors_left_loses_one_message(void **state)
{
    struct weir_link_message message;
    struct rlimit before, none;
    int fd;

    (void)state;
    send_type(WEIR_LINK_GUEST, ends[0]);
    send_type(WEIR_LINK_STATUS, -1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum weir_status status = weir_link_receive(ends[1], &message, &fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, WEIR_ERR_NO_MEMORY);
    assert_int_equal(fd, -1);
    assert_int_equal(message.type, WEIR_LINK_GUEST);
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_OK);
    assert_int_equal(message.type, WEIR_LINK_STATUS);
}

/* More descriptors than anybody may send are the peer's fault, though some of them are cut off. */
static void receive_refuses_too_many_descriptors(void **state)
{
    struct weir_link_message message = {.type = WEIR_LINK_KEEP};
    struct iovec part = {&message, sizeof message};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(10 * sizeof(int))];
    } control = {0};
    struct msghdr sent = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof control};
    int fd;

    (void)state;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(10 * sizeof(int));
    for (int i = 0; i < 10; i++) {
        memcpy(CMSG_DATA(&control.header) + (size_t)i * sizeof(int), &ends[0], sizeof(int));
    }
    assert_int_equal(sendmsg(ends[0], &sent, 0), (int)sizeof message);
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_ERR_PEER);
    assert_int_equal(fd, -1);
}

static void receive_refuses_what_is_no_message(void **state)
{
    struct weir_link_message message;
    int fd;

    (void)state;
    assert_int_equal(send(ends[0], "abc", 3, 0), 3);
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_ERR_PEER);
}

/* The other end may be of the release before this one, or after it. */
static void receive_takes_shorter_and_longer_messages(void **state)
{
    static struct {
        struct weir_link_message message;
        char more[16];
    } longer = {.message = {.type = WEIR_LINK_IDLE, .idle = {.n_guests = 7, .soiled = 1}}};
    const size_t without_soiled = offsetof(struct weir_link_message, idle.soiled);
    struct weir_link_message message;
    int fd;

    (void)state;
    memset(&message, 0xff, sizeof message);
    assert_int_equal(send(ends[0], &longer, without_soiled, 0), (int)without_soiled);
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_OK);
    assert_int_equal(message.idle.n_guests, 7);
    assert_int_equal(message.idle.soiled, 0);
    assert_int_equal(send(ends[0], &longer, sizeof longer, 0), (int)sizeof longer);
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_OK);
    assert_int_equal(message.idle.soiled, 1);
}

/* A supervisor that ends before consume() leaves the message, and its descriptor, to the next. */
static void peek_leaves_the_message(void **state)
{
    const struct weir_link_message idle = {.type = WEIR_LINK_IDLE}, stop = {.type = WEIR_LINK_STOP};
    struct weir_link_message message;
    int fd;

    (void)state;
    assert_int_equal(weir_link_send(ends[0], &idle, ends[0]), WEIR_OK);
    assert_int_equal(weir_link_send(ends[0], &stop, -1), WEIR_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_link_peek(ends[1], &message, &fd), WEIR_OK);
        assert_int_equal(message.type, WEIR_LINK_IDLE);
        assert_true(fd >= 0);
        close(fd);
    }
    weir_link_consume(ends[1]);
    assert_int_equal(weir_link_peek(ends[1], &message, &fd), WEIR_OK);
    assert_int_equal(message.type, WEIR_LINK_STOP);
    assert_int_equal(fd, -1);
}

static void receive_sees_the_end(void **state)
{
    struct weir_link_message message;
    int fd;

    (void)state;
    shutdown(ends[0], SHUT_RDWR);
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_ERR_CLOSED);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(receive_gives_message_and_descriptor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(receive_without_descriptors_left_loses_one_message, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(receive_refuses_too_many_descriptors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(receive_refuses_what_is_no_message, set_up, tear_down),
        cmocka_unit_test_setup_teardown(receive_takes_shorter_and_longer_messages, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(peek_leaves_the_message, set_up, tear_down),
        cmocka_unit_test_setup_teardown(receive_sees_the_end, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

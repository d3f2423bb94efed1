/* proto/wire/zmq_accept.c: more connections come to a ZeroMQ server than it has descriptors. */
#include "base/clock.h"
#include "proto/wire/keys.h"
#include "proto/wire/zmq_server.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT       64 /* descriptors of the server's process */
#define HANDSHAKES  (LIMIT / 8)
#define CONNECTIONS 200
#define WAIT_MS     10000

static struct fixture {
    struct rlimit before;
    pid_t clients;  /* a process that has descriptors enough */
    int orders[2];  /* to it: which connections to make */
    int answers[2]; /* from it: what became of them */
    uint16_t port;  /* in network byte order */
    struct weir_zmq_server *server;
    int n_open; /* descriptors of this process without any connection */
} f;

struct order {
    int n; /* connections */
    uint16_t port;
};

struct answer {
    int greeted; /* libzmq's greeting came */
    int ended;   /* the connection's end came */
};

static int connect_one(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? fd : -1;
}

/* Make connections, hold all of them, and see what each gets. */
static struct answer make_connections(int n, uint16_t port)
{
    struct answer answer = {0, 0};
    int fds[CONNECTIONS];

    for (int i = 0; i < n; i++) {
        fds[i] = connect_one(port);
    }
    for (int i = 0; i < n; i++) {
        struct pollfd wait = {.fd = fds[i], .events = POLLIN};
        char byte;

        if (fds[i] >= 0 && poll(&wait, 1, WAIT_MS) == 1) {
            ssize_t got = recv(fds[i], &byte, 1, 0);

            answer.greeted += got == 1;
            answer.ended += got <= 0;
        }
    }
    for (int i = 0; i < n; i++) {
        close(fds[i]);
    }
    return answer;
}

static _Noreturn void be_clients(void)
{
    struct order order;

    close(f.orders[1]);
    while (read(f.orders[0], &order, sizeof order) == (ssize_t)sizeof order) {
        struct answer answer = make_connections(order.n, order.port);

        if (write(f.answers[1], &answer, sizeof answer) != (ssize_t)sizeof answer) {
            break;
        }
    }
    _exit(0);
}

static struct answer clients_make(int n)
{
    const struct order order = {n, f.port};
    struct answer answer;

    assert_int_equal(write(f.orders[1], &order, sizeof order), sizeof order);
    assert_int_equal(read(f.answers[0], &answer, sizeof answer), sizeof answer);
    return answer;
}

static int n_open(void)
{
    int n = 0;

    for (int fd = 0; fd < LIMIT; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static int set_up(void **state)
{
    const char *endpoints[] = {"tcp://127.0.0.1:*"};
    struct weir_keypair keys;
    struct weir_zmq_server_params params = {
        .endpoints = endpoints, .n_endpoints = 1, .secret_key = keys.secret_key};
    struct rlimit low;

    (void)state;
    assert_int_equal(weir_keypair_generate(&keys), WEIR_OK);
    assert_int_equal(pipe2(f.orders, O_CLOEXEC), 0);
    assert_int_equal(pipe2(f.answers, O_CLOEXEC), 0);
    f.clients = fork();
    assert_true(f.clients >= 0);
    if (f.clients == 0) {
        be_clients();
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &f.before), 0);
    low = f.before;
    low.rlim_cur = LIMIT;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(weir_zmq_server_create(&params, &f.server), WEIR_OK);
    f.port =
        htons((uint16_t)strtoul(strrchr(weir_zmq_server_endpoint(f.server, 0), ':') + 1, NULL, 10));
    f.n_open = n_open();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_zmq_server_destroy(f.server);
    close(f.orders[0]);
    close(f.orders[1]);
    close(f.answers[0]);
    close(f.answers[1]);
    waitpid(f.clients, NULL, 0);
    return setrlimit(RLIMIT_NOFILE, &f.before) == 0 ? 0 : 1;
}

/* Take what is left; gives how many. */
static int use_up(int fds[LIMIT])
{
    int n = 0;

    while (n < LIMIT && (fds[n] = dup(f.answers[0])) >= 0) {
        n++;
    }
    return n;
}

static void give_back(const int fds[LIMIT], int n)
{
    for (int i = 0; i < n; i++) {
        close(fds[i]);
    }
}

/* Connections that have ended are closed a moment later. */
static void settle(void)
{
    uint64_t end_ns = weir_clock_now_ns() + WAIT_MS * WEIR_NS_PER_MS;

    while (n_open() > f.n_open) {
        assert_true(weir_clock_now_ns() < end_ns);
    }
}

static bool is_greeted(void)
{
    return clients_make(1).greeted == 1;
}

static void serves_again(void)
{
    settle();
    assert_true(is_greeted());
    settle();
}

/* Handshakes have two descriptors each, and the oldest makes room for the next. */
static void a_flood_leaves_descriptors_for_others(void **state)
{
    int fds[LIMIT], n_left;
    struct answer answer;

    (void)state;
    serves_again();
    answer = clients_make(CONNECTIONS);
    n_left = use_up(fds);
    give_back(fds, n_left);
    assert_int_equal(answer.greeted + answer.ended, CONNECTIONS);
    assert_in_range(answer.greeted, HANDSHAKES, CONNECTIONS);
    assert_in_range(n_left, LIMIT / 4, LIMIT);
    serves_again();
}

static void without_any_descriptor_connections_are_turned_away(void **state)
{
    struct answer answer;
    int fds[LIMIT], n;

    (void)state;
    settle();
    n = use_up(fds);
    answer = clients_make(CONNECTIONS);
    assert_int_equal(answer.greeted, 0);
    assert_int_equal(answer.ended, CONNECTIONS);
    give_back(fds, n);
    serves_again();
}

/* One that connects to a listener is given to it. */
static bool is_accepted(int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX}; /* of a name that the kernel chooses */
    socklen_t bytes = sizeof address;
    int listener = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    int guest = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    int fd;

    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address.sun_family), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(connect(guest, (struct sockaddr *)&address, bytes), 0);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0 || errno == ECONNABORTED);
    close(listener);
    close(guest);
    return fd >= 0 && close(fd) == 0;
}

static void over_unix_sockets_only_who_has_a_token_and_those_that_are_not_of_zmq(void **state)
{
    (void)state;
    assert_false(is_accepted(SOCK_STREAM));
    assert_true(is_accepted(SOCK_SEQPACKET));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flood_leaves_descriptors_for_others),
        cmocka_unit_test(without_any_descriptor_connections_are_turned_away),
        cmocka_unit_test(over_unix_sockets_only_who_has_a_token_and_those_that_are_not_of_zmq),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

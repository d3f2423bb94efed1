/* The handshake over ZeroMQ: tenants by key over tcp, tokens over ipc, and guests that lie. */
#include "base/clock.h"
#include "base/log_rate.h"
#include "proto/transport/zmq_wire.h"
#include "proto/wire/control_codec.h"
#include "proto/wire/keys.h"
#include "proto/wire/zmq_server.h"
#include "tests/lib/tl_lived.h"
#include "tests/lib/tl_pair.h"
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LATE_MS 6000 /* longer than a handshake may take once it has begun */

static char directory[64];

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/weir-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

/* ---------------------------------------------------------------- tcp */

struct network {
    struct weir_keypair server_keys, alice_keys, stranger_keys;
    struct weir_zmq_server *server;
    pthread_mutex_t lock; /* guards what follows: the I/O thread writes it */
    pthread_cond_t taken;
    struct weir_transport *host; /* of the last guest taken */
    struct weir_transport *first_host;
    enum weir_status refuse_with;
    char tenant[32];
    char program[32];
};

static bool tenant_of_key(void *user, const char *key, char *ret_tenant, size_t tenant_bytes)
{
    struct network *network = user;
    if (strcmp(key, network->alice_keys.public_key) != 0) {
        return false;
    }
    snprintf(ret_tenant, tenant_bytes, "alice");
    return true;
}

static void on_hello(void *user, const char *tenant, const struct weir_hello *hello,
                     struct weir_zmq_pending *pending)
{
    struct network *network = user;
    pthread_mutex_lock(&network->lock);
    snprintf(network->tenant, sizeof network->tenant, "%s", tenant);
    snprintf(network->program, sizeof network->program, "%.31s", hello->program);
    if (network->refuse_with != WEIR_OK) {
        weir_zmq_refuse(pending, network->refuse_with, 2, "not today");
    } else {
        struct weir_welcome_params welcome = tl_welcome_params();
        network->first_host = network->host;
        assert_int_equal(weir_zmq_accept(pending, &welcome, &network->host), WEIR_OK);
    }
    pthread_cond_signal(&network->taken);
    pthread_mutex_unlock(&network->lock);
}

/* The host's end, which may come into being a little after the guest's. */
static struct weir_transport *wait_for_host(struct network *network)
{
    pthread_mutex_lock(&network->lock);
    while (!network->host) {
        pthread_cond_wait(&network->taken, &network->lock);
    }
    struct weir_transport *host = network->host;
    pthread_mutex_unlock(&network->lock);
    return host;
}

/* Bind, or, with a socket that listens already, take that. */
static void start_server(struct network *network, int listening)
{
    const char *endpoints[] = {"tcp://127.0.0.1:*"};
    struct weir_zmq_server_params params = {.endpoints = endpoints,
                                            .n_endpoints = 1,
                                            .tcp_fd = listening,
                                            .secret_key = network->server_keys.secret_key,
                                            .tenant_of_key = tenant_of_key,
                                            .on_hello = on_hello,
                                            .user = network};
    assert_int_equal(weir_zmq_server_create(&params, &network->server), WEIR_OK);
}

static int make_network(void **state)
{
    static struct network network;
    network =
        (struct network){.lock = PTHREAD_MUTEX_INITIALIZER, .taken = PTHREAD_COND_INITIALIZER};
    assert_int_equal(weir_keypair_generate(&network.server_keys), WEIR_OK);
    assert_int_equal(weir_keypair_generate(&network.alice_keys), WEIR_OK);
    assert_int_equal(weir_keypair_generate(&network.stranger_keys), WEIR_OK);
    start_server(&network, 0);
    *state = &network;
    return 0;
}

static int destroy_network(void **state)
{
    struct network *network = *state;
    if (network->host) {
        network->host->ops->destroy(network->host);
    }
    if (network->first_host) {
        network->first_host->ops->destroy(network->first_host);
    }
    weir_zmq_server_destroy(network->server);
    return 0;
}

static struct weir_connect_params tcp_params(struct network *network)
{
    return (struct weir_connect_params){.host = weir_zmq_server_endpoint(network->server, 0),
                                        .program = "far",
                                        .version = "1",
                                        .ops = &tl_ops,
                                        .timeout_ns = TL_LONG_NS,
                                        .public_key = network->alice_keys.public_key,
                                        .secret_key = network->alice_keys.secret_key,
                                        .server_key = network->server_keys.public_key};
}

static void tcp_guest_is_its_keys_tenant(void **state)
{
    struct network *network = *state;
    struct weir_connect_params params = tcp_params(network);
    struct weir_transport *guest;
    struct weir_welcome *welcome;
    const struct weir_record *got;
    const void *bulk;
    size_t bulk_bytes;
    assert_int_equal(weir_connect(&params, &guest, &welcome), WEIR_OK);
    struct weir_transport *host = wait_for_host(network);
    assert_string_equal(network->tenant, "alice");
    assert_string_equal(network->program, "far");
    assert_string_equal(welcome->transport, "zmq");
    assert_string_equal(welcome->devices[0].name, "Test GPU");
    assert_int_equal(guest->ops->view(guest)->n_words, 1024);
    struct weir_record record = {.len_bytes = 32, .seq = 5};
    assert_int_equal(guest->ops->send(guest, &record, "hello", 5, TL_LONG_NS), WEIR_OK);
    assert_int_equal(host->ops->receive(host, &got, &bulk, &bulk_bytes, 0, TL_LONG_NS), WEIR_OK);
    assert_int_equal(got->seq, 5);
    assert_int_equal(bulk_bytes, 5);
    assert_memory_equal(bulk, "hello", 5);
    assert_int_equal(host->ops->send(host, &record, NULL, 0, TL_LONG_NS), WEIR_OK);
    assert_int_equal(guest->ops->receive(guest, &got, &bulk, &bulk_bytes, 0, TL_LONG_NS), WEIR_OK);
    guest->ops->destroy(guest);
    struct tl_lived start = tl_lived_now();
    assert_int_equal(host->ops->receive(host, &got, &bulk, &bulk_bytes, 0, WEIR_FOREVER),
                     WEIR_ERR_CLOSED);
    assert_true(tl_lived_since_ns(start) < WEIR_NS_PER_S);
    weir_welcome_destroy(welcome);
}

static void tcp_guest_notices_that_the_server_ends(void **state)
{
    struct network *network = *state;
    struct weir_connect_params params = tcp_params(network);
    struct weir_transport *guest;
    struct weir_welcome *welcome;
    const struct weir_record *got;
    const void *bulk;
    size_t bulk_bytes;
    assert_int_equal(weir_connect(&params, &guest, &welcome), WEIR_OK);
    weir_welcome_destroy(welcome);
    struct weir_transport *host = wait_for_host(network);
    host->ops->destroy(host);
    network->host = NULL;
    weir_zmq_server_destroy(network->server);
    network->server = NULL;
    struct tl_lived start = tl_lived_now();
    assert_int_equal(guest->ops->receive(guest, &got, &bulk, &bulk_bytes, 0, WEIR_FOREVER),
                     WEIR_ERR_CLOSED);
    assert_true(tl_lived_since_ns(start) < WEIR_NS_PER_S);
    guest->ops->destroy(guest);
}

static void tcp_strangers_are_denied(void **state)
{
    struct network *network = *state;
    struct weir_transport *guest;
    struct weir_welcome *welcome;
    struct weir_connect_params params = tcp_params(network);
    params.public_key = network->stranger_keys.public_key;
    params.secret_key = network->stranger_keys.secret_key;
    assert_int_equal(weir_connect(&params, &guest, &welcome), WEIR_ERR_DENIED);
    params = tcp_params(network);
    params.server_key = network->stranger_keys.public_key; /* a host that is not who it should be */
    assert_int_equal(weir_connect(&params, &guest, &welcome), WEIR_ERR_DENIED);
    assert_null(network->host);
}

static void tcp_refusals_carry_reason_and_message(void **state)
{
    struct network *network = *state;
    struct weir_transport *guest;
    struct weir_welcome *welcome;
    struct weir_connect_params params = tcp_params(network);
    pthread_mutex_lock(&network->lock);
    network->refuse_with = WEIR_ERR_QUOTA;
    pthread_mutex_unlock(&network->lock);
    assert_int_equal(weir_connect(&params, &guest, &welcome), WEIR_ERR_QUOTA);
    assert_string_equal(welcome->message, "not today");
    assert_int_equal(welcome->result, 2);
    weir_welcome_destroy(welcome);
    params.ops = NULL;
    assert_int_equal(weir_connect(&params, &guest, &welcome), WEIR_ERR_VERSION);
    weir_welcome_destroy(welcome);
}

static void tcp_without_listener_is_not_found(void **state)
{
    struct network *network = *state;
    struct weir_transport *guest;
    struct weir_welcome *welcome;
    struct weir_connect_params params = tcp_params(network);
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "%s", params.host);
    weir_zmq_server_destroy(network->server);
    network->server = NULL;
    params.host = endpoint;
    assert_int_equal(weir_connect(&params, &guest, &welcome), WEIR_ERR_NOT_FOUND);
    params.host = "tcp://";
    assert_int_equal(weir_connect(&params, &guest, &welcome), WEIR_ERR_INVALID);
}

/* As many as a client that has no key may leave unfinished, and more. */
static void tcp_guests_come_in_a_flood_of_silent_connections(void **state)
{
    struct network *network = *state;
    struct weir_connect_params params = tcp_params(network);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fds[300];
    address.sin_port = htons((uint16_t)strtoul(strrchr(params.host, ':') + 1, NULL, 10));
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fds[i], (struct sockaddr *)&address, sizeof address), 0);
        if (i % 50 == 49) {
            struct weir_transport *guest;
            struct weir_welcome *welcome;
            assert_int_equal(weir_connect(&params, &guest, &welcome), WEIR_OK);
            struct weir_transport *host = wait_for_host(network);
            pthread_mutex_lock(&network->lock);
            network->host = NULL;
            pthread_mutex_unlock(&network->lock);
            host->ops->destroy(host);
            guest->ops->destroy(guest);
            weir_welcome_destroy(welcome);
        }
    }
    char byte;
    assert_int_equal(recv(fds[0], &byte, 1, 0), 1); /* it was greeted .. */
    while (recv(fds[0], &byte, 1, 0) == 1) {
    } /* .. and hung up on */
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        close(fds[i]);
    }
}

struct late {
    struct network *network;
    int listening;
};

/* Comes late; before that, it hangs up on one guest, whose handshake has taken too long. */
static void *start_late(void *argument)
{
    struct late *late = argument;
    struct pollfd first = {late->listening, POLLIN, 0};
    assert_int_equal(poll(&first, 1, TL_LONG_NS / WEIR_NS_PER_MS), 1);
    poll(NULL, 0, LATE_MS);
    int fd = (int)syscall(SYS_accept4, late->listening, NULL, NULL, 0); /* not as libzmq's */
    assert_true(fd >= 0);
    close(fd);
    start_server(late->network, late->listening);
    return NULL;
}

struct guest {
    struct weir_connect_params params;
    struct weir_transport *transport;
    struct weir_welcome *welcome;
    enum weir_status status;
};

static void *connect_guest(void *argument)
{
    struct guest *guest = argument;
    guest->status = weir_connect(&guest->params, &guest->transport, &guest->welcome);
    return NULL;
}

/*
 * One server goes, and the next one comes to the same socket: whoever connects meanwhile waits, and
 * who is hung up on so late comes again.
 */
static void tcp_guests_wait_for_the_next_server(void **state)
{
    struct network *network = *state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    struct late late = {network, socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)};
    assert_int_equal(bind(late.listening, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(late.listening, 4), 0);
    assert_int_equal(getsockname(late.listening, (struct sockaddr *)&address, &bytes), 0);
    weir_zmq_server_destroy(network->server);
    start_server(network, late.listening);
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", ntohs(address.sin_port));
    assert_string_equal(weir_zmq_server_endpoint(network->server, 0), endpoint);
    struct guest guests[2];
    pthread_t server, threads[2];
    for (int i = 0; i < 2; i++) {
        guests[i] = (struct guest){.params = tcp_params(network)};
        guests[i].params.host = endpoint;
    }
    weir_zmq_server_destroy(network->server);
    uint64_t start_ns = weir_clock_now_ns();
    assert_int_equal(pthread_create(&server, NULL, start_late, &late), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, connect_guest, &guests[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(guests[i].status, WEIR_OK);
    }
    assert_true(weir_clock_now_ns() - start_ns > LATE_MS / 2 * WEIR_NS_PER_MS);
    pthread_join(server, NULL);
    pthread_mutex_lock(&network->lock);
    while (!network->first_host) {
        pthread_cond_wait(&network->taken, &network->lock);
    }
    pthread_mutex_unlock(&network->lock);
    for (int i = 0; i < 2; i++) {
        guests[i].transport->ops->destroy(guests[i].transport);
        weir_welcome_destroy(guests[i].welcome);
    }
    close(late.listening);
}

/* ---------------------------------------------------------------- a hostile zmq guest */

/* A bare DEALER that says what it likes to a server's ipc endpoint. */
struct dealer {
    void *ctx;
    void *socket;
};

static void dealer_open(struct dealer *dealer, const char *endpoint)
{
    int none = 0, timeout_ms = TL_LONG_NS / WEIR_NS_PER_MS;
    dealer->ctx = zmq_ctx_new();
    dealer->socket = zmq_socket(dealer->ctx, ZMQ_DEALER);
    zmq_setsockopt(dealer->socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(dealer->socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    zmq_setsockopt(dealer->socket, ZMQ_SNDHWM, &none, sizeof none);
    assert_int_equal(zmq_connect(dealer->socket, endpoint), 0);
}

static void dealer_close(struct dealer *dealer)
{
    zmq_close(dealer->socket);
    zmq_ctx_term(dealer->ctx);
}

static void dealer_hello(struct dealer *dealer, const uint8_t *token)
{
    struct weir_hello hello = {
        .protocol = WEIR_PROTOCOL, .ops = &tl_ops, .has_token = token != NULL};
    struct weir_control_bytes bytes;
    struct weir_zmq_control control = {.magic = WEIR_ZMQ_CONTROL_MAGIC, .kind = WEIR_ZMQ_HELLO};
    if (token) {
        memcpy(hello.token, token, sizeof hello.token);
    }
    assert_int_equal(weir_hello_encode(&hello, &bytes), WEIR_OK);
    zmq_send(dealer->socket, &control, sizeof control, ZMQ_SNDMORE);
    zmq_send(dealer->socket, bytes.bytes, bytes.len, 0);
    free(bytes.bytes);
}

static enum weir_status dealer_answer(struct dealer *dealer)
{
    static uint8_t bytes[WEIR_CONTROL_MAX_BYTES];
    struct weir_welcome *welcome;
    assert_int_equal(zmq_recv(dealer->socket, bytes, sizeof bytes, 0),
                     sizeof(struct weir_zmq_control));
    int len = zmq_recv(dealer->socket, bytes, sizeof bytes, 0);
    assert_true(len > 0);
    assert_int_equal(weir_welcome_decode(bytes, (size_t)len, &welcome), WEIR_OK);
    enum weir_status status = welcome->status;
    weir_welcome_destroy(welcome);
    return status;
}

struct lie {
    const char *name;
    void (*tell)(struct dealer *dealer);
};

static void lie_length(struct dealer *dealer)
{
    struct weir_record record = {.len_bytes = 64};
    zmq_send(dealer->socket, &record, sizeof record, 0);
}

static void lie_short(struct dealer *dealer)
{
    zmq_send(dealer->socket, "12345678", 8, 0);
}

static void lie_empty(struct dealer *dealer)
{
    zmq_send(dealer->socket, "", 0, 0);
}

static void lie_frames(struct dealer *dealer)
{
    struct weir_record record = {.len_bytes = 32};
    for (int i = 0; i < 5; i++) {
        zmq_send(dealer->socket, &record, sizeof record, i < 4 ? ZMQ_SNDMORE : 0);
    }
}

static void lie_credit(struct dealer *dealer)
{
    struct weir_zmq_control control = {
        .magic = WEIR_ZMQ_CONTROL_MAGIC, .kind = WEIR_ZMQ_CREDIT, .value = 1};
    zmq_send(dealer->socket, &control, sizeof control, 0);
}

static void lie_control(struct dealer *dealer)
{
    struct weir_zmq_control control = {.magic = WEIR_ZMQ_CONTROL_MAGIC, .kind = 99};
    zmq_send(dealer->socket, &control, sizeof control, 0);
}

static void lie_second_hello(struct dealer *dealer)
{
    dealer_hello(dealer, NULL);
}

static void lie_flood(struct dealer *dealer)
{
    struct weir_record record = {.len_bytes = 32};
    void *bulk = calloc(1, 4u << 20);
    for (int i = 0; i < 20; i++) { /* 80 MiB, over the window of 64 */
        zmq_send(dealer->socket, &record, sizeof record, ZMQ_SNDMORE);
        zmq_send(dealer->socket, bulk, 4u << 20, 0);
    }
    free(bulk);
}

struct zmq_case {
    struct weir_zmq_server *server;
    char endpoint[112];
};

static void zmq_case_start(struct zmq_case *zmq)
{
    snprintf(zmq->endpoint, sizeof zmq->endpoint, "ipc://%s/zmq.sock", directory);
    const char *endpoints[] = {zmq->endpoint};
    struct weir_zmq_server_params params = {.endpoints = endpoints, .n_endpoints = 1};
    assert_int_equal(weir_zmq_server_create(&params, &zmq->server), WEIR_OK);
}

static void zmq_case_finish(struct zmq_case *zmq)
{
    weir_zmq_server_destroy(zmq->server);
    unlink(zmq->endpoint + strlen("ipc://"));
}

/* The worker's half of an ipc handshake; gives the token that the guest would get. */
static struct weir_transport *expect_guest(struct zmq_case *zmq, int fds[2], uint8_t *ret_token)
{
    static uint8_t bytes[WEIR_CONTROL_MAX_BYTES];
    struct weir_transport *host;
    struct weir_welcome_params params = tl_welcome_params();
    struct weir_hello hello = {.protocol = WEIR_PROTOCOL, .n_transports = 1, .transports = {"zmq"}};
    params.zmq = zmq->server;
    params.zmq_ipc_path = zmq->endpoint;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(weir_accept_welcome(fds[0], &hello, &params, &host), WEIR_OK);
    ssize_t len = recv(fds[1], bytes, sizeof bytes, 0);
    struct weir_welcome *welcome;
    assert_int_equal(weir_welcome_decode(bytes, (size_t)len, &welcome), WEIR_OK);
    assert_string_equal(welcome->zmq_endpoint, "ipc://./zmq.sock");
    memcpy(ret_token, welcome->token, sizeof welcome->token);
    weir_welcome_destroy(welcome);
    return host;
}

static void zmq_lies_cost_the_session(void **state)
{
    (void)state;
    const struct lie lies[] = {{"length", lie_length},
                               {"short", lie_short},
                               {"empty", lie_empty},
                               {"frames", lie_frames},
                               {"credit", lie_credit},
                               {"control", lie_control},
                               {"second hello", lie_second_hello},
                               {"flood", lie_flood}};
    struct zmq_case zmq;
    zmq_case_start(&zmq);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        int fds[2];
        uint8_t token[WEIR_CONTROL_TOKEN_BYTES];
        struct dealer dealer;
        print_message("    %s\n", lies[i].name);
        struct weir_transport *host = expect_guest(&zmq, fds, token);
        dealer_open(&dealer, zmq.endpoint);
        dealer_hello(&dealer, token);
        assert_int_equal(dealer_answer(&dealer), WEIR_OK);
        lies[i].tell(&dealer);
        uint64_t give_up_ns = weir_clock_now_ns() + TL_LONG_NS;
        while (!host->ops->peer_gone(host) && weir_clock_now_ns() < give_up_ns) {
            sched_yield();
        }
        const struct weir_record *record;
        const void *bulk;
        size_t bulk_bytes;
        assert_int_equal(host->ops->receive(host, &record, &bulk, &bulk_bytes, 0, WEIR_NS_PER_S),
                         WEIR_ERR_PEER);
        host->ops->destroy(host);
        dealer_close(&dealer);
        close(fds[1]);
    }
    zmq_case_finish(&zmq);
}

static void zmq_token_works_once_and_no_other_does(void **state)
{
    (void)state;
    struct zmq_case zmq;
    struct dealer first, second;
    int fds[2], other_fds[2];
    uint8_t token[WEIR_CONTROL_TOKEN_BYTES], wrong[WEIR_CONTROL_TOKEN_BYTES];
    uint8_t other_token[WEIR_CONTROL_TOKEN_BYTES]; /* so that two may connect */
    zmq_case_start(&zmq);
    struct weir_transport *host = expect_guest(&zmq, fds, token);
    memcpy(wrong, token, sizeof wrong);
    wrong[31] ^= 1;
    struct weir_transport *other = expect_guest(&zmq, other_fds, other_token);
    dealer_open(&second, zmq.endpoint);
    dealer_hello(&second, wrong);
    assert_int_equal(dealer_answer(&second), WEIR_ERR_DENIED);
    dealer_hello(&second, NULL);
    assert_int_equal(dealer_answer(&second), WEIR_ERR_DENIED);
    dealer_open(&first, zmq.endpoint);
    dealer_hello(&first, token);
    assert_int_equal(dealer_answer(&first), WEIR_OK);
    dealer_hello(&second, token);
    assert_int_equal(dealer_answer(&second), WEIR_ERR_DENIED);
    memset(wrong, 0, sizeof wrong); /* what a used token is overwritten with */
    dealer_hello(&second, wrong);
    assert_int_equal(dealer_answer(&second), WEIR_ERR_DENIED);
    assert_false(host->ops->peer_gone(host));
    close(fds[1]); /* the unix socket is a sign of life also beside ZeroMQ */
    assert_true(host->ops->peer_gone(host));
    host->ops->destroy(host);
    other->ops->destroy(other);
    close(other_fds[1]);
    dealer_close(&first);
    dealer_close(&second);
    zmq_case_finish(&zmq);
}

/* Is a connection to the endpoint taken? Then it stays open. */
static bool is_taken(const struct zmq_case *zmq, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char byte;
    *ret_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", zmq->endpoint + strlen("ipc://"));
    assert_int_equal(connect(*ret_fd, (struct sockaddr *)&address, sizeof address), 0);
    return recv(*ret_fd, &byte, 1, 0) == 1;
}

static bool is_taken_in_another_process(const struct zmq_case *zmq)
{
    int fd, status;
    pid_t child = fork();
    if (child == 0) {
        _exit(is_taken(zmq, &fd));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status) != 0;
}

static void zmq_takes_a_connection_for_each_token(void **state)
{
    struct zmq_case zmq;
    int fds[2], ends[4];
    uint8_t token[WEIR_CONTROL_TOKEN_BYTES];
    (void)state;
    zmq_case_start(&zmq);
    assert_false(is_taken(&zmq, &ends[0]));
    struct weir_transport *host = expect_guest(&zmq, fds, token);
    assert_false(is_taken_in_another_process(&zmq));
    assert_true(is_taken(&zmq, &ends[1]));
    assert_false(is_taken(&zmq, &ends[2]));
    host->ops->destroy(host); /* its token is nobody's */
    assert_false(is_taken(&zmq, &ends[3]));
    for (int i = 0; i < 4; i++) {
        close(ends[i]);
    }
    close(fds[1]);
    zmq_case_finish(&zmq);
}

/* Anybody can knock, so strangers must not be able to fill the log. */
static void zmq_strangers_write_so_many_lines(void **state)
{
    static char text[1u << 20];
    int log = memfd_create("log", MFD_CLOEXEC);
    struct zmq_case zmq;
    struct dealer dealer;
    char spec[64];
    uint32_t n_lines = 0;
    int fds[2];
    uint8_t token[WEIR_CONTROL_TOKEN_BYTES];
    (void)state;
    snprintf(spec, sizeof spec, "warn:/proc/self/fd/%d", log);
    assert_int_equal(weir_log_init(spec, "test"), WEIR_OK);
    zmq_case_start(&zmq);
    struct weir_transport *host = expect_guest(&zmq, fds, token);
    dealer_open(&dealer, zmq.endpoint);
    for (int i = 0; i < WEIR_LOG_RATE_LINES + 20; i++) {
        dealer_hello(&dealer, NULL);
        assert_int_equal(dealer_answer(&dealer), WEIR_ERR_DENIED);
    }
    dealer_close(&dealer);
    host->ops->destroy(host);
    close(fds[1]);
    zmq_case_finish(&zmq);
    assert_int_equal(weir_log_init("none", "test"), WEIR_OK);
    ssize_t n = pread(log, text, sizeof text, 0);
    for (ssize_t i = 0; i < n; i++) {
        n_lines += text[i] == '\n';
    }
    assert_int_equal(n_lines, WEIR_LOG_RATE_LINES + 1); /* it says that there are more */
    close(log);
}

static void zmq_server_refuses_bad_endpoints(void **state)
{
    (void)state;
    const struct {
        const char *endpoint;
        const char *key;
        enum weir_status status;
    } rows[] = {{"tcp://127.0.0.1:*", NULL, WEIR_ERR_INVALID},
                {"tcp://127.0.0.1:*", "short", WEIR_ERR_INVALID},
                {"udp://127.0.0.1:1", NULL, WEIR_ERR_INVALID},
                {"ipc:///nonexistent/x", NULL, WEIR_ERR_IO}};
    struct weir_zmq_server *server;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_zmq_server_params params = {
            .endpoints = &rows[i].endpoint, .n_endpoints = 1, .secret_key = rows[i].key};
        assert_int_equal(weir_zmq_server_create(&params, &server), rows[i].status);
    }
}

#define IPC_TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
#define TCP_TEST(name) cmocka_unit_test_setup_teardown(name, make_network, destroy_network)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TCP_TEST(tcp_guest_is_its_keys_tenant),
        TCP_TEST(tcp_guest_notices_that_the_server_ends),
        TCP_TEST(tcp_strangers_are_denied),
        TCP_TEST(tcp_refusals_carry_reason_and_message),
        TCP_TEST(tcp_without_listener_is_not_found),
        TCP_TEST(tcp_guests_come_in_a_flood_of_silent_connections),
        TCP_TEST(tcp_guests_wait_for_the_next_server),
        IPC_TEST(zmq_lies_cost_the_session),
        IPC_TEST(zmq_token_works_once_and_no_other_does),
        IPC_TEST(zmq_takes_a_connection_for_each_token),
        IPC_TEST(zmq_strangers_write_so_many_lines),
        cmocka_unit_test(zmq_server_refuses_bad_endpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

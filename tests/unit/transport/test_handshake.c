/*
 * connect.h against accept.h and against hosts and guests that do not play by the rules, over unix
 * sockets; test_handshake_zmq.c does the same over ZeroMQ.
 */
#include "base/clock.h"
#include "proto/transport/fd_message.h"
#include "proto/wire/control_codec.h"
#include "proto/wire/keys.h"
#include "tests/lib/tl_lived.h"
#include "tests/lib/tl_pair.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[64];
static char path[96];
static char url[112];

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/weir-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/weir.sock", directory);
    snprintf(url, sizeof url, "ipc://%s", path);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

/* ---------------------------------------------------------------- a host in a thread */

typedef void (*serve_fn)(int fd, void *user);

struct host {
    int listen_fd;
    serve_fn serve;
    void *user;
    pthread_t thread;
};

static void *host_run(void *user)
{
    struct host *host = user;
    struct pollfd ready = {.fd = host->listen_fd, .events = POLLIN};
    if (poll(&ready, 1, TL_LONG_NS / WEIR_NS_PER_MS) == 1) {
        int fd = accept4(host->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        host->serve(fd, host->user);
    }
    return NULL;
}

static void host_start(struct host *host, serve_fn serve, void *user)
{
    *host = (struct host){.serve = serve, .user = user};
    assert_int_equal(weir_listen_unix(path, 0600, &host->listen_fd), WEIR_OK);
    assert_int_equal(pthread_create(&host->thread, NULL, host_run, host), 0);
}

static void host_finish(struct host *host)
{
    pthread_join(host->thread, NULL);
    close(host->listen_fd);
    unlink(path);
}

static const struct weir_limit_wish wish = {.memory_bytes = {[1] = 5, [3] = UINT64_MAX},
                                            .sm_pct = 30,
                                            .connections = WEIR_CONTROL_MAX_CONNECTIONS,
                                            .launches_on_device = true};

static const struct weir_op_hashes *named = &tl_ops; /* what the next guests name */

static struct weir_connect_params connect_params(void)
{
    return (struct weir_connect_params){.host = url,
                                        .program = "prog",
                                        .version = "1.2",
                                        .ops = named,
                                        .wish = &wish,
                                        .timeout_ns = TL_LONG_NS};
}

/* Connect to a host that serves so; gives the status. */
static enum weir_status connect_within(uint64_t timeout_ns, serve_fn serve, void *user,
                                       struct weir_welcome **ret_welcome)
{
    struct host host;
    struct weir_transport *transport = NULL;
    struct weir_connect_params params = connect_params();
    params.timeout_ns = timeout_ns;
    host_start(&host, serve, user);
    enum weir_status status = weir_connect(&params, &transport, ret_welcome);
    host_finish(&host);
    if (status == WEIR_OK) {
        transport->ops->destroy(transport);
    }
    return status;
}

static enum weir_status connect_to(serve_fn serve, void *user, struct weir_welcome **ret_welcome)
{
    return connect_within(TL_LONG_NS, serve, user, ret_welcome);
}

/* ---------------------------------------------------------------- the good way */

static void serve_well(int fd, void *user)
{
    struct weir_hello *hello;
    struct weir_welcome_params welcome = tl_welcome_params();
    struct weir_transport **ret_transport = user;
    assert_int_equal(weir_accept_hello(fd, TL_LONG_NS, &hello), WEIR_OK);
    assert_string_equal(hello->program, "prog");
    assert_string_equal(hello->version, "1.2");
    assert_int_equal(hello->ops->n, tl_ops.n);
    assert_memory_equal(hello->ops->hash, tl_ops.hash, tl_ops.n * sizeof *tl_ops.hash);
    assert_int_equal(hello->pid, getpid());
    assert_int_equal(hello->peer.pid, getpid());
    assert_int_equal(hello->peer.uid, getuid());
    assert_true(hello->peer.known);
    assert_int_equal(hello->wish.sm_pct, wish.sm_pct);
    assert_int_equal(hello->wish.connections, wish.connections);
    assert_int_equal(hello->wish.launches_on_device, wish.launches_on_device);
    assert_memory_equal(hello->wish.memory_bytes, wish.memory_bytes, sizeof wish.memory_bytes);
    assert_int_equal(weir_accept_welcome(fd, hello, &welcome, ret_transport), WEIR_OK);
    weir_hello_destroy(hello);
}

static void connect_to_good_host_gives_all_of_welcome(void **state)
{
    (void)state;
    struct weir_welcome *welcome;
    struct weir_transport *transport = NULL;
    struct weir_welcome_params sent = tl_welcome_params();
    uint64_t fact;
    assert_int_equal(connect_to(serve_well, &transport, &welcome), WEIR_OK);
    transport->ops->destroy(transport);
    assert_int_equal(welcome->status, WEIR_OK);
    assert_int_equal(welcome->session, 42);
    assert_string_equal(welcome->tenant, "alice");
    assert_string_equal(welcome->transport, "shm");
    assert_true(welcome->window_base == sent.window_base);
    assert_true(welcome->window_bytes == sent.window_bytes);
    assert_true(welcome->memory_quota_bytes == sent.memory_quota_bytes);
    assert_true(welcome->spin_ns == sent.spin_ns);
    assert_int_equal(welcome->n_words, 1024);
    assert_string_equal(welcome->devices[0].name, "Test GPU");
    assert_memory_equal(welcome->devices[0].uuid, sent.devices->uuid, 16);
    assert_memory_equal(welcome->devices[0].luid, sent.devices->luid, 8);
    assert_int_equal(welcome->devices[0].driver_version, 13000);
    assert_int_equal(welcome->devices[0].stream_priority_greatest, -5);
    assert_true(welcome->devices[0].real);
    assert_int_equal(welcome->devices[0].n_attributes, 3);
    assert_int_equal(weir_device_attribute_get(&welcome->devices[0], 119)->result, 801);
    assert_int_equal(weir_device_attribute_get(&welcome->devices[0], 119)->value, -1);
    assert_null(weir_device_attribute_get(&welcome->devices[0], 1));
    assert_true(weir_device_fact_get(&welcome->devices[0], "limit.2", &fact));
    assert_int_equal(fact, 8388608);
    assert_false(weir_device_fact_get(&welcome->devices[0], "limit.9", &fact));
    weir_welcome_destroy(welcome);
}

/* ---------------------------------------------------------------- no host, no permission */

static void connect_without_host_is_not_found(void **state)
{
    (void)state;
    struct weir_transport *transport;
    struct weir_welcome *welcome;
    struct weir_connect_params params = connect_params();
    assert_int_equal(weir_connect(&params, &transport, &welcome), WEIR_ERR_NOT_FOUND);
    assert_null(welcome);
    int fd; /* a socket file that nobody listens on any more */
    assert_int_equal(weir_listen_unix(path, 0600, &fd), WEIR_OK);
    close(fd);
    assert_int_equal(weir_connect(&params, &transport, &welcome), WEIR_ERR_NOT_FOUND);
}

static void serve_refusal_of_drained(int fd, void *user)
{
    (void)user;
    weir_refuse(fd, WEIR_ERR_DENIED, 100, "drained");
    close(fd);
}

static void *host_comes_back(void *user)
{
    poll(NULL, 0, 200);
    host_start(user, serve_refusal_of_drained, NULL);
    return NULL;
}

/* A host that is restarted leaves the file, so that its programs wait for it. */
static void connect_waits_for_a_host_that_comes_back(void **state)
{
    (void)state;
    struct weir_transport *transport;
    struct weir_welcome *welcome;
    struct weir_connect_params params = connect_params();
    struct host host;
    pthread_t thread;
    int fd;
    assert_int_equal(weir_listen_unix(path, 0600, &fd), WEIR_OK);
    close(fd);
    assert_int_equal(pthread_create(&thread, NULL, host_comes_back, &host), 0);
    assert_int_equal(weir_connect(&params, &transport, &welcome), WEIR_ERR_DENIED);
    assert_string_equal(welcome->message, "drained");
    weir_welcome_destroy(welcome);
    pthread_join(thread, NULL);
    host_finish(&host);
}

static void listen_without_descriptors_says_so(void **state)
{
    (void)state;
    struct rlimit before, none;
    int fd = -1, next = dup(0); /* the lowest that is free */
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum weir_status status = weir_listen_unix("no-descriptor.sock", 0600, &fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, WEIR_ERR_NO_DESCRIPTOR);
    assert_int_equal(fd, -1);
}

static void connect_with_bad_parameters_is_invalid(void **state)
{
    (void)state;
    struct weir_transport *transport;
    struct weir_welcome *welcome;
    const char *hosts[] = {NULL, "", "weir", "ipc://", "http://x", "tcp://127.0.0.1:1"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        struct weir_connect_params params = connect_params();
        params.host = hosts[i];
        enum weir_status status = weir_connect(&params, &transport, &welcome);
#ifndef WEIR_WITH_ZMQ
        if (i == 5) {
            assert_int_equal(status, WEIR_ERR_UNSUPPORTED);
            continue;
        }
#endif
        assert_int_equal(status, WEIR_ERR_INVALID); /* tcp: no keys */
    }
    const char *names[] = {"loop", "carrier-pigeon", ""};
    for (size_t i = 0; i < 3; i++) {
        struct weir_connect_params params = connect_params();
        params.transport = names[i];
        assert_int_equal(weir_connect(&params, &transport, &welcome), WEIR_ERR_INVALID);
    }
    char longer[256];
    memset(longer, 'x', sizeof longer - 1);
    memcpy(longer, "ipc://", 6);
    longer[255] = '\0';
    struct weir_connect_params params = connect_params();
    params.host = longer;
    assert_int_equal(weir_connect(&params, &transport, &welcome), WEIR_ERR_INVALID);
}

/* ---------------------------------------------------------------- refusals */

struct refusal {
    enum weir_status reason;
    int32_t result;
    const char *message;
};

static void serve_refusal(int fd, void *user)
{
    const struct refusal *refusal = user;
    struct weir_hello *hello;
    assert_int_equal(weir_accept_hello(fd, TL_LONG_NS, &hello), WEIR_OK);
    weir_refuse(fd, refusal->reason, refusal->result, refusal->message);
    weir_hello_destroy(hello);
    close(fd);
}

static void refused_guest_learns_reason_result_and_message(void **state)
{
    (void)state;
    const struct refusal refusals[] = {{WEIR_ERR_DENIED, 999, "tenant is barred"},
                                       {WEIR_ERR_QUOTA, 2, "too many sessions (8)"},
                                       {WEIR_ERR_INTERNAL, -1, ""}};
    for (size_t i = 0; i < 3; i++) {
        struct weir_welcome *welcome;
        struct refusal refusal = refusals[i];
        assert_int_equal(connect_to(serve_refusal, &refusal, &welcome), refusals[i].reason);
        assert_int_equal(welcome->status, refusals[i].reason);
        assert_int_equal(welcome->result, refusals[i].result);
        assert_string_equal(welcome->message, refusals[i].message);
        weir_welcome_destroy(welcome);
    }
}

static void serve_other_version(int fd, void *user)
{
    struct weir_hello *hello;
    (void)user;
    assert_int_equal(weir_accept_hello(fd, TL_LONG_NS, &hello), WEIR_ERR_VERSION);
    close(fd);
}

static void a_guest_that_names_no_operations_is_refused_as_version(void **state)
{
    (void)state;
    struct weir_welcome *welcome;
    named = NULL;
    assert_int_equal(connect_to(serve_other_version, NULL, &welcome), WEIR_ERR_VERSION);
    named = &tl_ops;
    assert_int_equal(welcome->result, WEIR_RESULT_VERSION);
    assert_non_null(strstr(welcome->message, "is too old"));
    assert_non_null(strstr(welcome->message, "make the container anew")); /* it has room for all */
    weir_welcome_destroy(welcome);
}

/* ---------------------------------------------------------------- broken hosts */

static void serve_silence(int fd, void *user)
{
    char byte;
    (void)user;
    while (recv(fd, &byte, 1, 0) > 0) {
    }
    close(fd);
}

static void silent_host_times_out(void **state)
{
    (void)state;
    struct host host;
    struct weir_transport *transport;
    struct weir_welcome *welcome;
    struct weir_connect_params params = connect_params();
    params.timeout_ns = 100 * WEIR_NS_PER_MS;
    host_start(&host, serve_silence, NULL);
    struct tl_lived start = tl_lived_now();
    assert_int_equal(weir_connect(&params, &transport, &welcome), WEIR_ERR_TIMED_OUT);
    assert_true(tl_lived_since_ns(start) < WEIR_NS_PER_S);
    host_finish(&host);
}

static void serve_hang_up(int fd, void *user)
{
    (void)user;
    close(fd);
}

static void host_that_hangs_up_is_closed(void **state)
{
    (void)state;
    struct weir_welcome *welcome;
    /* All of it: there may be another host soon. */
    assert_int_equal(connect_within(3 * WEIR_NS_PER_S, serve_hang_up, NULL, &welcome),
                     WEIR_ERR_CLOSED);
    assert_null(welcome);
}

struct answer {
    const char *name;
    const void *bytes; /* NULL: a welcome, with: */
    size_t len;
    int memory_kind; /* 0 none, 1 not sealed, 2 too small, 3 sealed garbage, 4 a pipe */
    uint64_t segment_bytes;
    const char *transport;
};

static int make_memory(int kind)
{
    int fds[2];
    if (kind == 4) {
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        close(fds[1]);
        return fds[0];
    }
    int fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, kind == 2 ? 4096 : 1 << 20), 0);
    if (kind != 1) {
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    }
    return fd;
}

static void serve_answer(int fd, void *user)
{
    const struct answer *answer = user;
    struct weir_hello *hello;
    struct weir_control_bytes bytes = {0};
    assert_int_equal(weir_accept_hello(fd, TL_LONG_NS, &hello), WEIR_OK);
    weir_hello_destroy(hello);
    if (!answer->bytes) {
        struct weir_welcome welcome = {
            .n_words = 16, .arena_bytes = 4096, .segment_bytes = answer->segment_bytes};
        weir_text_set(welcome.transport, sizeof welcome.transport, answer->transport);
        assert_int_equal(weir_welcome_encode(&welcome, &bytes), WEIR_OK);
    }
    int memory_fd = answer->memory_kind ? make_memory(answer->memory_kind) : -1;
    assert_int_equal(weir_fd_message_send(fd, answer->bytes ? answer->bytes : bytes.bytes,
                                          answer->bytes ? answer->len : bytes.len, memory_fd,
                                          WEIR_FOREVER),
                     WEIR_OK);
    free(bytes.bytes);
    if (memory_fd >= 0) {
        close(memory_fd);
    }
    close(fd);
}

static void broken_welcome_is_peer_error(void **state)
{
    (void)state;
    const struct answer answers[] = {
        {.name = "garbage", .bytes = "\xff\xff\xff\xff\xff", .len = 5},
        {.name = "cut", .bytes = "\x1a\x20", .len = 2},
        {.name = "ok without a device", .bytes = "\x08\x00", .len = 2},
        {.name = "status out of range", .bytes = "\x08\x7f", .len = 2},
        {.name = "shm without memory", .transport = "shm", .segment_bytes = 1 << 20},
        {.name = "not sealed", .transport = "shm", .segment_bytes = 1 << 20, .memory_kind = 1},
        {.name = "too small", .transport = "shm", .segment_bytes = 1 << 20, .memory_kind = 2},
        {.name = "garbage in it", .transport = "shm", .segment_bytes = 1 << 20, .memory_kind = 3},
        {.name = "no memory at all", .transport = "shm", .segment_bytes = 4096, .memory_kind = 4},
        {.name = "zero bytes", .transport = "shm", .segment_bytes = 0, .memory_kind = 3},
        {.name = "2^64-1 bytes", .transport = "shm", .segment_bytes = UINT64_MAX, .memory_kind = 3},
        {.name = "not negotiable", .transport = "loop", .segment_bytes = 4096, .memory_kind = 3},
        {.name = "unknown transport", .transport = "xyz"},
        {.name = "zmq without a token", .transport = "zmq"},
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct weir_welcome *welcome;
        struct answer answer = answers[i];
        print_message("    %s\n", answer.name);
        assert_int_equal(connect_to(serve_answer, &answer, &welcome), WEIR_ERR_PEER);
        assert_null(welcome);
    }
}

/* ---------------------------------------------------------------- broken guests */

static void hello_of_a_bad_guest_is_an_exact_error(void **state)
{
    (void)state;
    int fds[2];
    struct weir_hello *hello;
    const struct {
        const char *bytes;
        size_t len;
        enum weir_status status;
    } rows[] = {{"\xff\xff", 2, WEIR_ERR_PEER},
                {"\x08\x00", 2, WEIR_ERR_PEER}, /* protocol 0 */
                {"\x08\x63", 2, WEIR_ERR_VERSION},
                {"\x08\x01", 2, WEIR_ERR_VERSION},         /* no operations */
                {"\x08\x01\x58\x20", 4, WEIR_ERR_VERSION}, /* .. and 32 connections */
                {"\x08\x01\x58\x21", 4, WEIR_ERR_PEER}};   /* 33 connections */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(send(fds[1], rows[i].bytes, rows[i].len, 0), rows[i].len);
        assert_int_equal(weir_accept_hello(fds[0], TL_LONG_NS, &hello), rows[i].status);
        close(fds[0]);
        close(fds[1]);
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(weir_accept_hello(fds[0], 20 * WEIR_NS_PER_MS, &hello), WEIR_ERR_TIMED_OUT);
    close(fds[1]);
    assert_int_equal(weir_accept_hello(fds[0], TL_LONG_NS, &hello), WEIR_ERR_CLOSED);
    close(fds[0]);
}

static void guest_with_no_common_transport_is_unsupported(void **state)
{
    (void)state;
    int fds[2];
    struct weir_transport *transport;
    struct weir_welcome_params welcome = tl_welcome_params();
    struct weir_hello hello = {
        .protocol = WEIR_PROTOCOL, .n_transports = 3, .transports = {"loop", "zmq", "rdma"}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(weir_accept_welcome(fds[0], &hello, &welcome, &transport),
                     WEIR_ERR_UNSUPPORTED);
    weir_text_set(hello.transports[2], WEIR_CONTROL_NAME_BYTES, "shm");
    welcome.segment.ring_bytes = 5000;
    assert_int_equal(weir_accept_welcome(fds[0], &hello, &welcome, &transport), WEIR_ERR_INVALID);
    close(fds[1]);
    welcome.segment.ring_bytes = 4096;
    assert_int_equal(weir_accept_welcome(fds[0], &hello, &welcome, &transport), WEIR_ERR_CLOSED);
    close(fds[0]);
}

static void *receive_to_the_end(void *user)
{
    struct weir_transport *t = user;
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;
    assert_int_equal(t->ops->receive(t, &record, &bulk, &bulk_bytes, 0, WEIR_FOREVER),
                     WEIR_ERR_CLOSED);
    return NULL;
}

/* Until the receiver of a guest that is killed has seen the end, in ns. */
static uint64_t end_is_seen_after_ns(void)
{
    struct weir_transport *transport = NULL;
    struct epoll_event event = {0};
    struct weir_hello *hello;
    struct weir_welcome_params welcome = tl_welcome_params();
    int listen_fd, epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    pthread_t thread;
    assert_int_equal(weir_listen_unix(path, 0600, &listen_fd), WEIR_OK);
    pid_t child = fork();
    if (child == 0) {
        struct weir_transport *guest;
        struct weir_welcome *welcomed;
        struct weir_connect_params params = connect_params();
        if (weir_connect(&params, &guest, &welcomed) != WEIR_OK) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    struct pollfd wait = {.fd = listen_fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, TL_LONG_NS / WEIR_NS_PER_MS), 1);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(weir_accept_hello(fd, TL_LONG_NS, &hello), WEIR_OK);
    assert_int_equal(weir_accept_welcome(fd, hello, &welcome, &transport), WEIR_OK);
    weir_hello_destroy(hello);
    assert_true(transport->ops->watch(transport, epoll_fd, 42));
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, receive_to_the_end, transport), 0);
    usleep(20000); /* it should be asleep by then; it need not be */
    struct tl_lived killed = tl_lived_now();
    kill(child, SIGKILL);
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, TL_LONG_NS / WEIR_NS_PER_MS), 1);
    assert_true(event.data.u64 == 42);
    transport->ops->look(transport);
    pthread_join(thread, NULL);
    uint64_t took_ns = tl_lived_since_ns(killed);
    assert_int_equal(waitpid(child, NULL, 0), child);
    transport->ops->destroy(transport);
    close(epoll_fd);
    close(listen_fd);
    return took_ns;
}

/* The receiver sleeps for a second at a time, and is woken when its guest is killed. A busy machine
 * may be late now and then. */
static void watched_guest_that_is_killed_wakes_its_receiver(void **state)
{
    bool in_time = false;
    (void)state;
    for (int tries = 0; tries < 8 && !in_time; tries++) {
        in_time = end_is_seen_after_ns() < 500 * WEIR_NS_PER_MS;
    }
    assert_true(in_time);
}

/* A guest that is killed while its forked child lives on, holding the socket open. */
static void killed_guest_is_noticed_though_its_child_lives(void **state)
{
    (void)state;
    struct weir_transport *transport = NULL;
    int listen_fd;
    int ready[2];
    pid_t grandchild = 0;
    assert_int_equal(weir_listen_unix(path, 0600, &listen_fd), WEIR_OK);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        struct weir_transport *guest;
        struct weir_welcome *welcome;
        struct weir_connect_params params = connect_params();
        if (weir_connect(&params, &guest, &welcome) != WEIR_OK) {
            _exit(1);
        }
        pid_t sleeper = fork();
        if (sleeper != 0) {
            ssize_t n = write(ready[1], &sleeper, sizeof sleeper);
            (void)n;
        }
        for (;;) {
            pause();
        }
    }
    struct pollfd wait = {.fd = listen_fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, TL_LONG_NS / WEIR_NS_PER_MS), 1);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    struct weir_hello *hello;
    struct weir_welcome_params welcome = tl_welcome_params();
    assert_int_equal(weir_accept_hello(fd, TL_LONG_NS, &hello), WEIR_OK);
    assert_int_equal(hello->peer.pid, child);
    assert_int_equal(weir_accept_welcome(fd, hello, &welcome, &transport), WEIR_OK);
    weir_hello_destroy(hello);
    assert_int_equal(read(ready[0], &grandchild, sizeof grandchild), sizeof grandchild);
    assert_false(transport->ops->peer_gone(transport));
    siginfo_t ended;
    kill(child, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;
    struct tl_lived start = tl_lived_now();
    assert_int_equal(
        transport->ops->receive(transport, &record, &bulk, &bulk_bytes, 0, WEIR_FOREVER),
        WEIR_ERR_CLOSED);
    assert_true(tl_lived_since_ns(start) < WEIR_NS_PER_S);
    kill(grandchild, SIGKILL);
    waitpid(child, NULL, 0);
    transport->ops->destroy(transport);
    close(listen_fd);
    close(ready[0]);
    close(ready[1]);
}

/* ---------------------------------------------------------------- listening, keys */

static void listen_replaces_a_stale_socket_only(void **state)
{
    (void)state;
    int fd, second;
    struct stat info;
    assert_int_equal(weir_listen_unix(path, 0622, &fd), WEIR_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0622);
    assert_int_equal(weir_listen_unix(path, 0600, &second), WEIR_ERR_EXISTS);
    close(fd);
    assert_int_equal(weir_listen_unix(path, 0600, &fd), WEIR_OK);
    close(fd);
    unlink(path);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(weir_listen_unix(path, 0600, &fd), WEIR_ERR_EXISTS);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(weir_listen_unix("/nonexistent/dir/sock", 0600, &fd), WEIR_ERR_NOT_FOUND);
    assert_int_equal(weir_listen_unix("", 0600, &fd), WEIR_ERR_INVALID);
    char longer[200];
    memset(longer, 'x', sizeof longer);
    longer[199] = '\0';
    assert_int_equal(weir_listen_unix(longer, 0600, &fd), WEIR_ERR_TOO_BIG);
}

static void key_is_read_from_text_or_file(void **state)
{
    (void)state;
    static const char key[] = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
    char read_key[WEIR_KEY_TEXT_BYTES];
    assert_true(weir_key_valid(key));
    assert_false(weir_key_valid("short"));
    assert_false(weir_key_valid("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf\""));
    assert_int_equal(weir_key_read(key, read_key), WEIR_OK);
    assert_string_equal(read_key, key);
    assert_int_equal(weir_key_read(path, read_key), WEIR_ERR_NOT_FOUND);
    FILE *file = fopen(path, "w");
    fprintf(file, "%s\nsecond line\n", key);
    fclose(file);
    memset(read_key, 0, sizeof read_key);
    assert_int_equal(weir_key_read(path, read_key), WEIR_OK);
    assert_string_equal(read_key, key);
    file = fopen(path, "w");
    fprintf(file, "%s%s\n", key, key);
    fclose(file);
    assert_int_equal(weir_key_read(path, read_key), WEIR_ERR_INVALID);
}

#define UNIX_TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIX_TEST(connect_to_good_host_gives_all_of_welcome),
        UNIX_TEST(connect_without_host_is_not_found),
        UNIX_TEST(connect_waits_for_a_host_that_comes_back),
        UNIX_TEST(listen_without_descriptors_says_so),
        UNIX_TEST(connect_with_bad_parameters_is_invalid),
        UNIX_TEST(refused_guest_learns_reason_result_and_message),
        UNIX_TEST(a_guest_that_names_no_operations_is_refused_as_version),
        UNIX_TEST(silent_host_times_out),
        UNIX_TEST(host_that_hangs_up_is_closed),
        UNIX_TEST(broken_welcome_is_peer_error),
        UNIX_TEST(hello_of_a_bad_guest_is_an_exact_error),
        UNIX_TEST(guest_with_no_common_transport_is_unsupported),
        UNIX_TEST(watched_guest_that_is_killed_wakes_its_receiver),
        UNIX_TEST(killed_guest_is_noticed_though_its_child_lives),
        UNIX_TEST(listen_replaces_a_stale_socket_only),
        UNIX_TEST(key_is_read_from_text_or_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

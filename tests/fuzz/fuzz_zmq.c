/*
 * The worker's ZeroMQ end against whatever frames arrive: messages of guests with a session, with a
 * token, with a key and with nothing; the monitor's reports; ZAP's requests.
 *
 * The input is a script. When the server's I/O thread polls it takes the script's next step, and
 * its sockets' messages are the script's (the wrapped functions of libzmq, transport.cmake);
 * messages themselves are libzmq's own. Whoever brings the script waits meanwhile, so one thread
 * runs at a time, and an input always does the same.
 *
 * A record bears its sender's mark: a session must get no other's.
 */
#include "base/clock.h"
#include "proto/wire/zmq_session.h"
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STEPS_MAX    200
#define FRAMES_MAX   8
#define GUESTS       4u /* at each port */
#define PENDINGS_MAX 8
#define SESSIONS_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Linked in place of libzmq's and libc's. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_zmq_msg_recv(zmq_msg_t *msg, void *socket, int flags);
int __wrap_zmq_msg_more(const zmq_msg_t *msg);
int __wrap_zmq_msg_get(const zmq_msg_t *msg, int property);
const char *__wrap_zmq_msg_gets(const zmq_msg_t *msg, const char *property);
int __wrap_zmq_msg_send(zmq_msg_t *msg, void *socket, int flags);
int __wrap_zmq_send(void *socket, const void *bytes, size_t len, int flags);
int __real_zmq_getsockopt(void *socket, int option, void *value, size_t *len);
int __wrap_zmq_getsockopt(void *socket, int option, void *value, size_t *len);

/* What waits in a socket: frames of one message. */
struct queue {
    struct {
        uint8_t *bytes;
        size_t len;
    } frames[FRAMES_MAX];
    uint32_t n, at;
};

static struct {
    const uint8_t *at;
    size_t left;
    uint32_t n_steps;
    bool wanted; /* the I/O thread is to run it; under lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
} script = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct {
    struct weir_zmq_server *server;
    atomic_bool is_up;
    struct queue router[2], monitor[2], zap;
    bool more;           /* of the frame received last */
    int fd;              /* that the next message comes over */
    const char *user_id; /* that its connection was given */
    bool send_fails;
    struct weir_zmq_pending *pendings[PENDINGS_MAX];
    struct weir_transport *sessions[SESSIONS_MAX];
    uint8_t tokens[SESSIONS_MAX][WEIR_CONTROL_TOKEN_BYTES];
    struct weir_control_bytes hello;
} f;

static void require_at(bool condition, int line)
{
    if (!condition) {
        (void)fprintf(stderr, "fuzz_zmq.c:%d: does not hold\n", line);
        abort();
    }
}
#define require(condition) require_at((condition), __LINE__)

static uint32_t take(size_t bytes)
{
    uint32_t value = 0;
    size_t n = bytes < script.left ? bytes : script.left;

    if (n != 0) {
        memcpy(&value, script.at, n);
        script.at += n;
        script.left -= n;
    }
    return value;
}

/* ---------------------------------------------------------------- frames */

static void push(struct queue *queue, const void *bytes, size_t len)
{
    if (queue->n < FRAMES_MAX) {
        queue->frames[queue->n].bytes = malloc(len + 1);
        require(queue->frames[queue->n].bytes != NULL);
        if (len != 0) {
            memcpy(queue->frames[queue->n].bytes, bytes, len);
        }
        queue->frames[queue->n++].len = len;
    }
}

static void empty(struct queue *queue)
{
    for (uint32_t i = 0; i < queue->n; i++) {
        free(queue->frames[i].bytes);
    }
    *queue = (struct queue){0};
}

static void push_raw(struct queue *queue)
{
    uint8_t bytes[63];
    size_t len = take(1) & 63;

    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)take(1);
    }
    push(queue, bytes, len);
}

static const struct weir_op_hashes ops = {.n = 2, .hash = {77, 78}};

/* A Hello that is right, but for what the script changes. */
static void push_hello(struct queue *queue, uint32_t shape)
{
    struct weir_hello hello = {.protocol = WEIR_PROTOCOL,
                               .ops = &ops,
                               .pid = 7,
                               .version = WEIR_VERSION,
                               .program = "fuzz",
                               .n_transports = 1,
                               .transports = {"zmq"},
                               .has_token = (shape & 8) != 0};
    struct weir_control_bytes bytes;

    memcpy(hello.token, f.tokens[shape >> 4 & (SESSIONS_MAX - 1)], sizeof hello.token);
    require(weir_hello_encode(&hello, &bytes) == WEIR_OK);
    if ((shape & 7) == 7) {
        ((uint8_t *)bytes.bytes)[take(2) % bytes.len] ^= (uint8_t)take(1);
    }
    push(queue, bytes.bytes, bytes.len);
    free(bytes.bytes);
}

static void push_control(struct queue *queue, uint32_t kind)
{
    struct weir_zmq_control control = {
        .magic = WEIR_ZMQ_CONTROL_MAGIC, .kind = kind, .value = take(1)};

    if (control.value >= 0xf0) {
        control.value = UINT64_C(1) << (take(1) & 63);
    }
    push(queue, &control, sizeof control);
}

static void push_record(struct queue *queue, uint32_t mark, uint32_t shape)
{
    struct weir_record record = {.len_bytes = 32 + 8 * take(1), .seq = mark};
    uint8_t *bytes = calloc(1, record.len_bytes);
    size_t len = record.len_bytes;

    require(bytes != NULL);
    if ((shape & 0xc0) == 0xc0) { /* a lie */
        record.len_bytes ^= take(2);
    }
    memcpy(bytes, &record, sizeof record);
    push(queue, bytes, len);
    free(bytes);
}

/* A message of a guest, as a ROUTER gives it. */
static void arrive(void)
{
    uint32_t who = take(1), shape = take(1), port = who & 1, guest = who >> 1 & (GUESTS - 1);
    struct queue *queue = &f.router[port];
    uint8_t identity[5] = {(uint8_t)guest, 1, 2, 3, 4};
    uint8_t bulk[600] = {0};

    empty(queue);
    f.fd = 100 + (int)(who & 7) + (who & 0x80 ? 8 : 0);
    f.user_id = (who & 0x40) != 0 ? NULL : "alice";
    push(queue, identity, 1 + guest);
    switch (shape & 7) {
    case 0:
        push_raw(queue);
        break;
    case 1:
        push_control(queue, take(1) & 7);
        break;
    case 2:
        push_control(queue, WEIR_ZMQ_HELLO);
        push_hello(queue, take(1));
        break;
    case 3:
        push_control(queue, WEIR_ZMQ_CREDIT);
        break;
    case 4:
        push_record(queue, who & 7, shape);
        push(queue, bulk, take(2) % sizeof bulk);
        break;
    default:
        push_record(queue, who & 7, shape);
        break;
    }
    for (uint32_t extra = shape >> 3 & 7; extra > 5; extra--) {
        push_raw(queue);
    }
}

/* ---------------------------------------------------------------- in place of libzmq's sockets */

static struct queue *queue_of(const void *socket)
{
    for (size_t i = 0; i < f.server->n_ports && i < 2; i++) {
        if (socket == f.server->ports[i].socket) {
            return &f.router[i];
        }
        if (socket == f.server->ports[i].monitor) {
            return &f.monitor[i];
        }
    }
    return &f.zap;
}

int __wrap_zmq_msg_recv(zmq_msg_t *msg, void *socket, int flags)
{
    struct queue *queue;
    size_t len;

    require(flags == ZMQ_DONTWAIT);
    if (!atomic_load(&f.is_up)) { /* the I/O thread is there before the server is ours */
        errno = EAGAIN;
        return -1;
    }
    queue = queue_of(socket);
    if (queue->at == queue->n) {
        empty(queue);
        errno = EAGAIN;
        return -1;
    }
    len = queue->frames[queue->at].len;
    zmq_msg_close(msg);
    require(zmq_msg_init_size(msg, len) == 0);
    memcpy(zmq_msg_data(msg), queue->frames[queue->at++].bytes, len);
    f.more = queue->at < queue->n;
    return (int)len;
}

int __wrap_zmq_msg_more(const zmq_msg_t *msg)
{
    (void)msg;
    return f.more;
}

int __wrap_zmq_msg_get(const zmq_msg_t *msg, int property)
{
    (void)msg;
    require(property == ZMQ_SRCFD);
    return f.fd;
}

const char *__wrap_zmq_msg_gets(const zmq_msg_t *msg, const char *property)
{
    (void)msg;
    require(strcmp(property, "User-Id") == 0);
    return f.user_id;
}

int __wrap_zmq_msg_send(zmq_msg_t *msg, void *socket, int flags)
{
    static volatile uint8_t sink;
    size_t len = zmq_msg_size(msg);

    (void)socket;
    (void)flags;
    if (f.send_fails) {
        errno = EHOSTUNREACH;
        return -1;
    }
    for (size_t i = 0; i < len; i += 64) {
        sink = ((const uint8_t *)zmq_msg_data(msg))[i]; /* sanitizers judge */
    }
    (void)sink;
    zmq_msg_close(msg);
    zmq_msg_init(msg);
    return (int)len;
}

int __wrap_zmq_send(void *socket, const void *bytes, size_t len, int flags)
{
    (void)socket;
    (void)bytes;
    (void)flags;
    return (int)len;
}

int __wrap_zmq_getsockopt(void *socket, int option, void *value, size_t *len)
{
    if (option == ZMQ_EVENTS) { /* nothing more */
        memset(value, 0, *len);
        return 0;
    }
    return __real_zmq_getsockopt(socket, option, value, len);
}

/* ---------------------------------------------------------------- the worker */

static bool tenant_of_key(void *user, const char *key, char *ret_tenant, size_t tenant_bytes)
{
    (void)user;
    require(strlen(key) == WEIR_KEY_TEXT_BYTES - 1);
    (void)snprintf(ret_tenant, tenant_bytes, "alice");
    return (key[0] & 1) != 0;
}

static void on_hello(void *user, const char *tenant, const struct weir_hello *hello,
                     struct weir_zmq_pending *pending)
{
    (void)user;
    require(strcmp(tenant, "alice") == 0 && hello->ops);
    for (uint32_t i = 0; i < PENDINGS_MAX; i++) {
        if (!f.pendings[i]) {
            f.pendings[i] = pending;
            return;
        }
    }
    weir_zmq_refuse(pending, WEIR_ERR_QUOTA, 2, "too many connections");
}

static const struct weir_segment_params segment = {
    .n_words = 64, .ring_bytes = 65536, .arena_bytes = 65536};

static void answer(void)
{
    static struct weir_device device = {.name = "fuzz", .total_memory_bytes = 1 << 30};
    uint32_t shape = take(1);
    struct weir_zmq_pending **pending = &f.pendings[shape % PENDINGS_MAX];
    struct weir_transport **session = &f.sessions[shape / 8 % SESSIONS_MAX];
    struct weir_welcome_params params = {.session = 1,
                                         .tenant = "alice",
                                         .window_base = UINT64_C(1) << 45,
                                         .window_bytes = UINT64_C(1) << 40,
                                         .segment = segment,
                                         .devices = &device,
                                         .n_devices = 1};

    if (!*pending) {
        return;
    }
    if (*session || (shape & 0xc0) == 0xc0) {
        weir_zmq_refuse(*pending, WEIR_ERR_QUOTA, 2, "no");
    } else if (weir_zmq_accept(*pending, &params, session) != WEIR_OK) {
        *session = NULL;
    }
    *pending = NULL;
}

/* A guest has come through a unix socket, and gets a token. */
static void expect(void)
{
    static const struct weir_peer self = {.pid = 1};
    uint32_t i = take(1) % SESSIONS_MAX;

    if (!f.sessions[i] && weir_zmq_session_expect(f.server, &segment, &self, f.tokens[i],
                                                  &f.sessions[i]) != WEIR_OK) {
        f.sessions[i] = NULL;
    }
}

static void receive(struct weir_transport *t)
{
    const struct weir_zmq_session *session = (const struct weir_zmq_session *)(const void *)t;
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    if (t->ops->receive(t, &record, &bulk, &bulk_bytes, 0, 0) == WEIR_OK) {
        uint32_t port = (uint32_t)(session->address.port - f.server->ports);

        require(record->len_bytes >= sizeof *record && record->len_bytes <= WEIR_RECORD_MAX_BYTES &&
                bulk_bytes <= WEIR_BULK_MAX_BYTES && (uintptr_t)record % 8 == 0);
        require(record->seq == (port | (uint32_t)session->address.identity[0] << 1));
    }
}

static void reply(struct weir_transport *t)
{
    uint32_t words = take(1), bulk_bytes = take(2);
    struct weir_record *record = calloc(1, sizeof *record + words * 8ull);
    uint8_t *bulk = calloc(1, bulk_bytes + 1);

    if (record && bulk) {
        record->len_bytes = (uint32_t)(sizeof *record + words * 8ull);
        (void)!t->ops->send(t, record, bulk_bytes ? bulk : NULL, bulk_bytes, 0);
    }
    free(record);
    free(bulk);
}

static void step_session(void)
{
    uint32_t what = take(1);
    struct weir_transport **session = &f.sessions[what / 8 % SESSIONS_MAX];

    if (!*session) {
        return;
    }
    switch (what & 7) {
    case 0:
        (*session)->ops->destroy(*session);
        *session = NULL;
        break;
    case 1:
    case 2:
        reply(*session);
        break;
    case 3:
        (void)(*session)->ops->peer_gone(*session);
        break;
    default:
        receive(*session);
        break;
    }
}

/* A connection has ended, says the monitor. */
static void report(void)
{
    uint32_t what = take(1);
    uint8_t event[6] = {0};
    uint16_t kind = what & 0x40 ? (uint16_t)take(2) : ZMQ_EVENT_DISCONNECTED;
    uint32_t fd = 100 + (what & 15);
    struct queue *queue = &f.monitor[what >> 7];

    memcpy(event, &kind, sizeof kind);
    memcpy(event + sizeof kind, &fd, sizeof fd);
    push(queue, event, (what & 0x30) == 0x30 ? what % sizeof event : sizeof event);
    push(queue, "address", (what & 0x20) != 0 ? 7 : 0);
}

static void ask_zap(void)
{
    static const char *const frames[] = {"1.0", "1", "weir", "1.2.3.4", "", "CURVE"};
    uint32_t shape = take(1);

    empty(&f.zap);
    for (uint32_t i = 0; i < 6; i++) {
        if ((shape & 7) == i) {
            push_raw(&f.zap);
        } else {
            push(&f.zap, frames[i], strlen(frames[i]));
        }
    }
    if ((shape & 8) != 0) {
        uint8_t key[32] = {(uint8_t)take(1), (uint8_t)take(1)};

        push(&f.zap, key, sizeof key);
    } else {
        push_raw(&f.zap);
    }
}

static void step(void)
{
    switch (take(1) % 9) {
    case 0:
    case 1:
    case 2:
        arrive();
        break;
    case 3:
        answer();
        break;
    case 4:
        expect();
        break;
    case 5:
        report();
        break;
    case 6:
        ask_zap();
        break;
    case 7:
        f.send_fails = take(1) % 4 == 0;
        break;
    default:
        step_session();
        break;
    }
}

static void await_script(bool wanted)
{
    pthread_mutex_lock(&script.lock);
    while (script.wanted != wanted) {
        pthread_cond_wait(&script.changed, &script.lock);
    }
    pthread_mutex_unlock(&script.lock);
}

static void want_script(bool wanted)
{
    pthread_mutex_lock(&script.lock);
    script.wanted = wanted;
    pthread_cond_broadcast(&script.changed);
    pthread_mutex_unlock(&script.lock);
}

/* The I/O thread waits: something happens. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    (void)fds;
    (void)n;
    if (timeout_ms != -1) { /* somebody else's: whether a descriptor's peer is gone */
        return 0;
    }
    await_script(true);
    if (script.left == 0 || script.n_steps++ == STEPS_MAX) {
        want_script(false); /* .. until another one comes */
        await_script(true);
    }
    step();
    return 0;
}

/* ---------------------------------------------------------------- begin and end */

static void begin(void)
{
    static char endpoint[64];
    const char *endpoints[] = {endpoint, "tcp://127.0.0.1:*"};
    struct weir_keypair keys;
    struct weir_zmq_server_params params = {.endpoints = endpoints,
                                            .n_endpoints = 2,
                                            .secret_key = keys.secret_key,
                                            .tenant_of_key = tenant_of_key,
                                            .on_hello = on_hello};

    (void)snprintf(endpoint, sizeof endpoint, "ipc:///tmp/weir-fuzz-%d", (int)getpid());
    require(weir_keypair_generate(&keys) == WEIR_OK);
    require(weir_zmq_server_create(&params, &f.server) == WEIR_OK);
    (void)unlink(endpoint + strlen("ipc://"));
    atomic_store(&f.is_up, true);
}

static void end(void)
{
    for (uint32_t i = 0; i < PENDINGS_MAX; i++) {
        if (f.pendings[i]) {
            weir_zmq_refuse(f.pendings[i], WEIR_ERR_CLOSED, 0, "no");
            f.pendings[i] = NULL;
        }
    }
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        if (f.sessions[i]) {
            f.sessions[i]->ops->destroy(f.sessions[i]);
            f.sessions[i] = NULL;
        }
    }
    require(!f.server->sessions && !f.server->pendings);
    for (int i = 0; i < 2; i++) {
        empty(&f.router[i]);
        empty(&f.monitor[i]);
    }
    empty(&f.zap);
    memset(f.tokens, 0, sizeof f.tokens);
    f.send_fails = false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!f.server) {
        begin();
    }
    script.at = data;
    script.left = size;
    script.n_steps = 0;
    want_script(true);
    await_script(false);
    end();
    return 0;
}

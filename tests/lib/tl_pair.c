#include "tests/lib/tl_pair.h"
#include "base/clock.h"
#include "proto/transport/ivshmem.h"
#include "proto/transport/segment_map.h"
#include "proto/transport/stream.h"
#include "proto/wire/accept_stream.h"
#include "proto/wire/connect_stream.h"
#include "tests/lib/tl_loop.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#ifdef WEIR_WITH_ZMQ
#include "proto/wire/zmq_server.h"
#endif

const struct weir_op_hashes tl_ops = {.n = 2, .hash = {7, 9}};

static struct weir_device_attribute attributes[] = {{.id = 16, .result = 0, .value = 132},
                                                    {.id = 75, .result = 0, .value = 9},
                                                    {.id = 119, .result = 801, .value = -1}};
static struct weir_device_fact facts[] = {{.key = "limit.0", .value = 1024},
                                          {.key = "limit.2", .value = 8388608}};
static const struct weir_device device = {.driver_version = 13000,
                                          .name = "Test GPU",
                                          .uuid = {1, 2, 3, 4, 5, 6, 7, 8},
                                          .luid = {9},
                                          .luid_mask = 1,
                                          .pci_bus_id = "0000:01:00.0",
                                          .total_memory_bytes = 1ull << 34,
                                          .real = true,
                                          .stream_priority_least = 0,
                                          .stream_priority_greatest = -5,
                                          .granularity_bytes = 2u << 20,
                                          .n_attributes = 3,
                                          .attributes = attributes,
                                          .n_facts = 2,
                                          .facts = facts};

struct weir_welcome_params tl_welcome_params(void)
{
    return (struct weir_welcome_params){
        .session = 42,
        .tenant = "alice",
        .memory_quota_bytes = 1ull << 33,
        .window_base = 0x100000000000ull,
        .window_bytes = 1ull << 40,
        .spin_ns = 20000,
        .segment = {.n_words = 1024, .ring_bytes = 65536, .arena_bytes = 1u << 20},
        .devices = &device,
        .n_devices = 1,
    };
}

struct dial {
    struct weir_connect_params params;
    struct weir_transport *transport;
    enum weir_status status;
};

static void *dial(void *user)
{
    struct dial *dialled = user;
    struct weir_welcome *welcome;
    dialled->status = weir_connect(&dialled->params, &dialled->transport, &welcome);
    weir_welcome_destroy(welcome);
    return NULL;
}

/* The handshake over a unix socket, worker's half in this thread, guest's in another. */
static void make_unix(struct tl_pair *pair, const char *transport,
                      struct weir_welcome_params *welcome)
{
    char path[96], url[112];
    int listen_fd;
    snprintf(path, sizeof path, "%s/weir.sock", pair->directory);
    snprintf(url, sizeof url, "ipc://%s", path);
    assert_int_equal(weir_listen_unix(path, 0600, &listen_fd), WEIR_OK);
    struct dial dialled = {.params = {.host = url,
                                      .transport = transport,
                                      .program = "test",
                                      .version = "0",
                                      .ops = &tl_ops,
                                      .timeout_ns = TL_LONG_NS}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, dial, &dialled), 0);
    struct pollfd ready = {.fd = listen_fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, TL_LONG_NS / WEIR_NS_PER_MS), 1);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    struct weir_hello *hello;
    assert_int_equal(weir_accept_hello(fd, TL_LONG_NS, &hello), WEIR_OK);
    assert_int_equal(weir_accept_welcome(fd, hello, welcome, &pair->host), WEIR_OK);
    pthread_join(thread, NULL);
    assert_int_equal(dialled.status, WEIR_OK);
    pair->guest = dialled.transport;
    weir_hello_destroy(hello);
    close(listen_fd);
    unlink(path);
}

/* ---------------------------------------------------------------- ivshmem */

/* A region whose host is this process: one slot, one segment, and a beat. */
struct tl_region {
    int fd;
    void *control;
    uint32_t stop;
    pthread_t beats;
};

#define TL_SESSION      42
#define TL_EPOCH        77
#define TL_SLOT         5
#define TL_BEAT_NS      (200 * WEIR_NS_PER_MS)
#define TL_REGION_BYTES WEIR_REGION_MIN_BYTES

static struct weir_region_slot *slot_of(const struct tl_region *region)
{
    return weir_region_slot(region->control, TL_SLOT);
}

static void *count_beats(void *user)
{
    struct tl_region *region = user;
    struct weir_region_header *header = region->control;
    while (!__atomic_load_n(&region->stop, __ATOMIC_ACQUIRE)) {
        __atomic_add_fetch(&header->beat, 1, __ATOMIC_RELEASE);
        weir_futex_wait(&region->stop, 0, TL_BEAT_NS);
    }
    return NULL;
}

static bool guest_left(void *user)
{
    return __atomic_load_n(&slot_of(user)->guest_left, __ATOMIC_ACQUIRE) != 0;
}

static void host_closed(void *user)
{
    __atomic_store_n(&slot_of(user)->session, 0, __ATOMIC_RELEASE);
}

static void make_region(struct tl_pair *pair, enum weir_transport_id id,
                        const struct weir_segment_params *params)
{
    struct tl_region *region = calloc(1, sizeof *region);
    struct weir_segment_view host_view, guest_view;
    struct weir_region guest;
    char path[64];
    assert_non_null(region);
    region->fd = memfd_create("region", MFD_CLOEXEC);
    assert_true(region->fd >= 0);
    assert_int_equal(ftruncate(region->fd, TL_REGION_BYTES), 0);
    region->control =
        mmap(NULL, WEIR_REGION_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
    assert_ptr_not_equal(region->control, MAP_FAILED);
    *(struct weir_region_header *)region->control =
        (struct weir_region_header){.magic = WEIR_REGION_MAGIC,
                                    .version = WEIR_REGION_VERSION,
                                    .bytes = TL_REGION_BYTES,
                                    .epoch = TL_EPOCH};
    slot_of(region)->session = TL_SESSION;
    assert_int_equal(weir_segment_create_at(params, region->fd, WEIR_REGION_CONTROL_BYTES,
                                            WEIR_REGION_UNIT_BYTES, &host_view),
                     WEIR_OK);
    struct weir_ivshmem_owner owner = {guest_left, host_closed, region};
    assert_int_equal(weir_ivshmem_host(id, &host_view, &owner, &pair->host), WEIR_OK);
    snprintf(path, sizeof path, "/proc/self/fd/%d", region->fd);
    assert_int_equal(weir_region_open(path, &guest), WEIR_OK);
    guest.id = id; /* here it is a file either way */
    assert_int_equal(
        weir_segment_map_at(guest.fd, WEIR_REGION_CONTROL_BYTES, host_view.bytes, &guest_view),
        WEIR_OK);
    assert_int_equal(
        weir_ivshmem_guest(&guest, TL_SLOT, TL_SESSION, TL_EPOCH, &guest_view, &pair->guest),
        WEIR_OK);
    assert_int_equal(pthread_create(&region->beats, NULL, count_beats, region), 0);
    pair->region = region;
}

static void destroy_region(struct tl_region *region)
{
    if (region) {
        __atomic_store_n(&region->stop, 1, __ATOMIC_RELEASE);
        weir_futex_wake(&region->stop, 1);
        pthread_join(region->beats, NULL);
        munmap(region->control, WEIR_REGION_CONTROL_BYTES);
        close(region->fd);
        free(region);
    }
}

/* ---------------------------------------------------------------- streams */

/* A guest's end of a stream that says hello. */
struct greeting {
    int fd;
    struct weir_transport *t;
    enum weir_status status;
};

static void *greet(void *user)
{
    struct greeting *greeting = user;
    struct weir_hello hello = {
        .protocol = WEIR_PROTOCOL, .ops = &tl_ops, .program = "test", .version = "0"};
    struct weir_welcome *welcome = NULL;
    struct weir_stream_link *link = weir_stream_socket(greeting->fd);
    uint64_t deadline_ns = weir_clock_now_ns() + TL_LONG_NS;
    greeting->status = link ? weir_stream_create(link, &greeting->t) : WEIR_ERR_NO_MEMORY;
    if (greeting->status == WEIR_OK) {
        greeting->status = weir_greet_stream(greeting->t, &hello, deadline_ns, &welcome);
    }
    weir_welcome_destroy(welcome);
    return NULL;
}

/* The handshake over a stream, host's half in this thread, guest's in another. */
static void make_stream(struct tl_pair *pair, const struct weir_welcome_params *welcome)
{
    struct greeting greeting = {.fd = -1};
    struct weir_stream_link *link;
    struct weir_hello *hello;
    pthread_t thread;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    greeting.fd = fds[1];
    assert_int_equal(pthread_create(&thread, NULL, greet, &greeting), 0);
    link = weir_stream_socket(fds[0]);
    assert_non_null(link);
    assert_int_equal(weir_stream_create(link, &pair->host), WEIR_OK);
    assert_int_equal(weir_stream_hello(pair->host, TL_LONG_NS, &hello), WEIR_OK);
    weir_hello_destroy(hello);
    assert_int_equal(weir_stream_welcome(pair->host, welcome), WEIR_OK);
    pthread_join(thread, NULL);
    assert_int_equal(greeting.status, WEIR_OK);
    pair->guest = greeting.t;
}

void tl_pair_make(enum weir_transport_id id, const struct weir_segment_params *params,
                  struct tl_pair *ret_pair)
{
    *ret_pair = (struct tl_pair){0};
    struct weir_welcome_params welcome = tl_welcome_params();
#ifdef WEIR_WITH_ZMQ
    char endpoint[112]; /* outlives the welcome that borrows it */
#endif
    if (params) {
        welcome.segment = *params;
    }
    if (id == WEIR_TRANSPORT_LOOP) {
        assert_int_equal(tl_loop_create(&welcome.segment, &ret_pair->host, &ret_pair->guest),
                         WEIR_OK);
        return;
    }
    if (id == WEIR_TRANSPORT_IVSHMEM || id == WEIR_TRANSPORT_DEVDAX) {
        make_region(ret_pair, id, &welcome.segment);
        return;
    }
    if (id == WEIR_TRANSPORT_VSOCK) {
        make_stream(ret_pair, &welcome);
        return;
    }
    snprintf(ret_pair->directory, sizeof ret_pair->directory, "/tmp/weir-test-XXXXXX");
    assert_non_null(mkdtemp(ret_pair->directory));
#ifdef WEIR_WITH_ZMQ
    if (id == WEIR_TRANSPORT_ZMQ) {
        snprintf(endpoint, sizeof endpoint, "ipc://%s/zmq.sock", ret_pair->directory);
        const char *endpoints[] = {endpoint};
        struct weir_zmq_server_params server = {.endpoints = endpoints, .n_endpoints = 1};
        assert_int_equal(weir_zmq_server_create(&server, &ret_pair->server), WEIR_OK);
        welcome.zmq = ret_pair->server;
        welcome.zmq_ipc_path = endpoint;
    }
#endif
    make_unix(ret_pair, weir_transport_kind(id)->name, &welcome);
}

void tl_pair_destroy(struct tl_pair *pair)
{
    if (pair->guest) {
        pair->guest->ops->destroy(pair->guest);
    }
    if (pair->host) {
        pair->host->ops->destroy(pair->host);
    }
    destroy_region(pair->region);
#ifdef WEIR_WITH_ZMQ
    weir_zmq_server_destroy(pair->server);
#endif
    if (*pair->directory) {
        char path[96];
        snprintf(path, sizeof path, "%s/zmq.sock", pair->directory);
        unlink(path);
        rmdir(pair->directory);
    }
    *pair = (struct tl_pair){0};
}

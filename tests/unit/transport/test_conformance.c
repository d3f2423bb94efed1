/*
 * The contract of transport.h, run over every row of transports.def. Each case gets a fresh pair.
 */
#include "base/clock.h"
#include "tests/lib/tl_lived.h"
#include "tests/lib/tl_pair.h"
#ifdef WEIR_WITH_ZMQ
#include "proto/wire/zmq_session.h"
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND WEIR_NS_PER_S

static enum weir_transport_id current;

/* A record of len bytes whose body depends on seq. Freed by the caller. */
static struct weir_record *make_record(uint32_t len, uint64_t seq)
{
    struct weir_record *record = calloc(1, len);
    assert_non_null(record);
    *record = (struct weir_record){.len_bytes = len, .op = 7, .seq = seq};
    uint8_t *body = (uint8_t *)(record + 1);
    for (uint32_t i = 0; i < len - sizeof *record; i++) {
        body[i] = (uint8_t)(seq + i * 31);
    }
    return record;
}

static void send_one(struct weir_transport *t, uint32_t len, uint64_t seq)
{
    struct weir_record *record = make_record(len, seq);
    assert_int_equal(t->ops->send(t, record, NULL, 0, TL_LONG_NS), WEIR_OK);
    free(record);
}

static void expect_one(struct weir_transport *t, uint32_t len, uint64_t seq)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;
    assert_int_equal(t->ops->receive(t, &record, &bulk, &bulk_bytes, 1000, TL_LONG_NS), WEIR_OK);
    assert_int_equal((uintptr_t)record % 8, 0);
    struct weir_record *wanted = make_record(len, seq);
    assert_int_equal(record->len_bytes, len);
    assert_memory_equal(record, wanted, len);
    assert_int_equal(bulk_bytes, 0);
    free(wanted);
}

static enum weir_status try_receive(struct weir_transport *t, uint64_t timeout_ns)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;
    return t->ops->receive(t, &record, &bulk, &bulk_bytes, 0, timeout_ns);
}

static void one_record_each_way_arrives(struct tl_pair *pair)
{
    send_one(pair->guest, 64, 1);
    expect_one(pair->host, 64, 1);
    send_one(pair->host, 32, 2);
    expect_one(pair->guest, 32, 2);
}

static void every_size_arrives_whole(struct tl_pair *pair)
{
    const uint32_t sizes[] = {32, 40, 48, 56, 64, 4088, 4096, 4104, 32768, 65528, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        send_one(pair->guest, sizes[i], i);
        expect_one(pair->host, sizes[i], i);
        send_one(pair->host, sizes[i], i);
        expect_one(pair->guest, sizes[i], i);
    }
}

static void order_is_kept_over_many_wraps(struct tl_pair *pair)
{
    uint64_t next = 0;
    for (uint64_t seq = 0; seq < 3000; seq++) {
        send_one(pair->guest, 32 + (uint32_t)(seq % 97) * 8, seq);
        while (seq - next >= 20) {
            expect_one(pair->host, 32 + (uint32_t)(next % 97) * 8, next);
            next++;
        }
    }
    for (; next < 3000; next++) {
        expect_one(pair->host, 32 + (uint32_t)(next % 97) * 8, next);
    }
}

static void bad_lengths_are_refused(struct tl_pair *pair)
{
    struct weir_transport *t = pair->guest;
    struct weir_record *record = make_record(64, 1);
    record->len_bytes = 24;
    assert_int_equal(t->ops->send(t, record, NULL, 0, SECOND), WEIR_ERR_INVALID);
    record->len_bytes = 60;
    assert_int_equal(t->ops->send(t, record, NULL, 0, SECOND), WEIR_ERR_INVALID);
    record->len_bytes = WEIR_RECORD_MAX_BYTES + 8;
    assert_int_equal(t->ops->send(t, record, NULL, 0, SECOND), WEIR_ERR_TOO_BIG);
    free(record);
    send_one(pair->guest, 64, 9); /* and no harm was done */
    expect_one(pair->host, 64, 9);
}

static void receive_times_out_without_records(struct tl_pair *pair)
{
    uint64_t start_ns = weir_clock_now_ns();
    assert_int_equal(try_receive(pair->host, 0), WEIR_ERR_TIMED_OUT);
    assert_int_equal(try_receive(pair->guest, 0), WEIR_ERR_TIMED_OUT);
    assert_int_equal(try_receive(pair->host, 30 * WEIR_NS_PER_MS), WEIR_ERR_TIMED_OUT);
    assert_int_equal(try_receive(pair->guest, 30 * WEIR_NS_PER_MS), WEIR_ERR_TIMED_OUT);
    assert_true(weir_clock_now_ns() - start_ns >= 60 * WEIR_NS_PER_MS);
}

/* Sends until there is no room; gives how many went. */
static uint64_t fill_up(struct weir_transport *t, uint32_t len)
{
    uint64_t n = 0;
    struct weir_record *record = make_record(len, 0);
    enum weir_status status = WEIR_OK;
    while (status == WEIR_OK && n < 100000) {
        record->seq = n;
        status = t->ops->send(t, record, NULL, 0, n % 2 ? 0 : 10 * WEIR_NS_PER_MS);
        n += status == WEIR_OK;
    }
    assert_int_equal(status, WEIR_ERR_TIMED_OUT);
    free(record);
    return n;
}

static void full_channel_times_out_then_drains(struct tl_pair *pair)
{
    struct weir_transport *ends[2][2] = {{pair->guest, pair->host}, {pair->host, pair->guest}};
    for (int i = 0; i < 2; i++) {
        const struct weir_record *record;
        const void *bulk;
        size_t bulk_bytes;
        uint64_t n = fill_up(ends[i][0], 65536);
        assert_true(n >= 1);
        for (uint64_t seq = 0; seq < n; seq++) {
            struct weir_transport *t = ends[i][1];
            assert_int_equal(t->ops->receive(t, &record, &bulk, &bulk_bytes, 0, TL_LONG_NS),
                             WEIR_OK);
            assert_int_equal(record->seq, seq);
        }
        send_one(ends[i][0], 64, 77);
        expect_one(ends[i][1], 64, 77);
    }
}

struct pump {
    struct weir_transport *t;
    uint64_t count;
    uint64_t wrong;
    enum weir_status status;
};

static uint32_t length_of(uint64_t seq)
{
    return 32 + (uint32_t)(seq * 2654435761u % 500) * 8;
}

static void *send_all(void *user)
{
    struct pump *pump = user;
    for (uint64_t seq = 0; seq < pump->count && pump->status == WEIR_OK; seq++) {
        struct weir_record *record = make_record(length_of(seq), seq);
        pump->status = pump->t->ops->send(pump->t, record, NULL, 0, TL_LONG_NS);
        free(record);
    }
    return NULL;
}

static void *receive_all(void *user)
{
    struct pump *pump = user;
    for (uint64_t seq = 0; seq < pump->count && pump->status == WEIR_OK; seq++) {
        const struct weir_record *record;
        const void *bulk;
        size_t bulk_bytes;
        uint64_t spin_ns = seq % 3 ? 0 : 2000;
        pump->status =
            pump->t->ops->receive(pump->t, &record, &bulk, &bulk_bytes, spin_ns, TL_LONG_NS);
        if (pump->status == WEIR_OK) {
            struct weir_record *wanted = make_record(length_of(seq), seq);
            pump->wrong += record->len_bytes != wanted->len_bytes ||
                           memcmp(record, wanted, wanted->len_bytes) != 0;
            free(wanted);
        }
    }
    return NULL;
}

static void both_ends_send_and_receive_at_once(struct tl_pair *pair)
{
    struct pump pumps[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        pumps[i] = (struct pump){.t = i < 2 ? pair->guest : pair->host, .count = 4000};
        assert_int_equal(
            pthread_create(&threads[i], NULL, i % 2 ? send_all : receive_all, &pumps[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(pumps[i].status, WEIR_OK);
        assert_int_equal(pumps[i].wrong, 0);
    }
}

static void *destroy_later(void *user)
{
    struct weir_transport *t = user;
    usleep(50000); /* the other thread should be asleep in receive by then; it need not be */
    t->ops->destroy(t);
    return NULL;
}

static void expect_closed_within_a_second(struct weir_transport *waiting,
                                          struct weir_transport *ending)
{
    pthread_t thread;
    struct tl_lived start = tl_lived_now();
    assert_int_equal(pthread_create(&thread, NULL, destroy_later, ending), 0);
    assert_int_equal(try_receive(waiting, WEIR_FOREVER), WEIR_ERR_CLOSED);
    assert_true(tl_lived_since_ns(start) < SECOND + 50 * WEIR_NS_PER_MS);
    pthread_join(thread, NULL);
    assert_true(waiting->ops->peer_gone(waiting));
    assert_int_equal(try_receive(waiting, 0), WEIR_ERR_CLOSED);
}

static struct tl_lived destroyed;
static pthread_barrier_t measured;

static void *destroy_in_a_long_slice(void *user)
{
    struct weir_transport *t = user;
    usleep(150000); /* slices of 20, 40, 80 and 160 ms: asleep for another 150 ms */
    destroyed = tl_lived_now();
    t->ops->destroy(t);
    pthread_barrier_wait(&measured);
    return NULL;
}

/* Is a waiter woken, rather than finding out when its slice is over? */
static bool end_is_noticed_at_once(struct tl_pair *pair, bool host_ends)
{
    struct weir_transport **ending = host_ends ? &pair->host : &pair->guest;
    struct weir_transport *waiting = host_ends ? pair->guest : pair->host;
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&measured, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, destroy_in_a_long_slice, *ending), 0);
    assert_int_equal(try_receive(waiting, TL_LONG_NS), WEIR_ERR_CLOSED);
    struct tl_lived closed = tl_lived_now();
    pthread_barrier_wait(&measured);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&measured);
    *ending = NULL;
    return tl_lived_between_ns(destroyed, closed) < 75 * WEIR_NS_PER_MS;
}

static void expect_noticed_at_once(struct tl_pair *pair, bool host_ends)
{
    bool at_once = current == WEIR_TRANSPORT_ZMQ;         /* libzmq's own pace */
    for (int tries = 0; tries < 5 && !at_once; tries++) { /* on a busy machine */
        tl_pair_destroy(pair);
        tl_pair_make(current, NULL, pair);
        at_once = end_is_noticed_at_once(pair, host_ends);
    }
    assert_true(at_once);
}

static void guest_notices_that_host_ends(struct tl_pair *pair)
{
    assert_false(pair->guest->ops->peer_gone(pair->guest));
    expect_closed_within_a_second(pair->guest, pair->host);
    pair->host = NULL;
    expect_noticed_at_once(pair, true);
}

static void host_notices_that_guest_ends(struct tl_pair *pair)
{
    assert_false(pair->host->ops->peer_gone(pair->host));
    expect_closed_within_a_second(pair->host, pair->guest);
    pair->guest = NULL;
    expect_noticed_at_once(pair, false);
}

static void full_sender_notices_that_peer_ends(struct tl_pair *pair)
{
    pthread_t thread;
    fill_up(pair->host, 65536);
    assert_int_equal(pthread_create(&thread, NULL, destroy_later, pair->guest), 0);
    pair->guest = NULL;
    struct weir_record *record = make_record(65536, 0);
    enum weir_status status = WEIR_OK;
    while (status == WEIR_OK) { /* a slow peer's buffers had room again after fill_up() */
        status = pair->host->ops->send(pair->host, record, NULL, 0, WEIR_FOREVER);
    }
    assert_int_equal(status, WEIR_ERR_CLOSED);
    free(record);
    pthread_join(thread, NULL);
}

static void last_records_arrive_before_the_end(struct tl_pair *pair)
{
    for (uint64_t seq = 0; seq < 10; seq++) {
        send_one(pair->guest, 64, seq);
    }
    pair->guest->ops->destroy(pair->guest);
    pair->guest = NULL;
    for (uint64_t seq = 0; seq < 10; seq++) {
        expect_one(pair->host, 64, seq);
    }
    assert_int_equal(try_receive(pair->host, TL_LONG_NS), WEIR_ERR_CLOSED);
}

static void bulk_travels_beside_on_remote_only(struct tl_pair *pair)
{
    struct weir_record *record = make_record(64, 5);
    struct weir_transport *t = pair->guest;
    size_t max = WEIR_BULK_MAX_BYTES;
    uint8_t *bytes = malloc(max);
    memset(bytes, 0x5a, max);
    if (!weir_transport_kind(current)->remote) {
        assert_int_equal(t->ops->send(t, record, bytes, 100, SECOND), WEIR_ERR_INVALID);
    } else {
        const size_t sizes[] = {1, 100, 65537, max};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const struct weir_record *got;
            const void *bulk;
            size_t len;
            assert_int_equal(t->ops->send(t, record, bytes, sizes[i], SECOND), WEIR_OK);
            assert_int_equal(pair->host->ops->receive(pair->host, &got, &bulk, &len, 0, TL_LONG_NS),
                             WEIR_OK);
            assert_int_equal(len, sizes[i]);
            assert_memory_equal(bulk, bytes, len);
            assert_int_equal(got->seq, 5);
        }
        assert_int_equal(t->ops->send(t, record, bytes, max + 1, SECOND), WEIR_ERR_TOO_BIG);
    }
    free(bytes);
    free(record);
}

static void views_agree(struct tl_pair *pair)
{
    const struct weir_segment_view *host = pair->host->ops->view(pair->host);
    const struct weir_segment_view *guest = pair->guest->ops->view(pair->guest);
    assert_int_equal(host->n_words, 1024);
    assert_int_equal(guest->n_words, 1024);
    assert_int_equal(host->arena_bytes, guest->arena_bytes);
    assert_ptr_equal(pair->host->ops->segment(pair->host), host->base);
    assert_ptr_equal(pair->guest->ops->segment(pair->guest), guest->base);
    assert_non_null(host->base);
    host->words[host->n_words - 1] = 11;
    host->arena[host->arena_bytes - 1] = 12;
    if (weir_transport_kind(current)->remote) {
        assert_null(guest->base);
    } else {
        assert_int_equal(guest->words[guest->n_words - 1], 11);
        assert_int_equal(guest->arena[guest->arena_bytes - 1], 12);
    }
}

static void descriptors_pass_both_ways(struct tl_pair *pair)
{
    struct weir_transport *ends[2] = {pair->host, pair->guest};
    if (!pair->host->ops->send_fd) {
        assert_true(weir_transport_kind(current)->remote || pair->guest->ops->region_fd);
        return;
    }
    for (int i = 0; i < 2; i++) {
        int pipe_fds[2], fd;
        char byte = 0;
        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        assert_int_equal(ends[i]->ops->send_fd(ends[i], pipe_fds[1]), WEIR_OK);
        close(pipe_fds[1]);
        assert_int_equal(ends[!i]->ops->receive_fd(ends[!i], TL_LONG_NS, &fd), WEIR_OK);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(write(fd, "x", 1), 1);
        assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
        assert_int_equal(byte, 'x');
        close(fd);
        close(pipe_fds[0]);
        assert_int_equal(ends[!i]->ops->receive_fd(ends[!i], 0, &fd), WEIR_ERR_TIMED_OUT);
    }
}

static void errno_is_preserved(struct tl_pair *pair)
{
    errno = 4242;
    send_one(pair->guest, 64, 1);
    expect_one(pair->host, 64, 1);
    assert_int_equal(try_receive(pair->guest, WEIR_NS_PER_MS), WEIR_ERR_TIMED_OUT);
    assert_false(pair->guest->ops->peer_gone(pair->guest));
    assert_int_equal(errno, 4242);
}

static void forked_child_abandons_without_harm(struct tl_pair *pair)
{
    pid_t child = fork();
    if (child == 0) {
        pair->guest->ops->abandon(pair->guest);
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    one_record_each_way_arrives(pair);
}

#define CASE(name)                                                                                 \
    {                                                                                              \
#name, name                                                                                \
    }
static const struct {
    const char *name;
    void (*run)(struct tl_pair *pair);
} cases[] = {
    CASE(one_record_each_way_arrives),
    CASE(every_size_arrives_whole),
    CASE(order_is_kept_over_many_wraps),
    CASE(bad_lengths_are_refused),
    CASE(receive_times_out_without_records),
    CASE(full_channel_times_out_then_drains),
    CASE(both_ends_send_and_receive_at_once),
    CASE(guest_notices_that_host_ends),
    CASE(host_notices_that_guest_ends),
    CASE(full_sender_notices_that_peer_ends),
    CASE(last_records_arrive_before_the_end),
    CASE(bulk_travels_beside_on_remote_only),
    CASE(views_agree),
    CASE(descriptors_pass_both_ways),
    CASE(errno_is_preserved),
    CASE(forked_child_abandons_without_harm),
};

static void run_cases(enum weir_transport_id id)
{
#ifndef WEIR_WITH_ZMQ
    if (id == WEIR_TRANSPORT_ZMQ) {
        skip();
    }
#endif
    current = id;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tl_pair pair;
        print_message("    %s: %s\n", weir_transport_kind(id)->name, cases[i].name);
        tl_pair_make(id, NULL, &pair);
        cases[i].run(&pair);
        tl_pair_destroy(&pair);
    }
}

#define WEIR_TRANSPORT(id, text, negotiable, remote)                                               \
    static void conformance_##id(void **state)                                                     \
    {                                                                                              \
        (void)state;                                                                               \
        run_cases(WEIR_TRANSPORT_##id);                                                            \
    }
#include "proto/transport/transports.def"
#undef WEIR_TRANSPORT

#ifdef WEIR_WITH_ZMQ
/* Have the server's thread pause behind each record, as a busy machine would, without its lock. */
static void pause_behind(void *user, const struct weir_record *record)
{
    struct weir_zmq_server *server = user;
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    (void)record;
    pthread_mutex_unlock(&server->lock);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&server->lock);
}

/* The unix socket ends before the last records are there. */
static void zmq_end_waits_for_the_last_records(void **state)
{
    struct tl_pair pair;
    (void)state;
    tl_pair_make(WEIR_TRANSPORT_ZMQ, NULL, &pair);
    pair.host->glance_user = pair.server;
    __atomic_store_n(&pair.host->glance, pause_behind, __ATOMIC_RELEASE);
    last_records_arrive_before_the_end(&pair);
    tl_pair_destroy(&pair);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WEIR_WITH_ZMQ
        cmocka_unit_test(zmq_end_waits_for_the_last_records),
#endif
#define WEIR_TRANSPORT(id, text, negotiable, remote) cmocka_unit_test(conformance_##id),
#include "proto/transport/transports.def"
#undef WEIR_TRANSPORT
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

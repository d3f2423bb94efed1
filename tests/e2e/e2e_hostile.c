/*
 * A guest that lies: a raw client of the wire that breaks the rules in one way a scenario.
 *
 *     e2e_hostile URL SCENARIO [TRANSPORT]
 *
 * A scenario ends well ("PASS", status 0) when the host did what it must: end this session, or
 * answer with errors and go on serving it. Whether anybody else noticed is the caller's to check.
 * With "list" instead of a URL the scenarios are listed.
 *
 * The lies in the ring write it directly: both indices of a fresh session are 0, so this file keeps
 * its own.
 */
#include "tests/e2e/e2e_hostile.h"
#include "base/clock.h"
#include "base/id_table.h"
#include "proto/cuda_abi.h"
#include "proto/ops.h"
#include "proto/transport/transport.h"
#include "proto/wire/connect.h"
#include "proto/wire/kinds.h"
#include "proto/wire/op_hash.h"
#include "tests/lib/wire_sample.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHORT_NS   (2 * WEIR_NS_PER_S)  /* a lie is noticed within this */
#define BLOCKED_NS (25 * WEIR_NS_PER_S) /* the host gives up on one who does not read */
#define FLOOD_NS   (3 * WEIR_NS_PER_S)

const char *hostile_url;
static const char *wanted_transport;
static uint64_t seed = 88172645463325252ull;

void hostile_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("FAIL e2e_hostile: ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    exit(1);
}

uint64_t hostile_any(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* ---------------------------------------------------------------- an honest client's means */

static bool as_monitor; /* what the next connections say that they are */

const struct weir_op_hashes *hostile_own_ops(void)
{
    static struct weir_op_hashes ops;

    weir_op_hashes(&ops);
    return &ops;
}

enum weir_status hostile_try_connect(struct client *c, const struct weir_op_hashes *ops,
                                     char said[256])
{
    struct weir_welcome *welcome = NULL;
    struct weir_connect_params params = {.host = hostile_url,
                                         .transport = wanted_transport,
                                         .program = "e2e_hostile",
                                         .version = "0",
                                         .ops = ops,
                                         .monitor = as_monitor};
    *c = (struct client){.transport = NULL};
    enum weir_status status = weir_connect(&params, &c->transport, &welcome);
    snprintf(said, 256, "%s", welcome ? welcome->message : "");
    weir_welcome_destroy(welcome);
    if (status == WEIR_OK) {
        c->view = c->transport->ops->view(c->transport);
    }
    return status;
}

void hostile_as_monitor(void)
{
    as_monitor = true;
}

void hostile_connect(struct client *c)
{
    char said[256];
    enum weir_status status = hostile_try_connect(c, hostile_own_ops(), said);
    if (status != WEIR_OK) {
        hostile_fail("cannot connect: %s (%s)", weir_status_text(status), said);
    }
}

void hostile_disconnect(struct client *c)
{
    c->transport->ops->destroy(c->transport);
    c->transport = NULL;
}

static struct weir_record *make_record(struct client *c, enum weir_op op, const void *message,
                                       uint16_t flags)
{
    size_t bytes = weir_ops[op].in_bytes(message);
    struct weir_record *record = calloc(1, sizeof(*record) + bytes);
    if (bytes == WEIR_OP_BYTES_INVALID || !record) {
        hostile_fail("cannot make a record of %s", weir_ops[op].name);
    }
    *record = (struct weir_record){.len_bytes = (uint32_t)(sizeof(*record) + bytes),
                                   .op = (uint16_t)op,
                                   .flags = flags,
                                   .seq = ++c->seq};
    weir_ops[op].in_encode(message, record + 1);
    return record;
}

/* Wait for the reply of a call. */
static enum weir_status await(struct client *c, uint64_t seq, int32_t *ret_result,
                              uint64_t timeout_ns)
{
    uint64_t end_ns = weir_clock_now_ns() + timeout_ns;
    for (;;) {
        const struct weir_record *reply;
        const void *bulk;
        size_t bulk_bytes;
        uint64_t now_ns = weir_clock_now_ns();
        enum weir_status status = c->transport->ops->receive(
            c->transport, &reply, &bulk, &bulk_bytes, 0, now_ns < end_ns ? end_ns - now_ns : 0);
        if (status != WEIR_OK) {
            return status;
        }
        if ((reply->flags & WEIR_RECORD_REPLY) && reply->seq == seq) {
            *ret_result = reply->status;
            return WEIR_OK;
        }
    }
}

static enum weir_status call(struct client *c, enum weir_op op, const void *message,
                             int32_t *ret_result)
{
    struct weir_record *record = make_record(c, op, message, 0);
    enum weir_status status =
        c->transport->ops->send(c->transport, record, NULL, 0, hostile_limit_ns(SHORT_NS));
    if (status == WEIR_OK) {
        status = await(c, record->seq, ret_result, hostile_limit_ns(SHORT_NS));
    }
    free(record);
    return status;
}

static bool ended(enum weir_status status)
{
    return status == WEIR_ERR_CLOSED || status == WEIR_ERR_PEER;
}

uint64_t hostile_limit_ns(uint64_t calm_ns)
{
    double load = 0, crowd = 1, processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
    unsigned running = 0;
    FILE *file = fopen("/proc/loadavg", "re"); /* the last minute, and how many want to run now */
    if (file && fscanf(file, "%lf %*s %*s %u/", &load, &running) == 2) {
        crowd = (load > running ? load : running) / processors;
    }
    if (file) {
        fclose(file);
    }
    return crowd > 1 ? (uint64_t)((double)calm_ns * crowd) : calm_ns;
}

bool hostile_echo_works(struct client *c)
{
    struct weir_op_echo_in in = {.value = 42};
    int32_t result = -1;
    enum weir_status status = call(c, WEIR_OP_echo, &in, &result);
    return status == WEIR_OK && result == 0;
}

/* The host must end the session: nothing else is right after a lie in the ring. */
static void expect_end(struct client *c, uint64_t limit_ns, const char *what)
{
    uint64_t end_ns = weir_clock_now_ns() + limit_ns;
    while (!c->transport->ops->peer_gone(c->transport)) {
        if (weir_clock_now_ns() > end_ns) {
            hostile_fail("the session lives on after: %s", what);
        }
        poll(NULL, 0, 2);
    }
    hostile_disconnect(c);
}

void hostile_expect_alive(struct client *c, const char *what)
{
    if (!hostile_echo_works(c)) {
        hostile_fail("the session did not survive: %s", what);
    }
    hostile_disconnect(c);
}

int32_t hostile_call(struct client *c, int op, const void *message)
{
    int32_t result = -1;
    enum weir_status status = call(c, (enum weir_op)op, message, &result);
    if (status != WEIR_OK) {
        hostile_fail("no reply to %s: %s", weir_ops[op].name, weir_status_text(status));
    }
    return result;
}

int32_t hostile_call_number(struct client *c, uint16_t op)
{
    const struct weir_record record = {.len_bytes = sizeof record, .op = op, .seq = ++c->seq};
    int32_t result = 0;

    if (c->transport->ops->send(c->transport, &record, NULL, 0, hostile_limit_ns(SHORT_NS)) !=
            WEIR_OK ||
        await(c, record.seq, &result, hostile_limit_ns(SHORT_NS)) != WEIR_OK) {
        hostile_fail("no reply to operation %u", op);
    }
    return result;
}

int32_t hostile_call_with_fd(struct client *c, int op, const void *message, int fd)
{
    struct weir_record *record = make_record(c, (enum weir_op)op, message, 0);
    int32_t result = -1;
    enum weir_status status =
        c->transport->ops->send(c->transport, record, NULL, 0, hostile_limit_ns(SHORT_NS));
    if (status == WEIR_OK) {
        status = c->transport->ops->send_fd(c->transport, fd);
    }
    if (status == WEIR_OK) {
        status = await(c, record->seq, &result, hostile_limit_ns(8 * WEIR_NS_PER_S));
    }
    free(record);
    if (status != WEIR_OK) {
        hostile_fail("no reply to %s: %s", weir_ops[op].name, weir_status_text(status));
    }
    return result;
}

void hostile_post(struct client *c, int op, const void *message)
{
    struct weir_record *record = make_record(c, (enum weir_op)op, message, WEIR_RECORD_POSTED);
    enum weir_status status =
        c->transport->ops->send(c->transport, record, NULL, 0, hostile_limit_ns(SHORT_NS));
    free(record);
    if (status != WEIR_OK) {
        hostile_fail("cannot post %s", weir_ops[op].name);
    }
}

void hostile_expect_end(struct client *c, const char *what)
{
    expect_end(c, hostile_limit_ns(SHORT_NS), what);
}

/* ---------------------------------------------------------------- writing the ring directly */

static void put_bytes(struct client *c, const void *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        c->view->to_host[(c->tail + i) & (c->view->ring_bytes - 1)] = ((const uint8_t *)bytes)[i];
    }
    c->tail += len;
}

static void publish(struct client *c, uint32_t tail)
{
    __atomic_store_n(&c->view->header->to_host.tail, tail, __ATOMIC_SEQ_CST);
    weir_futex_wake(&c->view->header->to_host.tail, 64);
}

static void put_header(struct client *c, uint32_t len_bytes, uint16_t op, uint16_t flags)
{
    struct weir_record record = {.len_bytes = len_bytes, .op = op, .flags = flags, .seq = ++c->seq};
    put_bytes(c, &record, sizeof(record));
}

static void need_segment(struct client *c)
{
    hostile_connect(c);
    if (!c->view->header) {
        hostile_fail("this scenario needs shared memory");
    }
}

static void lie_about_tail(uint32_t tail, const char *what)
{
    struct client c;
    need_segment(&c);
    publish(&c, tail);
    expect_end(&c, hostile_limit_ns(SHORT_NS), what);
}

static void scenario_tail_far(void)
{
    struct client c;
    need_segment(&c);
    uint32_t ring_bytes = c.view->ring_bytes;
    hostile_disconnect(&c);
    lie_about_tail(ring_bytes + 8, "a tail just past the ring");
    lie_about_tail(0x80000000u, "a tail of 2 GiB");
    lie_about_tail(0xfffffff8u, "a tail behind the head");
}

static void scenario_tail_odd(void)
{
    lie_about_tail(4, "a tail within a header");
    lie_about_tail(33, "an odd tail");
}

static void scenario_tail_back(void)
{
    struct client c;
    need_segment(&c);
    put_header(&c, sizeof(struct weir_record) + 8, WEIR_OP_echo, 0);
    put_bytes(&c, &c.seq, 8);
    publish(&c, c.tail);
    int32_t result;
    if (await(&c, c.seq, &result, hostile_limit_ns(SHORT_NS)) != WEIR_OK) {
        hostile_fail("no reply to an honest echo");
    }
    publish(&c, c.tail - 16);
    expect_end(&c, hostile_limit_ns(SHORT_NS), "a tail that went back");
}

static void scenario_lengths(void)
{
    static const uint32_t lengths[] = {
        0, 1, 8, 24, 33, 36, 0x7ffffff8u, 0xfffffff8u, 0xffffffff, (2u << 20) + 8, 4096};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct client c;
        char what[64];
        need_segment(&c);
        put_header(&c, lengths[i], WEIR_OP_echo, 0);
        publish(&c, c.tail);
        snprintf(what, sizeof(what), "a record of %u bytes", lengths[i]);
        expect_end(&c, hostile_limit_ns(SHORT_NS), what);
    }
}

/*
 * An impossible index of the consumer of the other ring. The host looks at it when the room that it
 * knows of is used up, so replies are asked for, and left unread, until the ring is full.
 */
static void scenario_head_lies(void)
{
    static const uint32_t heads[] = {0x80000000u, 0x7ffffff8u, 0xc0000004u};
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct client c;
        char what[64];
        need_segment(&c);
        struct weir_op_echo_in in = {.value = 1};
        struct weir_record *record = make_record(&c, WEIR_OP_echo, &in, 0);
        uint32_t n = c.view->ring_bytes / record->len_bytes + 2;
        enum weir_status status = WEIR_OK;
        __atomic_store_n(&c.view->header->to_guest.head, heads[i], __ATOMIC_SEQ_CST);
        while (n-- > 0 && status == WEIR_OK) {
            status =
                c.transport->ops->send(c.transport, record, NULL, 0, hostile_limit_ns(SHORT_NS));
        }
        free(record);
        snprintf(what, sizeof(what), "a head of 0x%x", heads[i]);
        expect_end(&c, hostile_limit_ns(SHORT_NS), what);
    }
}

/* The guest can write all of the segment: geometry, state, words. The host must not look there. */
static void scenario_segment_garbage(void)
{
    struct client c;
    need_segment(&c);
    struct weir_segment_header *header = c.view->header;
    uint8_t *first = (uint8_t *)header;
    uint8_t *ring = (uint8_t *)&header->to_host;
    memset(first, 0xff, (size_t)(ring - first));
    memset((void *)c.view->words, 0xa5, c.view->n_words * sizeof(uint32_t));
    put_header(&c, sizeof(struct weir_record) + 8, WEIR_OP_echo, 0);
    put_bytes(&c, &c.seq, 8);
    publish(&c, c.tail);
    int32_t result = -1;
    enum weir_status status = await(&c, c.seq, &result, hostile_limit_ns(SHORT_NS));
    if (status != WEIR_OK && !ended(status)) {
        hostile_fail("neither an answer nor an end: %s", weir_status_text(status));
    }
    hostile_disconnect(&c);
}

/* Flicker both waiting flags and the tail as fast as possible. */
static void scenario_flicker(void)
{
    struct client c;
    need_segment(&c);
    struct weir_segment_header *header = c.view->header;
    uint64_t end_ns = weir_clock_now_ns() + WEIR_NS_PER_S;
    while (weir_clock_now_ns() < end_ns && !c.transport->ops->peer_gone(c.transport)) {
        __atomic_store_n(&header->to_host.consumer_waits, (uint32_t)hostile_any(),
                         __ATOMIC_SEQ_CST);
        __atomic_store_n(&header->to_guest.producer_waits, (uint32_t)hostile_any(),
                         __ATOMIC_SEQ_CST);
        publish(&c, (uint32_t)hostile_any());
        publish(&c, 0);
    }
    hostile_disconnect(&c);
}

/* Valid indices, random bytes: sessions end one after the other. */
static void scenario_random_flood(void)
{
    uint64_t end_ns = weir_clock_now_ns() + FLOOD_NS;
    int sessions = 0;
    while (weir_clock_now_ns() < end_ns) {
        struct client c;
        need_segment(&c);
        sessions++;
        for (int i = 0; i < 200 && !c.transport->ops->peer_gone(c.transport); i++) {
            uint64_t words[512];
            uint32_t len = 8 * (4 + (uint32_t)(hostile_any() % 500));
            for (uint32_t k = 0; k < len / 8; k++) {
                words[k] = hostile_any();
            }
            if (i % 2) { /* a right length with everything else wrong */
                struct weir_record *record = (struct weir_record *)(void *)words;
                record->len_bytes = len;
                record->op = (uint16_t)(hostile_any() % (WEIR_OP_COUNT + 20));
                record->flags = (uint8_t)(hostile_any() % 8);
            }
            put_bytes(&c, words, len);
            publish(&c, c.tail);
        }
        hostile_disconnect(&c);
    }
    printf("%d sessions\n", sessions);
}

/* ---------------------------------------------------------------- records that say nonsense */

/* Send one record and wait for its reply; connect again if the host ended the session. */
static void provoke(struct client *c, struct weir_record *record, int *n_ended)
{
    int32_t result;
    enum weir_status status =
        c->transport->ops->send(c->transport, record, NULL, 0, hostile_limit_ns(SHORT_NS));
    if (status == WEIR_OK && !(record->flags & WEIR_RECORD_POSTED)) {
        status = await(c, record->seq, &result, hostile_limit_ns(SHORT_NS));
    }
    if (ended(status)) {
        ++*n_ended;
        hostile_disconnect(c);
        hostile_connect(c);
    } else if (status == WEIR_ERR_TIMED_OUT && record->op == WEIR_OP_word_wait) {
        hostile_disconnect(c); /* may wait for ever; a fresh session forgets it */
        hostile_connect(c);
    } else if (status != WEIR_OK) {
        hostile_fail("operation %u: %s", record->op, weir_status_text(status));
    }
}

static void scenario_unknown_operations(void)
{
    static const uint16_t operations[] = {WEIR_OP_COUNT, WEIR_OP_COUNT + 1,     1000, 0x7fff,
                                          0xffff,        WEIR_OP_host_func_call};
    struct client c;
    int n_ended = 0;
    hostile_connect(&c);
    for (size_t i = 0; i < 2 * sizeof(operations) / sizeof(operations[0]); i++) {
        struct weir_record record = {.len_bytes = sizeof(record),
                                     .op = operations[i / 2],
                                     .flags = i % 2 ? WEIR_RECORD_POSTED : 0,
                                     .seq = ++c.seq};
        provoke(&c, &record, &n_ended);
    }
    printf("%d sessions ended\n", n_ended);
    hostile_disconnect(&c);
}

/*
 * A body that is cut, too long, or random, for every other operation: each costs a session, which
 * takes milliseconds on a GPU. That no decoder accepts such a body is shown without sessions, by
 * tests/unit/proto/test_ops.c and tests/fuzz/fuzz_wire.c; here it is the end that counts.
 */
static void scenario_malformed_bodies(void)
{
    struct client c;
    int n_ended = 0;
    hostile_connect(&c);
    for (int op = 0; op < WEIR_OP_COUNT; op += 2) {
        int way = op / 2 % 4;
        uint64_t words[64] = {0};
        struct weir_record *record = (struct weir_record *)(void *)words;
        uint32_t body = way == 0 ? 0 : way == 1 ? 8 : (uint32_t)(8 * (hostile_any() % 50));
        *record = (struct weir_record){
            .len_bytes = (uint32_t)sizeof(*record) + body, .op = (uint16_t)op, .seq = ++c.seq};
        for (uint32_t i = 0; i < body / 8; i++) {
            words[4 + i] = way == 2 ? ~0ull : hostile_any();
        }
        provoke(&c, record, &n_ended);
    }
    printf("%d sessions ended\n", n_ended);
    hostile_disconnect(&c);
}

/* Every operation well formed, with values that mean nothing. */
static void scenario_nonsense(void)
{
    struct client c;
    int n_ended = 0;
    hostile_connect(&c);
    for (unsigned turn = 0; turn < 6; turn++) {
        for (int op = 0; op < WEIR_OP_COUNT; op++) {
            struct wire_half half = wire_half_get(2u * (unsigned)op);
            if (strcmp(half.way, "in") != 0) {
                half = wire_half_get(2u * (unsigned)op + 1);
            }
            void *message = wire_sample_make(&half, (enum wire_sample_size)(turn % 2), turn + 1);
            bool posted = turn >= 4 && (weir_ops[op].flags & WEIR_OP_POSTED);
            struct weir_record *record =
                make_record(&c, (enum weir_op)op, message, posted ? WEIR_RECORD_POSTED : 0);
            /* These wait for a descriptor: scenario_descriptors, hostile_scenario_managed. */
            if (op != WEIR_OP_host_register && op != WEIR_OP_managed_begin) {
                provoke(&c, record, &n_ended);
            }
            free(record);
            wire_sample_free(&half, message);
        }
    }
    printf("%d sessions ended\n", n_ended);
    hostile_disconnect(&c);
}

/* A monitor that works or allocates: nothing was registered for it, so each such record ends it. */
static void scenario_monitor(void)
{
    struct client c;
    int n_ended = 0;
    int n_wrong = 0;
    as_monitor = true;
    hostile_connect(&c);
    for (int op = 0; op < WEIR_OP_COUNT; op++) {
        bool asks = op == WEIR_OP_echo || op == WEIR_OP_mem_info || op == WEIR_OP_nvml_call ||
                    op == WEIR_OP_nvml_processes;
        struct wire_half half = wire_half_get(2u * (unsigned)op);
        if (strcmp(half.way, "in") != 0) {
            half = wire_half_get(2u * (unsigned)op + 1);
        }
        void *message = wire_sample_make(&half, (enum wire_sample_size)0, 1);
        struct weir_record *record = make_record(&c, (enum weir_op)op, message, 0);
        int before = n_ended;
        provoke(&c, record, &n_ended);
        n_wrong += asks == (n_ended != before);
        free(record);
        wire_sample_free(&half, message);
    }
    printf("%d sessions ended\n", n_ended);
    if (n_wrong || !hostile_echo_works(&c)) {
        hostile_fail("%d operations were not as a monitor's", n_wrong);
    }
    hostile_disconnect(&c);
}

/* Sequence numbers that repeat, go back, and flags that make no sense. */
static void scenario_sequence(void)
{
    struct client c;
    int n_ended = 0;
    hostile_connect(&c);
    for (int i = 0; i < 100; i++) {
        struct weir_op_echo_in in = {.value = hostile_any()};
        struct weir_record *record = make_record(&c, WEIR_OP_echo, &in, 0);
        record->seq = i % 3 ? hostile_any() : 1;
        record->flags = i % 5 ? 0 : (uint8_t)hostile_any();
        record->flags |= record->flags ? WEIR_RECORD_POSTED : 0; /* no reply is expected then */
        provoke(&c, record, &n_ended);
        free(record);
    }
    printf("%d sessions ended\n", n_ended);
    hostile_disconnect(&c);
}

/* Streams without end: some limit, or all of them gone with the session. */
static void scenario_hoard(void)
{
    struct client c;
    hostile_connect(&c);
    for (uint64_t i = 1; i <= 20000; i++) {
        struct weir_op_event_create_in in = {.e = hostile_any(), .c = hostile_any(), .flags = 0};
        struct weir_record *record = make_record(&c, WEIR_OP_event_create, &in, WEIR_RECORD_POSTED);
        enum weir_status status =
            c.transport->ops->send(c.transport, record, NULL, 0, hostile_limit_ns(SHORT_NS));
        free(record);
        if (ended(status)) {
            printf("ended after %llu\n", (unsigned long long)i);
            hostile_disconnect(&c);
            return;
        }
    }
    hostile_expect_alive(&c, "twenty thousand events with names that are none");
}

/* ---------------------------------------------------------------- one who does not read */

static void scenario_no_read(void)
{
    struct client c;
    need_segment(&c);
    uint64_t end_ns = weir_clock_now_ns() + hostile_limit_ns(BLOCKED_NS);
    uint64_t calls = 0;
    for (;;) {
        struct weir_op_echo_in in = {.value = calls++};
        struct weir_record *record = make_record(&c, WEIR_OP_echo, &in, 0);
        enum weir_status status =
            c.transport->ops->send(c.transport, record, NULL, 0, 100 * WEIR_NS_PER_MS);
        free(record);
        if (ended(status) || c.transport->ops->peer_gone(c.transport)) {
            break;
        }
        if (weir_clock_now_ns() > end_ns) {
            hostile_fail("the host still waits for one who does not read");
        }
    }
    printf("ended after %llu unread replies\n", (unsigned long long)calls);
    hostile_disconnect(&c);
}

/* ---------------------------------------------------------------- descriptors */

int hostile_memory_file(size_t bytes, bool sealed)
{
    int fd = memfd_create("e2e-hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        hostile_fail("no memory file");
    }
    if (sealed && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        hostile_fail("cannot seal");
    }
    return fd;
}

/* Register memory with a descriptor that is not what it should be. The context 0 is wrong as well
 * in some hosts' eyes: what counts is an error or the end, and that the worker survives the use. */
static void register_with(int fd, size_t claimed_bytes, const char *what)
{
    struct client c;
    need_segment(&c);
    struct weir_op_host_register_in in = {.address = 0x7e0000000000ull, .bytes = claimed_bytes};
    struct weir_record *record = make_record(&c, WEIR_OP_host_register, &in, 0);
    int32_t result = -1;
    enum weir_status status =
        c.transport->ops->send(c.transport, record, NULL, 0, hostile_limit_ns(SHORT_NS));
    if (status == WEIR_OK && fd >= 0) {
        status = c.transport->ops->send_fd(c.transport, fd);
    }
    if (status == WEIR_OK) {
        status = await(&c, record->seq, &result, hostile_limit_ns(8 * WEIR_NS_PER_S));
    }
    free(record);
    if (status == WEIR_OK && result == 0) {
        hostile_fail("accepted: %s", what);
    }
    if (status != WEIR_OK && !ended(status)) {
        hostile_fail("%s: %s", what, weir_status_text(status));
    }
    if (fd >= 0) {
        close(fd);
    }
    hostile_disconnect(&c);
}

static void scenario_descriptors(void)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        hostile_fail("no pipe");
    }
    register_with(open("/dev/null", O_RDWR | O_CLOEXEC), 1u << 20, "/dev/null");
    register_with(pipes[0], 1u << 20, "a pipe");
    close(pipes[1]);
    register_with(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 4096, "a file of a disk");
    register_with(hostile_memory_file(4096, true), 1u << 20, "a file that is too short");
    register_with(hostile_memory_file(1u << 20, true), 0, "no bytes at all");
    register_with(hostile_memory_file(1u << 20, true), ~0ull & ~4095ull, "all bytes there are");
    register_with(hostile_memory_file(1u << 20, true), 12345, "bytes that are no pages");
}

/* Descriptors that nobody asked for. */
static void scenario_descriptor_flood(void)
{
    struct client c;
    need_segment(&c);
    int sent = 0;
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    uint64_t end_ns = weir_clock_now_ns() + WEIR_NS_PER_S;
    while (sent < 2000 && weir_clock_now_ns() < end_ns &&
           !c.transport->ops->peer_gone(c.transport)) {
        struct weir_op_echo_in in = {.value = 1};
        int32_t result;
        (void)in;
        (void)result;
        /* A full socket buffer stops send_fd for seconds: leave before that. */
        if (sent == 100) {
            break;
        }
        if (c.transport->ops->send_fd(c.transport, fd) != WEIR_OK) {
            break;
        }
        sent++;
    }
    close(fd);
    printf("%d descriptors\n", sent);
    hostile_disconnect(&c);
}

static void scenario_honest(void)
{
    struct client c;
    hostile_connect(&c);
    hostile_expect_alive(&c, "nothing at all");
}

static const struct {
    const char *name;
    void (*run)(void);
    const char *kind; /* ring, record, descriptor, handshake, limit */
} scenarios[] = {
    {"honest", scenario_honest, "record"},
    {"tail_far", scenario_tail_far, "ring"},
    {"tail_odd", scenario_tail_odd, "ring"},
    {"tail_back", scenario_tail_back, "ring"},
    {"lengths", scenario_lengths, "ring"},
    {"head_lies", scenario_head_lies, "ring"},
    {"segment_garbage", scenario_segment_garbage, "ring"},
    {"flicker", scenario_flicker, "ring"},
    {"random_flood", scenario_random_flood, "ring"},
    {"unknown_operations", scenario_unknown_operations, "record"},
    {"malformed_bodies", scenario_malformed_bodies, "record"},
    {"nonsense", scenario_nonsense, "record"},
    {"monitor", scenario_monitor, "record"},
    {"sequence", scenario_sequence, "record"},
    {"greedy", hostile_scenario_greedy, "record"},
    {"hoard", scenario_hoard, "record"},
    {"vmm", hostile_scenario_vmm, "record"},
    {"no_read", scenario_no_read, "blocked"},
    {"descriptors", scenario_descriptors, "descriptor"},
    {"descriptor_flood", scenario_descriptor_flood, "descriptor"},
    {"managed", hostile_scenario_managed, "descriptor"},
    {"garbage_hello", hostile_scenario_garbage_hello, "handshake"},
    {"silent", hostile_scenario_silent, "handshake"},
    {"no_operations", hostile_scenario_no_operations, "handshake"},
    {"other_release", hostile_scenario_other_release, "handshake"},
    {"wrong_protocol", hostile_scenario_wrong_protocol, "handshake"},
    {"no_transport", hostile_scenario_no_transport, "handshake"},
    {"comings_and_goings", hostile_scenario_comings_and_goings, "handshake"},
    {"sessions", hostile_scenario_sessions, "limit"},
    {"monitors", hostile_scenario_monitors, "limit"},
    {"registered", hostile_scenario_registered, "limit"},
    {"guarded", hostile_scenario_guarded, "limit"},
    {"windows", hostile_scenario_windows, "limit"},
    {"images", hostile_scenario_images, "limit"},
};

int main(int argc, char **argv)
{
    const size_t n = sizeof(scenarios) / sizeof(scenarios[0]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (size_t i = 0; i < n; i++) {
            printf("%s %s\n", scenarios[i].kind, scenarios[i].name);
        }
        return 0;
    }
    hostile_url = argc > 2 ? argv[1] : NULL;
    wanted_transport = argc > 3 ? argv[3] : "shm";
    for (size_t i = 0; hostile_url && i < n; i++) {
        if (strcmp(scenarios[i].name, argv[2]) == 0) {
            scenarios[i].run();
            printf("PASS e2e_hostile %s\n", argv[2]);
            return 0;
        }
    }
    fprintf(stderr, "usage: e2e_hostile list | URL SCENARIO [TRANSPORT]\n");
    return 2;
}

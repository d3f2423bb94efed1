/*
 * The guest's handshake through a region, against files that are no regions and hosts that lie. The
 * host's half is played by a thread here; the real one is tested end to end
 * (tests/e2e/test_kvm.py).
 */
#include "base/clock.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/ivshmem.h"
#include "proto/transport/segment_map.h"
#include "proto/wire/connect_ivshmem.h"
#include "proto/wire/control_codec.h"
#include "proto/wire/discover.h"
#include "tests/lib/tl_pair.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define REGION_BYTES WEIR_REGION_MIN_BYTES
#define EPOCH        99u
#define SESSION      7u
#define SLOT         3u
#define SHORT_NS     (20 * WEIR_NS_PER_MS)
#define LONG_NS      (10 * WEIR_NS_PER_S)

static int fd;
static void *control;
static char path[64];

static struct weir_region_header *header(void)
{
    return control;
}

static int make_region(void **state)
{
    (void)state;
    fd = memfd_create("region", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, REGION_BYTES), 0);
    control = mmap(NULL, WEIR_REGION_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(control, MAP_FAILED);
    *header() = (struct weir_region_header){.magic = WEIR_REGION_MAGIC,
                                            .version = WEIR_REGION_VERSION,
                                            .bytes = REGION_BYTES,
                                            .epoch = EPOCH};
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return 0;
}

static int drop_region(void **state)
{
    (void)state;
    munmap(control, WEIR_REGION_CONTROL_BYTES);
    close(fd);
    return 0;
}

static int count_fds(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder)) {
        n++;
    }
    closedir(folder);
    return n;
}

/* ---------------------------------------------------------------- opening */

static void open_what_is_no_region_is_refused(void **state)
{
    (void)state;
    struct weir_region region;
    const struct weir_region_header good = *header();
    assert_int_equal(weir_region_open(path, &region), WEIR_OK);
    assert_int_equal(region.bytes, REGION_BYTES);
    weir_region_close(&region);
    weir_region_close(&region); /* closed is fine */

    int before = count_fds();
    header()->magic++;
    assert_int_equal(weir_region_open(path, &region), WEIR_ERR_PEER);
    *header() = good;
    header()->version++;
    assert_int_equal(weir_region_open(path, &region), WEIR_ERR_PEER);
    *header() = good;
    header()->bytes = REGION_BYTES + WEIR_REGION_UNIT_BYTES; /* more than there is */
    assert_int_equal(weir_region_open(path, &region), WEIR_ERR_PEER);
    header()->bytes = WEIR_REGION_MIN_BYTES - 1;
    assert_int_equal(weir_region_open(path, &region), WEIR_ERR_PEER);
    assert_int_equal(weir_region_open("/dev/null", &region), WEIR_ERR_PEER);
    assert_int_equal(weir_region_open("/nowhere/at/all", &region), WEIR_ERR_NOT_FOUND);
    assert_int_equal(count_fds(), before);
}

/* ---------------------------------------------------------------- the handshake */

struct answer {
    const char *name;
    void (*spoil)(struct weir_welcome *welcome, struct weir_region_mailbox *box);
    bool garbage;     /* the bytes are no Welcome */
    bool oversized;   /* more bytes than a mailbox holds */
    bool bad_segment; /* what lies at the offset is no segment */
};

static void spoil_nothing(struct weir_welcome *welcome, struct weir_region_mailbox *box)
{
    (void)welcome;
    (void)box;
}

static void spoil_transport(struct weir_welcome *welcome, struct weir_region_mailbox *box)
{
    (void)box;
    snprintf(welcome->transport, sizeof welcome->transport, "shm");
}

static void spoil_words(struct weir_welcome *welcome, struct weir_region_mailbox *box)
{
    (void)box;
    welcome->n_words++;
}

static void spoil_bytes(struct weir_welcome *welcome, struct weir_region_mailbox *box)
{
    (void)box;
    welcome->segment_bytes = UINT64_MAX - 4096;
}

static void spoil_slot(struct weir_welcome *welcome, struct weir_region_mailbox *box)
{
    (void)welcome;
    box->slot = WEIR_REGION_SLOTS;
}

static void spoil_offset(struct weir_welcome *welcome, struct weir_region_mailbox *box)
{
    (void)welcome;
    box->segment_offset += 4096;
}

static void spoil_offset_low(struct weir_welcome *welcome, struct weir_region_mailbox *box)
{
    (void)welcome;
    box->segment_offset = 0; /* the control part itself */
}

static void spoil_offset_high(struct weir_welcome *welcome, struct weir_region_mailbox *box)
{
    (void)welcome;
    box->segment_offset = REGION_BYTES;
}

static const struct answer good_answer = {.name = "good", .spoil = spoil_nothing};
static const struct answer lies[] = {
    {.name = "garbage", .spoil = spoil_nothing, .garbage = true},
    {.name = "too long", .spoil = spoil_nothing, .oversized = true},
    {.name = "another transport", .spoil = spoil_transport},
    {.name = "another count of words", .spoil = spoil_words},
    {.name = "a segment larger than all", .spoil = spoil_bytes},
    {.name = "a slot behind the last", .spoil = spoil_slot},
    {.name = "a segment between units", .spoil = spoil_offset},
    {.name = "a segment in the control part", .spoil = spoil_offset_low},
    {.name = "a segment behind the end", .spoil = spoil_offset_high},
    {.name = "no segment there", .spoil = spoil_nothing, .bad_segment = true},
};

static struct weir_region_mailbox *await_hello(void)
{
    for (;;) {
        for (uint32_t i = 0; i < WEIR_REGION_MAILBOXES; i++) {
            struct weir_region_mailbox *box = weir_region_mailbox(control, i);
            uint32_t state = __atomic_load_n(&box->state, __ATOMIC_ACQUIRE);
            if ((state & WEIR_MAIL_MASK) == WEIR_MAIL_HELLO) {
                return box;
            }
        }
        weir_cpu_pause();
    }
}

/* The host: one Hello, one answer. */
static void *answer_one(void *user)
{
    const struct answer *answer = user;
    struct weir_region_mailbox *box = await_hello();
    uint32_t number = box->state & ~WEIR_MAIL_MASK;
    struct weir_hello *hello;
    assert_int_equal(weir_hello_decode(box->hello, box->hello_bytes, &hello), WEIR_OK);
    weir_hello_destroy(hello);
    struct weir_welcome_params params = tl_welcome_params();
    struct weir_welcome *welcome = calloc(1, sizeof *welcome);
    struct weir_segment_view view;
    assert_non_null(welcome);
    params.session = SESSION;
    weir_welcome_prepare(&params, welcome);
    snprintf(welcome->transport, sizeof welcome->transport, "ivshmem");
    assert_int_equal(weir_segment_create_at(&params.segment, fd, WEIR_REGION_CONTROL_BYTES,
                                            WEIR_REGION_UNIT_BYTES, &view),
                     WEIR_OK);
    welcome->segment_bytes = view.bytes;
    welcome->n_words = view.n_words;
    welcome->arena_bytes = view.arena_bytes;
    if (answer->bad_segment) {
        view.header->arena_offset = view.bytes;
    }
    weir_segment_unmap(&view);
    box->slot = SLOT;
    box->segment_offset = WEIR_REGION_CONTROL_BYTES;
    answer->spoil(welcome, box);
    weir_region_slot(control, SLOT)->session = SESSION;
    struct weir_control_bytes bytes;
    assert_int_equal(weir_welcome_encode(welcome, &bytes), WEIR_OK);
    memcpy(box->welcome, bytes.bytes, bytes.len);
    box->welcome_bytes = (uint32_t)bytes.len;
    if (answer->garbage) {
        memset(box->welcome, 0xff, 64);
        box->welcome_bytes = 64;
    }
    if (answer->oversized) {
        box->welcome_bytes = UINT32_MAX;
    }
    free(bytes.bytes);
    free(welcome);
    __atomic_store_n(&box->state, number | WEIR_MAIL_WELCOME, __ATOMIC_RELEASE);
    return NULL;
}

static enum weir_status connect_to(const struct answer *answer, uint64_t timeout_ns,
                                   struct weir_transport **ret_transport)
{
    const struct weir_hello hello = {.protocol = WEIR_PROTOCOL, .version = "0", .program = "test"};
    struct weir_welcome *welcome = NULL;
    pthread_t thread;
    if (answer) {
        assert_int_equal(pthread_create(&thread, NULL, answer_one, (void *)(uintptr_t)answer), 0);
    }
    enum weir_status status = weir_connect_ivshmem(path, &hello, weir_deadline_after(timeout_ns),
                                                   ret_transport, &welcome);
    if (answer) {
        pthread_join(thread, NULL);
    }
    weir_welcome_destroy(welcome);
    return status;
}

static void assert_mailboxes_free(void)
{
    for (uint32_t i = 0; i < WEIR_REGION_MAILBOXES; i++) {
        assert_int_equal(weir_region_mailbox(control, i)->state, WEIR_MAIL_FREE);
    }
}

static void every_lie_of_a_host_is_an_error(void **state)
{
    (void)state;
    int before = count_fds();
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct weir_transport *transport = NULL;
        enum weir_status status = connect_to(&lies[i], LONG_NS, &transport);
        if (status != WEIR_ERR_PEER) {
            print_error("%s: %s\n", lies[i].name, weir_status_text(status));
        }
        assert_int_equal(status, WEIR_ERR_PEER);
        assert_null(transport);
        assert_mailboxes_free();
    }
    assert_int_equal(count_fds(), before);
}

static void session_works_until_slot_or_epoch_change(void **state)
{
    (void)state;
    struct weir_transport *transport;
    assert_int_equal(connect_to(&good_answer, LONG_NS, &transport), WEIR_OK);
    assert_mailboxes_free();
    assert_string_equal(transport->ops->name, "ivshmem");
    assert_false(transport->ops->peer_gone(transport));
    weir_region_slot(control, SLOT)->session = SESSION + 1;
    assert_true(transport->ops->peer_gone(transport));
    transport->ops->destroy(transport);
    /* The slot is another's by now: it is not told that its guest has left. */
    assert_int_equal(weir_region_slot(control, SLOT)->guest_left, 0);

    assert_int_equal(connect_to(&good_answer, LONG_NS, &transport), WEIR_OK);
    header()->epoch++;
    assert_true(transport->ops->peer_gone(transport));
    transport->ops->destroy(transport);
    assert_int_equal(weir_region_slot(control, SLOT)->guest_left, 1);
}

static void nobody_there_is_said(void **state)
{
    (void)state;
    struct weir_transport *transport = NULL;
    assert_int_equal(connect_to(NULL, SHORT_NS, &transport), WEIR_ERR_TIMED_OUT);
    assert_mailboxes_free(); /* ours was taken back */
    header()->epoch = 0;     /* a region that no worker serves now */
    assert_int_equal(connect_to(NULL, SHORT_NS, &transport), WEIR_ERR_AGAIN);
    header()->epoch = EPOCH;
    for (uint32_t i = 0; i < WEIR_REGION_MAILBOXES; i++) {
        weir_region_mailbox(control, i)->state = 8 | WEIR_MAIL_CLAIMED; /* all are others' */
    }
    assert_int_equal(connect_to(NULL, SHORT_NS, &transport), WEIR_ERR_TIMED_OUT);
    assert_null(transport);
}

/* ---------------------------------------------------------------- which host */

static void a_named_host_is_taken_as_it_is(void **state)
{
    (void)state;
    char url[WEIR_ROUTE_URL_BYTES];
    assert_string_equal(weir_discover_host("tcp://10.0.0.1:7", url), "tcp://10.0.0.1:7");
    assert_string_equal(weir_discover_host("ivshmem:///some/file", url), "ivshmem:///some/file");
    assert_string_equal(weir_discover_host("devdax:///dev/dax0.0", url), "devdax:///dev/dax0.0");
    struct weir_route routes[WEIR_ROUTES_MAX];
    size_t n = weir_discover(routes);
    assert_in_range(n, 3, WEIR_ROUTES_MAX);
    assert_string_equal(routes[0].kind, "socket");
    assert_string_equal(routes[1].kind, "devdax");
    assert_string_equal(routes[2].kind, "ivshmem");
    for (size_t i = 0; i < n; i++) {
        assert_true(routes[i].about[0] != 0);
        assert_int_equal(routes[i].status == WEIR_OK, routes[i].url[0] != 0);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_region, drop_region)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(open_what_is_no_region_is_refused),        CASE(every_lie_of_a_host_is_an_error),
        CASE(session_works_until_slot_or_epoch_change), CASE(nobody_there_is_said),
        CASE(a_named_host_is_taken_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

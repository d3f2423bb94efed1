/*
 * Why items wait: traces made by hand, in which one wait has a known cause, and runs of the
 * scheduler, in which none may be unexplained beyond a bound.
 */
#include "tests/lib/tl_recorded.h"
#include "tests/lib/tl_tail.h"

#include "../../lib/tl_cmocka.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MS    1000000u
#define SMS   132u
#define BOUND (2 * MS) /* docs/design/simulation.md: of a run under `fair` */

struct hand {
    struct weir_sched_trace *trace;
    int fd;
};

/* Two tenants, a and b, of these classes, with a queue and a domain each. */
static struct hand begin(const char *policy, enum weir_priority a, enum weir_priority b,
                         uint32_t domain_of_b)
{
    struct weir_sched_config config;
    struct hand h;
    int fd = memfd_create("tail", MFD_CLOEXEC);
    weir_sched_config_init(&config, SMS);
    h.fd = dup(fd);
    assert_int_equal(weir_sched_trace_create(&config, 0, 0, 1024, fd, &h.trace), WEIR_OK);
    weir_sched_trace_policy(h.trace, 1, 0, policy);
    for (uint64_t t = 1; t <= 2; t++) {
        const struct weir_sched_tenant_params params = {
            .weight = 1, .sm_limit = 100, .priority = t == 1 ? a : b};
        struct weir_sched_record r = {.at_ns = 1,
                                      .tenant = t,
                                      .value = weir_sched_tenant_packed(&params),
                                      .kind = WEIR_SCHED_REC_TENANT_ADD};
        assert_true(weir_sched_trace_put(h.trace, &r));
        weir_sched_trace_tenant_name(h.trace, 1, t, t == 1 ? "a" : "b");
        r = (struct weir_sched_record){.at_ns = 1,
                                       .tenant = t,
                                       .queue = t,
                                       .value =
                                           weir_sched_queue_packed(100, t == 1 ? 0 : domain_of_b),
                                       .kind = WEIR_SCHED_REC_QUEUE_ADD};
        assert_true(weir_sched_trace_put(h.trace, &r));
    }
    return h;
}

/* Of tenant `who`'s queue; value: as the kind has it. */
static void put(struct hand *h, uint64_t at_us, enum weir_sched_record_kind kind, uint64_t who,
                uint64_t item, uint64_t value)
{
    const struct weir_sched_record r = {.at_ns = 1 + at_us * 1000,
                                        .tenant = kind == WEIR_SCHED_REC_TICK ? 0 : who,
                                        .queue = who,
                                        .item = item,
                                        .key = who,
                                        .value = value,
                                        .blocks = 8 * SMS,
                                        .blocks_per_sm = 8,
                                        .kind = (uint8_t)kind};
    assert_true(weir_sched_trace_put(h->trace, &r));
}

/* The device has it for a while. */
static void runs(struct hand *h, uint64_t from_us, uint64_t to_us, uint64_t who, uint64_t item)
{
    put(h, from_us, WEIR_SCHED_REC_START, who, item, 0);
    put(h, to_us, WEIR_SCHED_REC_FINISH, who, item, 0);
}

static struct tl_tail read_fd(int fd)
{
    struct weir_sched_trace_error error;
    struct tl_tail tail;
    uint64_t bytes = (uint64_t)lseek(fd, 0, SEEK_END);
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    assert_int_equal(tl_tail_read(data, bytes, 4, &tail, &error), WEIR_OK);
    munmap(data, bytes);
    close(fd);
    return tail;
}

static struct tl_tail end(struct hand *h)
{
    assert_int_equal(weir_sched_trace_destroy(h->trace), WEIR_OK);
    return read_fd(h->fd);
}

/* Of the tenants' waits so much has this cause, and nothing else is unexplained. */
static void assert_only(const struct tl_tail *tail, uint32_t tenant, enum tl_tail_cause cause,
                        uint64_t us)
{
    uint64_t unexplained_ns = 0;
    for (uint32_t t = 0; t < tail->n_tenants; t++) {
        unexplained_ns += tail->tenants[t].unexplained_ns;
    }
    assert_int_equal(tail->tenants[tenant].cause_ns[cause], us * 1000);
    assert_int_equal(unexplained_ns, tl_tail_causes[cause].is_explained ? 0 : us * 1000);
    assert_int_equal(tail->unknown, 0);
}

/* ------------------------------------------------------------------ by hand */

static void a_wait_of_8_ms_beside_an_idle_device_is_named(void **state)
{
    static const struct {
        enum weir_sched_record_kind event;
        enum tl_tail_cause cause;
    } rows[] = {{WEIR_SCHED_REC_TICK, TL_TAIL_TIMER}, {WEIR_SCHED_REC_ARRIVE, TL_TAIL_IDLE}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hand h = begin("fair", WEIR_PRIORITY_NORMAL, WEIR_PRIORITY_NORMAL, 0);
        put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, 100000);
        runs(&h, 0, 100, 1, 10);
        put(&h, 200, WEIR_SCHED_REC_ARRIVE, 2, 20, 100000);
        put(&h, 8200, rows[i].event, 1, rows[i].event == WEIR_SCHED_REC_TICK ? 0 : 11, 100000);
        runs(&h, 8200, 8300, 2, 20);
        struct tl_tail tail = end(&h);
        assert_only(&tail, 1, rows[i].cause, 8000);
        assert_int_equal(tail.n_worst, 1);
        assert_int_equal(tail.worst[0].item, 20);
        assert_int_equal(tail.worst[0].tenant, 1);
        assert_int_equal(tail.worst[0].waited_ns, 8 * MS);
        assert_int_equal(tail.worst[0].unexplained_ns, 8 * MS);
        assert_int_equal(tail.worst[0].ended_by, rows[i].event);
        assert_string_equal(tail.tenants[1].name, "b");
        tl_tail_finish(&tail);
    }
}

/* It is sure to take 1 ms; its end is told after 5. */
static void an_end_that_is_seen_late_is_named(void **state)
{
    struct hand h = begin("fair", WEIR_PRIORITY_NORMAL, WEIR_PRIORITY_NORMAL, 0);
    (void)state;
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, MS);
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 2, 20, MS);
    runs(&h, 0, 5000, 1, 10);
    runs(&h, 5000, 6000, 2, 20);
    struct tl_tail tail = end(&h);
    assert_in_range(tail.tenants[1].cause_ns[TL_TAIL_LATE], 3500000, 3750000);
    assert_int_equal(tail.tenants[1].cause_ns[TL_TAIL_LATE], tail.tenants[1].unexplained_ns);
    tl_tail_finish(&tail);
}

/* a has the device again and again while b waits, in slices of 0.2 ms. */
static void others_that_go_on_beyond_their_share_are_named(void **state)
{
    struct hand h = begin("fair", WEIR_PRIORITY_NORMAL, WEIR_PRIORITY_NORMAL, 0);
    (void)state;
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 2, 20, 100000);
    for (uint64_t i = 0; i < 100; i++) {
        put(&h, 100 * i, WEIR_SCHED_REC_ARRIVE, 1, 10 + 2 * i + 1, 100000);
        put(&h, 100 * i, WEIR_SCHED_REC_CHOOSE, 1, 0, 200000);
        runs(&h, 100 * i, 100 * (i + 1), 1, 10 + 2 * i + 1);
    }
    runs(&h, 10000, 10100, 2, 20);
    struct tl_tail tail = end(&h);
    assert_in_range(tail.tenants[1].cause_ns[TL_TAIL_SHARE], 500000, 2000000);
    assert_in_range(tail.tenants[1].cause_ns[TL_TAIL_BEYOND], 7500000, 9500000);
    assert_int_equal(tail.tenants[0].unexplained_ns, 0);
    tl_tail_finish(&tail);
}

/* One kernel of a, not known, for 50 ms: nobody can stop it. */
static void what_was_on_the_device_explains_itself(void **state)
{
    static const struct {
        uint32_t domain;
        enum tl_tail_cause cause;
    } rows[] = {{0, TL_TAIL_FLIGHT}, {7, TL_TAIL_DOMAIN}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hand h = begin("fair", WEIR_PRIORITY_NORMAL, WEIR_PRIORITY_NORMAL, rows[i].domain);
        put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, 0);
        put(&h, 0, WEIR_SCHED_REC_START, 1, 10, 0);
        put(&h, 1000, WEIR_SCHED_REC_ARRIVE, 2, 20, 100000);
        put(&h, 1000, WEIR_SCHED_REC_CHOOSE, 2, 0, 200000);
        put(&h, 50000, WEIR_SCHED_REC_FINISH, 1, 10, 0);
        runs(&h, 50000, 50100, 2, 20);
        struct tl_tail tail = end(&h);
        assert_only(&tail, 1, rows[i].cause, 49000);
        tl_tail_finish(&tail);
    }
}

static void a_class_explains_waits_of_lower_ones(void **state)
{
    struct hand h = begin("priority", WEIR_PRIORITY_HIGH, WEIR_PRIORITY_LOW, 0);
    (void)state;
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 2, 20, 100000);
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, 3 * MS);
    runs(&h, 0, 3000, 1, 10);
    runs(&h, 3000, 3100, 2, 20);
    struct tl_tail tail = end(&h);
    assert_only(&tail, 1, TL_TAIL_CLASS, 3000);
    tl_tail_finish(&tail);
}

static void a_lower_class_that_is_granted_first_is_named(void **state)
{
    struct hand h = begin("priority", WEIR_PRIORITY_LOW, WEIR_PRIORITY_HIGH, 0);
    (void)state;
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, MS);
    put(&h, 0, WEIR_SCHED_REC_START, 1, 10, 0);
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 11, 2 * MS);
    put(&h, 500, WEIR_SCHED_REC_ARRIVE, 2, 20, 100000);
    put(&h, 1000, WEIR_SCHED_REC_FINISH, 1, 10, 0);
    runs(&h, 1000, 3000, 1, 11);
    runs(&h, 3000, 3100, 2, 20);
    struct tl_tail tail = end(&h);
    assert_only(&tail, 1, TL_TAIL_LOWER, 2000);
    assert_int_equal(tail.tenants[1].cause_ns[TL_TAIL_FLIGHT], 500000);
    tl_tail_finish(&tail);
}

/* A program's own items wait for each other; what still waits at the end counts, too. */
static void own_work_explains_what_is_behind_it(void **state)
{
    struct hand h = begin("fair", WEIR_PRIORITY_NORMAL, WEIR_PRIORITY_NORMAL, 0);
    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10 + i, MS);
    }
    runs(&h, 0, 1000, 1, 10);
    runs(&h, 1000, 2000, 1, 11);
    struct tl_tail tail = end(&h);
    assert_only(&tail, 0, TL_TAIL_OWN, 1000 + 2000);
    assert_int_equal(tail.tenants[0].items, 3);
    assert_int_equal(tail.tenants[0].longest_ns, 2 * MS);
    tl_tail_finish(&tail);
}

/* The queue of a session that goes takes its items along, also those on the device. */
static void a_queue_that_goes_leaves_nothing(void **state)
{
    static const enum weir_sched_record_kind kinds[] = {WEIR_SCHED_REC_QUEUE_REMOVE,
                                                        WEIR_SCHED_REC_TENANT_REMOVE};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct hand h = begin("fair", WEIR_PRIORITY_NORMAL, WEIR_PRIORITY_NORMAL, 0);
        put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, MS);
        put(&h, 0, WEIR_SCHED_REC_START, 1, 10, 0);
        put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 11, MS);
        put(&h, 0, WEIR_SCHED_REC_ARRIVE, 2, 20, MS);
        put(&h, 500, kinds[i], 1, 0, 0);
        put(&h, 3500, WEIR_SCHED_REC_TICK, 0, 0, 0);
        runs(&h, 3500, 4500, 2, 20);
        struct tl_tail tail = end(&h);
        assert_only(&tail, 1, TL_TAIL_TIMER, 3000);
        assert_int_equal(tail.tenants[0].items, 1); /* that waits no more is not told of */
        tl_tail_finish(&tail);
    }
}

static void records_about_the_unknown_are_counted(void **state)
{
    struct hand h = begin("fair", WEIR_PRIORITY_NORMAL, WEIR_PRIORITY_NORMAL, 0);
    (void)state;
    put(&h, 0, WEIR_SCHED_REC_START, 1, 99, 0);
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 77, 10, MS);
    put(&h, 1, WEIR_SCHED_REC_ARRIVE, 1, 11, MS);
    put(&h, 1, WEIR_SCHED_REC_START, 1, 11, 0);
    put(&h, 1, WEIR_SCHED_REC_START, 1, 11, 0); /* twice */
    struct tl_tail tail = end(&h);
    assert_int_equal(tail.unknown, 3);
    assert_int_equal(tail.tenants[0].items, 1);
    tl_tail_finish(&tail);
}

/* ------------------------------------------------------------------ runs of the scheduler */

static struct tl_tail tail_of(const char *spec, const char *policy, bool fills, uint64_t run_ns)
{
    struct tl_recorded run;
    tl_recorded_make(&run, spec, policy, run_ns);
    run.params.config.fill = fills ? WEIR_SCHED_FILL_ALL : WEIR_SCHED_FILL_NONE;
    run.params.config.small_sms = fills ? 3 * SMS : 0;
    return read_fd(tl_recorded_run(&run, fills ? WEIR_SCHED_TRACE_FILL_ALL : 0));
}

#define SERVICE "graph=19 kernel=510us think=60us"
#define TRAIN   "; name=train kernel=exp:300us keys=60 depth=64 form=original"

static void runs_under_fair_have_no_unexplained_wait_beyond_the_bound(void **state)
{
    static const struct {
        const char *spec;
        bool fills;
    } rows[] = {
        {"name=a weight=3 kernel=1ms form=original depth=4; "
         "name=b kernel=200us form=original depth=8",
         false},
        {"tenants=12 weight=1..10 kernel=20us..1ms keys=9 depth=4 form=original", false},
        {"name=a weight=3 kernel=20us..2ms keys=8 depth=16; name=b kernel=5ms depth=3", false},
        {"tenants=30 weight=1..4 " SERVICE, true},
        {"name=infer kernel=20us depth=60 think=2ms form=original" TRAIN, true},
        {"name=a weight=10 h2d=64M kernels=0 depth=64 cut=4M; name=b h2d=64M kernels=0 depth=64 "
         "cut=4M; name=c weight=3 d2h=1M..100M kernels=0 depth=3",
         true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tl_tail tail = tail_of(rows[i].spec, "fair", rows[i].fills, 100 * MS);
        uint64_t items = 0, waited_ns = 0;
        for (uint32_t t = 0; t < tail.n_tenants; t++) {
            items += tail.tenants[t].items;
            waited_ns += tail.tenants[t].waited_ns;
            if (tail.tenants[t].longest_unexplained_ns > BOUND) {
                fail_msg("load %zu, tenant %u: %.3f ms unexplained", i, t,
                         (double)tail.tenants[t].longest_unexplained_ns / 1e6);
            }
        }
        assert_true(items > 50 && waited_ns > 10 * MS);
        tl_tail_finish(&tail);
    }
}

/* `priority` keeps no shares: it serves short work of a class first. */
static void the_order_of_another_policy_explains_waits(void **state)
{
    struct tl_tail tail = tail_of("name=short kernel=200us form=original depth=64; "
                                  "name=long kernel=2ms form=original depth=64",
                                  "priority", false, 100 * MS);
    (void)state;
    assert_int_equal(tail.tenants[1].cause_ns[TL_TAIL_SHARE], 0);
    assert_true(tail.tenants[1].cause_ns[TL_TAIL_ORDER] > 10 * MS);
    tl_tail_finish(&tail);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_of_8_ms_beside_an_idle_device_is_named),
        cmocka_unit_test(an_end_that_is_seen_late_is_named),
        cmocka_unit_test(others_that_go_on_beyond_their_share_are_named),
        cmocka_unit_test(what_was_on_the_device_explains_itself),
        cmocka_unit_test(a_class_explains_waits_of_lower_ones),
        cmocka_unit_test(a_lower_class_that_is_granted_first_is_named),
        cmocka_unit_test(own_work_explains_what_is_behind_it),
        cmocka_unit_test(a_queue_that_goes_leaves_nothing),
        cmocka_unit_test(records_about_the_unknown_are_counted),
        cmocka_unit_test(runs_under_fair_have_no_unexplained_wait_beyond_the_bound),
        cmocka_unit_test(the_order_of_another_policy_explains_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

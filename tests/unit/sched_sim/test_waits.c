/*
 * Why items waited, as traces say it: traces made by hand, in which the sums are known, and runs of
 * the scheduler, which must name the causes that their loads are made for.
 */
#include "sched/sim/waits.h"
#include "tests/lib/tl_recorded.h"

#include "../../lib/tl_cmocka.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MS  1000000u
#define SMS 132u

/* ------------------------------------------------------------------ by hand */

struct hand {
    struct weir_sched_trace *trace;
    int fd;
};

/* Two tenants with a queue each: of tenant 1 queue 1, of tenant 2 queue 2. */
static struct hand begin(uint32_t flags)
{
    struct weir_sched_config config;
    struct hand h;
    int fd = memfd_create("waits", MFD_CLOEXEC);
    weir_sched_config_init(&config, SMS);
    h.fd = dup(fd);
    assert_int_equal(weir_sched_trace_create(&config, flags, 0, 1024, fd, &h.trace), WEIR_OK);
    for (uint64_t t = 1; t <= 2; t++) {
        const struct weir_sched_tenant_params params = {
            .weight = (uint32_t)t, .sm_limit = 100, .priority = WEIR_PRIORITY_NORMAL};
        struct weir_sched_record r = {.at_ns = 1,
                                      .tenant = t,
                                      .value = weir_sched_tenant_packed(&params),
                                      .kind = WEIR_SCHED_REC_TENANT_ADD};
        assert_true(weir_sched_trace_put(h.trace, &r));
        weir_sched_trace_tenant_name(h.trace, 1, t, t == 1 ? "a" : "b");
        r.queue = t;
        r.value = weir_sched_queue_packed(100, 0);
        r.kind = WEIR_SCHED_REC_QUEUE_ADD;
        assert_true(weir_sched_trace_put(h.trace, &r));
    }
    return h;
}

static void put_for(struct hand *h, uint64_t at_us, enum weir_sched_record_kind kind, uint64_t who,
                    uint64_t item, uint64_t value, uint64_t other)
{
    const struct weir_sched_record r = {.at_ns = 1 + at_us * 1000,
                                        .tenant = who,
                                        .queue = who,
                                        .item = item,
                                        .value = value,
                                        .key = other,
                                        .kind = (uint8_t)kind};
    assert_true(weir_sched_trace_put(h->trace, &r));
}

static void put(struct hand *h, uint64_t at_us, enum weir_sched_record_kind kind, uint64_t who,
                uint64_t item, uint64_t value)
{
    put_for(h, at_us, kind, who, item, value, 0);
}

static enum weir_status read_fd(int fd, struct weir_sim_waits *ret_waits)
{
    struct weir_sched_trace_error error;
    uint64_t bytes = (uint64_t)lseek(fd, 0, SEEK_END);
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    enum weir_status status = weir_sim_waits_read(data, bytes, 2, ret_waits, &error);
    munmap(data, bytes);
    close(fd);
    return status;
}

static struct weir_sim_waits end(struct hand *h)
{
    struct weir_sim_waits waits;
    assert_int_equal(weir_sched_trace_destroy(h->trace), WEIR_OK);
    assert_int_equal(read_fd(h->fd, &waits), WEIR_OK);
    return waits;
}

/* Item 10 waits 1 ms for others' turn, 2 ms beside an idle device; item 20 for its own. */
static void each_moment_counts_for_the_cause_that_was_said_last(void **state)
{
    (void)state;
    struct hand h = begin(0);
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, 0);
    put(&h, 0, WEIR_SCHED_REC_WAIT, 1, 10, WEIR_SCHED_CAUSE_TURN);
    put(&h, 500, WEIR_SCHED_REC_ARRIVE, 2, 20, 0);
    put(&h, 1000, WEIR_SCHED_REC_WAIT, 1, 10, WEIR_SCHED_CAUSE_IDLE);
    put(&h, 3000, WEIR_SCHED_REC_TICK, 0, 0, 0);
    put(&h, 3000, WEIR_SCHED_REC_START, 1, 10, 0);
    put(&h, 4000, WEIR_SCHED_REC_FINISH, 1, 10, 0);
    put(&h, 4500, WEIR_SCHED_REC_START, 2, 20, 0);
    struct weir_sim_waits waits = end(&h);
    const struct weir_sim_waits_tenant *a = &waits.tenants[0], *b = &waits.tenants[1];
    assert_int_equal(waits.n_tenants, 2);
    assert_string_equal(a->name, "a");
    assert_int_equal(b->weight, 2);
    assert_int_equal(a->sum.ns, 3 * MS);
    assert_int_equal(a->sum.cause_ns[WEIR_SCHED_CAUSE_TURN], MS);
    assert_int_equal(a->sum.cause_ns[WEIR_SCHED_CAUSE_IDLE], 2 * MS);
    assert_int_equal(a->most.unexplained_ns, 2 * MS);
    assert_int_equal(b->items, 1);
    assert_int_equal(b->sum.cause_ns[WEIR_SCHED_CAUSE_OWN], 4 * MS);
    assert_int_equal(b->sum.unexplained_ns, 0);
    assert_int_equal(waits.n_worst, 2);
    assert_int_equal(waits.worst[0].item, 10); /* shorter, but nothing explains 2 ms of it */
    assert_int_equal(waits.worst[0].ended_by, WEIR_SCHED_REC_TICK);
    assert_int_equal(waits.worst[1].waited.ns, 4 * MS);
    assert_int_equal(waits.unknown, 0);
    weir_sim_waits_finish(&waits);
}

/* Item 10 waits for tenant 2 for two causes, then for one that nobody knows. */
static void each_moment_counts_for_the_tenant_that_was_named(void **state)
{
    (void)state;
    struct hand h = begin(0);
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, 0);
    put_for(&h, 0, WEIR_SCHED_REC_WAIT, 1, 10, WEIR_SCHED_CAUSE_TURN, 2);
    put_for(&h, 1000, WEIR_SCHED_REC_WAIT, 1, 10, WEIR_SCHED_CAUSE_FLIGHT, 2);
    put_for(&h, 1500, WEIR_SCHED_REC_WAIT, 1, 10, WEIR_SCHED_CAUSE_TURN, 2);
    put_for(&h, 3500, WEIR_SCHED_REC_WAIT, 1, 10, WEIR_SCHED_CAUSE_TURN, 77);
    put(&h, 4000, WEIR_SCHED_REC_START, 1, 10, 0);
    put(&h, 5000, WEIR_SCHED_REC_FINISH, 1, 10, 0);
    struct weir_sim_waits waits = end(&h);
    const struct weir_sim_waited_for *turn = &waits.waited_for[0], *flight = &waits.waited_for[1];
    assert_int_equal(waits.n_waited_for, 2);
    assert_int_equal(turn->cause, WEIR_SCHED_CAUSE_TURN);
    assert_int_equal(turn->tenant, 0);
    assert_int_equal(turn->other, 1);
    assert_int_equal(turn->ns, 3 * MS);
    assert_int_equal(flight->cause, WEIR_SCHED_CAUSE_FLIGHT);
    assert_int_equal(flight->ns, MS / 2);
    assert_int_equal(waits.tenants[0].sum.cause_ns[WEIR_SCHED_CAUSE_TURN], 3 * MS + MS / 2);
    assert_int_equal(waits.worst[0].others[WEIR_SCHED_CAUSE_TURN], 2);
    assert_int_equal(waits.worst[0].others[WEIR_SCHED_CAUSE_CLASS], 0);
    weir_sim_waits_finish(&waits);
}

static void a_stop_begins_a_wait_and_whoever_lets_it_go_on_ends_it(void **state)
{
    static const enum weir_sched_record_kind kinds[] = {WEIR_SCHED_REC_RESUME,
                                                        WEIR_SCHED_REC_RUNNING};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct hand h = begin(0);
        put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, 0);
        put(&h, 0, WEIR_SCHED_REC_START, 1, 10, 0);
        put(&h, 1000, WEIR_SCHED_REC_STOPPED, 1, 10, 0);
        put(&h, 1000, WEIR_SCHED_REC_WAIT, 1, 10, WEIR_SCHED_CAUSE_CLASS);
        put(&h, 3000, kinds[i], 1, 10, 1);
        put(&h, 9000, WEIR_SCHED_REC_FINISH, 1, 10, 0);
        struct weir_sim_waits waits = end(&h);
        assert_int_equal(waits.tenants[0].sum.ns, 2 * MS);
        assert_int_equal(waits.tenants[0].sum.cause_ns[WEIR_SCHED_CAUSE_CLASS], 2 * MS);
        weir_sim_waits_finish(&waits);
    }
}

/* The queue of a session that goes takes its items along, also those on the device. */
static void a_queue_that_goes_leaves_nothing(void **state)
{
    static const enum weir_sched_record_kind kinds[] = {WEIR_SCHED_REC_QUEUE_REMOVE,
                                                        WEIR_SCHED_REC_TENANT_REMOVE};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct hand h = begin(0);
        put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, 0);
        put(&h, 0, WEIR_SCHED_REC_START, 1, 10, 0);
        put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 11, 0);
        put(&h, 0, WEIR_SCHED_REC_ARRIVE, 2, 20, 0);
        put(&h, 500, kinds[i], 1, 0, 0);
        put(&h, 3500, WEIR_SCHED_REC_START, 2, 20, 0);
        struct weir_sim_waits waits = end(&h);
        assert_int_equal(waits.tenants[0].items, 1); /* that waits no more is not told of */
        assert_int_equal(waits.tenants[0].sum.ns, 0);
        assert_int_equal(waits.tenants[1].sum.ns, 3500 * 1000);
        weir_sim_waits_finish(&waits);
    }
}

static void records_about_the_unknown_are_counted(void **state)
{
    (void)state;
    struct hand h = begin(0);
    put(&h, 0, WEIR_SCHED_REC_START, 1, 99, 0);
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 77, 10, 0);
    put(&h, 1, WEIR_SCHED_REC_WAIT, 77, 10, WEIR_SCHED_CAUSE_TURN);
    put(&h, 1, WEIR_SCHED_REC_ARRIVE, 1, 11, 0);
    struct weir_sim_waits waits = end(&h);
    assert_int_equal(waits.unknown, 3);
    assert_int_equal(waits.tenants[0].items, 1);
    weir_sim_waits_finish(&waits);
}

static void what_says_no_causes_is_refused(void **state)
{
    (void)state;
    struct weir_sim_waits waits;
    struct hand h = begin(WEIR_SCHED_TRACE_GENERATED);
    assert_int_equal(weir_sched_trace_destroy(h.trace), WEIR_OK);
    assert_int_equal(read_fd(h.fd, &waits), WEIR_ERR_VERSION);
    h = begin(0);
    put(&h, 0, WEIR_SCHED_REC_ARRIVE, 1, 10, 0);
    put(&h, 0, WEIR_SCHED_REC_WAIT, 1, 10, WEIR_SCHED_CAUSE_COUNT);
    assert_int_equal(weir_sched_trace_destroy(h.trace), WEIR_OK);
    assert_int_equal(read_fd(h.fd, &waits), WEIR_ERR_SYNTAX);
}

/* ------------------------------------------------------------------ runs of the scheduler */

/* apart: the scheduler is told of the GPU contexts in which tenants work. */
static struct weir_sim_waits waits_of(const char *spec, const char *policy, bool apart)
{
    struct weir_sim_waits waits;
    struct tl_recorded run;
    tl_recorded_make(&run, spec, policy, 100 * MS);
    run.params.knows_contexts = apart;
    assert_int_equal(read_fd(tl_recorded_run(&run, 0), &waits), WEIR_OK);
    return waits;
}

#define ORIGINAL " form=original"

/* A fifth at least of what the last tenant of each load waits is for this; and nobody waits beside
 * an idle device. */
static void the_scheduler_says_what_its_decisions_were_for(void **state)
{
    static const struct {
        const char *spec, *policy;
        bool apart;
        enum weir_sched_cause cause;
    } rows[] = {
        {"name=a kernel=1ms depth=4" ORIGINAL, "fair", false, WEIR_SCHED_CAUSE_OWN},
        {"name=a kernel=1ms depth=4" ORIGINAL "; name=b kernel=200us depth=4" ORIGINAL, "fair",
         false, WEIR_SCHED_CAUSE_TURN},
        {"name=a priority=high kernel=1ms depth=4" ORIGINAL "; name=b kernel=200us" ORIGINAL,
         "priority", false, WEIR_SCHED_CAUSE_CLASS},
        {"name=a kernel=1ms depth=4" ORIGINAL "; name=b kernel=200us think=20ms" ORIGINAL, "fair",
         false, WEIR_SCHED_CAUSE_FLIGHT},
        {"name=a kernel=1ms depth=4 context=1" ORIGINAL
         "; name=b kernel=200us think=20ms context=2" ORIGINAL,
         "fair", true, WEIR_SCHED_CAUSE_DOMAIN},
        {"name=b kernel=300us depth=4; name=a kernel=1ms limit=20 depth=4" ORIGINAL, "fair", false,
         WEIR_SCHED_CAUSE_LIMIT},
        {"name=a h2d=64M kernels=0 depth=64 cut=4M; name=b h2d=1M kernels=0", "fair", false,
         WEIR_SCHED_CAUSE_TURN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_sim_waits waits = waits_of(rows[i].spec, rows[i].policy, rows[i].apart);
        const struct weir_sim_waited *last = &waits.tenants[waits.n_tenants - 1].sum;
        uint64_t sum_ns = 0;
        for (unsigned c = 0; c < WEIR_SCHED_CAUSE_COUNT; c++) {
            sum_ns += last->cause_ns[c];
        }
        if (last->ns == 0 || 5 * last->cause_ns[rows[i].cause] < last->ns) {
            fail_msg("load %zu: of %.3f ms only %.3f for %s", i, (double)last->ns / 1e6,
                     (double)last->cause_ns[rows[i].cause] / 1e6,
                     weir_sched_causes[rows[i].cause].word);
        }
        assert_int_equal(sum_ns, last->ns);
        assert_int_equal(last->unexplained_ns, 0);
        weir_sim_waits_finish(&waits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_moment_counts_for_the_cause_that_was_said_last),
        cmocka_unit_test(each_moment_counts_for_the_tenant_that_was_named),
        cmocka_unit_test(a_stop_begins_a_wait_and_whoever_lets_it_go_on_ends_it),
        cmocka_unit_test(a_queue_that_goes_leaves_nothing),
        cmocka_unit_test(records_about_the_unknown_are_counted),
        cmocka_unit_test(what_says_no_causes_is_refused),
        cmocka_unit_test(the_scheduler_says_what_its_decisions_were_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

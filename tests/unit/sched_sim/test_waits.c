/*
 * Why items waited, as traces say it: the scheduler must name the causes that the loads of its runs
 * are made for.
 */
#include "sched/trace/trace.h"
#include "tests/lib/tl_recorded.h"

#include "../../lib/tl_cmocka.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MS 1000000u

/* An item that waits since then, for that cause. */
struct waiting {
    weir_sched_id item;
    uint64_t since_ns;
    uint8_t cause;
};

/* What the items of one tenant waited. */
struct waited {
    weir_sched_id tenant, queue;
    struct waiting now[256];
    size_t n;
    uint64_t ns, cause_ns[WEIR_SCHED_CAUSE_COUNT];
};

/* Count the item's wait up to now; false: it does not wait. */
static bool count(struct waited *w, const struct weir_sched_record *r, size_t *ret_at)
{
    size_t i = 0;
    while (i < w->n && w->now[i].item != r->item) {
        i++;
    }
    *ret_at = i;
    if (i == w->n) {
        return false;
    }
    struct waiting *waiting = &w->now[i];
    w->ns += r->at_ns - waiting->since_ns;
    w->cause_ns[waiting->cause] += r->at_ns - waiting->since_ns;
    waiting->since_ns = r->at_ns;
    return true;
}

static void begin(struct waited *w, const struct weir_sched_record *r)
{
    assert_in_range(w->n, 0, 255);
    w->now[w->n++] = (struct waiting){r->item, r->at_ns, WEIR_SCHED_CAUSE_OWN};
}

static void take(struct waited *w, const struct weir_sched_record *r)
{
    size_t at;
    switch (r->kind) {
    case WEIR_SCHED_REC_QUEUE_ADD: /* of several tenants the last */
        *w = (struct waited){.tenant = r->tenant, .queue = r->queue};
        break;
    case WEIR_SCHED_REC_ARRIVE:
        if (r->queue == w->queue && !(r->flags & WEIR_SCHED_STARTED)) {
            begin(w, r);
        }
        break;
    case WEIR_SCHED_REC_WAIT:
        assert_in_range(r->value, 0, WEIR_SCHED_CAUSE_COUNT - 1);
        if (count(w, r, &at)) {
            w->now[at].cause = (uint8_t)r->value;
        }
        break;
    case WEIR_SCHED_REC_START:
        if (count(w, r, &at)) {
            w->now[at] = w->now[--w->n];
        }
        break;
    default:
        break;
    }
}

/* What the last tenant of a load waits. apart: the scheduler is told of its GPU contexts. */
static struct waited waits_of(const char *spec, const char *policy, bool apart)
{
    struct waited waited = {.n = 0};
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    struct weir_sched_record record;
    struct tl_recorded run;
    tl_recorded_make(&run, spec, policy, 100 * MS);
    run.params.knows_contexts = apart;
    int fd = tl_recorded_run(&run, 0);
    size_t bytes = (size_t)lseek(fd, 0, SEEK_END);
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    close(fd);
    assert_int_equal(weir_sched_trace_open(data, bytes, &reader, &error), WEIR_OK);
    assert_true(reader.header.flags & WEIR_SCHED_TRACE_CAUSES);
    while (weir_sched_trace_next(&reader, &record, &error) == WEIR_OK) {
        take(&waited, &record);
    }
    munmap(data, bytes);
    return waited;
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
        const struct waited last = waits_of(rows[i].spec, rows[i].policy, rows[i].apart);
        uint64_t sum_ns = 0;
        for (unsigned c = 0; c < WEIR_SCHED_CAUSE_COUNT; c++) {
            sum_ns += last.cause_ns[c];
        }
        if (last.ns == 0 || 5 * last.cause_ns[rows[i].cause] < last.ns) {
            fail_msg("load %zu: of %.3f ms only %.3f for %s", i, (double)last.ns / 1e6,
                     (double)last.cause_ns[rows[i].cause] / 1e6,
                     weir_sched_causes[rows[i].cause].word);
        }
        assert_int_equal(sum_ns, last.ns);
        assert_int_equal(last.cause_ns[WEIR_SCHED_CAUSE_IDLE], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scheduler_says_what_its_decisions_were_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* How long the gate process looks before it sleeps: host_backend/gate/process/pace.h. */
#include "base/clock.h"
#include "host_backend/gate/process/pace.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define ROUND_NS WEIR_NS_PER_US

/* A loop like the process's: a request each gap, for so long. @return how long it looked */
static uint64_t looked_ns(uint64_t gap_ns, uint64_t for_ns, bool company)
{
    struct served_pace pace = {0};
    uint64_t begin_ns = WEIR_NS_PER_S, now_ns = begin_ns, next_ns = now_ns, looked = 0;

    while (now_ns < begin_ns + for_ns) {
        uint32_t n = now_ns >= next_ns;

        next_ns += n * gap_ns;
        served_pace_note(&pace, n, now_ns);
        if (n != 0 || served_pace_looks(&pace, company && served_pace_is_often(&pace), now_ns)) {
            looked += ROUND_NS;
            now_ns += ROUND_NS;
        } else {
            served_pace_sleep(&pace);
            now_ns = next_ns;
        }
    }
    return looked;
}

static void it_looks_as_long_as_requests_come_often(void **state)
{
    static const struct {
        const char *what;
        uint64_t gap_ns;
        bool company;
        uint64_t least_pct, most_pct;
    } rows[] = {
        {"each 50 us", 50 * WEIR_NS_PER_US, false, 99, 100},
        {"each ms, of one tenant", WEIR_NS_PER_MS, false, 9, 11},
        {"each ms, of several", WEIR_NS_PER_MS, true, 98, 100},
        {"each 4 ms, of several", 4 * WEIR_NS_PER_MS, true, 98, 100},
        {"each 10 ms, of several", 10 * WEIR_NS_PER_MS, true, 0, 2},
        {"each second, of several", WEIR_NS_PER_S, true, 0, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t pct = looked_ns(rows[i].gap_ns, 2 * WEIR_NS_PER_S, rows[i].company) * 100 /
                       (2 * WEIR_NS_PER_S);

        if (pct < rows[i].least_pct || pct > rows[i].most_pct) {
            fail_msg("%s: %llu %%", rows[i].what, (unsigned long long)pct);
        }
    }
}

static void it_sleeps_soon_after_the_last_request(void **state)
{
    struct served_pace pace = {0};
    uint64_t now_ns = WEIR_NS_PER_S, end_ns = now_ns + 50 * WEIR_NS_PER_MS, last_ns;

    (void)state;
    for (; now_ns < end_ns; now_ns += ROUND_NS) {
        served_pace_note(&pace, 1, now_ns);
    }
    last_ns = now_ns - ROUND_NS;
    while (served_pace_looks(&pace, served_pace_is_often(&pace), now_ns)) {
        now_ns += ROUND_NS;
        served_pace_note(&pace, 0, now_ns);
    }
    assert_in_range(now_ns - last_ns, 10 * WEIR_NS_PER_MS, 20 * WEIR_NS_PER_MS);
}

static void one_that_lost_its_core_sleeps_twice(void **state)
{
    struct served_pace pace = {0};
    uint64_t now_ns = WEIR_NS_PER_S;

    (void)state;
    served_pace_note(&pace, 8, now_ns);
    assert_true(served_pace_looks(&pace, true, now_ns + ROUND_NS));
    now_ns += ROUND_NS + WEIR_PREEMPTED_NS + 1;
    assert_false(served_pace_looks(&pace, true, now_ns));
    served_pace_sleep(&pace);
    now_ns += WEIR_NS_PER_MS; /* the time that it has slept is no loss */
    served_pace_note(&pace, 1, now_ns);
    assert_false(served_pace_looks(&pace, true, now_ns + ROUND_NS));
    served_pace_sleep(&pace);
    now_ns += WEIR_NS_PER_MS;
    served_pace_note(&pace, 1, now_ns);
    assert_true(served_pace_looks(&pace, true, now_ns + ROUND_NS));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_looks_as_long_as_requests_come_often),
        cmocka_unit_test(it_sleeps_soon_after_the_last_request),
        cmocka_unit_test(one_that_lost_its_core_sleeps_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
